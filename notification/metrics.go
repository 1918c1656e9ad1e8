package notification

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	records          *prometheus.CounterVec
	written, dropped prometheus.Counter
	bytes            prometheus.Gauge
}

func newMetrics(r prometheus.Registerer, s *Store) metrics {
	m := metrics{
		records: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_notification_records_total",
			Help: "Attempts of handlers for the notification history: written, or dropped because there was no room.",
		}, []string{"result"}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lapwing_notification_stored_bytes",
			Help: "Notifications kept, before the database compresses them.",
		}),
	}
	m.written, m.dropped = m.records.WithLabelValues("written"), m.records.WithLabelValues("dropped")
	for _, g := range s.generations {
		m.bytes.Add(float64(g.bytes))
	}
	if r != nil {
		r.MustRegister(m.records, m.bytes)
	}
	return m
}
