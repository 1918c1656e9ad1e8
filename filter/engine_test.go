package filter_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// noon is a Wednesday.
var noon = time.Date(2026, 1, 7, 12, 0, 0, 0, time.UTC)

func engine(change func(*filter.Options)) *filter.Engine {
	o := filter.Options{Now: func() time.Time { return noon }, Budget: time.Second, Pool: pool()}
	if change != nil {
		change(&o)
	}
	return filter.New(o)
}

func definition(action string, expressions ...string) *resource.EventFilter {
	return &resource.EventFilter{Metadata: resource.ObjectMeta{Namespace: "default", Name: "f"}, Action: action, Expressions: expressions}
}

func incident() *resource.Event {
	return &resource.Event{
		Timestamp: noon.Unix(), ID: []byte("0123456789abcdef"),
		Metadata: resource.ObjectMeta{Namespace: "default"},
		Entity: &resource.Entity{
			EntityClass: "agent", Subscriptions: []string{"linux"},
			Metadata: resource.ObjectMeta{Name: "web1", Namespace: "default", Labels: map[string]string{"region": "eu", "password": "x", "__proto__": "p"}},
			System:   resource.System{OS: "linux"},
		},
		Check: &resource.Check{
			Metadata: resource.ObjectMeta{Name: "cpu", Namespace: "default", Annotations: map[string]string{"fatigue": "3"}},
			Status:   2, Occurrences: 3, Interval: 60, Output: "CRITICAL", State: "failing", Executed: noon.Unix() - 30,
			History: []resource.CheckHistory{{Status: 0, Executed: 1}, {Status: 2, Executed: 2}},
			Hooks:   []resource.Hook{{HookConfig: resource.HookConfig{Metadata: resource.ObjectMeta{Name: "ps"}, Command: "ps"}, Output: "init"}},
		},
	}
}

func TestExpressions(t *testing.T) {
	e := engine(nil)
	metrics := &resource.Event{Entity: incident().Entity, Metrics: &resource.Metrics{Points: []resource.MetricPoint{{Name: "a", Value: 1.5}}}}
	f := func(ev *resource.Event, expression string, want bool) {
		t.Helper()
		// Both actions, so that an expression that throws is not mistaken for true or false.
		if got := e.Passes(definition("allow", expression), ev); got != want {
			t.Errorf("allow %s: passes is %v", expression, got)
		}
		if got := e.Passes(definition("deny", expression), ev); got == want {
			t.Errorf("deny %s: passes is %v", expression, got)
		}
	}
	for _, expression := range []string{
		`event.check.status == 2`, `event.check.occurrences === 3`, `event.check.occurrences % 3 == 0 || event.is_resolution`,
		`event.check.name == "cpu" && event.entity.name == "web1" && event.namespace == "default"`,
		`event.entity.labels.region == "eu"`, `event.entity.labels["password"] == "REDACTED"`, `event.entity.labels["__proto__"] == "p"`,
		`event.check.annotations.fatigue > 2`, `event.entity.system.os.indexOf("lin") === 0`, `event.entity.subscriptions.indexOf("linux") >= 0`,
		`event.check.metadata === undefined`, `event.metadata === undefined`, `event.metrics === undefined`, `event.check.subdue === undefined`,
		`event.hasOwnProperty("check") && event.check.annotations.hasOwnProperty("fatigue") && !event.check.annotations.hasOwnProperty("other")`,
		`JSON.parse(JSON.stringify(event).replace(/i/g, "_")).check.annotat_ons.fat_gue == "3"`,
		`event.id.length == 16 && event.id[0] == 48`, `event.check.hooks.length == 1 && event.check.hooks[0].name == "ps" && event.check.hooks[0].output == "init"`,
		`event.check.subscriptions.length === 0 && event.check.handlers instanceof Array`, `Object.keys(event.check.labels).length === 0`,
		`event.has_check && !event.has_metrics && event.is_incident && !event.is_resolution && !event.is_silenced`,
		`!event.is_flapping_start && !event.is_flapping_end`,
		`event.check.history[1].status - event.check.history[0].status == 2`, `event.check.history.map(function (h) { return h.status }).join() == "0,2"`,
		`hour(event.timestamp) == 12 && minute(event.timestamp) == 0 && second(event.timestamp) == 0 && weekday(event.timestamp) == 3`,
		`hour() === 0 && weekday() === 0 && seconds_since() === 0`, `seconds_since(event.check.executed) == 30`,
		`typeof sensu == "object" && typeof require == "undefined" && typeof _ == "undefined"`,
		`var a = 1; a == 1`, `let b = 1; b == 1`, `"text"`, `1`, `({})`, `/CRIT/.test(event.check.output)`,
		`JSON.parse(JSON.stringify(event)).check.status == 2`, `"check" in event && !("metrics" in event)`,
		`event.check.status = 7; event.check.status == 7`, `event.other = 1; Object.keys(event).indexOf("other") >= 0`,
		`delete event.check; event.check === undefined`, `console.log("x"); true`, `"ab".repeat(3) == "ababab" && "a".padEnd(2) == "a "`, `Math.max.apply(null, [1, 3]) == 3 && [3, 1].sort()[0] == 1 && Array.from("ab").length == 2`,
		`Object.keys(event.check).indexOf("metadata") < 0 && Object.keys(event.check).indexOf("name") >= 0`,
	} {
		f(incident(), expression, true)
	}
	for _, expression := range []string{`event.check.status == 0`, `0`, `""`, `null`, `undefined`, `event.no_such`, `event.metrics`, `NaN`, `event.check.occurrences == 1 || event.check.occurrences > 3`} {
		f(incident(), expression, false)
	}
	f(metrics, `event.has_metrics && !event.has_check && !event.check && event.metrics.points[0].value == 1.5`, true)
	f(metrics, `event.check && event.check.status == 2`, false)
}

