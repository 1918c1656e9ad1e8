package test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestLogLevel: any member shows and changes what another one logs, for some time; the others stay as they are.
func TestLogLevel(t *testing.T) {
	all := newMembers(t, 3)
	all.start()
	first, last := all[0].client(), all[2].client()
	const path = "/api/lapwing/v1/log-level"
	var got resource.LogLevels
	ask := resource.LogLevelRequest{Component: "handler", Level: "debug", Seconds: 600}
	if err := first.Do(t.Context(), http.MethodPost, path+"?member=b1", &ask, &got); err != nil {
		t.Fatal(err)
	}
	for member, want := range map[string]string{"b0": "", "b1": "handler debug", "b2": ""} {
		got = resource.LogLevels{}
		if err := last.Do(t.Context(), http.MethodGet, path+"?member="+member, nil, &got); err != nil {
			t.Fatal(err)
		}
		var changed []string
		for _, c := range got.Changed {
			changed = append(changed, c.Component+" "+c.Level)
		}
		if strings.Join(changed, ", ") != want || len(got.Components) < 5 {
			t.Errorf("member %s: %+v, want the change %q", member, got, want)
		}
	}
	for what, bad := range map[string]struct {
		ask  resource.LogLevelRequest
		path string
		says string
	}{
		"component": {resource.LogLevelRequest{Component: "handlr", Level: "debug"}, path + "?member=b1", `there is no component "handlr" (handler?)`},
		"level":     {resource.LogLevelRequest{Level: "loud"}, path, `unknown log level "loud"`},
		"time":      {resource.LogLevelRequest{Level: "debug", Seconds: 1 << 40}, path, "seconds must be from 1 to 86400"},
		"member":    {resource.LogLevelRequest{Level: "debug"}, path + "?member=b9", "b9 is none of the members"},
	} {
		if err := first.Do(t.Context(), http.MethodPost, bad.path, &bad.ask, nil); err == nil || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("a wrong %s: %v", what, err)
		}
	}
	if err := last.Do(t.Context(), http.MethodDelete, path+"?member=b1", nil, &got); err != nil || len(got.Changed) > 0 {
		t.Errorf("after the reset: %+v, %v", got, err)
	}
}
