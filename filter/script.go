package filter

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlclark/regexp2/v2"
	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/parser"

	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	// maxStack bounds the depth of function calls.
	maxStack = 256
	// maxLength bounds a list for a function that iterates over it.
	maxLength = 100_000
	// maxCompared bounds the characters that a function may compare when it searches a list for a text.
	maxCompared = 64 << 20
	// maxText bounds the text that one call of a function may make or split.
	maxText = 1 << 20
	// maxMemory bounds the process's allocations while an expression runs that takes longer than watched. Nothing else
	// in a worker or an agent allocates so fast, so the expression is to blame.
	maxMemory = 64 << 20
	// allocating is the least CPU time in which a program can allocate maxMemory.
	allocating = 4 * time.Millisecond
	// watched is the time until the first check of a running expression, and lookEvery the time between later checks.
	watched, lookEvery = 2 * time.Millisecond, time.Millisecond
	// busyFactor is how much longer than its budget a program may take on a machine too busy to run it, up to busyTime.
	busyFactor, busyTime = 10, 2 * time.Second
	// maxMatch bounds a regular expression with backtracking. It cannot be interrupted.
	maxMatch = 250 * time.Millisecond
)

var (
	errSyntax    = errors.New("read it")
	errTimeout   = errors.New("it takes too long")
	errMemory    = errors.New("it allocates too much memory")
	errSuspended = errors.New("it took too long too often, and is not asked for the rest of the minute")
)

// script is a parsed expression.
type script struct {
	source  string
	program *goja.Program
	err     error // the reason if there is no program
	// single says that a runtime can run it only once: it declares names that cannot be declared again.
	single bool
	spoil
	looks []look // members of the event in its text
}

func compile(name, source string, limit int) script {
	limitMatches() // regular expressions are compiled with the script
	s := script{source: source}
	var tree *ast.Program
	err := scan(source)
	if len(source) > limit {
		err = fmt.Errorf("it is longer than %d bytes", limit)
	}
	if err == nil {
		tree, err = parser.ParseFile(nil, name, source, 0, parser.WithDisableSourceMaps)
	}
	if err == nil {
		err = unbounded(tree)
	}
	if err == nil {
		s.looks, s.spoil = looksOf(tree), spoilOf(tree)
		s.program, err = goja.CompileAST(tree, false)
	}
	if err != nil {
		s.err = fmt.Errorf("%w: %w", errSyntax, err)
		return s
	}
	for _, statement := range tree.Body {
		switch statement.(type) {
		case *ast.LexicalDeclaration, *ast.ClassDeclaration:
			s.single = true
		}
	}
	return s
}

// sandbox is a runtime with the environment for expressions. It serves one goroutine at a time.
type sandbox struct {
	vm    *goja.Runtime
	spent bool     // it must not be used again
	names []string // variables that scripts of its definition declare
	taken bool     // one of the names existed before

	halted   atomic.Pointer[error] // why the running program must end
	describe goja.Callable         // Object.getOwnPropertyDescriptor

	now int64 // Unix seconds, for seconds_since

	// What the functions of sensu use; see lookup.go.
	events  Events
	current *resource.Event
	asked   int     // number of events looked up
	answers []Value // the results, for the trace
}

// limitMatches applies to all runtimes: the package has only one setting.
var limitMatches = sync.OnceFunc(func() { regexp2.DefaultMatchTimeout = maxMatch })

func newSandbox() *sandbox {
	vm := goja.New()
	box := &sandbox{vm: vm}
	vm.SetMaxCallStackSize(maxStack)
	set := func(name string, value goja.Value) {
		if err := vm.Set(name, value); err != nil {
			panic(err) // a new runtime accepts every global
		}
	}
	for name, of := range map[string]func(time.Time) int{
		"hour": time.Time.Hour, "minute": time.Time.Minute, "second": time.Time.Second,
		"weekday": func(t time.Time) int { return int(t.Weekday()) },
	} {
		set(name, function(vm, name, func(call goja.FunctionCall) goja.Value {
			if len(call.Arguments) == 0 {
				return vm.ToValue(0)
			}
			return vm.ToValue(of(time.Unix(call.Arguments[0].ToInteger(), 0).UTC()))
		}))
	}
	set("seconds_since", function(vm, "seconds_since", func(call goja.FunctionCall) goja.Value {
		if len(call.Arguments) == 0 {
			return vm.ToValue(0)
		}
		return vm.ToValue(box.now - call.Arguments[0].ToInteger())
	}))
	set("in_calendar", function(vm, "in_calendar", box.inCalendar))
	set("sensu", box.functions())
	set("console", vm.ToValue(map[string]any{
		"log": function(vm, "log", func(goja.FunctionCall) goja.Value { return goja.Undefined() }),
	}))
	box.describe, _ = goja.AssertFunction(vm.Get("Object").ToObject(vm).Get("getOwnPropertyDescriptor"))
	for _, name := range []string{"repeat", "padStart", "padEnd"} {
		box.limitText(name)
	}
	box.limitLists()
	box.limitSorts()
	box.limitTexts()
	box.restrict()
	return box
}

