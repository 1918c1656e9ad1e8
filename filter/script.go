package filter

import (
	"errors"
	"fmt"
	"time"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/parser"

	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	// maxStack is how deep functions of an expression may call one another.
	maxStack = 256
	// maxLength is how long a list may be for a function that goes through it.
	maxLength = 100_000
	// maxText is the longest text that one call of a function for repeating or padding may make.
	maxText = 1 << 20
)

var (
	errTimeout   = errors.New("it takes too long")
	errSuspended = errors.New("it took too long too often, and is not asked for the rest of the minute")
)

// script is an expression, read once.
type script struct {
	source  string
	program *goja.Program
	err     error // why there is no program
	// single says that a runtime can run it only once: it declares names that cannot be declared again.
	single bool
}

func compile(name, source string) script {
	s := script{source: source}
	tree, err := parser.ParseFile(nil, name, source, 0, parser.WithDisableSourceMaps)
	if err == nil {
		s.program, err = goja.CompileAST(tree, false)
	}
	if err != nil {
		s.err = fmt.Errorf("read it: %w", err)
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

// sandbox is a runtime with what expressions may use. It serves one goroutine at a time.
type sandbox struct {
	vm    *goja.Runtime
	spent bool // it must not be used again
}

func newSandbox(now func() time.Time) *sandbox {
	vm := goja.New()
	vm.SetMaxCallStackSize(maxStack)
	set := func(name string, value any) {
		if err := vm.Set(name, value); err != nil {
			panic(err) // the global object of a new runtime takes everything
		}
	}
	for name, of := range map[string]func(time.Time) int{
		"hour": time.Time.Hour, "minute": time.Time.Minute, "second": time.Time.Second,
		"weekday": func(t time.Time) int { return int(t.Weekday()) },
	} {
		set(name, func(call goja.FunctionCall) goja.Value {
			if len(call.Arguments) == 0 {
				return vm.ToValue(0)
			}
			return vm.ToValue(of(time.Unix(call.Arguments[0].ToInteger(), 0).UTC()))
		})
	}
	set("seconds_since", func(call goja.FunctionCall) goja.Value {
		if len(call.Arguments) == 0 {
			return vm.ToValue(0)
		}
		return vm.ToValue(now().Unix() - call.Arguments[0].ToInteger())
	})
	set("sensu", vm.NewObject())
	set("console", map[string]any{"log": func(goja.FunctionCall) goja.Value { return goja.Undefined() }})
	for _, name := range []string{"repeat", "padStart", "padEnd"} {
		limitText(vm, name)
	}
	limitLists(vm)
	return &sandbox{vm: vm}
}

// limitLists takes away what makes large blocks of memory at once, which Sensu's engine does not have either, and has the
// functions that go through lists throw for long ones: the runtime cannot be interrupted within them.
func limitLists(vm *goja.Runtime) {
	global := vm.GlobalObject()
	for _, name := range []string{
		"ArrayBuffer", "SharedArrayBuffer", "DataView", "Int8Array", "Uint8Array", "Uint8ClampedArray", "Int16Array", "Uint16Array",
		"Int32Array", "Uint32Array", "Float32Array", "Float64Array", "BigInt64Array", "BigUint64Array",
	} {
		if err := global.Delete(name); err != nil {
			panic(err)
		}
	}
	member := func(path ...string) *goja.Object {
		o := global
		for _, name := range path {
			o = o.Get(name).ToObject(vm)
		}
		return o
	}
	this := func(call goja.FunctionCall) goja.Value { return call.This }
	argument := func(n int) func(goja.FunctionCall) goja.Value {
		return func(call goja.FunctionCall) goja.Value { return call.Argument(n) }
	}
	lists := member("Array", "prototype")
	for _, name := range lists.GetOwnPropertyNames() {
		if name != "constructor" {
			limitLength(vm, lists, name, this)
		}
	}
	limitLength(vm, member("Array"), "from", argument(0))
	limitLength(vm, member("Function", "prototype"), "apply", argument(1))
	limitLength(vm, member("Reflect"), "apply", argument(2))
	limitLength(vm, member("Reflect"), "construct", argument(1))
}

// limitLength has a function throw for a list that is too long.
func limitLength(vm *goja.Runtime, of *goja.Object, name string, list func(goja.FunctionCall) goja.Value) {
	replace(vm, of, name, func(call goja.FunctionCall) {
		if o, ok := list(call).(*goja.Object); ok {
			if length := o.Get("length"); length != nil && length.ToInteger() > maxLength {
				panic(vm.NewTypeError("the list is too long for %s", name))
			}
		}
	})
}

// replace has a function, if there is one of that name, begin with a look at its call.
func replace(vm *goja.Runtime, of *goja.Object, name string, look func(goja.FunctionCall)) {
	f, ok := goja.AssertFunction(of.Get(name))
	if !ok {
		return
	}
	looked := func(call goja.FunctionCall) goja.Value {
		look(call)
		value, err := f(call.This, call.Arguments...)
		if err != nil {
			panic(err)
		}
		return value
	}
	if err := of.DefineDataProperty(name, vm.ToValue(looked), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE); err != nil {
		panic(err)
	}
}

// limitText has a method of strings throw where it would make a long text: the runtime cannot be interrupted within it.
func limitText(vm *goja.Runtime, name string) {
	prototype := vm.Get("String").ToObject(vm).Get("prototype").ToObject(vm)
	replace(vm, prototype, name, func(call goja.FunctionCall) {
		size := call.Argument(0).ToInteger()
		if name == "repeat" && size > 0 {
			size = min(size, maxText+1) * int64(len(call.This.String()))
		}
		if size > maxText {
			panic(vm.NewTypeError("%s makes a text that is too long", name))
		}
	})
}

// event is what the expressions that run next see.
func (s *sandbox) event(ev *resource.Event) error {
	return s.vm.Set("event", newObject(s.vm, ev))
}

// forget lets go of the event, which shall not live as long as the runtime.
func (s *sandbox) forget() {
	if err := s.vm.Set("event", goja.Undefined()); err != nil {
		s.spent = true
	}
}

// run says whether the script's value counts as true.
func (s *sandbox) run(sc *script, budget time.Duration) (truth bool, err error) {
	timer := time.AfterFunc(budget, func() { s.vm.Interrupt(errTimeout) })
	defer func() {
		if !timer.Stop() {
			s.spent = true // the interruption may come yet
		}
		if p := recover(); p != nil {
			s.spent = true
			err = fmt.Errorf("run it: %v", p)
		}
	}()
	value, err := s.vm.RunProgram(sc.program)
	s.spent = s.spent || sc.single
	var interrupted *goja.InterruptedError
	switch {
	case errors.As(err, &interrupted):
		return false, errTimeout
	case err != nil:
		return false, fmt.Errorf("run it: %w", err)
	}
	return value.ToBoolean(), nil
}
