package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/lapwing-monitoring/lapwing/audit"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func (s *server) audit(path string, headers ...string) []audit.Entry {
	s.t.Helper()
	a := s.do(http.MethodGet, path, "", headers...)
	if a.status != http.StatusOK {
		s.t.Fatalf("GET %s: %d %s", path, a.status, a.body)
	}
	var entries []audit.Entry
	if err := json.Unmarshal([]byte(a.body), &entries); err != nil {
		s.t.Fatalf("GET %s: %v: %s", path, err, a.body)
	}
	return entries
}

func TestAudit(t *testing.T) {
	s := newServer(t, nil)
	if got := s.audit("/api/lapwing/v1/audit"); len(got) != 0 {
		t.Errorf("before any change: %+v", got)
	}
	ann := s.user("ann", "cluster-admins")
	const check = "/api/core/v2/namespaces/default/checks/cpu"
	body := func(interval int) string {
		return fmt.Sprintf(`{"metadata":{"name":"cpu","namespace":"default"},"command":"true","interval":%d,"publish":true,"subscriptions":["x"],"handlers":[]}`, interval)
	}
	s.do(http.MethodPut, check, body(10))
	s.do(http.MethodPut, check, body(20), "Authorization", "Bearer "+ann)
	s.do(http.MethodPut, check, body(0)) // refused
	s.do(http.MethodPatch, check, `{"interval":30}`, "Content-Type", "application/merge-patch+json")
	s.do(http.MethodDelete, check, "")
	s.do(http.MethodPost, "/api/core/v2/namespaces/default/events",
		`{"entity":{"metadata":{"name":"web1"}},"check":{"metadata":{"name":"disk"},"interval":10,"status":1}}`)
	s.do(http.MethodDelete, "/api/core/v2/namespaces/default/events/web1/disk", "")

	var got []string
	for _, e := range s.audit("/api/lapwing/v1/audit") {
		line := fmt.Sprintf("%s %s %s %s/%s", e.User, e.Action, e.Resource, e.Namespace, e.Name)
		for _, c := range e.Changes {
			if c.Path != "" {
				line += fmt.Sprintf(" %s:%s>%s", c.Path, c.Old, c.New)
			}
		}
		got = append(got, line)
		if e.Remote == "" || e.Request == "" || e.Time.IsZero() {
			t.Errorf("incomplete: %+v", e)
		}
	}
	want := []string{
		"admin delete events default/web1/disk",
		"admin create entities default/web1", // the event made it
		"admin delete checks default/cpu",
		"admin update checks default/cpu /interval:20>30",
		`ann update checks default/cpu /interval:10>20 /metadata/created_by:"admin">"ann"`,
		"admin create checks default/cpu",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("audit log:\n got %q\nwant %q", got, want)
	}

	for query, n := range map[string]int{
		"?user=ann": 1, "?user=nobody": 0, "?resource=checks": 4, "?resource=checks&action=update": 2, "?name=cpu": 4,
		"?namespace=default": 6, "?namespace=dev": 0, "?since=1h": 6, "?until=1h": 0, "?since=2100-01-01T00:00:00Z": 0, "?limit=4": 4,
	} {
		if got := s.audit("/api/lapwing/v1/audit" + query); len(got) != n {
			t.Errorf("%s: %d entries, want %d", query, len(got), n)
		}
	}
	first := s.do(http.MethodGet, "/api/lapwing/v1/audit?limit=4", "")
	if rest := s.audit("/api/lapwing/v1/audit?limit=4&continue=" +
		first.header.Get("Sensu-Continue")); len(rest) != 2 || rest[0].User != "ann" {
		t.Errorf("second page: %+v", rest)
	}
	for _, bad := range []string{"?since=yesterday", "?until=-1", "?continue=eHg"} {
		if a := s.do(http.MethodGet, "/api/lapwing/v1/audit"+bad, ""); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", bad, a.status, a.body)
		}
	}

	// In a namespace: only its part.
	bob := "Bearer " + s.user("bob", "auditors")
	s.grant("auditors", "dev", resource.Rule{Verbs: []string{"list"}, Resources: []string{"audit"}})
	if got := s.audit("/api/lapwing/v1/namespaces/dev/audit", "Authorization", bob); len(got) != 0 {
		t.Errorf("another namespace's changes: %+v", got)
	}
	for _, path := range []string{"/api/lapwing/v1/audit", "/api/lapwing/v1/namespaces/default/audit",
		"/api/lapwing/v1/audit?namespace=dev", "/api/lapwing/v1/namespaces/-/audit"} {
		if a := s.do(http.MethodGet, path, "", "Authorization", bob); a.status != http.StatusForbidden {
			t.Errorf("%s as an auditor of dev: %d", path, a.status)
		}
	}
}
