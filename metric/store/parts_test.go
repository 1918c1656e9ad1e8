package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

var ctx = context.Background()

var nan = math.NaN()

func (b *bundle) names() []string {
	b.t.Helper()
	var names []string
	if err := b.s.Names(ctx, func(n string) bool { names = append(names, n); return true }); err != nil {
		b.t.Fatal(err)
	}
	return names
}

func (b *bundle) wantValues(name string, from, until, step int64, values ...float64) {
	b.t.Helper()
	r := b.fetch(name, from, until)
	if r.Step != step || !same(r.Values, values) {
		b.t.Errorf("%s: step %d, %v, want step %d, %v", name, r.Step, r.Values, step, values)
	}
}

func TestNamesAndDelete(t *testing.T) {
	b := open(t, Options{Policy: fixed(
		policy(series.Average, 0, series.Archive{Step: 10, Points: 100}, series.Archive{Step: 60, Points: 100}))})
	all := []string{"a.b", "a.b;dc=x", "a.b;dc=x;host=y", "c", "m;a1=y;a=x"}
	for _, n := range all {
		for i := range int64(20) {
			b.clock.t.Store(start0 + i*10)
			b.put(n, start0+i*10, 1)
		}
		b.put(n, start0+3, 2)
	}
	b.flush()
	got := b.names()
	if slices.Sort(got); !slices.Equal(got, all) {
		t.Fatalf("%q", got)
	}
	if err := b.s.Delete(ctx, []string{"a.b", "a.b;dc=x", "no.such"}); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		got = b.names()
		if slices.Sort(got); !slices.Equal(got, all[2:]) {
			t.Fatalf("%q", got)
		}
		for i, n := range all {
			_, ok, err := b.s.Fetch(ctx, n, start0-1, start0+100, b.clock.t.Load())
			if err != nil || ok != (i >= 2) {
				t.Errorf("%s: %v %v", n, ok, err)
			}
		}
	}
	check()
	b.stop()
	b.start()
	check()
	b.clock.t.Add(100)
	b.put("a.b", b.clock.t.Load(), 7)
	b.flush()
	b.wantValues("a.b", start0+250, b.clock.t.Load(), 10, nan, nan, nan, 7)
}