func TestFlapping(t *testing.T) {
	e := engine(nil)
	f := func(state string, before, start, end bool) {
		t.Helper()
		ev := incident()
		ev.Check.State, ev.Check.History[0].Flapping = state, before
		if got := e.Passes(definition("allow", "event.is_flapping_start"), ev); got != start {
			t.Errorf("start is %v", got)
		}
		if got := e.Passes(definition("allow", "event.is_flapping_end"), ev); got != end {
			t.Errorf("end is %v", got)
		}
	}
	f("flapping", false, true, false)
	f("flapping", true, false, false)
	f("failing", true, false, true)
	f("failing", false, false, false)
}

func TestSeveralExpressions(t *testing.T) {
	e := engine(nil)
	f := func(want bool, action string, expressions ...string) {
		t.Helper()
		if got := e.Passes(definition(action, expressions...), incident()); got != want {
			t.Errorf("%s %q: passes is %v", action, expressions, got)
		}
	}
	f(true, "allow", "true", "1 == 1")
	f(false, "allow", "true", "false")
	f(false, "allow", "false", "throw 1")
	f(true, "allow", "throw 1", "true")
	f(false, "allow", "throw 1", "false")
	f(true, "allow", "event.metrics.points[0]") // throws, and is ignored
	f(true, "allow", "event.check.metadata.name == 'cpu'")
	f(true, "allow", ")(")
	f(false, "allow", ")(", "false")
	f(false, "deny", "true")
	f(false, "deny", "false", "true")
	f(true, "deny", "false", "false")
	f(true, "deny", "throw 1")
	f(false, "deny", "throw 1", "true")
	f(true, "allow", "let a = 1; a", "let a = 2; a == 2")
}

