package filter

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"

	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/parser"
	"github.com/dop251/goja/token"

	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
)

// Words are names in the text of an expression that stand for something outside it.
type Words struct {
	// Calendars are those that in_calendar is asked for by a constant name.
	Calendars []string
	// Members are members of the event that no event has, such as event.check.occurences, and Functions are called
	// and not defined. An expression with one of them mostly never does what its author meant.
	Members, Functions []UnknownWord
	// Labels are the labels of the event's entity that are read, but for those that are only asked for: that an entity has
	// none is what the author meant then.
	Labels []string
	// Assigns says that the result is the value of an assignment to a member of the event, as in event.check.status = 1: it was
	// meant to compare.
	Assigns bool
}

// UnknownWord is a name that nothing has, and the nearest one that exists, or "".
type UnknownWord struct{ Name, Nearest string }

// String returns the name with the nearest one: event.check.occurences (event.check.occurrences?).
func (u UnknownWord) String() string {
	if u.Nearest == "" {
		return u.Name
	}
	return u.Name + " (" + u.Nearest + "?)"
}

// maxWords bounds each list of Words.
const maxWords = 20

// WordsOf reads an expression without running it. Names that the expression declares, and members that it assigns, are
// not unknown. Of one that does not parse it returns nothing.
func WordsOf(expression string) (w Words) {
	if CheckSyntax(expression) != nil {
		return w
	}
	program, err := parser.ParseFile(nil, "", expression, 0, parser.WithDisableSourceMaps)
	if err != nil {
		return w
	}
	r := wordReader{declared: map[string]bool{}, calls: map[string]bool{}, members: map[string]UnknownWord{},
		labels: map[string]string{}, asked: map[string]bool{}, calendars: map[string]bool{}}
	inspect(reflect.ValueOf(program.Body), r.visit)
	if n := len(program.Body); n > 0 {
		if last, ok := program.Body[n-1].(*ast.ExpressionStatement); ok {
			w.Assigns = assigns(last.Expression)
		}
	}
	w.Calendars = slices.Sorted(maps.Keys(r.calendars))
	for _, name := range slices.Sorted(maps.Keys(r.calls)) {
		if !r.declared[name] && !slices.Contains(globals(), name) {
			w.Functions = append(w.Functions, UnknownWord{name, optionerr.Nearest(name, globals())})
		}
	}
	if !r.declared["event"] {
		for _, name := range slices.Sorted(maps.Keys(r.members)) {
			if !r.declared[name] {
				w.Members = append(w.Members, r.members[name])
			}
		}
		for _, name := range slices.Sorted(maps.Keys(r.labels)) {
			if !r.declared[name] && !r.asked[name] {
				w.Labels = append(w.Labels, r.labels[name])
			}
		}
	}
	w.Calendars = w.Calendars[:min(maxWords, len(w.Calendars))]
	w.Members = w.Members[:min(maxWords, len(w.Members))]
	w.Labels = w.Labels[:min(maxWords, len(w.Labels))]
	w.Functions = w.Functions[:min(maxWords, len(w.Functions))]
	return w
}

// globals are the names that all expressions have.
var globals = sync.OnceValue(func() []string {
	return newSandbox().vm.GlobalObject().GetOwnPropertyNames()
})

// wordReader collects names while a program's text is visited.
type wordReader struct {
	declared  map[string]bool // variables, functions and parameters, and members of the event that are assigned
	calls     map[string]bool
	members   map[string]UnknownWord
	labels    map[string]string // by the names of the members
	asked     map[string]bool   // members of which it is asked whether they are there
	calendars map[string]bool
}

