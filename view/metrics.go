package view

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	surveys       prometheus.Counter
	surveySeconds prometheus.Histogram
	refused       prometheus.Counter
}

func newMetrics(r prometheus.Registerer, v *Views) metrics {
	m := metrics{
		surveys: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_view_surveys_total", Help: "How often all events were looked at for a live list.",
		}),
		surveySeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lapwing_view_survey_seconds", Help: "How long it took to look at all events for a live list.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_view_refused_total", Help: "Live lists that were refused because there would be too many, or too many events in them.",
		}),
	}
	views := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lapwing_views", Help: "Different live lists of events that are kept up to date.",
	}, func() float64 { n, _ := v.size(); return float64(n) })
	events := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lapwing_view_events", Help: "Events in all live lists; one that is in several counts several times.",
	}, func() float64 { _, n := v.size(); return float64(n) })
	if r != nil {
		r.MustRegister(m.surveys, m.surveySeconds, m.refused, views, events)
	}
	return m
}
