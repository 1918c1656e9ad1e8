package resource

import (
	"encoding/json"
	"strings"
	"testing"
)

var meta = ObjectMeta{Name: "a", Namespace: "default"}

func TestEventFilter(t *testing.T) {
	for want, change := range map[string]func(*EventFilter){
		"":                              func(*EventFilter) {},
		"filter name must not be empty": func(f *EventFilter) { f.Metadata.Name = "" },
		"namespace must be set":         func(f *EventFilter) { f.Metadata.Namespace = "" },
		"action '' is not valid":        func(f *EventFilter) { f.Action = "" },
		"action 'Allow' is not valid":   func(f *EventFilter) { f.Action = "Allow" },
		"filter must have one or more expressions":                                                func(f *EventFilter) { f.Expressions = nil },
		"asset's name may only contain letters, forward slashes, underscores, dashes and numbers": func(f *EventFilter) { f.RuntimeAssets = []string{"a b"} },
	} {
		f := &EventFilter{Metadata: meta, Action: "deny", Expressions: []string{"true"}, RuntimeAssets: []string{"sensu/js"}}
		change(f)
		requireReason(t, f, want)
	}
}

func TestMutator(t *testing.T) {
	requireReason(t, &Mutator{Metadata: meta, Command: "jq ."}, "")
	requireReason(t, &Mutator{Metadata: meta, Type: "pipe", Command: "jq ."}, "")
	requireReason(t, &Mutator{Metadata: meta, Type: "javascript", Eval: "return event"}, "")
	requireReason(t, &Mutator{Metadata: meta}, "mutator command or eval must be set")
	requireReason(t, &Mutator{Metadata: meta, Type: "javascript"}, "mutator command or eval must be set")
	requireReason(t, &Mutator{Metadata: meta, Type: "foo", Command: "x"}, `invalid mutator type "foo", valid types are "javascript, pipe"`)
	requireReason(t, &Mutator{Metadata: meta, Type: "javascript", Command: "x"}, `"command" used with javascript mutator, should be "eval"`)
	requireReason(t, &Mutator{Metadata: meta, Type: "pipe", Eval: "x"}, `"eval" used with pipe mutator, should be "command"`)
	requireReason(t, &Mutator{Metadata: meta, Command: "x", EnvVars: []string{"A"}}, "environment variables must be of the form FOO=BAR")
	requireReason(t, &Mutator{Metadata: ObjectMeta{Name: "a b", Namespace: "n"}, Command: "x"},
		"mutator name cannot contain spaces or special characters")
	requireReason(t, &Mutator{Metadata: ObjectMeta{Name: "a"}, Command: "x"}, "namespace must be set")
}

func TestPipeline(t *testing.T) {
	ref := func(name, typ, version string) *ResourceReference { return &ResourceReference{name, typ, version} }
	handler := ref("h", "Handler", "core/v2")
	for _, tc := range []struct {
		workflow PipelineWorkflow
		want     string
	}{
		{PipelineWorkflow{Name: "w", Handler: handler}, ""},
		{PipelineWorkflow{Name: "w", Handler: handler, Mutator: ref("m", "Mutator", "core/v2"),
			Filters: []*ResourceReference{ref("f", "EventFilter", "core/v2")}}, ""},
		{PipelineWorkflow{Handler: handler}, "workflow name must not be empty"},
		{PipelineWorkflow{Name: "w"}, "workflow handler must be set"},
		{PipelineWorkflow{Name: "w", Handler: ref("", "Handler", "core/v2")}, "workflow handler name must not be empty"},
		{PipelineWorkflow{Name: "w", Handler: ref("h", "", "core/v2")}, "workflow handler type must be set"},
		{PipelineWorkflow{Name: "w", Handler: ref("h", "Handler", "")}, "workflow handler api_version must be set"},
		{PipelineWorkflow{Name: "w", Handler: ref("h", "Mutator", "core/v2")},
			"workflow handler resource type not capable of handling events: core/v2.Mutator"},
		{PipelineWorkflow{Name: "w", Handler: handler, Mutator: ref("m", "Handler", "core/v2")},
			"workflow mutator resource type not capable of mutating events: core/v2.Handler"},
		{PipelineWorkflow{Name: "w", Handler: handler,
			Filters: []*ResourceReference{ref("f", "EventFilter", "core/v3")}},
			"workflow filter resource type not capable of filtering events: core/v3.EventFilter"},
		{PipelineWorkflow{Name: "w", Handler: handler, Filters: []*ResourceReference{nil}}, "workflow filter must be set"},
	} {
		requireReason(t, &Pipeline{Metadata: meta, Workflows: []PipelineWorkflow{tc.workflow}}, tc.want)
	}
	requireReason(t, &Pipeline{Metadata: meta}, "")
	requireReason(t, &Pipeline{Metadata: ObjectMeta{Namespace: "n"}}, "name must not be empty")
	requireReason(t, &Pipeline{Metadata: ObjectMeta{Name: "a"}}, "namespace must be set")
}

