package store

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// counts are the store's counters since its start.
type counts struct {
	points, rewritten, late                                   atomic.Int64
	nan, future, tooOld, tooLate, failed, diskFull            atomic.Int64
	unqueued, closedLost                                      atomic.Int64
	created, refused, setAside, syncFailed                    atomic.Int64
	wrong, wrongLost, corrected, correctFailed, journalFailed atomic.Int64 // wrong is the present number
}

func (c *counts) add(n *tally) {
	for _, a := range []struct {
		to *atomic.Int64
		n  int64
	}{{&c.points, n.points}, {&c.rewritten, n.rewritten}, {&c.late, n.late}, {&c.nan, n.nan}, {&c.future, n.future},
		{&c.tooOld, n.tooOld}, {&c.tooLate, n.tooLate}, {&c.failed, n.failed}, {&c.wrongLost, n.wrongLost},
		{&c.closedLost, n.closedLost}} {
		if a.n != 0 {
			a.to.Add(a.n)
		}
	}
}

// Stats is what the store holds and has done.
type Stats struct {
	Series        int64 // in memory
	Queued        int64 // samples in the queues
	Memory        int64 // estimate of the series and the tiers' heads, in bytes
	MemoryLimit   int64 // 0: none
	Points        int64 // appended to a series' finest archive that covers them
	Rewritten     int64 // replaced the newest point of their series
	Late          int64 // older than the newest point of their series
	DroppedNaN    int64
	DroppedFuture int64
	DroppedOld    int64 // beyond the retention
	DroppedLate   int64 // beyond the window of the tier
	DroppedFailed int64 // could not be written
	DroppedFull   int64 // the disk was full
	DroppedQueue  int64 // the queue was full
	Refused       int64 // new series over a limit
	Corrections   int64 // coarse slots that wait for being computed again
	DiskFull      bool
	Tiers         []TierStats
}

// TierStats is what a tier holds.
type TierStats struct {
	Name            string
	Step, Retention int64
	HeadSeries      int64
	Blocks          int
	BlockSamples    int64
	BlockBytes      int64
	LogBytes        int64 // write-ahead logs and the head's chunk files
	// From and To are the oldest and newest times, in seconds; both are 0 if there are none.
	From, To int64
}

// Full reports whether points are dropped because the disk is full.
func (s *Store) Full() bool { return s.full.Load() }

// Stats returns the present numbers. It looks at the files of the tiers.
func (s *Store) Stats() Stats {
	c := &s.counts
	st := Stats{Series: s.count.Load(), Memory: s.memory(), MemoryLimit: s.o.MemoryLimit, Points: c.points.Load(),
		Rewritten: c.rewritten.Load(), Late: c.late.Load(), DroppedNaN: c.nan.Load(), DroppedFuture: c.future.Load(),
		DroppedOld: c.tooOld.Load(), DroppedLate: c.tooLate.Load(),
		DroppedFailed: c.failed.Load() + c.closedLost.Load(), DroppedFull: c.diskFull.Load(),
		DroppedQueue: c.unqueued.Load(), Refused: c.refused.Load(), Corrections: c.wrong.Load(), DiskFull: s.full.Load()}
	for _, sh := range s.shards {
		st.Queued += int64(sh.waiting())
	}
	for _, t := range *s.tiers.Load() {
		ts := TierStats{Name: t.name(), Step: t.archive.Step, Retention: t.archive.Retention(),
			HeadSeries: int64(t.db.Head().NumSeries())}
		ts.BlockBytes, ts.LogBytes = t.diskBytes()
		for _, b := range t.db.Blocks() {
			ts.Blocks++
			ts.BlockSamples += int64(b.Meta().Stats.NumSamples)
			if ts.From == 0 || b.MinTime()/1000 < ts.From {
				ts.From = b.MinTime() / 1000
			}
			ts.To = max(ts.To, (b.MaxTime()-1)/1000)
		}
		if h := t.db.Head(); h.MaxTime() >= h.MinTime() {
			if ts.From == 0 || h.MinTime()/1000 < ts.From {
				ts.From = h.MinTime() / 1000
			}
			ts.To = max(ts.To, h.MaxTime()/1000)
		}
		st.Tiers = append(st.Tiers, ts)
	}
	return st
}

// headSeriesBytes is the memory of a series in a tier's head, with its open chunk, as measured with names of 40 bytes.
const headSeriesBytes = 1000

