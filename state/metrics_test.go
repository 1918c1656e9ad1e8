package state

import (
	"runtime"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/eventlog"
)

// gather returns every metric, summed over its labels; for a histogram the number of observations.
func gather(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			sums[f.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sums
}

func TestLagMetrics(t *testing.T) {
	b := newBench(t, 2)
	_ = b.state.Stop()
	r := prometheus.NewRegistry()
	b.open(func(o *Options) { o.Registerer = r })
	rec := eventlog.Record{Entity: "e", Check: "c", Received: time.Now().UnixMilli()}
	b.put(rec)
	if m := gather(t, r); m["lapwing_state_lag_messages"] != 0 || m["lapwing_state_lag_seconds"] != 0 {
		t.Errorf("lag of %v messages, %v s after the fold", m["lapwing_state_lag_messages"], m["lapwing_state_lag_seconds"])
	}

	// The fold is held while a message arrives.
	id := b.log.Partition("default", "e")
	p := b.state.parts[id]
	p.fold.Lock()
	rec.Kind, rec.Namespace = eventlog.KindDeleteEvent, "default"
	a := make(ack, 1)
	if err := b.log.Append(&rec, a, 0); err != nil {
		t.Fatal(err)
	}
	for b.log.Newest(id) < 2 { // it is answered after its fold
		runtime.Gosched()
	}
	m := gather(t, r)
	if m["lapwing_state_lag_messages"] != 1 || m["lapwing_state_lag_seconds"] <= 0 || m["lapwing_state_lag_seconds"] > 60 {
		t.Errorf("lag of %v messages, %v s while the fold is held", m["lapwing_state_lag_messages"], m["lapwing_state_lag_seconds"])
	}
	if len(a) > 0 {
		t.Error("the message is answered while the fold is held")
	}
	p.fold.Unlock()
	<-a

	// A message that the log does not remember has the age of the one before.
	now := time.Now()
	c := foldCollector{b.state.State}
	if got := c.age(id, 1<<40, now.Add(-time.Minute).UnixMilli(), now); got < 59 || got > 61 {
		t.Errorf("age %v s, want 60", got)
	}
	if got := c.age(id, 1<<40, 0, now); got != 0 {
		t.Errorf("age %v s of what nothing is known of", got)
	}
}

func TestWriteBackMetrics(t *testing.T) {
	b := newBench(t, 1)
	_ = b.state.Stop()
	r := prometheus.NewRegistry()
	b.open(func(o *Options) { o.Registerer, o.WriteDelay = r, time.Hour })
	b.put(eventlog.Record{Entity: "e", Check: "c"})
	m := gather(t, r)
	if m["lapwing_state_dirty"] != 1 || m["lapwing_state_dirty_bytes"] == 0 ||
		m["lapwing_state_dirty_age_seconds"] > 60 || m["lapwing_state_write_delay_seconds"] != 3600 {
		t.Errorf("dirty: %v changes, %v bytes, %v s", m["lapwing_state_dirty"], m["lapwing_state_dirty_bytes"],
			m["lapwing_state_dirty_age_seconds"])
	}
	b.state.parts[0].dirty.front().since -= 5000
	if m = gather(t, r); m["lapwing_state_dirty_age_seconds"] < 5 {
		t.Errorf("the oldest change is %v s old, want 5", m["lapwing_state_dirty_age_seconds"])
	}
	if err := b.db.LogData([]byte("x"), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	b.state.database.at = time.Time{} // drops the cached figures
	if m = gather(t, r); m["lapwing_database_wal_sync_seconds"] == 0 || m["lapwing_database_bytes"] == 0 {
		t.Errorf("database: %v syncs, %v bytes", m["lapwing_database_wal_sync_seconds"], m["lapwing_database_bytes"])
	}
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	if m = gather(t, r); m["lapwing_database_bytes"] != 0 {
		t.Error("the database is asked after the stop")
	}
}

func TestSyncLatency(t *testing.T) {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "x", Buckets: pebble.FsyncLatencyBuckets})
	for _, d := range []time.Duration{50 * time.Microsecond, time.Millisecond, 1700 * time.Microsecond, 300 * time.Millisecond, time.Minute} {
		h.Observe(float64(d))
	}
	r := prometheus.NewRegistry()
	r.MustRegister(metricOf{syncLatency(h)})
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := families[0].Metric[0].Histogram
	if got.GetSampleCount() != 5 || got.GetSampleSum() < 60.3 || got.GetSampleSum() > 60.31 {
		t.Errorf("%d syncs took %v s", got.GetSampleCount(), got.GetSampleSum())
	}
	want := map[float64]uint64{0.0001: 1, 0.0008: 1, 0.0032: 3, 0.2048: 3, 0.4096: 4, 13.1072: 4}
	for _, b := range got.Bucket {
		if n, ok := want[b.GetUpperBound()]; ok && n != b.GetCumulativeCount() {
			t.Errorf("up to %v s: %d, want %d", b.GetUpperBound(), b.GetCumulativeCount(), n)
		}
		delete(want, b.GetUpperBound())
	}
	if len(want) > 0 {
		t.Errorf("no bucket for %v", want)
	}
}

// metricOf collects one metric.
type metricOf struct{ m prometheus.Metric }

func (c metricOf) Describe(ch chan<- *prometheus.Desc) { ch <- c.m.Desc() }
func (c metricOf) Collect(ch chan<- prometheus.Metric) { ch <- c.m }
