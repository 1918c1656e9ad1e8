package intake

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// outside are the sources of events that come from agents and users.
var outside = []string{"agent", "keepalive", "api"}

type metrics struct {
	received *prometheus.CounterVec
	rejected *prometheus.CounterVec
	skewed   prometheus.Counter
	silenced prometheus.Counter
	removed  *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		received: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_events_received_total", Help: "Events received, by where they came from.",
		}, []string{"source"}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_events_rejected_total", Help: "Events that were not taken, by reason.",
		}, []string{"reason"}),
		skewed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_events_clock_skewed_total", Help: "Agents' events that were dated in the future and got the time of receipt.",
		}),
		silenced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_events_silenced_total", Help: "Events received that silences applied to.",
		}),
	}
	m.removed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lapwing_entities_removed_total",
		Help: "Entities that the backend removed by itself, by why: their agent had asked for that, or their TTL has passed.",
	}, []string{"reason"})
	for _, reason := range []string{removedDeregistered, removedExpired} {
		m.removed.WithLabelValues(reason)
	}
	for _, source := range slices.Concat(outside, []string{"deadline"}) {
		m.received.WithLabelValues(source)
	}
	for _, reason := range []string{"undecodable", "invalid", "namespace", "entity", "too_large", "quota", "log"} {
		m.rejected.WithLabelValues(reason)
	}
	if r != nil {
		r.MustRegister(m.received, m.rejected, m.skewed, m.silenced, m.removed)
	}
	return m
}

// Received returns how many events have come from agents and through the API since the start, keepalives among them.
func (i *Intake) Received() (n uint64) {
	for _, source := range outside {
		var m dto.Metric
		if i.metrics.received.WithLabelValues(source).Write(&m) == nil {
			n += uint64(m.GetCounter().GetValue())
		}
	}
	return n
}
