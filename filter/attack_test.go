package filter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/internal/longtest"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// These are attacks by authors of filters and mutators on shared resources: the runtimes, the workers and the queues.

// in returns a definition of another namespace.
func in(namespace string, def *resource.EventFilter) *resource.EventFilter {
	def.Metadata.Namespace = namespace
	return def
}

// spoilers would change the next evaluation if it used the same runtime.
var spoilers = []string{
	`Object.defineProperty(globalThis, "event", {
		get: function () { return {check: {output: "fake"}} }, set: function () {}, configurable: true})`,
	`Object.defineProperty(globalThis, "event", {value: event, writable: false})`,
	`(function () { return this })().leaked = 1`, `Function("return this")().leaked = 1`, `globalThis.leaked = 1`, `this.leaked = 1`,
	`leaked = 1`, `var leaked = 1`, `var [leaked] = [1]`, `for (leaked in {a: 1}) ;`, `(function () { leaked = 1 })()`,
	`Array.prototype.x = 1`, `Object.prototype.x = 1`, `[].__proto__.x = 1`, `[]["__pro" + "to__"].x = 1`, `[].constructor.prototype.x = 1`,
	`Object.assign(Math, {x: 1})`, `Math.x = 1`, `event.a = Math; event.a.x = 1`, `var m = Math; m.x = 1`, `var {m} = {m: Math}; m.x = 1`,
	`var {__proto__: p} = []; p.push(1)`, `(function ({constructor: c}) { c.prototype.push(1) })([])`,
	`var {["__pro" + "to__"]: p} = []; p.push(1)`,
	`[String].forEach(function (f) { event.a = f; event.a.prototype })
		; [hour].forEach(function (f) { event.a = f }); event.a.x = 1`,
	`var f = Object["ass" + "ign"]; f(Math, {x: 1})`, `[Math].forEach(Object.freeze); leaked = 1`,
	`(0, Object).assign(Math, {x: 1})`, `var O = Object; O.assign(Math, {x: 1})`, `event.a = sensu.FetchEvent; event.a.x = 1`,
	`var s = sensu; event.a = s.FetchEvent; event.a.x = 1`, `Error.captureStackTrace(Math)`, `[Math.x] = [1]`, `for (Math.x of [1]) ;`, `Math.x++`,
	`(class { static { Math.x = 1 } })`, `new (class { constructor() { Math.x = 1 } })()`, `Object["defineProperty"](Math, "x", {value: 1})`,
	`[].push.call(Math, 1)`, `[1].forEach([].push, Math)`, `[1].forEach(function (v) { this.x = v }, Math)`, `Array.prototype.push(1)`,
	`String.prototype.trim = function () { return "fake" }`, `event.check.output.trim.x = 1`, `({}).__defineGetter__("x", function () {})
		; Object.prototype.__defineGetter__("x", function () { return 1 })`, `Reflect.set(Math, "x", 1)`, `hour = null`, `var hour = null`,
	`delete Math.abs`, `Math.abs.x = 1`,
	"Object.setPrototypeOf([].__proto__, {x: 1})", `event.a = hour.valueOf(); event.a.x = 1`,
	`Object.freeze(Object.prototype); leaked = 1`,
}

// clean is true in a runtime that nothing has changed.
const clean = `event.check.output == "CRITICAL" && typeof leaked == "undefined" && [].x === undefined && ({}).x === undefined &&
	Math.x === undefined && Math[0] === undefined && Math.length === undefined && [].length === 0 && [][0] === undefined && " a ".trim() == "a" &&
	"".trim.x === undefined && typeof Math.abs == "function" && Math.abs.x === undefined && hour.x === undefined && hour(3600) == 1 &&
	sensu.FetchEvent.x === undefined && Math.stack === undefined`

