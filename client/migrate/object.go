package migrate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/manifest"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// redactedWord is Sensu's placeholder for a secret.
const redactedWord = resource.Redacted

// object is a resource to copy.
type object struct {
	kind      *kind
	namespace string // empty if the kind has none
	name      string
	typ       string         // as wrapped; the kind's Type if it has only one
	body      map[string]any // unwrapped; numbers are json.Number

	from *manifest.Document // of a file; nil if it is not from one

	unknown  []unknownField // that a file has in it; they are not in the body
	homeless bool           // without a namespace in its file
	dated    bool           // a silence that has its times from the moment of the run
}

// parse makes an object from a server's answer.
func (k *kind) parse(raw json.RawMessage) (*object, error) {
	body, err := decode(raw)
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", k.Type, err)
	}
	o := &object{kind: k, typ: k.Type, body: body}
	if k.Wrapped {
		if err := o.unwrap(); err != nil {
			return nil, fmt.Errorf("%s: %w", k.Type, err)
		}
	}
	if err := o.identify(); err != nil {
		return nil, fmt.Errorf("%s: %w", k.Type, err)
	}
	return o, nil
}

// unwrap replaces the body of a wrapped resource with its unwrapped form. The outer metadata replaces the inner one.
func (o *object) unwrap() error {
	wrapped := o.body
	spec, ok := wrapped["spec"].(map[string]any)
	if !ok {
		return errors.New("it has no spec")
	}
	if typ, _ := wrapped["type"].(string); typ != "" {
		o.typ = typ
	}
	o.body = spec
	outer, _ := wrapped["metadata"].(map[string]any)
	if field := o.kind.NameField; field != "" {
		if name, ok := outer["name"]; ok && spec[field] == nil {
			spec[field] = name
		}
		return nil
	}
	if outer != nil {
		inner, _ := spec["metadata"].(map[string]any)
		if inner == nil {
			inner = map[string]any{}
			spec["metadata"] = inner
		}
		maps.Copy(inner, outer)
	}
	return nil
}

// identify sets the name and the namespace.
func (o *object) identify() error {
	meta := sub(o.body, "metadata")
	switch {
	case o.kind.NameField != "":
		o.name = text(o.body, o.kind.NameField)
	case o.kind.Singleton:
		o.name = o.kind.Plural
	case o.kind == eventKind:
		entity, check := sub(sub(o.body, "entity"), "metadata"), sub(sub(o.body, "check"), "metadata")
		o.namespace = text(entity, "namespace")
		o.name = client.EventName(text(entity, "name"), text(check, "name"))
	case o.kind == silencedKind:
		o.name = resource.SilencedName(text(o.body, "subscription"), text(o.body, "check"))
	default:
		o.name = text(meta, "name")
	}
	if o.kind.Namespaced && o.namespace == "" {
		o.namespace = text(meta, "namespace")
	}
	switch {
	case o.name == "", o.kind == eventKind && (o.name[0] == '/' || o.body["check"] != nil && strings.HasSuffix(o.name, "/")):
		return errors.New("it has no name")
	case o.kind.Namespaced && o.namespace == "":
		return fmt.Errorf("%q has no namespace", o.name)
	}
	return nil
}

func (o *object) path() string { return o.kind.Path(o.namespace, o.name) }

// wire returns the body in the target's form.
func (o *object) wire() any {
	if !o.kind.Wrapped {
		return o.body
	}
	spec := maps.Clone(o.body)
	delete(spec, "metadata")
	return map[string]any{"type": o.typ, "api_version": o.kind.Group, "metadata": o.body["metadata"], "spec": spec}
}

// label returns the object's name for the report.
func (o *object) label() string {
	if o.namespace == "" {
		return o.shownName()
	}
	return o.namespace + "/" + o.shownName()
}

