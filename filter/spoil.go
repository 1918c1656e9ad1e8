package filter

import (
	"reflect"
	"slices"
	"sync"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/token"
)

// A new runtime for every question would be too expensive, so a runtime serves the next question about the same
// definition too. That is safe only if the script left no trace in it: no changed prototype, no property of Math, no
// getter in place of event. Inspecting all objects of the runtime afterwards would cost more than a new one. So spoilOf
// analyses the script when it is compiled, and allows only what it knows to be harmless. A script that could change
// shared objects gets a new runtime for each question.

// spoil says how a script may affect its runtime.
type spoil struct {
	// spoils says that the script may change objects that the runtime shares between questions.
	spoils bool
	// names are variables and functions that the script declares or assigns. Those that become global are reset.
	names []string
}

// harmless are names of values that are not shared.
var harmless = []string{"event", "entity", "undefined", "NaN", "Infinity", "arguments"}

// forbidden are global names that lead to everything that is shared.
var forbidden = []string{"globalThis", "Function", "Reflect", "eval"}

// readers are the functions of Object that only read.
var readers = []string{"keys", "values", "entries", "hasOwn", "is", "fromEntries"}

// indirect are methods that call other functions, define members, or return their object.
var indirect = []string{
	"call", "apply", "bind", "constructor", "valueOf", "compile", "captureStackTrace",
	"__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__",
}

// methods are the names of all functions of built-in objects, and of the properties that lead from a value to shared objects.
var methods = sync.OnceValue(func() map[string]bool {
	vm := goja.New()
	found := map[string]bool{"prototype": true, "constructor": true, "__proto__": true, "callee": true, "caller": true}
	add := func(o *goja.Object) {
		for _, name := range o.GetOwnPropertyNames() {
			if slices.Contains([]string{"arguments", "caller"}, name) {
				continue // reading them throws
			}
			if _, ok := goja.AssertFunction(o.Get(name)); ok {
				found[name] = true
			}
		}
	}
	global := vm.GlobalObject()
	for _, name := range global.GetOwnPropertyNames() {
		o, ok := global.Get(name).(*goja.Object)
		if !ok || o == global {
			continue
		}
		add(o)
		if name == "Function" {
			add(o.Prototype())
		} else if prototype, ok := o.Get("prototype").(*goja.Object); ok {
			for _, key := range prototype.GetOwnPropertyNames() {
				found[key] = true // some getters throw here
			}
		}
	}
	for _, name := range []string{"length", "name", "message", "size", "description", "source", "flags"} {
		delete(found, name) // values, and no functions
	}
	return found
})

func spoilOf(program *ast.Program) spoil {
	f := finder{declared: map[string]bool{}}
	inspect(reflect.ValueOf(program.Body), f.declare)
	inspect(reflect.ValueOf(program.Body), f.visit)
	s := spoil{spoils: f.spoils || f.shared && f.assigns}
	for name := range f.declared {
		s.names = append(s.names, name)
	}
	slices.Sort(s.names)
	return s
}

// finder searches for code that spoils a runtime.
type finder struct {
	declared map[string]bool // names that the script declares or assigns
	shared   bool            // a global object is read as a value
	assigns  bool            // a member of the event is assigned, possibly with that object
	spoils   bool
}

// declare notes names that the script declares.
func (f *finder) declare(node any) bool {
	all := func(v any) {
		inspect(reflect.ValueOf(v), func(node any) bool {
			if name, ok := node.(*ast.Identifier); ok {
				f.declared[name.Name.String()] = true
			}
			return true
		})
	}
	switch n := node.(type) {
	case *ast.Binding:
		all(n.Target)
	case *ast.CatchStatement:
		all(n.Parameter)
	case *ast.ParameterList:
		all(n.Rest)
	case *ast.FunctionLiteral:
		if n.Name != nil {
			all(n.Name)
		}
	}
	return true
}

// visit checks a node, and reports whether to visit the nodes within.
func (f *finder) visit(node any) bool {
	switch n := node.(type) {
	case *ast.AssignExpression:
		f.target(n.Left)
		f.within(n.Right)
		return false
	case *ast.UnaryExpression:
		switch n.Operator {
		case token.INCREMENT, token.DECREMENT, token.DELETE:
			f.target(n.Operand)
			return false
		}
	case *ast.ForIntoExpression:
		f.target(n.Expression)
		return false
	case *ast.CallExpression:
		f.call(n.Callee)
		f.within(n.ArgumentList)
		return false
	case *ast.NewExpression:
		if name, ok := n.Callee.(*ast.Identifier); !ok || slices.Contains(forbidden, name.Name.String()) {
			f.spoils = true
		}
		f.within(n.ArgumentList)
		return false
	case *ast.DotExpression:
		f.read(n.Identifier.Name.String())
		f.member(n.Left)
		return false
	case *ast.BracketExpression:
		if name, ok := keyName(n.Member); ok {
			f.read(name)
		} else {
			f.index(n.Member)
		}
		f.member(n.Left)
		return false
	case *ast.ObjectPattern:
		f.pattern(n)
	case *ast.Identifier:
		f.value(n.Name.String())
	case *ast.PropertyShort:
		f.value(n.Name.Name.String())
	case *ast.TemplateLiteral:
		f.spoils = f.spoils || n.Tag != nil
	case *ast.ThisExpression, *ast.SuperExpression, *ast.MetaProperty, *ast.WithStatement, *ast.ClassLiteral, *ast.PrivateDotExpression,
		*ast.LabelledStatement:
		f.spoils = true
	}
	return !f.spoils
}

