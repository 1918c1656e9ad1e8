package ctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/substitute"
)

// managedBy is the label of resources that "create" made. Sensu's prune looks for it. With the value sensu-agent, the
// agent manages the resource.
const managedBy = "sensu.io/managed_by"

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

// document is one resource in a text.
type document struct {
	source string // of the text
	json   json.RawMessage
	at     *place
}

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

// splitDocuments returns the documents of a text, and what cannot be read. YAML is split at lines of ---; each part may
// be several JSON objects, one after the other.
func splitDocuments(source string, text []byte) (documents []document, wrong []mistake) {
	before := 0
	for _, part := range splitYAML(text) {
		if bytes.HasPrefix(bytes.TrimSpace(part), []byte("{")) {
			objects, err := splitJSON(source, part, before)
			if err == nil {
				documents = append(documents, objects...)
				before += bytes.Count(part, []byte("\n"))
				continue
			}
			// It may still be YAML: {type: CheckConfig} is an object too.
		}
		object, err := yaml.YAMLToJSON(part)
		if err != nil {
			wrong = append(wrong, syntaxMistake(source, before, err))
		} else if string(object) != "null" { // null: only comments
			documents = append(documents, document{source, object, yamlPlaces(part, before)})
		}
		before += bytes.Count(part, []byte("\n"))
	}
	return documents, wrong
}

// yamlLine is how the reader of YAML names the line of an error.
var yamlLine = regexp.MustCompile(`^(?:error converting YAML to JSON: )?(?:yaml: )?(?:unmarshal errors:\s+)?(?:line (\d+): )?`)

func syntaxMistake(source string, before int, err error) mistake {
	text := err.Error()
	found := yamlLine.FindStringSubmatch(text)
	line := 1
	if found[1] != "" {
		line, _ = strconv.Atoi(found[1])
	}
	return mistake{source: source, line: before + line, text: "it is neither YAML nor JSON: " + text[len(found[0]):]}
}

// splitYAML splits at document markers: lines that begin with ---, alone or before a blank and the document's
// beginning.
func splitYAML(text []byte) [][]byte {
	var out [][]byte
	var part []byte
	for line := range bytes.Lines(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))) {
		rest, marker := bytes.CutPrefix(line, []byte("---"))
		if marker && (len(rest) == 0 || strings.ContainsRune(" \t\r\n", rune(rest[0]))) {
			out = append(out, part)
			part, line = nil, rest
		}
		part = append(part, line...)
	}
	return append(out, part)
}

func splitJSON(source string, text []byte, before int) ([]document, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	var out []document
	for {
		var object json.RawMessage
		switch err := dec.Decode(&object); {
		case err == io.EOF:
			return out, nil
		case err != nil:
			return nil, err
		}
		start := int(dec.InputOffset()) - len(object)
		out = append(out, document{source, object, jsonPlaces(object, before+bytes.Count(text[:start], []byte("\n")))})
	}
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
}

// parseObject makes an object of a wrapped resource.
func parseObject(d *document, namespace string, label labelling, lenient bool) reading {
	var out reading
	what := ""
	fail := func(line int, format string, args ...any) reading {
		out.wrong = append(out.wrong, mistake{d.source, line, what, fmt.Sprintf(format, args...)})
		return out
	}
	d.at.eachTwice("", func(path string, twice repeated) {
		fail(twice.line, "field %q is there twice, also in line %d", strings.TrimPrefix(path, "spec."), twice.first)
	})
	var in wrapper
	dec := json.NewDecoder(bytes.NewReader(d.json))
	dec.UseNumber()
	if err := dec.Decode(&in); err != nil {
		if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) && wrong.Field != "" {
			return fail(d.at.find([]any{wrong.Field}).line, "%s must be %s, not %s", wrong.Field, goWord(wrong.Type), wrong.Value)
		}
		return fail(d.at.line, "it is not a resource: a resource is an object with type, api_version, metadata and spec")
	}
	if in.Type == "" {
		return fail(d.at.line, "no type: a resource has type, api_version, metadata and spec")
	}
	k, ok := kindByType(in.APIVersion, in.Type)
	if !ok {
		return fail(d.at.find([]any{"type"}).line, "unsupported type %q%s%s", in.Type, ofVersion(in.APIVersion), typeHint(in.APIVersion, in.Type))
	}
	what = k.Type
	if name, _ := in.Metadata["name"].(string); name != "" {
		what += " " + name
	}
	if in.Spec == nil {
		return fail(d.at.line, "no spec")
	}
	for _, key := range slices.Sorted(maps.Keys(d.at.fields)) {
		if !slices.Contains(wrapperFields, key) {
			out.unknown(d, what, []any{key}, key, wrapperFields, lenient || k == eventKind)
		}
	}
	w := &fieldWalk{out: &out, d: d, what: what, lenient: lenient || k == eventKind}
	w.walk(k.goType, map[string]any(in.Spec), "", []any{"spec"})
	if in.Metadata != nil && k.NameField == "" && !k.Singleton {
		w.walk(reflect.TypeFor[resource.ObjectMeta](), in.Metadata, "metadata.", []any{"metadata"})
	}
	o := &object{kind: k, body: in.Spec, at: fmt.Sprintf("%s:%d", d.source, d.at.line), from: d, meant: out.meant}
	if err := o.setMetadata(in.Metadata, label); err != nil {
		return fail(d.at.line, "%v", err)
	}
	if k.Namespaced {
		o.setNamespace(namespace)
	}
	if o.name = o.findName(); o.name == "" && !k.Singleton {
		return fail(d.at.line, "no name: it needs %s", k.nameHelp())
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
		return fail(d.at.line, "encode: %v", err)
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
		return fail(d.at.line, "spec: %s", plainJSONError(err))
	}
	if check, ok := spec.(*resource.CheckConfig); ok {
		if text := substitute.Warning(check); text != "" {
			line := d.at.find([]any{"spec", "command"}).line
			out.warnings = append(out.warnings, mistake{d.source, line, what, text})
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
		return fmt.Sprintf("%s must be %s, not %s", wrong.Field, goWord(wrong.Type), wrong.Value)
	}
	return err.Error()
}

