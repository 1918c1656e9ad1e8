package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/client/lacking"
	"github.com/lapwing-monitoring/lapwing/internal/manifest"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// files are resources from files, in memory, in their encoded form: decoded they take twenty times the memory.
type files struct {
	name      string
	namespace string                      // of resources without a namespace
	objects   map[*kind]map[string]*group // by namespace
	strange   map[strangeKind][]string    // resources of kinds that neither side has
	implied   []string                    // namespaces that are used but not in the files
	doubts    []doubt
}

// strangeKind is a kind that is not known.
type strangeKind struct{ version, typ string }

// doubt is something in a file that is probably a mistake.
type doubt struct {
	kind                  *kind
	namespace             string
	reason, hint, subject string
	superseded            bool // a definition that is not copied, for a later one
	refused               bool // it cannot be sent
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
	from      *manifest.Document // nil if no file has it
}

func (d document) at() place { return place{d.from.Source, d.from.Line()} }

// place is a line of a file.
type place struct {
	file string
	line int
}

func (p place) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

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
// namespace gets the given one. Of several with the same name the last one counts, and the
// report names the others.
func ReadFiles(in []File, namespace string) (Source, error) {
	out := &files{namespace: namespace, objects: map[*kind]map[string]*group{}, strange: map[strangeKind][]string{}}
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
		documents, wrong := manifest.Split(file.Name, text)
		if len(wrong) > 0 {
			return nil, fmt.Errorf("read %s: %w", file.Name, wrong[0])
		}
		for _, one := range documents {
			at := place{file.Name, one.Line()}
			o, err := out.read(one.JSON)
			switch {
			case err != nil && o == nil:
				return nil, fmt.Errorf("read %s: %w", at, err)
			case err != nil:
				out.doubts = append(out.doubts, doubt{kind: o.kind, namespace: o.namespace, refused: true, reason: err.Error(),
					hint: "Correct the file and run this again.", subject: at.String()})
				continue
			}
			if o == nil {
				if err := out.stranger(one.JSON, at); err != nil {
					return nil, fmt.Errorf("read %s: %w", at, err)
				}
				continue
			}
			out.doubt(o, one, at)
			d := document{o.name, o.typ, one.JSON, one}
			if o.typ == client.EntityConfigs.Type {
				configs = append(configs, config{o.namespace, d})
			} else {
				out.add(o.kind, o.namespace, d)
			}
		}
	}
	if len(out.objects) == 0 && len(configs) == 0 && len(out.strange) == 0 && len(out.doubts) == 0 {
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

// read makes an object of a wrapped resource, or returns nil for an unknown kind. With an error, an object is one that
// lacks something.
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
		return nil, nil
	}
	o := &object{kind: k, typ: typ, body: wrapped}
	o.dropUnknown()
	if err := o.unwrap(); err != nil {
		return o, err
	}
	if k.Namespaced {
		o.fillNamespace(s.namespace)
	}
	return o, o.identify()
}

// stranger notes a resource of an unknown kind. If Sensu has the kind, its name is enough; otherwise the kind may be misspelt,
// and the place is told, too.
func (s *files) stranger(document json.RawMessage, at place) error {
	wrapped, err := decode(document)
	if err != nil {
		return err
	}
	k := strangeKind{text(wrapped, "api_version"), text(wrapped, "type")}
	meta := sub(wrapped, "metadata")
	name := text(meta, "name")
	if lacking.InsteadOf(k.version, k.typ) == "" {
		if namespace := text(meta, "namespace"); namespace != "" {
			name = namespace + "/" + name
		}
		name = fmt.Sprintf("%s: %s", at, name)
	}
	s.strange[k] = append(s.strange[k], name)
	return nil
}

func (k strangeKind) String() string { return strings.TrimPrefix(k.version+"."+k.typ, ".") }

// nearest returns the known kind that may be meant, or "".
func (k strangeKind) nearest() string {
	var types []string
	if group, _, _ := strings.Cut(k.version, "/"); strings.Contains(group, ".") {
		return "" // of another program
	}
	for _, s := range steps {
		if s.kind.Type == k.typ || slices.Contains(s.kind.Types, k.typ) { // of another version
			return s.kind.Group + "." + k.typ
		}
		types = append(append(types, s.kind.Type), s.kind.Types...)
	}
	return optionerr.Nearest(k.typ, types)
}

// unknownField is a field that no resource of the kind has.
type unknownField struct {
	steps []any // to it, from the document
	path  string
	known []string // the fields that may be meant
}

// dropUnknown removes the fields that the target would ignore from a resource as it is in a file, and notes them.
func (o *object) dropUnknown() {
	if o.kind.Wrapped {
		return // of the commercial edition: their fields are not known
	}
	w := &manifest.Walk{Unknown: func(steps []any, path string, known []string) {
		o.unknown = append(o.unknown, unknownField{steps, path, known})
	}}
	outer := []string{"type", "api_version", "metadata", "spec"}
	for _, key := range slices.Sorted(maps.Keys(o.body)) {
		if !slices.Contains(outer, key) {
			w.Unknown([]any{key}, key, outer)
		}
	}
	w.Value(reflect.TypeOf(o.kind.New()), o.body["spec"], "", []any{"spec"})
	if o.kind.NameField == "" && !o.kind.Singleton {
		w.Value(reflect.TypeFor[resource.ObjectMeta](), o.body["metadata"], "metadata.", []any{"metadata"})
	}
	for _, u := range o.unknown {
		drop(o.body, u.steps)
	}
}

