package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// clock is the time of a test, in seconds.
type clock struct{ t atomic.Int64 }

func (c *clock) now() time.Time { return time.Unix(c.t.Load(), 0) }

func newClock(t int64) *clock {
	c := &clock{}
	c.t.Store(t)
	return c
}

// bundle is a store with a clock that the test moves.
type bundle struct {
	t     *testing.T
	s     *Store
	clock *clock
	o     Options
}

const start0 = 1_700_000_000 - 1_700_000_000%86400

func open(t *testing.T, o Options) *bundle {
	t.Helper()
	b := &bundle{t: t, clock: newClock(start0)}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	o.Now = b.clock.now
	o.stripes = 256
	if o.SweepInterval == 0 {
		o.SweepInterval = time.Hour // tests sweep themselves
	}
	if o.MinFreeBytes == 0 {
		o.MinFreeBytes = -1
	}
	b.o = o
	b.start()
	return b
}

func (b *bundle) start() {
	b.t.Helper()
	s, err := New(b.o)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.s = s
	b.t.Cleanup(func() { _ = s.Stop(context.Background()) })
}

func (b *bundle) stop() {
	b.t.Helper()
	if err := b.s.Stop(context.Background()); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bundle) put(name string, sec int64, v float64) {
	b.t.Helper()
	b.putMs(name, sec*1000, v)
}

func (b *bundle) putMs(name string, ms int64, v float64) {
	b.t.Helper()
	se, err := b.s.Open(name)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.s.Put(context.Background(), se.Shard(), []Sample{{se, ms, v}}); err != nil {
		b.t.Fatal(err)
	}
}

// drain waits until all points are readable, but not for corrections.
func (b *bundle) drain() {
	b.t.Helper()
	for _, sh := range b.s.shards {
		if err := sh.drain(context.Background()); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bundle) flush() {
	b.t.Helper()
	if err := b.s.Flush(context.Background()); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bundle) fetch(name string, from, until int64) series.Range {
	b.t.Helper()
	r, ok, err := b.s.Fetch(context.Background(), name, from, until, b.clock.t.Load())
	if err != nil {
		b.t.Fatal(err)
	}
	if !ok {
		b.t.Fatalf("no series %s", name)
	}
	return r
}

func policy(method series.Method, xff float64, archives ...series.Archive) Policy {
	return Policy{Archives: archives, Method: method, XFilesFactor: xff}
}

func fixed(p Policy) func(string) Policy { return func(string) Policy { return p } }

func same(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return x == y || math.IsNaN(x) && math.IsNaN(y) })
}

// The example of the whisper format's description.
func TestFetchVector(t *testing.T) {
	b := open(t, Options{Policy: fixed(
		policy(series.Average, 0.5, series.Archive{Step: 10, Points: 6}, series.Archive{Step: 30, Points: 4}))})
	b.clock.t.Store(1700000065)
	for _, p := range []struct {
		t int64
		v float64
	}{{1700000001, 1}, {1700000012, 2}, {1700000023, 3}, {1700000059, 6.5}, {1700000061, 7}} {
		b.put("m", p.t, p.v)
	}
	b.flush()
	r := b.fetch("m", 1700000000, 1700000065)
	if r.Start != 1700000010 || r.End() != 1700000070 || r.Step != 30 || !same(r.Values, []float64{2.5, 6.75}) {
		t.Errorf("%+v", r)
	}
}

// model is whisper with unlimited archives: the last sample of each slot, aggregated from archive to archive.
type model struct {
	p Policy
	// finest is by slot; the point with the latest second wins, and of these the last to arrive.
	finest map[int64]modelPoint
}

type modelPoint struct {
	sec int64
	v   float64
}

func (m *model) put(sec int64, v float64) {
	slot := series.Floor(sec, m.p.Archives[0].Step)
	if old, ok := m.finest[slot]; !ok || sec >= old.sec {
		m.finest[slot] = modelPoint{sec, v}
	}
}

func (m *model) value(k int, slot int64) float64 {
	if k == 0 {
		if p, ok := m.finest[slot]; ok {
			return p.v
		}
		return math.NaN()
	}
	var values []float64
	fine := m.p.Archives[k-1].Step
	for t := slot; t < slot+m.p.Archives[k].Step; t += fine {
		values = append(values, m.value(k-1, t))
	}
	return m.p.Method.Aggregate(values, m.p.XFilesFactor)
}

func (m *model) fetch(from, until, now int64) (start, step int64, values []float64) {
	from = max(from, now-m.p.Archives[len(m.p.Archives)-1].Retention())
	until = min(until, now)
	k := 0
	for m.p.Archives[k].Retention() < now-from {
		k++
	}
	step = m.p.Archives[k].Step
	start = series.Floor(from, step) + step
	end := series.Floor(until, step) + step
	if end == start {
		end += step
	}
	for t := start; t < end; t += step {
		values = append(values, m.value(k, t))
	}
	return start, step, values
}

