package member

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPlacement(t *testing.T) {
	three := NewPlacement([]string{"c", "a", "b", "a"})
	if !slices.Equal(three.IDs(), []string{"a", "b", "c"}) {
		t.Fatalf("ids: %v", three.IDs())
	}
	four := NewPlacement([]string{"a", "b", "c", "d"})
	const names = 20_000
	moved, first := 0, map[int]int{}
	for i := range names {
		name := fmt.Sprintf("servers.host%d.cpu.user", i)
		old := three.Owners(name, 2, nil)
		if len(old) != 2 || old[0] == old[1] {
			t.Fatalf("owners of %s: %v", name, old)
		}
		first[old[0]]++
		for _, o := range four.Owners(name, 2, nil) {
			switch {
			case o == 3:
				moved++
			case !slices.Contains(old, o):
				t.Fatalf("%s went from %v to %s, which was there before", name, old, four.IDs()[o])
			}
		}
	}
	if moved < names*45/100 || moved > names*55/100 { // of names*2 copies a quarter
		t.Errorf("%d copies moved, want about %d", moved, names/2)
	}
	for i, n := range first {
		if n < names*30/100 || n > names*37/100 {
			t.Errorf("member %d is the first owner of %d of %d", i, n, names)
		}
	}
	if got := three.Owners("x", 9, nil); len(got) != 3 {
		t.Errorf("of three members %v own a series", got)
	}
	if n := testing.AllocsPerRun(100, func() {
		var buf [maxOwners]int
		three.Owners("servers.host.cpu", 2, buf[:0])
	}); n != 0 {
		t.Errorf("Owners allocates %v times", n)
	}
}

func TestEncodeAndDecode(t *testing.T) {
	var points []point
	for i := range 70_000 {
		points = append(points, point{fmt.Sprintf("a.servers.with.a.long.name.b%d", i%20_000), int64(1_700_000_000_000 + i*7),
			float64(i) / 3, Use(1 + i%3)})
	}
	points = append(points, point{"x", -5, math.Inf(1), Store})
	var e encoder
	var batches int
	for rest := points; len(rest) > 0; batches++ {
		payload, n := e.encode(rest)
		if len(payload) > maxBody+headerBytes {
			t.Fatalf("a batch has %d bytes", len(payload))
		}
		got := 0
		if err := Decode(payload, func(name []byte, use Use, milli int64, v float64) error {
			if want := rest[got]; (point{string(name), milli, v, use}) != want {
				return fmt.Errorf("point %d is not %v", got, want)
			}
			got++
			return nil
		}); err != nil || got != n {
			t.Fatalf("%d of %d points: %v", got, n, err)
		}
		rest = rest[n:]
	}
	if batches < 2 {
		t.Errorf("%d batches", batches)
	}
	payload, _ := e.encode([]point{{"s", 1000, 1, Store}, {"g", 1000, 1, Aggregate}, {"b", 1000, 1, allUses}})
	delay(payload)
	var kept []string
	if err := Decode(payload, func(name []byte, use Use, _ int64, _ float64) error {
		kept = append(kept, fmt.Sprintf("%s%d", name, use))
		return nil
	}); err != nil || !slices.Equal(kept, []string{"s1", "b1"}) {
		t.Errorf("of a delayed batch %v remain: %v", kept, err)
	}
}

