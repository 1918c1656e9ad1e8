package fleet

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	surveys       prometheus.Counter
	surveySeconds prometheus.Histogram
	refused       prometheus.Counter
}

func newMetrics(r prometheus.Registerer, f *Fleet) metrics {
	m := metrics{
		surveys: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_fleet_surveys_total", Help: "How often all entities were looked at for lists of entities.",
		}),
		surveySeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lapwing_fleet_survey_seconds", Help: "How long it took to look at all entities for lists of entities.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_fleet_refused_total", Help: "Lists of entities that were refused because all of them would have too many entities.",
		}),
	}
	lists := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lapwing_fleet_lists", Help: "Different lists of entities that are kept.",
	}, func() float64 { n, _ := f.size(); return float64(n) })
	entities := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lapwing_fleet_entities", Help: "Entities in all lists of entities; one that is in several counts several times.",
	}, func() float64 { _, n := f.size(); return float64(n) })
	if r != nil {
		r.MustRegister(m.surveys, m.surveySeconds, m.refused, lists, entities)
	}
	return m
}
