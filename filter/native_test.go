package filter_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestFatigueCheck(t *testing.T) {
	t.Parallel()
	f := func(want bool, change func(ev *resource.Event)) {
		t.Helper()
		ev := incident()
		ev.Check.Occurrences, ev.Check.OccurrencesWatermark, ev.Check.Metadata.Annotations = 1, 1, nil
		change(ev)
		native, ok := filter.NativeFilter("fatigue_check")
		if got := native.Passes(ev, "h"); !ok || got != want {
			t.Errorf("passes is %v; saw %v", got, native.Saw(ev, "h"))
		}
	}
	check := func(pairs ...string) func(*resource.Event) {
		return func(ev *resource.Event) {
			ev.Check.Metadata.Annotations = map[string]string{}
			for i := 0; i < len(pairs); i += 2 {
				ev.Check.Metadata.Annotations["fatigue_check/"+pairs[i]] = pairs[i+1]
			}
		}
	}
	occurrences := func(n int64, more ...func(*resource.Event)) func(*resource.Event) {
		return func(ev *resource.Event) {
			ev.Check.Occurrences, ev.Check.OccurrencesWatermark = n, n
			for _, m := range more {
				m(ev)
			}
		}
	}
	resolved := func(watermark int64, more ...func(*resource.Event)) func(*resource.Event) {
		return func(ev *resource.Event) {
			ev.Check.Status, ev.Check.Occurrences, ev.Check.OccurrencesWatermark = 0, 1, watermark
			ev.Check.History = []resource.CheckHistory{{Status: 2}, {Status: 0}}
			for _, m := range more {
				m(ev)
			}
		}
	}
	f(true, occurrences(1))
	f(false, occurrences(2))
	f(false, occurrences(29))
	f(true, occurrences(30)) // 1800 s of 60 s each
	f(true, occurrences(60))
	f(false, occurrences(2, check("occurrences", "3")))
	f(true, occurrences(3, check("occurrences", "3 ")))
	f(false, occurrences(1, check("occurrences", "3")))
	f(true, occurrences(6, check("occurrences", "3", "interval", "180")))
	f(true, occurrences(8, check("interval", "450"))) // rounded up
	f(false, occurrences(9, check("interval", "450")))
	f(false, occurrences(5, check("interval", "0")))
	f(false, occurrences(5, func(ev *resource.Event) { ev.Check.Interval = 0 }))
	f(false, occurrences(1, func(ev *resource.Event) { ev.Check.State = "flapping" }))
	f(true, occurrences(1, func(ev *resource.Event) { ev.Check.State = "flapping" }, check("suppress_flapping", "False")))
	f(true, resolved(1))
	f(true, resolved(3, check("occurrences", "3")))
	f(false, resolved(2, check("occurrences", "3")))
	f(false, resolved(3, check("allow_resolution", "false")))
	f(true, resolved(3, check("allow_resolution", "no")))
	entity := func(pairs ...string) func(*resource.Event) {
		return func(ev *resource.Event) {
			ev.Entity.Metadata.Annotations = map[string]string{}
			for i := 0; i < len(pairs); i += 2 {
				ev.Entity.Metadata.Annotations["fatigue_check/"+pairs[i]] = pairs[i+1]
			}
		}
	}
	f(true, occurrences(2, check("occurrences", "5"), entity("occurrences", "2"))) // the entity's count
	keepalive := func(ev *resource.Event) { ev.Check.Metadata.Name = "keepalive" }
	f(true, occurrences(1, keepalive, entity("occurrences", "5")))
	f(true, occurrences(2, keepalive, entity("keepalive_occurrences", "2")))
	f(false, occurrences(1, keepalive, entity("keepalive_occurrences", "2")))
	f(true, resolved(2, keepalive, entity("keepalive_occurrences", "2", "occurrences", "9")))
	f(true, func(ev *resource.Event) { ev.Check = nil })
}

func TestAllowList(t *testing.T) {
	t.Parallel()
	f := func(check, entity, handler string, want bool) {
		t.Helper()
		ev := incident()
		if check != "-" {
			ev.Check.Metadata.Annotations = map[string]string{"allow_list/handlers": check}
		}
		if entity != "-" {
			ev.Entity.Metadata.Annotations = map[string]string{"allow_list/handlers": entity}
		}
		native, _ := filter.NativeFilter("allow_list")
		if got := native.Passes(ev, handler); got != want {
			t.Errorf("%q, %q, %s: passes is %v; saw %v", check, entity, handler, got, native.Saw(ev, handler))
		}
	}
	f("-", "-", "slack", true)
	f("slack", "-", "slack", true)
	f("slack, mail", "-", "mail", true)
	f("slack", "-", "mail", false)
	f("", "-", "mail", false)
	f("page-*", "-", "page-db", true)
	f("[", "-", "page-db", false)
	f("slack,mail", "mail", "slack", false)
	f("-", "mail", "mail", true)
}

