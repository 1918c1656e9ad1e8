package view

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
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/fold"
	"github.com/lapwing-monitoring/lapwing/internal/testbroker"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
)

// bed is a log with a state and views of it.
type bed struct {
	t     testing.TB
	log   *eventlog.Log
	state *state.State
	views *Views

	mu       sync.Mutex // guards the fields below
	entities map[string]*resource.EntityConfig
	changed  func(namespace, name string)
	silenced map[string]bool // by check
}

func newBed(t testing.TB, opts Options) *bed {
	t.Helper()
	b := &bed{t: t, entities: map[string]*resource.EntityConfig{}, silenced: map[string]bool{}}
	_, nats := testconfig.WithBroker(t)
	var err error
	b.log, err = eventlog.New(eventlog.Options{
		Broker: nats, Dir: t.TempDir(), Origin: "here", Partitions: 3, FlushInterval: time.Millisecond, MinFree: 1,
	})
	b.check(err)
	b.check(b.log.Start(t.Context()))
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem()})
	b.check(err)
	b.state, err = state.New(state.Options{
		Log: b.log, DB: db, HistoryAge: time.Hour, HistoryLimit: 100, WriteDelay: 10 * time.Millisecond,
		Entity: func(namespace, name string) (*resource.EntityConfig, bool) {
			b.mu.Lock()
			defer b.mu.Unlock()
			cfg, ok := b.entities[namespace+"/"+name]
			return cfg, ok
		},
		EntityChanges: func(changed func(namespace, name string)) func() {
			b.changed = changed
			return func() {}
		},
		Silences: func() func(*resource.Silenceable) []string {
			return func(s *resource.Silenceable) []string {
				b.mu.Lock()
				defer b.mu.Unlock()
				if b.silenced[s.Check] {
					return []string{"all:" + s.Check}
				}
				return nil
			}
		},
	})
	b.check(err)
	folding, err := fold.New(fold.Options{Log: b.log, State: b.state})
	b.check(err)
	b.check(folding.Start(t.Context()))
	opts.State, opts.Registerer = b.state, prometheus.NewRegistry()
	b.views, err = New(opts)
	b.check(err)
	b.check(b.views.Start(t.Context()))
	t.Cleanup(func() {
		b.check(b.views.Stop())
		b.check(folding.Stop())
		b.check(b.state.Stop())
		b.check(b.log.Stop())
		b.check(db.Close())
	})
	return b
}

func (b *bed) check(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

type done chan error

func (d done) Logged(_ uint64, _ int, _ uint64, err error) { d <- err }

// put appends records, and waits until they are folded.
func (b *bed) put(records ...eventlog.Record) {
	b.t.Helper()
	d := make(done, len(records))
	for i := range records {
		b.check(b.log.Append(&records[i], d, 0))
	}
	for range records {
		b.check(<-d)
	}
	for i := range b.log.Partitions() {
		_, last, err := b.log.Bounds(b.t.Context(), i)
		b.check(err)
		b.check(b.state.WaitFolded(b.t.Context(), i, last))
	}
}

// result is a check's result. what is namespace/entity/check.
func result(what string, status uint32, executed int64) eventlog.Record {
	parts := strings.Split(what, "/")
	ev := resource.Event{Timestamp: executed, Check: &resource.Check{
		Metadata: resource.ObjectMeta{Namespace: parts[0], Name: parts[2]}, Status: status, Executed: executed,
		Output: fmt.Sprint("output ", executed),
	}}
	return eventlog.Record{
		Kind: eventlog.KindEvent, Namespace: parts[0], Entity: parts[1], Check: parts[2], Status: status, Executed: executed,
		Received: time.Now().UnixMilli(), Body: ev.AppendProto(nil),
	}
}

func deletion(what string) eventlog.Record {
	parts := strings.Split(what, "/")
	return eventlog.Record{Kind: eventlog.KindDeleteEvent, Namespace: parts[0], Entity: parts[1], Check: parts[2], Received: time.Now().UnixMilli()}
}

// label sets an entity's label.
func (b *bed) label(namespace, name, key, value string) {
	b.mu.Lock()
	b.entities[namespace+"/"+name] = &resource.EntityConfig{
		Metadata: resource.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{key: value}}, EntityClass: "agent",
	}
	b.mu.Unlock()
	b.changed(namespace, name)
}

// open returns a reader of a view that is made.
func (b *bed) open(namespace, field, order, by string) *Reader {
	b.t.Helper()
	sel, err := selector.Parse("", field)
	b.check(err)
	q := Query{Namespace: namespace, Selector: sel, Text: field}
	q.Order, err = ParseOrder(order)
	b.check(err)
	q.Group, err = ParseGroup(by)
	b.check(err)
	r, err := b.views.Open(q)
	b.check(err)
	b.t.Cleanup(r.Close)
	b.check(r.Ready(b.t.Context()))
	return r
}

