package resource

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestParseDependency(t *testing.T) {
	for text, want := range map[string]Dependency{
		"disk": {"", "disk"}, "web1/disk": {"web1", "disk"}, "web1/": {"web1", ""}, "a:b.c-d_1/e:f": {"a:b.c-d_1", "e:f"},
	} {
		got, err := ParseDependency(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%q is %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "/", "/disk", "a b", "web1/a b", "a/b/c", "web 1/"} {
		if d, err := ParseDependency(text); err == nil {
			t.Errorf("%q is %+v", text, d)
		}
	}
}

func TestAnnotatedDependencies(t *testing.T) {
	got := AnnotatedDependencies(map[string]string{DependsOnAnnotation: " a, b/c,\n  d/ ,,x/y/z e"})
	if want := []Dependency{{"", "a"}, {"b", "c"}, {"d", ""}, {"", "e"}}; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if got := AnnotatedDependencies(nil); got != nil {
		t.Errorf("got %v of nothing", got)
	}
	if got := AnnotatedDependencies(map[string]string{DependsOnAnnotation: strings.Repeat("a ", 1000)}); len(got) != maxDependencies {
		t.Errorf("%d dependencies were read", len(got))
	}
}

// TestDependsOnIsOurs checks that stock agents and clients see no new field.
func TestDependsOnIsOurs(t *testing.T) {
	meta := ObjectMeta{Namespace: "default", Name: "a"}
	c := CheckConfig{Metadata: meta, Interval: 1, DependsOn: []string{"r1/ping"}}
	without := c
	without.DependsOn = nil
	if !bytes.Equal(c.AppendProto(nil), without.AppendProto(nil)) {
		t.Error("depends_on changes what agents get")
	}
	for _, v := range []any{without, Entity{Metadata: meta}, EntityConfig{Metadata: meta}} {
		if text, err := json.Marshal(v); err != nil || bytes.Contains(text, []byte("depends_on")) {
			t.Errorf("%T: %s, %v", v, text, err)
		}
	}
	text, err := json.Marshal(c)
	var back CheckConfig
	if err != nil || json.Unmarshal(text, &back) != nil || !slices.Equal(back.DependsOn, c.DependsOn) {
		t.Errorf("%s became %v, %v", text, back.DependsOn, err)
	}
	for _, err := range []error{
		(&CheckConfig{Metadata: meta, Interval: 1, DependsOn: []string{"a/b/c"}}).Validate(),
		(&EntityConfig{Metadata: meta, EntityClass: "proxy", DependsOn: []string{""}}).Validate(),
		(&Entity{Metadata: meta, EntityClass: "proxy", DependsOn: slices.Repeat([]string{"a"}, 101)}).Validate(),
	} {
		if err == nil {
			t.Error("depends_on that is no good was taken")
		}
	}
}
