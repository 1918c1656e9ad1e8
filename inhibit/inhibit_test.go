package inhibit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

type nothing struct{}

func (nothing) Select(context.Context, state.Query) (*state.Page, error) {
	return nil, errors.New("the state was asked")
}

// bench is an Inhibitor over real definitions. The test says which checks fail.
type bench struct {
	*Inhibitor
	t     testing.TB
	store *config.Store
	fails map[string][]string // by namespace: entity/check
	asked int
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{t: t, store: testconfig.Store(t), fails: map[string][]string{}}
	var err error
	b.Inhibitor, err = New(Options{Config: b.store.Snapshot, State: nothing{}, MaxNodes: 50, Registerer: prometheus.NewRegistry()})
	must(t, err)
	b.failures = func(_ context.Context, namespace, entity string) (checks []string, err error) {
		b.asked++
		for _, pair := range b.fails[namespace] {
			if e, c, _ := strings.Cut(pair, "/"); e == entity {
				checks = append(checks, c)
			}
		}
		return checks, nil
	}
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// define makes definitions from lines like "check http: sw1/" and "entity web1: r1/ping annotated".
func (b *bench) define(namespace, lines string) {
	b.t.Helper()
	for line := range strings.Lines(lines) {
		line, annotated := strings.CutSuffix(strings.TrimSpace(line), " annotated")
		what, deps, ok := strings.Cut(line, ": ")
		if !ok {
			continue
		}
		kind, name, _ := strings.Cut(what, " ")
		meta := resource.ObjectMeta{Namespace: namespace, Name: name}
		list := strings.Fields(deps)
		if annotated {
			meta.Annotations = map[string]string{resource.DependsOnAnnotation: strings.Join(list, ", ")}
			list = nil
		}
		if kind == "check" {
			c := &resource.CheckConfig{Metadata: meta, Interval: 1, DependsOn: list}
			must(b.t, c.Validate())
			must(b.t, config.Put(b.t.Context(), b.store, config.Checks, c))
		} else {
			e := &resource.EntityConfig{Metadata: meta, EntityClass: "proxy", DependsOn: list}
			must(b.t, e.Validate())
			must(b.t, config.Put(b.t.Context(), b.store, config.Entities, e))
		}
	}
}

func event(namespace, pair string) *resource.Event {
	entity, check, _ := strings.Cut(pair, "/")
	return &resource.Event{
		Entity: &resource.Entity{Metadata: resource.ObjectMeta{Namespace: namespace, Name: entity}},
		Check:  &resource.Check{Metadata: resource.ObjectMeta{Namespace: namespace, Name: check}, Status: 2},
	}
}

func TestInhibited(t *testing.T) {
	b := newBench(t)
	for i, tc := range []struct {
		name, defs string
		fails      string // beside the event itself
		event      string
		by         string // "" if it is not inhibited
	}{
		{"nothing is said", "", "sw1/ping", "web1/http", ""},
		{"a check of the entity", "check http: nginx", "web1/nginx", "web1/http", "web1/nginx"},
		{"the same check of another entity does not count", "check http: nginx", "web2/nginx", "web1/http", ""},
		{"a check of another entity", "check http: sw1/ping", "sw1/ping", "web1/http", "sw1/ping"},
		{"it does not fail", "check http: sw1/ping", "sw1/disk", "web1/http", ""},
		{"any check of another entity", "check http: sw1/", "sw1/disk", "web1/http", "sw1/disk"},
		{"its keepalive", "check http: sw1/", "sw1/keepalive", "web1/http", "sw1/keepalive"},
		{"all checks of an entity", "entity web1: sw1/ping", "sw1/ping", "web1/disk", "sw1/ping"},
		{"the keepalive of an entity", "entity web1: keepalive", "web1/keepalive", "web1/disk", "web1/keepalive"},
		{"the keepalive itself alerts", "entity web1: keepalive", "web1/keepalive", "web1/keepalive", ""},
		{"nothing by itself", "", "web1/keepalive", "web1/disk", ""},
		{"annotations of a check", "check http: sw1/ping annotated", "sw1/ping", "web1/http", "sw1/ping"},
		{"annotations of an entity", "entity web1: sw1/ sw2/ annotated", "sw2/ping", "web1/http", "sw2/ping"},
		{"over what does not fail", "check http: sw1/ping\nentity sw1: r1/ping", "r1/ping", "web1/http", "sw1/ping r1/ping"},
		{"over an entity that does not fail", "check http: sw1/\nentity sw1: r1/ping", "r1/ping", "web1/http", "sw1/ r1/ping"},
		{"the nearest is named", "check http: sw1/ping\nentity sw1: r1/ping", "r1/ping sw1/ping", "web1/http", "sw1/ping"},
		{"the middle one is inhibited too", "check http: sw1/ping\nentity sw1: r1/ping", "r1/ping sw1/ping web1/http", "sw1/ping", "r1/ping"},
		{"over a check's own dependencies", "check http: db1/sql\ncheck sql: disk", "db1/disk", "web1/http", "db1/sql db1/disk"},
		{"itself", "check http: http", "web1/http", "web1/http", ""},
		{"its own entity", "check http: web1/", "web1/http", "web1/http", ""},
		{"another check of its own entity", "check http: web1/", "web1/disk", "web1/http", "web1/disk"},
		{"all checks of an entity on each other", "entity web1: web1/", "web1/disk web1/http", "web1/http", ""},
		{"two on each other", "check a: b\ncheck b: a", "x/a x/b", "x/a", ""},
		{"three in a circle", "check a: b\ncheck b: c\ncheck c: a", "x/a x/b x/c", "x/b", ""},
		{"out of a circle", "check a: b\ncheck b: a c", "x/a x/b x/c", "x/a", "x/b x/c"},
		{"a circle further on", "check a: b\ncheck b: c\ncheck c: b", "x/a x/b", "x/a", "x/b"},
		{"another one", "check http: sw1/ping sw2/ping", "sw2/ping", "web1/http", "sw2/ping"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns := fmt.Sprint("n", i)
			b.define(ns, tc.defs)
			b.fails[ns] = append(strings.Fields(tc.fails), tc.event)
			by, ok := b.Inhibited(t.Context(), event(ns, tc.event))
			if got := strings.Join(by, " "); got != tc.by || ok != (tc.by != "") {
				t.Errorf("%s is inhibited: %v, by %q, want %q", tc.event, ok, got, tc.by)
			}
			ok1 := event(ns, tc.event)
			ok1.Check.Status = 0
			if by, ok := b.Inhibited(t.Context(), ok1); ok {
				t.Errorf("an event that is no incident is inhibited by %q", by)
			}
			report, err := b.Explain(t.Context(), event(ns, tc.event))
			must(t, err)
			if report.Inhibited != (tc.by != "") || strings.Join(report.By, " ") != tc.by {
				t.Errorf("the report says %+v", report)
			}
		})
	}
}

