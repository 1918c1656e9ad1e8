package ctl

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestSplitDocuments(t *testing.T) {
	f := func(in string, want ...string) {
		t.Helper()
		documents, err := splitDocuments([]byte(in))
		var got []string
		for _, d := range documents {
			var compact bytes.Buffer
			if err := json.Compact(&compact, d); err != nil {
				t.Errorf("%q: document %q: %v", in, d, err)
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
		if got, err := splitDocuments([]byte(in)); err == nil {
			t.Errorf("%q: got %q", in, got)
		}
	}
}

func TestParseObject(t *testing.T) {
	f := func(in, wantPath, wantBody string) {
		t.Helper()
		o, warnings, err := parseObject(json.RawMessage(in), "here", asManaged)
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: error %v, warnings %q", in, err, warnings)
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
		if _, _, err := parseObject(json.RawMessage(in), "here", asManaged); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", in, err, want)
		}
	}
	bad(`{"type":"CheckConfig","api_version":"core/v9","spec":{}}`, `unsupported type "CheckConfig" of core/v9`)
	bad(`{"type":"CheckConfig","spec":{"metadata":"a"}}`, "metadata must be an object")
	bad(`{"type":"CheckConfig","metadata":{"labels":[]},"spec":{}}`, "labels must be an object")
	bad(`{"type":"Event","spec":{"entity":"e","check":"c"}}`, "no name provided: Event needs")
	bad(`null`, "no type provided")
}

func TestUnknownFields(t *testing.T) {
	in := `{"type":"Event","spec":{"sequenze":1,"METADATA":{},"entity":{"metadata":{"name":"e","x":1},"system":{"network":{"interfaces":[{"nam":1}]}}},
		"check":{"metadata":{"name":"c"},"hooks":[{"command":"c","config":{}}],"check_hooks":[{"critical":["a"]}],"history":[{"state":1}]}}}`
	_, warnings, err := parseObject(json.RawMessage(in), "here", asManaged)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`json: unknown field "check.history.state"`,
		`json: unknown field "check.hooks.config"`,
		`json: unknown field "entity.metadata.x"`,
		`json: unknown field "entity.system.network.interfaces.nam"`,
		`json: unknown field "sequenze"`,
	}
	if !reflect.DeepEqual(warnings, want) {
		t.Errorf("got %q", warnings)
	}
}

func TestUnquotedTokens(t *testing.T) {
	for more, want := range map[string]int{`,"proxy_requests":{"entity_attributes":["true"]}`: 1, "": 0} {
		in := `{"type":"CheckConfig","metadata":{"name":"c"},"spec":{"interval":5,"command":"curl {{ .labels.url }}"` + more + `}}`
		_, warnings, err := parseObject(json.RawMessage(in), "here", asManaged)
		if err != nil || len(warnings) != want || want > 0 && !(strings.HasPrefix(warnings[0], "check c: ") &&
			strings.Contains(warnings[0], "shellquote")) {
			t.Errorf("%s: warnings %q, %v", in, warnings, err)
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
		documents, err := splitDocuments(in)
		if err != nil {
			return
		}
		for _, d := range documents {
			o, _, err := parseObject(d, "default", asManaged)
			if err != nil {
				continue
			}
			if o.name == "" || (o.kind.Namespaced && o.namespace == "") {
				t.Fatalf("%q: %q in %q", d, o.name, o.namespace)
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
			second, _, err := parseObject(again, "elsewhere", asManaged)
			if err != nil {
				t.Fatalf("%s: %v", again, err)
			}
			if second.path() != o.path() {
				t.Fatalf("%s became %s", o.path(), second.path())
			}
		}
	})
}
