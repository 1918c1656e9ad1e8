package filter

import (
	"reflect"
	"strconv"
	"strings"

	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"

	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	// maxSeen bounds the values reported of one expression, and maxValue a value's length in bytes.
	maxSeen, maxValue = 16, 200
	// maxError bounds a thrown text in reports, in bytes.
	maxError = 1 << 10
)

// look is a member of the event in an expression's text, for example event.check.occurrences.
type look struct {
	name string
	path []string // without "event"
}

// looksOf finds the members that a program reads. It analyses the text: members computed at run time are not known.
func looksOf(program *ast.Program) []look {
	var looks []look
	seen := map[string]bool{}
	add := func(path []string) {
		name := "event." + strings.Join(path, ".")
		if len(path) > 0 && len(looks) < maxSeen && !seen[name] {
			seen[name] = true
			looks = append(looks, look{name, path})
		}
	}
	var visit func(node any) bool
	visit = func(node any) bool {
		switch node := node.(type) {
		case *ast.CallExpression:
			path, ok := memberOf(node.Callee)
			if !ok || len(path) == 0 {
				return true
			}
			add(path[:len(path)-1]) // without the name of the method
			inspect(reflect.ValueOf(node.ArgumentList), visit)
			return false
		case *ast.DotExpression, *ast.BracketExpression:
			if path, ok := memberOf(node.(ast.Expression)); ok {
				add(path)
				return false
			}
		}
		return true
	}
	inspect(reflect.ValueOf(program.Body), visit)
	return looks
}

// inspect visits the nodes of a tree, and the nodes within a node if visit returns true.
func inspect(v reflect.Value, visit func(node any) bool) {
	switch v.Kind() {
	case reflect.Interface:
		if !v.IsNil() {
			inspect(v.Elem(), visit)
		}
	case reflect.Pointer:
		if !v.IsNil() && v.Type() != fileType && visit(v.Interface()) {
			inspect(v.Elem(), visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				inspect(v.Field(i), visit)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			inspect(v.Index(i), visit)
		}
	}
}

var fileType = reflect.TypeFor[*file.File]()

// memberOf returns the path of an expression that reads a member of the event by constant names.
func memberOf(e ast.Expression) ([]string, bool) {
	switch e := e.(type) {
	case *ast.Identifier:
		return nil, e.Name.String() == "event"
	case *ast.DotExpression:
		path, ok := memberOf(e.Left)
		return append(path, e.Identifier.Name.String()), ok
	case *ast.BracketExpression:
		path, ok := memberOf(e.Left)
		switch key := e.Member.(type) {
		case *ast.StringLiteral:
			return append(path, key.Value.String()), ok
		case *ast.NumberLiteral:
			return append(path, key.Literal), ok
		}
	case *ast.OptionalChain:
		return memberOf(e.Expression)
	case *ast.Optional:
		return memberOf(e.Expression)
	}
	return nil, false
}

// saw returns the values that an expression read, as they were before it ran.
func (s *sandbox) saw(sc *script, ev *resource.Event) []Value {
	values := make([]Value, 0, len(sc.looks)+len(s.answers))
	for _, l := range sc.looks {
		values = append(values, Value{l.name, valueAt(reflect.ValueOf(ev).Elem(), l.path)})
	}
	return append(values, s.answers...)
}

// valueAt follows a path through the event as expressions see it.
func valueAt(v reflect.Value, path []string) string {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return undefined
		}
		v = v.Elem()
	}
	if len(path) == 0 {
		return asText(v)
	}
	name := path[0]
	switch v.Kind() {
	case reflect.Struct:
		if at, ok := fieldsOfType(v.Type()).index[name]; ok {
			f := v.FieldByIndex(at)
			if v.Type() == entityType && len(path) == 2 && (name == "labels" || name == "annotations") {
				if e, ok := v.Addr().Interface().(*resource.Entity); ok && e.Redacts(path[1]) {
					return resource.Redacted
				}
			}
			if v.Type() == checkType && name == "env_vars" {
				f = reflect.ValueOf(resource.RedactVariables(f.Interface().([]string)))
			}
			return valueAt(f, path[1:])
		}
		if f, ok := computed[name]; ok && v.Type() == eventType {
			return strconv.FormatBool(f(v.Addr().Interface().(*resource.Event)))
		}
	case reflect.Map:
		if item := v.MapIndex(reflect.ValueOf(name)); item.IsValid() {
			return valueAt(item, path[1:])
		}
	case reflect.Slice:
		if name == "length" {
			return strconv.Itoa(v.Len())
		}
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < v.Len() {
			return valueAt(v.Index(i), path[1:])
		}
	case reflect.String:
		if name == "length" {
			return strconv.Itoa(v.Len())
		}
	}
	return undefined
}

const undefined = "undefined"

func asText(v reflect.Value) string {
	switch v.Kind() {
	case reflect.String:
		return cut(v.String())
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.FormatUint(v.Uint(), 10)
	case reflect.Float32, reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'g', -1, 64)
	case reflect.Slice:
		if list, ok := v.Interface().([]string); ok {
			return cut("[" + strings.Join(list[:min(len(list), maxValue)], ", ") + "]")
		}
		return "a list of " + strconv.Itoa(v.Len())
	case reflect.Map:
		if m, ok := v.Interface().(map[string]string); ok && len(m) == 0 {
			return "{}"
		}
		return "an object of " + strconv.Itoa(v.Len())
	}
	return "an object"
}

// cut shortens a value at a character boundary.
func cut(text string) string { return shorten(text, maxValue) }

// cutError shortens a thrown text. It goes into traces, logs and answers of the API.
func cutError(text string) string { return shorten(text, maxError) }

func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