// placed returns the object's name for the report, after the line of a field in its file.
func (o *object) placed(field string) string {
	if o.from == nil {
		return o.label()
	}
	return fmt.Sprintf("%s:%d: %s", o.from.Source, o.from.LineOf(field), o.label())
}

// shownName returns the name, masked if it is a secret.
func (o *object) shownName() string {
	if o.kind == apiKeyKind {
		return maskedKey(o.name) + " of " + text(o.body, "username")
	}
	return o.name
}

// dropRedacted removes the placeholders of secrets, except where the target has a secret of its own: the target keeps
// it when it gets the placeholder. It returns the removed fields.
func (o *object) dropRedacted(old *summary) (fields []string) {
	walkRedacted(o.body, "", func(m map[string]any, key, field string) {
		if old != nil && old.redacted[field] {
			return
		}
		delete(m, key)
		fields = append(fields, field)
	})
	return fields
}

// masked returns the body without secrets that the target also has and does not show: they cannot be compared.
func (o *object) masked(fields map[string]bool) map[string]any {
	if len(fields) == 0 {
		return o.body
	}
	body, _ := mask(o.body, "", fields).(map[string]any)
	return body
}

func mask(v any, path string, fields map[string]bool) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			if field := join(path, key); fields[field] {
				out[key] = redactedWord
			} else {
				out[key] = mask(value, field, fields)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = mask(item, path+"["+strconv.Itoa(i)+"]", fields)
		}
		return out
	}
	return v
}

// walkRedacted calls f for each placeholder of a secret.
func walkRedacted(v any, path string, f func(m map[string]any, key, field string)) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if v[key] == any(redactedWord) {
				f(v, key, join(path, key))
				continue
			}
			walkRedacted(v[key], join(path, key), f)
		}
	case []any:
		for i, item := range v {
			walkRedacted(item, path+"["+strconv.Itoa(i)+"]", f)
		}
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// summary has what must be kept of a target's resource until the source's is read.
type summary struct {
	tree     map[string]any // nil for silent kinds
	hash     uint64         // of the tree, for these
	executed int64          // of events
	redacted map[string]bool
}

func (k *kind) summarize(o *object) *summary {
	s := &summary{}
	if k.secrets {
		walkRedacted(o.body, "", func(_ map[string]any, _, field string) {
			if s.redacted == nil {
				s.redacted = map[string]bool{}
			}
			s.redacted[field] = true
		})
	}
	tree := k.tree(o)
	if !k.silent {
		s.tree = tree
		return s
	}
	s.hash = hash(tree)
	s.executed = integer(sub(o.body, "check"), "executed")
	return s
}

func hash(tree map[string]any) uint64 {
	b, err := json.Marshal(tree) // keys are sorted
	if err != nil {
		panic(fmt.Sprintf("migrate: encode a decoded resource: %v", err)) // a tree is always valid JSON
	}
	return xxhash.Sum64(b)
}

// tree returns an object in comparable form: without empty fields, and without fields that each server sets itself.
func (k *kind) tree(o *object) map[string]any {
	tree, _ := prune(o.body, "").(map[string]any)
	if tree == nil {
		tree = map[string]any{}
	}
	dropCreator(tree)
	if k.normal != nil {
		k.normal(tree)
	}
	return tree
}

// dropCreator removes the user who made a resource, and the author of an aggregate: in the copy both are the user who
// copies.
func dropCreator(tree map[string]any) {
	delete(tree, "author")
	meta := sub(tree, "metadata")
	delete(meta, "created_by")
	if len(meta) == 0 {
		delete(tree, "metadata")
	}
}

