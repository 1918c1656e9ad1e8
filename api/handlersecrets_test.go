package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const handlersPath = "/api/core/v2/namespaces/default/handlers"

// secretHandlers are handlers with a secret, "s3cret", in each field that can hold one.
var secretHandlers = map[string]string{
	"pipe":  `"type":"pipe","command":"x","env_vars":["TOKEN=s3cret"]`,
	"hook":  `"type":"webhook","webhook":{"url":"https://hooks.example.com/in/s3cret?k=s3cret","headers":{"X-Key":"s3cret"},"token":"s3cret"}`,
	"basic": `"type":"webhook","webhook":{"url":"https://u:s3cret@hooks.example.com","username":"u","password":"s3cret"}`,
	"slack": `"type":"slack","slack":{"url":"https://hooks.example.com/services/s3cret"}`,
	"bot":   `"type":"slack","slack":{"token":"s3cret","channel":"c"}`,
	"pager": `"type":"pagerduty","pagerduty":{"routing_key":"s3cret"}`,
	"mail":  `"type":"email","email":{"host":"mail.example.com","from":"a@b.c","to":["a@b.c"],"username":"u","password":"s3cret"}`,
	"am":    `"type":"alertmanager","alertmanager":{"urls":["https://u:s3cret@am.example.com/x"],"token":"s3cret"}`,
	"chat":  `"type":"slack","slack":{"token":"s3cret","channel":"c","api_url":"https://u:s3cret@chat.example.com/s3cret"}`,
	"page2": `"type":"pagerduty","pagerduty":{"routing_key":"s3cret","url":"https://u:s3cret@pager.example.com/v2/enqueue","link":"https://u:s3cret@x.example.com/{{.Name}}"}`,
	"mail2": `"type":"email","email":{"host":"mail.example.com","from":"a@b.c","to":["a@b.c"],"headers":{"X-Server-Token":"s3cret"}}`,
	"am2":   `"type":"alertmanager","alertmanager":{"urls":["https://am.example.com/s3cret/am?token=s3cret"],"link":"https://x.example.com/?sig=s3cret"}`,
	"flux2": `"type":"influx","influx":{"url":"https://flux.example.com/s3cret","database":"d"}`,
	"jfrog": `"type":"webhook","webhook":{"url":"https://jfrog.example.com","headers":{"X-JFrog-Art-Api":"s3cret"}}`,
	"flux":  `"type":"influx","influx":{"url":"https://flux.example.com/x?p=s3cret","database":"d","token":"s3cret"}`,
}

// openTypes are the types of handlers that hold no secret of their own.
var openTypes = []string{"tcp", "udp", "tcp_stream", "set", "graphite", resource.EscalationType}

// TestEveryTypeHasSecrets fails for a new type of handler that no test of secrets knows.
func TestEveryTypeHasSecrets(t *testing.T) {
	all := fmt.Sprint(secretHandlers)
	for _, kind := range resource.HandlerTypes {
		if !slices.Contains(openTypes, kind) && !strings.Contains(all, `"type":"`+kind+`"`) {
			t.Errorf("no handler of type %s is in secretHandlers: add one with its secrets, or add the type to openTypes", kind)
		}
	}
}

func (s *server) putSecretHandlers() {
	for name, text := range secretHandlers {
		s.do("PUT", handlersPath+"/"+name, `{"metadata":{"name":"`+name+`","namespace":"default"},`+text+`}`).is(http.StatusCreated)
	}
}

func (s *server) handler(name string) *resource.Handler {
	h, ok := config.Get(s.store.Snapshot(), config.Handlers, "default", name)
	if !ok {
		s.t.Fatalf("there is no handler %s", name)
	}
	return h
}

// TestHandlerSecrets: users who may read handlers look for their secrets.
func TestHandlerSecrets(t *testing.T) {
	s := newServer(t, nil)
	s.putSecretHandlers()
	s.grant("viewers", "default", resource.Rule{Verbs: []string{"get", "list"}, Resources: []string{"handlers"}})
	viewer := []string{"Authorization", "Bearer " + s.user("viewer", "viewers")}
	for name := range secretHandlers {
		if body := s.do("GET", handlersPath+"/"+name, "", viewer...).is(http.StatusOK).body; strings.Contains(body,
			"s3cret") || !strings.Contains(body, resource.Redacted) {
			t.Errorf("a viewer sees %s", body)
		}
		if body := s.do("GET", handlersPath+"/"+name, "").is(http.StatusOK).body; !strings.Contains(body, "s3cret") ||
			strings.Contains(body, resource.Redacted) {
			t.Errorf("the administrator sees %s", body)
		}
	}
	if body := s.do("GET", handlersPath, "", viewer...).is(http.StatusOK).body; strings.Contains(body, "s3cret") {
		t.Errorf("a viewer sees %s", body)
	}
	// A selector must not match hidden values.
	query := "?fieldSelector=" + `handler.slack.token+%3D%3D+%22s3cret%22`
	if got := s.do("GET", handlersPath+query, "", viewer...).is(http.StatusOK).names(); got != "" {
		t.Errorf("the selector finds %s", got)
	}
	if got := s.do("GET", handlersPath+query, "").is(http.StatusOK).names(); got != "default/bot default/chat" {
		t.Errorf("the administrator's selector finds %s", got)
	}
	bulk := s.do("POST", "/api/lapwing/v1/namespaces/default/bulk",
		`{"resource":"handlers","action":"delete","dry_run":true,"field_selector":"handler.slack.token == \"s3cret\""}`, viewer...)
	if body := bulk.is(http.StatusOK).body; !strings.Contains(body, `"matched":0`) {
		t.Errorf("a bulk action finds %s", body)
	}
}

