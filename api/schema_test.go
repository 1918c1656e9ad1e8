package api

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/audit"
	"github.com/lapwing-monitoring/lapwing/inhibit"
	"github.com/lapwing-monitoring/lapwing/report"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// schemas are the components of the document. Each is made from a Go type: its properties are the fields in their
// order, and its descriptions are the comments.
type schemas struct {
	components map[string]any
	made       map[string]reflect.Type // the type that each component is made from
	sent       map[reflect.Type]bool   // types in requests; takes adds them
	sources    sources
}

func newSchemas() *schemas {
	return &schemas{
		components: map[string]any{}, made: map[string]reflect.Type{}, sent: map[reflect.Type]bool{}, sources: sources{},
	}
}

// names are the components whose names differ from their types'.
var names = map[reflect.Type]string{
	reflect.TypeFor[audit.Change]():    "AuditChange",
	reflect.TypeFor[audit.Entry]():     "AuditEntry",
	reflect.TypeFor[healthAnswer]():    "Health",
	reflect.TypeFor[versionAnswer]():   "ServerVersion",
	reflect.TypeFor[chosen]():          "DeadLetterChoice",
	reflect.TypeFor[toRetry]():         "HandlerToRetry",
	reflect.TypeFor[retried]():         "RetriedCount",
	reflect.TypeFor[inhibit.Report]():  "DependencyReport",
	reflect.TypeFor[report.Report]():   "StateReport",
	reflect.TypeFor[report.Row]():      "StateReportRow",
	reflect.TypeFor[report.Incident](): "StateReportIncident",
	reflect.TypeFor[report.Kind]():     "StateReportKind",
}

// shapes are the types whose JSON differs from their fields.
var shapes = map[reflect.Type]object{
	reflect.TypeFor[time.Time]():       {"type": "string", "format": "date-time"},
	reflect.TypeFor[json.RawMessage](): {},
	reflect.TypeFor[anyObject]():       {"type": "object"},
	reflect.TypeFor[resource.HookList](): {"type": "object", "description": "Names of hooks, by the status that runs them",
		"additionalProperties": object{"type": []string{"array", "null"}, "items": object{"type": "string"}}},
	reflect.TypeFor[resource.AuthProvider](): {"type": "object", "properties": object{
		"type": object{"type": "string"}, "api_version": object{"type": "string"},
		"metadata": object{"type": "object"}, "spec": object{"type": "object"}}},
}

// formats are the formats of integers. An int has none.
var formats = map[reflect.Kind]object{
	reflect.Int:    {"type": "integer"},
	reflect.Int32:  {"type": "integer", "format": "int32"},
	reflect.Int64:  {"type": "integer", "format": "int64"},
	reflect.Uint8:  {"type": "integer", "format": "uint8", "minimum": 0},
	reflect.Uint16: {"type": "integer", "format": "uint16", "minimum": 0},
	reflect.Uint32: {"type": "integer", "format": "uint32", "minimum": 0},
	reflect.Uint64: {"type": "integer", "format": "uint64", "minimum": 0},
}

// of returns the schema of a type. Structs, and string types with constants, are components.
func (s *schemas) of(t reflect.Type) object {
	if shape, ok := shapes[t]; ok {
		return shape
	}
	switch t.Kind() {
	case reflect.Pointer:
		return object{"anyOf": []object{s.of(t.Elem()), {"type": "null"}}}
	case reflect.String:
		if t.PkgPath() != "" {
			if values := s.sources.of(t).constants[t.Name()]; values != nil {
				return s.component(t, func() any {
					return properties{{"type", "string"}, {"description", s.describe(t)}, {"enum", values}}
				})
			}
		}
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return object{"type": "string"}
		}
		return object{"type": []string{"array", "null"}, "items": s.of(t.Elem())}
	case reflect.Map:
		return object{"type": []string{"object", "null"}, "additionalProperties": s.of(t.Elem())}
	case reflect.Struct:
		return s.component(t, func() any { return s.structure(t) })
	}
	return formats[t.Kind()]
}

// component returns a reference to the component of a type, and makes it if it does not exist.
func (s *schemas) component(t reflect.Type, make func() any) object {
	name := schemaName(t)
	switch other, ok := s.made[name]; {
	case !ok:
		s.made[name] = t // before it is made: it may contain itself
		s.components[name] = make()
	case other != t:
		panic(fmt.Sprintf("schemas of %v and %v are both called %s: add one to names", other, t, name))
	}
	if ours := reflect.TypeFor[resource.Event](); t.PkgPath() != ours.PkgPath() && s.sources.of(ours).types[name] {
		panic(fmt.Sprintf("the schema of %v is called like resource.%s: add it to names", t, name))
	}
	return object{"$ref": "#/components/schemas/" + name}
}

func schemaName(t reflect.Type) string {
	if name, ok := names[t]; ok {
		return name
	}
	return strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
}