// stored answers look-ups.
type stored map[string]*resource.Event

func (s stored) Event(namespace, entity, check string) (*resource.Event, error) {
	if ev, ok := s[namespace+"/"+entity+"/"+check]; ok {
		return ev, nil
	}
	return nil, errors.New("there is none")
}

func (s stored) Events(namespace, _, _ string, limit int) (events []*resource.Event, next string, err error) {
	for name, ev := range s {
		if strings.HasPrefix(name, namespace+"/") {
			if len(events) == limit {
				return events, "more", nil
			}
			events = append(events, ev)
		}
	}
	return events, "", nil
}

func TestLookUps(t *testing.T) {
	t.Parallel()
	other := func(status uint32) *resource.Event {
		ev := incident()
		ev.Check.Status = status
		return ev
	}
	events := stored{"default/web1/disk": other(0), "default/db1/cpu": other(1), "secret/db1/disk": other(0)}
	e := engine(func(o *filter.Options) { o.Events = events })
	f := func(expression string, want bool) {
		t.Helper()
		for _, action := range []string{"allow", "deny"} {
			if got := e.Passes(definition(action, expression), incident()); got != (want == (action == "allow")) {
				t.Errorf("%s %s: passes is %v", action, expression, got)
			}
		}
	}
	throws := func(expression string) {
		t.Helper()
		f(`var thrown = false; try { `+expression+` } catch (e) { thrown = true }; thrown`, true)
	}
	f(`sensu.FetchEvent("web1", "disk").check.status == 0`, true)
	f(`sensu.FetchEvent("db1", "cpu").check.status == 1`, true)
	f(`sensu.CheckDependencies("disk")`, true)
	f(`sensu.CheckDependencies()`, true)
	f(`sensu.CheckDependencies("disk", {entity: "db1", check: "cpu"})`, false)
	f(`sensu.CheckDependencies([{entity: "db1", check: "cpu"}])`, false)
	f(`sensu.CheckDependencies(["disk"], "disk")`, true)
	f(`sensu.EventStatus("disk", {entity: "db1", check: "cpu"}).join() == "0,1"`, true)
	f(`sensu.EventStatus().length == 0`, true)
	f(`sensu.ListEvents().length == 2 && sensu.ListEvents()[0].has_check`, true)
	throws(`sensu.FetchEvent("db1", "disk")`) // of another namespace
	throws(`sensu.CheckDependencies("no_such")`)
	throws(`for (var i = 0; i < 101; i++) sensu.FetchEvent("web1", "disk")`)
	many := stored{}
	for i := range 1001 {
		many["default/"+strings.Repeat("x", i)] = incident()
	}
	e = engine(func(o *filter.Options) { o.Events = many })
	throws(`sensu.ListEvents()`)
	e = engine(nil)
	throws(`sensu.FetchEvent("web1", "disk")`)
}

