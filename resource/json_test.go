package resource

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestZeroJSON(t *testing.T) {
	const meta = `"metadata":{}`
	const check = `"high_flap_threshold":0,"interval":0,"low_flap_threshold":0,"publish":false,"runtime_assets":null,
		"proxy_entity_name":"","check_hooks":null,"stdin":false,"subdue":null,"ttl":0,"timeout":0,"round_robin":false,
		"output_metric_format":"","output_metric_handlers":null,"env_vars":null,"secrets":null,
		"handlers":[],"subscriptions":[],"pipelines":[],` + meta
	const entity = `"entity_class":"","subscriptions":null,"deregister":false,"deregistration":{},` + meta
	tests := []struct {
		v    any
		want string
	}{
		{Event{}, `{"id":null,"sequence":0,"pipelines":null,` + meta + `}`},
		{Check{}, `{"executed":0,"history":null,"issued":0,"output":"","status":0,"total_state_change":0,"last_ok":0,
			"occurrences":0,"occurrences_watermark":0,"is_silenced":false,"scheduler":"",` + check + `}`},
		{CheckConfig{}, `{` + check + `}`},
		{CheckRequest{}, `{"assets":null,"hooks":null,"issued":0,"hook_assets":null}`},
		{Entity{}, `{"system":{"network":{"interfaces":null},"libc_type":"","vm_system":"","vm_role":"","cloud_provider":"",
			"processes":null},"last_seen":0,"sensu_agent_version":"",` + entity + `}`},
		{EntityConfig{}, `{` + entity + `}`},
		{Hook{}, `{"timeout":0,"stdin":false,"runtime_assets":null,"executed":0,"issued":0,"status":0,` + meta + `}`},
		{HookConfig{}, `{"timeout":0,"stdin":false,"runtime_assets":null,` + meta + `}`},
		{Metrics{}, `{"handlers":null,"points":null}`},
		{MetricPoint{}, `{"value":0,"timestamp":0,"tags":null}`},
		{Asset{}, `{"filters":null,"builds":null,"headers":null,` + meta + `}`},
		{AssetBuild{}, `{"filters":null,"headers":null}`},
		{Handler{}, `{"type":"","timeout":0,"handlers":null,"filters":null,"env_vars":null,"runtime_assets":null,"secrets":null,` + meta + `}`},
		{User{}, `{"username":"","disabled":false}`},
		{Role{}, `{"rules":null,` + meta + `}`},
	}
	for _, tt := range tests {
		t.Run(reflect.TypeOf(tt.v).Name(), func(t *testing.T) {
			requireJSON(t, tt.v, []byte(tt.want))
			p := reflect.New(reflect.TypeOf(tt.v))
			requireJSON(t, p.Interface(), []byte(tt.want))
			var nothing = reflect.New(p.Type()).Elem().Interface() // a nil pointer
			requireJSON(t, nothing, []byte("null"))
		})
	}
}

func TestEventIDJSON(t *testing.T) {
	id := []byte("\x32\x9a\x95\x46\x5d\xdb\x4e\x2c\xb4\xac\x28\x90\xc3\xe2\xc0\x45")
	tests := []struct {
		name, in string
		want     []byte
		err      string
	}{
		{"text", `{"id":"329a9546-5ddb-4e2c-b4ac-2890c3e2c045"}`, id, ""},
		{"other case", `{"ID":"329A9546-5DDB-4E2C-B4AC-2890C3E2C045"}`, id, ""},
		{"missing", `{}`, nil, ""},
		{"null", `{"id":null}`, nil, ""},
		{"empty", `{"id":""}`, nil, ""},
		{"not a UUID", `{"id":"x"}`, nil, "invalid event id"},
		{"not a string", `{"id":7}`, nil, "cannot unmarshal number"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var e Event
			err := json.Unmarshal([]byte(tt.in), &e)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want an error with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(e.ID, tt.want) {
				t.Errorf("got %x, want %x", e.ID, tt.want)
			}
		})
	}

	got, err := json.Marshal(Event{ID: id})
	if want := `"id":"329a9546-5ddb-4e2c-b4ac-2890c3e2c045"`; err != nil || !strings.Contains(string(got), want) {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	if _, err := json.Marshal(Event{ID: []byte("short")}); err == nil {
		t.Error("an id of 5 bytes was encoded")
	}
}

func TestEventJSONKeepsWhatIsNotGiven(t *testing.T) {
	e := Event{ID: NewEventID(), Sequence: 3, Check: &Check{Status: 1, Output: "kept"}}
	if err := json.Unmarshal([]byte(`{"timestamp":5,"check":{"status":2}}`), &e); err != nil {
		t.Fatal(err)
	}
	if len(e.ID) != 16 || e.Sequence != 3 || e.Timestamp != 5 || e.Check.Status != 2 || e.Check.Output != "kept" {
		t.Errorf("got %+v", e)
	}
}

