package ingest

import "github.com/prometheus/client_golang/prometheus"

// Metrics count what all Writers of a table take.
type Metrics struct {
	points  prometheus.Counter
	dropped prometheus.Counter
	refused [refusals]prometheus.Counter
}

// NewMetrics registers them; r may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{points: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lapwing_metric_points_total", Help: "Points from all senders, before rules and refusals.",
	}), dropped: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lapwing_metric_event_points_dropped_total",
		Help: "Points of events that were dropped because the store had no room.",
	})}
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lapwing_metric_refused_points_total",
		Help: "Points that were not taken because of their name: blacklisted, not_whitelisted, bad_name, or too_many_series when the bound of series or of new series a minute is reached.",
	}, []string{"reason"})
	for why := taken + 1; why < refusals; why++ {
		m.refused[why] = refused.WithLabelValues(refusalNames[why])
	}
	if r != nil {
		r.MustRegister(m.points, m.dropped, refused)
	}
	return m
}