func (s *schemas) structure(t reflect.Type) any {
	var fields properties
	var required []string
	s.fields(t, &fields, &required)
	out := properties{{"type", "object"}}
	if text := s.describe(t); text != "" {
		out = append(out, property{"description", text})
	}
	out = append(out, property{"properties", fields})
	if len(required) > 0 && !s.sent[t] {
		out = append(out, property{"required", required})
	}
	return out
}

// fields appends the properties of a struct, and the names of the properties that every answer has. A field hides a
// field of the same name in an embedded struct.
func (s *schemas) fields(t reflect.Type, out *properties, required *[]string) {
	comments := s.sources.of(t).text
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			var inner properties
			var always []string
			s.fields(f.Type, &inner, &always)
			*out = append(*out, slices.DeleteFunc(inner, func(p property) bool { return hasField(t, p.name) })...)
			*required = append(*required, slices.DeleteFunc(always, func(name string) bool { return hasField(t, name) })...)
		case f.IsExported() && name != "-" && name != "":
			*out = append(*out, property{name, withText(s.of(f.Type), comments[t.Name()+"."+f.Name])})
			if !strings.HasPrefix(options, "omit") {
				*required = append(*required, name)
			}
		}
	}
}

// hasField reports whether a struct itself has a field with that JSON name.
func hasField(t reflect.Type, name string) bool {
	for i := range t.NumField() {
		if own, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); own == name {
			return true
		}
	}
	return false
}

// withText returns a schema with a description, if there is one.
func withText(schema object, text string) any {
	if text == "" {
		return schema
	}
	out := properties{{"description", text}}
	for _, key := range slices.Sorted(maps.Keys(schema)) {
		out = append(out, property{key, schema[key]})
	}
	return out
}

// takes records that requests have a type. A request may leave fields out, and the type does not say which. So none of
// its fields is required, even if each answer has it.
func (s *schemas) takes(t reflect.Type) {
	switch {
	case s.sent[t] || shapes[t] != nil:
	case t.Kind() == reflect.Pointer, t.Kind() == reflect.Slice, t.Kind() == reflect.Map:
		s.takes(t.Elem())
	case t.Kind() == reflect.Struct:
		s.sent[t] = true
		for i := range t.NumField() {
			s.takes(t.Field(i).Type)
		}
	}
}

// describe returns the comment of a type, beginning with the name of its schema.
func (s *schemas) describe(t reflect.Type) string {
	text := s.sources.of(t).text[t.Name()]
	if rest, ok := strings.CutPrefix(text, t.Name()+" "); ok {
		return schemaName(t) + " " + rest
	}
	return text
}

// properties are the ordered properties of a JSON object.
type properties []property

type property struct {
	name  string
	value any
}

func (p properties) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, one := range p {
		if i > 0 {
			out = append(out, ',')
		}
		value, err := json.Marshal(one.value)
		if err != nil {
			return nil, err
		}
		out = append(strconv.AppendQuote(out, one.name), ':')
		out = append(out, value...)
	}
	return append(out, '}'), nil
}

// sources are the comments and constants of packages, by package path. Reflection does not have them.
type sources map[string]*source

type source struct {
	types     map[string]bool
	text      map[string]string   // of types and Type.Field
	constants map[string][]string // of types that are strings
}

const module = "github.com/lapwing-monitoring/lapwing/"

// of returns the source of a type's package.
func (s sources) of(t reflect.Type) *source {
	if s[t.PkgPath()] == nil {
		s[t.PkgPath()] = readSource(path.Join("..", strings.TrimPrefix(t.PkgPath(), module)))
	}
	return s[t.PkgPath()]
}

func readSource(dir string) *source {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		panic(fmt.Sprintf("no Go files in %s: %v", dir, err))
	}
	s := &source{types: map[string]bool{}, text: map[string]string{}, constants: map[string][]string{}}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			panic(err)
		}
		for _, d := range file.Decls {
			if decl, ok := d.(*ast.GenDecl); ok {
				s.read(decl)
			}
		}
	}
	return s
}

func (s *source) read(decl *ast.GenDecl) {
	for _, spec := range decl.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			s.types[spec.Name.Name] = true
			if s.text[spec.Name.Name] = comment(spec.Doc); !decl.Lparen.IsValid() {
				s.text[spec.Name.Name] = comment(decl.Doc)
			}
			if structure, ok := spec.Type.(*ast.StructType); ok {
				for _, field := range structure.Fields.List {
					for _, name := range field.Names {
						s.text[spec.Name.Name+"."+name.Name] = comment(field.Doc, field.Comment)
					}
				}
			}
		case *ast.ValueSpec:
			typ, ok := spec.Type.(*ast.Ident)
			if !ok || decl.Tok != token.CONST {
				continue
			}
			for _, value := range spec.Values {
				if literal, ok := value.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					text, _ := strconv.Unquote(literal.Value)
					s.constants[typ.Name] = append(s.constants[typ.Name], text)
				}
			}
		}
	}
}

// comment returns the text of comments in one line.
func comment(groups ...*ast.CommentGroup) string {
	var text []string
	for _, g := range groups {
		text = append(text, strings.Fields(g.Text())...)
	}
	return strings.Join(text, " ")
}
