package journal

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	written, bytes, dropped, failures, damaged prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, j *Journal) metrics {
	m := metrics{
		written: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_postgres_journal_changes_total",
			Help: "Changes that were written to the journal for PostgreSQL."}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_postgres_journal_written_bytes_total",
			Help: "Bytes that were written to the journal for PostgreSQL."}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_postgres_journal_dropped_total",
			Help: "Changes that PostgreSQL will never have, because the journal was full or its disk too slow."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_postgres_journal_failures_total",
			Help: "Writes to the journal for PostgreSQL that failed and were tried again."}),
		damaged: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_postgres_journal_damaged_total",
			Help: "Places where the journal for PostgreSQL was damaged, or lacked a file, and changes were passed over."}),
	}
	if reg == nil {
		return m
	}
	reg.MustRegister(m.written, m.bytes, m.dropped, m.failures, m.damaged,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lapwing_postgres_journal_bytes",
			Help: "Bytes of the journal for PostgreSQL on disk."}, func() float64 { return float64(j.Usage().Bytes) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lapwing_postgres_journal_owed_bytes",
			Help: "Bytes of the journal's files that PostgreSQL does not have yet."}, func() float64 { return float64(j.Usage().Owed) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lapwing_postgres_journal_max_bytes",
			Help: "Bound of the journal for PostgreSQL, in bytes."}, func() float64 { return float64(j.opts.MaxBytes) }))
	return m
}
