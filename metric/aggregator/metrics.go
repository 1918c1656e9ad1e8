package aggregator

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	received                      prometheus.Counter
	first, corrected              prometheus.Counter
	dropped                       [stale + 1]prometheus.Counter
	refusedOutputs, refusedInputs prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer, a *Aggregator) metrics {
	emitted := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_metric_aggregator_emitted_total",
		Help: "Results of aggregation rules, by whether it was an interval's first or one corrected by late values."},
		[]string{"kind"})
	dropped := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_metric_aggregator_dropped_total",
		Help: "Values not aggregated, by reason: late and future are times, full is a bound, stale a rule that is gone."},
		[]string{"reason"})
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_metric_aggregator_refused_total",
		Help: "Outputs, and values of new inputs, that were refused because there are as many as allowed."}, []string{"kind"})
	m := metrics{
		received: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_metric_aggregator_values_total",
			Help: "Values added to outputs of aggregation rules."}),
		first:          emitted.WithLabelValues("first"),
		corrected:      emitted.WithLabelValues("corrected"),
		refusedOutputs: refused.WithLabelValues("output"),
		refusedInputs:  refused.WithLabelValues("input"),
	}
	for r := late; r <= stale; r++ {
		m.dropped[r] = dropped.WithLabelValues(reasons[r])
	}
	if registerer != nil {
		registerer.MustRegister(m.received, emitted, dropped, refused,
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lapwing_metric_aggregator_outputs",
				Help: "Outputs of aggregation rules with inputs or values."}, func() float64 {
				a.mu.Lock()
				defer a.mu.Unlock()
				return float64(len(a.outputs))
			}),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lapwing_metric_aggregator_inputs",
				Help: "Sources of all outputs, each counted once per output."}, func() float64 { return float64(a.inputs.Load()) }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lapwing_metric_aggregator_buffered_points",
				Help: "Values kept for results to come or to be corrected."}, func() float64 { return float64(a.Stats().Points) }))
	}
	return m
}