func TestWhen(t *testing.T) {
	var now time.Time
	e := engine(func(o *filter.Options) { o.Now = func() time.Time { return now } })
	f := func(days resource.TimeWindowDays, at string, inside bool) {
		t.Helper()
		var err error
		if now, err = time.Parse("Mon 15:04:05", at); err != nil {
			t.Fatal(err)
		}
		// time.Parse gives a weekday no date: 4 January 2026 is a Sunday.
		day := slices.Index([]string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}, at[:3])
		now = time.Date(2026, 1, 4+day, now.Hour(), now.Minute(), now.Second(), 0, time.UTC).In(time.FixedZone("far", 7*3600))
		allow, deny := definition("allow", "true"), definition("deny", "false")
		allow.When = &resource.TimeWindowWhen{Days: days}
		deny.When = allow.When
		if got := e.Passes(allow, incident()); got != inside {
			t.Errorf("%s in %+v: allow passes is %v", at, days, got)
		}
		if got := e.Passes(deny, incident()); got == inside {
			t.Errorf("%s in %+v: deny passes is %v", at, days, got)
		}
	}
	r := func(begin, end string) []resource.TimeWindowTimeRange {
		return []resource.TimeWindowTimeRange{{Begin: begin, End: end}}
	}
	office := resource.TimeWindowDays{All: r("9:00AM", "5:00 PM")}
	f(office, "Wed 08:59:59", false)
	f(office, "Wed 09:00:00", true)
	f(office, "Sun 17:00:00", true)
	f(office, "Sun 17:00:01", false)
	night := resource.TimeWindowDays{Monday: r("10:00 pm", "6:00AM")}
	f(night, "Mon 23:00:00", true)
	f(night, "Mon 05:00:00", true)
	f(night, "Mon 12:00:00", false)
	f(night, "Tue 05:00:00", false) // a window applies to its own day only
	both := resource.TimeWindowDays{All: r("1:00AM", "2:00AM"), Saturday: r("12:00PM", "12:00PM")}
	f(both, "Sat 01:30:00", true)
	f(both, "Sat 12:00:00", true)
	f(both, "Fri 12:00:00", false)
	f(resource.TimeWindowDays{}, "Fri 12:00:00", false)

	for _, action := range []string{"allow", "deny"} {
		def := definition(action, "false", "true") // denies by either action
		def.When = &resource.TimeWindowWhen{Days: resource.TimeWindowDays{All: r("25:00", "5:00PM")}}
		if !e.Passes(def, incident()) {
			t.Errorf("%s: hours that cannot be read deny", action)
		}
	}
	// A deny filter outside its hours goes on to its expressions.
	def := definition("deny", "true")
	def.When = &resource.TimeWindowWhen{}
	if e.Passes(def, incident()) {
		t.Error("outside of its hours a filter that denies is not asked")
	}
}

// TestContained has harmful filters, and evaluates a good one after each.
func TestContained(t *testing.T) {
	var out bytes.Buffer
	registry := prometheus.NewRegistry()
	e := engine(func(o *filter.Options) {
		o.Budget, o.SlowShare, o.Registerer, o.Logger = 10*time.Millisecond, time.Hour, registry, slog.New(slog.NewTextHandler(&out, nil))
	})
	good := definition("allow", "event.check.status == 2")
	for _, expression := range []string{
		"while (true) {}", "for (;;) { try { while (true) {} } catch (e) {} }", "(function f() { return f() })()", "throw new Error('no')", "null.x", "no_such()",
		"var s = 'x'; while (true) s = s + s", "'x'.repeat(1e9)", "'x'.padEnd(1e9)", "var a = []; while (true) a.push(event)",
		"var a = []; a.length = 4e9; a.indexOf(1)", "new Array(4e9).fill(0)", "Array.apply(null, {length: 4e9})", "Array.from({length: 4e9})",
		"[].concat.call({length: 4e9})", "new ArrayBuffer(4e9)", "Reflect.apply(Math.max, null, {length: 4e9})",
		"event = 1; throw event", "hour = null; delete Object.prototype.toString; throw 1",
		"Object.defineProperty(this, 'event', {get: function () { throw 1 }}); event",
	} {
		out.Reset()
		bad := definition("allow", expression)
		for range 2 {
			begin := time.Now()
			if !e.Passes(bad, incident()) {
				t.Errorf("%s: denied", expression)
			}
			if took := time.Since(begin); took > time.Minute {
				t.Errorf("%s took %s", expression, took)
			}
			if !e.Passes(good, incident()) || e.Passes(good, &resource.Event{Check: &resource.Check{}}) {
				t.Errorf("%s spoils another filter", expression)
			}
		}
		if lines := strings.Count(out.String(), "\n"); lines < 1 || lines > 2 {
			t.Errorf("%s: logged %q", expression, out.String())
		}
	}
	if n, err := testutil.GatherAndCount(registry, "lapwing_filter_errors_total"); err != nil || n != 10 {
		t.Errorf("%d reasons, %v", n, err)
	}
}

func TestSuspended(t *testing.T) {
	registry := prometheus.NewRegistry()
	e := engine(func(o *filter.Options) {
		o.Budget, o.SlowShare, o.Registerer = 10*time.Millisecond, 30*time.Millisecond, registry
	})
	bad := definition("allow", "while (true) {}")
	for range 1000 {
		e.Passes(bad, incident())
	}
	// On a busy machine its worker may be killed instead, and the expression is paused.
	if n := count(t, registry, "suspended") + count(t, registry, "aside"); n < 900 {
		t.Errorf("suspended or paused for %v events", n)
	}
	if n := count(t, registry, "timeout") + count(t, registry, "worker"); n < 1 || n > 20 {
		t.Errorf("out of time for %v events", n)
	}
}

