package graphite

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	running  prometheus.Gauge
	refused  prometheus.Counter
	timedOut prometheus.Counter
	points   prometheus.Counter
}

// resultOf returns the label for a status.
func resultOf(status int) string {
	switch {
	case status < 400:
		return "ok"
	case status < 500:
		return "refused"
	}
	return "failed"
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_metric_graphite_requests_total",
			Help: "Requests to the Graphite API, by endpoint and result (ok, refused, failed).",
		}, []string{"endpoint", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lapwing_metric_graphite_request_seconds",
			Help:    "How long requests to the Graphite API took, with the writing of the answer, by endpoint.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9), // to 65 s
		}, []string{"endpoint"}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lapwing_metric_graphite_queries_running", Help: "Graphite queries that run now.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_metric_graphite_queries_refused_total",
			Help: "Graphite queries that were refused because too many ran.",
		}),
		timedOut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_metric_graphite_queries_timed_out_total",
			Help: "Graphite queries that were given up because they took too long.",
		}),
		points: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_metric_graphite_points_total", Help: "Points in the answers to render requests.",
		}),
	}
	if r == nil {
		return m, nil
	}
	var errs []error
	m.requests = register(r, m.requests, &errs)
	m.seconds = register(r, m.seconds, &errs)
	m.running = register(r, m.running, &errs)
	m.refused = register(r, m.refused, &errs)
	m.timedOut = register(r, m.timedOut, &errs)
	m.points = register(r, m.points, &errs)
	return m, errors.Join(errs...)
}

// register registers a collector, or returns the one that another API has registered.
func register[C prometheus.Collector](r prometheus.Registerer, c C, errs *[]error) C {
	err := r.Register(c)
	var there prometheus.AlreadyRegisteredError
	if errors.As(err, &there) {
		if old, ok := there.ExistingCollector.(C); ok {
			return old
		}
	}
	if err != nil {
		*errs = append(*errs, fmt.Errorf("register a metric of the Graphite API: %w", err))
	}
	return c
}
