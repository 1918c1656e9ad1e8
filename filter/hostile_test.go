package filter_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/filter"
)

// greedy are expressions that allocate without end, in each way that turns a little code into much memory.
var greedy = []string{
	`var s = "x"; while (true) s = s + s`,
	`var a = []; while (true) a.push("x".repeat(1 << 20) + a.length)`,
	`var a = []; while (true) a.push([a.length, a.length, a.length])`,
	`var s = "x".repeat(1 << 20), a = []; for (var i = 0; i < 1e5; i++) a.push(s); a.join("").length`,
	`var s = "x".repeat(1 << 20); Array(1e5).join(s).length`,
	`var s = "x".repeat(1 << 20), a = []; for (var i = 0; i < 1e4; i++) a.push(s); String(a).length + ("" + a).length`,
	`var s = "x".repeat(1 << 20), a = []; for (var i = 0; i < 1e4; i++) a.push(s); "".concat.apply("", a).length`,
	`var s = "x".repeat(1 << 20); s.replace(/x/g, s).length`,
	`var s = "x".repeat(1 << 20); s.split("x").join(s).length`,
	`var s = "x".repeat(1 << 20), a = []; for (var i = 0; i < 1e4; i++) a.push(s); JSON.stringify(a).length`,
	`var a = ["x".repeat(1000)]; for (var i = 0; i < 40; i++) a = [a, a, a, a]; JSON.stringify(a).length`,
	`var a = [1]; for (var i = 0; i < 40; i++) a = [a, a, a, a]; a.flat(Infinity).length`,
	`var a = [1]; for (var i = 0; i < 40; i++) a = [a, a, a, a]; a.join().length`,
	`var a = Array(1e5).fill(0), b = Array(1e5).fill(a); [].concat.apply([], b).length + b.flat().length`,
	`[...new Array(4e9)].length`, `Math.max(...new Array(4e9))`, `new Set(new Array(4e9)).size`, `var [...b] = new Array(4e9); b.length`,
	`2n ** 10000000000n`, `"x".repeat(1 << 28).length`, `Object.keys("x".repeat(1 << 20)).map(function (k) { return "x".repeat(1 << 20) + k }).length`,
	`String.raw({raw: Array(1e5)}, "x".repeat(1 << 20)).length`, `JSON.stringify(Array(1e5).fill(event)).length`,
	`var s = "x".repeat(1 << 20); while (true) s = encodeURIComponent(s + "%")`,
	`new RegExp("(" + "a?".repeat(500) + ")" + "a".repeat(500)).test("a".repeat(500))`,
	`var m = new Map(); for (var i = 0; ; i++) m.set(i, "x".repeat(10000) + i)`,
	`sensu.ListEvents()`, `function f() { try { f() } finally { f() } } f()`,
}

// TestGreedy measures how much hostile expressions allocate until they are stopped.
func TestGreedy(t *testing.T) {
	e := engine(func(o *filter.Options) { o.Budget, o.SlowShare = 50*time.Millisecond, time.Hour })
	for _, expression := range greedy {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begin := time.Now()
		passes := e.Passes(definition("allow", expression), incident())
		took := time.Since(begin)
		runtime.ReadMemStats(&after)
		allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
		if testing.Verbose() {
			fmt.Printf("%5d MiB %8s passes=%v %s\n", allocated, took.Round(time.Millisecond), passes, expression)
		}
		if allocated > 512 {
			t.Errorf("%s allocated %d MiB", expression, allocated)
		}
		if took > time.Minute {
			t.Errorf("%s took %s", expression, took)
		}
	}
}