// TestErrorsNameNoGoFunctions: errors that users read have the names of scripts and none of the program.
func TestErrorsNameNoGoFunctions(t *testing.T) {
	t.Parallel()
	e := engine(func(o *filter.Options) { o.Events = stored{} })
	look := func(script string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: no error", script)
			return
		}
		for _, part := range []string{"github.com", ".go", "(*", ".func", "sandbox"} {
			if strings.Contains(err.Error(), part) {
				t.Errorf("%s: the error shows %q: %v", script, part, err)
			}
		}
	}
	for _, script := range []string{
		`sensu.FetchEvent("web1", "no_such")`, `sensu.CheckDependencies("no_such")`, `sensu.CheckStatus({entity: "a", check: "b"})`,
		`[1].map(function () { return sensu.EventStatus("no_such") })`, `"a".repeat(1e9)`, `"a".padEnd(1e9)`, `new RegExp("a".repeat(1e6))`,
		`new Function("return 1")`, `[2, 1].sort(function () { throw new Error("x") })`, `hour({valueOf: function () { throw new Error("x") }})`,
		`seconds_since({valueOf: function () { throw new Error("x") }})`, `[1].join({toString: function () { throw new Error("x") }})`,
		`try { sensu.FetchEvent("web1", "no_such") } catch (thrown) { throw thrown.stack }`,
		`throw [hour, minute, seconds_since, console.log, sensu.FetchEvent, [].sort, [].join, JSON.parse].map(function (f) { return f.name }).join()`,
		`throw Function("return this").name`,
	} {
		look(script, e.Ask(t.Context(), definition("allow", script), incident()).Asked[0].Err)
		_, _, err := e.Mutate(t.Context(), mutator(script), incident(), []byte("{}"))
		look("mutator: "+script, err)
	}
	err := e.Ask(t.Context(), definition("allow", `sensu.FetchEvent("web1", "no_such")`), incident()).Asked[0].Err
	if want := "FetchEvent: event web1/no_such: there is none at FetchEvent (native)"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestWhatFiltersSaw(t *testing.T) {
	t.Parallel()
	e := engine(func(o *filter.Options) { o.Events = stored{"default/db1/cpu": incident()} })
	f := func(expression string, want ...string) {
		t.Helper()
		ev := incident()
		ev.Check.Output = strings.Repeat("é", 300)
		ev.Check.EnvVars = []string{"DB_PASSWORD=s3cret", "RACK=r1"}
		answer := e.Ask(t.Context(), definition("allow", expression), ev)
		var got []string
		for _, v := range answer.Asked[0].Saw {
			got = append(got, v.Name+"="+v.Value)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: saw %q, want %q", expression, got, want)
		}
	}
	f(`event.check.occurrences == 1 || event.check.occurrences % (3600 / event.check.interval) == 0`, "event.check.occurrences=3", "event.check.interval=60")
	f(`event.entity.labels["region"] == "eu" && hour(event.timestamp) > 3`, "event.entity.labels.region=eu", "event.timestamp=1767787200")
	f(`event.entity.labels.password == "x" && event.is_incident`, "event.entity.labels.password=REDACTED", "event.is_incident=true")
	f(`event.entity.subscriptions.indexOf("linux") >= 0`, "event.entity.subscriptions=[linux]")
	f(`event.check.history[1].status == 2 && event.check.hooks.length`, "event.check.history.1.status=2", "event.check.hooks.length=1")
	f(`event.check.output.length > 3`, "event.check.output.length=600")
	f(`/a/.test(event.check.output)`, "event.check.output="+strings.Repeat("é", 100)+"…")
	f(`event.check.env_vars.indexOf("DB_PASSWORD=s3cret") < 0`, "event.check.env_vars=[DB_PASSWORD=REDACTED, RACK=r1]")
	f(`event.check.env_vars[0] == "x"`, "event.check.env_vars.0=DB_PASSWORD=REDACTED")
	f(`event.no.such == 1`, "event.no.such=undefined")
	f(`sensu.FetchEvent("db1", "cpu").check.status == 2`, `sensu.FetchEvent("db1", "cpu")=status 2`)
	f(`(function (e) { return e.check })(event)`)
	f(`event.check.status = 0; event.check.status == 0`, "event.check.status=2")
	variables := incident()
	variables.Check.EnvVars = []string{"DB_PASSWORD=s3cret", "RACK=r1"}
	hides := definition("allow", `event.check.env_vars.indexOf("DB_PASSWORD=s3cret") < 0 && event.check.env_vars.indexOf("RACK=r1") == 1`)
	if answer := e.Ask(t.Context(), hides, variables); !answer.Passes {
		t.Error("an expression sees a secret of the check")
	}
	answer := e.Ask(t.Context(), definition("allow", "event.check.status == 2", "throw 1", "event.check.status == 1", "true"), incident())
	if answer.Passes || len(answer.Asked) != 3 || answer.Asked[0].Denies || answer.Asked[1].Err == nil || !answer.Asked[2].Denies {
		t.Errorf("%+v", answer)
	}
}

func TestAssets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, bad := write("good.js", "function twice(n) { return 2 * n }"), write("bad.js", ")(")
	endless, throws := write("endless.js", "while (true) {}"), write("throws.js", "var before = 1; throw 1")
	sets := map[string][]string{"good": {good}, "all": {bad, throws, endless, good}}
	e := engine(func(o *filter.Options) {
		o.Scripts = func(_ context.Context, namespace string, names []string) ([]string, error) {
			if set, ok := sets[names[0]]; ok && namespace == "default" {
				return set, nil
			}
			return nil, errors.New("there is no such asset")
		}
	})
	f := func(asset string, want bool) {
		t.Helper()
		def := definition("allow", "twice(event.check.status) == 4 && twice(2) == 4", "twice(1) == 3")
		def.RuntimeAssets = []string{asset}
		for range 3 {
			if got := e.Passes(def, incident()); got != want {
				t.Errorf("%s: passes is %v", asset, got)
			}
		}
	}
	f("good", false)
	f("all", false)
	f("none", true) // twice is not there: both throw
}

