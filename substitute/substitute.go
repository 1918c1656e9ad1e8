// Package substitute replaces tokens ({{ .labels.rack }}) in definitions by values of an entity. Agents call it for
// checks, hooks and assets with their own entity, the scheduler for each entity that a check's proxy requests match.
//
// Tokens are Go templates in strings, also in lists and in values of maps. Their cost is bounded, since every user who
// may define a check can write them. Which entity's values are visible is up to the caller.
package substitute

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// noValue is what text/template writes for a missing key of a map.
const noValue = "<no value>"

const (
	// maxText bounds a string, in bytes.
	maxText = 1 << 20
	// maxNumber is the largest number in a template, and maxNesting the depth of its loops: a loop may run over a
	// number.
	maxNumber  = 1000
	maxNesting = 2
)

var functions = template.FuncMap{
	// default is used as {{ .labels.x | default "y" }}: a missing key arrives as nil.
	"default": func(fallback, value any) any {
		if value == nil {
			return fallback
		}
		return value
	},
	// assetPath names the environment variable that holds an asset's directory.
	"assetPath":   resource.AssetVariable,
	quoteFunction: shellQuote,
}

// Template is an object with its parsed tokens. It is safe for concurrent use.
type Template[T any] struct {
	object    *T
	templates map[string]*template.Template // by the string that they replace
}

// Compile parses the tokens of an object, which must not change afterwards.
func Compile[T any](object *T) (*Template[T], error) {
	t := &Template[T]{object: object, templates: map[string]*template.Template{}}
	_, _, err := rewrite("", reflect.ValueOf(object).Elem(), func(field, text string) (string, error) {
		if t.templates[text] != nil {
			return text, nil
		}
		read, err := read(field, text)
		if err != nil {
			return "", err
		}
		t.templates[text] = read
		return text, nil
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// For returns a copy of the object with its tokens replaced. Parts without tokens are shared with the object.
func (t *Template[T]) For(data Data) (*T, error) {
	out := *t.object
	if len(t.templates) == 0 {
		return &out, nil
	}
	v, changed, err := rewrite("", reflect.ValueOf(t.object).Elem(), func(field, text string) (string, error) {
		return execute(t.templates[text], field, text, data)
	})
	if err != nil {
		return nil, err
	}
	if changed {
		out = v.Interface().(T)
	}
	return &out, nil
}

// Object is Compile and For together.
func Object[T any](object *T, data Data) (*T, error) {
	t, err := Compile(object)
	if err != nil {
		return nil, err
	}
	return t.For(data)
}

// rewrite returns v with all strings that have tokens replaced by f, and whether there were any. It does not change v:
// parts with a replaced string are copied. field is the JSON name of v. Parts without a JSON name are left alone.
func rewrite(field string, v reflect.Value, f func(field, text string) (string, error)) (out reflect.Value, changed bool, err error) {
	switch v.Kind() {
	case reflect.String:
		if !strings.Contains(v.String(), "{{") {
			return v, false, nil
		}
		text, err := f(field, v.String())
		if err != nil {
			return v, false, err
		}
		out = reflect.New(v.Type()).Elem()
		out.SetString(text)
		return out, true, nil
	case reflect.Pointer:
		if v.IsNil() {
			return v, false, nil
		}
		in, changed, err := rewrite(field, v.Elem(), f)
		if err != nil || !changed {
			return v, false, err
		}
		out = reflect.New(v.Type().Elem())
		out.Elem().Set(in)
		return out, true, nil
	case reflect.Slice:
		return rewriteSlice(field, v, f)
	case reflect.Map:
		return rewriteMap(v, f)
	case reflect.Struct:
		return rewriteStruct(field, v, f)
	}
	return v, false, nil
}

func rewriteSlice(field string, v reflect.Value, f func(field, text string) (string, error)) (reflect.Value, bool, error) {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		return v, false, nil
	}
	out := v
	for i := range v.Len() {
		item, changed, err := rewrite(field, v.Index(i), f)
		if err != nil {
			return v, false, err
		}
		if !changed {
			continue
		}
		if out == v {
			out = reflect.MakeSlice(v.Type(), v.Len(), v.Len())
			reflect.Copy(out, v)
		}
		out.Index(i).Set(item)
	}
	return out, out != v, nil
}

func rewriteMap(v reflect.Value, f func(field, text string) (string, error)) (reflect.Value, bool, error) {
	texts, ok := v.Interface().(map[string]string)
	if !ok {
		return v, false, nil
	}
	var out map[string]string
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		if !strings.Contains(texts[key], "{{") {
			continue
		}
		text, err := f(key, texts[key])
		if err != nil {
			return v, false, err
		}
		if out == nil {
			out = maps.Clone(texts)
		}
		out[key] = text
	}
	if out == nil {
		return v, false, nil
	}
	return reflect.ValueOf(out), true, nil
}

func rewriteStruct(field string, v reflect.Value, f func(field, text string) (string, error)) (reflect.Value, bool, error) {
	var out reflect.Value
	t := v.Type()
	for i := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		// A checksum must not depend on tokens.
		if tag == "-" || tag == "sha512" || !t.Field(i).IsExported() {
			continue
		}
		name := tag
		if name == "" {
			name = field
		}
		if t == hookList {
			// In JSON the type is a key, and keys have no tokens.
			if name == "type" {
				continue
			}
			name = v.FieldByName("Type").String()
		}
		value, changed, err := rewrite(name, v.Field(i), f)
		if err != nil {
			return v, false, err
		}
		if !changed {
			continue
		}
		if !out.IsValid() {
			out = reflect.New(t).Elem()
			out.Set(v)
		}
		out.Field(i).Set(value)
	}
	if !out.IsValid() {
		return v, false, nil
	}
	return out, true, nil
}