// prune copies a JSON value without fields that are null, zero, false or empty, because servers differ in which of them
// they write. Labels and annotations may be empty texts. Placeholders of secrets are removed, too.
func prune(v any, key string) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, value := range v {
			if empty, ok := value.(string); ok && empty == "" && (key == "labels" || key == "annotations") {
				out[name] = ""
			} else if pruned := prune(value, name); pruned != nil {
				out[name] = pruned
			}
		}
		if len(out) > 0 {
			return out
		}
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = prune(item, "")
		}
		if len(out) > 0 {
			return out
		}
	case json.Number:
		if n := number(v); n != "0" {
			return n
		}
	case string:
		if v != "" && v != redactedWord {
			return v
		}
	case bool:
		if v {
			return v
		}
	}
	return nil
}

// number writes a number in one form, so that 1, 1.0 and 1e0 are equal.
func number(n json.Number) json.Number {
	if i, err := n.Int64(); err == nil {
		return json.Number(strconv.FormatInt(i, 10))
	}
	f, err := n.Float64()
	if err != nil {
		return n
	}
	if f == float64(int64(f)) {
		return json.Number(strconv.FormatInt(int64(f), 10))
	}
	return json.Number(strconv.FormatFloat(f, 'g', -1, 64))
}

// differences returns the fields in which an object differs from the target's. For silent kinds it returns one
// difference without a field, or none.
func (k *kind) differences(o *object, old *summary) []FieldDiff {
	if old == nil {
		return nil
	}
	tree := k.tree(&object{kind: k, body: o.masked(old.redacted)})
	if k.silent {
		if hash(tree) == old.hash {
			return nil
		}
		return []FieldDiff{{}}
	}
	var fields []FieldDiff
	diff("", tree, old.tree, func(d FieldDiff) {
		if k.ignore == nil || !k.ignore(o, d.Field) {
			fields = append(fields, d)
		}
	})
	return fields
}

// shown returns differences without secrets.
func (k *kind) shown(fields []FieldDiff) []FieldDiff {
	if k.hidden {
		fields = slices.Clone(fields)
		for i := range fields {
			fields[i].Source, fields[i].Target = nil, nil
		}
	}
	return fields
}

// diff calls f for each field that differs. Lists of different lengths differ as a whole.
func diff(path string, source, target any, f func(FieldDiff)) {
	switch s := source.(type) {
	case map[string]any:
		t, ok := target.(map[string]any)
		if !ok {
			break
		}
		keys := maps.Clone(s)
		maps.Copy(keys, t)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			diff(join(path, key), s[key], t[key], f)
		}
		return
	case []any:
		t, ok := target.([]any)
		if !ok || len(t) != len(s) {
			break
		}
		for i := range s {
			diff(path+"["+strconv.Itoa(i)+"]", s[i], t[i], f)
		}
		return
	default:
		if _, list := target.([]any); list {
			break
		}
		if _, object := target.(map[string]any); !object && source == target {
			return
		}
	}
	f(FieldDiff{Field: path, Source: encoded(source), Target: encoded(target)})
}

func encoded(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return b
}

func decode(raw json.RawMessage) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber() // keep 64-bit numbers exact
	var v map[string]any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if v == nil {
		return nil, errors.New("null instead of an object")
	}
	return v, nil
}

// sub returns the object in a field, or nil.
func sub(m map[string]any, field string) map[string]any {
	v, _ := m[field].(map[string]any)
	return v
}

// text returns the string in a field, or "".
func text(m map[string]any, field string) string {
	v, _ := m[field].(string)
	return v
}

// integer returns the number in a field, or 0.
func integer(m map[string]any, field string) int64 {
	n, _ := m[field].(json.Number)
	i, err := n.Int64()
	if err != nil {
		f, _ := n.Float64()
		return int64(f)
	}
	return i
}

// setNumber sets a field to a number.
func setNumber(m map[string]any, field string, n int64) {
	m[field] = json.Number(strconv.FormatInt(n, 10))
}

// texts returns the strings of the list in a field.
func texts(m map[string]any, field string) []string {
	list, _ := m[field].([]any)
	var out []string
	for _, item := range list {
		if s, ok := item.(string); ok {
			out = append(out, s)
		}
	}
	return out
}
