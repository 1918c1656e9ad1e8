package migrate

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func parsed(t *testing.T, k *kind, text string) *object {
	t.Helper()
	o, err := k.parse(json.RawMessage(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestDifferences(t *testing.T) {
	f := func(k *kind, source, target, want string) {
		t.Helper()
		var got []string
		for _, d := range k.differences(parsed(t, k, source), k.summarize(parsed(t, k, target))) {
			got = append(got, d.Field+" "+string(d.Target)+"->"+string(d.Source))
		}
		if s := strings.Join(got, "; "); s != want {
			t.Errorf("%s\n%s:\ngot  %s\nwant %s", source, target, s, want)
		}
	}
	meta := `"metadata":{"name":"x","namespace":"n"}`
	// All empty values are equal, and so are all spellings of a number.
	f(checkKind, `{`+meta+`,"interval":30,"handlers":[],"ttl":0,"subdue":null,"stdin":false}`, `{`+meta+`,"interval":3.0e1}`, "")
	f(checkKind, `{"metadata":{"name":"x","namespace":"n","created_by":"ann"}}`,
		`{"metadata":{"name":"x","namespace":"n","created_by":"bob"}}`, "")
	f(checkKind, `{`+meta+`,"interval":30}`, `{`+meta+`,"interval":60}`, "interval 60->30")
	f(checkKind, `{`+meta+`,"max_output_size":9007199254740993}`, `{`+meta+`,"max_output_size":9007199254740992}`,
		"max_output_size 9007199254740992->9007199254740993")
	f(checkKind, `{`+meta+`,"handlers":["a","b"]}`, `{`+meta+`,"handlers":["a","c"]}`, `handlers[1] "c"->"b"`)
	f(checkKind, `{`+meta+`,"handlers":["a","b"]}`, `{`+meta+`,"handlers":["a"]}`, `handlers ["a"]->["a","b"]`)
	f(checkKind, `{`+meta+`,"timeout":5}`, `{`+meta+`}`, "timeout ->5")
	// An empty label is a label.
	f(checkKind, `{"metadata":{"name":"x","namespace":"n","labels":{"a":""}}}`, `{`+meta+`}`, `metadata.labels ->{"a":""}`)
	f(entityKind, `{`+meta+`,"entity_class":"agent","last_seen":5,"system":{"os":"linux"}}`,
		`{`+meta+`,"entity_class":"agent","subscriptions":["entity:x"],"last_seen":9}`, "")
	f(entityKind, `{`+meta+`,"entity_class":"proxy","system":{"os":"linux"}}`, `{`+meta+`,"entity_class":"proxy"}`,
		`system ->{"os":"linux"}`)
	f(entityKind, `{"metadata":{"name":"x","namespace":"n","labels":{"password":"REDACTED","a":"b"}},"entity_class":"proxy"}`,
		`{"metadata":{"name":"x","namespace":"n","labels":{"a":"b"}},"entity_class":"proxy"}`, "")
	// A secret in a file cannot be compared with the one that the target hides.
	f(entityKind, `{"metadata":{"name":"x","namespace":"n","labels":{"password":"xyzzy"}},"entity_class":"proxy"}`,
		`{"metadata":{"name":"x","namespace":"n","labels":{"password":"REDACTED"}},"entity_class":"proxy"}`, "")
	f(entityKind, `{"metadata":{"name":"x","namespace":"n","labels":{"password":"xyzzy"}},"entity_class":"proxy"}`,
		`{`+meta+`,"entity_class":"proxy"}`, `metadata.labels ->{"password":"xyzzy"}`)
	f(silencedKind, `{`+meta+`,"subscription":"linux","expire":0,"begin":5,"expire_at":90,"creator":"ann"}`,
		`{`+meta+`,"subscription":"linux","check":"*","expire":85,"begin":5,"expire_at":90,"creator":"bob"}`, "")
	f(silencedKind, `{`+meta+`,"subscription":"linux","begin":5}`,
		`{`+meta+`,"subscription":"linux","begin":5,"expire_at":90}`, "expire_at 90->")
	f(userKind, `{"username":"u","groups":["b","a"]}`, `{"username":"u","groups":["a","b"],"disabled":false}`, "")
	f(userKind, `{"username":"u","disabled":true}`, `{"username":"u"}`, "disabled ->true")
	roles, _ := kindOf("core/v2", "ClusterRole")
	f(roles, `{"metadata":{"name":"r"},"rules":[{"verbs":["get, list"],"resources":["checks"],"resource_names":null}]}`,
		`{"metadata":{"name":"r"},"rules":[{"verbs":["get","list"],"resources":["checks"],"resource_names":[]}]}`, "")
}

func TestEventDifferences(t *testing.T) {
	event := func(check string) string {
		return `{"entity":{"metadata":{"name":"e","namespace":"n"}},"check":{"metadata":{"name":"c","namespace":"n"}` + check + `}}`
	}
	f := func(source, target string, want bool) {
		t.Helper()
		got := eventKind.differences(parsed(t, eventKind, event(source)), eventKind.summarize(parsed(t, eventKind, event(target)))) != nil
		if got != want {
			t.Errorf("%s and %s differ: %v, want %v", source, target, got, want)
		}
	}
	f(`},"metadata":{"created_by":"ann"`, ``, false)
	f(`,"status":1,"handlers":["a"]`, `,"status":1,"is_silenced":true,"state":"failing"`, false)
	f(`,"status":1`, `,"status":2`, true)
	f(`,"history":[{"status":0,"executed":5}]`, `,"history":[{"status":0,"executed":6}]`, true)
	f(`,"last_ok":7`, `,"last_ok":8`, true)
}

// TestRedacted: the target keeps its own secrets, and a placeholder is never stored as a secret.
func TestRedacted(t *testing.T) {
	const shown = `{"metadata":{"name":"x","namespace":"n","labels":{"password":"REDACTED","pass":"REDACTED","a":"b"},"annotations":{"secret":"REDACTED"}},"entity_class":"proxy"}`
	o := parsed(t, entityKind, shown)
	if got := o.dropRedacted(nil); !slices.Equal(got,
		[]string{"metadata.annotations.secret", "metadata.labels.pass", "metadata.labels.password"}) {
		t.Errorf("fields %q", got)
	}
	if b, _ := json.Marshal(o.body); strings.Contains(string(b), "REDACTED") {
		t.Errorf("a placeholder is sent: %s", b)
	}
	o = parsed(t, entityKind, shown)
	there := entityKind.summarize(parsed(t, entityKind,
		`{"metadata":{"name":"x","namespace":"n","labels":{"password":"REDACTED"}},"entity_class":"proxy"}`))
	if got := o.dropRedacted(there); !slices.Equal(got, []string{"metadata.annotations.secret", "metadata.labels.pass"}) {
		t.Errorf("with a secret in the target: fields %q", got)
	}
	if b, _ := json.Marshal(o.body); !strings.Contains(string(b), `"password":"REDACTED"`) {
		t.Errorf("the target would lose its secret: %s", b)
	}
}

func TestNames(t *testing.T) {
	f := func(k *kind, text, namespace, name, path string) {
		t.Helper()
		o := parsed(t, k, text)
		if o.namespace != namespace || o.name != name || o.path() != path {
			t.Errorf("%s: %q %q %s, want %q %q %s", text, o.namespace, o.name, o.path(), namespace, name, path)
		}
	}
	f(silencedKind, `{"metadata":{"namespace":"n"},"check":"disk"}`, "n", "*:disk", "/api/core/v2/namespaces/n/silenced/%2A:disk")
	f(eventKind, `{"entity":{"metadata":{"name":"e","namespace":"n"}},"check":{"metadata":{"name":"c"}}}`, "n", "e/c",
		"/api/core/v2/namespaces/n/events/e/c")
	f(userKind, `{"username":"u"}`, "", "u", "/api/core/v2/users/u")
	f(authProviderKind, `{"type":"ldap","api_version":"authentication/v2","metadata":{"name":"d"},"spec":{"servers":[]}}`, "", "d", "/api/enterprise/authentication/v2/authproviders/d")
	tessen, _ := kindOf("", "TessenConfig")
	f(tessen, `{"opt_out":true}`, "", "tessen", "/api/core/v2/tessen")
	for _, bad := range []string{`{}`, `{"metadata":{"name":"x"}}`, `null`, `[]`} {
		if o, err := checkKind.parse(json.RawMessage(bad)); err == nil {
			t.Errorf("%s is parsed as %+v", bad, o)
		}
	}
	if got := parsed(t, apiKeyKind, `{"metadata":{"name":"9b0e8a52-0000-4000-8000-000000000000"},"username":"u"}`).label(); strings.Contains(got, "8000") || !strings.HasSuffix(got, " of u") {
		t.Errorf("a report would tell a key: %s", got)
	}
}

func TestWrappedGoesOutWrapped(t *testing.T) {
	const in = `{"type":"ad","api_version":"authentication/v2","metadata":{"name":"d","labels":{"a":"b"}},"spec":{"servers":[{"host":"h"}]}}`
	o := parsed(t, authProviderKind, in)
	if got, err := json.Marshal(o.wire()); err != nil ||
		string(got) != `{"api_version":"authentication/v2","metadata":{"labels":{"a":"b"},"name":"d"},`+
			`"spec":{"servers":[{"host":"h"}]},"type":"ad"}` {
		t.Errorf("got %s, %v", got, err)
	}
}

// TestFirstEvent computes the state that the target makes of the sent event.
func TestFirstEvent(t *testing.T) {
	type result struct{ Status, Executed int64 }
	type check struct {
		History              []result
		Occurrences          int64
		OccurrencesWatermark int64 `json:"occurrences_watermark"`
		LastOK               int64 `json:"last_ok"`
		Silenced             []string
	}
	sent := func(body string) (out struct {
		Check  check
		Entity map[string]any
	}) {
		o := parsed(t, eventKind, body)
		b, err := json.Marshal(firstEvent(o.body))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	entity := `"entity":{"entity_class":"agent","last_seen":7,"metadata":{"name":"e","namespace":"n","labels":{"password":"REDACTED"}}}`
	got := sent(`{` + entity + `,"check":{"metadata":{"name":"c"},"status":2,"executed":30,"occurrences":2,"occurrences_watermark":4,"last_ok":10,"silenced":["x:*"],
		"history":[{"status":0,"executed":10},{"status":2,"executed":20},{"status":2,"executed":30}]}}`)
	if c := got.Check; !slices.Equal(c.History, []result{{0, 10}, {2, 20}}) || c.Occurrences != 1 ||
		c.OccurrencesWatermark != 4 || c.LastOK != 10 || c.Silenced != nil {
		t.Errorf("an incident that goes on: %+v", c)
	}
	if b, _ := json.Marshal(got.Entity); strings.Contains(string(b), "REDACTED") || strings.Contains(string(b), "last_seen") {
		t.Errorf("the entity goes along: %s", b)
	}
	got = sent(`{` + entity + `,"check":{"metadata":{"name":"c"},"status":0,"executed":30,"occurrences":1,"occurrences_watermark":4,"history":[{"status":2,"executed":20},{"status":0,"executed":30}]}}`)
	if c := got.Check; len(c.History) != 1 || c.Occurrences != 0 {
		t.Errorf("a resolution: %+v", c)
	}
	// A history without the result itself, as in an event that was written by hand.
	got = sent(`{` + entity + `,"check":{"metadata":{"name":"c"},"status":1,"executed":30,"history":[{"status":1,"executed":20}]}}`)
	if c := got.Check; len(c.History) != 1 {
		t.Errorf("a result that is not in the history: %+v", c)
	}
}