// TestHarmlessHeaders: readers see the headers that are known to hold no secret. A placeholder that an older release
// showed instead is not stored.
func TestHarmlessHeaders(t *testing.T) {
	s := newServer(t, nil)
	s.grant("viewers", "default", resource.Rule{Verbs: []string{"get", "list"}, Resources: []string{"handlers"}})
	viewer := []string{"Authorization", "Bearer " + s.user("viewer", "viewers")}
	const body = `{"metadata":{"name":"h","namespace":"default"},"type":"webhook","webhook":{"url":"https://x.example.com",` +
		`"headers":{"accept":"a/b","User-Agent":"me","X-Anything":"s3cret"}}}`
	s.do("PUT", handlersPath+"/h", body).is(http.StatusCreated)
	shown := s.do("GET", handlersPath+"/h", "", viewer...).is(http.StatusOK).body
	if !strings.Contains(shown, `"accept":"a/b"`) || !strings.Contains(shown, `"User-Agent":"me"`) || strings.Contains(shown, "s3cret") {
		t.Errorf("a viewer sees %s", shown)
	}
	s.do("PUT", handlersPath+"/h", strings.Replace(body, "a/b", resource.Redacted, 1)).is(http.StatusBadRequest)
	s.do("PUT", handlersPath+"/h", strings.Replace(body, "s3cret", "Bearer "+resource.Redacted, 1)).is(http.StatusBadRequest)
}

// TestHandlerSecretsStay sends back the shown form.
func TestHandlerSecretsStay(t *testing.T) {
	s := newServer(t, nil)
	s.putSecretHandlers()
	s.grant("viewers", "default", resource.Rule{Verbs: []string{"get", "list"}, Resources: []string{"handlers"}})
	viewer := []string{"Authorization", "Bearer " + s.user("viewer", "viewers")}
	merge := []string{"Content-Type", mergePatchType}
	for name := range secretHandlers {
		before := s.do("GET", handlersPath+"/"+name, "").body
		shown := s.do("GET", handlersPath+"/"+name, "", viewer...).is(http.StatusOK).body
		s.do("PUT", handlersPath+"/"+name, shown).is(http.StatusCreated)
		s.do("PATCH", handlersPath+"/"+name, `{"timeout":7}`, merge...).is(http.StatusOK)
		s.do("PATCH", handlersPath+"/"+name, `{"timeout":0}`, merge...).is(http.StatusOK)
		if after := s.do("GET", handlersPath+"/"+name, "").body; after != before {
			t.Errorf("%s became %s", before, after)
		}
		// Without a stored secret, a placeholder is refused.
		s.do("POST", handlersPath, strings.ReplaceAll(shown, `"name":"`+name+`"`, `"name":"new"`)).is(http.StatusBadRequest)
		s.do("PUT", handlersPath+"/new", strings.ReplaceAll(shown, `"name":"`+name+`"`, `"name":"new"`)).is(http.StatusBadRequest)
	}
	for name, change := range map[string]string{
		"hook":  `{"webhook":{"url":"https://evil.example.com/"}}`,
		"basic": `{"webhook":{"tls":{"insecure_skip_verify":true}}}`,
		"bot":   `{"slack":{"api_url":"https://evil.example.com/"}}`,
		"pager": `{"pagerduty":{"url":"https://evil.example.com/"}}`,
		"mail":  `{"email":{"host":"evil.example.com"}}`,
		"am":    `{"alertmanager":{"urls":["https://evil.example.com"]}}`,
		"flux":  `{"influx":{"url":"https://evil.example.com"}}`,
	} {
		if body := s.do("PATCH", handlersPath+"/"+name, change,
			merge...).is(http.StatusBadRequest).body; !strings.Contains(body,
			"would be sent to another server than before") {
			t.Errorf("%s: %s", name, body)
		}
		if text := s.do("GET", handlersPath+"/"+name, "").body; strings.Contains(text, "evil") {
			t.Errorf("%s was changed to %s", name, text)
		}
	}
	// A link with a hidden part belongs to one server, and to one way to verify the server.
	for name, change := range map[string]string{
		"am2":   `{"alertmanager":{"urls":["https://evil.example.com/REDACTED?REDACTED"]}}`,
		"chat":  `{"slack":{"api_url":"https://REDACTED@evil.example.com/REDACTED","token":"x"}}`,
		"page2": `{"pagerduty":{"tls":{"insecure_skip_verify":true},"routing_key":"x"}}`,
	} {
		s.do("PATCH", handlersPath+"/"+name, change, merge...).is(http.StatusBadRequest)
	}
	s.do("PATCH", handlersPath+"/pager", `{"pagerduty":{"url":"https://new.example.com/","routing_key":"again"}}`,
		merge...).is(http.StatusOK)
	if p := s.handler("pager").PagerDuty; p.URL != "https://new.example.com/" || p.RoutingKey != "again" {
		t.Errorf("moved to %+v", p)
	}
}

