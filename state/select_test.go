package state

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

// fleet has definitions of entities for tests.
type fleet map[string]*resource.EntityConfig

func (f fleet) get(namespace, name string) (*resource.EntityConfig, bool) {
	c, ok := f[namespace+"/"+name]
	return c, ok
}

// newFleet fills a state with random events about random entities.
func newFleet(t *testing.T, b *bench, random *rand.Rand) fleet {
	f := fleet{}
	pick := func(s ...string) string { return s[random.IntN(len(s))] }
	for i := range 40 {
		ns, name := pick("a", "a-b", "b"), fmt.Sprintf("e%02d", i)
		if i%5 != 0 { // some are not registered
			f[ns+"/"+name] = &resource.EntityConfig{
				Metadata: resource.ObjectMeta{
					Name: name, Namespace: ns,
					Labels: map[string]string{"region": pick("eu", "us"), "tier": pick("1", "2"), "secret": "s"},
				},
				EntityClass: pick("agent", "proxy"), Subscriptions: []string{pick("linux", "windows"), "entity:" + name},
			}
		}
		if i%3 != 0 {
			st := resource.EntityState{
				Metadata: resource.ObjectMeta{Name: name, Namespace: ns},
				System:   resource.System{OS: pick("linux", "windows")}, LastSeen: int64(random.IntN(2000)),
			}
			b.put(eventlog.Record{Kind: eventlog.KindEntity, Namespace: ns, Entity: name, Body: st.AppendProto(nil)})
		}
		for range 1 + random.IntN(3) {
			for _, check := range []string{"cpu", "disk", "http", KeepaliveCheck} {
				if random.IntN(3) == 0 {
					b.put(randomEvent(random, ns, name, check))
				}
			}
		}
	}
	return f
}

func randomEvent(random *rand.Rand, ns, entity, check string) eventlog.Record {
	pick := func(s ...string) string { return s[random.IntN(len(s))] }
	ev := resource.Event{
		Timestamp: int64(random.IntN(3)) * (1000 + int64(random.IntN(1000))),
		Check: &resource.Check{
			Metadata: resource.ObjectMeta{Name: check, Namespace: ns},
			Status:   uint32(random.IntN(4)) * uint32(1+random.IntN(2)*200), Executed: int64(random.IntN(2000)),
			Subscriptions: []string{pick("linux", "windows")},
			Handlers:      []string{pick("slack", "mail")}[:random.IntN(2)], Publish: random.IntN(2) == 0,
			Output: pick("fine", "disk is full", "timeout"), Occurrences: 1,
		},
	}
	if random.IntN(3) == 0 {
		ev.Check.Metadata.Labels = map[string]string{"team": pick("ops", "net"), "region": "check"}
	}
	if random.IntN(4) == 0 {
		ev.Metadata.Labels = map[string]string{"region": "event", "x": pick("1", "2")}
	}
	rec := eventlog.Record{Namespace: ns, Entity: entity, Check: check, Status: ev.Check.Status, Executed: ev.Check.Executed}
	if random.IntN(4) == 0 {
		ev.Check.Silenced, ev.Check.IsSilenced = []string{"x"}, true
		rec.Flags |= eventlog.FlagSilenced
	}
	rec.Body = ev.AppendProto(nil)
	return rec
}

