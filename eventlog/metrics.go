package eventlog

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	appended      prometheus.Counter
	bytes         prometheus.Counter
	failures      prometheus.Counter
	blocked       prometheus.Counter
	batchRecords  prometheus.Histogram
	appendSeconds prometheus.Histogram
	position      *prometheus.GaugeVec
	stored        *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer, l *Log) metrics {
	m := metrics{
		appended: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_events_appended_total", Help: "Records that are durable in the event log."}),
		bytes:    prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_eventlog_written_bytes_total", Help: "Bytes of the messages written to the event log."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_eventlog_commit_failures_total", Help: "Commits that failed and were tried again."}),
		blocked:  prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_eventlog_blocked_total", Help: "Appends that had to wait because a partition's buffer was full."}),
		batchRecords: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lapwing_eventlog_batch_records", Help: "Records in one commit.", Buckets: prometheus.ExponentialBuckets(1, 4, 8),
		}),
		appendSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lapwing_eventlog_append_seconds", Help: "From the first record of a commit to its being durable.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}),
		position: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "lapwing_eventlog_position", Help: "Sequence number of the newest message, by partition."}, []string{"partition"}),
		stored:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "lapwing_eventlog_stored_bytes", Help: "Bytes of the log on disk, by partition."}, []string{"partition"}),
	}
	if r == nil {
		return m
	}
	r.MustRegister(m.appended, m.bytes, m.failures, m.blocked, m.batchRecords, m.appendSeconds, m.position, m.stored)
	for _, p := range l.parts {
		labels := prometheus.Labels{"partition": strconv.Itoa(p.id)}
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lapwing_eventlog_pending_records", Help: "Records waiting for a commit, by partition.", ConstLabels: labels,
		}, func() float64 {
			p.mu.Lock()
			defer p.mu.Unlock()
			return float64(len(p.waiting))
		}))
	}
	return m
}
