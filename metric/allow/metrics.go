package allow

import "github.com/prometheus/client_golang/prometheus"

// metrics count the work of a watcher.
type metrics struct {
	reloads                     *prometheus.CounterVec
	blacklisted, notWhitelisted prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) metrics {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_metric_allow_refused_total",
		Help: "Points refused, by the list that did not allow their names."}, []string{"list"})
	m := metrics{
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_metric_allow_reloads_total",
			Help: "Reads of changed whitelists and blacklists, by result; after an error the old ones stay."},
			[]string{"result"}),
		blacklisted:    refused.WithLabelValues(Blacklisted.String()),
		notWhitelisted: refused.WithLabelValues(NotWhitelisted.String()),
	}
	m.reloads.WithLabelValues("ok")
	m.reloads.WithLabelValues("error")
	if registerer != nil {
		registerer.MustRegister(m.reloads, refused)
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
