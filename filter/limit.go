package filter

import (
	"reflect"
	"strconv"
	"strings"

	"github.com/dop251/goja"
)

const (
	// maxNested bounds the depth of nested lists in a join.
	maxNested = 64
	// eventWeight is the assumed weight of an event, or of a part of one, in weigh.
	eventWeight = 16 << 10
)

var objectType, textsType = reflect.TypeFor[*object](), reflect.TypeFor[*texts]()

// limitTexts bounds the functions that turn little into much in one step, during which the runtime cannot be
// interrupted: a list that holds one long text a thousand times is small until it is joined.
func (s *sandbox) limitTexts() {
	vm := s.vm
	member := func(path ...string) *goja.Object {
		o := vm.GlobalObject()
		for _, name := range path {
			o = o.Get(name).ToObject(vm)
		}
		return o
	}
	texts, lists := member("String", "prototype"), member("Array", "prototype")
	tooLong := func(name string) { panic(vm.NewTypeError("%s makes or takes a text that is too long", name)) }

	for _, name := range []string{"split", "replace", "replaceAll", "match", "matchAll", "normalize"} {
		s.replace(texts, name, func(call goja.FunctionCall) {
			size := length(call.This)
			if name == "replace" || name == "replaceAll" {
				size = (size + 1) * max(1, length(call.Argument(1)))
			}
			if size > maxText && size > 4*length(call.This) || length(call.This) > maxText {
				tooLong(name)
			}
		})
	}
	s.replace(texts, "concat", func(call goja.FunctionCall) {
		size := length(call.This)
		for _, arg := range call.Arguments {
			size += length(arg)
		}
		if size > maxText {
			tooLong("concat")
		}
	})
	for _, name := range []string{"concat", "flat"} {
		s.replace(lists, name, func(call goja.FunctionCall) {
			sum := s.entries(call.This)
			if name == "flat" {
				if depth := call.Argument(0); !goja.IsUndefined(depth) && depth.ToInteger() > 1 {
					panic(vm.NewTypeError("flat goes one level deep here"))
				}
				for i := range s.entries(call.This) {
					sum += s.entries(call.This.ToObject(vm).Get(strconv.Itoa(i)))
				}
			}
			for _, arg := range call.Arguments {
				sum += s.entries(arg)
			}
			if sum > maxLength {
				panic(vm.NewTypeError("%s makes a list that is too long", name))
			}
		})
	}
	// toString of a list calls its join.
	joined := func(call goja.FunctionCall) goja.Value {
		list, separator := call.This.ToObject(vm), ","
		if arg := call.Argument(0); !goja.IsUndefined(arg) {
			separator = arg.String()
		}
		var b strings.Builder
		for i := range s.entries(list) {
			s.goOn()
			if i > 0 {
				b.WriteString(separator)
			}
			if item := list.Get(strconv.Itoa(i)); item != nil && !goja.IsUndefined(item) && !goja.IsNull(item) {
				b.WriteString(item.String())
			}
			if b.Len() > maxText {
				tooLong("join")
			}
		}
		return vm.ToValue(b.String())
	}
	within, parts := 0, 0
	s.define(lists, "join", func(call goja.FunctionCall) goja.Value {
		if within == 0 {
			parts = 0
		}
		within++
		defer func() { within-- }()
		parts += s.entries(call.This)
		if within > maxNested || parts > maxLength { // a list may contain itself
			panic(vm.NewTypeError("the list is too long for join"))
		}
		return joined(call)
	})
	s.replace(member("JSON"), "stringify", func(call goja.FunctionCall) {
		left := 4 * maxText
		if left = weigh(call.Argument(0), left, 0); left < 0 {
			tooLong("stringify")
		}
	})
	s.replace(member("JSON"), "parse", func(call goja.FunctionCall) {
		if text, ok := call.Argument(0).(goja.String); ok && depthOf(text.String()) > maxNesting {
			panic(vm.NewTypeError("parse takes no more than %d levels", maxNesting))
		}
	})
}

// length returns the length of a text, or 0 for other values.
func length(v goja.Value) int {
	if s, ok := v.(goja.String); ok {
		return s.Length()
	}
	return 0
}

// weigh subtracts about the length of a value in JSON from left, and stops at 0.
func weigh(v goja.Value, left, depth int) int {
	left -= 8 + length(v)
	o, ok := v.(*goja.Object)
	if !ok || left < 0 {
		return left
	}
	if depth > maxStack { // no sensible value is that deep
		return -1
	}
	if t := o.ExportType(); t == objectType || t == textsType {
		return left - eventWeight
	}
	for _, key := range o.Keys() {
		if left -= len(key); left < 0 {
			return left
		}
		if left = weigh(o.Get(key), left, depth+1); left < 0 {
			return left
		}
	}
	return left
}
