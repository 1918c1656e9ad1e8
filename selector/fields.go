package selector

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Resource shows a resource, or a pointer to one, to selectors. Fields have their names of JSON after the type's name
// and a dot; those of metadata stand beside them: "check.interval", "check.name", "check.labels.region". A list of
// named objects is the list of their names. Fields that no reader may see are missing: passwords, and labels that an
// entity redacts.
func Resource(r any) Fields {
	if ev, ok := r.(*resource.Event); ok {
		return Event(ev)
	}
	v := reflect.Indirect(reflect.ValueOf(r))
	return &object{prefix: prefixOf(v.Type()), value: v, shape: shapeOf(v.Type())}
}

// Entity returns the fields of an entity with this definition. whole joins it with what its agent reports; it is called only
// for fields that need that.
func Entity(definition *resource.EntityConfig, whole func() any) Fields {
	return &entity{Resource(definition), whole}
}

type entity struct {
	Fields // of the definition
	whole  func() any
}

func (e *entity) Field(name string) Value {
	if v := e.Fields.Field(name); !v.Missing() || !Knows("entity", (*resource.Entity)(nil), name) {
		return v
	}
	return Resource(e.whole()).Field(name)
}

// Of is Resource with another prefix for the fields.
func Of(prefix string, r any) Fields {
	v := reflect.Indirect(reflect.ValueOf(r))
	return &object{prefix: prefix, value: v, shape: shapeOf(v.Type())}
}

// prefixOf is Sensu's name of a type in selectors.
func prefixOf(t reflect.Type) string {
	switch name := t.Name(); name {
	case "CheckConfig", "EntityConfig", "HookConfig", "TessenConfig":
		return strings.ToLower(strings.TrimSuffix(name, "Config"))
	case "EventFilter":
		return "filter"
	case "APIKey":
		return "api_key"
	case "Entry": // of the audit log
		return "audit"
	default:
		return strings.ToLower(name)
	}
}

// Knows reports whether resources of a type have a field, or may have it if it is a label. example is a pointer, which
// may be nil.
func Knows(prefix string, example any, name string) bool {
	path, ok := strings.CutPrefix(name, prefix+".")
	if !ok {
		return false
	}
	s := shapeOf(reflect.TypeOf(example).Elem())
	if _, ok := s.fields[path]; ok {
		return true
	}
	return slices.ContainsFunc(s.maps, func(m mapPlace) bool { return strings.HasPrefix(path, m.path) })
}

// object is a resource of any type.
type object struct {
	prefix string
	value  reflect.Value // of a struct
	shape  *shape
}

func (o *object) Field(name string) Value {
	path, ok := strings.CutPrefix(name, o.prefix)
	if !ok || !strings.HasPrefix(path, ".") {
		return Value{}
	}
	return o.shape.field(o.value, path[1:])
}

func (o *object) Label(key string) Value { return o.shape.field(o.value, "labels."+key) }

// shape holds the places of a type's fields.
type shape struct {
	fields map[string]place
	maps   []mapPlace
}

type place struct {
	index []int
	typ   fieldType
	value func(reflect.Value) Value
}

// mapPlace is the place of a map of strings, whose keys end the names of fields.
type mapPlace struct {
	path  string // with a dot at the end
	index []int
	owner []int // the struct that may redact its values
}

// redacter is a resource that hides some of its labels and annotations.
type redacter interface{ Redacts(key string) bool }

func (s *shape) field(v reflect.Value, path string) Value {
	if p, ok := s.fields[path]; ok {
		if v = follow(v, p.index); !v.IsValid() {
			return Value{}
		}
		return p.value(v)
	}
	for _, m := range s.maps {
		key, ok := strings.CutPrefix(path, m.path)
		if !ok {
			continue
		}
		entries := follow(v, m.index)
		if !entries.IsValid() {
			return Value{}
		}
		value := entries.MapIndex(reflect.ValueOf(key))
		if !value.IsValid() {
			return Value{}
		}
		if redacts(follow(v, m.owner), key) {
			return Text(resource.Redacted)
		}
		return Text(value.String())
	}
	return Value{}
}

func redacts(owner reflect.Value, key string) bool {
	if !owner.CanAddr() {
		return false
	}
	r, ok := owner.Addr().Interface().(redacter)
	return ok && r.Redacts(key)
}

