package ctl

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/internal/manifest"
)

func TestSplitDocuments(t *testing.T) {
	f := func(in string, want ...string) {
		t.Helper()
		documents, wrong := splitDocuments("x", []byte(in))
		err := asError(wrong)
		var got []string
		for _, d := range documents {
			var compact bytes.Buffer
			if err := json.Compact(&compact, d.JSON); err != nil {
				t.Errorf("%q: document %q: %v", in, d.JSON, err)
			}
			got = append(got, compact.String())
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %q, error %v, want %q", in, got, err, want)
		}
	}
	f("")
	f("---\n---\n# nothing\n")
	f("a: 1", `{"a":1}`)
	f("a: 1\n---\nb: 2\n---", `{"a":1}`, `{"b":2}`)
	f("--- # one\r\na: 1\r\n---\r\nb: 2\r\n", `{"a":1}`, `{"b":2}`)
	f("--- {a: 1}\n--- {b: 2}\n", `{"a":1}`, `{"b":2}`)
	f("a: |\n  ---\n  x\n", `{"a":"---\nx\n"}`)
	f("a: 1\n----: 2\n", `{"----":2,"a":1}`)
	f(`{"a": 9007199254740993} {"b": 2}`+"\n"+`{"c": 3}`, `{"a":9007199254740993}`, `{"b":2}`, `{"c":3}`)
	f("\xef\xbb\xbf{a: 1}", `{"a":1}`)
	f("a: 9007199254740993\nb: 18446744073709551615\nc: 0.5\n", `{"a":9007199254740993,"b":18446744073709551615,"c":0.5}`)

	for _, in := range []string{"a: [", `{"a": 1`, "\ta: 1", "a: 1\n---\nb: {"} {
		if got, wrong := splitDocuments("x", []byte(in)); len(wrong) != 1 {
			t.Errorf("%q: got %v, %v", in, got, wrong)
		}
	}
}

// read parses a resource in JSON.
func read(in string, lenient bool) reading {
	return parseObject(manifest.OfJSON("x", json.RawMessage(in)), "here", asManaged, lenient)
}

func TestParseObject(t *testing.T) {
	f := func(in, wantPath, wantBody string) {
		t.Helper()
		o := read(in, false)
		if len(o.wrong) > 0 || len(o.warnings) > 0 {
			t.Errorf("%s: %v, warnings %v", in, o.wrong, o.warnings)
			return
		}
		body, _ := json.Marshal(o.body)
		if o.path() != wantPath || string(body) != wantBody {
			t.Errorf("%s:\n got %s %s\nwant %s %s", in, o.path(), body, wantPath, wantBody)
		}
	}
	const label = `"labels":{"sensu.io/managed_by":"sensuctl"}`
	f(`{"type":"CheckConfig","api_version":"core/v2","metadata":{"name":"a"},"spec":{}}`,
		"/api/core/v2/namespaces/here/checks/a", `{"metadata":{`+label+`,"name":"a","namespace":"here"}}`)
	f(`{"type":"CheckConfig","metadata":null,"spec":{"metadata":{"name":"a","namespace":"there"}}}`,
		"/api/core/v2/namespaces/there/checks/a", `{"metadata":{`+label+`,"name":"a","namespace":"there"}}`)
	f(`{"type":"Namespace","metadata":{"name":"a"},"spec":{}}`,
		"/api/core/v2/namespaces/a", `{"name":"a"}`)
	f(`{"type":"Namespace","spec":{"name":"b"}}`,
		"/api/core/v2/namespaces/b", `{"name":"b"}`)

	// An event belongs to the namespace that any of its parts names, first its own.
	const event = `{"type":"Event","spec":{"entity":{"metadata":{"name":"e","namespace":"there"}},"check":{"metadata":{"name":"c"}}}}`
	f(event, "/api/core/v2/namespaces/there/events/e/c",
		`{"check":{"metadata":{"name":"c","namespace":"there"}},"entity":{"metadata":{"name":"e","namespace":"there"}},`+
			`"metadata":{`+label+`,"namespace":"there"}}`)
	f(strings.Replace(event, `"namespace":"there"`, `"labels":{}`, 1), "/api/core/v2/namespaces/here/events/e/c",
		`{"check":{"metadata":{"name":"c","namespace":"here"}},"entity":{"metadata":{"labels":{},"name":"e","namespace":"here"}},`+
			`"metadata":{`+label+`,"namespace":"here"}}`)

	bad := func(in, want string) {
		t.Helper()
		if err := asError(read(in, false).wrong); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", in, err, want)
		}
	}
	bad(`{"type":"CheckConfig","api_version":"core/v9","spec":{}}`, `unsupported type "CheckConfig" of core/v9`)
	bad(`{"type":"CheckConfig","spec":{"metadata":"a"}}`, "metadata must be an object, not the text \"a\"")
	bad(`{"type":"CheckConfig","metadata":{"labels":[]},"spec":{}}`, "labels must be an object, not a list")
	bad(`{"type":"Event","spec":{"entity":"e","check":"c"}}`, `x:1: Event: entity must be an object, not the text "e"`)
	bad(`null`, "x:1: no type")
	bad("[]", "x:1: it is not a resource")
}