func TestImport(t *testing.T) {
	archives := []series.Archive{{Step: 10, Points: 1080}, {Step: 60, Points: 2 * 1440}, {Step: 3600, Points: 24 * 300}}
	b := open(t, Options{Policy: fixed(policy(series.Average, 0, archives...))})
	now := int64(start0 + 400*86400)
	b.clock.t.Store(now)
	b.put("live", now-5, 4)
	b.put("live", now-20, 3)
	b.flush()
	im := b.s.NewImport()
	for _, name := range []string{"old", "live", "t;k=v"} {
		for k, a := range archives {
			var points []Point
			for at := series.Floor(now-a.Retention(), a.Step) + a.Step; at <= now-60; at += a.Step {
				points = append(points, Point{at, float64(k*1000) + float64(at/a.Step%777)})
			}
			points = append(points, Point{now + 7200, 1}, Point{now - a.Retention() - a.Step, 1}, Point{now - 100, nan})
			if err := im.Add(ctx, name, a, points); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := im.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		for _, name := range []string{"old", "live", "t;k=v"} {
			for k, a := range archives {
				r := b.fetch(name, now-a.Retention(), now-200-a.Step)
				if r.Step != a.Step {
					t.Fatalf("step %d", r.Step)
				}
				for i, v := range r.Values {
					at := r.Start + int64(i)*r.Step
					if want := float64(k*1000) + float64(at/a.Step%777); v != want {
						t.Fatalf("%s step %d at now-%d: %v, want %v", name, a.Step, now-at, v, want)
					}
				}
			}
		}
		r := b.fetch("live", now-30, now)
		if !same(r.Values, []float64{3, 4, nan}) {
			t.Errorf("%v", r.Values)
		}
	}
	check()
	for _, tr := range *b.s.tiers.Load() {
		if err := tr.db.Compact(ctx); err != nil {
			t.Fatal(err)
		}
	}
	check()
	b.stop()
	b.start()
	check()
	if left, _ := filepath.Glob(filepath.Join(b.o.Dir, importPrefix+"*")); len(left) > 0 {
		t.Errorf("%q", left)
	}
}

// An import of another step than the policy's is found as points of an earlier policy.
func TestImportOtherStep(t *testing.T) {
	b := open(t, Options{Policy: fixed(policy(series.Sum, 0, series.Archive{Step: 60, Points: 1000}))})
	b.clock.t.Store(start0 + 3600)
	im := b.s.NewImport()
	var points []Point
	for at := int64(start0); at < start0+120; at += 10 {
		points = append(points, Point{at, 1})
	}
	if err := errors.Join(im.Add(ctx, "m", series.Archive{Step: 10, Points: 1000}, points), im.Commit(ctx)); err != nil {
		t.Fatal(err)
	}
	b.wantValues("m", start0-60, start0+179, 60, 6, 6, nan)
	if err := im.Add(ctx, "m", series.Archive{Step: 10, Points: 1000}, points); err == nil {
		t.Error("added after Commit")
	}
}

// copy returns a directory with what the process has written so far, as a kill would leave it. It must meet neither a
// compaction nor a file that is removed; a caller that lets corrections run holds them off.
func (b *bundle) copy() string {
	b.t.Helper()
	b.drain()
	for _, tr := range *b.s.tiers.Load() {
		tr.db.DisableCompactions()
	}
	b.s.journal.mu.Lock()
	defer b.s.journal.mu.Unlock()
	to := b.t.TempDir()
	if err := os.CopyFS(to, os.DirFS(b.o.Dir)); err != nil {
		b.t.Fatal(err)
	}
	locks, _ := filepath.Glob(filepath.Join(to, "*", "lock"))
	for _, l := range locks {
		_ = os.Remove(l)
	}
	return to
}

func TestKill(t *testing.T) {
	archives := []series.Archive{{Step: 10, Points: 360}, {Step: 60, Points: 1440}, {Step: 600, Points: 1440}}
	o := Options{Policy: fixed(policy(series.Average, 0.5, archives...)), Shards: 2}
	b := open(t, o)
	ms := map[string]*model{}
	for i := range int64(1000) {
		now := start0 + i*7
		b.clock.t.Store(now)
		for j := range int64(5) {
			n := fmt.Sprintf("s%d", j)
			if ms[n] == nil {
				ms[n] = &model{p: o.Policy(n), finest: map[int64]modelPoint{}}
			}
			b.put(n, now, float64(i*j))
			ms[n].put(now, float64(i*j))
		}
		if i%50 == 0 {
			b.drain() // the clock must not move a queued point beyond the finest archive
		}
		if i%100 == 50 {
			b.put("s1", now-500, -5)
			ms["s1"].put(now-500, -5)
		}
	}
	killed := o
	b.s.correctMu.Lock()
	killed.Dir = b.copy()
	b.s.correctMu.Unlock()
	c := open(t, killed)
	c.clock.t.Store(b.clock.t.Load())
	if !c.s.crashed {
		t.Error("the kill was not noticed")
	}
	check := func() {
		t.Helper()
		now := c.clock.t.Load()
		for n, m := range ms {
			for _, back := range []int64{600, 3600, 7200, 86400, 200000} {
				c.compare(n, m, now-back, now)
			}
		}
	}
	c.flush()
	check()
	// s0 gets no more points; the others go on.
	for range 200 {
		now := c.clock.t.Add(13)
		for n, m := range ms {
			if n != "s0" {
				c.put(n, now, 3)
				m.put(now, 3)
			}
		}
	}
	c.flush()
	check()
}

func TestPolicyChange(t *testing.T) {
	var p atomic.Pointer[Policy]
	p.Store(new(policy(series.Average, 0, series.Archive{Step: 10, Points: 1000})))
	b := open(t, Options{Policy: func(string) Policy { return *p.Load() }})
	for i := range int64(12) {
		b.clock.t.Store(start0 + i*10)
		b.put("m", start0+i*10, float64(i))
	}
	p.Store(new(policy(series.Max, 0, series.Archive{Step: 60, Points: 1000}, series.Archive{Step: 600, Points: 1000})))
	if err := b.s.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	b.clock.t.Store(start0 + 180)
	b.put("m", start0+130, 100)
	b.put("m", start0+180, 50)
	b.flush()
	b.wantValues("m", start0-1, start0+180, 60, 5, 11, 100, 50)
	// The coarse archive is new too: what it lacks comes from the finer tiers.
	b.wantValues("m", start0-70000, start0+180, 600, append(slices.Repeat([]float64{nan}, 116), 100)...)
	p.Store(new(policy(series.Last, 0, series.Archive{Step: 1, Points: 7200})))
	if err := b.s.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	b.clock.t.Store(start0 + 181)
	b.put("m", start0+181, 51)
	b.flush()
	r := b.fetch("m", start0+100, start0+181)
	if r.Step != 1 || r.Values[0] == r.Values[0] || r.Values[9] != 11 || r.Values[80] != 51 {
		t.Errorf("%+v", r)
	}
	p.Store(&Policy{})
	if err := b.s.Refresh(ctx); err == nil {
		t.Error("no archives")
	}
}

func (b *bundle) query(name string, mint, maxt int64) (got []string) {
	b.t.Helper()
	q, err := b.s.Querier(mint, maxt)
	if err != nil {
		b.t.Fatal(err)
	}
	defer q.Close()
	set := q.Select(ctx, true, nil, labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, name))
	var it chunkenc.Iterator
	for set.Next() {
		it = set.At().Iterator(it)
		for it.Next() == chunkenc.ValFloat {
			ms, v := it.At()
			got = append(got, fmt.Sprintf("%d=%v", ms-start0*1000, v))
		}
		if err := it.Err(); err != nil {
			b.t.Fatal(err)
		}
		// Seek finds what Next has found.
		for _, g := range got {
			var ms int64
			var v float64
			_, _ = fmt.Sscanf(g, "%d=%g", &ms, &v)
			it = set.At().Iterator(it)
			if it.Seek(ms+start0*1000) != chunkenc.ValFloat {
				b.t.Fatalf("seek %d", ms)
			}
			if at, w := it.At(); at != ms+start0*1000 || w != v {
				b.t.Errorf("seek %d: %d %v", ms, at-start0*1000, w)
			}
		}
	}
	if err := set.Err(); err != nil {
		b.t.Fatal(err)
	}
	return got
}

