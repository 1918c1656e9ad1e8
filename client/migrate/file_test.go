package migrate

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"
)

func fromText(t *testing.T, texts ...string) *files {
	t.Helper()
	var in []File
	for i, text := range texts {
		in = append(in, File{Name: "file" + string(rune('1'+i)), Data: strings.NewReader(text)})
	}
	s, err := ReadFiles(in, "home")
	if err != nil {
		t.Fatal(err)
	}
	return s.(*files)
}

func labels(t *testing.T, s Source, k *kind, namespace string) (out []string) {
	t.Helper()
	if err := s.each(context.Background(), k, namespace, func(o *object) error {
		out = append(out, o.label())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func first(t *testing.T, s *files, k *kind, namespace string) *object {
	t.Helper()
	o, err := s.read(s.objects[k][namespace].list[0].text)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestReadFiles(t *testing.T) {
	const check = "type: CheckConfig\napi_version: core/v2\nmetadata:\n  name: a\n  namespace: shop\nspec:\n  command: |\n    --- not a marker\n    x\n"
	s := fromText(t,
		"# a comment\n---\n"+check+"---\ntype: CheckConfig\nmetadata: {name: b}\nspec: {command: c}\n",
		`{"type":"CheckConfig","metadata":{"name":"a","namespace":"shop"},"spec":{"command":"the last counts"}}
		 {"type":"User","api_version":"core/v2","metadata":{},"spec":{"username":"u"}}`)
	if got := labels(t, s, checkKind, "shop"); !slices.Equal(got, []string{"shop/a"}) {
		t.Errorf("checks %q", got)
	}
	if got := labels(t, s, checkKind, "home"); !slices.Equal(got, []string{"home/b"}) {
		t.Errorf("checks without a namespace %q", got)
	}
	if got := text(first(t, s, checkKind, "shop").body, "command"); got != "the last counts" {
		t.Errorf("command %q", got)
	}
	if got := labels(t, s, userKind, ""); !slices.Equal(got, []string{"u"}) {
		t.Errorf("users %q", got)
	}
	if got, _ := s.namespaces(t.Context()); !slices.Equal(got, []string{"home", "shop"}) || !slices.Equal(s.implied, got) {
		t.Errorf("namespaces %q, implied %q", got, s.implied)
	}
	if s.String() != "file1, file2" {
		t.Errorf("name %q", s)
	}
}

func TestReadFilesOfNewerKinds(t *testing.T) {
	s := fromText(t, `
type: EntityConfig
api_version: core/v3
metadata: {name: a, namespace: shop}
spec: {entity_class: agent, subscriptions: [linux]}
---
type: EntityConfig
api_version: core/v3
metadata: {name: b, namespace: shop}
spec: {entity_class: agent}
---
type: Entity
api_version: core/v2
metadata: {name: b, namespace: shop, labels: {whole: "yes"}}
spec: {entity_class: agent}
---
type: Gadget
api_version: gadgets/v9
metadata: {name: g}
spec: {x: 1}
---
type: ldap
api_version: authentication/v2
metadata: {name: d}
spec: {servers: []}
`)
	if got := labels(t, s, entityKind, "shop"); !slices.Equal(got, []string{"shop/b", "shop/a"}) {
		t.Errorf("entities %q", got)
	}
	if got := sub(sub(first(t, s, entityKind, "shop").body, "metadata"), "labels"); got["whole"] != "yes" {
		t.Errorf("the configuration hid the entity: %v", got)
	}
	if got := labels(t, s, authProviderKind, ""); !slices.Equal(got, []string{"d"}) {
		t.Errorf("providers %q", got)
	}
	m := newMigration(Options{}, newRecorder(&Report{}), time.Time{})
	m.names, m.fresh["shop"] = []string{"shop"}, true
	s.remarks(m)
	m.rec.finish()
	var got []string
	for _, m := range m.rec.report.Remarks {
		got = append(got, string(m.Severity)+" "+m.Type+" "+strings.Join(m.Names, ","))
	}
	for _, want := range []string{"left gadgets/v9.Gadget file1:17: g", "note Namespace shop", "note Event ", "note Entity "} {
		if !slices.Contains(got, want) {
			t.Errorf("no remark %q in %q", want, got)
		}
	}
}

func TestReadFilesRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                 "no resources",
		"# nothing\n---\n": "no resources",
		"just words":       "f:1: ",
		"name: x\n":        `no "type"`,
		"a: [1\n":          "read f",
	} {
		if _, err := ReadFiles([]File{{Name: "f", Data: strings.NewReader(text)}}, "home"); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

func FuzzReadFiles(f *testing.F) {
	f.Add("type: CheckConfig\nmetadata: {name: a}\nspec: {interval: 5}\n---\ntype: Event\nspec: {entity: {metadata: {name: e}}, check: {metadata: {name: c}}}\n")
	f.Add(`{"type":"Entity","metadata":{"name":"e","labels":{"secret":"REDACTED"}},"spec":{"entity_class":"proxy"}}{"type":"x"}`)
	f.Add("--- {type: User, spec: {username: u}}\n---\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ReadFiles([]File{{Name: "f", Data: strings.NewReader(text)}}, "home")
		if err != nil {
			return
		}
		names, _ := s.namespaces(context.Background())
		for _, step := range steps {
			for _, namespace := range append(names, "") {
				_ = s.each(context.Background(), step.kind, namespace, func(o *object) error {
					same := step.kind.summarize(o)
					if d := step.kind.differences(o, same); len(d) > 0 {
						t.Errorf("%s differs from itself: %+v", o.label(), d)
					}
					if o.kind == eventKind && sub(o.body, "check") != nil {
						firstEvent(o.body)
					}
					o.dropRedacted(nil)
					o.wire()
					return nil
				})
			}
		}
	})
}