// questions have terms of every kind: answered by the pair, by its entity, by its check, by reading the event, and not
// at all.
var questions = [][2]string{ // label and field selector
	{"", ""},
	{"", `event.check.status == 2`},
	{"", `event.check.status > 0 && event.check.status <= 200`},
	{"", `event.check.state == failing`},
	{"", `event.check.name in [disk, keepalive]`},
	{"", `event.check.name =~ "^(c|d)" && event.entity.name !~ "5$"`},
	{"", `event.name matches "/http"`},
	{"", `event.namespace == a-b`},
	{"", `event.check.namespace == b`},
	{"", `event.is_silenced == true`},
	{"", `event.check.is_silenced != true && event.is_incident == true`},
	{"", `event.timestamp > 1500`},
	{"", `event.timestamp == 0`},
	{"", `event.check.last_ok < 1000`},
	{"", `event.check.executed >= 1000`},
	{"", `event.check.occurrences > 1`},
	{"", `event.check.occurrences_watermark > 1 || event.check.total_state_change > 0`},
	{"", `linux in event.check.subscriptions`},
	{"", `linux in event.entity.subscriptions && event.entity.entity_class == agent`},
	{"", `slack in event.check.handlers || event.check.publish == false`},
	{"", `event.check.output matches full`},
	{"", `event.check.output == fine && event.check.status != 0`},
	{"", `event.check.status == 0 || event.check.output =~ "^time"`},
	{"", `event.entity.system.os == windows`},
	{"", `event.entity.last_seen > 1000`},
	{"", `event.labels.region == event`},
	{"", `event.check.labels.team == ops`},
	{"", `event.entity.labels.secret == s`},
	{"", `event.entity.labels.secret == REDACTED`},
	{"", `event.nothing == x`},
	{"", `event.nothing != x && event.check.status == 1`},
	{"", `nothing in event`},
	{`region == eu`, ""},
	{`region != eu && tier == 2`, ""},
	{`!(region in [eu, us]) || team == net`, ""},
	{`x notin ["1"]`, `event.check.status == 2`},
	{`tier > 1`, `event.check.status < 2 && event.check.output == timeout`},
	{`nope == x`, ""},
}

func TestSelect(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	b := newBench(t, 3)
	var f fleet
	b.state.opts.Entity = func(namespace, name string) (*resource.EntityConfig, bool) { return f.get(namespace, name) }
	f = newFleet(t, b, random)
	check := func(t *testing.T) {
		for _, question := range questions {
			sel, err := selector.Parse(question[0], question[1])
			if err != nil {
				t.Fatal(err)
			}
			for _, ordered := range []int{0, 20, scanOrdered} { // never in order, a few, and all in order
				b.state.scanOrdered = ordered
				for _, q := range []Query{
					{}, {Namespace: "a"}, {Namespace: "a-b"}, {Entity: "e07"}, {Namespace: "b", Entity: "e12"},
					{Namespace: "nope"},
				} {
					q.Selector = sel
					want := sought(t, b.state.State, q)
					for _, limit := range []int{0, 1, 2, 7, len(want), 1000} {
						q.Limit = limit
						if got := b.paged(q); !slices.Equal(got, want) {
							t.Fatalf("%q of %s/%s with limit %d, ordered %d:\n got %s\nwant %s", question, q.Namespace, q.Entity, limit, ordered, got, want)
						}
					}
				}
			}
		}
	}
	t.Run("fresh", check)
	b.crash()
	b.open(func(o *Options) { o.Entity = f.get })
	t.Run("replayed", check)
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	b.open(func(o *Options) { o.Entity = f.get })
	t.Run("loaded", check)
	for range 100 {
		b.put(randomEvent(random, "a", fmt.Sprintf("e%02d", random.IntN(10)), "new"))
	}
	b.put(eventlog.Record{Kind: eventlog.KindDeleteEntity, Namespace: "a", Entity: "e07"})
	t.Run("changed", check)
}

// sought returns what a query must find, by reading all events.
func sought(t *testing.T, s *State, q Query) (names []string) {
	t.Helper()
	page, err := s.Select(t.Context(), Query{})
	if err != nil {
		t.Fatal(err)
	}
	for ev, err := range page.Events() {
		if err != nil {
			t.Fatal(err)
		}
		m := ev.Entity.Metadata
		if (q.Namespace == "" || m.Namespace == q.Namespace) && (q.Entity == "" || m.Name == q.Entity) && q.Selector.Match(selector.Event(ev)) {
			names = append(names, m.Namespace+"/"+m.Name+"/"+ev.Check.Metadata.Name)
		}
	}
	return names
}