func (f *finder) within(v any) { inspect(reflect.ValueOf(v), f.visit) }

// keyName returns the name of a property between brackets, if it is a constant.
func keyName(key ast.Expression) (string, bool) {
	if text, ok := key.(*ast.StringLiteral); ok {
		return text.Value.String(), true
	}
	return "", false
}

// index checks a computed key between brackets. Only a number cannot be the name of something shared.
func (f *finder) index(key ast.Expression) {
	switch n := key.(type) {
	case *ast.NumberLiteral:
		return
	case *ast.BinaryExpression:
		switch n.Operator {
		case token.MINUS, token.MULTIPLY, token.SLASH, token.REMAINDER:
			f.within(n)
			return
		}
	}
	f.spoils = true
}

// read checks the name of a property that is read as a value.
func (f *finder) read(name string) { f.spoils = f.spoils || methods()[name] }

// value checks a name that is read as a value. A global one may be a shared object, as in list.map(String).
func (f *finder) value(name string) {
	f.spoils = f.spoils || name == "Object" || slices.Contains(forbidden, name)
	f.shared = f.shared || !f.declared[name] && !slices.Contains(harmless, name)
}

// pattern checks the names of the properties that a pattern reads.
func (f *finder) pattern(n *ast.ObjectPattern) {
	for _, p := range n.Properties {
		switch p := p.(type) {
		case *ast.PropertyShort:
			f.read(p.Name.Name.String())
		case *ast.PropertyKeyed:
			name, ok := keyName(p.Key)
			f.spoils = f.spoils || !ok
			f.read(name)
		}
	}
}

// member checks the object of a property that is read as a value. That of a global object may be shared too.
func (f *finder) member(e ast.Expression) {
	if of, ok := unwrapped(e).(*ast.Identifier); ok {
		name := of.Name.String()
		f.shared = f.shared || !f.declared[name] && !slices.Contains(harmless, name)
	}
	f.object(e)
}

// object checks the object of a property that is read or called. It may be a global one, for example Math.
func (f *finder) object(e ast.Expression) {
	switch n := unwrapped(e).(type) {
	case *ast.Identifier:
		f.spoils = f.spoils || slices.Contains(forbidden, n.Name.String())
	default:
		f.within(n)
	}
}

// call checks the callee of a call.
func (f *finder) call(callee ast.Expression) {
	var name string
	var left ast.Expression
	switch n := unwrapped(callee).(type) {
	case *ast.Identifier:
		f.spoils = f.spoils || slices.Contains(forbidden, n.Name.String())
		return
	case *ast.DotExpression:
		name, left = n.Identifier.Name.String(), n.Left
	case *ast.BracketExpression:
		var ok bool
		if name, ok = keyName(n.Member); !ok {
			f.spoils = true
			return
		}
		left = n.Left
	default:
		f.within(n)
		return
	}
	if slices.Contains(indirect, name) {
		f.spoils = true
	}
	if of, ok := unwrapped(left).(*ast.Identifier); ok && of.Name.String() == "Object" && !slices.Contains(readers, name) {
		f.spoils = true
	}
	f.object(left)
}

// target checks the left side of an assignment: a variable, or a member of the event.
func (f *finder) target(e ast.Expression) {
	if name, ok := e.(*ast.Identifier); ok {
		f.declared[name.Name.String()] = true
		return
	}
	f.assigns = true
	path, ok := memberOf(e)
	for _, name := range path {
		ok = ok && !methods()[name]
	}
	f.spoils = f.spoils || !ok
}

// unwrapped returns the expression in an optional chain.
func unwrapped(e ast.Expression) ast.Expression {
	for {
		switch n := e.(type) {
		case *ast.OptionalChain:
			e = n.Expression
		case *ast.Optional:
			e = n.Expression
		default:
			return e
		}
	}
}

// expect notes which global names the scripts of a definition use, in a new runtime. If the runtime has one of them
// already, a script may replace it.
func (s *sandbox) expect(scripts []script) {
	global := s.vm.GlobalObject()
	for i := range scripts {
		for _, name := range scripts[i].names {
			s.taken = s.taken || global.Get(name) != nil
		}
		s.names = append(s.names, scripts[i].names...)
	}
}

// reset deletes the variables of the scripts. It reports whether the runtime is as it was.
func (s *sandbox) reset() bool {
	if s.taken {
		return false
	}
	global := s.vm.GlobalObject()
	for _, name := range s.names {
		if global.Get(name) == nil {
			continue
		}
		if global.Delete(name) != nil { // a declared variable stays
			if err := s.vm.Set(name, goja.Undefined()); err != nil {
				return false
			}
		}
	}
	return true
}