// shows waits until a reader's view has these rows.
func (b *bed) shows(r *Reader, want ...string) {
	b.t.Helper()
	b.until(r, strings.Join(want, " "), func() string {
		var got []string
		for _, row := range r.Window(Range{Limit: 1000}, nil).Rows {
			got = append(got, row.Namespace+"/"+row.Entity+"/"+row.Check)
		}
		return strings.Join(got, " ")
	})
}

func (b *bed) until(r *Reader, want string, get func() string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	for {
		changed := r.Changed()
		got := get()
		if got == want {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			b.t.Fatalf("the view shows\n%s\nwant\n%s", got, want)
		}
	}
}

func quick() Options {
	return Options{Delay: time.Millisecond, Refresh: time.Hour, RefreshTimed: time.Hour}
}

func TestView(t *testing.T) {
	b := newBed(t, quick())
	b.put(result("a/web1/cpu", 0, 100), result("a/web2/cpu", 2, 100), result("b/db1/disk", 1, 90))
	all, failing := b.open("", "", "severity", ""), b.open("a", "event.is_incident == true", "since", "")
	b.shows(all, "a/web2/cpu", "b/db1/disk", "a/web1/cpu")
	b.shows(failing, "a/web2/cpu")

	b.put(result("a/web1/cpu", 2, 120)) // the newest of the critical ones
	b.shows(all, "a/web1/cpu", "a/web2/cpu", "b/db1/disk")
	b.shows(failing, "a/web1/cpu", "a/web2/cpu")
	if got, want := fmt.Sprint(all.Window(Range{}, nil).Counts), "[2 1 0 0 0]"; got != want {
		t.Errorf("counts %s, want %s", got, want)
	}

	b.put(result("a/web2/cpu", 0, 130), deletion("b/db1/disk"), result("a/web3/cpu", 3, 130))
	b.shows(all, "a/web1/cpu", "a/web3/cpu", "a/web2/cpu")
	b.shows(failing, "a/web3/cpu", "a/web1/cpu")

	silenced := b.open("", "event.is_silenced == true", "entity", "")
	b.mu.Lock()
	b.silenced["cpu"] = true
	b.mu.Unlock()
	page, err := b.state.Select(t.Context(), state.Query{})
	b.check(err)
	b.state.Announce(page)
	b.shows(silenced, "a/web1/cpu", "a/web2/cpu", "a/web3/cpu")
	b.until(all, "[0 0 0 2 1]", func() string { return fmt.Sprint(all.Window(Range{}, nil).Counts) })
}

func TestVersions(t *testing.T) {
	b := newBed(t, quick())
	b.put(result("a/web1/cpu", 0, 100), result("a/web2/cpu", 0, 100))
	r := b.open("a", "", "entity", "")
	before := r.Window(Range{Limit: 10}, nil)
	b.put(result("a/web2/cpu", 0, 160)) // it repeats
	b.until(r, "true", func() string { return fmt.Sprint(r.Window(Range{}, nil).Version > before.Version) })
	after := r.Window(Range{Limit: 10}, []state.Key{{Namespace: "a", Entity: "web2", Check: "cpu"}, {Namespace: "a", Entity: "nope", Check: "cpu"}})
	if after.Rows[0].Version != before.Rows[0].Version || after.Rows[1].Version <= before.Rows[1].Version {
		t.Errorf("versions of rows were %v, and are %v", before.Rows, after.Rows)
	}
	if len(after.Also) != 1 || after.Also[0] != after.Rows[1] {
		t.Errorf("also: %v, want the second of %v", after.Also, after.Rows)
	}
}

func TestGroups(t *testing.T) {
	b := newBed(t, quick())
	for i := range 6 {
		b.label("a", fmt.Sprint("web", i), "rack", fmt.Sprint("r", i%3))
		b.put(result(fmt.Sprintf("a/web%d/cpu", i), 0, 100), result(fmt.Sprintf("a/web%d/disk", i), 0, 100))
	}
	b.put(result("a/other/cpu", 0, 100)) // it has no rack
	r := b.open("a", "", "severity", "label:rack")
	groups := func() string {
		w := r.Groups(Range{Limit: 10})
		return fmt.Sprint(w.Groups, w.Group)
	}
	b.until(r, "4 [{ [0 0 0 0 1]} {r0 [0 0 0 0 4]} {r1 [0 0 0 0 4]} {r2 [0 0 0 0 4]}]", groups)
	b.put(result("a/web1/cpu", 2, 120), result("a/web4/cpu", 2, 120), result("a/web2/disk", 2, 120), result("a/web5/disk", 1, 120))
	b.until(r, "4 [{r1 [2 0 0 0 2]} {r2 [1 1 0 0 2]} { [0 0 0 0 1]} {r0 [0 0 0 0 4]}]", groups)
	b.put(deletion("a/other/cpu"))
	b.label("a", "web4", "rack", "r9")
	b.until(r, "4 [{r2 [1 1 0 0 2]} {r1 [1 0 0 0 1]} {r9 [1 0 0 0 1]} {r0 [0 0 0 0 4]}]", groups)
	if w := r.Groups(Range{Offset: 1, Limit: 2}); len(w.Group) != 2 || w.Group[0].Value != "r1" {
		t.Errorf("the second and third group are %v", w.Group)
	}
}

