package audit

import (
	"encoding/json"
	"testing"
)

func TestDiff(t *testing.T) {
	f := func(old, new, want string) {
		t.Helper()
		b := func(s string) []byte {
			if s == "" {
				return nil
			}
			return []byte(s)
		}
		got, err := json.Marshal(Diff(b(old), b(new)))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("diff of %s and %s:\n got %s\nwant %s", old, new, got, want)
		}
	}
	f("", "", `null`)
	f(`{"a":1}`, `{"a":1}`, `null`)
	f(`{"a":1,"b":[1,2]}`, `{"b":[1,2],"a":1}`, `null`)
	f("", `{"a":1}`, `[{"path":"","new":{"a":1}}]`)
	f(`{"a":1}`, "", `[{"path":"","old":{"a":1}}]`)
	f(`{"a":1,"c":true}`, `{"a":2,"b":null}`, `[{"path":"/a","old":1,"new":2},{"path":"/b","new":null},{"path":"/c","old":true}]`)
	f(`{"m":{"labels":{"x/y":"1","z":"2"}}}`, `{"m":{"labels":{"x/y":"3","z":"2"}}}`, `[{"path":"/m/labels/x~1y","old":"1","new":"3"}]`)
	f(`{"m":{"a":1}}`, `{"m":[1]}`, `[{"path":"/m","old":{"a":1},"new":[1]}]`)
	f(`{"l":["a"]}`, `{"l":["a","b"]}`, `[{"path":"/l","old":["a"],"new":["a","b"]}]`)
	f(`{"n":9007199254740993}`, `{"n":9007199254740992}`, `[{"path":"/n","old":9007199254740993,"new":9007199254740992}]`)
	f(`1`, `2`, `[{"path":"","old":1,"new":2}]`)
	// A changed secret shows as changed, without its value.
	f(`{"env_vars":["A=1"],"pagerduty":{"routing_key":"a"}}`, `{"env_vars":["A=2"],"pagerduty":{"routing_key":"b"}}`,
		`[{"path":"/env_vars","old":["REDACTED"],"new":["REDACTED"]},{"path":"/pagerduty/routing_key","old":"REDACTED","new":"REDACTED"}]`)
	f(`{"password_hash":"$2a$1"}`, `{"password_hash":"$2a$2"}`, `[{"path":"/password_hash","old":"REDACTED","new":"REDACTED"}]`)
	f("", `{"name":"x","spec":{"client_secret":"s","servers":[{"Bind-Password":"p","host":"h"}],"tokens":["a",""]}}`,
		`[{"path":"","new":{"name":"x","spec":{"client_secret":"REDACTED","servers":[{"Bind-Password":"REDACTED","host":"h"}],"tokens":["REDACTED",""]}}}]`)
	f(`{"headers":{"Authorization":"Bearer x"}}`, `{"headers":{}}`, `[{"path":"/headers/Authorization","old":"REDACTED"}]`)
}

func FuzzDiff(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":{"c":[1,"x"]}}`), []byte(`{"a":2,"b":{"c":[1,"y"],"d":null}}`))
	f.Add([]byte(`{"password":"p"}`), []byte(`[]`))
	f.Add([]byte(`{`), []byte(`nul`))
	f.Fuzz(func(t *testing.T, old, new []byte) {
		for _, c := range Diff(old, new) {
			if b, err := json.Marshal(c); err != nil {
				t.Fatalf("a change cannot be written: %v: %s", err, b)
			}
		}
		if old != nil && len(Diff(old, old)) != 0 {
			t.Fatalf("%q differs from itself", old)
		}
	})
}
