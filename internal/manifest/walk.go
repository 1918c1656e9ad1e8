package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Walk compares decoded values with Go types. The decoder of encoding/json cannot do that: it stops at the first mistake,
// and does not see unknown fields of types with their own decoders.
type Walk struct {
	// Unknown is called for a field that its object's type lacks. The steps lead to it from the document; known are the
	// fields of the type.
	Unknown func(steps []any, path string, known []string)
	// Wrong, if set, is called for a value that its field cannot have.
	Wrong func(steps []any, text string)
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// Value compares a value with the type that it would be decoded into. path is its name for people, with a dot at the end
// unless it is empty; steps lead to it from the document.
func (w *Walk) Value(t reflect.Type, v any, path string, steps []any) {
	if v == nil {
		return
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct && reflect.PointerTo(t).Implements(unmarshaler) || t.Kind() == reflect.Interface {
		return
	}
	if want := wordFor(t); want != "" && !isA(t, v) {
		if w.Wrong != nil {
			text := fmt.Sprintf("%s must be %s, not %s", strings.TrimSuffix(path, "."), want, valueWord(v))
			if t.Kind() == reflect.String && scalar(v) {
				text += fmt.Sprintf(": write it in quotes, %q", fmt.Sprint(v))
			}
			w.Wrong(steps, text)
		}
		return
	}
	deeper := func(step any) []any { return append(slices.Clip(steps), step) }
	switch v := v.(type) {
	case []any:
		if t.Kind() != reflect.Slice {
			return
		}
		for i, item := range v {
			w.Value(t.Elem(), item, fmt.Sprintf("%s[%d].", strings.TrimSuffix(path, "."), i), deeper(i))
		}
	case map[string]any:
		switch {
		case t == reflect.TypeFor[resource.HookList](): // an object whose only key is data
		case t.Kind() == reflect.Map:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				w.Value(t.Elem(), v[key], FieldPath(strings.TrimSuffix(path, "."), key)+".", deeper(key))
			}
		case t.Kind() == reflect.Struct:
			w.fields(t, v, path, deeper)
		}
	}
}

func (w *Walk) fields(t reflect.Type, v map[string]any, path string, deeper func(any) []any) {
	fields := fieldsOf(t)
	for _, key := range slices.Sorted(maps.Keys(v)) {
		if _, own := fields.types["metadata"]; path+key == "metadata" && !own {
			continue // of wrapped kinds: their metadata is beside the spec
		}
		if of, ok := fields.types[strings.ToLower(key)]; ok {
			w.Value(of, v[key], path+key+".", deeper(key))
			continue
		}
		w.Unknown(deeper(key), path+key, fields.names)
	}
}

// structFields are the fields that encoding/json decodes into a struct. It does not look at the case of keys.
type structFields struct {
	types map[string]reflect.Type // by the name in lower case
	names []string
}

// fieldsOfTypes keeps the fields of each type: a dump may have a million objects of one.
var fieldsOfTypes sync.Map

func fieldsOf(t reflect.Type) *structFields {
	if known, ok := fieldsOfTypes.Load(t); ok {
		return known.(*structFields)
	}
	out := &structFields{types: map[string]reflect.Type{}}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || name == "" {
			continue
		}
		out.names = append(out.names, name)
		if lower := strings.ToLower(name); out.types[lower] == nil {
			out.types[lower] = f.Type
		}
	}
	fieldsOfTypes.Store(t, out)
	return out
}

// wordFor returns what a field of type t takes, in words, or "" if the decoder decides.
func wordFor(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() {
			return ""
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return ""
		}
	}
	return TypeWord(t)
}

// TypeWord returns what a value of type t is in JSON, in words.
func TypeWord(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number, not negative"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	}
	return t.String()
}

// isA reports whether a value of JSON can be one of type t.
func isA(t reflect.Type, v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return t.Kind() == reflect.Struct || t.Kind() == reflect.Map
	case []any:
		return t.Kind() == reflect.Slice || t.Kind() == reflect.Array
	case string:
		return t.Kind() == reflect.String
	case bool:
		return t.Kind() == reflect.Bool
	case json.Number:
		to := reflect.New(t)
		return t.Kind() != reflect.String && json.Unmarshal([]byte(v), to.Interface()) == nil
	}
	return false
}

func scalar(v any) bool {
	switch v.(type) {
	case bool, json.Number:
		return true
	}
	return false
}

// valueWord describes a value of JSON.
func valueWord(v any) string {
	switch v := v.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		return fmt.Sprintf("the text %q", resource.Short(v))
	}
	return resource.Short(fmt.Sprint(v))
}