// TestUninterruptible has an expression that cannot be interrupted: its worker is killed.
func TestUninterruptible(t *testing.T) {
	registry := prometheus.NewRegistry()
	e := engine(func(o *filter.Options) {
		o.Budget, o.SlowShare, o.Registerer = 10*time.Millisecond, time.Hour, registry
	})
	begin := time.Now()
	if !e.Passes(definition("allow", `/^(a+)+\1$/.test("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab")`), incident()) {
		t.Error("it has an answer")
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("it took %s", took)
	}
	if count(t, registry, "timeout")+count(t, registry, "worker") == 0 {
		t.Error("nothing was out of time")
	}
	if !e.Passes(definition("allow", "event.check.status == 2"), incident()) {
		t.Error("another filter gets no answer")
	}
}

func count(t *testing.T, registry *prometheus.Registry, reason string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "lapwing_filter_errors_total" && m.GetLabel()[0].GetValue() == reason {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// TestNothingStaysBehind has a filter write to its event. Neither the next evaluation nor the caller may see it.
func TestNothingStaysBehind(t *testing.T) {
	e := engine(nil)
	def := definition("allow", `var seen = event.check.status == 2 && event.entity.labels.region == "eu"; event.check.status = 0; event.entity.labels.region = "x"; seen`)
	ev := incident()
	for range 3 {
		if !e.Passes(def, ev) {
			t.Fatal("an expression's writes are seen afterwards")
		}
	}
	if ev.Check.Status != 2 || ev.Entity.Metadata.Labels["region"] != "eu" || ev.Entity.Metadata.Labels["password"] != "x" {
		t.Error("an expression changed the event")
	}
}

func TestKeepAndUseAtTheSameTime(t *testing.T) {
	e := engine(nil)
	one, two := definition("allow", "event.check.status == 2"), definition("deny", "event.check.status == 2")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				if ev := incident(); !e.Passes(one, ev) || e.Passes(two, ev) {
					t.Error("wrong answer")
				}
				e.Keep(slices.Values([]*resource.EventFilter{one}))
			}
		})
	}
	wg.Wait()
}

func FuzzExpression(f *testing.F) {
	for _, s := range []string{`event.check.status == 2`, `hour(event.timestamp) > 8`, `)(`, `let a = 1`, `event.entity.labels["a"]`, `({}).x.y`, `"\u0000"`, `return 1`} {
		f.Add(s)
	}
	e := engine(func(o *filter.Options) { o.Budget = 5 * time.Millisecond })
	ev := incident()
	f.Fuzz(func(t *testing.T, source string) {
		def := definition("allow", source)
		first := e.Passes(def, ev)
		if !first && e.Passes(definition("deny", source, "true"), ev) {
			t.Error("a filter that denies passes what is true")
		}
		e.Keep(func(func(*resource.EventFilter) bool) {})
	})
}

func FuzzWhen(f *testing.F) {
	f.Add("9:00AM", "5:00 pm", int64(0))
	f.Add("", "25:00PM", int64(1700000000))
	e := engine(nil)
	f.Fuzz(func(t *testing.T, begin, end string, _ int64) {
		def := definition("allow", "true")
		def.When = &resource.TimeWindowWhen{Days: resource.TimeWindowDays{All: []resource.TimeWindowTimeRange{{Begin: begin, End: end}}}}
		e.Passes(def, incident())
	})
}

func BenchmarkBuiltin(b *testing.B) {
	facts := filter.Facts{Incident: true}
	b.ReportAllocs()
	for b.Loop() {
		for _, name := range [...]string{"is_incident", "not_silenced", "has_metrics"} {
			if pass, ok := filter.Builtin(name); ok {
				pass(facts)
			}
		}
	}
}

func BenchmarkPasses(b *testing.B) {
	e := filter.New(filter.Options{Pool: pool()})
	ev := incident()
	for i := range 20 {
		ev.Entity.Metadata.Labels[fmt.Sprint("label", i)] = "value"
	}
	for _, expression := range []string{
		`event.check.occurrences == 1`,
		`event.check.occurrences == 1 || event.check.occurrences % (3600 / event.check.interval) == 0`,
		`event.entity.labels.region == "eu" && hour(event.timestamp) >= 9 && hour(event.timestamp) < 17`,
	} {
		b.Run(expression, func(b *testing.B) {
			def := definition("allow", expression)
			b.ReportAllocs()
			for b.Loop() {
				e.Passes(def, ev)
			}
		})
	}
}

func textLog(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