// TestEventsOwnAnnotations has an event whose check is not defined.
func TestEventsOwnAnnotations(t *testing.T) {
	b := newBench(t)
	b.fails["default"] = []string{"sw1/ping"}
	ev := event("default", "web1/http")
	ev.Check.Metadata.Annotations = map[string]string{resource.DependsOnAnnotation: "sw1/ping, not a / name"}
	if by, ok := b.Inhibited(t.Context(), ev); !ok || !slices.Equal(by, []string{"sw1/ping"}) {
		t.Errorf("inhibited %v by %q", ok, by)
	}
}

func TestExplain(t *testing.T) {
	b := newBench(t)
	b.define("default", "check http: sw1/ cache\ncheck cache: http\nentity sw1: r1/ping")
	b.fails["default"] = []string{"sw1/disk", "web1/http"}
	report, err := b.Explain(t.Context(), event("default", "web1/http"))
	must(t, err)
	want := "[{sw1/ [] true false} {web1/cache [] false true} {sw1/disk [] true false} {r1/ping [sw1/] false false}]"
	if got := fmt.Sprint(report.Dependencies); got != want || !report.Inhibited {
		t.Errorf("dependencies are\n%s, want\n%s", got, want)
	}
	if report, err := b.Explain(t.Context(), event("default", "lone/http2")); err != nil || len(report.Dependencies) != 0 || report.Inhibited {
		t.Errorf("what depends on nothing: %+v, %v", report, err)
	}
}

// TestBounds has an event with too many dependencies, and a state that cannot be read. Both alert.
func TestBounds(t *testing.T) {
	b := newBench(t)
	var lines strings.Builder
	for i := range 100 {
		fmt.Fprintf(&lines, "check c%d: c%d\n", i, i+1)
	}
	b.define("default", lines.String())
	b.fails["default"] = []string{"x/c1"}
	if by, ok := b.Inhibited(t.Context(), event("default", "x/c0")); ok {
		t.Errorf("inhibited by %q although there are too many dependencies", by)
	}
	report, err := b.Explain(t.Context(), event("default", "x/c0"))
	if err != nil || !report.Cut || report.Inhibited || len(report.Dependencies) != 50 {
		t.Errorf("%d dependencies, cut %v, inhibited %v, %v", len(report.Dependencies), report.Cut, report.Inhibited, err)
	}
	if by, ok := b.Inhibited(t.Context(), event("default", "x/c60")); ok {
		t.Errorf("inhibited by %q", by)
	}
	b.failures = b.failingChecks // it reads a state that fails
	if by, ok := b.Inhibited(t.Context(), event("default", "x/c60")); ok {
		t.Errorf("inhibited by %q although nothing can be known", by)
	}
	for answer, want := range map[string]float64{"failed": 2, "not": 1, "inhibited": 0} {
		if n := testutil.ToFloat64(b.Inhibitor.asked.WithLabelValues(answer)); n != want {
			t.Errorf("%v incidents were answered %q, want %v", n, answer, want)
		}
	}
}

// TestNothingIsAskedWithoutDependencies: an event without dependencies costs two look-ups at most.
func TestNothingIsAskedWithoutDependencies(t *testing.T) {
	b := newBench(t)
	b.define("default", "check http: web1/http\ncheck ping: \n")
	ev := event("default", "web1/ping")
	if n := testing.AllocsPerRun(100, func() { b.Inhibited(t.Context(), ev) }); n > 4 {
		t.Errorf("an event without dependencies costs %v allocations", n)
	}
	if _, ok := b.Inhibited(t.Context(), ev); ok || b.asked != 0 {
		t.Errorf("inhibited %v, asked %d times", ok, b.asked)
	}
}

func BenchmarkInhibited(b *testing.B) {
	bench := newBench(b)
	bench.define("default", "check http: sw1/\nentity sw1: r1/ping")
	bench.fails["default"] = []string{"r1/ping"}
	for name, pair := range map[string]string{"without": "web1/ping", "two_levels": "web1/http"} {
		ev := event("default", pair)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				bench.Inhibited(b.Context(), ev)
			}
		})
	}
}
