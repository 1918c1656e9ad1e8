package ctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/client/lacking"
	"github.com/lapwing-monitoring/lapwing/internal/manifest"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/substitute"
)

// managedBy is the label of resources that "create" made. Sensu's prune looks for it. With the value sensu-agent, the
// agent manages the resource.
const managedBy = "sensu.io/managed_by"

// document is one resource in a text.
type document = manifest.Document

// object is a resource from a file, ready to send.
type object struct {
	kind      *kind
	namespace string // empty if the kind has none
	name      string
	body      map[string]any // unwrapped
	at        string         // file and line
	from      *document
	meant     []string // the fields that are probably meant by unknown ones, which are mistakes
}

func (o *object) path() string { return o.kind.Path(o.namespace, o.name) }

// sent returns the request body for the object.
func (o *object) sent() map[string]any {
	if !o.kind.Wrapped {
		return o.body
	}
	return o.wrapped()
}

// wrapped returns the object as it is in files.
func (o *object) wrapped() map[string]any {
	spec := maps.Clone(o.body)
	delete(spec, "metadata")
	return map[string]any{
		"type": o.kind.Type, "api_version": o.kind.Group, "metadata": o.body["metadata"], "spec": spec,
	}
}

// labelling says whether objects get the label managedBy.
type labelling bool

const (
	asWritten labelling = false
	asManaged labelling = true
)

// mistake is something in a file that is wrong, or a warning about it.
type mistake struct {
	source string
	line   int
	what   string // type and name of the resource; "" if they are not known
	text   string
}

func (m *mistake) String() string {
	if m.what == "" {
		return fmt.Sprintf("%s:%d: %s", m.source, m.line, m.text)
	}
	return fmt.Sprintf("%s:%d: %s: %s", m.source, m.line, m.what, m.text)
}

// asError returns an error with a line for each mistake, or nil.
func asError(wrong []mistake) error {
	var lines []string
	for i := range wrong {
		lines = append(lines, wrong[i].String())
	}
	if lines == nil {
		return nil
	}
	return errors.New(strings.Join(lines, "\n"))
}

// splitDocuments returns the documents of a text, and what cannot be read.
func splitDocuments(source string, text []byte) ([]*document, []mistake) {
	documents, bad := manifest.Split(source, text)
	var wrong []mistake
	for _, one := range bad {
		wrong = append(wrong, mistake{source: source, line: one.Line, text: "it is neither YAML nor JSON: " + one.Text})
	}
	return documents, wrong
}

// wrapper has the outer fields of a resource in a file.
type wrapper struct {
	Type       string         `json:"type"`
	APIVersion string         `json:"api_version"`
	Metadata   map[string]any `json:"metadata"`
	Spec       map[string]any `json:"spec"`
}

// reading is what parseObject makes of a document. There is an object if nothing is wrong. If something is, and a server
// could decode the object in spite of it, there is a draft.
type reading struct {
	*object
	draft           *object
	named           *object // as far as it could be read; nil without a type and a name
	warnings, wrong []mistake
	meant           []string // see object
	types           typeHelp
}

// typeHelp is what a reader needs to know about unknown types, once for all files.
type typeHelp uint8

const (
	listTypes  typeHelp = 1 << iota // no known type is near
	sensuTypes                      // Sensu has the type
)

// lines returns the help.
func (h typeHelp) lines() (out []string) {
	if h&listTypes != 0 {
		out = append(out, "The types are: "+typeList())
	}
	if h&sensuTypes != 0 {
		out = append(out, "To copy the rest of a dump of Sensu: lapwing migrate sensu -f FILE")
	}
	return out
}

