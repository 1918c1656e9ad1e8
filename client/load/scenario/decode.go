package scenario

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// maxErrors bounds the mistakes that are reported at once: later ones may follow from the first.
const maxErrors = 10

// decoder reads YAML into structs. It reports every mistake with its line and the path of its field; unknown fields are
// mistakes.
type decoder struct {
	file  string
	lines map[string]int // lines of the fields, by paths like checks[2].interval
	errs  []mistake
}

type mistake struct {
	line int
	text string
}

func (d *decoder) fail(line int, at, format string, args ...any) {
	if len(d.errs) >= maxErrors {
		return
	}
	text := fmt.Sprintf(format, args...)
	if at != "" {
		text = at + ": " + text
	}
	d.errs = append(d.errs, mistake{line, text})
}

// failAt reports a mistake in a field that was read, or that is missing in one that was.
func (d *decoder) failAt(at, format string, args ...any) {
	line := 1
	for p := at; p != ""; p = p[:max(0, strings.LastIndexAny(p, ".["))] {
		if l, ok := d.lines[p]; ok {
			line = l
			break
		}
	}
	d.fail(line, at, format, args...)
}

// err returns all mistakes in the order of their lines.
func (d *decoder) err() error {
	slices.SortStableFunc(d.errs, func(a, b mistake) int { return cmp.Compare(a.line, b.line) })
	var errs []error
	for _, m := range d.errs {
		errs = append(errs, fmt.Errorf("%s:%d: %s", d.file, m.line, m.text))
	}
	return errors.Join(errs...)
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func (d *decoder) decode(n *yaml.Node, v reflect.Value, at string) {
	d.lines[at] = n.Line
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		d.fail(n.Line, at, "anchors and aliases are not allowed here")
		return
	}
	if n.Tag == "!!null" {
		d.fail(n.Line, at, "has no value")
		return
	}
	if v.CanAddr() && v.Addr().Type().Implements(textType) {
		if s, ok := d.scalar(n, at, "text"); ok {
			if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s)); err != nil {
				d.fail(n.Line, at, "%v", err)
			}
		}
		return
	}
	if v.Type() == durationType {
		if s, ok := d.scalar(n, at, "a time such as 10s"); ok {
			t, err := time.ParseDuration(s)
			if err != nil || t < 0 {
				d.fail(n.Line, at, "%q is not a time such as 10s, 5m or 500ms", s)
			}
			v.SetInt(int64(t))
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.fields(n, v, at)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.decode(n, v.Elem(), at)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			d.fail(n.Line, at, "must be a list, not %s", kindOf(n))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		for i, item := range n.Content {
			d.decode(item, v.Index(i), fmt.Sprintf("%s[%d]", at, i))
		}
	case reflect.Map:
		d.entries(n, v, at)
	case reflect.Interface:
		d.anything(n, v, at)
	case reflect.String:
		if s, ok := d.scalar(n, at, "text"); ok {
			v.SetString(s)
		}
	case reflect.Bool:
		if s, ok := d.scalar(n, at, "true or false"); ok {
			if s != "true" && s != "false" {
				d.fail(n.Line, at, "%q is neither true nor false", s)
			}
			v.SetBool(s == "true")
		}
	default:
		d.number(n, v, at)
	}
}

// fields reads a mapping whose keys are fields of a struct.
func (d *decoder) fields(n *yaml.Node, v reflect.Value, at string) {
	var known []string
	index := map[string]int{}
	for i := range v.NumField() {
		if name := v.Type().Field(i).Tag.Get("yaml"); name != "" && name != "-" {
			known = append(known, name)
			index[name] = i
		}
	}
	d.each(n, at, func(key, value *yaml.Node, path string) {
		i, ok := index[key.Value]
		if !ok {
			d.fail(key.Line, path, "there is no such field; those there are: %s", strings.Join(known, ", "))
			return
		}
		d.decode(value, v.Field(i), path)
	})
}

func (d *decoder) entries(n *yaml.Node, v reflect.Value, at string) {
	v.Set(reflect.MakeMap(v.Type()))
	d.each(n, at, func(key, value *yaml.Node, path string) {
		k, item := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		before := len(d.errs)
		d.decode(key, k, path)
		d.decode(value, item, path)
		if len(d.errs) == before {
			v.SetMapIndex(k, item)
		}
	})
}

// each calls f for the entries of a mapping with the path of each.
func (d *decoder) each(n *yaml.Node, at string, f func(key, value *yaml.Node, path string)) {
	if n.Kind != yaml.MappingNode {
		d.fail(n.Line, at, "must be a mapping of names to values, not %s", kindOf(n))
		return
	}
	var seen []string
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		path := strings.TrimPrefix(at+"."+key.Value, ".")
		switch {
		case key.Kind != yaml.ScalarNode:
			d.fail(key.Line, at, "a name must not be %s", kindOf(key))
		case slices.Contains(seen, key.Value):
			d.fail(key.Line, path, "is there twice")
		default:
			seen = append(seen, key.Value)
			f(key, n.Content[i+1], path)
		}
	}
}

// anything reads a value whose form the API checks.
func (d *decoder) anything(n *yaml.Node, v reflect.Value, at string) {
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		d.decode(n, reflect.ValueOf(&m).Elem(), at)
		v.Set(reflect.ValueOf(m))
	case yaml.SequenceNode:
		var list []any
		d.decode(n, reflect.ValueOf(&list).Elem(), at)
		v.Set(reflect.ValueOf(list))
	default:
		var value any
		if err := n.Decode(&value); err != nil {
			d.fail(n.Line, at, "%v", err)
			return
		}
		v.Set(reflect.ValueOf(value))
	}
}

func (d *decoder) number(n *yaml.Node, v reflect.Value, at string) {
	s, ok := d.scalar(n, at, "a number")
	if !ok {
		return
	}
	digits := strings.ReplaceAll(s, "_", "")
	var err error
	switch bits := v.Type().Bits(); {
	case v.CanInt():
		var i int64
		i, err = strconv.ParseInt(digits, 10, bits)
		v.SetInt(i)
	case v.CanUint():
		var u uint64
		u, err = strconv.ParseUint(digits, 10, bits)
		v.SetUint(u)
	default:
		var f float64
		f, err = strconv.ParseFloat(digits, bits)
		if f-f != 0 { // not a number, or infinite
			err = strconv.ErrRange
		}
		v.SetFloat(f)
	}
	if err != nil {
		kind := "a whole number"
		switch {
		case v.CanFloat():
			kind = "a number"
		case v.CanUint():
			kind = "a whole number from 0 on"
		}
		if errors.Is(err, strconv.ErrRange) {
			kind += " of a sensible size"
		}
		d.fail(n.Line, at, "%q is not %s", s, kind)
	}
}

func (d *decoder) scalar(n *yaml.Node, at, want string) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		d.fail(n.Line, at, "must be %s, not %s", want, kindOf(n))
		return "", false
	}
	return n.Value, true
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	return strconv.Quote(n.Value)
}