func TestEventKeysAreSorted(t *testing.T) {
	got, err := json.Marshal(Event{Timestamp: 1, Entity: &Entity{}, Check: &Check{}, Metrics: &Metrics{}})
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(strings.NewReader(string(got)))
	var last string
	if _, err := dec.Token(); err != nil {
		t.Fatal(err)
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			t.Fatal(err)
		}
		if key.(string) <= last {
			t.Errorf("%q comes after %q", key, last)
		}
		last = key.(string)
		var skip json.RawMessage
		if err := dec.Decode(&skip); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCheckConfigJSONCompletesPipelines(t *testing.T) {
	c := CheckConfig{Pipelines: []ResourceReference{{Name: "a"}, {Name: "b", Type: "T", APIVersion: "v"}}}
	b, err := json.Marshal(&c)
	if err != nil {
		t.Fatal(err)
	}
	var got CheckConfig
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	want := []ResourceReference{{Name: "a", Type: "Pipeline", APIVersion: "core/v2"}, {Name: "b", Type: "T", APIVersion: "v"}}
	if !reflect.DeepEqual(got.Pipelines, want) {
		t.Errorf("got %+v", got.Pipelines)
	}
	if c.Pipelines[0].Type != "" {
		t.Error("encoding changed the definition")
	}
}

func TestHookListJSON(t *testing.T) {
	var got []HookList
	const in = `[{"non-zero":["a","b"]},{"1":null},{},null]`
	if err := json.Unmarshal([]byte(in), &got); err != nil {
		t.Fatal(err)
	}
	want := []HookList{{Type: "non-zero", Hooks: []string{"a", "b"}}, {Type: "1"}, {}, {}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	requireJSON(t, got[:2], []byte(`[{"non-zero":["a","b"]},{"1":null}]`))
	if err := json.Unmarshal([]byte(`[{"1":["a"],"2":["b"]}]`), &got); err == nil {
		t.Error("two types in one object were accepted")
	}
}

func TestHookJSONIsFlat(t *testing.T) {
	var h Hook
	const in = `{"metadata":{"name":"h"},"command":"c","timeout":5,"stdin":true,"runtime_assets":["a"],
		"duration":0.5,"executed":1,"issued":2,"output":"o","status":-1}`
	if err := json.Unmarshal([]byte(in), &h); err != nil {
		t.Fatal(err)
	}
	if h.Metadata.Name != "h" || h.Command != "c" || h.Status != -1 {
		t.Errorf("got %+v", h)
	}
	requireJSON(t, h, []byte(in))
}

func TestEntityJSONRedacts(t *testing.T) {
	tests := []struct {
		name   string
		redact []string
		key    string
		want   bool
	}{
		{"default", nil, "password", true},
		{"default, other spelling", nil, "API-Key", true},
		{"digits go with other characters", nil, "API-Key1", true},
		{"digits stay without", nil, "Password1", false},
		{"upper case", nil, "SECRET", true},
		{"whole keys only", nil, "my_password", false},
		{"not in the list", nil, "region", false},
		{"own list", []string{"Region"}, "region", true},
		{"own list instead of the default", []string{"region"}, "password", false},
		{"other characters in the list", []string{"my_key"}, "MyKey", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := Entity{Redact: tt.redact, Metadata: ObjectMeta{
				Labels:      map[string]string{tt.key: "label", "other": "o"},
				Annotations: map[string]string{tt.key: "annotation"},
			}}
			wantLabel, wantAnnotation := "label", "annotation"
			if tt.want {
				wantLabel, wantAnnotation = Redacted, Redacted
			}
			// By value, by pointer, and inside an event.
			for _, v := range []any{e, &e, Event{Entity: &e}} {
				b, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				var got Entity
				if _, ok := v.(Event); ok {
					var event Event
					if err := json.Unmarshal(b, &event); err != nil {
						t.Fatal(err)
					}
					got = *event.Entity
				} else if err := json.Unmarshal(b, &got); err != nil {
					t.Fatal(err)
				}
				if got.Metadata.Labels[tt.key] != wantLabel || got.Metadata.Annotations[tt.key] != wantAnnotation ||
					got.Metadata.Labels["other"] != "o" {
					t.Errorf("%T: %+v", v, got.Metadata)
				}
			}
			if e.Metadata.Labels[tt.key] != "label" || e.Metadata.Annotations[tt.key] != "annotation" {
				t.Error("encoding changed the entity")
			}
			config, err := json.Marshal(EntityConfigOf(&e))
			if err != nil || strings.Contains(string(config), Redacted) {
				t.Errorf("definition: %s, %v", config, err)
			}
			shown := EntityConfigOf(&e).Redacted().Metadata
			if shown.Labels[tt.key] != wantLabel || shown.Annotations[tt.key] != wantAnnotation || shown.Labels["other"] != "o" {
				t.Errorf("definition for readers: %+v", shown)
			}
			if e.Metadata.Labels[tt.key] != "label" || e.Metadata.Annotations[tt.key] != "annotation" {
				t.Error("Redacted changed the entity")
			}
		})
	}
}

func TestRBACJSON(t *testing.T) {
	var role Role
	err := json.Unmarshal([]byte(`{"rules":[{"verbs":["get,list","create"],"resources":["checks,hooks"],"resource_names":null}]}`), &role)
	if err != nil {
		t.Fatal(err)
	}
	want := []Rule{{Verbs: []string{"get", "list", "create"}, Resources: []string{"checks", "hooks"}}}
	if !reflect.DeepEqual(role.Rules, want) {
		t.Errorf("got %+v", role.Rules)
	}

	var binding RoleBinding
	err = json.Unmarshal([]byte(`{"role_ref":{"type":"role","name":"r"},"subjects":[{"type":"group","name":"g"},{"type":"User","name":"u"},{}]}`), &binding)
	if err != nil {
		t.Fatal(err)
	}
	if binding.RoleRef.Type != "Role" || binding.Subjects[0].Type != "Group" || binding.Subjects[1].Type != "User" ||
		binding.Subjects[2].Type != "" {
		t.Errorf("got %+v", binding)
	}
}
