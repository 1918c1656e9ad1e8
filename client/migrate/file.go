package migrate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/lapwing-monitoring/lapwing/client"
)

// files are resources from files, in memory, in their encoded form: decoded they take twenty times the memory.
type files struct {
	name      string
	namespace string                      // of resources without a namespace
	objects   map[*kind]map[string]*group // by namespace
	strange   map[string][]string         // names of resources of kinds that neither side has, by kind
	implied   []string                    // namespaces that are used but not in the files
}

// group has the resources of a kind in a namespace.
type group struct {
	list  []document
	index map[string]int // by name
}

// document is a wrapped resource, as JSON.
type document struct {
	name, typ string
	text      json.RawMessage
}

func (g *group) has(name string) bool {
	if g == nil {
		return false
	}
	_, ok := g.index[name]
	return ok
}

func (g *group) all() []document {
	if g == nil {
		return nil
	}
	return g.list
}

// File is a file's name and text.
type File struct {
	Name string
	Data io.Reader
}

// ReadFiles reads the output of "sensuctl dump", in YAML or as JSON objects one after the other. A resource without a
// namespace gets the given one. Of several with the same name the last one counts.
func ReadFiles(in []File, namespace string) (Source, error) {
	out := &files{namespace: namespace, objects: map[*kind]map[string]*group{}, strange: map[string][]string{}}
	var names []string
	type config struct {
		namespace string
		document
	}
	var configs []config
	for _, file := range in {
		names = append(names, file.Name)
		text, err := io.ReadAll(file.Data)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file.Name, err)
		}
		documents, err := split(text)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file.Name, err)
		}
		for i, text := range documents {
			o, err := out.read(text)
			if err != nil {
				return nil, fmt.Errorf("read %s: resource %d: %w", file.Name, i, err)
			}
			if o == nil {
				continue
			}
			d := document{o.name, o.typ, text}
			if o.typ == client.EntityConfigs.Type {
				configs = append(configs, config{o.namespace, d})
			} else {
				out.add(o.kind, o.namespace, d)
			}
		}
	}
	if len(out.objects) == 0 && len(configs) == 0 && len(out.strange) == 0 {
		return nil, fmt.Errorf("there are no resources in %s", strings.Join(names, ", "))
	}
	// If the entity itself is in the files, its configuration adds nothing.
	for _, c := range configs {
		if !out.objects[entityKind][c.namespace].has(c.name) {
			out.add(entityKind, c.namespace, c.document)
		}
	}
	out.name = strings.Join(names, ", ")
	out.imply()
	return out, nil
}

// read makes an object of a wrapped resource, or returns nil for an unknown kind.
func (s *files) read(document json.RawMessage) (*object, error) {
	wrapped, err := decode(document)
	if err != nil {
		return nil, err
	}
	typ, version := text(wrapped, "type"), text(wrapped, "api_version")
	if typ == "" {
		return nil, errors.New(`there is no "type": is it the output of sensuctl dump?`)
	}
	k, ok := kindOf(version, typ)
	if typ == client.EntityConfigs.Type && version == client.EntityConfigs.Group {
		k, ok = entityKind, true
	}
	if !ok {
		kind := strings.TrimPrefix(version+"."+typ, ".")
		s.strange[kind] = append(s.strange[kind], text(sub(wrapped, "metadata"), "name"))
		return nil, nil
	}
	o := &object{kind: k, typ: typ, body: wrapped}
	if err := o.unwrap(); err != nil {
		return nil, err
	}
	if k.Namespaced {
		o.fillNamespace(s.namespace)
	}
	return o, o.identify()
}

// fillNamespace sets the namespace of an object that has none. An event belongs to its entity's namespace.
func (o *object) fillNamespace(namespace string) {
	places := []map[string]any{sub(o.body, "metadata")}
	if o.kind == eventKind {
		places = []map[string]any{sub(sub(o.body, "entity"), "metadata"), sub(sub(o.body, "check"), "metadata")}
	} else if places[0] == nil {
		places[0] = map[string]any{}
		o.body["metadata"] = places[0]
	}
	for _, place := range places {
		if own := text(place, "namespace"); own != "" {
			namespace = own
			break
		}
	}
	for _, place := range places {
		if place != nil && text(place, "namespace") == "" {
			place["namespace"] = namespace
		}
	}
}