func FuzzDecode(f *testing.F) {
	var e encoder
	payload, _ := e.encode([]point{{"a.b", 1_700_000_000_000, 1, Store}, {"a.b", 1_700_000_060_000, math.NaN(), allUses}})
	f.Add(slices.Clone(payload))
	long := make([]point, 200)
	for i := range long {
		long[i] = point{fmt.Sprint("name", i%9), int64(i), float64(i), Store}
	}
	payload, _ = e.encode(long)
	f.Add(slices.Clone(payload))
	f.Add([]byte{batchVersion, flagCompressed, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add([]byte{9})
	f.Fuzz(func(t *testing.T, b []byte) {
		var points []point
		if Decode(b, func(name []byte, use Use, milli int64, v float64) error {
			points = append(points, point{string(name), milli, v, use})
			return nil
		}) != nil {
			return
		}
		for rest := points; len(rest) > 0; {
			payload, n := e.encode(rest)
			if err := Decode(payload, func([]byte, Use, int64, float64) error { return nil }); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
	})
}

// fake is the rest of a cluster: it keeps the points that come, in order.
type fake struct {
	mu      sync.Mutex
	members []Info
	fail    func(id string) error
	got     map[string][]point
	changed atomic.Int32
}

func newFake(ids ...string) *fake {
	f := &fake{got: map[string][]point{}, fail: func(string) error { return nil }}
	for _, id := range ids {
		f.members = append(f.members, Info{ID: id, Name: "name of " + id})
	}
	return f
}

func (f *fake) ask(ctx context.Context, id, question string, payload []byte) ([]byte, error) {
	f.mu.Lock()
	fail := f.fail
	f.mu.Unlock()
	if err := fail(id); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return nil, Decode(payload, func(name []byte, use Use, milli int64, v float64) error {
		f.got[id] = append(f.got[id], point{string(name), milli, v, use})
		return nil
	})
}

func (f *fake) list() []Info {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.members)
}

// set changes the failures, and whether a member is away.
func (f *fake) set(id string, away bool, fail func(id string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
	for i := range f.members {
		if f.members[i].ID == id {
			f.members[i].Away = away
		}
	}
}

func (f *fake) count(id string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.got[id])
}

func (f *fake) group(t testing.TB, dir string, change func(*Options)) *Group {
	t.Helper()
	o := Options{
		Self: "a", Dir: dir, Members: f.list, Ask: f.ask, NewSink: func(context.Context) Sink { return nil },
		Changed: func() { f.changed.Add(1) },
	}
	if change != nil {
		change(&o)
	}
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func noFailure(string) error { return nil }

// peerOf returns the Peer of a member.
func peerOf(t testing.TB, g *Group, id string) *Peer {
	t.Helper()
	i := slices.Index(g.Placement().IDs(), id)
	if i < 0 {
		t.Fatalf("%s is no member", id)
	}
	return g.now.Load().peers[i]
}

// inOrder fails the test if a member has not got the points 0 to n-1 in this order, repetitions left out.
func (f *fake) inOrder(t *testing.T, id string, n int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	most := -1
	for _, p := range f.got[id] {
		if v := int(p.value); v > most+1 {
			t.Fatalf("%s got %d after %d", id, v, most)
		} else {
			most = max(most, v)
		}
	}
	if most != n-1 {
		t.Fatalf("%s has %d of %d points", id, most+1, n)
	}
}

func TestPointsArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a", "b", "c")
		g := f.group(t, t.TempDir(), nil)
		g.Start()
		p := peerOf(t, g, "b")
		for i := range 12_345 {
			p.Add("x", Store, int64(i), float64(i))
		}
		if err := g.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.inOrder(t, "b", 12_345)
		if n := p.waiting(); n != 0 {
			t.Errorf("%d wait", n)
		}
		if err := errors.Join(g.Stop(t.Context()), g.Stop(t.Context())); err != nil {
			t.Fatal(err)
		}
	})
}