// paged returns what a query finds, over all pages.
func (b *bench) paged(q Query) (names []string) {
	b.t.Helper()
	for {
		page, err := b.state.Select(b.t.Context(), q)
		if err != nil {
			b.t.Fatal(err)
		}
		if q.Limit > 0 && page.Len() > q.Limit || page.Next != "" && page.Len() != q.Limit {
			b.t.Fatalf("a page of %d has %d events, next %q", q.Limit, page.Len(), page.Next)
		}
		for k := range page.Keys() {
			names = append(names, k.Namespace+"/"+k.Entity+"/"+k.Check)
		}
		if page.Next == "" {
			return names
		}
		q.After = page.Next
	}
}

func TestSelectSeesChangesOfEntities(t *testing.T) {
	b := newBench(t, 2)
	f := fleet{}
	var changed func(namespace, name string)
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	stopped := false
	b.open(func(o *Options) {
		o.Entity = f.get
		o.EntityChanges = func(c func(namespace, name string)) func() {
			changed = c
			return func() { stopped = true }
		}
	})
	put := func(name, region string) {
		f["default/"+name] = &resource.EntityConfig{
			Metadata: resource.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"region": region}},
		}
		changed("default", name)
	}
	sel, _ := selector.Parse("region == eu", "")
	want := func(want ...string) {
		t.Helper()
		if got := b.paged(Query{Selector: sel}); !slices.Equal(got, want) {
			t.Errorf("found %s, want %s", got, want)
		}
	}
	put("early", "eu") // it is not registered yet
	for _, name := range []string{"a", "b", "early"} {
		b.put(eventlog.Record{Entity: name, Check: "c", Executed: 1})
	}
	want("default/early/c")
	put("a", "eu")
	want("default/a/c", "default/early/c")
	put("a", "us")
	put("b", "eu")
	want("default/b/c", "default/early/c")
	b.put(eventlog.Record{Kind: eventlog.KindDeleteEntity, Entity: "b"})
	b.put(eventlog.Record{Entity: "b", Check: "c", Executed: 2})
	want("default/b/c", "default/early/c")
	if err := b.state.Stop(); err != nil || !stopped {
		t.Errorf("stopped %v, %v", stopped, err)
	}
}

// TestSelectLearns searches after a restart, when the traits of checks are no longer in memory.
func TestSelectLearns(t *testing.T) {
	b := newBench(t, 1)
	for i := range 2 * learnBatch {
		b.fold(eventlog.Record{Namespace: "default", Entity: fmt.Sprintf("e%04d", i), Check: "c", Received: nowMilli(), Body: (&resource.Event{
			Timestamp: 5, Check: &resource.Check{Metadata: resource.ObjectMeta{Name: "c"}, Subscriptions: []string{"linux"}},
		}).AppendProto(nil)})
	}
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := StorePosition(b.db, 0, 1); err != nil { // the log has none of the records
		t.Fatal(err)
	}
	b.open(nil)
	<-b.state.learned
	p := b.state.parts[0]
	sel, _ := selector.Parse("", "linux in event.check.subscriptions && event.timestamp == 5")
	search := func(read int) {
		t.Helper()
		sc := newScan(p, Query{Selector: sel}, 0)
		keys, err := sc.run(t.Context())
		if err != nil || len(keys) != 2*learnBatch || sc.read != read {
			t.Fatalf("%d found, %d read, want %d; %v", len(keys), sc.read, read, err)
		}
	}
	search(0)
	p.mu.Lock()
	for slot := range uint32(10) { // as if these had not been read yet
		p.traits.drop(p.at(slot).traits)
		p.at(slot).traits = 0
	}
	p.mu.Unlock()
	search(10)
	search(0)
}