// TestSpoiledRuntimes has expressions that change the runtime they run in. The next event must not see the change.
func TestSpoiledRuntimes(t *testing.T) {
	p := startPool(t, filter.PoolOptions{})
	e := engine(func(o *filter.Options) { o.Pool, o.SlowShare = p, time.Hour })
	bad := incident()
	bad.Check.Output = "spoil"
	passes := func(def *resource.EventFilter, when string) {
		t.Helper()
		if a := e.Ask(t.Context(), def, incident()); !a.Passes || a.Asked[0].Err != nil || a.Asked[1].Err != nil {
			t.Errorf("%s %s: %+v", when, def.Expressions[0], a)
		}
	}
	for _, s := range spoilers {
		def := definition("allow", `if (event.check.output == "spoil") { `+s+` }; true`, clean)
		passes(def, "before")
		passes(def, "before") // answered at once now, by the worker that has the runtime
		e.Ask(t.Context(), def, bad)
		passes(def, "after")
		passes(in("other", definition("allow", def.Expressions...)), "elsewhere after")
	}
}

// TestSpoiledMutators has mutators do the same.
func TestSpoiledMutators(t *testing.T) {
	p := startPool(t, filter.PoolOptions{})
	e := engine(func(o *filter.Options) { o.Pool, o.SlowShare = p, time.Hour })
	for _, s := range []string{
		`Array.prototype.x = 1`, `leaked = 1`, `Math.x = 1`, `event.a = Math; event.a.x = 1`,
		`Object.defineProperty(globalThis, "leaked", {value: 1})`,
	} {
		def := mutator(`var seen = typeof leaked + [].x + Math.x; if (event.check.output == "spoil") { ` + s + `; } event.a = 0; return seen`)
		ask := func(output string) string {
			ev := incident()
			ev.Check.Output = output
			data, err := json.Marshal(ev)
			if err != nil {
				t.Fatal(err)
			}
			text, _, err := e.Mutate(t.Context(), def, ev, data)
			if err != nil {
				t.Fatal(s, err)
			}
			return string(text)
		}
		for _, output := range []string{"", "", "spoil", ""} {
			if saw := ask(output); saw != "undefinedundefinedundefined" {
				t.Errorf("%s: with %q it sees %s", s, output, saw)
			}
		}
	}
}

// TestHoardedMemory has a filter that keeps more with each event, 200 MiB in the end. Another filter must not suffer for
// it.
func TestHoardedMemory(t *testing.T) {
	registry := prometheus.NewRegistry()
	p := startPool(t, filter.PoolOptions{Registerer: registry, Memory: 64 << 20})
	e := engine(func(o *filter.Options) { o.Pool, o.SlowShare = p, time.Hour })
	hoards := in("attacker", definition("allow", `kept = typeof kept == "undefined" ? [] : kept; kept.push("x".repeat(4 << 20)); true`))
	innocent := definition("allow", `("y".repeat(1 << 18) + event.check.output).length > 0`)
	for range 50 {
		e.Ask(t.Context(), hoards, incident())
		if a := e.Ask(t.Context(), innocent, incident()); a.Asked[0].Err != nil {
			t.Fatal(a.Asked[0].Err)
		}
	}
	if n := total(t, registry, "lapwing_expression_worker_deaths_total"); n != 0 {
		t.Errorf("%v workers died", n)
	}
}

// TestStoppedWorkers stops workers under an innocent filter again and again. The filter gets its answer from another
// worker, and is not blamed.
func TestStoppedWorkers(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it stops processes")
	}
	p := startPool(t, filter.PoolOptions{MaxPause: time.Millisecond})
	e := engine(func(o *filter.Options) { o.Pool, o.Budget = p, 10*time.Millisecond })
	def := definition("allow", "event.check.status == 2")
	for range 4 {
		e.Ask(t.Context(), def, incident())
		for _, pid := range p.PIDs() {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		}
		if a := e.Ask(t.Context(), def, incident()); !a.Passes || a.Asked[0].Err != nil {
			t.Fatalf("%+v", a)
		}
	}
	if list := p.SetAside(); len(list) != 0 {
		t.Errorf("set aside: %+v", list)
	}
}

