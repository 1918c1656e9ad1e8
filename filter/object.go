package filter

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/dop251/goja"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// object shows a struct to expressions as a plain object with the names of JSON, and the metadata's fields beside the
// others. Fields are converted on access, since most expressions read two or three. Writes of an expression stay in the
// object.
type object struct {
	vm     *goja.Runtime
	of     reflect.Value // a struct
	fields *fieldNames
	known  map[string]goja.Value // converted or written; a nil value means deleted
}

// computed are fields of events for expressions that resource.Event does not have.
var computed = map[string]func(*resource.Event) bool{
	"has_check":         (*resource.Event).HasCheck,
	"has_metrics":       (*resource.Event).HasMetrics,
	"is_incident":       (*resource.Event).IsIncident,
	"is_resolution":     (*resource.Event).IsResolution,
	"is_silenced":       (*resource.Event).IsSilenced,
	"is_flapping_start": func(ev *resource.Event) bool { return flapping(ev) && !flapped(ev) },
	"is_flapping_end":   func(ev *resource.Event) bool { return ev.Check != nil && !flapping(ev) && flapped(ev) },
}

func flapping(ev *resource.Event) bool { return ev.Check != nil && ev.Check.State == "flapping" }

// flapped reports whether the previous result was flapping.
func flapped(ev *resource.Event) bool {
	if ev.Check == nil {
		return false
	}
	h := ev.Check.History
	return len(h) >= 2 && h[len(h)-2].Flapping
}

// fieldNames are the field names of one type.
type fieldNames struct {
	names []string
	index map[string][]int
}

var (
	eventType  = reflect.TypeFor[resource.Event]()
	entityType = reflect.TypeFor[resource.Entity]()
	checkType  = reflect.TypeFor[resource.Check]()
	metaType   = reflect.TypeFor[resource.ObjectMeta]()
	fieldsOf   sync.Map // reflect.Type to *fieldNames
)

func fieldsOfType(t reflect.Type) *fieldNames {
	if f, ok := fieldsOf.Load(t); ok {
		return f.(*fieldNames)
	}
	f := &fieldNames{index: map[string][]int{}}
	f.add(t, nil)
	if t == eventType {
		for name := range computed {
			f.names = append(f.names, name)
		}
	}
	known, _ := fieldsOf.LoadOrStore(t, f)
	return known.(*fieldNames)
}

func (f *fieldNames) add(t reflect.Type, path []int) {
	for i := range t.NumField() {
		sf := t.Field(i)
		at := append(path[:len(path):len(path)], i)
		name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
		switch {
		case sf.Anonymous || sf.Type == metaType:
			f.add(sf.Type, at)
		case name == "" || name == "-" || !sf.IsExported():
		default:
			if _, twice := f.index[name]; !twice {
				f.names = append(f.names, name)
				f.index[name] = at
			}
		}
	}
}

func newObject(vm *goja.Runtime, ev *resource.Event) *goja.Object {
	return structObject(vm, reflect.ValueOf(ev).Elem())
}

func structObject(vm *goja.Runtime, v reflect.Value) *goja.Object {
	return vm.NewDynamicObject(&object{vm: vm, of: v, fields: fieldsOfType(v.Type())})
}

// Get implements goja.DynamicObject.
func (o *object) Get(key string) goja.Value {
	if v, ok := o.known[key]; ok {
		return v
	}
	var v goja.Value
	if at, ok := o.fields.index[key]; ok {
		v = o.field(key, o.of.FieldByIndex(at))
	} else if o.of.Type() == eventType {
		if f, ok := computed[key]; ok {
			v = o.vm.ToValue(f(o.of.Addr().Interface().(*resource.Event)))
		}
	}
	if v != nil {
		o.keep(key, v)
	}
	return v
}

func (o *object) keep(key string, v goja.Value) {
	if o.known == nil {
		o.known = map[string]goja.Value{}
	}
	o.known[key] = v
}

// field redacts an entity's fields as the entity asks, and the secrets in a check's variables.
func (o *object) field(key string, v reflect.Value) goja.Value {
	if o.of.Type() == entityType && (key == "labels" || key == "annotations") {
		return o.vm.NewDynamicObject(&texts{
			vm: o.vm, of: v.Interface().(map[string]string), redacts: o.of.Addr().Interface().(*resource.Entity).Redacts,
		})
	}
	if o.of.Type() == checkType && key == "env_vars" {
		v = reflect.ValueOf(resource.RedactVariables(v.Interface().([]string)))
	}
	return convert(o.vm, v)
}

// convert turns nil lists and maps into empty ones, and absent values into undefined.
func convert(vm *goja.Runtime, v reflect.Value) goja.Value {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return goja.Undefined()
		}
		return convert(vm, v.Elem())
	case reflect.Struct:
		return structObject(vm, v)
	case reflect.Slice:
		items := make([]any, v.Len())
		for i := range items {
			items[i] = convert(vm, v.Index(i))
		}
		return vm.NewArray(items...)
	case reflect.Map: // of strings to strings: events have no others
		of, _ := v.Interface().(map[string]string)
		return vm.NewDynamicObject(&texts{vm: vm, of: of, redacts: func(string) bool { return false }})
	case reflect.String:
		return vm.ToValue(v.String())
	case reflect.Bool:
		return vm.ToValue(v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return vm.ToValue(v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return vm.ToValue(v.Uint())
	case reflect.Float32, reflect.Float64:
		return vm.ToValue(v.Float())
	}
	return goja.Undefined()
}

// Set implements goja.DynamicObject.
func (o *object) Set(key string, value goja.Value) bool {
	o.keep(key, value)
	return true
}

// Has implements goja.DynamicObject.
func (o *object) Has(key string) bool {
	v := o.Get(key)
	return v != nil && !goja.IsUndefined(v)
}

// Delete implements goja.DynamicObject.
func (o *object) Delete(key string) bool {
	o.keep(key, nil)
	return true
}

// Keys implements goja.DynamicObject.
func (o *object) Keys() []string {
	var keys []string
	for _, name := range o.fields.names {
		if o.Has(name) {
			keys = append(keys, name)
		}
	}
	for name, v := range o.known {
		if _, own := o.fields.index[name]; !own && computed[name] == nil && v != nil {
			keys = append(keys, name)
		}
	}
	return keys
}

// texts shows labels or annotations to expressions as object does.
type texts struct {
	vm      *goja.Runtime
	of      map[string]string
	redacts func(key string) bool
	written map[string]goja.Value // a nil value means deleted
}

// Get implements goja.DynamicObject.
func (o *texts) Get(key string) goja.Value {
	if v, ok := o.written[key]; ok {
		return v
	}
	value, ok := o.of[key]
	if !ok {
		return nil
	}
	if o.redacts(key) {
		value = resource.Redacted
	}
	return o.vm.ToValue(value)
}

// Set implements goja.DynamicObject.
func (o *texts) Set(key string, value goja.Value) bool {
	if o.written == nil {
		o.written = map[string]goja.Value{}
	}
	o.written[key] = value
	return true
}

// Has implements goja.DynamicObject.
func (o *texts) Has(key string) bool { return o.Get(key) != nil }

// Delete implements goja.DynamicObject.
func (o *texts) Delete(key string) bool { return o.Set(key, nil) }

// Keys implements goja.DynamicObject.
func (o *texts) Keys() []string {
	keys := make([]string, 0, len(o.of)+len(o.written))
	for key := range o.of {
		if _, written := o.written[key]; !written {
			keys = append(keys, key)
		}
	}
	for key, v := range o.written {
		if v != nil {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
