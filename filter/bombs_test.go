package filter_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/internal/longtest"
)

// bombs kill or block the process that runs them without bounds: goja overflows its stack, Go's runtime runs out of
// memory, or a loop never checks the time.
var bombs = map[string]string{
	"eval":                      `eval('('.repeat(1000000))`,
	"eval of lists":             `eval('['.repeat(1000000))`,
	"indirect eval":             `(0, eval)('('.repeat(1000000))`,
	"Function":                  `Function('('.repeat(1000000))`,
	"new Function":              `new Function('return ' + '['.repeat(1000000))`,
	"constructor":               `(function () {}).constructor('('.repeat(1000000))`,
	"arrow's constructor":       `(() => 1).constructor('('.repeat(1000000))`,
	"class's constructor":       `(class {}).constructor('('.repeat(1000000))`,
	"built-in's constructor":    `hour.constructor('('.repeat(1000000))`,
	"prototype's constructor":   `Object.getPrototypeOf(function () {}).constructor('('.repeat(1000000))`,
	"generator's constructor":   `Object.getPrototypeOf(function* () {}).constructor('('.repeat(1000000))`,
	"async's constructor":       `Object.getPrototypeOf(async function () {}).constructor('('.repeat(1000000))`,
	"async arrow's constructor": `(async () => 1).constructor('('.repeat(1000000))`,
	"BigInt":                    `BigInt(1) << BigInt(8e10)`,
	"BigInt power":              `BigInt(2) ** BigInt(8e10)`,
	"BigInt.asUintN":            `BigInt.asUintN(9e15, BigInt(-1))`,
	"BigInt literal":            `1n << 80000000000n`,
	"String.raw":                `String.raw({raw: {length: 1e15}})`,
	"generator":                 `function* g() { yield* g() } for (var x of g()) {} true`,
	"Promise":                   `function f() { Promise.resolve().then(f) } f(); true`,
	"Proxy":                     `var p = {}; for (var i = 0; i < 3e5; i++) p = new Proxy(p, {}); p.x`,
	"JSON.parse":                `JSON.parse('['.repeat(1000000))`,
	"JSON.stringify":            `var a = []; for (var i = 0; i < 3e5; i++) a = [a]; JSON.stringify(a)`,
	"RegExp":                    `new RegExp('('.repeat(1000000))`,
	"RegExp's constructor":      `/a/.constructor('('.repeat(1000000))`,
	"match":                     `'x'.match('('.repeat(1000000))`,
	"thrown loop":               `throw {toString: function () { while (true) {} }}`,
	"prototypes":                `var o = {}; for (var i = 0; i < 1e6; i++) o = Object.create(o); o.x`,
	"bound functions":           `var f = function () {}; for (var i = 0; i < 1e6; i++) f = f.bind(null); f()`,
	"nesting":                   strings.Repeat("(", 1_000_000),
	"chain":                     strings.Repeat("!", 1_000_000) + "1",
	"sum":                       strings.Repeat("1+", 500_000) + "1",
	"memory":                    `var a = []; while (true) a.push("x".repeat(1 << 20) + a.length)`,
	"doubling":                  `var s = "x"; while (true) s = s + s`,
	"loop":                      `while (true) {}`,
	"regular":                   `/^(a+)+\1$/.test("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab")`,
}