// TestOneNamespaceIsSetAside: a filter in one namespace and an asset in another have the same expression, and the first
// namespace's author gets it set aside. Only that namespace's is set aside, until no definition there has it any more.
func TestOneNamespaceIsSetAside(t *testing.T) {
	p := startPool(t, filter.PoolOptions{MaxPause: time.Millisecond})
	source := "entity.name != 'deadly' || " + deadly
	expression := func(namespace string) *filter.EntityExpression {
		x, err := filter.CompileEntity(p, filter.Definer{Kind: "asset", Namespace: namespace, Name: "filters"}, source)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	theirs, ours, host := expression("theirs"), expression("ours"), router()
	host.Metadata.Name = "deadly"
	until(t, "it is set aside", func() bool {
		_, err := theirs.Matches(host, nil)
		return err != nil && strings.Contains(err.Error(), "set aside")
	})
	if truth, err := ours.Matches(router(), nil); !truth || err != nil {
		t.Errorf("in another namespace it is %v, %v", truth, err)
	}
	list, use := p.SetAside(), &filter.Use{}
	if len(list) != 1 || list[0].Namespace != "theirs" {
		t.Fatalf("%+v", list)
	}
	use.Add("asset", "ours", source)
	if use.Has(list[0]) {
		t.Error("a definition of another namespace keeps it aside")
	}
	p.Release(list[0])
	if truth, err := theirs.Matches(router(), nil); !truth || err != nil {
		t.Errorf("after its release it is %v, %v", truth, err)
	}
}

// TestAssetOfAnotherVersion has a filter whose asset is deadly, until there is a new version of the asset.
func TestAssetOfAnotherVersion(t *testing.T) {
	file := filepath.Join(t.TempDir(), "one.js")
	next := filepath.Join(t.TempDir(), "two.js")
	for path, text := range map[string]string{file: "function f() { return " + deadly + " }", next: "function f() { return true }"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := startPool(t, filter.PoolOptions{MaxPause: time.Millisecond})
	e := engine(func(o *filter.Options) {
		o.Pool, o.Budget, o.SlowShare = p, 10*time.Millisecond, time.Hour
		o.Scripts = func(_ context.Context, _ string, names []string) ([]string, error) { return names, nil }
	})
	old, fixed := definition("allow", "f()"), definition("allow", "f()")
	old.RuntimeAssets, fixed.RuntimeAssets = []string{file}, []string{next}
	until(t, "it is set aside", func() bool {
		err := e.Ask(t.Context(), old, incident()).Asked[0].Err
		return err != nil && strings.Contains(err.Error(), "set aside")
	})
	if a := e.Ask(t.Context(), fixed, incident()); !a.Passes || a.Asked[0].Err != nil {
		t.Errorf("with the new version: %+v", a)
	}
}

// TestInnocentsBesideADeath: a formerly quick filter ends the worker that others wait for. The others get their
// answers, and only the deadly source counts its deaths.
func TestInnocentsBesideADeath(t *testing.T) {
	p := startPool(t, filter.PoolOptions{MaxPause: time.Millisecond})
	e := engine(func(o *filter.Options) { o.Pool, o.SlowShare = p, time.Hour })
	e.Wait()
	bad := incident()
	bad.Check.Output = "deadly"
	for round := range longtest.Size(3, 1) {
		turns := in("attacker", definition("allow", fmt.Sprintf("event.check.output != 'deadly' || %s + %d", deadly, round)))
		e.Ask(t.Context(), turns, incident())
		e.Ask(t.Context(), turns, incident())
		var wg sync.WaitGroup
		for n := range 48 {
			def := in(fmt.Sprint("team", n%4), definition("deny", fmt.Sprintf("event.check.status == 2 || %d", n)))
			e.Ask(t.Context(), def, incident())
			wg.Go(func() {
				for range 50 {
					if a := e.Ask(t.Context(), def, incident()); a.Passes || a.Asked[0].Err != nil {
						t.Errorf("filter %d: %+v", n, a)
						return
					}
				}
			})
		}
		for range 3 {
			e.Ask(t.Context(), turns, bad)
		}
		wg.Wait()
	}
	for _, s := range p.SetAside() {
		if s.Namespace != "attacker" {
			t.Errorf("set aside: %+v", s)
		}
	}
}

// nested keeps the runtime's own functions busy with nested lists, each of them short enough.
var nested = []string{
	`r = Array(30000).fill(7); a = Array(90000).fill(r); a.sort()`,
	`r = Array(30000).fill(7); a = Array(90000).fill(r); a.map(String).length`,
	`r = Array(30000).fill(7); a = Array(90000).fill(r); a.toLocaleString().length`,
	`r = Array(30000).fill(7); a = Array(90000).fill(r); a.map(Function.prototype.call.bind(Array.prototype.join)).length`,
	`r = Array(30000).fill(7); a = Array(90000).fill(r); a.map(Function.prototype.call.bind(Array.prototype.concat)).length`,
	`r = Array(300).fill(7); r = Array(300).fill(r); a = Array(90000).fill(r);
		a.map(Function.prototype.call.bind(Array.prototype.flat)).length`,
	`r = Array(90000).fill(7); a = Array(90000).fill(r); a.map(Function.prototype.call.bind(Array.prototype.toString)).length`,
	`s = "x".repeat(1 << 19); a = []; for (i = 0; i < 90000; i++) a.push(i % 2 ? s + "a" : s + "b"); a.sort()`,
	`s = "x".repeat(1 << 19); x = s + "a", y = s + "b"; a = Array(90000).fill(x); for (i = 0; i < 90000; i += 2) a[i] = y; a.sort().length`,
	`s = "x".repeat(1 << 19); Array(90000).fill(s + "a").indexOf(s + "b")`,
	`r = Array(30000).fill(7); a = Array(90000).fill(r); a.sort(Array.prototype.join.call.bind(Array.prototype.join))`,
	`n = 0; [].indexOf.call({get length() { return n++ > 0 ? 4e9 : 1 }}, 1)`,
	`n = 0; [].join.call({length: {valueOf: function () { return n++ > 0 ? 4e9 : 1 }}})`,
	`s = "x".repeat(1 << 19); new Set(Array(90000).fill(s)).size`,
}

// TestNestedListsAreInterrupted: no worker dies of them, because they end when their time is up.
func TestNestedListsAreInterrupted(t *testing.T) {
	registry := prometheus.NewRegistry()
	p := startPool(t, filter.PoolOptions{Registerer: registry, MaxPause: time.Millisecond})
	e := engine(func(o *filter.Options) { o.Pool, o.Budget, o.SlowShare = p, 200*time.Millisecond, time.Hour })
	for _, expression := range nested {
		a := e.Ask(t.Context(), definition("allow", expression+"; false"), incident())
		if !a.Passes || len(a.Asked) != 1 || a.Asked[0].Err == nil {
			t.Errorf("%s: %+v", expression, a)
		}
		if n := total(t, registry, "lapwing_expression_worker_deaths_total"); n != 0 {
			t.Fatalf("a worker died of %s: %v", expression, a.Asked[0].Err)
		}
	}
}

// TestLongRunsLeaveTheQuickLane: a formerly quick filter takes long. The worker of the quick lane gives it up at once,
// and it is asked again in a slow lane.
func TestLongRunsLeaveTheQuickLane(t *testing.T) {
	registry := prometheus.NewRegistry()
	p := startPool(t, filter.PoolOptions{Registerer: registry})
	e := engine(func(o *filter.Options) { o.Pool, o.Budget, o.SlowShare = p, 50*time.Millisecond, time.Hour })
	def := definition("allow", "if (event.check.output == 'long') while (true) {}; event.check.status == 2", "event.check.status == 2")
	long := incident()
	long.Check.Output = "long"
	ask := func(ev *resource.Event, questions float64) filter.Answer {
		t.Helper()
		before := total(t, registry, "lapwing_expression_questions_total")
		a := e.Ask(t.Context(), def, ev)
		if n := total(t, registry, "lapwing_expression_questions_total") - before; n != questions {
			t.Errorf("%v questions, not %v", n, questions)
		}
		if len(a.Asked) != 2 || a.Asked[1].Err != nil || !a.Passes {
			t.Errorf("%+v", a)
		}
		return a
	}
	ask(incident(), 1)
	ask(incident(), 1)
	if a := ask(long, 2); a.Asked[0].Err == nil || a.Asked[0].Err.Error() != "it takes too long" {
		t.Errorf("%+v", a)
	}
	ask(long, 1) // it avoids the quick lane now
}

// TestManyExpressionsTakeTurns has a filter whose expressions take more time than one question has.
func TestManyExpressionsTakeTurns(t *testing.T) {
	registry := prometheus.NewRegistry()
	p := startPool(t, filter.PoolOptions{Registerer: registry})
	e := engine(func(o *filter.Options) { o.Pool, o.Budget, o.SlowShare = p, 10*time.Millisecond, time.Hour })
	expressions := make([]string, 20)
	for i := range expressions {
		expressions[i] = fmt.Sprintf("while (true) {} %d", i)
	}
	a := e.Ask(t.Context(), definition("deny", append(expressions, "event.check.status == 2")...), incident())
	if len(a.Asked) != 21 || a.Passes || !a.Asked[20].Denies {
		t.Errorf("%d were asked, it passes: %v", len(a.Asked), a.Passes)
	}
	if n := total(t, registry, "lapwing_expression_questions_total"); n < 5 {
		t.Errorf("it took %v questions", n)
	}
}

// TestFairLanes has authors of one namespace fill the lanes with new filters that never end and new filters that kill
// workers. New filters of other namespaces must all be answered.
func TestFairLanes(t *testing.T) {
	for name, attack := range map[string]string{"endless": "while (true) {} %d", "deadly": deadly + " + %d"} {
		t.Run(name, func(t *testing.T) {
			p := startPool(t, filter.PoolOptions{})
			e := engine(func(o *filter.Options) { o.Pool, o.Budget, o.SlowShare = p, 100*time.Millisecond, time.Hour })
			e.Wait()
			ctx, end := context.WithCancel(t.Context())
			var attackers, victims sync.WaitGroup
			for n := range 12 {
				attackers.Go(func() {
					for i := 0; ctx.Err() == nil; i++ {
						e.Ask(ctx, in("attacker", definition("allow", fmt.Sprintf(attack, 1000*n+i))), incident())
					}
				})
			}
			until(t, "workers run the attack", func() bool { return len(p.PIDs()) > 1 })
			for n := range 36 {
				victims.Go(func() {
					def := in(fmt.Sprint("team", n%6), definition("deny", fmt.Sprintf("event.check.status == 2 || %d", n)))
					if a := e.Ask(t.Context(), def, incident()); a.Passes || a.Asked[0].Err != nil {
						t.Errorf("filter %d is bypassed: %+v", n, a)
					}
				})
			}
			victims.Wait()
			end()
			attackers.Wait()
		})
	}
}

// TestLongMutators has a mutator with a timeout of ten minutes. Other mutators run in the meantime, and it is stopped
// much earlier.
func TestLongMutators(t *testing.T) {
	p := startPool(t, filter.PoolOptions{})
	e := engine(func(o *filter.Options) { o.Pool = p })
	data, err := json.Marshal(incident())
	if err != nil {
		t.Fatal(err)
	}
	long := mutator("while (true) {}")
	long.Metadata.Namespace, long.Timeout = "attacker", 600
	begin, ended := time.Now(), make(chan error, 1)
	go func() {
		_, _, err := e.Mutate(t.Context(), long, incident(), data)
		ended <- err
	}()
	until(t, "it runs", func() bool { return len(p.PIDs()) == 2 })
	text, _, err := e.Mutate(t.Context(), mutator("return 'done'"), incident(), data)
	if err != nil || string(text) != "done" {
		t.Errorf("%q, %v", text, err)
	}
	if err := <-ended; err == nil {
		t.Error("it has an end")
	}
	if took := time.Since(begin); took > 2*time.Minute {
		t.Errorf("it took %s", took)
	}
}
