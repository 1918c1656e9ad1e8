package promapi

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	busy     prometheus.Counter

	writes   *prometheus.CounterVec
	samples  prometheus.Counter
	dropped  *prometheus.CounterVec
	received prometheus.Counter
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_metric_promapi_requests_total",
			Help: "Requests to the Prometheus API, by endpoint and result.",
		}, []string{"endpoint", "result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lapwing_metric_promapi_request_duration_seconds",
			Help:    "Time of requests to the Prometheus API, with the wait for a free slot.",
			Buckets: []float64{0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10, 30},
		}, []string{"endpoint"}),
		busy: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_metric_promapi_busy_total",
			Help: "Requests to the Prometheus API that were refused because too many others ran.",
		}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_metric_promapi_writes_total",
			Help: "Remote write requests, by result.",
		}, []string{"result"}),
		samples: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_metric_promapi_write_samples_total",
			Help: "Samples of remote write requests that were given to the store.",
		}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_metric_promapi_write_dropped_total",
			Help: "Samples of remote write requests that were not given to the store, by reason.",
		}, []string{"reason"}),
		received: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_metric_promapi_write_received_bytes_total",
			Help: "Compressed bytes of remote write requests.",
		}),
	}
	for _, result := range []string{"ok", "invalid", "busy", "failed"} {
		m.writes.WithLabelValues(result)
	}
	for _, reason := range []string{"stale", "nan", "invalid", "histogram", "refused"} {
		m.dropped.WithLabelValues(reason)
	}
	if r != nil {
		r.MustRegister(m.requests, m.duration, m.busy, m.writes, m.samples, m.dropped, m.received)
	}
	return m
}