// memory estimates the bytes that all series need.
func (s *Store) memory() int64 {
	sum := s.bytes.Load()
	for _, t := range *s.tiers.Load() {
		sum += int64(t.db.Head().NumSeries()) * headSeriesBytes
	}
	return sum
}

type metrics struct{ collectors []prometheus.Collector }

func newMetrics(s *Store, r prometheus.Registerer) *metrics {
	m := &metrics{}
	if r == nil {
		return m
	}
	add := func(c prometheus.Collector) {
		if err := r.Register(c); err != nil {
			s.log.Error("cannot register a metric of the metric store", "err", err)
			return
		}
		m.collectors = append(m.collectors, c)
	}
	counter := func(name, help string, v *atomic.Int64) {
		add(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
			func() float64 { return float64(v.Load()) }))
	}
	gauge := func(name, help string, f func() int64) {
		add(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(f()) }))
	}
	dropped := func(reason string, v *atomic.Int64) {
		add(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "lapwing_metric_store_dropped_points_total",
			Help:        "Points that were not stored, by reason.",
			ConstLabels: prometheus.Labels{"reason": reason}}, func() float64 { return float64(v.Load()) }))
	}
	c := &s.counts
	counter("lapwing_metric_store_points_total", "Points stored.", &c.points)
	counter("lapwing_metric_store_late_points_total",
		"Points stored that were older than the newest of their series.", &c.late)
	counter("lapwing_metric_store_rewritten_points_total",
		"Points that replaced the newest of their series.", &c.rewritten)
	dropped("nan", &c.nan)
	dropped("future", &c.future)
	dropped("retention", &c.tooOld)
	dropped("late", &c.tooLate)
	dropped("failed", &c.failed)
	dropped("disk_full", &c.diskFull)
	dropped("queue_full", &c.unqueued)
	dropped("series_limit", &c.closedLost)
	counter("lapwing_metric_store_created_series_total",
		"Series opened for the first time since they were last closed.", &c.created)
	counter("lapwing_metric_store_refused_series_total",
		"New series refused because of a limit.", &c.refused)
	counter("lapwing_metric_store_corrected_slots_total",
		"Slots of coarse archives computed again after late points.", &c.corrected)
	counter("lapwing_metric_store_correction_failures_total",
		"Slots of coarse archives that could not be computed again.", &c.correctFailed)
	counter("lapwing_metric_store_lost_corrections_total",
		"Slots not computed again because too many were waiting.", &c.wrongLost)
	counter("lapwing_metric_store_journal_failures_total",
		"Writes of the journal of waiting corrections that failed.", &c.journalFailed)
	counter("lapwing_metric_store_set_aside_total",
		"Parts of tiers that could not be read and were renamed.", &c.setAside)
	counter("lapwing_metric_store_sync_failures_total",
		"Write-ahead logs that could not be synced.", &c.syncFailed)
	gauge("lapwing_metric_store_series", "Series in memory.", s.count.Load)
	gauge("lapwing_metric_store_waiting_corrections",
		"Slots of coarse archives that wait for being computed again.", c.wrong.Load)
	gauge("lapwing_metric_store_memory_bytes",
		"Estimated memory of all series and the heads of the tiers.", s.memory)
	gauge("lapwing_metric_store_memory_limit_bytes",
		"Memory from which on new series are refused; 0 for no limit.", func() int64 { return s.o.MemoryLimit })
	gauge("lapwing_metric_store_series_limit", "Series in memory from which on new ones are refused.",
		func() int64 { return int64(s.o.MaxSeries) })
	gauge("lapwing_metric_store_queue_limit_points", "Points that the queues take.",
		func() int64 { return int64(s.o.QueueSamples) * int64(s.o.Shards) })
	gauge("lapwing_metric_store_queued_points", "Points that wait in the queues.", func() int64 {
		n := 0
		for _, sh := range s.shards {
			n += sh.waiting()
		}
		return int64(n)
	})
	gauge("lapwing_metric_store_disk_full",
		"1 while points are dropped because the disk is almost full.", func() int64 {
			if s.full.Load() {
				return 1
			}
			return 0
		})
	gauge("lapwing_metric_store_tiers", "Tiers that are open.", func() int64 { return int64(len(*s.tiers.Load())) })
	return m
}

func (m *metrics) unregister(r prometheus.Registerer) {
	if r == nil {
		return
	}
	for _, c := range m.collectors {
		r.Unregister(c)
	}
}
