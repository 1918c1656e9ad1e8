package fleet

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

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/fold"
	"github.com/lapwing-monitoring/lapwing/internal/testbroker"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
)

// bed is a store of definitions, a log with a state, and lists of its entities.
type bed struct {
	t     testing.TB
	store *config.Store
	log   *eventlog.Log
	state *state.State
	fleet *Fleet
}

// newBed starts a bed. definitions replaces the store as what has the entities, unless it is nil.
func newBed(t testing.TB, opts Options, definitions Definitions) *bed {
	t.Helper()
	b := &bed{t: t}
	store, nats := testconfig.WithBroker(t)
	b.store = store
	if definitions == nil {
		definitions = store
	}
	var err error
	b.log, err = eventlog.New(eventlog.Options{
		Broker: nats, Dir: t.TempDir(), Origin: "here", Partitions: 2, FlushInterval: time.Millisecond, MinFree: 1,
	})
	b.check(err)
	b.check(b.log.Start(t.Context()))
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem()})
	b.check(err)
	b.state, err = state.New(state.Options{
		Log: b.log, DB: db, HistoryAge: time.Hour, HistoryLimit: 100, WriteDelay: 10 * time.Millisecond,
		Entity: func(namespace, name string) (*resource.EntityConfig, bool) {
			return config.Get(definitions.Snapshot(), config.Entities, namespace, name)
		},
		Silences: func() func(*resource.Silenceable) []string { return nil },
	})
	b.check(err)
	folding, err := fold.New(fold.Options{Log: b.log, State: b.state})
	b.check(err)
	b.check(folding.Start(t.Context()))
	opts.Config, opts.State, opts.Registerer = definitions, b.state, prometheus.NewRegistry()
	b.fleet, err = New(opts)
	b.check(err)
	b.check(b.fleet.Start(t.Context()))
	t.Cleanup(func() {
		b.check(b.fleet.Stop())
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

// report is what an agent says of its host.
func report(what, os, version string) eventlog.Record {
	namespace, name, _ := strings.Cut(what, "/")
	st := resource.EntityState{
		Metadata: resource.ObjectMeta{Namespace: namespace, Name: name}, System: resource.System{OS: os, Hostname: name + ".example"},
		SensuAgentVersion: version,
	}
	return eventlog.Record{
		Kind: eventlog.KindEntity, Namespace: namespace, Entity: name, Received: time.Now().UnixMilli(), Body: state.AppendFacts(nil, &st),
	}
}

func entity(what, class string, labels map[string]string, subscriptions ...string) *resource.EntityConfig {
	namespace, name, _ := strings.Cut(what, "/")
	return &resource.EntityConfig{
		Metadata: resource.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, EntityClass: class, Subscriptions: subscriptions,
	}
}

func (b *bed) define(entities ...*resource.EntityConfig) {
	b.t.Helper()
	for _, one := range entities {
		b.check(config.Put(b.t.Context(), b.store, config.Entities, one))
	}
}

func (b *bed) undefine(what string) {
	b.t.Helper()
	namespace, name, _ := strings.Cut(what, "/")
	b.check(config.Delete(b.t.Context(), b.store, config.Entities, namespace, name))
}

// query reads a query.
func query(t testing.TB, namespace, field, order string) Query {
	t.Helper()
	sel, err := selector.Parse("", field)
	if err != nil {
		t.Fatal(err)
	}
	q := Query{Namespace: namespace, Selector: sel, Text: field}
	if q.Order, err = ParseOrder(order); err != nil {
		t.Fatal(err)
	}
	return q
}

// open returns a reader of a list that can be read.
func (b *bed) open(q Query) *Reader {
	b.t.Helper()
	r, err := b.fleet.Open(q)
	b.check(err)
	b.t.Cleanup(r.Close)
	b.check(r.Ready(b.t.Context()))
	return r
}

// describe returns the rows of a list in words.
func describe(c *Content) string {
	var rows []string
	for _, row := range c.Rows(0, 1000) {
		m := &row.Config.Metadata
		rows = append(rows, fmt.Sprintf("%s/%s:%d%v%d", m.Namespace, m.Name, row.Worst(), row.Events, row.Agent))
	}
	return strings.Join(rows, " ")
}

// names returns the names of a list's entities.
func names(c *Content) string {
	var rows []string
	for _, row := range c.Rows(0, 1000) {
		rows = append(rows, row.Config.Metadata.Name)
	}
	return strings.Join(rows, " ")
}

func (b *bed) until(r *Reader, want string, get func(*Content) string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	for {
		changed := r.Changed()
		got := get(r.Content())
		if got == want {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			b.t.Fatalf("the list shows\n%s\nwant\n%s", got, want)
		}
	}
}

func quick() Options {
	return Options{Delay: time.Millisecond, Refresh: time.Hour, RefreshTimed: time.Hour}
}

func TestList(t *testing.T) {
	b := newBed(t, quick(), nil)
	b.define(entity("a/web1", "agent", nil), entity("a/web2", "agent", nil), entity("b/db", "proxy", nil), entity("a/new", "agent", nil))
	b.put(result("a/web1/cpu", 0, 100), result("a/web2/cpu", 1, 100), result("a/web2/disk", 2, 100), result("b/db/ping", 3, 100),
		result("a/web1/keepalive", 0, 100), result("a/web2/keepalive", 0, 90), result("a/undefined/cpu", 2, 100))
	all := b.open(query(t, "", "", "state"))
	b.until(all, "a/web2:0[1 1 0 0 1]1 b/db:2[0 0 1 0 0]0 a/web1:4[0 0 0 0 2]1 a/new:5[0 0 0 0 0]3", describe)
	if got, want := fmt.Sprint(all.Content().Counts()), "{[1 2 0 1] [1 0 1 0 1 1]}"; got != want {
		t.Errorf("counts %s, want %s", got, want)
	}

	// The agent of web1 is late, and then gone.
	late := b.open(query(t, "a", "entity.name =~ web", "last_seen"))
	b.until(late, "web1 web2", names)
	b.put(result("a/web1/keepalive", 1, 200), result("a/web2/keepalive", 0, 210))
	b.until(all, "a/web2:0[1 1 0 0 1]1 a/web1:1[0 1 0 0 1]2 b/db:2[0 0 1 0 0]0 a/new:5[0 0 0 0 0]3", describe)
	b.until(late, "web2 web1", names)
	b.put(result("a/web1/keepalive", 2, 300))
	b.until(all, "a/web1:0[1 0 0 0 1]3 a/web2:0[1 1 0 0 1]1 b/db:2[0 0 1 0 0]0 a/new:5[0 0 0 0 0]3", describe)

	// Only the time of the keepalive changes.
	before := late.Content()
	b.put(result("a/web2/keepalive", 0, 230))
	b.until(late, "230", func(c *Content) string { return fmt.Sprint(c.Rows(0, 1)[0].LastSeen) })
	if late.Content().worth != before.worth {
		t.Error("a keepalive that changes nothing else has its list counted again")
	}

	// Definitions change.
	b.define(entity("b/db2", "proxy", nil))
	b.undefine("a/web2")
	b.put(deletion("a/web1/keepalive"))
	b.until(all, "b/db:2[0 0 1 0 0]0 a/web1:4[0 0 0 0 1]3 a/new:5[0 0 0 0 0]3 b/db2:5[0 0 0 0 0]0", describe)
	b.until(late, "web1", names)
}

func TestOrders(t *testing.T) {
	b := newBed(t, quick(), nil)
	b.define(entity("a/x", "agent", nil), entity("a/y", "agent", nil), entity("a/z", "agent", nil))
	b.put(report("a/x", "linux", "6.9.0"), report("a/y", "linux", "6.12.0"), report("a/z", "windows", "5.1"),
		result("a/x/keepalive", 0, 20), result("a/y/keepalive", 0, 30), result("a/z/keepalive", 0, 10), result("a/x/cpu", 2, 30),
		result("a/x/disk", 1, 30), result("a/y/cpu", 2, 30), result("a/y/disk", 2, 30))
	for order, want := range map[string]string{
		"state": "y x z", "-state": "z x y", "name": "x y z", "-name": "z y x", "last_seen": "y x z", "-last_seen": "z x y",
		"version": "z x y", "-version": "y x z",
	} {
		r := b.open(query(t, "", "", order))
		if got := names(r.Content()); got != want {
			t.Errorf("%s: %s, want %s", order, got, want)
		}
		for place, row := range r.Content().Rows(0, 10) {
			if got, ok := r.Content().Place(resource.NameOf(&row.Config.Metadata)); !ok || got != place {
				t.Errorf("%s: place of %s is %d, %t, want %d", order, row.Config.Metadata.Name, got, ok, place)
			}
		}
	}
	blind := query(t, "", "", "state")
	blind.Blind = true
	r := b.open(blind)
	if got := names(r.Content()); got != "x y z" {
		t.Errorf("who may not see events gets the order %s", got)
	}
	if got, want := fmt.Sprint(r.Content().Counts()), "{[0 3 0 0] [0 0 0 0 0 3]}"; got != want {
		t.Errorf("who may not see events gets the counts %s, want %s", got, want)
	}
	for field, want := range map[string]string{
		"entity.system.os == windows": "z", "entity.sensu_agent_version == 6.12.0": "y", "entity.system.hostname == x.example": "x",
		"entity.last_seen > 15": "x y", "entity.name == nope": "",
	} {
		if got := names(b.open(query(t, "a", field, "name")).Content()); got != want {
			t.Errorf("%s: %s, want %s", field, got, want)
		}
	}
	if rows := r.Content().Rows(9, 5); len(rows) > 0 {
		t.Errorf("rows behind the end: %v", rows)
	}
	if _, ok := r.Content().Place(resource.Name{Namespace: "a", Name: "nope"}); ok {
		t.Error("an entity that does not exist has a place")
	}
}

func TestGroups(t *testing.T) {
	opts := quick()
	opts.Backend = func(agent resource.Name) string { return map[string]string{"x": "one", "y": "two"}[agent.Name] }
	b := newBed(t, opts, nil)
	secret := entity("a/z", "proxy", map[string]string{"rack": "r2", "password": "p"})
	b.define(entity("a/x", "agent", map[string]string{"rack": "r1"}, "linux", "web", "entity:x"),
		entity("a/y", "agent", map[string]string{"rack": "r1"}, "linux", "linux"), secret, entity("b/x", "agent", nil, "entity:x"))
	b.put(report("a/x", "linux", "6.9.0"), report("a/y", "linux", "6.12.0"), result("a/y/cpu", 1, 30), result("a/z/cpu", 2, 30))
	r := b.open(query(t, "", "", "name"))
	for by, want := range map[string]string{
		"namespace": "a:3/1/1 b:1/0/0", "class": "proxy:1/1/0 agent:3/0/1", "os": ":2/1/0 linux:2/0/1", "platform": ":4/1/1",
		"version": ":2/1/0 6.12.0:1/0/1 6.9.0:1/0/0", "subscription": ":2/1/0 linux:2/0/1 web:1/0/0",
		"backend": ":1/1/0 two:1/0/1 one:2/0/0", "label:rack": "r2:1/1/0 r1:2/0/1 :1/0/0", "label:password": "REDACTED:1/1/0 :3/0/1",
	} {
		g, err := ParseGroup(by)
		b.check(err)
		if got := groupText(r.Content().Groups(g)); got != want {
			t.Errorf("%s: %s, want %s", by, got, want)
		}
	}
	for state, want := range map[[3]string]string{
		{"gone", "", ""}: "x y x", {"proxy", "", ""}: "z", {"proxy,gone", "critical,none", ""}: "x x z", {"", "warning", "two"}: "y", {"", "", "three"}: "",
	} {
		q := query(t, "", "", "name")
		q.State, _ = ParseState(state[0], state[1], state[2])
		got := strings.Fields(names(b.open(q).Content()))
		slices.Sort(got)
		wanted := strings.Fields(want)
		slices.Sort(wanted)
		if !slices.Equal(got, wanted) {
			t.Errorf("%v: %v, want %s", state, got, want)
		}
	}
	blind := query(t, "", "", "name")
	blind.Blind = true
	blind.State, _ = ParseState("", "critical", "")
	if got := names(b.open(blind).Content()); got != "" {
		t.Errorf("a reader who may not see events finds %s by them", got)
	}
	rack, _ := ParseGroup("label:rack")
	if got, want := groupText(r.Content().Facet(rack)), "r1:2/0/1 :1/0/0 r2:1/1/0"; got != want {
		t.Errorf("facet %s, want %s", got, want)
	}
	var cells []string
	for _, one := range r.Content().Cells(rack) {
		cells = append(cells, fmt.Sprintf("%s/%s%v%v", one.Value, one.Namespace, one.Names, one.Worst))
	}
	if got, want := strings.Join(cells, " "), "/b[x][5] r1/a[x y][5 1] r2/a[z][0]"; got != want {
		t.Errorf("cells %s, want %s", got, want)
	}
	// A derived text is made again only when a cell changes.
	made := 0
	derive := func() string {
		data, err := r.Content().Once("x", func() ([]byte, error) { made++; return []byte(fmt.Sprint(made)), nil })
		b.check(err)
		return string(data)
	}
	derive()
	if got := derive(); got != "1" {
		t.Errorf("made %s times", got)
	}
	b.put(result("a/x/cpu", 2, 40))
	b.until(r, "2", func(*Content) string { return derive() })
}

func groupText(all []GroupCounts) string {
	var out []string
	for _, g := range all {
		out = append(out, fmt.Sprintf("%s:%d/%d/%d", g.Value, g.Counts.Total(), g.Counts.Worst[0], g.Counts.Worst[1]))
	}
	return strings.Join(out, " ")
}

// TestRandom compares lists with new ones after random changes, while others read them.
func TestRandom(t *testing.T) {
	b := newBed(t, quick(), nil)
	random := rand.New(rand.NewPCG(7, 8))
	pick := func(s ...string) string { return s[random.IntN(len(s))] }
	at := int64(1000)
	change := func(n int) {
		var some []eventlog.Record
		for range n {
			what := fmt.Sprintf("%s/e%d", pick("a", "b"), random.IntN(15))
			at++
			switch check := pick("cpu", "disk", state.KeepaliveCheck); random.IntN(8) {
			case 0:
				some = append(some, deletion(what+"/"+check))
			case 1:
				some = append(some, report(what, pick("linux", "windows"), pick("6.9.0", "6.12.0")), result(what+"/keepalive", 0, at))
			default:
				some = append(some, result(what+"/"+check, uint32(random.IntN(3)), at))
			}
		}
		for range n / 10 {
			what := fmt.Sprintf("%s/e%d", pick("a", "b"), random.IntN(15))
			namespace, name, _ := strings.Cut(what, "/")
			if _, ok := config.Get(b.store.Snapshot(), config.Entities, namespace, name); ok && random.IntN(3) == 0 {
				b.undefine(what)
			} else {
				b.define(entity(what, pick("agent", "proxy"), map[string]string{"rack": pick("r1", "r2")}))
			}
		}
		b.put(some...)
	}
	change(100)
	queries := []Query{
		query(t, "", "", "state"), query(t, "a", "", "-state"), query(t, "", "entity.system.os == linux", "name"),
		query(t, "b", "entity.labels.rack == r1", "-last_seen"), query(t, "", "entity.last_seen > 1200", "version"),
		query(t, "", "entity.entity_class == proxy", "last_seen"),
	}
	var readers []*Reader
	for _, q := range queries {
		readers = append(readers, b.open(q))
	}
	stop := make(chan struct{})
	var reading sync.WaitGroup
	for _, q := range queries {
		r := b.open(q)
		reading.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-r.Changed():
					c := r.Content()
					c.Counts()
					for _, row := range c.Rows(0, 3) {
						c.Place(resource.NameOf(&row.Config.Metadata))
					}
				}
			}
		})
	}
	opts := Options{Config: b.store, State: b.state}
	rack, _ := ParseGroup("label:rack")
	show := func(c *Content) string { return describe(c) + groupText(c.Groups(rack)) + fmt.Sprint(c.Counts()) }
	for range 20 {
		change(30)
		anew := newTable(&opts, 1)
		b.check(anew.survey(t.Context()))
		now := anew.snapshot()
		for i, q := range queries {
			want := newList(q).at(now, time.Now(), time.Hour)
			b.until(readers[i], show(want), show)
		}
	}
	close(stop)
	reading.Wait()
}

