package rulefile

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	groups                   prometheus.Gauge
	evaluations, transitions *prometheus.CounterVec
	duration                 prometheus.Histogram
	alerts                   *prometheus.GaugeVec
	written, lost            prometheus.Counter
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		groups: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lapwing_metric_rulefile_groups", Help: "Groups of rules that are evaluated.",
		}),
		evaluations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_metric_rulefile_evaluations_total", Help: "Evaluations of rules, by result.",
		}, []string{"result"}),
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_metric_rulefile_transitions_total", Help: "Changes of alerts, by the new state.",
		}, []string{"state"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "lapwing_metric_rulefile_group_duration_seconds",
			Help:    "Time of evaluations of a group.",
			Buckets: []float64{0.001, 0.01, 0.1, 1, 10, 60},
		}),
		alerts: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "lapwing_metric_rulefile_alerts", Help: "Alerts that are not inactive, by state.",
		}, []string{"state"}),
		written: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_metric_rulefile_written_samples_total", Help: "Results of rules that the store took.",
		}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_metric_rulefile_lost_samples_total", Help: "Results of rules that the store did not take.",
		}),
	}
	for _, result := range []string{"ok", "failed"} {
		m.evaluations.WithLabelValues(result)
	}
	for _, s := range []State{Inactive, Pending, Firing} {
		m.transitions.WithLabelValues(s.String())
	}
	if r != nil {
		r.MustRegister(m.groups, m.evaluations, m.transitions, m.duration, m.alerts, m.written, m.lost)
	}
	return m
}
