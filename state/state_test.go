package state

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/longtest"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// bench is a real broker, log and database, on which a test opens states.
type bench struct {
	t     testing.TB
	nats  *broker.Broker
	log   *eventlog.Log
	db    *pebble.DB
	state *looped
	route func(*Applied) // handles this backend's events; open calls it

	mu     sync.Mutex
	routed []string

	appended ack // records of append
	waiting  int // how many of them are not folded yet
}

func newBench(t testing.TB, partitions int) *bench {
	t.Helper()
	dir := t.TempDir()
	b, err := broker.New(broker.Options{Dir: dir + "/broker"})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := eventlog.New(eventlog.Options{Broker: b, Dir: dir, Origin: "here", Partitions: partitions, FlushInterval: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	db, err := pebble.Open(dir+"/state", &pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	bn := &bench{t: t, nats: b, log: l, db: db}
	bn.route = func(a *Applied) {
		bn.mu.Lock()
		defer bn.mu.Unlock()
		bn.routed = append(bn.routed,
			fmt.Sprintf("%s/%s %d incident=%v resolution=%v", a.Entity, a.Check, a.Status, a.Incident, a.Resolution))
	}
	t.Cleanup(func() {
		_ = bn.state.Stop()
		_ = db.Close()
		_ = l.Stop()
		_ = b.Stop()
	})
	bn.open(nil)
	return bn
}

func (b *bench) open(change func(*Options)) {
	b.t.Helper()
	opts := Options{
		Log: b.log, DB: b.db, HistoryAge: DefaultOptions().HistoryAge,
		Entity: func(string, string) (*resource.EntityConfig, bool) { return nil, false },
	}
	if change != nil {
		change(&opts)
	}
	s, err := New(opts)
	if err != nil {
		b.t.Fatal(err)
	}
	b.state = &looped{State: s}
	b.state.start(b.t, b.route)
}

// looped is a state with loops that fold the log into it, like those of package fold.
type looped struct {
	*State
	end  context.CancelFunc
	done sync.WaitGroup
}

func (l *looped) start(t testing.TB, route func(*Applied)) {
	t.Helper()
	begin := time.Now()
	if err := l.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.end = cancel
	for i := range l.parts {
		f := l.Folder(i)
		r, err := l.opts.Log.Reader(t.Context(), i, f.From())
		if err != nil {
			t.Fatal(err)
		}
		l.done.Go(func() { l.fold(ctx, f, r, route) })
	}
	for i := range l.parts {
		_, last, err := l.opts.Log.Bounds(t.Context(), i)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.WaitFolded(t.Context(), i, last); err != nil {
			t.Fatal(err)
		}
	}
	l.GoLive(begin)
}

func (l *looped) fold(ctx context.Context, f *Folder, r *eventlog.Reader, route func(*Applied)) {
	tails := l.Tails()
	defer r.Stop()
	for {
		seq, msg, err := r.Next(ctx)
		if err != nil {
			return
		}
		if !f.Open(seq, msg) {
			continue
		}
		for a := f.Next(); a != nil; a = f.Next() {
			if a.Kind == eventlog.KindEvent && !a.Deleted {
				route(a)
			}
			tails.Follow(a)
		}
		if f.Refused() != nil {
			return
		}
		f.Close()
	}
}

func (l *looped) stopLoops() {
	l.end()
	l.done.Wait()
}

// Stop ends the loops, then the state.
func (l *looped) Stop() error {
	l.stopLoops()
	return l.State.Stop()
}

// crash drops the state without writing anything back, as kill -9 would.
func (b *bench) crash() {
	b.state.stopLoops()
	b.state.State.cancel()
	b.state.State.done.Wait()
	b.state.State.cancel = nil
}

type ack chan [2]uint64

func (a ack) Logged(_ uint64, partition int, seq uint64, err error) {
	if err != nil {
		panic(err)
	}
	a <- [2]uint64{uint64(partition), seq}
}

// put appends a record and waits for its fold.
func (b *bench) put(r eventlog.Record) {
	b.t.Helper()
	b.complete(&r)
	a := make(ack, 1)
	if err := b.log.Append(&r, a, 0); err != nil {
		b.t.Fatal(err)
	}
	at := <-a
	if err := b.state.WaitFolded(b.t.Context(), int(at[0]), at[1]); err != nil {
		b.t.Fatal(err)
	}
}

// complete sets the required fields of a record.
func (b *bench) complete(r *eventlog.Record) {
	if r.Namespace == "" {
		r.Namespace = "default"
	}
	if r.Kind == 0 {
		r.Kind = eventlog.KindEvent
	}
	if r.Kind == eventlog.KindEvent && r.Body == nil {
		ev := resource.Event{Timestamp: r.Executed, Check: &resource.Check{
			Metadata: resource.ObjectMeta{Name: r.Check, Namespace: r.Namespace},
			Status:   r.Status, Executed: r.Executed, Output: fmt.Sprintf("out %d", r.Executed),
		}}
		r.Body = ev.AppendProto(nil)
	}
}

func (b *bench) get(entity, check string) *resource.Check {
	b.t.Helper()
	ev, err := b.state.Event("default", entity, check)
	if err != nil {
		b.t.Fatalf("event %s/%s: %v", entity, check, err)
	}
	return ev.Check
}

func TestFold(t *testing.T) {
	// Statuses in order; after each, the expected check.
	for _, tc := range []struct {
		name      string
		statuses  []uint32
		occ, mark []int64
		lastOK    []int64 // executed is 100, 101, …
		state     string
	}{
		{"first ok", []uint32{0}, []int64{1}, []int64{1}, []int64{100}, "passing"},
		{"first critical", []uint32{2}, []int64{1}, []int64{1}, []int64{0}, "failing"},
		{"ok repeats", []uint32{0, 0, 0}, []int64{1, 2, 3}, []int64{1, 2, 3}, []int64{100, 101, 102}, "passing"},
		{"watermark survives the resolution", []uint32{2, 2, 2, 0}, []int64{1, 2, 3, 1}, []int64{1, 2, 3, 3}, []int64{0, 0, 0, 103}, "passing"},
		{
			"a new incident starts the watermark again", []uint32{2, 2, 0, 1}, []int64{1, 2, 1, 1},
			[]int64{1, 2, 2, 1}, []int64{0, 0, 102, 102}, "failing",
		},
		{
			"severity changes keep the watermark", []uint32{0, 2, 2, 1, 1, 1}, []int64{1, 1, 2, 1, 2, 3},
			[]int64{1, 1, 2, 2, 2, 3}, []int64{100, 100, 100, 100, 100, 100}, "failing",
		},
		{
			"statuses out of the common range", []uint32{0, 4294967295, 4294967295, 0}, []int64{1, 1, 2, 1},
			[]int64{1, 1, 2, 2}, []int64{100, 100, 100, 103}, "passing",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, 1)
			for i, st := range tc.statuses {
				b.put(eventlog.Record{Entity: "e", Check: "c", Status: st, Executed: int64(100 + i)})
				c := b.get("e", "c")
				if c.Occurrences != tc.occ[i] || c.OccurrencesWatermark != tc.mark[i] || c.LastOK != tc.lastOK[i] || len(c.History) != i+1 {
					t.Fatalf("after %v: occurrences %d, watermark %d, last_ok %d, %d in history; want %d, %d, %d, %d",
						tc.statuses[:i+1], c.Occurrences, c.OccurrencesWatermark, c.LastOK, len(c.History), tc.occ[i], tc.mark[i], tc.lastOK[i], i+1)
				}
			}
			if c := b.get("e", "c"); c.State != tc.state {
				t.Fatalf("state %s, want %s", c.State, tc.state)
			}
		})
	}
}

func TestFlapping(t *testing.T) {
	b := newBench(t, 1)
	put := func(i int, status uint32) *resource.Check {
		b.put(eventlog.Record{Entity: "e", Check: "c", Status: status, Executed: int64(i), LowFlap: 20, HighFlap: 60})
		return b.get("e", "c")
	}
	i := 0
	for ; i < 20; i++ {
		if c := put(i, uint32(i%2)); c.TotalStateChange != 0 || c.State == "flapping" {
			t.Fatalf("with %d results: change %d, state %s", i+1, c.TotalStateChange, c.State)
		}
	}
	c := put(i, 0)
	// The weights add up to 19.8, whose float32 is a little less. So it is 98, as in Sensu 6.12.
	if c.TotalStateChange != 98 || c.State != "flapping" || len(c.History) != 21 {
		t.Fatalf("20 changes: change %d, state %s, %d in history; want 98, flapping, 21", c.TotalStateChange, c.State, len(c.History))
	}
	if c.LastOK != 18 {
		t.Fatalf("last_ok %d: it must stand still while flapping", c.LastOK)
	}
	last := c.TotalStateChange
	for c.State == "flapping" {
		i++
		c = put(i, 0)
		if c.TotalStateChange > last || i > 60 {
			t.Fatalf("change went from %d to %d with steady results", last, c.TotalStateChange)
		}
		last = c.TotalStateChange
	}
	if c.TotalStateChange >= 60 || c.State != "passing" || c.LastOK != int64(i) {
		t.Fatalf("left flapping at change %d with state %s, last_ok %d", c.TotalStateChange, c.State, c.LastOK)
	}
}

func TestFirstEventMayBringItsHistory(t *testing.T) {
	b := newBench(t, 1)
	ev := resource.Event{Check: &resource.Check{Metadata: resource.ObjectMeta{Name: "c"}, Status: 2, Executed: 9,
		History: []resource.CheckHistory{{Status: 0, Executed: 7}, {Status: 2, Executed: 8}}, Occurrences: 1, OccurrencesWatermark: 1, LastOK: 7}}
	b.put(eventlog.Record{Entity: "e", Check: "c", Status: 2, Executed: 9, Flags: eventlog.FlagHistory, Body: ev.AppendProto(nil)})
	c := b.get("e", "c")
	if len(c.History) != 3 || c.Occurrences != 2 || c.OccurrencesWatermark != 2 || c.LastOK != 7 {
		t.Fatalf("%+v", c)
	}
	b.put(eventlog.Record{Entity: "e", Check: "c", Status: 2, Executed: 10, Flags: eventlog.FlagHistory, Body: ev.AppendProto(nil)})
	if c := b.get("e", "c"); len(c.History) != 4 || c.Occurrences != 3 {
		t.Fatalf("a later history counted: %+v", c)
	}
}

func TestAgentsRepeatsCountOnce(t *testing.T) {
	b := newBench(t, 1)
	put := func(epoch, seq uint64, check string) {
		b.put(eventlog.Record{Entity: "e", Check: check, Flags: eventlog.FlagFromAgent, Epoch: epoch, Sequence: seq, Executed: int64(seq)})
	}
	put(7, 1, "a")
	put(7, 2, "b")
	put(7, 3, "a")
	put(7, 1, "a") // sent again after a lost connection
	put(7, 2, "b")
	put(7, 3, "a")
	put(7, 4, "a")
	put(8, 1, "a") // the agent was restarted
	if n := len(b.get("e", "a").History); n != 4 {
		t.Errorf("a has %d results, want 4", n)
	}
	if n := len(b.get("e", "b").History); n != 1 {
		t.Errorf("b has %d results, want 1", n)
	}
	if got := len(b.routed); got != 5 {
		t.Errorf("%d events were routed, want 5: %v", got, b.routed)
	}
}

func TestOvertakenDeadlineDoesNotCount(t *testing.T) {
	b := newBench(t, 1)
	var armed []int64
	_ = b.state.Stop()
	b.open(func(o *Options) { o.Arm = func(_ uint64, due int64) { armed = append(armed, due) } })
	b.put(eventlog.Record{Entity: "e", Check: "c", Executed: 1, Received: 1000, Due: 6000})
	b.put(eventlog.Record{Entity: "e", Check: "c", Executed: 2, Received: 2000, Due: 7000})
	if !slices.Equal(armed, []int64{6000}) {
		t.Fatalf("armed %v, want only the first: the second is later", armed)
	}
	o, ok := b.state.Overdue(0)
	if !ok || o.Entity != "e" || o.Check != "c" || o.Due != 7000 {
		t.Fatalf("overdue %+v %v", o, ok)
	}
	b.put(eventlog.Record{Entity: "e", Check: "c", Executed: 3, Received: 6999, Due: 12000})
	b.put(eventlog.Record{Entity: "e", Check: "c", Status: 1, Executed: 7, Flags: eventlog.FlagDeadline, Basis: o.Position})
	if c := b.get("e", "c"); c.Status != 0 || len(c.History) != 3 {
		t.Fatalf("an overtaken deadline counted: %+v", c)
	}
	o, _ = b.state.Overdue(0)
	for range 2 { // two owners during a hand-over
		b.put(eventlog.Record{
			Entity: "e", Check: "c", Status: 1, Executed: 12, Received: 12000, Due: 17000,
			Flags: eventlog.FlagDeadline, Basis: o.Position,
		})
	}
	if c := b.get("e", "c"); c.Status != 1 || len(c.History) != 4 {
		t.Fatalf("the deadline counted %d times", len(c.History)-3)
	}
	b.put(eventlog.Record{Entity: "gone", Check: "c", Flags: eventlog.FlagDeadline, Basis: 1})
	if _, err := b.state.Event("default", "gone", "c"); !errors.Is(err, ErrNotFound) {
		t.Fatalf("a deadline made a check: %v", err)
	}
}

func TestWhatIsKeptOfAnEvent(t *testing.T) {
	b := newBench(t, 1)
	ev := resource.Event{
		Check:   &resource.Check{Metadata: resource.ObjectMeta{Name: "c"}, Output: "0123456789", MaxOutputSize: 4, Executed: 1},
		Metrics: &resource.Metrics{Points: []resource.MetricPoint{{Name: "m", Value: 1}}},
	}
	seen := make(chan *resource.Event, 1)
	_ = b.state.Stop()
	b.route = func(a *Applied) {
		ev, err := a.Event()
		if err != nil {
			t.Error(err)
		}
		seen <- ev
	}
	b.open(nil)
	b.put(eventlog.Record{Entity: "e", Check: "c", Executed: 1, MaxOutput: 4, Flags: eventlog.FlagMetrics, Body: ev.AppendProto(nil)})
	whole := <-seen
	if whole.Metrics == nil || whole.Check.Output != "0123456789" || whole.Entity.Metadata.Name != "e" || len(whole.Check.History) != 1 {
		t.Errorf("the pipeline got %+v", whole)
	}
	kept, err := b.state.Event("default", "e", "c")
	if err != nil {
		t.Fatal(err)
	}
	if kept.Metrics != nil || kept.Check.Output != "0123" || kept.Metadata.Labels["sensu.io/output_truncated_bytes"] != "6" {
		t.Errorf("kept %+v %+v", kept, kept.Check)
	}
}

func TestEntityThatIsNotRegistered(t *testing.T) {
	b := newBench(t, 1)
	ev := resource.Event{
		Check: &resource.Check{Metadata: resource.ObjectMeta{Name: "c"}, Executed: 1},
		Entity: &resource.Entity{
			EntityClass: "agent",
			Metadata:    resource.ObjectMeta{Name: "other", Labels: map[string]string{"x": "1"}},
			System:      resource.System{OS: "plan9"},
		},
	}
	b.put(eventlog.Record{Entity: "e", Check: "c", Executed: 1, Body: ev.AppendProto(nil)})
	get := func() *resource.Entity {
		t.Helper()
		ev, err := b.state.Event("default", "e", "c")
		if err != nil {
			t.Fatal(err)
		}
		return ev.Entity
	}
	if e := get(); e.Metadata.Name != "e" || e.Metadata.Namespace != "default" || e.Metadata.Labels["x"] != "1" || e.System.OS != "plan9" {
		t.Errorf("an event of an entity that is not registered has %+v, want what it carried, by the name it is kept under", e)
	}
	_ = b.state.Stop()
	b.open(func(o *Options) {
		o.Entity = func(namespace, name string) (*resource.EntityConfig, bool) {
			return &resource.EntityConfig{Metadata: resource.ObjectMeta{Namespace: namespace, Name: name}, EntityClass: "proxy"}, true
		}
	})
	if e := get(); e.EntityClass != "proxy" || e.Metadata.Labels["x"] != "" {
		t.Errorf("an event of a registered entity has %+v, want the registered one", e)
	}
}

func TestListPages(t *testing.T) {
	b := newBench(t, 3)
	for _, k := range []string{"b/y", "a/x", "a/y", "c/x", "a-a/x"} {
		entity, check, _ := strings.Cut(k, "/")
		b.put(eventlog.Record{Entity: entity, Check: check, Executed: 1})
	}
	b.put(eventlog.Record{Namespace: "other", Entity: "a", Check: "x", Executed: 1})
	b.put(eventlog.Record{Namespace: "def", Entity: "z", Check: "x", Executed: 1})
	list := func(ns, entity string, limit int) (got []string) {
		for after := ""; ; {
			evs, next, err := b.state.Events(ns, entity, after, limit)
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range evs {
				got = append(got, ev.Entity.Metadata.Namespace+":"+ev.Entity.Metadata.Name+"/"+ev.Check.Metadata.Name)
			}
			if after = next; next == "" {
				return got
			}
			if len(evs) != limit {
				t.Fatalf("a page of %d with limit %d and more to come", len(evs), limit)
			}
		}
	}
	all := []string{"def:z/x", "default:a/x", "default:a/y", "default:a-a/x", "default:b/y", "default:c/x", "other:a/x"}
	for limit := range 8 {
		if got := list("", "", limit); !slices.Equal(got, all) {
			t.Errorf("limit %d: %v, want %v", limit, got, all)
		}
	}
	if got := list("default", "", 2); !slices.Equal(got, all[1:6]) {
		t.Errorf("namespace default: %v", got)
	}
	if got := list("default", "a", 1); !slices.Equal(got, all[1:3]) {
		t.Errorf("entity a: %v", got)
	}
	if got := list("none", "", 0); got != nil {
		t.Errorf("unknown namespace: %v", got)
	}
}

func TestTail(t *testing.T) {
	b := newBench(t, 1)
	tail, slow := b.state.Tail(10), b.state.Tail(1)
	b.put(eventlog.Record{Entity: "e", Check: "c", Executed: 1})
	b.put(eventlog.Record{Kind: eventlog.KindDeleteEvent, Entity: "e", Check: "c"})
	if u := <-tail.C; u.Deleted || u.Entity != "e" || u.Check != "c" {
		t.Errorf("first update %+v", u)
	}
	if u := <-tail.C; !u.Deleted {
		t.Errorf("second update %+v", u)
	}
	tail.Close()
	if _, open := <-tail.C; open || tail.Overflowed() {
		t.Error("a closed tail goes on, or says that it overflowed")
	}
	<-slow.C
	if _, open := <-slow.C; open || !slow.Overflowed() {
		t.Error("a tail that was too slow was not ended and told so")
	}
}

// TestCrashesLoseAndRepeatNothing plays random events, deletions, write-backs, stops and crashes, and compares with a
// model after each restart.
func TestCrashesLoseAndRepeatNothing(t *testing.T) {
	for seed := range uint64(longtest.Size(8, 4)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 1))
			b := newBench(t, 2)
			model := map[string][]int64{} // entity/check -> executed of all results
			hosts := map[string]string{}
			for n := int64(1); n <= 400; n++ {
				entity, check := fmt.Sprint("e", rng.IntN(4)), fmt.Sprint("c", rng.IntN(3))
				switch k := rng.IntN(100); {
				case k < 75:
					status := uint32(rng.IntN(2))
					if rng.IntN(20) == 0 {
						status = 70000 // a history that is not compact
					}
					b.put(eventlog.Record{Entity: entity, Check: check, Status: status, Executed: n})
					model[entity+"/"+check] = append(model[entity+"/"+check], n)
				case k < 78:
					b.put(eventlog.Record{Kind: eventlog.KindDeleteEvent, Entity: entity, Check: check})
					delete(model, entity+"/"+check)
				case k < 80:
					b.put(eventlog.Record{Kind: eventlog.KindDeleteEntity, Entity: entity})
					for key := range model {
						if strings.HasPrefix(key, entity+"/") {
							delete(model, key)
						}
					}
					delete(hosts, entity)
				case k < 84:
					st := resource.EntityState{
						Metadata: resource.ObjectMeta{Name: entity, Namespace: "default"},
						System:   resource.System{Hostname: fmt.Sprint(n)},
					}
					b.put(eventlog.Record{Kind: eventlog.KindEntity, Entity: entity, Body: st.AppendProto(nil)})
					hosts[entity] = fmt.Sprint(n)
				case k < 94: // a partial write-back
					p := b.state.parts[rng.IntN(2)]
					if _, err := p.writeSome(nowMilli() - int64(rng.IntN(3))); err != nil {
						t.Fatal(err)
					}
				case k < 98:
					b.crash()
					b.open(nil)
				default:
					if err := b.state.Stop(); err != nil {
						t.Fatal(err)
					}
					b.open(nil)
				}
			}
			b.crash()
			b.open(nil)
			evs, _, err := b.state.Events("default", "", "", 0)
			if err != nil {
				t.Fatal(err)
			}
			if len(evs) != len(model) {
				t.Errorf("%d events, want %d", len(evs), len(model))
			}
			for _, ev := range evs {
				key := ev.Entity.Metadata.Name + "/" + ev.Check.Metadata.Name
				want := model[key]
				if len(want) > historyLen {
					want = want[len(want)-historyLen:]
				}
				var got []int64
				for _, h := range ev.Check.History {
					got = append(got, h.Executed)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: history %v, want %v", key, got, want)
				}
				if ev.Check.Executed != want[len(want)-1] || ev.Check.Output != fmt.Sprint("out ", ev.Check.Executed) {
					t.Errorf("%s: body of %d, want %d", key, ev.Check.Executed, want[len(want)-1])
				}
			}
			for i := range 4 {
				entity := fmt.Sprint("e", i)
				st, ok := b.state.EntityState("default", entity)
				if ok != (hosts[entity] != "") || ok && st.System.Hostname != hosts[entity] {
					t.Errorf("%s: host %v %v, want %q", entity, st, ok, hosts[entity])
				}
			}
		})
	}
}

func TestUnreadableStateIsLeftOut(t *testing.T) {
	b := newBench(t, 1)
	b.put(eventlog.Record{Entity: "good", Check: "c", Executed: 1})
	b.put(eventlog.Record{Entity: "bad", Check: "c", Executed: 1})
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := b.db.Set(storeKey('s', 0, "default", "bad", "c"), []byte{9, 9}, pebble.Sync); err != nil {
		t.Fatal(err)
	}
	b.open(nil)
	b.get("good", "c")
	if _, err := b.state.Event("default", "bad", "c"); !errors.Is(err, ErrNotFound) {
		t.Fatalf("unreadable state: %v", err)
	}
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := b.db.Set(positionKey(0), []byte("x"), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	s, _ := New(b.state.opts)
	if err := s.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "position of partition 0") {
		t.Fatalf("start over an unreadable position: %v", err)
	}
	if err := b.db.Delete(positionKey(0), pebble.Sync); err != nil {
		t.Fatal(err)
	}
}
