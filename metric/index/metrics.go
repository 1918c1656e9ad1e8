package index

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	refused prometheus.Counter
	globs   prometheus.Counter
	tags    prometheus.Counter
	stopped map[string]prometheus.Counter // by the reason of a BudgetError
}

func newMetrics(r prometheus.Registerer, x *Index) metrics {
	queries := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lapwing_metric_index_queries_total",
		Help: "Queries of the index of series, by kind: glob or tags.",
	}, []string{"kind"})
	stopped := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lapwing_metric_index_queries_stopped_total",
		Help: "Queries of the index of series that needed more than they may use, by reason: nodes, results or time.",
	}, []string{"reason"})
	m := metrics{
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_metric_index_names_refused_total",
			Help: "Names that the index of series did not take: malformed, too long, or above its number of series.",
		}),
		globs:   queries.WithLabelValues("glob"),
		tags:    queries.WithLabelValues("tags"),
		stopped: map[string]prometheus.Counter{},
	}
	for _, reason := range []string{ReasonNodes, ReasonResults, ReasonTime} {
		m.stopped[reason] = stopped.WithLabelValues(reason)
	}
	if r == nil {
		return m
	}
	r.MustRegister(queries, stopped, m.refused,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lapwing_metric_index_series",
			Help: "Names of series in the index.",
		}, func() float64 { return float64(x.Len()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lapwing_metric_index_bytes",
			Help: "Memory of the index of series, estimated.",
		}, func() float64 { return float64(x.Bytes()) }))
	return m
}

// failed counts a query that was stopped, and returns its error.
func (m *metrics) failed(err error) error {
	if e, ok := errors.AsType[*BudgetError](err); ok {
		m.stopped[e.Reason].Inc()
	}
	return err
}