var hookList = reflect.TypeFor[resource.HookList]()

// read parses one string, and refuses templates that could run for ever.
func read(field, text string) (*template.Template, error) {
	t, err := template.New(field).Funcs(functions).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: invalid template: %w", field, err)
	}
	for _, one := range t.Templates() {
		if one.Tree != nil {
			if err := bounded(one.Root, 0); err != nil {
				return nil, fmt.Errorf("%s: invalid template: %w", field, err)
			}
		}
	}
	return t, nil
}

var (
	errNumber  = fmt.Errorf("numbers may be at most %d", maxNumber)
	errNesting = fmt.Errorf("loops may be nested at most %d deep", maxNesting)
	errDefine  = errors.New("templates cannot use others")
	errLength  = fmt.Errorf("the text becomes longer than %d bytes", maxText)
)

// bounded refuses templates that could run for a long time: a running one cannot be interrupted.
func bounded(node parse.Node, loops int) error {
	list := func(nodes ...parse.Node) error {
		for _, n := range nodes {
			if err := bounded(n, loops); err != nil {
				return err
			}
		}
		return nil
	}
	branch := func(b *parse.BranchNode) error { return list(b.Pipe, b.List, b.ElseList) }
	switch n := node.(type) {
	case *parse.ListNode:
		if n != nil {
			return list(n.Nodes...)
		}
	case *parse.ActionNode:
		return bounded(n.Pipe, loops)
	case *parse.IfNode:
		return branch(&n.BranchNode)
	case *parse.WithNode:
		return branch(&n.BranchNode)
	case *parse.RangeNode:
		if loops++; loops > maxNesting {
			return errNesting
		}
		return branch(&n.BranchNode)
	case *parse.TemplateNode:
		return errDefine
	case *parse.PipeNode:
		if n != nil {
			for _, c := range n.Cmds {
				if err := list(c.Args...); err != nil {
					return err
				}
			}
		}
	case *parse.ChainNode:
		return bounded(n.Node, loops)
	case *parse.NumberNode:
		if n.IsInt && (n.Int64 > maxNumber || n.Int64 < -maxNumber) || n.IsFloat && (n.Float64 > maxNumber || n.Float64 < -maxNumber) {
			return errNumber
		}
	}
	return nil
}

// limited is a buffer for at most maxText bytes.
type limited struct{ bytes.Buffer }

func (l *limited) Write(b []byte) (int, error) {
	if l.Len()+len(b) > maxText {
		return 0, errLength
	}
	return l.Buffer.Write(b)
}

func execute(t *template.Template, field, text string, data Data) (string, error) {
	var b limited
	if err := t.Execute(&b, map[string]any(data)); err != nil {
		return "", fmt.Errorf("%s: cannot evaluate template: %w", field, err)
	}
	out := b.String()
	if strings.Contains(out, noValue) {
		// A strict first run would make "default" useless; this run names the missing token.
		strict, err := read(field, text)
		if err != nil {
			return "", err
		}
		if err := strict.Option("missingkey=error").Execute(new(limited), map[string]any(data)); err != nil {
			return "", fmt.Errorf("%s: unmatched token: %w", field, err)
		}
	}
	return out, nil
}