func (b *bundle) compare(name string, m *model, from, until int64) {
	b.t.Helper()
	r := b.fetch(name, from, until)
	start, step, values := m.fetch(from, until, b.clock.t.Load())
	if r.Start != start || r.Step != step || len(r.Values) != len(values) {
		b.t.Fatalf("%s: start %d step %d, %d values; want %d, %d, %d", name, r.Start, r.Step, len(r.Values), start, step,
			len(values))
	}
	for i := range values {
		if x, y := r.Values[i], values[i]; x != y && !(math.IsNaN(x) && math.IsNaN(y)) &&
			math.Abs(x-y) > 1e-12*max(math.Abs(x), math.Abs(y)) {
			at := start + int64(i)*step
			for _, tr := range *b.s.tiers.Load() {
				q, _ := tr.db.Querier(at*1000, (at+step)*1000-1)
				set := q.Select(context.Background(), false, nil,
					labels.MustNewMatcher(labels.MatchEqual, "__name__", labelsOf(name).Get("__name__")))
				for set.Next() {
					it := set.At().Iterator(nil)
					for it.Next() != 0 {
						ms, v := it.At()
						b.t.Logf("%d s: %d %v", tr.archive.Step, ms-start0*1000, v)
					}
				}
				q.Close()
			}
			for slot, v := range m.finest {
				if slot >= at && slot < at+step {
					b.t.Logf("model: %d %v", v.sec-start0, v.v)
				}
			}
			b.t.Fatalf("%s, now %d, step %d: value at %d is %v, want %v", name, b.clock.t.Load()-start0, step,
				start+int64(i)*step-start0, x, y)
		}
	}
}

// Random points in order, twice and late give at every retention what whisper gives.
func TestFetchEqualsModel(t *testing.T) {
	t.Parallel()
	archives := []series.Archive{{Step: 10, Points: 360}, {Step: 60, Points: 600}, {Step: 600, Points: 1000}}
	for seed := range uint64(12) {
		method := series.Method(seed%8 + 1)
		xff := []float64{0, 0.3, 0.5, 1}[seed%4]
		t.Run(fmt.Sprintf("%v %v", method, xff), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 1))
			p := policy(method, xff, archives...)
			b := open(t, Options{Policy: fixed(p), Shards: 2})
			names := []string{"a.b", "c;k=v", "d"}
			models := map[string]*model{}
			for _, n := range names {
				models[n] = &model{p: p, finest: map[int64]modelPoint{}}
				b.put(n, start0, 1)
				models[n].put(start0, 1)
			}
			check := func() {
				t.Helper()
				now := b.clock.t.Load()
				for _, n := range names {
					for _, back := range []int64{600, 3600, 7200, 36000, 100000} {
						b.compare(n, models[n], now-back, now)
					}
				}
			}
			for i := range 1500 {
				now := b.clock.t.Load()
				n := names[rnd.IntN(len(names))]
				sec := now - rnd.Int64N(3)
				switch rnd.IntN(20) {
				case 0:
					sec = now - rnd.Int64N(60)
				case 1:
					sec = now - rnd.Int64N(3600)
				case 2:
					sec = max(models[n].last(), now-3000)
				}
				v := float64(rnd.IntN(2000)-1000) / 8
				b.put(n, sec, v)
				models[n].put(sec, v)
				if now-sec > 1000 || i%10 == 0 {
					b.drain() // before the clock moves it beyond the finest archive
				}
				if rnd.IntN(2) == 0 {
					b.clock.t.Add(rnd.Int64N(40))
				}
				switch i % 150 {
				case 30:
					b.drain() // values from the tiers, from open slots, and from slots that are being corrected
					check()
				case 60:
					b.flush()
					check()
				case 90:
					b.s.sweep()
					b.drain()
					check()
				}
				if i%500 == 499 {
					b.stop()
					b.start()
					check()
				}
			}
			b.flush()
			check()
		})
	}
}

func (m *model) last() int64 {
	var last int64
	for _, p := range m.finest {
		last = max(last, p.sec)
	}
	return last
}

// A coarse slot is computed again and again while the shard forgets what it has of earlier times, also in the middle of a
// group: the last sum counts.
func TestCorrectionsWhileForgetting(t *testing.T) {
	t.Parallel()
	p := policy(series.Sum, 0, series.Archive{Step: 10, Points: 1080}, series.Archive{Step: 600, Points: 1000})
	for room := 2; room <= 26; room++ {
		b := open(t, Options{Policy: fixed(p), Shards: 1, maxLate: room})
		now := int64(start0 + 7200)
		b.clock.t.Store(now)
		names := []string{"a", "b", "c", "d"}
		for _, name := range names {
			b.put(name, now, 1)
		}
		for round := range int64(6) {
			for _, name := range names {
				b.put(name, start0+round*10, 1)
			}
			b.flush()
			for _, name := range names {
				r := b.fetch(name, now-4*3600, now)
				if at := (start0 - r.Start) / r.Step; r.Step != 600 || r.Values[at] != float64(round+1) {
					t.Errorf("with room for %d, the sum of %s is %v after round %d", room, name, r.Values[at], round)
				}
			}
		}
		if n := b.s.counts.failed.Load(); n > 0 {
			t.Errorf("with room for %d, %d points were not appended", room, n)
		}
	}
}