// TestBombs runs each in a filter, a mutator and an entity expression (without the tag long in one of the three), beside an
// innocent filter. With an engine that runs them in its own process, it ends the test.
func TestBombs(t *testing.T) {
	e := engine(func(o *filter.Options) { o.Budget, o.SlowShare = 50*time.Millisecond, time.Hour })
	innocent, ev := definition("allow", "event.check.status == 2"), incident()
	data, err := json.Marshal(ev)
	if err != nil {
		t.Fatal(err)
	}
	beside := func(name, where string) {
		t.Helper()
		if a := e.Ask(t.Context(), innocent, ev); len(a.Asked) != 1 || a.Asked[0].Err != nil || !a.Passes {
			t.Errorf("%s in a %s: an innocent filter says %+v", name, where, a)
		}
	}
	beside("nothing", "filter")
	// Some end by themselves: the engine stops "regular" after a time, which a busy machine may exceed unnoticed.
	harmless := []string{"prototypes", "bound functions", "regular"}
	places := map[string]func(name, bomb string){
		"filter": func(name, bomb string) {
			a := e.Ask(t.Context(), definition("allow", bomb), ev)
			if len(a.Asked) != 1 || a.Asked[0].Err == nil && !slices.Contains(harmless, name) {
				t.Errorf("%s in a filter is asked: %+v", name, a)
			}
		},
		"mutator": func(name, bomb string) {
			_, _, err := e.Mutate(t.Context(), mutator(bomb+"\n;return 'done'"), ev, data)
			if err == nil && !slices.Contains(harmless, name) {
				t.Errorf("%s in a mutator runs", name)
			}
		},
		"check": func(name, bomb string) {
			x, err := filter.CompileEntity(pool(), filter.Definer{Kind: "check", Name: "c"}, bomb)
			if err != nil {
				return
			}
			if _, err = x.Matches(router(), nil); err == nil && !slices.Contains(harmless, name) {
				t.Errorf("%s about an entity has an answer", name)
			}
		},
	}
	all := slices.Sorted(maps.Keys(places))
	for i, name := range slices.Sorted(maps.Keys(bombs)) {
		begin, chosen := time.Now(), all
		if !longtest.Run {
			chosen = all[i%len(all):][:1]
		}
		for _, place := range chosen {
			places[place](name, bombs[name])
			beside(name, place)
		}
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("%s takes %s", name, took)
		}
	}
}

// TestRemoved: functions that cannot be bounded are removed under all their names, so that no worker has to die of
// them.
func TestRemoved(t *testing.T) {
	e := engine(nil)
	for _, name := range []string{"eval", "BigInt", "Proxy", "Promise", "WeakRef", "FinalizationRegistry", "String.raw"} {
		if a := e.Ask(t.Context(), definition("allow", "typeof "+name+` == "undefined"`), incident()); !a.Passes || a.Asked[0].Err != nil {
			t.Errorf("%s is there: %+v", name, a)
		}
	}
	const noFunctions, noGenerators, tooLong = "functions cannot be made of text", "generator or an async function", "longer than 4096 bytes"
	for expression, want := range map[string]string{
		`Function("return 1")()`:                   noFunctions,
		`new Function("a", "return a")(1)`:         noFunctions,
		`(function () {}).constructor("return 1")`: noFunctions,
		`(() => 1).constructor("return 1")`:        noFunctions,
		`hour.constructor("return 1")`:             noFunctions,
		`function* g() { yield 1 } true`:           noGenerators,
		`(async function () {}) && true`:           noGenerators,
		`(async () => 1) && true`:                  "async function",
		`1n == 1`:                                  "BigInt",
		`new RegExp("a".repeat(5000)) && true`:     tooLong,
		`RegExp("a".repeat(5000)) && true`:         tooLong,
		`"x".match("a".repeat(5000)) || true`:      tooLong,
	} {
		a := e.Ask(t.Context(), definition("allow", expression), incident())
		if len(a.Asked) != 1 || a.Asked[0].Err == nil || !strings.Contains(a.Asked[0].Err.Error(), want) {
			t.Errorf("%s: %+v, want an error with %q", expression, a, want)
		}
	}
}

// TestLibrariesStillWork runs what common libraries of filters need.
func TestLibrariesStillWork(t *testing.T) {
	e := engine(nil)
	for _, expression := range []string{
		`Function("return this")().event === event`, `Function('return this;')() === globalThis`, `(function () {}) instanceof Function`,
		`(function () {}).constructor === Function`, `hour instanceof Function`, `typeof Function.prototype.call == "function"`,
		`(function () { return this.x }).call({x: 1}) == 1 && (function (a) { return a }).bind(null, 2)() == 2`,
		`/a/ instanceof RegExp && new RegExp("b") instanceof RegExp && RegExp("c").test("c") && /a/.constructor === RegExp`,
		`new RegExp(/x/g).global && "a1b2".split(/\d/).length == 3 && "aab".replace(/a/g, "") == "b" && "abc".match("b")[0] == "b"`,
		`"a-b".search("-") == 1 && RegExp.prototype.exec.call(/b/, "b")[0] == "b" && Object.prototype.toString.call(/x/) == "[object RegExp]"`,
		`JSON.parse('{"a":[1,{"b":"[[["}]}').a[1].b == "[[["`, `class A { m() { return 1 } } new A().m() == 1`, "`${1 + 1}` == '2'",
	} {
		if a := e.Ask(t.Context(), definition("allow", expression), incident()); !a.Passes || a.Asked[0].Err != nil {
			t.Errorf("%s: %+v", expression, a)
		}
	}
}