func ofVersion(apiVersion string) string {
	if apiVersion == "" {
		return ""
	}
	return " of " + apiVersion
}

// typeHint names the type that is probably meant, or all.
func typeHint(apiVersion, typ string) string {
	var types []string
	for _, k := range kinds {
		if k.Type == typ && apiVersion != "" {
			return fmt.Sprintf(" (%s?)", k.Group)
		}
		types = append(types, k.Type)
	}
	if near := optionerr.Nearest(resource.Short(typ), types); near != "" {
		return fmt.Sprintf(" (%s?)", near)
	}
	return ": it must be one of " + typeList()
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
	m := mistake{d.source, d.at.find(steps).line, what, fmt.Sprintf("unknown field %q", path)}
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

// fieldWalk compares a value with a Go type. The decoder of encoding/json cannot do that: it stops at the first mistake,
// and does not see unknown fields of types with their own decoders.
type fieldWalk struct {
	out     *reading
	d       *document
	what    string
	lenient bool
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func (w *fieldWalk) walk(t reflect.Type, v any, path string, steps []any) {
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
		text := fmt.Sprintf("%s must be %s, not %s", strings.TrimSuffix(path, "."), want, valueWord(v))
		if t.Kind() == reflect.String && scalar(v) {
			text += fmt.Sprintf(": write it in quotes, %q", fmt.Sprint(v))
		}
		w.out.wrong = append(w.out.wrong, mistake{w.d.source, w.d.at.find(steps).line, w.what, text})
		return
	}
	deeper := func(step any) []any { return append(slices.Clip(steps), step) }
	switch v := v.(type) {
	case []any:
		if t.Kind() != reflect.Slice {
			return
		}
		for i, item := range v {
			w.walk(t.Elem(), item, fmt.Sprintf("%s[%d].", strings.TrimSuffix(path, "."), i), deeper(i))
		}
	case map[string]any:
		switch {
		case t == reflect.TypeFor[resource.HookList](): // an object whose only key is data
		case t.Kind() == reflect.Map:
			for _, key := range sortedKeys(v) {
				w.walk(t.Elem(), v[key], fieldPath(strings.TrimSuffix(path, "."), key)+".", deeper(key))
			}
		case t.Kind() == reflect.Struct:
			w.fields(t, v, path, deeper)
		}
	}
}

func (w *fieldWalk) fields(t reflect.Type, v map[string]any, path string, deeper func(any) []any) {
	for _, key := range sortedKeys(v) {
		if path+key == "metadata" && !hasMetadata(t) {
			continue // of wrapped kinds: their metadata is beside the spec
		}
		if field, ok := jsonField(t, key); ok {
			w.walk(field.Type, v[key], path+key+".", deeper(key))
			continue
		}
		w.out.unknown(w.d, w.what, deeper(key), path+key, jsonNames(t), w.lenient)
	}
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
	return goWord(t)
}

func goWord(t reflect.Type) string {
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

func hasMetadata(t reflect.Type) bool {
	_, ok := jsonField(t, "metadata")
	return ok
}

// jsonField returns the field into which encoding/json would decode key.
func jsonField(t reflect.Type, key string) (reflect.StructField, bool) {
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "-" && name != "" && strings.EqualFold(name, key) {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// jsonNames returns the names of all fields of a struct.
func jsonNames(t reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" && name != "" {
			names = append(names, name)
		}
	}
	return names
}