// parseObject makes an object of a wrapped resource.
func parseObject(d *document, namespace string, label labelling, lenient bool) reading {
	var out reading
	what := ""
	fail := func(line int, format string, args ...any) reading {
		out.wrong = append(out.wrong, mistake{d.Source, line, what, fmt.Sprintf(format, args...)})
		return out
	}
	d.At().EachTwice("", func(path string, twice manifest.Repeated) {
		fail(twice.Line, "field %q is there twice, also in line %d", strings.TrimPrefix(path, "spec."), twice.First)
	})
	var in wrapper
	dec := json.NewDecoder(bytes.NewReader(d.JSON))
	dec.UseNumber()
	if err := dec.Decode(&in); err != nil {
		if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) && wrong.Field != "" {
			return fail(d.At().Find([]any{wrong.Field}).Line, "%s must be %s, not %s", wrong.Field, manifest.TypeWord(wrong.Type), wrong.Value)
		}
		return fail(d.Line(), "it is not a resource: a resource is an object with type, api_version, metadata and spec")
	}
	if in.Type == "" {
		return fail(d.Line(), "no type: a resource has type, api_version, metadata and spec")
	}
	k, ok := kindByType(in.APIVersion, in.Type)
	if !ok {
		var text string
		text, out.types = typeHint(in.APIVersion, in.Type)
		return fail(d.At().Find([]any{"type"}).Line, "unsupported type %q%s%s", in.Type, ofVersion(in.APIVersion), text)
	}
	what = k.Type
	if name, _ := in.Metadata["name"].(string); name != "" {
		what += " " + name
	}
	if in.Spec == nil {
		return fail(d.Line(), "no spec")
	}
	for _, key := range slices.Sorted(maps.Keys(d.At().Fields)) {
		if !slices.Contains(wrapperFields, key) {
			out.unknown(d, what, []any{key}, key, wrapperFields, lenient || k == eventKind)
		}
	}
	w := &manifest.Walk{
		Unknown: func(steps []any, path string, known []string) {
			out.unknown(d, what, steps, path, known, lenient || k == eventKind)
		},
		Wrong: func(steps []any, text string) {
			out.wrong = append(out.wrong, mistake{d.Source, d.At().Find(steps).Line, what, text})
		},
	}
	w.Value(k.goType, in.Spec, "", []any{"spec"})
	if in.Metadata != nil && k.NameField == "" && !k.Singleton {
		w.Value(reflect.TypeFor[resource.ObjectMeta](), in.Metadata, "metadata.", []any{"metadata"})
	}
	o := &object{kind: k, body: in.Spec, at: fmt.Sprintf("%s:%d", d.Source, d.Line()), from: d, meant: out.meant}
	if err := o.setMetadata(in.Metadata, label); err != nil {
		return fail(d.Line(), "%v", err)
	}
	if k.Namespaced {
		o.setNamespace(namespace)
	}
	if o.name = o.findName(); o.name == "" && !k.Singleton {
		return fail(d.Line(), "no name: it needs %s", k.nameHelp())
	}
	out.named = o
	what = k.Type + " " + o.name
	for _, list := range [][]mistake{out.warnings, out.wrong} {
		for i := range list {
			list[i].what = what
		}
	}
	data, err := json.Marshal(o.body)
	if err != nil {
		return fail(d.Line(), "encode: %v", err)
	}
	spec := reflect.New(k.goType).Interface()
	err = json.Unmarshal(data, spec)
	if len(out.wrong) > 0 {
		if err == nil {
			out.draft = o
		}
		return out
	}
	if err != nil {
		return fail(d.Line(), "spec: %s", plainJSONError(err))
	}
	if check, ok := spec.(*resource.CheckConfig); ok {
		if text := substitute.Warning(check); text != "" {
			line := d.At().Find([]any{"spec", "command"}).Line
			out.warnings = append(out.warnings, mistake{d.Source, line, what, text})
		}
	}
	out.object = o
	return out
}

// wrapperFields are the fields of a resource in a file.
var wrapperFields = []string{"type", "api_version", "metadata", "spec"}

// plainJSONError puts an error of the decoder in words for people.
func plainJSONError(err error) string {
	if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) {
		return fmt.Sprintf("%s must be %s, not %s", wrong.Field, manifest.TypeWord(wrong.Type), wrong.Value)
	}
	return err.Error()
}

func ofVersion(apiVersion string) string {
	if apiVersion == "" {
		return ""
	}
	return " of " + apiVersion
}

// typeHint names the type that is probably meant, or what to use instead of a type of Sensu's. With help, the reader
// needs more.
func typeHint(apiVersion, typ string) (text string, help typeHelp) {
	var types []string
	for _, k := range kinds {
		if k.Type == typ && apiVersion != "" {
			return fmt.Sprintf(" (%s?)", k.Group), 0
		}
		types = append(types, k.Type)
	}
	if instead := lacking.InsteadOf(apiVersion, typ); instead != "" {
		return ": Sensu has it, lapwing does not. " + instead, sensuTypes
	}
	if near := optionerr.Nearest(resource.Short(typ), types); near != "" {
		return fmt.Sprintf(" (%s?)", near), 0
	}
	return "", listTypes
}