func (r *wordReader) visit(node any) bool {
	switch n := node.(type) {
	case *ast.Binding:
		r.declare(n.Target)
	case *ast.FunctionLiteral:
		if n.Name != nil {
			r.declared[n.Name.Name.String()] = true
		}
	case *ast.CatchStatement:
		r.declare(n.Parameter)
	case *ast.AssignExpression:
		r.declare(n.Left)
		if path, ok := memberOf(n.Left); ok {
			r.declared[memberName(path)] = true
		}
	case *ast.UnaryExpression:
		if path, ok := memberOf(n.Operand); ok && n.Operator == token.NOT {
			r.asked[memberName(path)] = true
		}
	case *ast.BinaryExpression:
		for _, side := range [][2]ast.Expression{{n.Left, n.Right}, {n.Right, n.Left}} {
			if path, ok := memberOf(side[0]); ok && nothing(side[1]) {
				r.asked[memberName(path)] = true
			}
		}
	case *ast.CallExpression:
		return r.call(n)
	case *ast.DotExpression, *ast.BracketExpression:
		if path, ok := memberOf(node.(ast.Expression)); ok {
			r.member(path)
			return false
		}
	}
	return true
}

// nothing reports whether an expression is undefined or null.
func nothing(e ast.Expression) bool {
	if name, ok := e.(*ast.Identifier); ok {
		return name.Name == "undefined"
	}
	_, null := e.(*ast.NullLiteral)
	return null
}

// assigns reports whether the truth of an expression is that of a value that it assigns to a member of the event.
func assigns(e ast.Expression) bool {
	switch n := e.(type) {
	case *ast.AssignExpression:
		_, ok := memberOf(n.Left)
		return ok && n.Operator == token.ASSIGN
	case *ast.BinaryExpression:
		return (n.Operator == token.LOGICAL_AND || n.Operator == token.LOGICAL_OR) && (assigns(n.Left) || assigns(n.Right))
	case *ast.UnaryExpression:
		return n.Operator == token.NOT && assigns(n.Operand)
	}
	return false
}

// declare notes the names that a target declares. Patterns declare each name in them.
func (r *wordReader) declare(target any) {
	inspect(reflect.ValueOf(target), func(node any) bool {
		switch n := node.(type) {
		case *ast.Identifier:
			r.declared[n.Name.String()] = true
		case *ast.PropertyShort:
			r.declared[n.Name.Name.String()] = true
		case *ast.DotExpression, *ast.BracketExpression:
			return false
		}
		return true
	})
}

// call notes what is called, and reports whether its callee is still to be visited.
func (r *wordReader) call(n *ast.CallExpression) bool {
	if name, ok := n.Callee.(*ast.Identifier); ok {
		r.calls[name.Name.String()] = true
		if name.Name == "in_calendar" && len(n.ArgumentList) > 0 {
			if text, ok := n.ArgumentList[0].(*ast.StringLiteral); ok {
				r.calendars[text.Value.String()] = true
			}
		}
		return true
	}
	path, ok := memberOf(n.Callee)
	if !ok || len(path) == 0 {
		return true
	}
	r.member(path[:len(path)-1]) // without the name of the method
	inspect(reflect.ValueOf(n.ArgumentList), r.visit)
	return false
}

// member notes labels of the entity, and a member of the event if its type has no such field. Any key of a map may exist, and values of
// other types have members of the language.
func (r *wordReader) member(path []string) {
	t := eventType
	for i, name := range path {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() == reflect.Slice {
			if _, err := strconv.Atoi(name); err != nil {
				return
			}
			t = t.Elem()
			continue
		}
		if t.Kind() == reflect.Map && path[i-1] == "labels" && path[0] == "entity" {
			r.labels[memberName(path[:i+1])] = name
		}
		if t.Kind() != reflect.Struct {
			return
		}
		fields := fieldsOfType(t)
		at, ok := fields.index[name]
		if !ok {
			if !slices.Contains(fields.names, name) {
				whole := memberName(path[:i+1])
				r.members[whole] = UnknownWord{whole, r.nearest(path[:i], name, fields.names)}
			}
			return
		}
		t = t.FieldByIndex(at).Type
	}
}

func (*wordReader) nearest(path []string, name string, known []string) string {
	if near := optionerr.Nearest(name, known); near != "" {
		return memberName(append(slices.Clone(path), near))
	}
	return ""
}

func memberName(path []string) string {
	name := "event"
	for _, p := range path {
		name = fmt.Sprint(name, ".", p)
	}
	return name
}