func (s *files) add(k *kind, namespace string, d document) {
	if s.objects[k] == nil {
		s.objects[k] = map[string]*group{}
	}
	g := s.objects[k][namespace]
	if g == nil {
		g = &group{index: map[string]int{}}
		s.objects[k][namespace] = g
	}
	if i, ok := g.index[d.name]; ok {
		g.list[i] = d
		return
	}
	g.index[d.name] = len(g.list)
	g.list = append(g.list, d)
}

// imply adds the namespaces that are used but not in the files, for example in a dump of one namespace.
func (s *files) imply() {
	known := map[string]bool{}
	for _, o := range s.objects[namespaceKind][""].all() {
		known[o.name] = true
	}
	used := map[string]bool{}
	for k, in := range s.objects {
		for namespace := range in {
			if k.Namespaced && !known[namespace] {
				used[namespace] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		s.implied = append(s.implied, name)
		// strings always encode
		text, _ := json.Marshal(map[string]any{"type": namespaceKind.Type, "spec": map[string]string{"name": name}})
		s.add(namespaceKind, "", document{name, namespaceKind.Type, text})
	}
}

func (s *files) String() string { return s.name }

func (s *files) namespaces(context.Context) ([]string, error) {
	var names []string
	for _, o := range s.objects[namespaceKind][""].all() {
		names = append(names, o.name)
	}
	slices.Sort(names)
	return names, nil
}

func (s *files) each(ctx context.Context, k *kind, namespace string, f func(*object) error) error {
	for _, d := range s.objects[k][namespace].all() {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		o, err := s.read(d.text)
		if err != nil {
			return fmt.Errorf("read %s again: %w", d.name, err)
		}
		if err := f(o); err != nil {
			return err
		}
	}
	return nil
}

func (s *files) remarks(rec *recorder) {
	for kind, names := range s.strange {
		rec.remark(Left, kind, "lapwing has no resources of this kind", insteadOf(""), names...)
	}
	if len(s.implied) > 0 {
		rec.remark(Noted, namespaceKind.Type, "made because resources are in them; the files do not have them", "", s.implied...)
	}
	if len(s.objects[eventKind]) == 0 && (len(s.objects[entityKind]) > 0 || len(s.objects[checkKind]) > 0) {
		rec.remark(Noted, eventKind.Type, "the files hold none: sensuctl dump --all-namespaces leaves events out, silently",
			"Dump them namespace by namespace (sensuctl dump event --namespace NAME), or copy from the running backend with --from.")
	}
	if typ := client.EntityConfigs.Type; slices.ContainsFunc(s.all(entityKind), func(d document) bool { return d.typ == typ }) {
		rec.remark(Noted, entityKind.Type, "made from their configuration: host data comes with the agents' next keepalives", "")
	}
}

func (s *files) all(k *kind) (out []document) {
	for _, in := range s.objects[k] {
		out = append(out, in.all()...)
	}
	return out
}

// split returns the documents of a text, each as JSON.
func split(text []byte) ([]json.RawMessage, error) {
	var out []json.RawMessage
	for _, part := range splitYAML(text) {
		if bytes.HasPrefix(bytes.TrimSpace(part), []byte("{")) {
			if objects, err := splitJSON(part); err == nil {
				out = append(out, objects...)
				continue
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

// splitYAML splits at document markers: lines that begin with ---, alone or before a blank.
func splitYAML(text []byte) (out [][]byte) {
	var part []byte
	for line := range bytes.Lines(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))) {
		if rest, ok := bytes.CutPrefix(line, []byte("---")); ok && (len(rest) == 0 || strings.ContainsRune(" \t\r\n", rune(rest[0]))) {
			out = append(out, part)
			part, line = nil, rest
		}
		part = append(part, line...)
	}
	return append(out, part)
}

func splitJSON(text []byte) (out []json.RawMessage, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
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
