package state

import (
	"strconv"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

type metrics struct {
	folded           prometheus.Counter
	duplicates       prometheus.Counter
	repeatedBatches  prometheus.Counter
	stale            prometheus.Counter
	late             prometheus.Counter
	undecodable      prometheus.Counter
	deadlinesRebuilt prometheus.Counter
	foldSeconds      prometheus.Histogram
	written          prometheus.Counter
	writeFailures    prometheus.Counter
	writeSeconds     prometheus.Histogram
	syncSeconds      prometheus.Histogram
	searchSeconds    prometheus.Histogram
}

func newMetrics(r prometheus.Registerer, s *State) metrics {
	latency := prometheus.ExponentialBuckets(0.0001, 2, 18) // to 13 s
	m := metrics{
		folded: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_events_folded_total",
			Help: "Events read back from the log and folded into the state."}),
		duplicates: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_events_duplicate_total",
			Help: "Events that an agent sent again although the first had arrived."}),
		repeatedBatches: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_eventlog_repeated_batches_total",
			Help: "Messages of the log that were in it twice, because the broker answered too late, and counted once."}),
		stale: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_deadlines_overtaken_total",
			Help: "Deadlines that an event overtook before they were folded."}),
		late: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_events_late_total",
			Help: "Events that were left out because a newer one came through another backend while theirs was cut off."}),
		undecodable: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_state_undecodable_total",
			Help: "Log records and stored values that could not be read."}),
		deadlinesRebuilt: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_deadlines_rebuilt_total",
			Help: "Deadlines that passed although the event they are about could not be read."}),
		foldSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lapwing_state_fold_seconds",
			Help: "Folding and routing one message of the log.", Buckets: latency}),
		written: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_state_written_total",
			Help: "Pairs, entities and removals written back."}),
		writeFailures: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_state_write_failures_total",
			Help: "Write-back commits that failed and were tried again."}),
		writeSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lapwing_state_write_seconds",
			Help: "One write-back commit, not synced.", Buckets: latency}),
		syncSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lapwing_state_sync_seconds",
			Help: "One sync of the write-back.", Buckets: latency}),
		searchSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lapwing_state_search_seconds",
			Help: "Finding the events of one page of a list.", Buckets: latency}),
	}
	if r != nil {
		r.MustRegister(m.folded, m.duplicates, m.repeatedBatches, m.stale, m.late, m.undecodable, m.deadlinesRebuilt, m.foldSeconds,
			m.written, m.writeFailures,
			m.writeSeconds, m.syncSeconds, m.searchSeconds,
			foldCollector{s}, s.database)
	}
	return m
}

var (
	byPartition = []string{"partition"}
	lagDesc     = prometheus.NewDesc("lapwing_state_lag_messages", "Messages in the log that are not folded yet, by partition.",
		byPartition, nil)
	lagAgeDesc = prometheus.NewDesc("lapwing_state_lag_seconds", "How long the oldest of them has been in the log, by partition.",
		byPartition, nil)
	slotsDesc = prometheus.NewDesc("lapwing_state_slots",
		"Places for pairs, entities and check names in memory, in use or free; they are used again.", []string{"of"}, nil)
	namesDesc = prometheus.NewDesc("lapwing_state_names", "Names in memory that records of the log share.", nil, nil)
	marksDesc = prometheus.NewDesc("lapwing_state_epochs",
		"Agent processes remembered because another one reports their check now, or their event was deleted.", nil, nil)
	pairsDesc      = prometheus.NewDesc("lapwing_state_pairs", "(entity, check) pairs known.", nil, nil)
	dirtyDesc      = prometheus.NewDesc("lapwing_state_dirty", "Changes waiting to be written back.", nil, nil)
	dirtyBytesDesc = prometheus.NewDesc("lapwing_state_dirty_bytes", "Event bodies waiting to be written back.", nil, nil)
	dirtyAgeDesc   = prometheus.NewDesc("lapwing_state_dirty_age_seconds",
		"How long the oldest change has waited to be written back.", nil, nil)
	dirtyLimitDesc = prometheus.NewDesc("lapwing_state_dirty_limit_bytes",
		"Bytes of event bodies above which changes are written without waiting for others of their check.", nil, nil)
	writeDelayDesc = prometheus.NewDesc("lapwing_state_write_delay_seconds",
		"How long a change is meant to wait before it is written back.", nil, nil)
)

// foldCollector reads the partitions when metrics are collected.
type foldCollector struct{ s *State }