// TestRandom compares views with new ones after random changes.
func TestRandom(t *testing.T) {
	b := newBed(t, quick())
	random := rand.New(rand.NewPCG(7, 8))
	pick := func(s ...string) string { return s[random.IntN(len(s))] }
	change := func(n int) {
		var some []eventlog.Record
		for range n {
			what := fmt.Sprintf("%s/e%d/%s", pick("a", "b"), random.IntN(20), pick("cpu", "disk", "http"))
			if random.IntN(8) == 0 {
				some = append(some, deletion(what))
			} else {
				some = append(some, result(what, uint32(random.IntN(4)), 1000+int64(random.IntN(1000))))
			}
		}
		b.put(some...)
	}
	b.label("a", "e3", "rack", "r3")
	change(100)
	type asked struct{ namespace, field, order, by string }
	var readers []*Reader
	questions := []asked{
		{"", "", "severity", ""}, {"a", "", "-severity", "check"}, {"", "event.check.status == 2", "since", "entity"},
		{"b", "event.check.output matches 1", "-since", ""}, {"", "event.check.name == disk", "entity", "label:rack"},
		{"", "event.check.occurrences > 1", "-entity", "namespace"}, {"", "event.is_incident == true", "check", ""},
		{"a", "event.check.executed > 1500", "-check", ""},
	}
	for _, q := range questions {
		readers = append(readers, b.open(q.namespace, q.field, q.order, q.by))
	}
	for range 20 {
		change(40)
		for i, q := range questions {
			b.check(func() error { // what a survey finds now
				r := readers[i]
				c, err := survey(t.Context(), b.state, r.view.query, 0)
				if err != nil {
					return err
				}
				b.until(r, describe(c), func() string {
					r.view.mu.RLock()
					defer r.view.mu.RUnlock()
					return describe(r.view.content)
				})
				for place, row := range r.Window(Range{Limit: 1000}, nil).Rows {
					if got, ok := r.Place(row.Key); !ok || got != place {
						t.Errorf("%v: place of %v is %d, %t, want %d", q, row, got, ok, place)
					}
				}
				return nil
			}())
		}
	}
}

// describe returns all that a content has, but versions.
func describe(c *content) string {
	var b strings.Builder
	c.tree.Scan(func(it *item) bool {
		fmt.Fprintln(&b, it.key, it.since, it.status, it.class)
		return true
	})
	fmt.Fprintln(&b, len(c.items), c.counts)
	var groups []*group
	for _, g := range c.groups {
		groups = append(groups, g)
	}
	slices.SortFunc(groups, worse)
	for _, g := range groups {
		fmt.Fprintln(&b, *g)
	}
	return b.String()
}

func TestRefresh(t *testing.T) {
	opts := quick()
	opts.RefreshTimed = time.Millisecond
	b := newBed(t, opts)
	now := time.Now().Unix()
	b.put(result("a/web1/cpu", 2, now), result("a/web2/cpu", 2, now-10))
	r := b.open("", "event.check.executed < now-2s", "entity", "")
	b.shows(r, "a/web1/cpu", "a/web2/cpu")
}

func TestSharing(t *testing.T) {
	opts := quick()
	opts.Keep, opts.MaxEvents = time.Hour, 5
	b := newBed(t, opts)
	b.put(result("a/web1/cpu", 2, 100), result("a/web2/cpu", 2, 100), result("a/web3/cpu", 0, 100))
	one, same, other := b.open("a", "", "entity", ""), b.open("a", "", "entity", ""), b.open("a", "event.is_incident == true", "entity", "")
	if one.view != same.view || one.view == other.view {
		t.Error("readers of equal queries must share a view, and others not")
	}
	// There is room for five events. A third view finds none, until one has no reader any more.
	more := Query{Namespace: "a", Order: Order{by: byCheck}}
	r, err := b.views.Open(more)
	b.check(err)
	if err := r.Ready(t.Context()); !errors.Is(err, ErrTooMany) {
		t.Errorf("a view with too many events: %v", err)
	}
	r.Close()
	one.Close()
	same.Close()
	r, err = b.views.Open(more)
	b.check(err)
	b.check(r.Ready(t.Context()))
	r.Close()
	if !b.state.Watched() {
		t.Error("the state is not followed")
	}
}

