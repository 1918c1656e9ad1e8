package resource

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// naming matches the paths of fields that hold names of definitions, or look so.
var naming = regexp.MustCompile(`(^|[._])(handler|filter|mutator|pipeline|asset|hook|calendar|contact|rota|user|role|within|subjects)`)

// noNames are fields whose paths match naming and that name no definition.
var noNames = []string{
	"User.username", "Entity.user", "EntityConfig.user", // its own name, or that of an agent, which may be of a certificate
	"EventFilter.author.user", "Mutator.author.user", "Aggregate.author.user", "MetricCheck.author.user", // set by the server
	"Asset.filters", "Asset.builds.filters", // expressions
	"Calendar.windows.calendar", // refused: only exceptions name calendars
	"Entity.system.vm_role",
	"Handler.webhook..username", "Handler.slack.username", "Handler.email.username", "Handler.alertmanager..username",
	"Handler.influx..username",
}

// TestUses: Uses returns what is in each field that holds names of definitions. For a new field, extend Uses, or noNames if
// it holds no names.
func TestUses(t *testing.T) {
	var unneeded []string
	for _, k := range Kinds {
		// Events are no definitions, and providers of sign-ins name what their own server has.
		if k.Internal() || k.Type == "Event" || k.Type == "AuthProvider" {
			continue
		}
		obj := k.New()
		var paths []string
		fillNames(reflect.ValueOf(obj).Elem(), k.Type, func(path string) { paths = append(paths, path) })
		var used []string
		_, uses := Uses(obj)
		for _, u := range uses {
			used = append(used, u.Name)
		}
		for _, path := range paths {
			switch known := slices.Contains(noNames, path); {
			case known:
				unneeded = append(unneeded, path)
			case !slices.Contains(used, path):
				t.Errorf("Uses leaves out %s", path)
			}
		}
	}
	for _, path := range noNames {
		if !slices.Contains(unneeded, path) {
			t.Errorf("%s of noNames is no field", path)
		}
	}
}

// fillNames sets each text in v whose path matches naming to its path, and calls found with it.
func fillNames(v reflect.Value, path string, found func(path string)) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillNames(v.Elem(), path, found)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillNames(v.Index(0), path, found)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[ObjectMeta]() {
			return
		}
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			if f := v.Field(i); f.CanSet() && name != "api_version" && name != "type" {
				fillNames(f, path+"."+name, found)
			}
		}
		if s, ok := v.Addr().Interface().(*Subject); ok {
			s.Type = "User"
		}
	case reflect.String:
		if _, field, _ := strings.Cut(path, "."); naming.MatchString(field) {
			v.SetString(path)
			found(path)
		}
	}
}