func TestUnknownFieldsOfEvents(t *testing.T) {
	in := `{"type":"Event","spec":{"sequenze":1,"METADATA":{},"entity":{"metadata":{"name":"e","x":1},"system":{"network":{"interfaces":[{"nam":1}]}}},
		"check":{"metadata":{"name":"c"},"hooks":[{"command":"c","config":{}}],"check_hooks":[{"critical":["a"]}],"history":[{"state":1}]}}}`
	o := read(in, false) // programs make events, so their unknown fields are no typing errors
	var got []string
	for _, m := range o.warnings {
		got = append(got, m.text)
	}
	want := []string{
		`unknown field "check.history[0].state" (status?); it has no effect`,
		`unknown field "check.hooks[0].config"; it has no effect`,
		`unknown field "entity.metadata.x"; it has no effect`,
		`unknown field "entity.system.network.interfaces[0].nam" (name?); it has no effect`,
		`unknown field "sequenze" (sequence?); it has no effect`,
	}
	if !reflect.DeepEqual(got, want) || len(o.wrong) > 0 {
		t.Errorf("got %q, %v", got, o.wrong)
	}
}

// TestMistakes has the line and the words of each mistake.
func TestMistakes(t *testing.T) {
	f := func(in string, want ...string) {
		t.Helper()
		documents, wrong := splitDocuments("b.yaml", []byte(in))
		for i := range documents {
			wrong = append(wrong, parseObject(documents[i], "here", asManaged, false).wrong...)
		}
		var got []string
		for i := range wrong {
			got = append(got, wrong[i].String())
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n got %s\nwant %s", in, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
		}
	}
	const head = "type: Handler\nmetadata: {name: h}\nspec: {type: pipe, command: c}\n---\n"
	f(head+"type: CheckConfig\nmetadata:\n  name: b1\nspec:\n  subscriptons: [a]\n  interval: ten\n  publish: \"yes\"\n",
		`b.yaml:10: CheckConfig b1: interval must be a whole number, not negative, not the text "ten"`,
		`b.yaml:11: CheckConfig b1: publish must be true or false, not the text "yes"`,
		`b.yaml:9: CheckConfig b1: unknown field "subscriptons" (subscriptions?)`)
	f("type: CheckConfig\nmetadata:\n  name: a\n  labels:\n    rack: 5\n    up: yes\nspec:\n  handlers: slack\n  timeout: -1\n",
		`b.yaml:8: CheckConfig a: handlers must be a list, not the text "slack"`,
		`b.yaml:9: CheckConfig a: timeout must be a whole number, not negative, not -1`,
		`b.yaml:5: CheckConfig a: metadata.labels.rack must be text, not 5: write it in quotes, "5"`,
		`b.yaml:6: CheckConfig a: metadata.labels.up must be text, not true: write it in quotes, "true"`)
	f("type: CheckConfig\nmetadata: {name: a}\nspec:\n  interval: 5\n  proxy_requests:\n    splay: 1\n  interval: 6\n",
		`b.yaml:7: CheckConfig a: field "interval" is there twice, also in line 4`,
		`b.yaml:6: CheckConfig a: proxy_requests.splay must be true or false, not 1`)
	f("{\n \"type\": \"Handler\",\n \"metadata\": {\"name\": \"h\"},\n \"spec\": {\"type\": \"pipe\",\n  \"comand\": \"x\"}\n}\n{\"type\":\"Handler\",\n\"spek\":{}}",
		`b.yaml:5: Handler h: unknown field "comand" (command?)`, `b.yaml:7: Handler: no spec`)
	f("a: 1\n b: 2\n", "b.yaml:2: it is neither YAML nor JSON: mapping values are not allowed in this context")
	f(head+"\n\nkind: Check\n", `b.yaml:7: no type: a resource has type, api_version, metadata and spec`)
	f("\ntype: CheckConfg\nspec: {}\n", `b.yaml:2: unsupported type "CheckConfg" (CheckConfig?)`)
	f("type: Role\nmetadata: {name: r}\nspec:\n  rules:\n  - verbs: [get]\n    resources: [checks]\n    resource_name: [x]\n",
		`b.yaml:7: Role r: unknown field "rules[0].resource_name" (resource_names?)`)
}

