package substitute

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

type command struct {
	Command string `json:"command"`
}

func entityData(t *testing.T) Data {
	t.Helper()
	data, err := Entity(testEntity())
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestString(t *testing.T) {
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
		{in: "{{ range 1000 }}x{{ end }}", want: strings.Repeat("x", 1000)},
		{in: "{{ range 1001 }}{{ end }}", err: "command: invalid template: numbers may be at most 1000"},
		{in: "{{ range 1e3 }}{{ range 1000 }}{{ range 1000 }}{{ end }}{{ end }}{{ end }}", err: "command: invalid template: loops may be nested"},
		{in: `{{ range 1000 }}{{ range 1000 }}{{ printf "%1000d" 1 }}{{ end }}{{ end }}`, err: "command: cannot evaluate template: "},
		{in: `{{ define "x" }}{{ template "x" }}{{ end }}{{ template "x" }}`, err: "command: invalid template: templates cannot use others"},
	} {
		out, err := Object(&command{tt.in}, entityData(t))
		got := ""
		if err == nil {
			got = out.Command
		}
		if tt.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), tt.err) {
				t.Errorf("%s: got %q, error %v, want error %s", tt.in, got, err, tt.err)
			}
		} else if err != nil || got != tt.want {
			t.Errorf("%s: got %q, error %v", tt.in, got, err)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	in := &resource.CheckConfig{
		Metadata:         resource.ObjectMeta{Name: "disk", Namespace: "default", Labels: map[string]string{"for": "{{ .name }}", "{{ .name }}": "key"}},
		Command:          "check-disk --host {{ .name }}",
		EnvVars:          []string{"A=1", "RACK={{ .labels.rack }}"},
		OutputMetricTags: []resource.MetricTag{{Name: "host", Value: "{{ .name }}"}},
		CheckHooks:       []resource.HookList{{Type: "critical", Hooks: []string{"{{ .labels.rack }}"}}},
		Interval:         60,
		MaxOutputSize:    1<<62 + 1, // too large for a float
		Handlers:         []string{},
		Subscriptions:    []string{},
		Pipelines:        []resource.ResourceReference{},
	}
	got, err := Object(in, entityData(t))
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
	if got, err := Object(plain, entityData(t)); err != nil || got == plain || !reflect.DeepEqual(got, plain) {
		t.Errorf("without tokens: got %+v, %v", got, err)
	}
	if _, err := Object(&resource.HookConfig{Command: "{{ .labels.nope }}"}, entityData(t)); err == nil {
		t.Error("unmatched token accepted")
	}
}

// TestEntityConfig has the tokens of a check that the backend requests once for each of many entities.
func TestEntityConfig(t *testing.T) {
	t.Parallel()
	cfg := resource.EntityConfigOf(testEntity())
	compiled, err := Compile(&resource.CheckConfig{
		Command:       "ping {{ .name }} {{ .metadata.labels.rack }} {{ .labels.rack }} {{ .metadata.namespace }}",
		ProxyRequests: &resource.ProxyRequests{EntityAttributes: []string{"entity.name == '{{ .name }}'"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := compiled.For(EntityConfig(cfg))
		if err != nil || got.Command != "ping web-1 r7 r7 default" || got.ProxyRequests.EntityAttributes[0] != "entity.name == 'web-1'" {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	if _, err := Object(&command{"{{ .system.os }}"}, EntityConfig(cfg)); err == nil {
		t.Error("the backend knows nothing of the host")
	}
}

func TestAsset(t *testing.T) {
	t.Parallel()
	in := &resource.Asset{
		URL: "https://{{ .labels.rack }}/a", Sha512: "{{ .name }}", Headers: map[string]string{"X": "{{ .name }}"},
		Builds: []*resource.AssetBuild{{URL: "https://{{ .name }}", Sha512: "{{ .name }}"}, {URL: "u"}},
	}
	got, err := Object(in, entityData(t))
	if err != nil {
		t.Fatal(err)
	}
	want := &resource.Asset{
		URL: "https://r7/a", Sha512: "{{ .name }}", Headers: map[string]string{"X": "web-1"},
		Builds: []*resource.AssetBuild{{URL: "https://web-1", Sha512: "{{ .name }}"}, {URL: "u"}},
	}
	if !reflect.DeepEqual(got, want) || in.Builds[0].URL != "https://{{ .name }}" {
		t.Errorf("got %+v", got)
	}
}

func FuzzObject(f *testing.F) {
	for _, in := range []string{"{{ .name }}", `{{ .labels.x | default "y" }}`, "{{ range 10 }}{{ . }}{{ end }}", "{{ with $x := 5 }}{{ $x }}{{ end }}", "{{"} {
		f.Add(in)
	}
	data := EntityConfig(resource.EntityConfigOf(testEntity()))
	f.Fuzz(func(t *testing.T, in string) {
		out, err := Object(&command{in}, data)
		if err == nil && len(out.Command) > maxText+len(in) {
			t.Errorf("%d bytes", len(out.Command))
		}
	})
}

// BenchmarkFor is one check for one entity.
func BenchmarkFor(b *testing.B) {
	cfg := resource.EntityConfigOf(testEntity())
	compiled, err := Compile(&resource.CheckConfig{Command: "ping -H {{ .labels.rack }} -c {{ .annotations.note }}", Subscriptions: []string{"x"}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := compiled.For(EntityConfig(cfg)); err != nil {
			b.Fatal(err)
		}
	}
}
