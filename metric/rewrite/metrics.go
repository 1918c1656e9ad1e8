package rewrite

import "github.com/prometheus/client_golang/prometheus"

// metrics count the work of a watcher.
type metrics struct {
	reloads *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) metrics {
	m := metrics{reloads: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_metric_rewrite_reloads_total",
		Help: "Reads of a changed file of rewrite rules, by result; after an error the old rules stay."}, []string{"result"})}
	m.reloads.WithLabelValues("ok")
	m.reloads.WithLabelValues("error")
	if registerer != nil {
		registerer.MustRegister(m.reloads)
	}
	return m
}

func (m metrics) reloaded(err error) {
	if err != nil {
		m.reloads.WithLabelValues("error").Inc()
		return
	}
	m.reloads.WithLabelValues("ok").Inc()
}
