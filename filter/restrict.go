package filter

import (
	"errors"
	"math/big"
	"reflect"
	"strings"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
)

// maxPattern bounds a regular expression that is made at run time, in bytes.
const maxPattern = 4 << 10

// removed are globals that expressions do not get. Each can make the runtime do in one step what its bounds do not
// cover: parse a source, compute an endless number, follow a chain of objects on the stack, or run after the script has
// ended. Sensu's engine has only the first.
var removed = []string{"eval", "BigInt", "Proxy", "Promise", "WeakRef", "FinalizationRegistry"}

// restrict removes what filters do not need and what cannot be bounded.
func (s *sandbox) restrict() {
	vm := s.vm
	global := vm.GlobalObject()
	remove := func(of *goja.Object, name string) {
		if err := of.Delete(name); err != nil {
			panic(err) // everything in a new runtime can be deleted
		}
	}
	for _, name := range removed {
		remove(global, name)
	}
	remove(vm.Get("String").ToObject(vm), "raw")
	replaceConstructor(vm, "Function", func(call goja.ConstructorCall) *goja.Object {
		// Libraries get the global object this way.
		if len(call.Arguments) == 1 && strings.TrimRight(call.Argument(0).String(), "; ") == "return this" {
			return function(vm, "global", func(goja.FunctionCall) goja.Value { return global })
		}
		panic(vm.NewTypeError("functions cannot be made of text here"))
	})
	s.limitPatterns()
}

// limitPatterns makes everything that compiles a regular expression from a text throw for a long one.
func (s *sandbox) limitPatterns() {
	vm := s.vm
	check := func(v goja.Value) {
		if _, object := v.(*goja.Object); !object && len(v.String()) > maxPattern {
			panic(vm.NewTypeError("the regular expression is longer than %d bytes", maxPattern))
		}
	}
	original := vm.Get("RegExp")
	replaceConstructor(vm, "RegExp", func(call goja.ConstructorCall) *goja.Object {
		if o, ok := call.Argument(0).(*goja.Object); ok && o.ClassName() == "RegExp" {
			check(o.Get("source"))
		} else {
			check(vm.ToValue(call.Argument(0).String()))
		}
		made, err := vm.New(original, call.Arguments...)
		if err != nil {
			panic(err)
		}
		return made
	})
	prototype := original.ToObject(vm).Get("prototype").ToObject(vm)
	s.replace(prototype, "compile", func(call goja.FunctionCall) { check(call.Argument(0)) })
	texts := vm.Get("String").ToObject(vm).Get("prototype").ToObject(vm)
	for _, name := range []string{"match", "matchAll", "search"} {
		s.replace(texts, name, func(call goja.FunctionCall) { check(call.Argument(0)) })
	}
}

// replaceConstructor replaces a constructor but keeps its prototype: objects made by either are instances of both.
func replaceConstructor(vm *goja.Runtime, name string, make func(goja.ConstructorCall) *goja.Object) {
	old := vm.Get(name).ToObject(vm)
	prototype := old.Get("prototype").ToObject(vm)
	made := vm.ToValue(make).ToObject(vm)
	for _, err := range []error{
		made.DefineDataProperty("prototype", prototype, goja.FLAG_FALSE, goja.FLAG_FALSE, goja.FLAG_FALSE),
		made.DefineDataProperty("name", vm.ToValue(name), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE),
		prototype.DefineDataProperty("constructor", made, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE),
		vm.GlobalObject().DefineDataProperty(name, made, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE),
	} {
		if err != nil {
			panic(err)
		}
	}
}

// unbounded refuses parts of the language that can be endless in one step, or that the runtime cannot bound. Sensu's
// engine does not know them.
func unbounded(program *ast.Program) (err error) {
	inspect(reflect.ValueOf(program.Body), func(node any) bool {
		switch n := node.(type) {
		case *ast.NumberLiteral:
			if _, large := n.Value.(*big.Int); large {
				err = errors.New("it has numbers of arbitrary size (BigInt)")
			}
			return false
		case *ast.FunctionLiteral:
			if n.Generator || n.Async {
				err = errors.New("it has a generator or an async function")
			}
		case *ast.ArrowFunctionLiteral:
			if n.Async {
				err = errors.New("it has an async function")
			}
		}
		return err == nil
	})
	return err
}