// TestAwayMember: what a member does not take waits on disk, also over a restart, and comes in order.
func TestAwayMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, dir := newFake("a", "b", "c"), t.TempDir()
		g := f.group(t, dir, nil)
		g.Start()
		p := peerOf(t, g, "b")
		n := 0
		add := func(more int) {
			for range more {
				p.Add("x", Store, int64(n), float64(n))
				n++
			}
		}
		add(100)
		time.Sleep(time.Second)
		f.set("b", false, func(id string) error { // it hangs
			if id == "b" {
				time.Sleep(askTimeout)
				return errors.New("no answer")
			}
			return nil
		})
		add(7000)
		time.Sleep(10 * time.Second)
		if p.spill.Bytes() == 0 || f.count("b") != 100 {
			t.Errorf("%d bytes on disk, %d points arrived", p.spill.Bytes(), f.count("b"))
		}
		f.set("b", true, func(id string) error { return errors.New("no listener") })
		time.Sleep(time.Second)
		if f.changed.Load() == 0 {
			t.Error("no word that a member is away")
		}
		add(20_000)
		if err := g.Settle(t.Context()); err != nil { // on disk is enough
			t.Fatal(err)
		}
		add(10)
		if err := g.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}

		g = f.group(t, dir, nil)
		g.Start()
		p = peerOf(t, g, "b")
		add(500)
		time.Sleep(time.Second)
		f.set("b", false, noFailure)
		time.Sleep(10 * time.Second)
		f.inOrder(t, "b", n)
		add(10)
		time.Sleep(time.Second)
		f.inOrder(t, "b", n)
		if p.spilling || p.spill.Bytes() != 0 {
			t.Errorf("%d bytes are left on disk", p.spill.Bytes())
		}
		if err := g.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestFull: with memory and disk full Wait waits, Add drops, and all that was taken arrives.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a", "b")
		g := f.group(t, t.TempDir(), func(o *Options) { o.SpillBytes = 1 << 20 })
		g.Start()
		f.set("b", true, func(string) error { return errors.New("away") })
		time.Sleep(time.Second)
		p := peerOf(t, g, "b")
		random := uint64(1)
		taken := 0
		for before := p.added; ; before = p.added {
			random = random*6364136223846793005 + 1442695040888963407
			p.Add(fmt.Sprint("name", random), Store, int64(taken), float64(taken))
			if p.mu.Lock(); p.added == before {
				p.mu.Unlock()
				break
			}
			p.mu.Unlock()
			if taken++; taken%flushPoints == 0 {
				synctest.Wait()
			}
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if g.Wait(ctx) == nil {
			t.Error("there is room")
		}
		f.set("b", false, noFailure)
		time.Sleep(20 * time.Second)
		if err := g.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		f.inOrder(t, "b", taken)
		if err := g.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestMembersChange: a member that is removed owns nothing, and a member that is not known any more still does.
func TestMembersChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, dir := newFake("a", "b", "c"), t.TempDir()
		g := f.group(t, dir, nil)
		g.Start()
		f.mu.Lock()
		f.members = append(f.members[:2:2], Info{ID: "d"})
		f.mu.Unlock()
		time.Sleep(time.Second)
		all, self := g.Members()
		if fmt.Sprint(all) != "[{a a false} {b name of b false} {c name of c true} {d d false}]" || self != 0 {
			t.Errorf("members: %v", all)
		}
		for i := range 100 {
			if p := g.Computes(fmt.Sprint("out", i)); p != nil && p.id == "c" {
				t.Fatal("a member that is away computes")
			}
		}
		peerOf(t, g, "c").Add("x", Store, 1, 1)
		if err := g.Forget("c"); err != nil {
			t.Fatal(err)
		}
		if err := g.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		g = f.group(t, dir, nil)
		if !slices.Equal(g.Placement().IDs(), []string{"a", "b", "d"}) || !slices.Equal(g.Removed(), []string{"c"}) {
			t.Errorf("members: %v, removed %v", g.Placement().IDs(), g.Removed())
		}
		f.mu.Lock()
		f.members = append(f.members, Info{ID: "c", Name: "c"})
		f.mu.Unlock()
		g.Start()
		time.Sleep(time.Second)
		if len(g.Placement().IDs()) != 4 || len(g.Removed()) != 0 {
			t.Errorf("members: %v, removed %v", g.Placement().IDs(), g.Removed())
		}
		if err := g.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{}, {Self: "a"}, {Self: "a", Dir: t.TempDir()}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

func BenchmarkPeerAdd(b *testing.B) {
	f := newFake("a", "b")
	g := f.group(b, b.TempDir(), func(o *Options) {
		o.Ask = func(context.Context, string, string, []byte) ([]byte, error) { return nil, nil }
	})
	g.Start()
	defer g.Stop(context.Background())
	p := peerOf(b, g, "b")
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprintf("servers.host%d.cpu.user", i)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		p.Add(names[i%len(names)], Store, int64(i), float64(i))
		i++
	}
}

func BenchmarkEncode(b *testing.B) {
	points := make([]point, flushPoints)
	for i := range points {
		points[i] = point{fmt.Sprintf("servers.host%d.cpu.user", i), 1_700_000_000_000, float64(i%100) / 7, Store}
	}
	var e encoder
	size := 0
	b.ReportAllocs()
	for b.Loop() {
		payload, _ := e.encode(points)
		size = len(payload)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/flushPoints, "ns/point")
	b.ReportMetric(float64(size)/flushPoints, "bytes/point")
}

func BenchmarkDecode(b *testing.B) {
	points := make([]point, flushPoints)
	for i := range points {
		points[i] = point{fmt.Sprintf("servers.host%d.cpu.user", i), 1_700_000_000_000, float64(i%100) / 7, Store}
	}
	var e encoder
	payload, _ := e.encode(points)
	b.ReportAllocs()
	for b.Loop() {
		if err := Decode(payload, func([]byte, Use, int64, float64) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/flushPoints, "ns/point")
}

func BenchmarkOwners(b *testing.B) {
	p := NewPlacement([]string{"a", "b", "c", "d", "e"})
	b.ReportAllocs()
	for b.Loop() {
		var buf [maxOwners]int
		p.Owners("servers.host17.cpu.user", 2, buf[:0])
	}
}
