package postgres

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	events, failures, gaps, lost, refused prometheus.Counter
	rows                                  *prometheus.CounterVec
	seconds, lag                          prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, p *Projection) metrics {
	m := metrics{
		events: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_postgres_changes_total",
			Help: "Changes that were written to PostgreSQL."}),
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_postgres_rows_total",
			Help: "Rows that were written to PostgreSQL, by table."}, []string{"table"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_postgres_failures_total",
			Help: "Connections to PostgreSQL that failed or broke, or transactions that failed."}),
		gaps: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_postgres_gaps_total",
			Help: "Ranges of the event log that PostgreSQL will never have."}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_postgres_notifications_missing_total",
			Help: "Notifications of this backend that PostgreSQL will never have: they were removed here before they were copied."}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_postgres_refused_total",
			Help: "Changes that PostgreSQL will never have: it refused their content."}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lapwing_postgres_transaction_seconds",
			Help: "One transaction of PostgreSQL, with all of its rows.", Buckets: prometheus.ExponentialBuckets(0.005, 2, 14)}),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lapwing_postgres_lag_seconds",
			Help:    "Time from the receipt of an event until it is committed in PostgreSQL.",
			Buckets: []float64{.1, .25, .5, .75, 1, 1.5, 2, 3, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400}}),
	}
	for _, table := range [...]string{tableLatest, tableEvent, tableChange, tableNotification, tableDefinition} {
		m.rows.WithLabelValues(table)
	}
	if reg != nil {
		reg.MustRegister(m.events, m.rows, m.failures, m.gaps, m.lost, m.refused, m.seconds, m.lag,
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lapwing_postgres_connected",
				Help: "1 while transactions of PostgreSQL succeed, 0 if not, or without PostgreSQL."}, func() float64 {
				if p.Status().Connected {
					return 1
				}
				return 0
			}),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lapwing_postgres_configured",
				Help: "1 if events are to be copied into PostgreSQL."}, func() float64 {
				if p.Status().Configured {
					return 1
				}
				return 0
			}),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lapwing_postgres_behind_seconds",
				Help: "How far PostgreSQL is behind the events of the partitions that this backend writes."},
				func() float64 { return p.Status().Lag }))
	}
	return m
}