func typeList() string {
	var types []string
	for _, k := range kinds {
		if k.Group == resource.CoreV2 {
			types = append(types, k.Type)
		} else {
			types = append(types, k.FullName())
		}
	}
	return commaSpace(types)
}

// setMetadata moves the outer metadata into the body, where it replaces the spec's own, and adds the label if labelling
// says so.
func (o *object) setMetadata(outer map[string]any, label labelling) error {
	if o.kind.Singleton {
		return nil
	}
	if field := o.kind.NameField; field != "" {
		if name, ok := outer["name"]; ok && o.body[field] == nil {
			o.body[field] = name
		}
		return nil
	}
	meta, err := subMap(o.body, "metadata")
	if err != nil {
		return err
	}
	for key, v := range outer {
		meta[key] = v
	}
	if !label {
		return nil
	}
	labels, err := subMap(meta, "labels")
	if err != nil {
		return err
	}
	if labels[managedBy] != "sensu-agent" {
		labels[managedBy] = "sensuctl"
	}
	return nil
}

// setNamespace fills in missing namespaces. An event belongs to its entity's namespace.
func (o *object) setNamespace(namespace string) {
	places := []map[string]any{o.sub("metadata")}
	if o.kind.Type == client.Events.Type {
		for _, part := range []string{"entity", "check"} {
			if m := o.sub(part); m != nil {
				if meta, err := subMap(m, "metadata"); err == nil {
					places = append(places, meta)
				}
			}
		}
	}
	for _, place := range places {
		if own, _ := place["namespace"].(string); own != "" {
			namespace = own
			break
		}
	}
	o.namespace = namespace
	for _, place := range places {
		if own, _ := place["namespace"].(string); own == "" {
			place["namespace"] = namespace
		}
	}
}

func (o *object) findName() string {
	if o.kind.NameField != "" {
		name, _ := o.body[o.kind.NameField].(string)
		return name
	}
	if o.kind.Type == client.Events.Type {
		entity, check := o.nestedName("entity"), o.nestedName("check")
		if entity == "" || check == "" {
			return ""
		}
		return client.EventName(entity, check)
	}
	name, _ := o.sub("metadata")["name"].(string)
	if name == "" && o.kind.Type == client.Silences.Type {
		subscription, _ := o.body["subscription"].(string)
		check, _ := o.body["check"].(string)
		if subscription != "" || check != "" {
			name = resource.SilencedName(subscription, check)
			o.sub("metadata")["name"] = name
		}
	}
	return name
}

// nameHelp says where findName looks.
func (k *kind) nameHelp() string {
	switch {
	case k.NameField != "":
		return "spec." + k.NameField
	case k.Type == client.Events.Type:
		return "spec.entity.metadata.name and spec.check.metadata.name"
	}
	return "metadata.name"
}

func (o *object) nestedName(part string) string {
	meta, _ := o.sub(part)["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	return name
}

// sub returns the object in a field of the body, or nil.
func (o *object) sub(field string) map[string]any {
	m, _ := o.body[field].(map[string]any)
	return m
}

// subMap returns the object in a field of m. It makes one if there is none.
func subMap(m map[string]any, field string) (map[string]any, error) {
	switch v := m[field].(type) {
	case map[string]any:
		return v, nil
	case nil:
		sub := map[string]any{}
		m[field] = sub
		return sub, nil
	}
	return nil, fmt.Errorf("%s must be an object", field)
}

// unknown notes a field that does not exist.
func (p *reading) unknown(d *document, what string, steps []any, path string, known []string, lenient bool) {
	m := mistake{d.Source, d.At().Find(steps).Line, what, fmt.Sprintf("unknown field %q", path)}
	key, _ := steps[len(steps)-1].(string)
	near := optionerr.Nearest(key, known)
	if near != "" {
		m.text += fmt.Sprintf(" (%s?)", near)
	}
	if lenient {
		m.text += "; it has no effect"
		p.warnings = append(p.warnings, m)
		return
	}
	if near != "" {
		p.meant = append(p.meant, strings.TrimSuffix(path, key)+near)
	}
	p.wrong = append(p.wrong, m)
}
