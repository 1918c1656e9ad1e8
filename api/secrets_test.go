package api

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// secretDefinitions have a secret, "s3cret", in each field that can hold one, by path.
var secretDefinitions = map[string]string{
	"checks/env": `"command":"x","interval":60,"subscriptions":["s"],"handlers":[],"env_vars":["DB_PASSWORD=s3cret","GITHUB_TOKEN=s3cret","PGPASS=a","PASS=s3cret","RACK=r1"]`,
	"checks/urls": `"command":"x","interval":60,"subscriptions":["s"],"handlers":[],"env_vars":["DATABASE_URL=postgres://u:s3cret@host/db",` +
		`"DB=host=h password=s3cret","SLACK_WEBHOOK_URL=https://hooks.slack.com/services/T/B/s3cret","CHAT=https://hooks.slack.com/services/T/B/s3cret","RACK=r1"]`,
	"mutators/url": `"command":"x","env_vars":["UPSTREAM=https://u:s3cret@host/x?k=s3cret"]`,
	"assets/jfrog": `"url":"https://assets.example.com/a.tgz","sha512":"` + sha +
		`","headers":{"X-JFrog-Art-Api":"s3cret","User-Agent":"me","Accept":"a/b"}`,
	"mutators/env": `"command":"x","env_vars":["API_KEY=s3cret","MODE=fast"]`,
	"assets/one": `"url":"https://u:s3cret@assets.example.com/a.tgz","sha512":"` + sha +
		`","headers":{"Authorization":"Bearer s3cret","X-Auth-Token":"s3cret","Accept":"a/b"}`,
	"assets/many": `"builds":[{"url":"https://assets.example.com/a.tgz?sig=s3cret","sha512":"` + sha + `","headers":{"Cookie":"s3cret"}},` +
		`{"url":"https://assets.example.com/b.tgz","sha512":"` + sha + `","headers":{"Private-Token":"s3cret"}}]`,
	"assets/space":  `"url":"https://assets.example.com/my plugin.tgz?X-Amz-Signature=s3cret","sha512":"` + sha + `"`,
	"handlers/link": `"type":"pagerduty","pagerduty":{"routing_key":"s3cret","link":"https://h.example.com/d?var={{ .Entity.Name }}&sig=s3cret"}`,
	"handlers/body": `"type":"webhook","webhook":{"url":"https://hooks.example.com","body":"{\"key\":\"s3cret\"}"}`,
}

var sha = strings.Repeat("ab", 64)