// TestThrownTextIsCut throws a megabyte.
func TestThrownTextIsCut(t *testing.T) {
	var out bytes.Buffer
	e := engine(func(o *filter.Options) { o.Logger = textLog(&out) })
	const thrown = `throw "x".repeat(1 << 20)`
	short := func(where string, size int) {
		t.Helper()
		if size == 0 || size > 2048 {
			t.Errorf("%s has %d bytes of it", where, size)
		}
	}
	a := e.Ask(t.Context(), definition("allow", thrown), incident())
	short("the answer", len(a.Asked[0].Err.Error()))
	short("the log", out.Len())
	data, err := json.Marshal(incident())
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = e.Mutate(t.Context(), mutator(thrown), incident(), data)
	short("a mutator's error", len(err.Error()))
	for _, compile := range []func(string) (*filter.EntityExpression, error){
		filter.CompileEntityHere,
		func(s string) (*filter.EntityExpression, error) {
			return filter.CompileEntity(pool(), filter.Definer{Kind: "check"}, s)
		},
	} {
		x, err := compile(thrown)
		if err != nil {
			t.Fatal(err)
		}
		_, err = x.Matches(router(), nil)
		short("an entity's error", len(err.Error()))
	}
}

// deadly kills its worker: it matches repeatedly in one step, which cannot be interrupted.
const deadly = `Array(100).fill(1).map(RegExp.prototype.test.bind(/^(a+)+\1$/, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab")).length`

// TestSetAside has a filter kill workers until it is set aside.
func TestSetAside(t *testing.T) {
	registry := prometheus.NewRegistry()
	p, err := filter.NewPool(filter.PoolOptions{Registerer: registry, MaxPause: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	e := engine(func(o *filter.Options) { o.Pool, o.Budget, o.SlowShare = p, 10*time.Millisecond, time.Hour })
	e.Wait()
	def := definition("allow", "event.check.status == 2", deadly, "event.check.occurrences == 3")
	var last filter.Answer
	// Three deaths are enough, but deaths on a machine too busy to run the worker do not count.
	for begin := time.Now(); len(p.SetAside()) == 0 && time.Since(begin) < time.Minute; {
		last = e.Ask(t.Context(), def, incident())
		if len(last.Asked) != 3 || last.Asked[0].Err != nil && last.Asked[2].Err != nil || !last.Passes {
			t.Fatalf("%+v", last)
		}
	}
	list := p.SetAside()
	if len(list) != 1 || list[0].Source != deadly || list[0].Name != "f" || list[0].Kind != "filter" || list[0].Reason == "" {
		t.Fatalf("set aside: %+v", list)
	}
	begin := total(t, registry, "lapwing_expression_worker_deaths_total")
	last = e.Ask(t.Context(), def, incident())
	for _, a := range last.Asked {
		if aside := a.Err != nil && strings.Contains(a.Err.Error(), "set aside"); aside != (a.Expression == deadly) {
			t.Errorf("%s: %v", a.Expression, a.Err)
		}
	}
	if n := total(t, registry, "lapwing_expression_worker_deaths_total"); n != begin || n < 3 {
		t.Errorf("%v workers died, then %v", begin, n)
	}
	if n := total(t, registry, "lapwing_expression_set_aside"); n != 1 {
		t.Errorf("%v are set aside", n)
	}
	use := &filter.Use{}
	use.Add("mutator", "default", deadly)
	use.Add("filter", "other", deadly)
	if use.Has(list[0]) {
		t.Error("a mutator is taken for a filter, or a filter for that of another namespace")
	}
	if use.Add("filter", "default", deadly); !use.Has(list[0]) {
		t.Error("its definition is not found")
	}
	p.Release(list[0])
	if len(p.SetAside()) != 0 || total(t, registry, "lapwing_expression_set_aside") != 0 {
		t.Error("it is still set aside")
	}
}

func total(t *testing.T, registry *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}
