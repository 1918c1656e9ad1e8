package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestDryRun: a write under the path of dry runs is answered as the write itself, and nothing changes.
func TestDryRun(t *testing.T) {
	s := newServer(t, nil)
	s.do("PUT", "/api/core/v2/namespaces/default/handlers/there", `{"metadata":{"name":"there","namespace":"default"},"type":"pipe","command":"c"}`).is(201)
	kept := [][2]string{
		{"checks/kept", `{"metadata":{"name":"kept","namespace":"default"},"command":"c","interval":5}`},
		{"events/kept/kept", `{"entity":{"metadata":{"name":"kept"}},"check":{"metadata":{"name":"kept"},"interval":5,"status":2}}`},
		{"silenced/entity:kept:kept", `{"metadata":{"name":"entity:kept:kept","namespace":"default"},"subscription":"entity:kept","check":"kept"}`},
	}
	for _, one := range kept {
		s.do("PUT", "/api/core/v2/namespaces/default/"+one[0], one[1]).is(201)
	}
	audited := len(s.audit("/api/lapwing/v1/audit"))
	for _, tc := range []struct {
		method, path, body string
		status             int
		message            string
	}{
		{"PUT", "/namespaces/default/checks/a", `{"metadata":{"name":"a","namespace":"default"},"command":"c","interval":5}`, 201, ""},
		{"POST", "/namespaces/default/checks", `{"metadata":{"name":"a","namespace":"default"},"command":"c","interval":5}`, 201, ""},
		{"POST", "/namespaces/default/handlers", `{"metadata":{"name":"there","namespace":"default"},"type":"pipe","command":"c"}`, 409, ""},
		{"PATCH", "/namespaces/default/handlers/there", `{"command":"other"}`, 200, ""},
		{"PATCH", "/namespaces/default/handlers/there", `{"type":"fax"}`, 400, "unknown handler type"},
		{"PUT", "/namespaces/default/checks/a", `{"metadata":{"name":"a","namespace":"default"},"command":"c"}`, 400, "interval"},
		{"PUT", "/namespaces/default/checks/a", `{"metadata":{"name":"a","namespace":"default"},"command":"c","cron":"61 * * * *"}`, 400, "cron"},
		{"PUT", "/namespaces/nowhere/checks/a", `{"metadata":{"name":"a","namespace":"nowhere"},"command":"c","interval":5}`, 404, ""},
		{"PUT", "/namespaces/default/filters/f", `{"metadata":{"name":"f","namespace":"default"},"action":"allow","expressions":["a ==="]}`, 400, "syntax error"},
		{"PUT", "/namespaces/default/entities/e", `{"metadata":{"name":"e","namespace":"default"},"entity_class":"proxy"}`, 200, ""},
		{"PUT", "/namespaces/default/silenced/linux:*", `{"metadata":{"name":"linux:*","namespace":"default"},"subscription":"linux"}`, 201, ""},
		{"PUT", "/namespaces/new", `{"name":"new"}`, 201, ""},
		{"PUT", "/users/ann", `{"username":"ann","password":"long enough"}`, 201, ""},
		{"PUT", "/users/ann", `{"username":"ann","password":"x"}`, 400, "password"},
		{"PUT", "/apikeys/7f63b5bc-41f4-4b3e-b59b-5431afd7e6a2", `{"username":"admin"}`, 201, ""},
		{"PUT", "/apikeys/7f63b5bc-41f4-4b3e-b59b-5431afd7e6a2", `{"username":"nobody"}`, 400, `"mistakes":[{"field":"username","message":"user does not exist"}]`},
		{"PUT", "/apikeys/short", `{"username":"nobody"}`, 400, "an api key must be a UUID"},
		{"PUT", "/namespaces/default/events/h/c", `{"entity":{"metadata":{"name":"h"}},"check":{"metadata":{"name":"c"},"interval":5}}`, 201, ""},
		{"PUT", "/namespaces/default/events/h/c", `{"check":{"metadata":{"name":"c"},"interval":5,"proxy_requests":{"entity_attributes":["a =="]}}}`, 400, "syntax error"},
		{"DELETE", "/namespaces/default/handlers/there", "", 204, ""},
		{"DELETE", "/namespaces/default/handlers/gone", "", 404, ""},
		{"DELETE", "/namespaces/default/checks/kept?events=resolve&silences=delete", "", 204, ""},
		{"DELETE", "/namespaces/default/checks/kept?events=some", "", 400, "events must be"},
		{"DELETE", "/namespaces/default/entities/kept?events=resolve&silences=delete", "", 204, ""},
		{"DELETE", "/namespaces/default/silenced/entity:kept:kept", "", 204, ""},
		{"DELETE", "/namespaces/default/events/kept/kept", "", 204, ""},
		{"DELETE", "/namespaces/default/events/kept/gone", "", 404, ""},
		// What does more than write a definition has no dry run, and is not done.
		{"DELETE", "/namespaces/new", "", 400, "no dry run"},
		{"POST", "/namespaces/default/events", `{}`, 400, "no dry run"},
		{"PUT", "/users/admin/reset_password", `{}`, 400, "no dry run"},
		{"GET", "/namespaces/default/handlers", "", 400, "no dry run"},
	} {
		header := []string{}
		if tc.method == "PATCH" {
			header = []string{"Content-Type", mergePatchType}
		}
		a := s.do(tc.method, dryRunPath+"/api/core/v2"+tc.path, tc.body, header...)
		if a.status != tc.status || !strings.Contains(a.body, tc.message) {
			t.Errorf("%s %s %s: %d %s, want %d %s", tc.method, tc.path, tc.body, a.status, a.body, tc.status, tc.message)
		}
	}
	for _, path := range []string{
		"namespaces/default/checks/a", "namespaces/default/filters/f", "namespaces/default/entities/e", "namespaces/default/silenced/linux:*",
		"namespaces/new", "users/ann", "apikeys/7f63b5bc-41f4-4b3e-b59b-5431afd7e6a2", "namespaces/default/events/h/c",
	} {
		s.do("GET", "/api/core/v2/"+path, "").is(404)
	}
	if a := s.do("GET", "/api/core/v2/namespaces/default/handlers/there", "").is(200); !strings.Contains(a.body, `"command":"c"`) {
		t.Error("a dry run changed it: ", a.body)
	}
	for _, one := range append(kept, [2]string{"entities/kept"}) {
		s.do("GET", "/api/core/v2/namespaces/default/"+one[0], "").is(200)
	}
	if a := s.do("GET", "/api/core/v2/namespaces/default/events/kept/kept", ""); !strings.Contains(a.body, `"status":2`) {
		t.Error("a dry run of a deletion resolved the event: ", a.body)
	}
	if entries := s.audit("/api/lapwing/v1/audit"); len(entries) != audited {
		t.Errorf("a dry run is in the audit log: %v", entries)
	}

	// Rights are those of the write.
	bob := s.user("bob", "ops")
	s.grant("ops", "default", resource.Rule{Verbs: []string{"get"}, Resources: []string{"checks"}})
	s.do("PUT", dryRunPath+"/api/core/v2/namespaces/default/checks/a",
		`{"metadata":{"name":"a","namespace":"default"},"command":"c","interval":5}`, "Authorization", "Bearer "+bob).is(http.StatusForbidden)
	s.do("PUT", dryRunPath+"/api/core/v2/namespaces/default/checks/a", "{}", "Authorization", "Bearer x").is(http.StatusUnauthorized)
	s.do("PUT", dryRunPath+dryRunPath+"/api/core/v2/namespaces/new", `{"name":"new"}`).is(201)
	s.do("GET", "/api/core/v2/namespaces/new", "").is(404)
}

