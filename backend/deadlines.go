package backend

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/wheel"
)

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
