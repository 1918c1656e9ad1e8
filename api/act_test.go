package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestActsAreAuditedAsRequests: an act of bulk or prune on one object is in the audit log like the request for it
// alone.
func TestActsAreAuditedAsRequests(t *testing.T) {
	s := newServer(t, nil)
	s.events(4)
	const made = `"labels":{"sensu.io/managed_by":"sensuctl"}`
	s.do("PUT", defaultPath+"checks/c", `{"metadata":{"name":"c","namespace":"default",`+made+`},"interval":10}`).is(201)
	s.do("PUT", defaultPath+"entities/e", `{"metadata":{"name":"e","namespace":"default",`+made+`},"entity_class":"proxy"}`).is(200)
	s.do("PUT", defaultPath+"silenced/s:x", `{"metadata":{"name":"s:x","namespace":"default",`+made+`},"subscription":"s","check":"x"}`).is(201)
	s.do("PUT", "/api/lapwing/v1/namespaces/default/aggregates/a",
		`{"metadata":{"name":"a","namespace":"default",`+made+`},"interval":60,"field_selector":"event.check.name == disk","critical":{"count":2}}`).is(201)
	s.do("PUT", "/api/core/v2/clusterroles/r", `{"metadata":{"name":"r",`+made+`},"rules":[{"verbs":["get"],"resources":["checks"]}]}`).is(201)
	before := len(s.audit("/api/lapwing/v1/audit?limit=1000"))

	bulk := func(body string, done int) {
		t.Helper()
		if r := s.bulkDo(bulkPath, body); r.Done != done || r.Failed+r.Denied > 0 {
			t.Errorf("%s: %+v", body, r)
		}
	}
	const web1 = `"field_selector":"event.entity.name == web1"`
	bulk(`{"resource":"checks","action":"label","all":true,"labels":{"tier":"1"}}`, 1)
	bulk(`{"resource":"aggregates","action":"label","all":true,"labels":{"tier":"1"}}`, 1)
	bulk(`{"resource":"events","action":"acknowledge","reason":"at it",`+web1+`}`, 1)
	bulk(`{"resource":"events","action":"unacknowledge",`+web1+`}`, 1)
	bulk(`{"resource":"events","action":"silence","expire":60,`+web1+`}`, 1)
	bulk(`{"resource":"events","action":"resolve",`+web1+`}`, 1)
	bulk(`{"resource":"events","action":"delete",`+web1+`}`, 1)
	bulk(`{"resource":"silenced","action":"delete","field_selector":"silenced.check == disk"}`, 1)
	if r := s.bulkDo(bulkPath, `{"resource":"silenced","action":"label","all":true,"labels":{"a":"b"}}`); r.Failed != 1 {
		t.Errorf("a silence was patched: %+v", r)
	}
	s.do("POST", prunePath+"types=all&namespaces=default&clusterWide=true&allUsers=true", `[]`).is(201)

	const object = "/api/core/v2/namespaces/default/"
	want := []string{
		"update checks default/c by PATCH " + object + "checks/c",
		"update aggregates default/a by PATCH /api/lapwing/v1/namespaces/default/aggregates/a",
		"create silenced default/entity:web1:disk by POST /api/lapwing/v1/namespaces/default/events/web1/disk/ack",
		"delete silenced default/entity:web1:disk by DELETE /api/lapwing/v1/namespaces/default/events/web1/disk/ack",
		"create silenced default/entity:web1:disk by POST " + object + "silenced",
		"delete events default/web1/disk by DELETE " + object + "events/web1/disk",
		"delete silenced default/entity:web1:disk by DELETE " + object + "silenced/entity:web1:disk",
		"delete checks default/c by DELETE " + object + "checks/c",
		"delete aggregates default/a by DELETE /api/lapwing/v1/namespaces/default/aggregates/a",
		"delete entities default/e by DELETE " + object + "entities/e",
		"delete silenced default/s:x by DELETE " + object + "silenced/s:x",
		"delete clusterroles /r by DELETE /api/core/v2/clusterroles/r",
	}
	var got []string
	entries := s.audit("/api/lapwing/v1/audit?limit=1000")
	for _, e := range slices.Backward(entries[:len(entries)-before]) {
		got = append(got, fmt.Sprintf("%s %s %s/%s by %s", e.Action, e.Resource, e.Namespace, e.Name, e.Request))
		if e.User != admin || e.Remote == "" {
			t.Errorf("incomplete: %+v", e)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the audit log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestActsKeepToLabels: bulk and prune refuse the same as single requests for a role that is limited by labels.
func TestActsKeepToLabels(t *testing.T) {
	s := newServer(t, nil)
	s.grant("red", "default", resource.Rule{
		Verbs: []string{"*"}, Resources: []string{"checks", "handlers", "filters", "entities", "events", "silenced"},
		LabelSelector: "team == red",
	})
	red := []string{"Authorization", "Bearer " + s.user("ann", "red")}
	for _, team := range []string{"red", "blue"} {
		labels := fmt.Sprintf(`"namespace":"default","labels":{"team":%q,"sensu.io/managed_by":"sensuctl"}`, team)
		s.do("PUT", defaultPath+"checks/"+team, fmt.Sprintf(`{"metadata":{"name":%q,%s},"interval":10}`, team, labels)).is(201)
		s.do("PUT", defaultPath+"entities/"+team, fmt.Sprintf(`{"metadata":{"name":%q,%s},"entity_class":"proxy"}`, team, labels)).is(200)
		s.do("POST", defaultPath+"events", fmt.Sprintf(
			`{"entity":{"metadata":{"name":%[1]q,"labels":{"team":%[1]q}}},"check":{"metadata":{"name":"disk"},"interval":10,"status":1}}`, team)).is(201)
	}
	for _, tc := range []struct{ body, want string }{
		{`{"resource":"checks","action":"label","all":true,"labels":{"team":"blue"}}`, "1 0 1 0"},
		{`{"resource":"entities","action":"label","all":true,"labels":{"team":"blue"}}`, "1 0 1 0"},
		{`{"resource":"checks","action":"label","all":true,"labels":{"tier":"1"}}`, "1 1 0 0"},
		{`{"resource":"events","action":"silence","all":true,"expire":60,"reason":"move"}`, "1 0 1 0"}, // it would have no label
		{`{"resource":"events","action":"acknowledge","all":true,"reason":"at it"}`, "1 0 1 0"},
		{`{"resource":"events","action":"resolve","all":true}`, "1 1 0 0"},
		{`{"resource":"handlers","action":"delete","all":true}`, "0 0 0 0"},
	} {
		r := s.bulkDo(bulkPath, tc.body, red...)
		if got := fmt.Sprintf("%d %d %d %d", r.Matched, r.Done, r.Denied, r.Failed); got != tc.want {
			t.Errorf("%s: %s %+v, want %s", tc.body, got, r, tc.want)
		}
	}
	a := s.do("POST", prunePath+"types=checks,entities&namespaces=default&allUsers=true", `[]`, red...)
	if got := a.pruned(); got != "CheckConfig default/red, Entity default/red" {
		t.Errorf("pruned %s", got)
	}
	if a := s.do("GET", defaultPath+"checks/blue", ""); a.status != http.StatusOK {
		t.Errorf("the other team's check is gone: %d", a.status)
	}
}