// Points that are older than the finest archive are written into a coarse slot one after the other, of many series at the same
// time: the last one counts, however much the shard has to forget in between.
func TestManyOldPoints(t *testing.T) {
	t.Parallel()
	p := policy(series.Last, 0, series.Archive{Step: 10, Points: 360}, series.Archive{Step: 600, Points: 1000})
	b := open(t, Options{Policy: fixed(p), Shards: 1, maxLate: 22})
	now := int64(start0 + 36000)
	b.clock.t.Store(now)
	names := []string{"a", "b", "c", "d", "e"}
	for at := int64(start0); at < start0+6000; at += 10 {
		for _, name := range names {
			b.put(name, at, float64(at-start0))
		}
		b.drain()
	}
	for _, name := range names {
		r := b.fetch(name, now-40000, now)
		for i, v := range r.Values {
			if at := r.Start + int64(i)*r.Step - start0; at >= 0 && at < 6000 && v != float64(at+590) {
				t.Errorf("%s at %d is %v", name, at, v)
			}
		}
	}
	if n := b.s.counts.failed.Load(); n > 0 {
		t.Errorf("%d points were not appended", n)
	}
}

// After a restart, a sender whose points are hours old goes on: nothing is looked up for its new seconds, and a rewrite of an
// old one counts, whether the tier has the points in order, late, or in a block.
func TestOldSenderAfterRestart(t *testing.T) {
	t.Parallel()
	const now = start0 + 36000
	finest := func(b *bundle) *tier { return (*b.s.tiers.Load())[0] }
	for name, prepare := range map[string]func(b *bundle, old func()) error{
		"in order": func(b *bundle, old func()) error { old(); return nil },
		"late": func(b *bundle, old func()) error {
			b.put("new", now, 1)
			b.drain()
			old()
			return nil
		},
		"in a block": func(b *bundle, old func()) error {
			old()
			b.put("new", now, 1)
			b.drain()
			return b.s.retire(finest(b))
		},
		"in a block of late points": func(b *bundle, old func()) error {
			b.put("new", now, 1)
			b.drain()
			old()
			return finest(b).db.CompactOOOHead(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, Options{Policy: fixed(policy(series.Last, 0, series.Archive{Step: 1, Points: 86400})), Shards: 1})
			b.clock.t.Store(now)
			err := prepare(b, func() {
				for i := range int64(10) {
					b.put("old", start0+i, float64(i))
				}
				b.drain()
			})
			if err != nil {
				t.Fatal(err)
			}
			b.stop()
			b.start()
			b.put("new", now+2, 1)
			for i := int64(10); i < 20; i++ {
				b.put("old", start0+i, float64(i))
			}
			b.drain()
			sh := b.s.shards[0]
			sh.mu.Lock()
			if len(sh.probed) > 0 {
				t.Errorf("%d spans were looked up", len(sh.probed))
			}
			sh.mu.Unlock()
			b.put("old", start0+5, 50)
			b.put("old", start0+15, 150)
			b.drain()
			want := []float64{0, 1, 2, 3, 4, 50, 6, 7, 8, 9, 10, 11, 12, 13, 14, 150, 16, 17, 18, 19}
			if got := b.fetch("old", start0-1, start0+19).Values; !same(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// After an import into the time behind a series' points, and a restart, a rewrite of an imported second counts, also if all
// points are in blocks.
func TestRewriteOfImported(t *testing.T) {
	t.Parallel()
	for _, retired := range []bool{false, true} {
		archive := series.Archive{Step: 1, Points: 86400}
		b := open(t, Options{Policy: fixed(policy(series.Last, 0, archive)), Shards: 1})
		b.clock.t.Store(start0 + 36000)
		b.put("old", start0, 1)
		b.put("new", start0+36000, 1)
		b.drain()
		im := b.s.NewImport()
		points := []Point{{start0 + 10, 10}, {start0 + 11, 11}}
		if err := errors.Join(im.Add(ctx, "old", archive, points), im.Add(ctx, "alone", archive, points),
			im.Commit(ctx)); err != nil {
			t.Fatal(err)
		}
		if retired {
			if err := b.s.retire((*b.s.tiers.Load())[0]); err != nil {
				t.Fatal(err)
			}
		}
		b.stop()
		b.start()
		for _, name := range []string{"old", "alone"} {
			b.put(name, start0+10, 100)
			b.drain()
			if got := b.fetch(name, start0+9, start0+11).Values; !same(got, []float64{100, 11}) {
				t.Errorf("retired %v: %s has %v, want [100 11]", retired, name, got)
			}
		}
	}
}
