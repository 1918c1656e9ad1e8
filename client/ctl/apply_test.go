package ctl

import (
	"encoding/json"
	"reflect"
	"testing"
)

func parsed(t *testing.T, text string) map[string]any {
	t.Helper()
	m, err := decodeMap([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

func TestThreeWay(t *testing.T) {
	f := func(last, live, desired, want string) {
		t.Helper()
		var lastMap map[string]any
		if last != "" {
			lastMap = parsed(t, last)
		}
		before := parsed(t, live)
		got := threeWay(lastMap, before, parsed(t, desired))
		if !reflect.DeepEqual(got, parsed(t, want)) {
			data, _ := json.Marshal(got)
			t.Errorf("last %s live %s desired %s:\n got %s\nwant %s", last, live, desired, data, want)
		}
		if !reflect.DeepEqual(before, parsed(t, live)) {
			t.Errorf("live %s was changed", live)
		}
	}
	// Named fields get their value, others stay.
	f(``, `{"a":1,"b":2}`, `{"a":3}`, `{"a":3,"b":2}`)
	f(`{"a":1}`, `{"a":1,"b":2}`, `{"a":1}`, `{"a":1,"b":2}`)
	// Fields that were ours and are no longer named go, even if another client changed them. Fields that were never
	// ours stay.
	f(`{"a":1}`, `{"a":5,"b":2}`, `{}`, `{"b":2}`)
	f(`{"a":1}`, `{"b":2}`, `{}`, `{"b":2}`)
	// Objects are merged, and only our part of them removed.
	f(`{"m":{"a":1,"b":1}}`, `{"m":{"a":1,"b":1,"c":1}}`, `{"m":{"a":2}}`, `{"m":{"a":2,"c":1}}`)
	f(`{"m":{"a":1}}`, `{"m":{"a":1,"c":1}}`, `{}`, `{"m":{"c":1}}`)
	f(`{"m":{"a":1}}`, `{"m":{"a":1}}`, `{}`, `{}`)
	// Lists are replaced as a whole, and so is a value that becomes an object.
	f(`{"l":[1,2]}`, `{"l":[1,2,3]}`, `{"l":[1]}`, `{"l":[1]}`)
	f(``, `{"m":null}`, `{"m":{"a":1}}`, `{"m":{"a":1}}`)
	f(`{"m":{"a":1}}`, `{"m":5}`, `{"m":{"b":1}}`, `{"m":{"b":1}}`)
}

func TestChangesBetween(t *testing.T) {
	f := func(before, after, want string) {
		t.Helper()
		got, err := json.Marshal(changesBetween(parsed(t, before), parsed(t, after)))
		if err != nil || string(got) != want {
			t.Errorf("%s to %s:\n got %s, error %v\nwant %s", before, after, got, err, want)
		}
	}
	f(`{"a":1,"b":null}`, `{"a":1}`, `null`)
	f(`{"a":1,"c":"x"}`, `{"a":2,"b":true}`, `[{"path":"a","from":1,"to":2},{"path":"b","from":null,"to":true},{"path":"c","from":"x","to":null}]`)
	f(`{"m":{"sensu.io/x":"a","y":{"z":1}}}`, `{"m":{"sensu.io/x":"b","y":{"z":2}}}`,
		`[{"path":"m[\"sensu.io/x\"]","from":"a","to":"b"},{"path":"m.y.z","from":1,"to":2}]`)
	f(`{"r":[{"v":1},{"v":2}]}`, `{"r":[{"v":1},{"v":3}]}`, `[{"path":"r[1].v","from":2,"to":3}]`)
	f(`{"r":[{"v":1}]}`, `{"r":[]}`, `[{"path":"r","from":[{"v":1}],"to":[]}]`)
	f(`{"n":1}`, `{"n":"1"}`, `[{"path":"n","from":1,"to":"1"}]`)
}

func TestMergePatch(t *testing.T) {
	f := func(before, after, want string) {
		t.Helper()
		got, err := json.Marshal(mergePatch(parsed(t, before), parsed(t, after)))
		if err != nil || string(got) != want {
			t.Errorf("%s to %s: got %s, error %v, want %s", before, after, got, err, want)
		}
	}
	f(`{"a":1}`, `{"a":1}`, `{}`)
	f(`{"a":1,"b":{"c":"REDACTED","d":1}}`, `{"a":[2],"b":{"c":"REDACTED","e":1}}`, `{"a":[2],"b":{"d":null,"e":1}}`)
	f(`{"a":{"b":1}}`, `{"a":5}`, `{"a":5}`)
}

func TestSplitExpressions(t *testing.T) {
	f := func(in string, want ...string) {
		t.Helper()
		if got := splitExpressions(in); !reflect.DeepEqual(got, append([]string{}, want...)) {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
	f("")
	f("a, b ,", "a", "b")
	f(`["x", "y"].indexOf(event.check.name) >= 0, true`, `["x", "y"].indexOf(event.check.name) >= 0`, "true")
	f(`a == "b, c", d == 'e\', f'`, `a == "b, c"`, `d == 'e\', f'`)
	f("f(a, {b: 1, c: 2}), g", "f(a, {b: 1, c: 2})", "g")
	f("a), b", "a)", "b")
}

func TestKindByName(t *testing.T) {
	f := func(name, want string) {
		t.Helper()
		got := ""
		if k, ok := kindByName(name); ok {
			got = k.Type
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	f("checks", "CheckConfig")
	f("check", "CheckConfig")
	f("core/v2.CheckConfig", "CheckConfig")
	f("CHECKCONFIG", "CheckConfig")
	f("cluster-role-binding", "ClusterRoleBinding")
	f("cluster_role", "ClusterRole")
	f("apikey", "APIKey")
	f("core/v3.EntityConfig", "EntityConfig")
	f("authproviders", "ldap")
	f("store/v1.PostgresConfig", "PostgresConfig")
	f("provider", "PostgresConfig")
	f("", "")
	f("bogus", "")
}

func TestSumMetrics(t *testing.T) {
	got := sumMetrics([]byte("# TYPE a counter\na{x=\"1 }\"} 2\na{x=\"2\"} 3e1 1700000000\nb 5\r\nbroken{\nc NaNa\n\nd{} 1"))
	if want := map[string]float64{"a": 32, "b": 5, "d": 1}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