// function makes a function for scripts. Without a name the runtime would use the Go function's name, and show it in
// errors.
func function(vm *goja.Runtime, name string, f func(goja.FunctionCall) goja.Value) *goja.Object {
	made := vm.ToValue(f).ToObject(vm)
	if err := made.DefineDataProperty("name", vm.ToValue(name), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE); err != nil {
		panic(err) // a new function accepts it
	}
	return made
}

// event sets the event for the next expressions.
func (s *sandbox) event(ev *resource.Event) error {
	s.current = ev
	return s.vm.Set("event", newObject(s.vm, ev))
}

// forget releases the event's memory.
func (s *sandbox) forget() {
	s.current, s.answers = nil, nil
	if err := s.vm.Set("event", goja.Undefined()); err != nil {
		s.spent = true
	}
}

// run runs a script and reports whether its value counts as true.
func (s *sandbox) run(sc *script, budget time.Duration) (truth bool, err error) {
	s.asked, s.answers = 0, nil
	value, err := s.value(sc.program, budget)
	s.spent = s.spent || sc.single || sc.spoils
	if err != nil {
		return false, err
	}
	return value.ToBoolean(), nil
}

// value returns a program's value.
func (s *sandbox) value(program *goja.Program, budget time.Duration) (goja.Value, error) {
	return s.watched(budget, func() (goja.Value, error) { return s.vm.RunProgram(program) })
}

// watched runs f in the runtime within a budget of CPU time. Formatting an exception counts too: that may run a script
// again.
func (s *sandbox) watched(budget time.Duration, do func() (goja.Value, error)) (value goja.Value, err error) {
	runtime.LockOSThread() // the thread's time is measured
	defer runtime.UnlockOSThread()
	s.halted.Store(nil)
	w := &watch{of: s, budget: budget, begin: time.Now(), thread: threadID()}
	timer := w.start()
	defer func() {
		if !timer.Stop() {
			s.spent = true // the interruption may still come
		}
		w.over.Store(true)
		if p := recover(); p != nil {
			s.spent = true
			value, err = nil, stopped(p)
		}
	}()
	value, err = do()
	var interrupted *goja.InterruptedError
	switch {
	case errors.As(err, &interrupted):
		s.spent = true
		return nil, stopped(interrupted)
	case err != nil:
		return nil, errors.New(cutError("run it: " + err.Error()))
	}
	return value, nil
}

// stopped returns the reason of an interruption or panic of the runtime.
func stopped(p any) error {
	if h, ok := p.(halt); ok {
		return h.why
	}
	if interrupted, ok := p.(*goja.InterruptedError); ok {
		if why, ok := interrupted.Value().(error); ok {
			return why
		}
		return errTimeout
	}
	return errors.New("run it: the script engine failed")
}

// halt is the panic of our functions when the program must end.
type halt struct{ why error }

// halt ends the running program: at its next instruction, or in the next call of goOn.
func (s *sandbox) halt(why error) {
	s.halted.Store(&why)
	s.vm.Interrupt(why)
}

// goOn panics if the program must end. The runtime checks for interruptions only between the instructions of a script,
// and a built-in function that calls others may never return to them.
func (s *sandbox) goOn() {
	if why := s.halted.Load(); why != nil {
		panic(halt{*why})
	}
}

// watch checks a program that does not end at once: it interrupts it when its time is up, or earlier if the process
// allocates as only a hostile program does. Most programs end before the first check.
type watch struct {
	of     *sandbox
	budget time.Duration
	begin  time.Time
	timer  atomic.Pointer[time.Timer]
	thread int
	looked bool
	used   time.Duration // by the thread at the first check
	before uint64        // bytes allocated in total at the first check
	over   atomic.Bool   // the program has ended
}

func (w *watch) start() *time.Timer {
	timer := time.AfterFunc(watched, w.look)
	w.timer.Store(timer)
	return timer
}

func (w *watch) look() {
	if w.over.Load() {
		return
	}
	if w.late() {
		w.of.halt(errTimeout)
		return
	}
	now := allocated()
	if !w.looked {
		w.looked, w.before = true, now
		w.used, _ = threadTimeOf(w.thread)
	}
	if now-w.before > maxMemory && w.worked() {
		w.of.halt(errMemory)
		return
	}
	if timer := w.timer.Load(); timer != nil {
		timer.Reset(lookEvery)
	}
}

// worked reports whether the program has run long enough to have allocated that much. Others may allocate while it
// waits for a processor.
func (w *watch) worked() bool {
	used, ok := threadTimeOf(w.thread)
	return !ok || used-w.used >= allocating
}

// late reports whether the program's time is up. It uses CPU time where that is known, so that a busy machine does not
// stop good programs.
func (w *watch) late() bool {
	took := time.Since(w.begin)
	if took < w.budget || !w.looked {
		return took >= longest(w.budget)
	}
	used, ok := threadTimeOf(w.thread)
	return !ok || used-w.used+watched >= w.budget || took >= longest(w.budget)
}

// longest bounds the time of a program with a budget on a busy machine.
func longest(budget time.Duration) time.Duration { return min(busyFactor*budget, budget+busyTime) }

// allocated returns the bytes that this process has allocated since its start.
func allocated() uint64 {
	sample := [1]metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample[:])
	return sample[0].Value.Uint64()
}