// TestRedactionStays: a user who may change an entity tries to see its redacted secrets.
func TestRedactionStays(t *testing.T) {
	s := newServer(t, nil)
	const path, v3 = "/api/core/v2/namespaces/default/entities/db", "/api/core/v3/namespaces/default/entity-configs/db"
	const labels = `"labels":{"password":"s3cret","pin":"s3cret","rack":"r1"}`
	s.do("PUT", path, `{"entity_class":"proxy","redact":["password","pin"],"metadata":{"name":"db","namespace":"default",`+labels+`}}`).is(http.StatusOK)
	merge := []string{"Content-Type", mergePatchType}
	const refusal = "would not be redacted any more"
	hidden := strings.ReplaceAll(labels, "s3cret", resource.Redacted)
	for name, a := range map[string]*answer{
		"patch":    s.do("PATCH", path, `{"redact":["x"]}`, merge...),
		"null":     s.do("PATCH", path, `{"redact":null}`, merge...),
		"patch v3": s.do("PATCH", v3, `{"spec":{"redact":["x"]}}`, merge...),
		"put":      s.do("PUT", path, `{"entity_class":"proxy","redact":["x"],"metadata":{"name":"db","namespace":"default",`+hidden+`}}`),
		"put v3": s.do("PUT", v3, `{"type":"EntityConfig","api_version":"core/v3","metadata":{"name":"db","namespace":"default",`+hidden+
			`},"spec":{"entity_class":"proxy","redact":["x"]}}`),
	} {
		if a.status != http.StatusBadRequest || !strings.Contains(a.body, refusal) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	for _, p := range []string{path, v3} {
		if body := s.do("GET", p, "").is(http.StatusOK).body; strings.Contains(body, "s3cret") {
			t.Errorf("shown as %s", body)
		}
	}
	s.do("PATCH", path, `{"redact":["password"],"metadata":{"labels":{"pin":"new","rack":"r2"}}}`, merge...).is(http.StatusOK)
	cfg, _ := config.Get(s.store.Snapshot(), config.Entities, "default", "db")
	if l := cfg.Metadata.Labels; l["password"] != "s3cret" || l["pin"] != "new" || l["rack"] != "r2" {
		t.Errorf("labels are %v", l)
	}
}

// TestForbiddenHandlers: the operator's settings refuse definitions in every kind of request.
func TestForbiddenHandlers(t *testing.T) {
	sender, err := send.New(send.Options{Types: []string{"webhook"}, SecretDirs: []string{"/etc/lapwing/secrets"}})
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, func(o *Options) { o.HandlerAllowed, o.MutatorAllowed = sender.Allowed, sender.MutatorAllowed })
	put := func(kind, name, rest string) *answer {
		return s.do("PUT", "/api/core/v2/namespaces/default/"+kind+"/"+name,
			`{"metadata":{"name":"`+name+`","namespace":"default"},`+rest+`}`)
	}
	const passwd = `"type":"webhook","webhook":{"url":"https://evil.example.com","username":"u","password_file":"/etc/passwd"}`
	put("handlers", "leak", passwd).refuses(http.StatusBadRequest, codeInvalid,
		"resource is invalid: /etc/passwd is not in a directory of --handler-secret-dirs")
	put("handlers", "run", `"type":"pipe","command":"id"`).
		refuses(http.StatusBadRequest, codeInvalid,
			"resource is invalid: handlers of type pipe are not allowed on this backend (--allowed-handler-types)")
	put("mutators", "run", `"command":"id"`).is(http.StatusBadRequest)
	put("handlers", "good", `"type":"webhook","webhook":{"url":"https://x.example.com","token_file":"/etc/lapwing/secrets/t"}`).is(http.StatusCreated)
	s.do("PATCH", handlersPath+"/good", `{"webhook":{"token_file":"/etc/shadow"}}`, "Content-Type",
		mergePatchType).is(http.StatusBadRequest)
}