func (c foldCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

func (c foldCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	now := time.Now()
	var pairs, dirty, dirtyBytes, pairSlots, entitySlots, checkSlots, names, marks int
	oldest := now.UnixMilli()
	for _, p := range c.s.parts {
		// The newest is read first: the fold goes on, and the difference must not count messages that do not exist.
		newest := c.s.opts.Log.Newest(p.id)
		p.mu.Lock()
		folded, received := p.folded, p.received
		pairs += p.count
		pairSlots += int(p.used)
		entitySlots += len(p.entities)
		checkSlots += len(p.checks.entries)
		names += p.names.kept
		marks += len(p.marks.newest)
		dirty += p.dirty.len()
		dirtyBytes += p.dirty.bytes
		if front := p.dirty.front(); front != nil {
			oldest = min(oldest, front.since)
		}
		p.mu.Unlock()

		lag, age := newest-min(folded, newest), 0.0
		if lag > 0 {
			age = c.age(p.id, folded+1, received, now)
		}
		id := strconv.Itoa(p.id)
		gauge(lagDesc, float64(lag), id)
		gauge(lagAgeDesc, age, id)
	}
	gauge(pairsDesc, float64(pairs))
	gauge(slotsDesc, float64(pairSlots), "pairs")
	gauge(slotsDesc, float64(entitySlots), "entities")
	gauge(slotsDesc, float64(checkSlots), "checks")
	gauge(namesDesc, float64(names))
	gauge(marksDesc, float64(marks))
	gauge(dirtyDesc, float64(dirty))
	gauge(dirtyBytesDesc, float64(dirtyBytes))
	gauge(dirtyAgeDesc, float64(now.UnixMilli()-oldest)/1000)
	gauge(dirtyLimitDesc, float64(c.s.opts.MaxDirty))
	gauge(writeDelayDesc, c.s.opts.WriteDelay.Seconds())
}

// age returns how long a message has been in the log. The log remembers that of its latest messages. An older message
// has nearly the same age as the one before it, whose last record has a known receipt time.
func (c foldCollector) age(partition int, seq uint64, received int64, now time.Time) float64 {
	if at, ok := c.s.opts.Log.CommittedAt(partition, seq); ok {
		return max(0, now.Sub(at).Seconds())
	}
	if received == 0 {
		return 0
	}
	return max(0, float64(now.UnixMilli()-received)/1000)
}

// databaseCollector collects the figures of Pebble, at most once a second: they take a lock that writes need too.
type databaseCollector struct {
	mu   sync.Mutex // guards the fields below
	db   *pebble.DB // nil once it may be closed
	at   time.Time
	last []prometheus.Metric
}

// close ends the reading of the database.
func (c *databaseCollector) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.db, c.last = nil, nil
}

var (
	databaseBytesDesc = prometheus.NewDesc("lapwing_database_bytes", "Bytes of the state database on disk.", nil, nil)
	databaseDebtDesc  = prometheus.NewDesc("lapwing_database_compaction_debt_bytes", "Bytes that compactions have yet to rewrite.", nil, nil)
	databaseLevelDesc = prometheus.NewDesc("lapwing_database_level0_sublevels",
		"Overlapping runs of tables in level 0; many of them slow down reads, and writes stop at 24.", nil, nil)
	databaseLiveDesc = prometheus.NewDesc("lapwing_database_wal_bytes",
		"Bytes of the write-ahead log whose changes are in memory and in no table yet. A start after a crash reads them.", nil, nil)
	databaseWALDesc  = prometheus.NewDesc("lapwing_database_wal_written_bytes_total", "Bytes written to the write-ahead log.", nil, nil)
	databaseSyncDesc = prometheus.NewDesc("lapwing_database_wal_sync_seconds", "One sync of the write-ahead log to disk.", nil, nil)
)

// Describe sends the descriptions of the figures.
func (c *databaseCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		databaseBytesDesc, databaseDebtDesc, databaseLevelDesc, databaseLiveDesc, databaseWALDesc, databaseSyncDesc,
	} {
		ch <- d
	}
}

// Collect sends the figures, which are at most a second old.
func (c *databaseCollector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.db != nil && time.Since(c.at) > time.Second {
		c.last, c.at = databaseMetrics(c.db.Metrics()), time.Now()
	}
	for _, m := range c.last {
		ch <- m
	}
}

func databaseMetrics(m *pebble.Metrics) []prometheus.Metric {
	gauge := func(d *prometheus.Desc, v float64) prometheus.Metric {
		return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	out := []prometheus.Metric{
		gauge(databaseBytesDesc, float64(m.DiskSpaceUsage())),
		gauge(databaseDebtDesc, float64(m.Compact.EstimatedDebt)),
		gauge(databaseLevelDesc, float64(m.Levels[0].Sublevels)),
		gauge(databaseLiveDesc, float64(m.WAL.Size)),
		prometheus.MustNewConstMetric(databaseWALDesc, prometheus.CounterValue, float64(m.WAL.BytesWritten)),
	}
	if sync := syncLatency(m.LogWriter.FsyncLatency); sync != nil {
		out = append(out, sync)
	}
	return out
}

// syncBounds are the bucket bounds of the sync latency, in seconds. Pebble's histogram has a hundred buckets in
// nanoseconds.
var syncBounds = prometheus.ExponentialBuckets(0.0001, 2, 18)

// syncLatency converts Pebble's histogram to seconds and fewer buckets. A bucket of Pebble's counts in the first of
// ours that contains all of it.
func syncLatency(h prometheus.Histogram) prometheus.Metric {
	var m dto.Metric
	if h == nil || h.Write(&m) != nil {
		return nil
	}
	buckets := make(map[float64]uint64, len(syncBounds))
	for _, bound := range syncBounds {
		for _, b := range m.Histogram.Bucket {
			if b.GetUpperBound() <= bound*1e9 {
				buckets[bound] = b.GetCumulativeCount()
			}
		}
	}
	return prometheus.MustNewConstHistogram(databaseSyncDesc, m.Histogram.GetSampleCount(), m.Histogram.GetSampleSum()/1e9, buckets)
}