// drop removes the field at the end of the steps.
func drop(v any, steps []any) {
	for _, step := range steps[:len(steps)-1] {
		switch step := step.(type) {
		case string:
			v = v.(map[string]any)[step]
		case int:
			v = v.([]any)[step]
		}
	}
	delete(v.(map[string]any), steps[len(steps)-1].(string))
}

// doubt notes what is probably a mistake in an object's document.
func (s *files) doubt(o *object, d *manifest.Document, at place) {
	for _, u := range o.unknown {
		at := place{at.file, d.At().Find(u.steps).Line}
		field, _ := u.steps[len(u.steps)-1].(string)
		subject := fmt.Sprintf("%s: %s: %s", at, o.label(), u.path)
		if near := optionerr.Nearest(field, u.known); near != "" {
			subject += " (" + near + "?)"
		}
		s.doubts = append(s.doubts, doubt{kind: o.kind, namespace: o.namespace, reason: "an unknown field has no effect and is not copied",
			hint: "Correct the file and run this again.", subject: subject})
	}
	if o.homeless {
		s.doubts = append(s.doubts, doubt{kind: o.kind, namespace: o.namespace,
			reason:  "a definition without a namespace goes to the namespace " + o.namespace,
			hint:    "Write metadata.namespace into the file, or choose another with --namespace.",
			subject: fmt.Sprintf("%s: %s", at, o.shownName())})
	}
	if missing := o.computed(); len(missing) > 0 {
		s.doubts = append(s.doubts, doubt{kind: o.kind, namespace: o.namespace,
			reason:  "what servers compute of an event is missing: it is set as for a first result",
			hint:    "Copy events from a dump, or from the running backend with --from.",
			subject: fmt.Sprintf("%s: %s: no %s", at, o.label(), strings.Join(missing, ", "))})
	}
}

// computed returns the fields that servers compute and that an event of a check lacks. One of its two times is enough.
func (o *object) computed() (missing []string) {
	check := sub(o.body, "check")
	if o.kind != eventKind || check == nil {
		return nil
	}
	if integer(o.body, "timestamp") == 0 && integer(check, "executed") == 0 {
		missing = append(missing, "timestamp", "executed")
	}
	if history, _ := check["history"].([]any); len(history) == 0 {
		missing = append(missing, "history")
	}
	if integer(check, "occurrences") == 0 {
		missing = append(missing, "occurrences")
	}
	return missing
}

// fillNamespace sets the namespace of an object that has none. An event belongs to its entity's namespace.
func (o *object) fillNamespace(namespace string) {
	o.homeless = true
	places := []map[string]any{sub(o.body, "metadata")}
	if o.kind == eventKind {
		places = []map[string]any{sub(sub(o.body, "entity"), "metadata"), sub(sub(o.body, "check"), "metadata")}
	} else if places[0] == nil {
		places[0] = map[string]any{}
		o.body["metadata"] = places[0]
	}
	for _, place := range places {
		if own := text(place, "namespace"); own != "" {
			namespace, o.homeless = own, false
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
		o := &object{kind: k, namespace: namespace, name: d.name}
		s.doubts = append(s.doubts, doubt{kind: k, namespace: namespace, superseded: true,
			reason: "there is more than one definition of it: only the last is copied", hint: "Remove the wrong one from the file and run this again.",
			subject: fmt.Sprintf("%s: %s is left out for the one in %s", g.list[i].at(), o.label(), d.at())})
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
		s.add(namespaceKind, "", document{name: name, typ: namespaceKind.Type, text: text})
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
		o.from = d.from
		if err := f(o); err != nil {
			return err
		}
	}
	return nil
}

func (s *files) remarks(m *migration) {
	rec := m.rec
	for k, names := range s.strange {
		if near := k.nearest(); near != "" && lacking.InsteadOf(k.version, k.typ) == "" {
			rec.remark(Doubtful, k.String(), "there is no such kind ("+near+"?), so these resources are not copied",
				"Correct the file and run this again.", names...)
			continue
		}
		rec.remark(Left, k.String(), "lapwing has no resources of this kind", insteadOf(k.version, k.typ), names...)
	}
	for _, d := range s.doubts {
		if m.skips(d.kind.Plural) || d.kind.Namespaced && len(m.Namespaces) > 0 && !slices.Contains(m.Namespaces, d.namespace) {
			continue
		}
		if d.refused {
			rec.remark(Refused, d.kind.Type, d.reason, d.hint, d.subject)
			rec.count(rec.kind(d.kind), func(k *KindReport) { k.Source, k.Failed = k.Source+1, k.Failed+1 })
			continue
		}
		rec.remark(Doubtful, d.kind.Type, d.reason, d.hint, d.subject)
		if d.superseded {
			rec.count(rec.kind(d.kind), func(k *KindReport) { k.Source, k.Left = k.Source+1, k.Left+1 })
		}
	}
	made := slices.DeleteFunc(slices.Clone(s.implied), func(name string) bool { return !m.fresh[name] })
	if len(made) > 0 {
		reason := "made for the definitions in them; the files do not define them"
		if m.DryRun {
			reason = "would be " + reason
		}
		rec.remark(Noted, namespaceKind.Type, reason, "", made...)
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