func TestOwners(t *testing.T) {
	opts := quick()
	opts.MaxEvents = 6
	b := newBed(t, opts)
	b.put(result("a/web1/cpu", 2, 100), result("a/web2/cpu", 2, 100))
	open := func(owner, order string) *Reader {
		t.Helper()
		by, err := ParseOrder(order)
		b.check(err)
		r, err := b.views.Open(Query{Namespace: "a", Order: by, Owner: owner})
		b.check(err)
		t.Cleanup(r.Close)
		return r
	}
	greedy := []*Reader{open("eve", "entity"), open("eve", "check"), open("eve", "since")}
	for _, r := range greedy {
		b.check(r.Ready(t.Context()))
	}
	modest := open("ann", "severity")
	b.check(modest.Ready(t.Context()))
	testbroker.Eventually(t, func() error {
		if err := greedy[2].Err(); !errors.Is(err, ErrTooMany) {
			return fmt.Errorf("the newest view of the one who has most: %v", err)
		}
		return nil
	})
	for _, r := range []*Reader{greedy[0], greedy[1], modest} {
		b.check(r.Err())
	}
}

func TestMaxViews(t *testing.T) {
	opts := quick()
	opts.Keep, opts.MaxViews = time.Hour, 2
	b := newBed(t, opts)
	b.put(result("a/web1/cpu", 2, 100))
	one, _ := b.open("a", "", "entity", ""), b.open("a", "", "check", "")
	more := Query{Namespace: "a"}
	if _, err := b.views.Open(more); !errors.Is(err, ErrTooMany) {
		t.Errorf("a view too many: %v", err)
	}
	one.Close()
	r, err := b.views.Open(more)
	b.check(err)
	r.Close()
}

// Views whose readers went before they were made are not made.
func TestUnread(t *testing.T) {
	b := newBed(t, quick())
	b.put(result("a/web1/cpu", 2, 100))
	for range maxSurveys {
		b.views.surveys <- struct{}{} // all places are taken
	}
	r, err := b.views.Open(Query{Namespace: "a"})
	b.check(err)
	r.Close()
	for range maxSurveys {
		<-b.views.surveys
	}
	testbroker.Eventually(t, func() error {
		if n, _ := b.views.size(); n > 0 {
			return fmt.Errorf("%d views are there", n)
		}
		return nil
	})
}

func TestUnused(t *testing.T) {
	opts := quick()
	opts.Keep = time.Millisecond
	b := newBed(t, opts)
	r := b.open("", "", "entity", "")
	r.Close()
	testbroker.Eventually(t, func() error {
		if n, _ := b.views.size(); n > 0 || b.state.Watched() {
			return fmt.Errorf("%d views are there, and the state is followed: %t", n, b.state.Watched())
		}
		return nil
	})
	b.put(result("a/web1/cpu", 2, 100))
	b.shows(b.open("", "", "entity", ""), "a/web1/cpu")
}

func TestStop(t *testing.T) {
	b := newBed(t, quick())
	r := b.open("", "", "entity", "")
	changed := r.Changed()
	b.check(b.views.Stop())
	<-changed
	if err := r.Err(); !errors.Is(err, ErrStopped) {
		t.Errorf("after the stop: %v", err)
	}
	if _, err := b.views.Open(Query{}); !errors.Is(err, ErrStopped) {
		t.Errorf("open after the stop: %v", err)
	}
}

func TestParse(t *testing.T) {
	for _, text := range []string{"severity", "-severity", "since", "entity", "-check"} {
		if o, err := ParseOrder(text); err != nil || o.String() != text {
			t.Errorf("order %q: %v, %v", text, o, err)
		}
	}
	for _, text := range []string{"", "entity", "check", "namespace", "label:rack", "label:a/b"} {
		if g, err := ParseGroup(text); err != nil || g.String() != text {
			t.Errorf("group %q: %v, %v", text, g, err)
		}
	}
	for _, text := range []string{"", "-", "name", "--since"} {
		if _, err := ParseOrder(text); err == nil {
			t.Errorf("order %q: no error", text)
		}
	}
	for _, text := range []string{"label:", "rack", "Entity"} {
		if _, err := ParseGroup(text); err == nil {
			t.Errorf("group %q: no error", text)
		}
	}
}