// TestDryRunMistakes: the answer to a dry run has all broken rules with their fields. That of a write is as Sensu's.
func TestDryRunMistakes(t *testing.T) {
	s := newServer(t, nil)
	const path = "/api/core/v2/namespaces/default/checks/a"
	const body = `{"metadata":{"name":"a","namespace":"default"},"command":"c","cron":"61 * * * *","ttl":-900000000,"proxy_requests":{"entity_attributes":["true","a ==","bb =="]}}`
	const message = `"message":"resource is invalid: check cron string is invalid: end of range (61) above maximum (59): 61","code":1`
	a := s.do("PUT", dryRunPath+path, body)
	if want := `{` + message + `,"mistakes":[` +
		`{"field":"cron","message":"cron \"61 * * * *\": end of range (61) above maximum (59): 61"},` +
		`{"field":"ttl","message":"check ttl -900000000 is out of bounds, it must be between -315360000 and 315360000"},` +
		`{"field":"proxy_requests.entity_attributes[1]","message":"syntax error in expression 1: (anonymous): Line 1:5 Unexpected end of input"},` +
		`{"field":"proxy_requests.entity_attributes[2]","message":"syntax error in expression 2: (anonymous): Line 1:6 Unexpected end of input"}]}`; a.status != 400 ||
		strings.TrimSpace(a.body) != want {
		t.Errorf("%d %s\nwant %s", a.status, a.body, want)
	}
	if a := s.do("PUT", path, body); strings.TrimSpace(a.body) != "{"+message+"}" {
		t.Errorf("a write: %s", a.body)
	}
}