func mutator(eval string, change ...func(*resource.Mutator)) *resource.Mutator {
	m := &resource.Mutator{Metadata: resource.ObjectMeta{Name: "m", Namespace: "default"}, Type: "javascript", Eval: eval}
	for _, c := range change {
		c(m)
	}
	return m
}

func TestMutate(t *testing.T) {
	t.Parallel()
	e := engine(nil)
	mutate := func(def *resource.Mutator) (string, *resource.Event, error) {
		ev := incident()
		data, err := ev.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		text, changed, err := e.Mutate(t.Context(), def, ev, data)
		return string(text), changed, err
	}
	returns := func(eval, want string) {
		t.Helper()
		def := mutator(eval)
		def.EnvVars = []string{"FOO=bar=baz"}
		for range 2 {
			if got, changed, err := mutate(def); got != want || err != nil || changed != nil {
				t.Errorf("%s: %q, %v", eval, got, err)
			}
		}
	}
	returns(`return "text"`, "text")
	returns(`return FOO`, "bar=baz")
	returns(`return event.check.name + event.check.metadata.name + event.entity.labels.region + event.entity.metadata.labels.password`, "cpucpueuREDACTED")
	returns(`return "" + event.check.handlers.length + typeof event.metrics + event.check.labels.x`, "0undefinedundefined")
	returns(`return JSON.stringify(event.check.status) // a comment`, "2")
	returns(`return JSON.parse(JSON.stringify(event)).check.metadata.name`, "cpu")
	returns(`return Object.keys(JSON.parse(JSON.stringify(event))).indexOf("name") + ""`, "-1")
	returns(`return "" + hour(event.timestamp)`, "12")

	leaves := func(eval string, fits func(ev *resource.Event) bool) {
		t.Helper()
		if text, ev, err := mutate(mutator(eval)); err != nil || ev == nil || text != "" || !fits(ev) {
			t.Errorf("%s: %q, %+v, %v", eval, text, ev, err)
		}
	}
	leaves(``, func(ev *resource.Event) bool {
		return ev.Check.Status == 2 && string(ev.ID) == "0123456789abcdef" && ev.Check.Subscriptions == nil && len(ev.Check.Hooks) == 1
	})
	leaves(`event.check.output = "changed"; event.check.labels.x = "y"; event.check.name = "other"; event.check.nosuch = 1; return null`, func(ev *resource.Event) bool {
		return ev.Check.Output == "changed" && ev.Check.Metadata.Labels["x"] == "y" && ev.Check.Metadata.Name == "other" && ev.Check.Metadata.Namespace == "default"
	})
	leaves(`event.entity.labels = {a: "b"}; event.check.handlers.push("more"); delete event.check.output`, func(ev *resource.Event) bool {
		return len(ev.Entity.Metadata.Labels) == 1 && ev.Check.Handlers[0] == "more" && ev.Check.Output == ""
	})
	leaves(`event.check = {name: "z", status: 3}`, func(ev *resource.Event) bool {
		return ev.Check.Metadata.Name == "z" && ev.Check.Status == 3 && ev.Check.Interval == 0
	})
	leaves(`delete event.check`, func(ev *resource.Event) bool { return ev.Check == nil })

	for _, eval := range []string{
		`return 5`, `return {}`, `throw 1`, `while (true) {}`, `)(`, `event.check.status = "abc"`, `event.check.handlers = 5`, `event = 3`, `event = null`,
		`return "x".repeat(1e9)`, `event.check.output = Array(1e5).join("x".repeat(1 << 20))`, `delete event.metadata; event.toJSON = function () { return 1 }`,
	} {
		def := mutator(eval)
		begin := time.Now()
		if text, ev, err := mutate(def); err == nil {
			t.Errorf("%s: %q, %+v", eval, text, ev)
		}
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("%s took %s", eval, took)
		}
	}
	if text, _, err := mutate(mutator(`return "still"`)); text != "still" || err != nil {
		t.Errorf("after all that: %q, %v", text, err)
	}
	onlyMetrics := &resource.Event{Entity: incident().Entity, Metrics: &resource.Metrics{Points: []resource.MetricPoint{{Name: "a", Value: 1}}}}
	data, err := onlyMetrics.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	text, _, err := e.Mutate(t.Context(), mutator(`return typeof event.check + event.metrics.points[0].name`), onlyMetrics, data)
	if string(text) != "undefineda" || err != nil {
		t.Errorf("metrics only: %q, %v", text, err)
	}
}
