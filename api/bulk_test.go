package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const bulkPath = "/api/lapwing/v1/namespaces/default/bulk"

// bulkDo makes a bulk request and returns the report.
func (s *server) bulkDo(path, body string, headers ...string) bulkReport {
	s.t.Helper()
	a := s.do(http.MethodPost, path, body, headers...)
	if a.status != http.StatusOK {
		s.t.Fatalf("%s: %d %s", body, a.status, a.body)
	}
	var report bulkReport
	lines := strings.Split(strings.TrimSpace(a.body), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &report); err != nil {
		s.t.Fatal(err)
	}
	return report
}

func (s *server) events(n int) {
	s.t.Helper()
	for i := range n {
		s.do(http.MethodPost, "/api/core/v2/namespaces/default/events", fmt.Sprintf(
			`{"entity":{"metadata":{"name":"web%d","labels":{"region":"%s"}}},"check":{"metadata":{"name":"disk"},"interval":10,"status":%d}}`,
			i, []string{"eu", "us"}[i%2], i%3))
	}
}

func TestBulkEvents(t *testing.T) {
	s := newServer(t, nil)
	s.events(12) // 4 of each status, 6 of each region, 2 of each pair
	f := func(body, want string, headers ...string) bulkReport {
		t.Helper()
		r := s.bulkDo(bulkPath, body, headers...)
		if got := fmt.Sprintf("%d %d %d %d", r.Matched, r.Done, r.Denied, r.Failed); got != want || !r.Finished {
			t.Errorf("%s: %s %+v, want %s", body, got, r, want)
		}
		return r
	}
	failing := func() int {
		a := s.do(http.MethodGet, "/api/core/v2/namespaces/default/events?fieldSelector="+"event.check.status%20!=%200", "")
		var events []resource.Event
		if err := json.Unmarshal([]byte(a.body), &events); err != nil {
			t.Fatal(err)
		}
		return len(events)
	}
	s.do(http.MethodPost, bulkPath, `{"resource":"events","action":"resolve","field_selector":"event.check.stat == 2"}`).
		refuses(400, codeInvalid, `unknown field "event.check.stat" in field selector: did you mean "event.check.state"?`)
	s.do(http.MethodPost, bulkPath, `{"resource":"checks","action":"delete","field_selector":"event.check.name == x"}`).
		refuses(400, codeInvalid, `unknown field "event.check.name" in field selector: did you mean "check.name"?`)
	report := f(`{"resource":"events","action":"resolve","field_selector":"event.check.status == 2","dry_run":true}`, "4 4 0 0")
	if len(report.Objects) != 4 || report.Objects[0].Result != "would" || failing() != 8 {
		t.Errorf("dry run: %+v; %d fail", report, failing())
	}
	f(`{"resource":"events","action":"resolve","field_selector":"event.check.status == 2"}`, "4 4 0 0", "Accept", "application/x-ndjson")
	if failing() != 4 {
		t.Errorf("%d still fail", failing())
	}
	ev := s.do(http.MethodGet, "/api/core/v2/namespaces/default/events/web2/disk", "")
	if !strings.Contains(ev.body, "Resolved manually by admin") || !strings.Contains(ev.body, `"status":0`) {
		t.Errorf("resolved event: %s", ev.body)
	}
	f(`{"resource":"events","action":"silence","label_selector":"region == eu","expire":3600,"reason":"move"}`, "6 6 0 0")
	if one, ok := config.Get(s.store.Snapshot(), config.Silences, "default", "entity:web2:disk"); !ok ||
		one.Reason != "move" || one.Creator != admin || one.ExpireAt == 0 {
		t.Errorf("silence: %+v", one)
	}
	f(`{"resource":"events","action":"delete","label_selector":"region == us"}`, "6 6 0 0")
	if a := s.do(http.MethodGet, "/api/core/v2/namespaces/default/events", ""); strings.Count(a.body, `"disk","namespace`) != 6 {
		t.Errorf("left: %s", a.body)
	}
	f(`{"resource":"events","action":"delete","field_selector":"event.entity.name == web0"}`, "1 1 0 0")
	if entries := s.audit("/api/lapwing/v1/audit?resource=events&action=delete"); len(entries) != 7 ||
		entries[0].Name != "web0/disk" || entries[0].User != admin {
		t.Errorf("audit log: %+v", entries)
	}

	for body, status := range map[string]int{
		`{`: 400,
		`{"resource":"events","action":"delete"}`:                                      400, // all of them, without "all"
		`{"resource":"events","action":"delete","all":true,"label_selector":"a == b"}`: 400,
		`{"resource":"events","action":"label","all":true,"labels":{"a":"b"}}`:         400,
		`{"resource":"events","action":"burn","all":true}`:                             400,
		`{"resource":"users","action":"delete","all":true}`:                            400,
		`{"resource":"all","action":"delete","all":true}`:                              400,
		`{"resource":"checks","action":"label","all":true}`:                            400,
		`{"resource":"events","action":"delete","label_selector":"=="}`:                400,
		`{"resource":"events","action":"delete","all":true,"at_most":4}`:               409,
	} {
		if a := s.do(http.MethodPost, bulkPath, body); a.status != status {
			t.Errorf("%s: %d %s, want %d", body, a.status, a.body, status)
		}
	}
}