// TestDryRunMistakesOfSilences: what is checked only against the backend's limits and the selectors has its field, too.
func TestDryRunMistakesOfSilences(t *testing.T) {
	s := newServer(t, func(o *Options) { o.MaxSilence = time.Hour })
	for _, c := range []struct{ spec, field string }{
		{`"field_selector":"event.nothing == 1"`, "field_selector"},
		{`"field_selector":"event.check.status == x"`, "field_selector"},
		{`"field_selector":"event.check.output == x"`, "field_selector"},
		{`"label_selector":"a =="`, "label_selector"},
		{`"label_selector":"a == b","windows":[{"cron":"0 1 * * *","duration":60},{"cron":"x","duration":60}]`, "windows[1]"},
		{`"label_selector":"a == b","windows":[{"cron":"0 1 * * *","duration":7200}]`, "windows[0].duration"},
		{`"label_selector":"a == b","expire":7200`, "expire"},
		{`"label_selector":"a == b","expire_at":4102444800`, "expire_at"},
		{`"label_selector":"a == b","expire":60,"remind":60`, "remind"},
	} {
		a := s.do("PUT", dryRunPath+"/api/core/v2/namespaces/default/silenced/s", `{"metadata":{"name":"s","namespace":"default"},`+c.spec+`}`)
		if a.status != 400 || !strings.Contains(a.body, `"mistakes":[{"field":"`+c.field+`","message":`) {
			t.Errorf("%s: %d %s, want the field %s", c.spec, a.status, a.body, c.field)
		}
	}
}

// TestDryRunManyMistakes: the list is bounded, and says how many it leaves out.
func TestDryRunManyMistakes(t *testing.T) {
	s := newServer(t, nil)
	body := `{"metadata":{"name":"a","namespace":"default"},"command":"c","interval":5,"subscriptions":[""` + strings.Repeat(`,""`, 1499) + `]}`
	a := s.do("PUT", dryRunPath+"/api/core/v2/namespaces/default/checks/a", body).is(http.StatusBadRequest)
	var got refusalBody
	if err := json.Unmarshal([]byte(a.body), &got); err != nil {
		t.Fatal(err)
	}
	if n := len(got.Mistakes); n != 101 || got.Mistakes[100] != (fieldMistake{"subscriptions[100]", "there are more mistakes from here on"}) {
		t.Errorf("%d mistakes, the last is %v", n, got.Mistakes[max(0, n-1)])
	}
}
