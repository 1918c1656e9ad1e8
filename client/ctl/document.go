package ctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/lapwing-monitoring/lapwing/client"
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

// splitDocuments returns the documents of a text as JSON. YAML is split at lines of ---; each part may be several JSON
// objects, one after the other.
func splitDocuments(text []byte) ([]json.RawMessage, error) {
	var out []json.RawMessage
	for _, part := range splitYAML(text) {
		if bytes.HasPrefix(bytes.TrimSpace(part), []byte("{")) {
			if objects, err := splitJSON(part); err == nil {
				out = append(out, objects...)
				continue
			} else if !errors.As(err, new(*json.SyntaxError)) {
				return nil, err
			}
			// It may still be YAML: {type: CheckConfig} is an object too.
		}
		document, err := yaml.YAMLToJSON(part)
		if err != nil {
			return nil, err
		}
		if string(document) != "null" { // only comments
			out = append(out, document)
		}
	}
	return out, nil
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

func splitJSON(text []byte) ([]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	var out []json.RawMessage
	for {
		var object json.RawMessage
		switch err := dec.Decode(&object); {
		case err == io.EOF:
			return out, nil
		case err != nil:
			return nil, err
		}
		out = append(out, object)
	}
}

// wrapper has the outer fields of a resource in a file.
type wrapper struct {
	Type       string         `json:"type"`
	APIVersion string         `json:"api_version"`
	Metadata   map[string]any `json:"metadata"`
	Spec       map[string]any `json:"spec"`
}

// parseObject makes an object of a wrapped resource. It warns about fields that will be ignored, and about tokens
// without quotes.
func parseObject(document json.RawMessage, namespace string, label labelling) (o *object, warnings []string, err error) {
	var in wrapper
	dec := json.NewDecoder(bytes.NewReader(document))
	dec.UseNumber()
	if err := dec.Decode(&in); err != nil {
		return nil, nil, fmt.Errorf("error parsing data as wrapped-json: %w", err)
	}
	if in.Type == "" {
		return nil, nil, errors.New("no type provided")
	}
	k, ok := kindByType(in.APIVersion, in.Type)
	if !ok {
		return nil, nil, fmt.Errorf("unsupported type %q%s: it must be one of %s", in.Type, ofVersion(in.APIVersion), typeList())
	}
	if in.Spec == nil {
		return nil, nil, errors.New("no spec provided")
	}
	o = &object{kind: k, body: in.Spec}
	if err := o.setMetadata(in.Metadata, label); err != nil {
		return nil, nil, err
	}
	if k.Namespaced {
		o.setNamespace(namespace)
	}
	if o.name = o.findName(); o.name == "" && !k.Singleton {
		return nil, nil, fmt.Errorf("no name provided: %s needs %s", k.Type, k.nameHelp())
	}
	for _, field := range unknownFields(k.goType, o.body, "") {
		warnings = append(warnings, fmt.Sprintf("json: unknown field %q", field))
	}
	data, err := json.Marshal(o.body)
	if err != nil {
		return nil, nil, fmt.Errorf("encode %s: %w", k.Type, err)
	}
	spec := reflect.New(k.goType).Interface()
	if err := json.Unmarshal(data, spec); err != nil {
		return nil, nil, fmt.Errorf("error parsing spec: %w", err)
	}
	if check, ok := spec.(*resource.CheckConfig); ok {
		if text := substitute.Warning(check); text != "" {
			warnings = append(warnings, fmt.Sprintf("check %s: %s", o.name, text))
		}
	}
	return o, warnings, nil
}

func ofVersion(apiVersion string) string {
	if apiVersion == "" {
		return ""
	}
	return " of " + apiVersion
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

// unknownFields returns the fields in v that Go type t does not have. The decoder of encoding/json cannot: it stops at
// the first, and it does not see the fields of types with their own decoders.
func unknownFields(t reflect.Type, v any, path string) []string {
	var out []string
	switch t.Kind() {
	case reflect.Pointer:
		return unknownFields(t.Elem(), v, path)
	case reflect.Slice:
		list, _ := v.([]any)
		for _, item := range list {
			out = append(out, unknownFields(t.Elem(), item, path)...)
		}
	case reflect.Struct:
		object, ok := v.(map[string]any)
		if !ok || t == reflect.TypeFor[resource.HookList]() { // an object whose only key is data
			return nil
		}
		for _, key := range sortedKeys(object) {
			if path+key == "metadata" && !hasMetadata(t) {
				continue // of wrapped kinds: their metadata is beside the spec
			}
			if field, ok := jsonField(t, key); ok {
				out = append(out, unknownFields(field.Type, object[key], path+key+".")...)
			} else {
				out = append(out, path+key)
			}
		}
	}
	return out
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