func TestTimed(t *testing.T) {
	opts := quick()
	opts.RefreshTimed = time.Millisecond
	b := newBed(t, opts, nil)
	now := time.Now().Unix()
	b.define(entity("a/x", "agent", nil), entity("a/y", "agent", nil))
	b.put(result("a/x/keepalive", 0, now), result("a/y/keepalive", 0, now-100))
	r := b.open(query(t, "", "entity.last_seen < now-1s", "name"))
	b.until(r, "x y", names) // it is told, although nothing comes
}

// TestRefresh: what agents report without an event is seen after a while.
func TestRefresh(t *testing.T) {
	opts := quick()
	opts.Refresh = time.Millisecond
	b := newBed(t, opts, nil)
	b.define(entity("a/x", "proxy", nil))
	r := b.open(query(t, "", "entity.system.os == linux", "name"))
	b.until(r, "", names)
	b.put(report("a/x", "linux", ""))
	b.until(r, "x", names)
}

func TestSharing(t *testing.T) {
	opts := quick()
	opts.Keep, opts.MaxEntities = time.Hour, 5
	b := newBed(t, opts, nil)
	b.define(entity("a/x", "proxy", nil), entity("a/y", "proxy", nil))
	one, same, other := b.open(query(t, "a", "", "name")), b.open(query(t, "a", "", "name")), b.open(query(t, "a", "", "-name"))
	if one.list != same.list || one.list == other.list {
		t.Error("readers of equal queries must share a list, and others not")
	}
	one.Content()
	other.Content()
	// There is room for five entities. A third list finds none, until one has no reader any more.
	if _, err := b.fleet.Open(query(t, "a", "", "state")); !errors.Is(err, ErrTooMany) {
		t.Errorf("a list with too many entities: %v", err)
	}
	one.Close()
	same.Close()
	b.open(query(t, "a", "", "state"))
}