func TestBulkDefinitions(t *testing.T) {
	s := newServer(t, nil)
	for i := range 5 {
		s.do(http.MethodPut, fmt.Sprint("/api/core/v2/namespaces/default/checks/c", i), fmt.Sprintf(
			`{"metadata":{"name":"c%d","namespace":"default","labels":{"n":"%d","old":"x"}},"command":"true","interval":%d,"subscriptions":["x"],"handlers":[]}`, i, i, 10*(i+1)))
	}
	r := s.bulkDo(bulkPath, `{"resource":"checks","action":"label","field_selector":"check.interval > 30","labels":{"slow":"yes","old":null}}`)
	if r.Matched != 2 || r.Done != 2 {
		t.Errorf("label: %+v", r)
	}
	c, _ := config.Get(s.store.Snapshot(), config.Checks, "default", "c4")
	if fmt.Sprint(c.Metadata.Labels) != "map[n:4 slow:yes]" {
		t.Errorf("labels %v", c.Metadata.Labels)
	}
	r = s.bulkDo("/api/lapwing/v1/namespaces/-/bulk", `{"resource":"checks","action":"delete","label_selector":"slow == yes"}`)
	if r.Done != 2 || config.Len(s.store.Snapshot(), config.Checks) != 3 {
		t.Errorf("delete: %+v", r)
	}
}

// TestBulkAsksForEachObject: a user has rights for some of the selected objects.
func TestBulkAsksForEachObject(t *testing.T) {
	s := newServer(t, nil)
	s.events(4)
	bob := []string{"Authorization", "Bearer " + s.user("bob", "ops")}
	const all = `{"resource":"events","action":"delete","all":true%s}`
	if a := s.do(http.MethodPost, bulkPath, fmt.Sprintf(all, ""), bob...); a.status != http.StatusForbidden {
		t.Errorf("without a role: %d", a.status)
	}
	s.grant("ops", "default",
		resource.Rule{Verbs: []string{"list"}, Resources: []string{"events"}},
		resource.Rule{Verbs: []string{"delete"}, Resources: []string{"events"}, ResourceNames: []string{"web1/disk"}})
	for _, dry := range []string{`,"dry_run":true`, ``} {
		r := s.bulkDo(bulkPath, fmt.Sprintf(all, dry), bob...)
		if r.Matched != 4 || r.Done != 1 || r.Denied != 3 {
			t.Errorf("dry %q: %+v", dry, r)
		}
	}
	if a := s.do(http.MethodPost, "/api/lapwing/v1/namespaces/-/bulk", fmt.Sprintf(all, ""), bob...); a.status != http.StatusForbidden {
		t.Errorf("in all namespaces: %d", a.status)
	}
}
