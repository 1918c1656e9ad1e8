package filter

import "github.com/dop251/goja"

// limitLists removes functions that allocate large blocks at once, which Sensu's engine lacks too, and makes the
// functions that iterate over lists throw for long ones: the runtime cannot be interrupted within them.
func (s *sandbox) limitLists() {
	vm := s.vm
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
			s.limitLength(lists, name, this)
		}
	}
	s.limitLength(member("Array"), "from", argument(0))
	s.limitLength(member("Function", "prototype"), "apply", argument(1))
	s.limitLength(member("Reflect"), "apply", argument(2))
	s.limitLength(member("Reflect"), "construct", argument(1))
	// Implicit iteration, as in f(...list), uses this one.
	values := lists.Get("values")
	if err := lists.SetSymbol(goja.SymIterator, values); err != nil {
		panic(err)
	}
}

// limitLength makes a function throw for a list that is too long.
func (s *sandbox) limitLength(of *goja.Object, name string, list func(goja.FunctionCall) goja.Value) {
	s.replace(of, name, func(call goja.FunctionCall) {
		if s.entries(list(call)) > maxLength {
			panic(s.vm.NewTypeError("the list is too long for %s", name))
		}
	})
}

// entries returns the length of a list, or 0 for other values. It throws for a computed length, which could change at
// the next read.
func (s *sandbox) entries(v goja.Value) int {
	o, ok := v.(*goja.Object)
	if !ok {
		return 0
	}
	if o.ClassName() != "Array" { // its length is a number
		s.plainLength(o)
	}
	n := o.Get("length")
	if n == nil {
		return 0
	}
	return int(min(max(n.ToInteger(), 0), maxLength+1))
}

func (s *sandbox) plainLength(o *goja.Object) {
	for at := o; at != nil; at = at.Prototype() {
		found, err := s.describe(goja.Undefined(), at, s.vm.ToValue("length"))
		if err != nil {
			panic(err)
		}
		property, ok := found.(*goja.Object)
		if !ok {
			continue
		}
		value := property.Get("value")
		if _, computed := value.(*goja.Object); value == nil || computed {
			panic(s.vm.NewTypeError("the length of the list is computed"))
		}
		return
	}
}

// limitSorts makes repeated comparisons check whether the program must end.
func (s *sandbox) limitSorts() {
	member := func(of, name string) *goja.Object {
		return s.vm.Get(of).ToObject(s.vm).Get(name).ToObject(s.vm)
	}
	lists := member("Array", "prototype")
	for _, name := range []string{"sort", "toSorted"} {
		f, ok := goja.AssertFunction(lists.Get(name))
		if !ok {
			continue
		}
		s.define(lists, name, func(call goja.FunctionCall) goja.Value {
			value, err := f(call.This, s.comparison(call.Argument(0)))
			if err != nil {
				panic(err)
			}
			return value
		})
	}
	for _, name := range []string{"indexOf", "lastIndexOf", "includes"} {
		s.replace(lists, name, func(call goja.FunctionCall) {
			if s.entries(call.This)*length(call.Argument(0)) > maxCompared {
				panic(s.vm.NewTypeError("the list and the text are too long for %s", name))
			}
		})
	}
	// The constructors call these once they are not the runtime's own.
	s.replace(member("Set", "prototype"), "add", func(goja.FunctionCall) {})
	s.replace(member("Map", "prototype"), "set", func(goja.FunctionCall) {})
}

// comparison returns a comparison for sort that works as the given one, or compares texts.
func (s *sandbox) comparison(given goja.Value) goja.Value {
	if f, ok := goja.AssertFunction(given); ok {
		return function(s.vm, "compare", func(call goja.FunctionCall) goja.Value {
			s.goOn()
			value, err := f(goja.Undefined(), call.Arguments...)
			if err != nil {
				panic(err)
			}
			return value
		})
	}
	if !goja.IsUndefined(given) {
		return given // sort refuses it
	}
	return function(s.vm, "compare", func(call goja.FunctionCall) goja.Value {
		s.goOn()
		return s.vm.ToValue(s.asText(call.Argument(0)).CompareTo(s.asText(call.Argument(1))))
	})
}

func (s *sandbox) asText(v goja.Value) goja.String {
	text, ok := v.(goja.String)
	if !ok {
		text, _ = s.vm.ToValue(v.String()).(goja.String)
	}
	return text
}

// replace makes a function, if it exists, begin with a check of its call.
func (s *sandbox) replace(of *goja.Object, name string, look func(goja.FunctionCall)) {
	f, ok := goja.AssertFunction(of.Get(name))
	if !ok {
		return
	}
	s.define(of, name, func(call goja.FunctionCall) goja.Value {
		s.goOn()
		look(call)
		value, err := f(call.This, call.Arguments...)
		if err != nil {
			panic(err)
		}
		return value
	})
}

// define adds a function to an object as built-in ones are: not among its keys.
func (s *sandbox) define(of *goja.Object, name string, f func(goja.FunctionCall) goja.Value) {
	if err := of.DefineDataProperty(name, function(s.vm, name, f), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE); err != nil {
		panic(err)
	}
}

// limitText makes a method of strings throw if it would create a long text: the runtime cannot be interrupted within
// it.
func (s *sandbox) limitText(name string) {
	vm := s.vm
	prototype := vm.Get("String").ToObject(vm).Get("prototype").ToObject(vm)
	s.replace(prototype, name, func(call goja.FunctionCall) {
		size := call.Argument(0).ToInteger()
		if name == "repeat" && size > 0 {
			size = min(size, maxText+1) * int64(len(call.This.String()))
		}
		if size > maxText {
			panic(vm.NewTypeError("%s makes a text that is too long", name))
		}
	})
}