func TestOwners(t *testing.T) {
	opts := quick()
	opts.MaxEntities = 8
	b := newBed(t, opts, nil)
	b.define(entity("a/x", "proxy", nil), entity("a/y", "proxy", nil))
	b.open(query(t, "a", "", "name")).Content() // the table has two rows from now on
	open := func(owner, order string) error {
		q := query(t, "a", "", order)
		q.Owner = owner
		r, err := b.fleet.Open(q)
		if err == nil {
			t.Cleanup(r.Close)
		}
		return err
	}
	b.check(open("eve", "-name"))
	b.check(open("eve", "state"))
	if err := open("eve", "-state"); !errors.Is(err, ErrTooMany) {
		t.Errorf("more than half of all for one: %v", err)
	}
	b.check(open("ann", "-state"))
}

func TestUnused(t *testing.T) {
	opts := quick()
	opts.Keep, opts.KeepTable = time.Millisecond, time.Millisecond
	b := newBed(t, opts, nil)
	b.define(entity("a/x", "proxy", nil))
	for range 3 {
		r := b.open(query(t, "", "", "name"))
		b.until(r, "x", names)
		if !b.state.Watched() {
			t.Error("the state is not followed")
		}
		r.Close()
		testbroker.Eventually(t, func() error {
			if n, _ := b.fleet.size(); n > 0 || b.state.Watched() {
				return fmt.Errorf("%d lists are there, and the state is followed: %t", n, b.state.Watched())
			}
			return nil
		})
	}
}

