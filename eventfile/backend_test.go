package eventfile_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
)

// line is what the test reads of a line.
type line struct {
	ID     string `json:"id"`
	Entity struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	} `json:"entity"`
}

// linesAbout returns the lines of a file about an entity, by the events' ids.
func linesAbout(t *testing.T, path, entity string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for text := range strings.Lines(string(text)) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil || !strings.HasSuffix(text, "\n") {
			t.Errorf("%s has the line %q: %v", path, text, err)
		}
		if l.Entity.Metadata.Name != entity {
			continue
		}
		if found[l.ID] != "" {
			t.Errorf("event %s is in %s twice", l.ID, path)
		}
		found[l.ID] = text
	}
	return found
}

// TestLinesAreTheAPIsEvents runs a backend with a file. Each event is in it as the API shows it, with the state after it
// and without secrets, in whichever file it is: another program renames the file, and the backend is reloaded.
func TestLinesAreTheAPIsEvents(t *testing.T) {
	for name, parallel := range map[string]bool{"one encoder": false, "several encoders": true} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "events.log")
			var opts testbackend.Options
			b := testbackend.Start(t, func(o *testbackend.Options) {
				o.EventFile.Path, o.EventFile.Parallel = path, parallel
				opts = *o
			})
			do := func(method, at string, in, out any) {
				t.Helper()
				if err := b.Client.Do(t.Context(), method, "/api/core/v2/namespaces/default/"+at, in, out); err != nil {
					t.Fatal(err)
				}
			}
			do("POST", "entities", map[string]any{
				"entity_class": "proxy", "redact": []string{"pin"},
				"metadata": map[string]any{"name": "e", "namespace": "default", "labels": map[string]string{"pin": "1234"}},
			}, nil)
			events := map[string]any{} // of the API, by id
			report := func(check string, body map[string]any) (id string) {
				t.Helper()
				do("PUT", "events/e/"+check, body, nil)
				var event map[string]any
				do("GET", "events/e/"+check, nil, &event)
				id = event["id"].(string)
				events[id] = event
				return id
			}
			result := func(check string, status int) map[string]any {
				return map[string]any{"check": map[string]any{
					"metadata": map[string]any{"name": check}, "status": status, "interval": 60, "output": "<one>\ntwo",
					"env_vars": []string{"DB_PASSWORD=1234"},
				}}
			}
			for status := range 3 {
				report("disk", result("disk", status))
			}
			report("load", result("load", 1))
			do("DELETE", "events/e/load", nil, nil) // is no event

			if err := os.Rename(path, path+".moved"); err != nil {
				t.Fatal(err)
			}
			if err := b.Reload(t.Context(), opts); err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
				t.Fatalf("after the reload the file is %v: %v", info, err)
			}
			last := report("disk", result("disk", 0))
			if err := b.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			lines := linesAbout(t, path, "e")
			if lines[last] == "" {
				t.Error("the event after the reload is not in the new file")
			}
			for id, text := range linesAbout(t, path+".moved", "e") {
				if lines[id] != "" {
					t.Errorf("event %s is in both files", id)
				}
				lines[id] = text
			}
			if len(lines) != len(events) {
				t.Errorf("there are %d lines for %d events", len(lines), len(events))
			}
			for id, want := range events {
				var got map[string]any
				if err := json.Unmarshal([]byte(lines[id]), &got); err != nil {
					t.Errorf("event %s has the line %q: %v", id, lines[id], err)
				} else if !reflect.DeepEqual(got, want) {
					t.Errorf("event %s is\n%v\nand of the API\n%v", id, got, want)
				}
				if strings.Contains(lines[id], "1234") || !strings.Contains(lines[id], "REDACTED") {
					t.Errorf("a secret is in %s", lines[id])
				}
			}
			if n := b.Counter(t, "lapwing_event_log_file_events_total"); n < float64(len(events)) {
				t.Errorf("%v events are counted", n)
			}
		})
	}
}

// TestNoFile: without the option there is no follower.
func TestNoFile(t *testing.T) {
	b := testbackend.Start(t, nil)
	families, err := b.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	followers := false
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "lapwing_event_log_file_") {
			t.Errorf("there is %s", f.GetName())
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				followers = followers || l.GetName() == "follower"
				if l.GetValue() == "eventfile" {
					t.Error("the fold has the follower")
				}
			}
		}
	}
	if !followers {
		t.Error("no follower is named in the metrics")
	}
}