// TestSecretsOfDefinitions: users who may read definitions look for secrets in them, and users who may change them
// write back what readers see.
func TestSecretsOfDefinitions(t *testing.T) {
	s := newServer(t, nil)
	s.grant("viewers", "default", resource.Rule{Verbs: []string{"get", "list"}, Resources: []string{"*"}})
	viewer := []string{"Authorization", "Bearer " + s.user("viewer", "viewers")}
	const base = "/api/core/v2/namespaces/default/"
	for path, text := range secretDefinitions {
		plural, name, _ := strings.Cut(path, "/")
		body := `{"metadata":{"name":"` + name + `","namespace":"default"},` + text + `}`
		s.do("PUT", base+path, body).is(http.StatusCreated)
		before := s.do("GET", base+path, "").is(http.StatusOK).body
		if !strings.Contains(before, "s3cret") || strings.Contains(before, resource.Redacted) {
			t.Errorf("%s: the administrator sees %s", path, before)
		}
		shown := s.do("GET", base+path, "", viewer...).is(http.StatusOK).body
		for _, seen := range []string{shown, s.do("GET", base+plural, "", viewer...).is(http.StatusOK).body} {
			if strings.Contains(seen, "s3cret") || !strings.Contains(seen, resource.Redacted) {
				t.Errorf("%s: a viewer sees %s", path, seen)
			}
		}
		for _, plain := range []string{"RACK=r1", "MODE=fast", `"Accept":"a/b"`} {
			if strings.Contains(before, plain) && !strings.Contains(shown, plain) {
				t.Errorf("%s: a viewer does not see %s in %s", path, plain, shown)
			}
		}
		s.do("PUT", base+path, shown).is(http.StatusCreated)
		s.do("PATCH", base+path, `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", mergePatchType).is(http.StatusOK)
		s.do("PATCH", base+path, `{"metadata":{"labels":null}}`, "Content-Type", mergePatchType).is(http.StatusOK)
		if after := s.do("GET", base+path, "").body; after != before {
			t.Errorf("%s became %s", before, after)
		}
		// Without a stored secret, a placeholder is refused.
		s.do("POST", base+plural, strings.ReplaceAll(shown, `"name":"`+name+`"`, `"name":"new"`)).is(http.StatusBadRequest)
	}
	// A selector does not match hidden values.
	query := "checks?fieldSelector=" + `%22PASS%3Ds3cret%22+in+check.env_vars`
	if got := s.do("GET", base+query, "", viewer...).is(http.StatusOK).names(); got != "" {
		t.Errorf("the selector finds %s", got)
	}
	if got := s.do("GET", base+query, "").is(http.StatusOK).names(); got != "default/env" {
		t.Errorf("the administrator's selector finds %s", got)
	}
	// A hidden part of a value belongs to the rest of the value.
	s.do("PATCH", base+"checks/urls", `{"env_vars":["DATABASE_URL=postgres://REDACTED@evil.example.com/db"]}`,
		"Content-Type", mergePatchType).is(http.StatusBadRequest)
	s.do("PATCH", base+"checks/urls", `{"env_vars":["DATABASE_URL=postgres://REDACTED@host/db"]}`, "Content-Type",
		mergePatchType).is(http.StatusOK)
	if body := s.do("GET", base+"checks/urls", "").body; !strings.Contains(body, `["DATABASE_URL=postgres://u:s3cret@host/db"]`) {
		t.Errorf("with a part of its variables: %s", body)
	}
	s.do("PATCH", base+"assets/one", `{"url":"https://evil.example.com/a.tgz"}`, "Content-Type", mergePatchType).is(http.StatusBadRequest)
	s.do("PATCH", base+"assets/one", `{"url":"https://assets.example.com/b.tgz"}`, "Content-Type", mergePatchType).is(http.StatusOK)
	if body := s.do("GET", base+"assets/one", "").body; !strings.Contains(body, "Bearer s3cret") {
		t.Errorf("after another version: %s", body)
	}
}

// TestSecretsOfEvents: a viewer looks for the secrets of a check in its results.
func TestSecretsOfEvents(t *testing.T) {
	s := newServer(t, nil)
	const path = "/api/core/v2/namespaces/default/events/web1/disk"
	s.do("PUT", path, `{"entity":{"metadata":{"name":"web1"}},"check":{"metadata":{"name":"disk"},"interval":10,"env_vars":["DB_PASSWORD=s3cret","DB=pg://u:s3cret@h/x","RACK=r1"]}}`).
		is(http.StatusCreated)
	body := s.do("GET", path, "").is(http.StatusOK).body
	if strings.Contains(body, "s3cret") || !strings.Contains(body, "DB_PASSWORD=REDACTED") || !strings.Contains(body, "RACK=r1") {
		t.Errorf("the event is shown as %s", body)
	}
	// A selector does not match hidden values.
	for variable, want := range map[string]string{"DB_PASSWORD=s3cret": "", "DB=pg://u:s3cret@h/x": "", "RACK=r1": "default/web1/disk"} {
		query := url.Values{"fieldSelector": {`"` + variable + `" in event.check.env_vars`}}
		if got := s.do("GET", "/api/core/v2/namespaces/default/events?"+query.Encode(), "").is(http.StatusOK).names(); got != want {
			t.Errorf("the selector of %s finds %q", variable, got)
		}
	}
}

// TestPruneRedacts: the answer to a prune has the labels of deleted objects without secrets.
func TestPruneRedacts(t *testing.T) {
	s := newServer(t, nil)
	s.do("PUT", "/api/core/v2/namespaces/default/entities/db",
		`{"entity_class":"proxy","redact":["pin"],"metadata":{"name":"db","namespace":"default",`+
			`"labels":{"pin":"s3cret","`+managedByLabel+`":"`+managedByCtl+`"}}}`).is(http.StatusOK)
	body := s.do("POST", "/api/enterprise/prune/v1alpha?types=Entity&namespaces=default&allUsers=true", `[]`).is(http.StatusCreated).body
	if strings.Contains(body, "s3cret") || !strings.Contains(body, resource.Redacted) {
		t.Errorf("the answer is %s", body)
	}
}