func TestHookConfig(t *testing.T) {
	requireReason(t, &HookConfig{Metadata: meta, Command: "ps", Timeout: 1}, "")
	requireReason(t, &HookConfig{Metadata: meta, Timeout: 1}, "command cannot be empty")
	requireReason(t, &HookConfig{Metadata: meta, Command: "ps"}, "hook timeout must be greater than 0")
	requireReason(t, &HookConfig{Command: "ps", Timeout: 1}, "hook name must not be empty")
	requireReason(t, &HookConfig{Metadata: ObjectMeta{Name: "a"}, Command: "ps", Timeout: 1}, "namespace must be set")
}

func TestHookList(t *testing.T) {
	for typ, ok := range map[string]bool{
		"0": true, "9": true, "255": true, "ok": true, "warning": true, "critical": true, "unknown": true, "non-zero": true,
		"": false, "256": false, "1000": false, "01": false, "-1": false, "1x": false, "Critical": false,
	} {
		l := HookList{Type: typ, Hooks: []string{"h"}}
		if got := l.Validate() == nil; got != ok {
			t.Errorf("type %q: accepted %v", typ, got)
		}
	}
	requireReason(t, &HookList{Type: "ok"}, "hooks of type ok must not be empty")
	requireReason(t, &HookList{Type: "ok", Hooks: []string{""}}, "hooks of type ok must not be empty")
}

func TestAsset(t *testing.T) {
	sum := strings.Repeat("0", 128)
	requireReason(t, &Asset{Metadata: ObjectMeta{Name: "sensu/disk-1.0_x:y", Namespace: "n"}, URL: "http://x", Sha512: sum}, "")
	requireReason(t, &Asset{Metadata: meta, Builds: []*AssetBuild{{URL: "http://x", Sha512: sum}}}, "")
	requireReason(t, &Asset{Metadata: ObjectMeta{Namespace: "n"}, URL: "http://x", Sha512: sum}, "name cannot be empty")
	requireReason(t, &Asset{Metadata: ObjectMeta{Name: "a b", Namespace: "n"}, URL: "http://x", Sha512: sum},
		"name may only contain letters, forward slashes, underscores, dashes and numbers")
	requireReason(t, &Asset{Metadata: ObjectMeta{Name: "a"}, URL: "http://x", Sha512: sum}, "namespace must be set")
	requireReason(t, &Asset{Metadata: meta, Sha512: sum}, "URL cannot be empty")
	requireReason(t, &Asset{Metadata: meta, URL: "http://x"}, "SHA-512 checksum cannot be empty")
	requireReason(t, &Asset{Metadata: meta, URL: "http://x", Sha512: sum[1:]}, "SHA-512 checksum must be at least 128 characters")
	requireReason(t, &Asset{Metadata: meta, Builds: []*AssetBuild{{Sha512: sum}}}, "URL cannot be empty")
	requireReason(t, &Asset{Metadata: meta, Builds: []*AssetBuild{nil}}, "SHA-512 checksum cannot be empty")
}

// TestUnsetFields checks the JSON of fields that are not set.
func TestUnsetFields(t *testing.T) {
	for want, v := range map[string]any{
		`{"metadata":{},"action":"","expressions":null,"runtime_assets":null}`:             EventFilter{},
		`{"metadata":{},"timeout":0,"env_vars":null,"runtime_assets":null,"secrets":null}`: Mutator{},
		`{"metadata":{},"workflows":null}`:                                                 Pipeline{},
		`{"name":"","handler":null}`:                                                       PipelineWorkflow{},
		`{"metadata":{},"timeout":0,"stdin":false,"runtime_assets":null}`:                  HookConfig{},
		`{"filters":null,"builds":null,"metadata":{},"headers":null}`:                      Asset{},
		`{"opt_out":false}`: TessenConfig{},
	} {
		got, err := json.Marshal(v)
		if err != nil || string(got) != want {
			t.Errorf("%T is %s, want %s (%v)", v, got, want, err)
		}
	}
}
