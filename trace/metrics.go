package trace

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	records *prometheus.CounterVec
	bytes   prometheus.Gauge

	written, repeated, unsampled, dropped prometheus.Counter
}

func newMetrics(r prometheus.Registerer, s *Store) metrics {
	m := metrics{
		records: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_trace_records_total",
			Help: "What the trace was told: written, only counted because it repeats what was before, left out of the sample, or dropped.",
		}, []string{"result"}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lapwing_trace_stored_bytes", Help: "Traces kept, before the database compresses them.",
		}),
	}
	m.written, m.repeated = m.records.WithLabelValues("written"), m.records.WithLabelValues("repeated")
	m.unsampled, m.dropped = m.records.WithLabelValues("unsampled"), m.records.WithLabelValues("dropped")
	for _, g := range s.generations {
		m.bytes.Add(float64(g.bytes))
	}
	if r != nil {
		r.MustRegister(m.records, m.bytes)
	}
	return m
}