func TestQuerier(t *testing.T) {
	b := open(t, Options{Policy: fixed(
		policy(series.Sum, 0, series.Archive{Step: 10, Points: 12}, series.Archive{Step: 60, Points: 100}))})
	b.clock.t.Store(start0 + 60)
	b.put("m", start0, 1)
	b.put("m", start0, 2)
	b.putMs("m", (start0+10)*1000+250, 3)
	b.put("m", start0+60, 5)
	b.put("m", start0, 4)
	b.flush()
	want := "[0=4 10250=3 60000=5]"
	if got := fmt.Sprint(b.query("m", start0*1000, (start0+60)*1000)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := fmt.Sprint(b.query("m", (start0+10)*1000, (start0+30)*1000)); got != "[10250=3]" {
		t.Errorf("%s", got)
	}
	// Beyond the finest archive a point stands in the next one.
	b.clock.t.Store(start0 + 1000)
	b.put("m", start0+300, 9)
	b.put("m", start0+1000, 1)
	b.put("m", start0+1060, 1)
	b.flush()
	want = fmt.Sprintf("[0=4 10250=3 60000=5 %d=9 1000000=1 1060000=1]", 300000+offset(700))
	if got := fmt.Sprint(b.query("m", start0*1000, (start0+2000)*1000)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	q, err := b.s.Querier(0, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	values, _, err := q.LabelValues(ctx, labels.MetricName, nil)
	if err = errors.Join(err, q.Close()); err != nil || !slices.Equal(values, []string{"m"}) {
		t.Errorf("%v %v", values, err)
	}
}

func TestDropped(t *testing.T) {
	reg := prometheus.NewRegistry()
	b := open(t, Options{Registerer: reg, LateWindow: 2 * time.Hour,
		Policy: fixed(policy(series.Average, 0, series.Archive{Step: 10, Points: 8640}))})
	for _, p := range []struct {
		sec   int64
		value float64
	}{
		{start0, 1}, {start0 - 1, nan}, {start0 + 601, 1}, {start0 - 86401, 1}, {start0 - 86000, 1}, {-5, 1},
		{start0 + 600, 1}, {start0 - 6000, 1},
	} {
		b.put("m", p.sec, p.value)
		b.drain() // the newest point that is committed decides whether one is too late
	}
	st := b.s.Stats()
	if st.Points != 3 || st.DroppedNaN != 1 || st.DroppedFuture != 1 || st.DroppedOld != 2 || st.DroppedLate != 1 ||
		st.Late != 2 {
		t.Errorf("%+v", st)
	}
	got, err := reg.Gather()
	if err != nil || len(got) < 15 {
		t.Errorf("%d metrics, %v", len(got), err)
	}
	b.stop()
	if got, _ := reg.Gather(); len(got) != 0 {
		t.Errorf("%d metrics after Stop", len(got))
	}
}

func TestBackPressure(t *testing.T) {
	s, err := New(Options{Dir: t.TempDir(), Shards: 1, QueueSamples: 10, stripes: 256, MinFreeBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop(ctx)
	se, err := s.Open("m")
	if err != nil {
		t.Fatal(err)
	}
	samples := make([]Sample, 8)
	for i := range samples {
		samples[i] = Sample{se, time.Now().UnixMilli() + int64(i), 1}
	}
	if !s.TryPut(0, samples) || s.TryPut(0, samples) {
		t.Error("TryPut does not know the room")
	}
	short, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.Put(short, 0, samples); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	done := make(chan error)
	go func() { done <- s.Put(ctx, 0, samples) }() // blocks until the store starts
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if st := s.Stats(); st.Points+st.DroppedFailed != 18 || st.DroppedQueue != 14 {
		t.Errorf("%+v", st)
	}
}

func TestStop(t *testing.T) {
	s, err := New(Options{Dir: t.TempDir(), stripes: 256, MinFreeBytes: -1, Shards: 1, QueueSamples: 1})
	if err != nil {
		t.Fatal(err)
	}
	se, err := s.Open("m")
	if err != nil {
		t.Fatal(err)
	}
	sm := []Sample{{se, time.Now().UnixMilli(), 1}}
	if err := s.Put(ctx, 0, sm); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- s.Put(ctx, 0, sm) }()
	if err := errors.Join(s.Stop(ctx), s.Stop(ctx)); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, ErrStopped) {
		t.Error(err)
	}
	if err := s.Start(); !errors.Is(err, ErrStopped) {
		t.Error(err)
	}
	if _, err := s.Open("n"); !errors.Is(err, ErrStopped) {
		t.Error(err)
	}
	if _, err := New(Options{}); err == nil || !strings.Contains(err.Error(), "Dir is empty") {
		t.Error(err)
	}
	if _, err := New(Options{Dir: t.TempDir(), MaxFuture: 2 * time.Hour}); err == nil ||
		!strings.Contains(err.Error(), "MaxFuture") {
		t.Error(err)
	}
}

func TestDiskFull(t *testing.T) {
	var free atomic.Int64
	free.Store(2000)
	b := open(t, Options{MinFreeBytes: 1000, freeBytes: func(string) (int64, error) { return free.Load(), nil }})
	b.put("m", start0, 1)
	b.drain()
	stopped := map[*tier]bool{}
	free.Store(500)
	b.s.checkDisk()
	b.s.pauseCompactions(stopped)
	b.clock.t.Add(60)
	b.put("m", start0+60, 2)
	b.drain()
	if st := b.s.Stats(); !st.DiskFull || st.DroppedFull != 1 || st.Points != 1 || len(stopped) != 1 {
		t.Errorf("%+v", st)
	}
	free.Store(5000)
	b.s.checkDisk()
	b.s.pauseCompactions(stopped)
	b.clock.t.Add(60)
	b.put("m", start0+120, 3)
	b.drain()
	b.wantValues("m", start0-1, start0+120, 60, 1, nan, 3)
	if len(stopped) != 0 {
		t.Error("compactions stay off")
	}
}

func TestLimits(t *testing.T) {
	b := open(t, Options{MaxSeries: 3, CreatesPerMinute: 2})
	f := func(name string, want error) {
		t.Helper()
		if _, err := b.s.Open(name); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	f("a", nil)
	f("b", nil)
	f("c", ErrTooManySeries)
	f("a", nil)
	b.clock.t.Add(60)
	f("c", nil)
	f("d", ErrTooManySeries)
	b.put("a", b.clock.t.Load(), 1)
	b.put("b", b.clock.t.Load(), 1)
	b.put("c", b.clock.t.Load(), 1)
	b.stop()
	b.o.MaxSeries = 100
	b.start()
	for _, name := range []string{"x", "a", "y", "b"} { // known series do not count as created
		f(name, nil)
	}
	f("z", ErrTooManySeries)
	f("c", nil)
	for _, bad := range []string{"", ";a=b", "m;a", "m;=v", "m;a=", "m;b=1;a=2", "m;a=1;a=2", "m;__name__=x",
		strings.Repeat("x", 5000)} {
		if _, err := b.s.Open(bad); err == nil {
			t.Errorf("%q was opened", bad)
		}
	}
	c := open(t, Options{MemoryLimit: 5000})
	for i := range 100 {
		name := fmt.Sprintf("n%d", i)
		if _, err := c.s.Open(name); err != nil {
			if !errors.Is(err, ErrTooManySeries) || i < 3 {
				t.Errorf("after %d: %v", i, err)
			}
			return
		}
		c.put(name, start0, 1)
		c.drain()
	}
	t.Error("no limit")
}

func TestIdle(t *testing.T) {
	b := open(t, Options{Policy: fixed(
		policy(series.Sum, 0, series.Archive{Step: 10, Points: 100}, series.Archive{Step: 60, Points: 100}))})
	b.put("a", start0, 1)
	b.put("b", start0, 1)
	b.drain()
	old, err := b.s.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	b.clock.t.Add(30)
	b.put("b", start0+30, 1)
	b.drain()
	b.clock.t.Add(15)
	idle := b.s.Idle(20 * time.Second)
	if len(idle) != 1 || idle[0] != old {
		t.Fatalf("%v", idle)
	}
	b.s.Close(old)
	b.s.Close(old)
	if n := b.s.Stats().Series; n != 1 {
		t.Errorf("%d series", n)
	}
	b.wantValues("a", start0-10, start0+5, 10, 1)
	if err := b.s.Put(ctx, old.Shard(), []Sample{{old, (start0 + 45) * 1000, 2}}); err != nil {
		t.Fatal(err)
	}
	b.flush()
	if n := b.s.Stats().Series; n != 2 {
		t.Errorf("%d series", n)
	}
	b.wantValues("a", start0-3000, start0+45, 60, append(slices.Repeat([]float64{nan}, 49), 3)...)
	b.clock.t.Add(60)
	b.put("a", start0+105, 5)
	b.flush()
	b.clock.t.Add(100)
	b.s.sweep()
	b.flush()
	b.wantValues("a", start0-3000, start0+110, 60, append(slices.Repeat([]float64{nan}, 49), 3, 5)...)
	if got := fmt.Sprint(b.query("a", (start0-60)*1000, (start0+200)*1000)); got != "[0=1 45000=2 105000=5]" {
		t.Error(got)
	}
}

// A tier that gets points of long ago is not idle: a sender may catch up, or have a wrong clock.
func TestOldPointsAreNoIdleTier(t *testing.T) {
	b := open(t, Options{Policy: fixed(policy(series.Sum, 0, series.Archive{Step: 10, Points: 8640}))})
	now := b.clock.t.Load()
	for i := range int64(10) {
		b.clock.t.Add(10)
		b.put("a", now-6*3600+i*10, 1)
		b.drain()
		b.s.retireTiers()
	}
	if tr := (*b.s.tiers.Load())[0]; tr.db.Head().NumSeries() != 1 || len(tr.db.Blocks()) != 0 {
		t.Errorf("%d series in the head, %d blocks", tr.db.Head().NumSeries(), len(tr.db.Blocks()))
	}
}

// A tier that gets no more points keeps none of them in memory, and removes them when they are old enough.
func TestIdleTier(t *testing.T) {
	b := open(t, Options{Policy: fixed(policy(series.Sum, 0, series.Archive{Step: 10, Points: 8640}))})
	for i := range int64(100) {
		b.put("a", start0+i*10, 1)
		b.clock.t.Add(10)
	}
	b.drain()
	b.put("a", start0+5, 2)
	b.drain()
	b.clock.t.Add(5 * 3600)
	b.s.retireTiers()
	tr := (*b.s.tiers.Load())[0]
	if n, blocks := tr.db.Head().NumSeries(), len(tr.db.Blocks()); n != 0 || blocks == 0 {
		t.Errorf("%d series in the head, %d blocks", n, blocks)
	}
	b.wantValues("a", start0-10, start0+29, 10, 2, 1, 1)
	now := b.clock.t.Load()
	b.put("a", now, 3)
	b.flush()
	b.wantValues("a", now-10, now, 10, 3)
	b.stop()
	b.start()
	b.wantValues("a", start0-10, start0+29, 10, 2, 1, 1)
	b.wantValues("a", now-10, now, 10, 3)
	b.clock.t.Add(86400 + 3*3600)
	b.put("a", b.clock.t.Load(), 4)
	b.flush()
	if err := tr.db.CompactOOOHead(ctx); err == nil {
		t.Error("the old tier is open")
	}
	tr = (*b.s.tiers.Load())[0]
	if err := tr.db.CompactOOOHead(ctx); err != nil {
		t.Fatal(err)
	}
	for _, bl := range tr.db.Blocks() {
		if bl.MaxTime() < start0*1000+hour {
			t.Errorf("a block until %d is left", bl.MaxTime()/1000-start0)
		}
	}
}

// What cannot be read is set aside, and the store starts.
func TestDamaged(t *testing.T) {
	for _, damage := range []struct {
		name  string
		do    func(t *testing.T, tier string)
		aside string
		keeps bool
	}{
		{"torn write-ahead log", func(t *testing.T, tier string) {
			f, err := os.OpenFile(last(t, filepath.Join(tier, "wal", "0*")), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteString(strings.Repeat("garbage", 100))
			if err = errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
		}, "", true},
		{"checkpoint", func(t *testing.T, tier string) {
			dir := filepath.Join(tier, "wal", "checkpoint.00000000")
			write(t, filepath.Join(dir, "00000000"), strings.Repeat("x", 40000))
		}, "wal/checkpoint.00000000.bad-*", false},
		{"block", func(t *testing.T, tier string) {
			dir := filepath.Join(tier, "01ARZ3NDEKTSV4RRFFQ69G5FAV")
			write(t, filepath.Join(dir, "meta.json"),
				`{"ulid":"01ARZ3NDEKTSV4RRFFQ69G5FAV","version":1,"minTime":0,"maxTime":1}`)
		}, "01ARZ3NDEKTSV4RRFFQ69G5FAV.bad-*", true},
		{"write-ahead log is a file", func(t *testing.T, tier string) {
			if err := os.RemoveAll(filepath.Join(tier, "wal")); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(tier, "wal"), "")
		}, "wal.bad-*", false},
	} {
		t.Run(damage.name, func(t *testing.T) {
			b := open(t, Options{})
			b.put("m", start0, 1)
			b.stop()
			tierPath := filepath.Join(b.o.Dir, "tier-60s-604800s")
			damage.do(t, tierPath)
			b.start()
			if damage.aside != "" {
				if got, _ := filepath.Glob(filepath.Join(tierPath, damage.aside)); len(got) != 1 {
					t.Errorf("%q set aside", got)
				}
			}
			if damage.keeps {
				b.wantValues("m", start0-60, start0, 60, 1)
			}
			b.clock.t.Add(60)
			b.put("m", start0+60, 2)
			b.flush()
			b.stop()
			b.start()
			b.wantValues("m", start0, start0+60, 60, 2)
		})
	}
	t.Run("in use", func(t *testing.T) {
		b := open(t, Options{})
		b.put("m", start0, 1)
		if s, err := New(b.o); err == nil {
			_ = s.Stop(ctx)
			t.Error("a second store uses the directory")
		}
		if got, _ := filepath.Glob(filepath.Join(b.o.Dir, "*bad*")); len(got) != 0 {
			t.Errorf("%q set aside", got)
		}
	})
}

// write writes a file and makes its directory.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func last(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatal(pattern, err)
	}
	return files[len(files)-1]
}

// Points of several days go through the TSDB's compactions, and old blocks are removed.
func TestCompaction(t *testing.T) {
	archives := []series.Archive{{Step: 60, Points: 24 * 60}, {Step: 600, Points: 6 * 24 * 30}}
	p := policy(series.Average, 0.5, archives...)
	b := open(t, Options{Policy: fixed(p), Shards: 1})
	ms := map[string]*model{}
	for i := range int64(3 * 24 * 60) {
		now := start0 + i*60
		b.clock.t.Store(now)
		for j := range int64(2) {
			n := fmt.Sprintf("s%d", j)
			if ms[n] == nil {
				ms[n] = &model{p: p, finest: map[int64]modelPoint{}}
			}
			b.put(n, now, float64(i*j%1000))
			ms[n].put(now, float64(i*j%1000))
		}
		if i%50 == 0 {
			b.drain()
		}
		if i%97 == 96 {
			b.put("s1", now-5000, float64(i))
			ms["s1"].put(now-5000, float64(i))
		}
		if i%720 == 719 {
			b.flush()
			for _, tr := range *b.s.tiers.Load() {
				if err := tr.db.Compact(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	b.flush()
	now := b.clock.t.Load()
	check := func() {
		t.Helper()
		for n, m := range ms {
			for _, back := range []int64{3600, 86400, 3 * 86400, 20 * 86400} {
				b.compare(n, m, now-back, now)
			}
		}
	}
	check()
	st := b.s.Stats()
	if fine := st.Tiers[0]; fine.Step != 60 || fine.Blocks == 0 || fine.From < now-2*86400-14400 || fine.BlockBytes == 0 {
		t.Errorf("%+v", st.Tiers)
	}
	b.stop()
	b.start()
	check()
}

func TestConcurrent(t *testing.T) {
	b := open(t, Options{Policy: fixed(
		policy(series.Average, 0, series.Archive{Step: 1, Points: 1000}, series.Archive{Step: 10, Points: 1000})),
		SweepInterval: 10 * time.Millisecond, SyncInterval: 10 * time.Millisecond, QueueSamples: 100})
	const rounds, writers, each = 100, 4, 20
	var wg sync.WaitGroup
	done := make(chan struct{})
	for w := range writers {
		wg.Go(func() {
			for r := range rounds {
				for i := range each {
					se, err := b.s.Open(fmt.Sprintf("w%d.s%d", w, i))
					if err != nil {
						t.Error(err)
						return
					}
					if err := b.s.Put(ctx, se.Shard(), []Sample{{se, (start0 + int64(r)) * 1000, float64(r)}}); err != nil {
						t.Error(err)
						return
					}
				}
				if w == 0 {
					b.clock.t.Add(1)
				}
			}
		})
	}
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				names := []string{"w0.s1", "w1.s2", "w2.s3", "w3.s4"}
				for _, back := range []int64{100, 5000} {
					now := b.clock.t.Load()
					if _, err := b.s.FetchMany(ctx, names, now-back, now, now); err != nil {
						t.Error(err)
					}
				}
				if err := b.s.Names(ctx, func(string) bool { return true }); err != nil {
					t.Error(err)
				}
				b.s.Stats()
				b.s.Idle(time.Hour)
				if err := b.s.Refresh(ctx); err != nil {
					t.Error(err)
				}
				if se := b.s.lookup("w3.s19"); se != nil {
					b.s.Close(se)
				}
			}
		})
	}
	wg.Wait()
	close(done)
	readers.Wait()
	b.flush()
	if st := b.s.Stats(); st.Points != rounds*writers*each {
		t.Errorf("%+v", st)
	}
	b.clock.t.Store(start0 + rounds)
	for w := range writers {
		r := b.fetch(fmt.Sprintf("w%d.s0", w), start0-1, start0+rounds-1)
		for i, v := range r.Values {
			if v != float64(i) {
				t.Fatalf("w%d: %v", w, r.Values)
			}
		}
	}
}

// Names that are not UTF-8, names that are given twice, and unknown ones, in one call.
func TestFetchMany(t *testing.T) {
	b := open(t, Options{Policy: fixed(policy(series.Average, 0, series.Archive{Step: 10, Points: 100}))})
	names := []string{"\xff.a", "b", "b", "no.such", "c;k=\xfe", "", "d.e+f(", "b;x=y"}
	want := []string{"\xff.a", "b", "b", "c;k=\xfe", "d.e+f(", "b;x=y"}
	for i, n := range want {
		b.put(n, start0, float64(i))
	}
	b.flush()
	rs, err := b.s.FetchMany(ctx, names, start0-10, start0, start0)
	if err != nil || len(rs) != len(want) {
		t.Fatal(rs, err)
	}
	for i, r := range rs {
		v := float64(i)
		if want[i] == "b" {
			v = 2
		}
		if r.Name != want[i] || !same(r.Values, []float64{v}) {
			t.Errorf("%+v", r)
		}
	}
	if _, err := b.s.FetchMany(ctx, names, start0, start0-1, start0); err == nil {
		t.Error("from is after until")
	}
	if err := b.s.Put(ctx, 77, nil); err == nil {
		t.Error("there is no shard 77")
	}
	se, err := b.s.Open("b")
	if err != nil {
		t.Fatal(err)
	}
	if b.s.Shards() > 1 { // a sample in a wrong shard is refused
		if err := b.s.Put(ctx, 1-se.Shard(), []Sample{{se, start0 * 1000, 1}, {}}); err != nil {
			t.Fatal(err)
		}
		b.drain()
		if st := b.s.Stats(); st.DroppedFailed != 2 {
			t.Errorf("%+v", st)
		}
	}
}

func TestOffset(t *testing.T) {
	before := int64(0)
	for l := int64(-5); l < 400_000_000; l += 1 + l/50 {
		o := offset(l)
		if o < before || o < 1 || o > 999 || l > 1 && l <= 500 && o != l {
			t.Fatalf("offset(%d) = %d after %d", l, o, before)
		}
		before = o
	}
}

func TestTierNames(t *testing.T) {
	for _, a := range []series.Archive{{Step: 1, Points: 1}, {Step: 10, Points: 2160}, {Step: 86400, Points: 365}} {
		if got, ok := parseTierDir(tierDir(a)); !ok || got != a {
			t.Errorf("%v: %v %v", a, got, ok)
		}
	}
	for retention, want := range map[series.Archive]int64{
		{Step: 1, Points: 1}: hour / 4, {Step: 60, Points: 30}: hour / 4, {Step: 10, Points: 720}: hour, {Step: 10, Points: 1440}: 2 * hour,
		{Step: 60, Points: 10080}: 2 * hour, {Step: 600, Points: 52560}: 20 * hour, {Step: 86400, Points: 365}: 240 * hour,
	} {
		if got := blockTime(retention); got != want {
			t.Errorf("%v: a block spans %d ms, not %d", retention, got, want)
		}
	}
	for _, bad := range []string{"", "tier-", "tier-0s-5s", "tier-3s-10s", "tier-10s-100s.bad-5", "tier-010s-100s",
		"tier--10s-100s"} {
		if a, ok := parseTierDir(bad); ok {
			t.Errorf("%q is %v", bad, a)
		}
	}
}

// A name that is accepted comes back from its labels.
func FuzzName(f *testing.F) {
	for _, s := range []string{"a.b", "m;a1=y;a=x", "m;a=1;b=2", "m;", "m;=", ";a=b", "m;a=b;a=c", "m;__name__=x", "é;ü=ß",
		"\xff;a=\xfe"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		ls, err := Labels(name)
		if err != nil {
			return
		}
		if got := Name(ls); got != name {
			t.Errorf("%q became %q", name, got)
		}
	})
}

// noting is a compactor that says when it writes.
type noting struct {
	tsdb.Compactor
	wrote chan struct{}
}

func (n *noting) Write(string, tsdb.BlockReader, int64, int64, *tsdb.BlockMeta) ([]ulid.ULID, error) {
	close(n.wrote)
	return nil, nil
}

// TestCompactionWaitsForGroups: the points of an open group would go with the part of the head that is written.
func TestCompactionWaitsForGroups(t *testing.T) {
	b := open(t, Options{Shards: 2})
	b.put("a", start0, 1)
	b.drain()
	tr := (*b.s.tiers.Load())[0]
	inner := &noting{wrote: make(chan struct{})}
	c := &compactor{inner, b.s, tr}
	last := b.s.shards[1]
	last.mu.Lock() // as a group does until its commit
	commit := sync.OnceFunc(last.mu.Unlock)
	defer commit()
	ended := make(chan error, 1)
	go func() {
		_, err := c.Write("", tsdb.NewRangeHead(tr.db.Head(), 0, 1), 0, 1, nil)
		ended <- err
	}()
	for range 1000 {
		runtime.Gosched()
		select {
		case <-inner.wrote:
			t.Fatal("the head is written during a group")
		default:
		}
	}
	commit()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	<-inner.wrote
}

// A kill during a compaction of late points, which are in a chunk file that is not written yet.
func TestKillDuringLateCompaction(t *testing.T) {
	b := open(t, Options{Policy: fixed(policy(series.Last, 0, series.Archive{Step: 1, Points: 86400})), Shards: 1})
	b.clock.t.Store(start0 + 36000)
	b.put("new", start0+36000, 1)
	b.drain()
	finest := (*b.s.tiers.Load())[0]
	if err := b.s.retire(finest); err != nil { // with a block, a start passes over the log of points in order
		t.Fatal(err)
	}
	b.put("new", start0+36001, 1)
	b.drain()
	var want []float64
	put := func(i int64) {
		want = append(want, float64(i))
		b.put("old", start0+i, float64(i))
		b.drain()
	}
	for i := range int64(5) {
		put(i)
	}
	if _, err := tsdb.NewOOOCompactionHead(ctx, finest.db.Head()); err != nil {
		t.Fatal(err)
	}
	for i := int64(5); i < 8; i++ {
		put(i)
	}
	torn := b.copy()
	for range 2 { // the second kill comes at once after the start
		b.o.Dir = b.copy()
		b.start()
		if got := b.fetch("old", start0-1, start0+7).Values; !same(got, want) {
			t.Errorf("after a kill there are %v, want %v", got, want)
		}
	}
	// A log that is damaged at its end is kept up to there, and told.
	segment := last(t, filepath.Join(torn, finest.name(), lateLog, "0*"))
	text, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	write(t, segment, string(text)+"\x01\x00\x09torn")
	var logged bytes.Buffer
	b.o.Log, b.o.Dir = slog.New(slog.NewTextHandler(&logged, nil)), torn
	b.start()
	if got := b.fetch("old", start0-1, start0+7).Values; !same(got, want) {
		t.Errorf("after a kill and damage there are %v, want %v", got, want)
	}
	bad, _ := filepath.Glob(filepath.Join(torn, finest.name(), lateLog+".bad-*"))
	if !strings.Contains(logged.String(), "log of late points is damaged") || len(bad) != 1 {
		t.Errorf("set aside are %q, the log is\n%s", bad, logged.String())
	}
}

// A kill while the log of late points is replaced.
func TestKillWhileLateLogIsReplaced(t *testing.T) {
	for name, left := range map[string][2]bool{"both are there": {true, true}, "the old one is away": {false, true}} {
		tier := t.TempDir()
		for i, dir := range []string{lateLog, lateLogOld} {
			if left[i] {
				if err := os.Mkdir(filepath.Join(tier, dir), 0o755); err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(tier, dir, "00000000"), "")
			}
		}
		if err := os.Mkdir(filepath.Join(tier, lateLogNew), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := (&Store{}).keepLatePoints(tier, true); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		entries, err := os.ReadDir(tier)
		if err != nil || len(entries) != 1 || entries[0].Name() != lateLog || !exists(filepath.Join(tier, lateLog, "00000000")) {
			t.Errorf("%s: there are %v, %v", name, entries, err)
		}
	}
}
