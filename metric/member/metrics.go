package member

import "github.com/prometheus/client_golang/prometheus"

// metrics are the figures of a Group.
type metrics struct {
	sent, spilled, dropped, received, refused prometheus.Counter
	failures                                  prometheus.Counter
	seconds                                   prometheus.Histogram
}

func newMetrics(r prometheus.Registerer, g *Group) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		sent: counter("lapwing_metric_member_points_sent_total",
			"Points that another member has answered for."),
		spilled: counter("lapwing_metric_member_points_spilled_total",
			"Points that were put on disk because another member was away or slow."),
		dropped: counter("lapwing_metric_member_points_dropped_total",
			"Points for another member that were dropped: memory and disk for it are full, or the process ends."),
		received: counter("lapwing_metric_member_points_received_total",
			"Points that came from other members, each as often as it came."),
		refused: counter("lapwing_metric_member_batches_refused_total",
			"Batches of other members that could not be read or written."),
		failures: counter("lapwing_metric_member_send_failures_total",
			"Batches that another member has not answered for in time, each time."),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lapwing_metric_member_send_seconds", Help: "Time until another member has answered for a batch of points.",
			Buckets: []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10},
		}),
	}
	if r == nil {
		return m
	}
	limit := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lapwing_metric_member_spill_limit_bytes", Help: "Bytes on disk that may wait for one other member.",
	})
	limit.Set(float64(g.opts.SpillBytes))
	r.MustRegister(limit, m.sent, m.spilled, m.dropped, m.received, m.refused, m.failures, m.seconds,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lapwing_metric_member_points_waiting", Help: "Points in memory that wait for other members.",
		}, func() (sum float64) {
			for _, p := range g.all() {
				sum += float64(p.waiting())
			}
			return sum
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lapwing_metric_member_spill_bytes",
			Help: "Bytes on disk that wait for one other member: the one with the most.",
		}, func() (most float64) {
			for _, p := range g.all() {
				most = max(most, float64(p.spill.Bytes()))
			}
			return most
		}))
	return m
}