// follow goes down to a field; it returns the zero Value if there is a nil on the way.
func follow(v reflect.Value, index []int) reflect.Value {
	for _, i := range index {
		if v.Kind() == reflect.Pointer {
			if v = v.Elem(); !v.IsValid() {
				return v
			}
		}
		v = v.Field(i)
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	return v
}

var shapes sync.Map // reflect.Type -> *shape

func shapeOf(t reflect.Type) *shape {
	if s, ok := shapes.Load(t); ok {
		return s.(*shape)
	}
	s := &shape{fields: map[string]place{}}
	s.add(t, "", nil)
	actual, _ := shapes.LoadOrStore(t, s)
	return actual.(*shape)
}

// hidden are fields that no reader may see, and one that is not stored, by their names in JSON.
var hidden = map[string]bool{"password": true, "password_hash": true, "hash": true, "no_password": true}

// instants are fields in Unix seconds, by their names in JSON.
var instants = map[string]bool{
	"timestamp": true, "executed": true, "issued": true, "last_ok": true, "last_seen": true,
	"begin": true, "expire_at": true, "created_at": true,
}

// maxNesting bounds the depth of fields. Nothing useful is deeper.
const maxNesting = 4

var metaType = reflect.TypeFor[resource.ObjectMeta]()

// add adds the fields of a struct type.
func (s *shape) add(t reflect.Type, prefix string, index []int) {
	if len(index) > maxNesting {
		return
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		at := append(index[:len(index):len(index)], i)
		ft := f.Type
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		switch {
		case !f.IsExported() || name == "-" || hidden[name]:
		case ft == metaType:
			s.add(ft, prefix, at)
		case f.Anonymous && name == "":
			s.add(ft, prefix, at)
		case ft.Kind() == reflect.Struct:
			s.add(ft, prefix+name+".", at)
		case ft.Kind() == reflect.Map && ft.Key().Kind() == reflect.String && ft.Elem().Kind() == reflect.String:
			m := mapPlace{path: prefix + name + ".", index: at, owner: index}
			if t == metaType {
				m.owner = index[:len(index)-1]
			}
			s.maps = append(s.maps, m)
		default:
			if value := reader(ft, name); value != nil {
				s.fields[prefix+name] = place{at, typeOf(ft, name), value}
			}
		}
	}
}

// reader returns a function that reads a field of a type; nil for a type that selectors cannot compare.
func reader(t reflect.Type, name string) func(reflect.Value) Value {
	switch t.Kind() {
	case reflect.String:
		return func(v reflect.Value) Value { return Text(v.String()) }
	case reflect.Bool:
		return func(v reflect.Value) Value { return Bool(v.Bool()) }
	case reflect.Int, reflect.Int32, reflect.Int64:
		if instants[name] {
			return func(v reflect.Value) Value { return Time(v.Int()) }
		}
		return func(v reflect.Value) Value { return Number(v.Int()) }
	case reflect.Uint32, reflect.Uint64:
		return func(v reflect.Value) Value { return Number(int64(v.Uint())) }
	case reflect.Float64:
		return func(v reflect.Value) Value { return Decimal(v.Float()) }
	case reflect.Slice:
		if t.Elem().Kind() == reflect.String {
			return func(v reflect.Value) Value { return List(v.Interface().([]string)) }
		}
		if named, ok := nameOf(t.Elem()); ok {
			return func(v reflect.Value) Value {
				names := make([]string, v.Len())
				for i := range names {
					names[i] = v.Index(i).FieldByIndex(named).String()
				}
				return List(names)
			}
		}
	}
	return nil
}

// typeOf returns the type of a field that reader can read.
func typeOf(t reflect.Type, name string) fieldType {
	switch t.Kind() {
	case reflect.Bool:
		return aBool
	case reflect.Int, reflect.Int32, reflect.Int64:
		if instants[name] {
			return aTime
		}
		return aNumber
	case reflect.Uint32, reflect.Uint64:
		return aNumber
	case reflect.Float64:
		return aDecimal
	case reflect.Slice:
		return aList
	}
	return anyText
}

// nameOf returns the place of a struct type's name.
func nameOf(t reflect.Type) ([]int, bool) {
	if t.Kind() != reflect.Struct {
		return nil, false
	}
	f, ok := t.FieldByName("Name")
	return f.Index, ok && f.Type.Kind() == reflect.String
}
