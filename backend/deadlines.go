package backend

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/intake"
	"github.com/lapwing-monitoring/lapwing/internal/wheel"
	"github.com/lapwing-monitoring/lapwing/state"
)

// deadlines are one of the two cycles between parts: the fold arms the wheel, a deadline that passes becomes a record at
// the intake, and the fold reads that record from the log. The wheel is made first. It gets its two ends by connect, and
// starts after that.
type deadlines struct {
	wheel  *wheel.Wheel
	state  *state.State
	intake *intake.Intake
	log    *slog.Logger
}

func newDeadlines(log *slog.Logger, r prometheus.Registerer) (*deadlines, error) {
	d := &deadlines{log: log}
	var err error
	if d.wheel, err = wheel.New(wheel.Options{Due: d.due, Fire: d.fire}); err != nil {
		return nil, err
	}
	for _, c := range deadlineMetrics(d.wheel) {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *deadlines) connect(folded *state.State, in *intake.Intake) { d.state, d.intake = folded, in }

func (d *deadlines) due(id uint64) (int64, bool) { return d.state.Due(id) }

func (d *deadlines) fire(id uint64) {
	again, err := d.intake.Expire(context.Background(), id)
	if err != nil {
		d.log.Error("deadline was not recorded", "err", err)
	}
	if again != 0 {
		d.wheel.Arm(id, again)
	}
}

// deadlineMetrics are the figures of the wheel that holds the deadlines of agents and checks.
func deadlineMetrics(w *wheel.Wheel) []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "lapwing_deadline_fired_total", Help: "Deadlines that passed.",
		}, func() float64 { return float64(w.Fired()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lapwing_deadline_armed", Help: "Deadlines that are watched, with cancelled ones whose time has not come.",
		}, func() float64 { return float64(w.Len()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lapwing_deadline_late_seconds", Help: "How long ago the first deadline was due that is not handled yet; 0 when all are.",
		}, func() float64 { return w.Late().Seconds() }),
	}
}
