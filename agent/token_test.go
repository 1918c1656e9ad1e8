package agent

import (
	"reflect"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

func testEntity() *resource.Entity {
	return &resource.Entity{
		EntityClass:   "agent",
		Subscriptions: []string{"linux", "web"},
		LastSeen:      1795232561,
		System:        resource.System{OS: "linux", ARMVersion: 7, Network: resource.Network{Interfaces: []resource.NetworkInterface{{Name: "lo"}}}},
		Metadata: resource.ObjectMeta{
			Name:        "web-1",
			Namespace:   "default",
			Labels:      map[string]string{"rack": "r7", "password": "x"},
			Annotations: map[string]string{"note": "n"},
		},
	}
}

func TestSubstituteString(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want, err string }{
		{in: "plain", want: "plain"},
		{in: "{{ .name }}/{{ .namespace }}", want: "web-1/default"},
		{in: "{{ .labels.rack }} {{ .annotations.note }}", want: "r7 n"},
		{in: "{{ .labels.password }}", want: "x"}, // not redacted
		{in: "{{ .system.os }} {{ .system.arm_version }} {{ .last_seen }}", want: "linux 7 1795232561"},
		{in: "{{ (index .system.network.interfaces 0).name }}", want: "lo"},
		{in: "{{ index .subscriptions 1 }}", want: "web"},
		{in: `{{ .labels.rack | default "none" }}`, want: "r7"},
		{in: `{{ .labels.nope | default "none" }}`, want: "none"},
		{in: `{{ .nope | default 5 }}`, want: "5"},
		{in: `{{ assetPath "sensu/check-disk.v2" }}`, want: "SENSU_CHECK_DISK_V2_PATH"},
		{in: `{{ if eq .system.os "linux" }}a{{ else }}b{{ end }}`, want: "a"},
		{in: "<no value> {{ .name }}", want: "<no value> web-1"},
		{in: "{{ .labels.nope }}", err: `command: unmatched token: template: command:1:10: executing "command" at <.labels.nope>: map has no entry for key "nope"`},
		{in: "{{ .metadata.name }}", err: "command: unmatched token: "},
		{in: "{{ .name", err: "command: invalid template: "},
		{in: "{{ .name.x }}", err: "command: cannot evaluate template: "},
	} {
		data, err := tokenData(testEntity())
		if err != nil {
			t.Fatal(err)
		}
		got, err := substituteString("command", tt.in, data)
		if tt.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), tt.err) {
				t.Errorf("%s: got %q, error %v, want error %s", tt.in, got, err, tt.err)
			}
		} else if err != nil || got != tt.want {
			t.Errorf("%s: got %q, error %v", tt.in, got, err)
		}
	}
}

func TestSubstituteCheck(t *testing.T) {
	t.Parallel()
	in := &resource.CheckConfig{
		Metadata:         resource.ObjectMeta{Name: "disk", Namespace: "default", Labels: map[string]string{"for": "{{ .name }}", "{{ .name }}": "key"}},
		Command:          "check-disk --host {{ .name }}",
		EnvVars:          []string{"A=1", "RACK={{ .labels.rack }}"},
		OutputMetricTags: []resource.MetricTag{{Name: "host", Value: "{{ .name }}"}},
		CheckHooks:       []resource.HookList{{Type: "critical", Hooks: []string{"{{ .labels.rack }}"}}},
		Interval:         60,
		MaxOutputSize:    1<<62 + 1, // more than a float can hold
		Handlers:         []string{},
		Subscriptions:    []string{},
		Pipelines:        []resource.ResourceReference{},
	}
	got, err := substitute(in, testEntity())
	if err != nil {
		t.Fatal(err)
	}
	want := *in
	want.Metadata.Labels = map[string]string{"for": "web-1", "{{ .name }}": "key"}
	want.Command = "check-disk --host web-1"
	want.EnvVars = []string{"A=1", "RACK=r7"}
	want.OutputMetricTags = []resource.MetricTag{{Name: "host", Value: "web-1"}}
	want.CheckHooks = []resource.HookList{{Type: "critical", Hooks: []string{"r7"}}}
	if !reflect.DeepEqual(got, &want) {
		t.Errorf("got %+v\nwant %+v", got, &want)
	}
	if in.Command != "check-disk --host {{ .name }}" || in.EnvVars[1] != "RACK={{ .labels.rack }}" {
		t.Error("the original changed")
	}

	plain := &resource.CheckConfig{Command: "true", Scheduler: "memory"}
	if got, err := substitute(plain, testEntity()); err != nil || got == plain || !reflect.DeepEqual(got, plain) {
		t.Errorf("without tokens: got %+v, %v", got, err)
	}
	if _, err := substitute(&resource.HookConfig{Command: "{{ .labels.nope }}"}, testEntity()); err == nil {
		t.Error("unmatched token accepted")
	}
}