func TestUnquotedTokens(t *testing.T) {
	for more, want := range map[string]int{`,"proxy_requests":{"entity_attributes":["true"]}`: 1, "": 0} {
		in := `{"type":"CheckConfig","metadata":{"name":"c"},"spec":{"interval":5,"command":"curl {{ .labels.url }}"` + more + `}}`
		o := read(in, false)
		if len(o.wrong) > 0 || len(o.warnings) != want || want > 0 && !(o.warnings[0].what == "CheckConfig c" &&
			strings.Contains(o.warnings[0].text, "shellquote")) {
			t.Errorf("%s: warnings %v, %v", in, o.warnings, o.wrong)
		}
	}
}

// FuzzDocuments checks that a parsed object names a resource, and that encoding and parsing it again changes nothing.
func FuzzDocuments(f *testing.F) {
	for _, seed := range []string{
		"type: CheckConfig\nmetadata: {name: a}\nspec: {interval: 5}\n---\ntype: Namespace\nspec: {name: x}\n",
		`{"type":"Event","spec":{"entity":{"metadata":{"name":"e"}},"check":{"metadata":{"name":"c"}}}}{"type":"Handler"}`,
		"--- {type: Entity, metadata: {name: a, labels: {1: 2}}, spec: {system: []}}\n",
		"\xef\xbb\xbf---\r\n# x\r\n--- \r\n&a [*a]\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		documents, _ := splitDocuments("x", in)
		for i := range documents {
			d := documents[i]
			o := parseObject(d, "default", asManaged, true)
			if len(o.wrong) > 0 {
				continue
			}
			if o.name == "" || (o.kind.Namespaced && o.namespace == "") {
				t.Fatalf("%q: %q in %q", d.JSON, o.name, o.namespace)
			}
			body, err := json.Marshal(o.body)
			if err != nil {
				t.Fatal(err)
			}
			out, err := wrap(o.kind, body)
			if err != nil {
				t.Fatal(err)
			}
			again, err := json.Marshal(out)
			if err != nil {
				t.Fatal(err)
			}
			second := parseObject(manifest.OfJSON("x", again), "elsewhere", asManaged, true)
			if len(second.wrong) > 0 {
				t.Fatalf("%s: %v", again, second.wrong)
			}
			if second.path() != o.path() {
				t.Fatalf("%s became %s", o.path(), second.path())
			}
		}
	})
}
