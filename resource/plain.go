package resource

import "reflect"

// Plain returns what encoding/json makes v's JSON of. It encodes as v does, in one pass; what MarshalJSON returns is read
// again by its caller, which counts in long lists. Whatever has no such form is returned as it is.
func Plain(v any) any {
	switch v := v.(type) {
	case *Event:
		if shape, err := v.shape(); err == nil {
			return shape
		}
	case *Entity:
		return v.shape()
	}
	return v
}

// DropEmptyLists makes all empty lists of a definition absent, as they are after Sensu has stored them: readers see null,
// whichever of the two was sent.
func DropEmptyLists(definition any) { dropEmptyLists(reflect.ValueOf(definition)) }

func dropEmptyLists(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			dropEmptyLists(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				dropEmptyLists(f)
			}
		}
	case reflect.Slice:
		if v.Len() == 0 {
			v.SetZero()
			return
		}
		if k := v.Type().Elem().Kind(); k == reflect.Struct || k == reflect.Pointer {
			for i := range v.Len() {
				dropEmptyLists(v.Index(i))
			}
		}
	}
}