func TestStop(t *testing.T) {
	b := newBed(t, quick(), nil)
	r := b.open(query(t, "", "", "name"))
	changed := r.Changed()
	b.check(b.fleet.Stop())
	<-changed
	if err := r.Err(); !errors.Is(err, ErrStopped) {
		t.Errorf("after the stop: %v", err)
	}
	if _, err := b.fleet.Open(Query{}); !errors.Is(err, ErrStopped) {
		t.Errorf("open after the stop: %v", err)
	}
}

func TestParse(t *testing.T) {
	for _, text := range []string{"state", "-state", "name", "last_seen", "-version"} {
		if o, err := ParseOrder(text); err != nil || o.String() != text {
			t.Errorf("order %q: %v, %v", text, o, err)
		}
	}
	for _, text := range []string{"", "namespace", "class", "os", "platform", "version", "subscription", "backend", "label:rack"} {
		if g, err := ParseGroup(text); err != nil || g.String() != text || g.Grouped() != (text != "") {
			t.Errorf("group %q: %v, %v", text, g, err)
		}
	}
	for _, text := range []string{"", "-", "severity", "--name"} {
		if _, err := ParseOrder(text); err == nil {
			t.Errorf("order %q: no error", text)
		}
	}
	for _, text := range []string{"label:", "rack", "OS"} {
		if _, err := ParseGroup(text); err == nil {
			t.Errorf("group %q: no error", text)
		}
	}
	for _, state := range [][2]string{{"asleep", ""}, {"", "bad"}, {"late,", ""}} {
		if _, err := ParseState(state[0], state[1], ""); err == nil {
			t.Errorf("state %q: no error", state)
		}
	}
}
