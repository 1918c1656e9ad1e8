package eventlog

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	appended       prometheus.Counter
	bytes          prometheus.Counter
	failures       prometheus.Counter
	blocked        prometheus.Counter
	blockedSeconds prometheus.Counter
	heldSeconds    prometheus.Counter
	batchRecords   prometheus.Histogram
	appendSeconds  prometheus.Histogram
	commitSeconds  prometheus.Histogram
}

func newMetrics(r prometheus.Registerer, l *Log) metrics {
	latency := prometheus.ExponentialBuckets(0.0001, 2, 18) // to 13 s
	m := metrics{
		appended: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_events_appended_total", Help: "Records that are durable in the event log.",
		}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_eventlog_written_bytes_total", Help: "Bytes of the messages written to the event log.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_eventlog_commit_failures_total", Help: "Commits that failed and were tried again.",
		}),
		blocked: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_eventlog_blocked_total", Help: "Appends that had to wait because a partition's buffer was full.",
		}),
		blockedSeconds: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_eventlog_blocked_seconds_total", Help: "How long those appends waited, in all.",
		}),
		heldSeconds: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_eventlog_held_seconds_total", Help: "How long partitions paused after commits so that memory stays below its limit.",
		}),
		batchRecords: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lapwing_eventlog_batch_records", Help: "Records in one commit.", Buckets: prometheus.ExponentialBuckets(1, 4, 8),
		}),
		appendSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lapwing_eventlog_append_seconds", Help: "From the first record of a commit to its being durable.", Buckets: latency,
		}),
		commitSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lapwing_eventlog_commit_seconds",
			Help: "One commit: writing a message and syncing it to disk, without the gathering of its records.", Buckets: latency,
		}),
	}
	if r != nil {
		r.MustRegister(m.appended, m.bytes, m.failures, m.blocked, m.blockedSeconds, m.heldSeconds,
			m.batchRecords, m.appendSeconds, m.commitSeconds, collector{l})
	}
	return m
}

var (
	byPartition = []string{"partition"}
	pendingDesc = prometheus.NewDesc("lapwing_eventlog_pending_records",
		"Records that are not durable yet, by partition.", byPartition, nil)
	pendingBytesDesc = prometheus.NewDesc("lapwing_eventlog_pending_bytes", "Their bytes, by partition.", byPartition, nil)
	pendingAgeDesc   = prometheus.NewDesc("lapwing_eventlog_pending_age_seconds",
		"How long the oldest of them has waited, by partition.", byPartition, nil)
	pendingLimitDesc = prometheus.NewDesc("lapwing_eventlog_pending_limit_bytes",
		"Bytes waiting in one partition at which appends have to wait.", nil, nil)
	blockedDesc = prometheus.NewDesc("lapwing_eventlog_blocked_appends",
		"Appends that wait now because a partition's buffer is full.", byPartition, nil)
	positionDesc = prometheus.NewDesc("lapwing_eventlog_position",
		"Sequence number of the newest message, by partition.", byPartition, nil)
	storedDesc = prometheus.NewDesc("lapwing_eventlog_stored_bytes",
		"Bytes of the log on disk, by partition; looked at every 10 s.", byPartition, nil)
	freeDesc = prometheus.NewDesc("lapwing_disk_free_bytes",
		"Free space on the disk of the state directory; looked at every second.", nil, nil)
	reserveDesc = prometheus.NewDesc("lapwing_disk_reserve_bytes", "Free space below which the event log takes no events.", nil, nil)
)

// collector reads the partitions when metrics are collected.
type collector struct{ l *Log }

func (c collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

func (c collector) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, p := range c.l.parts {
		p.mu.Lock()
		records, bytes, age := p.pending(now)
		blocked, newest, stored := p.blocked, p.newest, p.stored
		p.mu.Unlock()
		id := strconv.Itoa(p.id)
		gauge(pendingDesc, float64(records), id)
		gauge(pendingBytesDesc, float64(bytes), id)
		gauge(pendingAgeDesc, age.Seconds(), id)
		gauge(blockedDesc, float64(blocked), id)
		gauge(positionDesc, float64(newest), id)
		gauge(storedDesc, float64(stored), id)
	}
	gauge(pendingLimitDesc, float64(c.l.opts.MaxPending))
	gauge(freeDesc, float64(c.l.free.Load()))
	gauge(reserveDesc, float64(c.l.minFree.Load()))
}

// pending returns what is not durable: in the buffer, or in the commit under way. The caller holds mu.
func (p *partition) pending(now time.Time) (records, bytes int, age time.Duration) {
	records, bytes = p.under.records, p.under.bytes
	if len(p.waiting) > 0 {
		records += len(p.waiting)
		bytes += len(p.buf)
		age = now.Sub(p.since)
	}
	if p.under.records > 0 { // older than the records in the buffer
		age = now.Sub(p.under.since)
	}
	return records, bytes, max(age, 0)
}
