package resource

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestNotifyValidate reads definitions as users write them.
func TestNotifyValidate(t *testing.T) {
	f := func(definition, want string) {
		t.Helper()
		h := Handler{Metadata: ObjectMeta{Name: "x", Namespace: "default"}}
		if err := json.Unmarshal([]byte(definition), &h); err != nil {
			t.Fatalf("%s: %v", definition, err)
		}
		got := ""
		if err := h.Validate(); err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: got %q, want %q", definition, got, want)
		}
	}
	f(`{"type":"tcp_stream","socket":{"host":"h","port":1}}`, "")
	f(`{"type":"tcp_stream","socket":{"host":"h","port":1},"stream":{"tls":{},"separator":"\n","connections":4}}`, "")
	f(`{"type":"tcp_stream"}`, "tcp_stream handlers need a socket with host and port")
	f(`{"type":"tcp_stream","socket":{"host":"h","port":1},"stream":{"connections":65}}`, "stream connections must not be more than 64")
	f(`{"type":"tcp_stream","socket":{"host":"h","port":1},"stream":{"tls":{"cert_file":"c"}}}`,
		"tls cert_file and key_file must come together")

	f(`{"type":"webhook","webhook":{"url":"https://h/x","body":"{{.Name}}","content_type":"text/plain","token":"t"}}`, "")
	f(`{"type":"webhook","webhook":{"url_file":"/f"}}`, "")
	f(`{"type":"webhook","webhook":{"url":"https://h/x","url_file":"/f"}}`, "webhook handlers need a valid url")
	f(`{"type":"webhook","webhook":{"url":"https://h/x","body":"{{.Name"}}`, "webhook body is no valid template: ")
	f(`{"type":"webhook","webhook":{"url":"https://h/x","body":"{{env \"HOME\"}}"}}`, "webhook body is no valid template: ")
	f(`{"type":"webhook","webhook":{"url":"https://h/x","body":"`+strings.Repeat("x", maxTemplate+1)+`"}}`,
		"webhook body must not be longer than")
	f(`{"type":"webhook","webhook":{"url":"https://h/x","password":"p"}}`, "a password needs a username")
	f(`{"type":"webhook","webhook":{"url":"https://h/x","username":"u","token":"t"}}`, "username and token exclude each other")
	f(`{"type":"webhook","webhook":{"url":"https://h/x","username":"u","password":"p","password_file":"f"}}`,
		"password and password_file exclude each other")
	f(`{"type":"webhook","webhook":{"url":"https://h/x","token":"t","token_file":"f"}}`, "token and token_file exclude each other")

	f(`{"type":"slack","slack":{"url":"https://h/x"}}`, "")
	f(`{"type":"slack","slack":{"token_file":"/f","channel":"#x","title":"{{.State}}"}}`, "")
	f(`{"type":"slack"}`, "slack handlers need a url or a token")
	f(`{"type":"slack","slack":{}}`, "slack handlers need one of")
	f(`{"type":"slack","slack":{"url":"https://h","token":"t"}}`, "slack handlers need one of")
	f(`{"type":"slack","slack":{"url":"h"}}`, "slack handlers need a valid url")
	f(`{"type":"slack","slack":{"token":"t"}}`, "slack handlers with a token need a channel")
	f(`{"type":"slack","slack":{"token":"t","channel":"c","api_url":"x"}}`, "slack api_url is not valid")
	f(`{"type":"slack","slack":{"url":"https://h","text":"{{"}}`, "slack text is no valid template")

	f(`{"type":"pagerduty","pagerduty":{"routing_key":"k","severities":{"1":"info","default":"error"}}}`, "")
	f(`{"type":"pagerduty","pagerduty":{"routing_key":"k","routing_key_file":"f"}}`, "pagerduty handlers need a routing_key")
	f(`{"type":"pagerduty"}`, "pagerduty handlers need a routing_key")
	f(`{"type":"pagerduty","pagerduty":{"routing_key":"k","url":"x"}}`, "pagerduty url is not valid")
	f(`{"type":"pagerduty","pagerduty":{"routing_key":"k","severities":{"warn":"info"}}}`, `pagerduty severities: "warn" is no exit status`)
	f(`{"type":"pagerduty","pagerduty":{"routing_key":"k","severities":{"1":"bad"}}}`, `pagerduty severities: "bad" is none of`)
	f(`{"type":"pagerduty","pagerduty":{"routing_key":"k","dedup_key":"{{end}}"}}`, "pagerduty dedup_key is no valid template")

	f(`{"type":"email","email":{"host":"h","from":"a@b","to":["c@d, E <e@f>","{{.Check.Annotations.to}}"],"cc":["g@h"],"headers":{"X-A":"{{.Name}}"}}}`, "")
	f(`{"type":"email"}`, "email handlers need the host of a mail server")
	f(`{"type":"email","email":{"host":"h","port":70000}}`, "email port is not valid")
	f(`{"type":"email","email":{"host":"h"}}`, "email handlers need a from address")
	f(`{"type":"email","email":{"host":"h","from":"a@b"}}`, "email handlers need a recipient")
	f(`{"type":"email","email":{"host":"h","from":"a","to":["b@c"]}}`, "email from address is not valid")
	f(`{"type":"email","email":{"host":"h","from":"a@b","to":["c"]}}`, `email recipient "c" is not valid`)
	f(`{"type":"email","email":{"host":"h","from":"a@b","to":["{{"]}}`, "email recipient is no valid template")
	f(`{"type":"email","email":{"host":"h","from":"a@b","to":["c@d"],"security":"ssl"}}`, `email security "ssl" is none of`)
	f(`{"type":"email","email":{"host":"h","from":"a@b","to":["c@d"],"auth":"ntlm"}}`, `email auth "ntlm" is none of`)
	f(`{"type":"email","email":{"host":"h","from":"a@b","to":["c@d"],"headers":{"A: b":"x"}}}`, `email header "A: b" is not valid`)
	f(`{"type":"email","email":{"host":"h","from":"a@b","to":["c@d"],"password":"x"}}`, "a password needs a username")
	f(`{"type":"email","email":{"host":"h","from":"a@b","to":["c@d"],"html":"{{if}}"}}`, "email html is no valid template")

	f(`{"type":"alertmanager","alertmanager":{"urls":["http://h:9093"],"labels":{"rack":"{{.Entity.Labels.rack}}"},"token":"t"}}`, "")
	f(`{"type":"alertmanager","alertmanager":{"urls":[]}}`, "alertmanager handlers need urls")
	f(`{"type":"alertmanager","alertmanager":{"urls":["h"]}}`, "alertmanager handlers need valid urls")
	f(`{"type":"alertmanager","alertmanager":{"urls":["http://h"],"labels":{"a-b":"x"}}}`, `alertmanager label "a-b" is not a valid name`)
	f(`{"type":"alertmanager","alertmanager":{"urls":["http://h"],"annotations":{"1a":"x"}}}`,
		`alertmanager annotation "1a" is not a valid name`)
	f(`{"type":"alertmanager","alertmanager":{"urls":["http://h"],"annotations":{"a":"{{"}}}`,
		"alertmanager annotation a is no valid template")
	f(`{"type":"alertmanager","alertmanager":{"urls":["http://h"],"labels":{"a":"{{"}}}`, "alertmanager label a is no valid template")
	f(`{"type":"alertmanager","alertmanager":{"urls":["http://h"],"expire":4000000000}}`,
		"alertmanager expire must not be more than a year")
	f(`{"type":"alertmanager","alertmanager":{"urls":["http://h"`+strings.Repeat(`,"http://h"`, 16)+`]}}`,
		"alertmanager urls must not be more than 16")

	f(`{"type":"graphite","graphite":{"host":"h","prefix":"","drop_tags":true}}`, "")
	f(`{"type":"graphite"}`, "graphite handlers need a host")
	f(`{"type":"graphite","graphite":{"host":"h","port":70000}}`, "graphite port is not valid")
	f(`{"type":"graphite","graphite":{"host":"h","protocol":"sctp"}}`, `graphite protocol "sctp" is none of tcp, udp`)
	f(`{"type":"graphite","graphite":{"host":"h","protocol":"udp","tls":{}}}`, "graphite over udp has no tls")
	f(`{"type":"graphite","graphite":{"host":"h","prefix":"{{"}}`, "graphite prefix is no valid template")

	f(`{"type":"influx","influx":{"url":"http://h:8086","database":"d","tags":{"a":"{{.Namespace}}"}}}`, "")
	f(`{"type":"influx","influx":{"url":"https://h","org":"o","bucket":"b","token":"t"}}`, "")
	f(`{"type":"influx","influx":{"url":"udp://h:8089"}}`, "")
	f(`{"type":"influx"}`, "influx handlers need a url")
	f(`{"type":"influx","influx":{"url":"tcp://h:1"}}`, "influx handlers need a valid url")
	f(`{"type":"influx","influx":{"url":"udp://h"}}`, "influx handlers over udp need a port")
	f(`{"type":"influx","influx":{"url":"http://h"}}`, "influx handlers need a database (version 1) or a bucket (version 2)")
	f(`{"type":"influx","influx":{"url":"http://h","database":"d","bucket":"b"}}`,
		"influx handlers need a database (version 1) or a bucket (version 2)")
	f(`{"type":"influx","influx":{"url":"http://h","database":"d","tags":{"a":"{{"}}}`, "influx tag a is no valid template")
	f(`{"type":"influx","influx":{"url":"http://h","database":"d","tags":{"":"a"}}}`, "influx tags need names")
}

// TestHandlerTypes checks that each type of the list is known and names what it requires.
func TestHandlerTypes(t *testing.T) {
	for _, kind := range HandlerTypes {
		err := (&Handler{Metadata: ObjectMeta{Name: "x", Namespace: "default"}, Type: kind}).Validate()
		if kind == "set" && err != nil || kind != "set" && (err == nil || strings.Contains(err.Error(), "unknown")) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
