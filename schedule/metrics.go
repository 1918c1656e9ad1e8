package schedule

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	requests, missed, subdued prometheus.Counter
	checks                    prometheus.Gauge
	lateness                  prometheus.Histogram
	proxyErrors               *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		requests: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_schedule_requests_total", Help: "Requests published, each for one tick of one check."}),
		missed:   prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_schedule_missed_total", Help: "Ticks skipped because the next one was due before they could be handled."}),
		subdued:  prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_schedule_subdued_total", Help: "Ticks skipped because a subdue was active, or a calendar did not let the check run."}),
		checks:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "lapwing_schedule_checks", Help: "Checks that are scheduled."}),
		proxyErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_schedule_proxy_errors_total",
			Help: "Entities for which a check was not asked for, by what failed: an expression of the proxy requests, or the check's tokens.",
		}, []string{"reason"}),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "lapwing_schedule_lateness_seconds",
			Help:    "How long after its tick a request was published.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 15, 60},
		}),
	}
	for _, reason := range []string{"expression", "tokens"} {
		m.proxyErrors.WithLabelValues(reason)
	}
	if r != nil {
		r.MustRegister(m.requests, m.missed, m.subdued, m.checks, m.lateness, m.proxyErrors)
	}
	return m
}
