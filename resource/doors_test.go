package resource

import (
	"strings"
	"testing"
)

// TestDots checks names that a URL takes for a directory, in definitions and in events as agents encode them.
func TestDots(t *testing.T) {
	for _, name := range []string{".", ".."} {
		good := ObjectMeta{Namespace: "default", Name: "n"}
		bad := ObjectMeta{Namespace: "default", Name: name}
		const reason = `must not be "." or "..": it would mean another path`
		tests := []struct {
			v    validator
			want string
		}{
			{&Namespace{Name: name}, "namespace name " + reason},
			{&CheckConfig{Metadata: bad, Interval: 1}, "check name " + reason},
			{&CheckConfig{Metadata: good, Interval: 1, ProxyEntityName: name}, "proxy entity name " + reason},
			{&EntityConfig{Metadata: bad, EntityClass: "proxy"}, "entity name " + reason},
			{&Role{Metadata: bad}, "the Role name " + reason},
			{&Asset{Metadata: ObjectMeta{Namespace: "default", Name: "a/" + name + "/b"}}, "name " + reason},
		}
		for _, tt := range tests {
			requireReason(t, tt.v, tt.want)
		}
		for want, set := range map[string]func(*Event){
			"entity is invalid: entity name ":      func(e *Event) { e.Entity.Metadata.Name = name },
			"check is invalid: check name ":        func(e *Event) { e.Check.Metadata.Name = name },
			"check is invalid: proxy entity name ": func(e *Event) { e.Check.ProxyEntityName = name },
		} {
			e := boundEvent()
			set(e)
			requireReason(t, e, want+reason)
			requireReason(t, encoded(e.AppendProto(nil)), want+reason)
		}
	}
	for _, name := range []string{"a.b", "...", "a..b", ".a"} {
		if !ValidName(name) {
			t.Errorf("%q is refused", name)
		}
	}
	if err := checkAssetName("sensu/a..b/c"); err != nil {
		t.Error(err)
	}
}

// TestScheduleBounds has checks that would run all the time, or never.
func TestScheduleBounds(t *testing.T) {
	for spec, want := range map[string]string{
		"@every 1ns": "out of bounds", "@every 999ms": "out of bounds", "CRON_TZ=UTC @every 0s": "out of bounds",
		"@every -5s":     "out of bounds",
		"@every 100000h": "out of bounds", "@every x": "is invalid", "@every 1s": "", "@every 90m": "",
		"TZ=UTC @every 87600h": "", "@daily": "",
	} {
		c := &CheckConfig{Metadata: ObjectMeta{Namespace: "default", Name: "n"}, Cron: spec}
		err := c.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
	for _, tt := range []struct {
		low, high uint32
		want      string
	}{
		{0, 0, ""}, {20, 60, ""}, {20, 0, ""}, {60, 20, "invalid flap thresholds"}, {60, 60, "invalid flap thresholds"},
		{20, 101, "check high_flap_threshold 101 is out of bounds, it must be between 0 and 100"},
		{4294967295, 0, "check low_flap_threshold 4294967295 is out of bounds, it must be between 0 and 100"},
	} {
		c := &CheckConfig{Metadata: ObjectMeta{Namespace: "default", Name: "n"}, Interval: 1,
			LowFlapThreshold: tt.low, HighFlapThreshold: tt.high}
		requireReason(t, c, tt.want)
	}
}