// fold folds a record that is not from the log.
func (b *bench) fold(r eventlog.Record) {
	b.t.Helper()
	r.Kind = eventlog.KindEvent
	p := b.state.parts[b.log.Partition(r.Namespace, r.Entity)]
	p.fold.Lock()
	defer p.fold.Unlock()
	p.folded++
	if _, ok := p.applyEvent(position(p.folded, 1), &r, 0, false); !ok {
		b.t.Fatal("an event was not folded")
	}
}

func TestTraitsAreKeptOnce(t *testing.T) {
	b := newBench(t, 1)
	p := b.state.parts[0]
	put := func(entity string, labels map[string]string, subscriptions ...string) {
		b.put(eventlog.Record{Entity: entity, Check: "c", Executed: 1, Body: (&resource.Event{
			Check: &resource.Check{Metadata: resource.ObjectMeta{Name: "c", Labels: labels}, Subscriptions: subscriptions},
		}).AppendProto(nil)})
	}
	inUse := func() int { return len(p.traits.bySum) }
	many := map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"}
	for range 20 { // maps are encoded in any order
		put("e1", many, "linux")
		put("e2", many, "linux")
	}
	if inUse() != 1 {
		t.Fatalf("%d traits in use, want 1", inUse())
	}
	put("e1", many, "windows")
	put("e2", map[string]string{"a": "1"}, "linux")
	put("e3", nil, "linux", "windows")
	put("e4", nil, "windows", "linux")
	if inUse() != 4 {
		t.Fatalf("%d traits in use, want 4", inUse())
	}
	for i := range 100 { // different traits each time
		put("e4", map[string]string{"n": fmt.Sprint(i)})
	}
	if inUse() != 4 || len(p.traits.entries) > 5 {
		t.Fatalf("%d traits in use and %d in memory, want 4", inUse(), len(p.traits.entries))
	}
	for i := 1; i <= 4; i++ {
		b.put(eventlog.Record{Kind: eventlog.KindDeleteEntity, Entity: fmt.Sprint("e", i)})
	}
	if inUse() != 0 {
		t.Fatalf("%d traits in use after all was deleted", inUse())
	}
}

// TestAnswersDoNotOutliveTraits changes a check while a search remembers answers, until the number of its traits is
// reused.
func TestAnswersDoNotOutliveTraits(t *testing.T) {
	b := newBench(t, 1)
	p := b.state.parts[0]
	sel, _ := selector.Parse("", "linux in event.check.subscriptions")
	q := newQuestion(p, sel, 0)
	for i, tc := range []struct {
		subscription string
		want         selector.Verdict
	}{{"linux", selector.Yes}, {"windows", selector.No}, {"mac", selector.No}, {"linux", selector.Yes}, {"bsd", selector.No}} {
		b.put(eventlog.Record{Entity: "e", Check: "c", Executed: int64(i), Body: (&resource.Event{
			Check: &resource.Check{Metadata: resource.ObjectMeta{Name: "c"}, Subscriptions: []string{tc.subscription}},
		}).AppendProto(nil)})
		p.mu.Lock()
		got := q.decide(0, p.at(0))
		p.mu.Unlock()
		if got != tc.want {
			t.Errorf("%s: %v, want %v", tc.subscription, got, tc.want)
		}
	}
}

func TestSelectIsStoppedByItsContext(t *testing.T) {
	b := newBench(t, 2)
	b.put(eventlog.Record{Entity: "e", Check: "c", Status: 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.state.Select(ctx, Query{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestDamagedTokens(t *testing.T) {
	b := newBench(t, 1)
	b.put(eventlog.Record{Entity: "e", Check: "c", Status: 1})
	for _, token := range []string{"x", "\x00", "\x00\x00", strings.Repeat("\x00", 9), "default\x00e"} {
		if got := b.paged(Query{After: token}); len(got) != 1 {
			t.Errorf("after %q: %v", token, got)
		}
	}
	if got := b.paged(Query{After: "default\x00e\x00c"}); len(got) != 0 {
		t.Errorf("after the last: %v", got)
	}
}
