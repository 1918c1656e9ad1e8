package resource

import "reflect"

// Plain returns the value that encoding/json actually encodes for v. It saves a pass, which matters in long lists:
// encoding/json reads the output of MarshalJSON again. A value without such a form is returned unchanged.
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

// DropEmptyLists makes all empty lists of a definition nil, as Sensu's store does: readers see null for both.
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
