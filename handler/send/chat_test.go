package send

import (
	"net/http"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestSlackWebhook(t *testing.T) {
	srv := newService(t, status(200, "ok"))
	s := setup(t, Options{})
	h := handler("slack")
	h.Slack = &resource.HandlerSlack{
		URL: srv.URL + "/services/T/B/X", Channel: "#{{.Check.Annotations.team}}", Username: "lapwing",
		IconEmoji: ":bird:",
	}
	f := func(ev *resource.Event) (m slackMessage) {
		t.Helper()
		want(t, "post", s.Run(t.Context(), h, job(ev)), KindOK, false, "")
		got := srv.asked(t)
		if got.method != "POST" || got.path != "/services/T/B/X" || got.header.Get("Content-Type") != "application/json" {
			t.Errorf("got %+v", got)
		}
		decode(t, got.body, &m)
		if len(m.Attachments) != 1 {
			t.Fatalf("got %s", got.body)
		}
		return m
	}
	m := f(event(2, 0))
	a := m.Attachments[0]
	if m.Channel != "#storage" || m.Username != "lapwing" || m.IconEmoji != ":bird:" || a.Color != "danger" ||
		a.Title != "CRITICAL: web1/disk" || a.Fallback != a.Title ||
		a.Text != "```DISK &lt;full&gt;\nsecond &amp; last line```" || a.Timestamp != 1_700_000_100 ||
		a.Fields[2] != (slackField{"Check", "disk", true}) {
		t.Errorf("got %+v", m)
	}
	for st, color := range map[uint32]string{1: "warning", 3: "#6d6d6d", 0: "good"} {
		if got := f(event(st, 2)).Attachments[0]; got.Color != color {
			t.Errorf("status %d: %+v", st, got)
		}
	}
	h.Slack.Title, h.Slack.Text = "{{.Name}} is {{.State}}", "{{.Output | lines 1}}"
	if got := f(event(0, 2)).Attachments[0]; got.Title != "web1/disk is RESOLVED" || got.Text != "DISK <full>" {
		t.Errorf("got %+v", got)
	}
	long := event(2)
	long.Check.Output = strings.Repeat("ü", 50_000)
	h.Slack.Title, h.Slack.Text = "{{.Output}}", "{{.Output}}"
	if got := f(long).Attachments[0]; len([]rune(got.Title)) != 250 || len([]rune(got.Text)) != 8000 {
		t.Errorf("title of %d, text of %d bytes", len(got.Title), len(got.Text))
	}
	metrics := event(0)
	metrics.Check = nil
	h.Slack.Channel = ""
	if got := f(metrics).Attachments[0]; len(got.Fields) != 2 {
		t.Errorf("got %+v", got)
	}

	h.Slack.Text = "{{.Nothing}}"
	want(t, "template", s.Run(t.Context(), h, job(event(2))), KindError, false, "can't evaluate field Nothing")
	h.Slack.Text = ""
	srv.answers(status(404, "no_service"))
	want(t, "gone", s.Run(t.Context(), h, job(event(2))), KindFailed, false, "status 404")
	srv.answers(status(429, "", "Retry-After", "30"))
	if res := s.Run(t.Context(), h, job(event(2))); !res.Temporary || res.RetryAfter.Seconds() != 30 {
		t.Errorf("got %+v", res)
	}
}

func TestSlackToken(t *testing.T) {
	srv := newService(t, nil)
	s := setup(t, Options{})
	h := handler("slack")
	h.Slack = &resource.HandlerSlack{Token: "xoxb-1", APIURL: srv.URL + "/api/", Channel: "C1"}
	f := func(answer string, kind string, temporary bool, err string) {
		t.Helper()
		srv.answers(status(200, answer))
		want(t, answer[:min(len(answer), 100)], s.Run(t.Context(), h, job(event(2))), kind, temporary, err)
		if got := srv.asked(t); got.path != "/api/chat.postMessage" || got.header.Get("Authorization") != "Bearer xoxb-1" ||
			!strings.Contains(got.body, `"channel":"C1"`) {
			t.Errorf("got %+v", got)
		}
	}
	f(`{"ok":true,"ts":"1"}`, KindOK, false, "")
	f(`{"ok":true,"message":{"text":"`+strings.Repeat("x", 2*maxOutput)+`"}}`, KindOK, false, "")
	f(`{"ok":false,"error":"channel_not_found"}`, KindFailed, false, "slack refuses the message: channel_not_found")
	f(`{"error":"ratelimited","ok":false}`, KindFailed, true, "ratelimited")
	f(`{"ok":false,"error":"internal_error","errors":["x"]}`, KindFailed, true, "internal_error")
	f(`<html>please sign in</html>`, KindFailed, true, "does not come from Slack")
	f(`{}`, KindFailed, true, "does not come from Slack")
	f(`[]`, KindFailed, true, "does not come from Slack")
}

func TestPagerDuty(t *testing.T) {
	srv := newService(t, status(202, `{"status":"success"}`))
	s := setup(t, Options{SecretDirs: []string{"/no/such"}})
	h := handler("pagerduty")
	h.PagerDuty = &resource.HandlerPagerDuty{RoutingKey: "R1", URL: srv.URL + "/v2/enqueue"}
	f := func(ev *resource.Event) (e pagerDutyEvent) {
		t.Helper()
		want(t, "send", s.Run(t.Context(), h, job(ev)), KindOK, false, "")
		got := srv.asked(t)
		if got.method != "POST" || got.path != "/v2/enqueue" {
			t.Errorf("got %+v", got)
		}
		decode(t, got.body, &e)
		return e
	}
	e := f(event(2, 0))
	if e.RoutingKey != "R1" || e.Action != "trigger" || e.DedupKey != "default/web1/disk" ||
		e.Payload.Summary != "CRITICAL web1/disk: DISK <full>" || e.Payload.Source != "web1" ||
		e.Payload.Severity != "critical" || e.Payload.Timestamp != "2023-11-14T22:14:50Z" ||
		e.Payload.Details["output"] != "DISK <full>\nsecond & last line" {
		t.Errorf("got %+v, %+v", e, e.Payload)
	}
	// The key depends on the pair alone, and the resolution has it too.
	if e := f(event(0, 2)); e.Action != "resolve" || e.DedupKey != "default/web1/disk" || e.Payload != nil {
		t.Errorf("got %+v", e)
	}
	for st, severity := range map[uint32]string{1: "warning", 3: "error", 127: "error"} {
		if e := f(event(st)); e.Payload.Severity != severity {
			t.Errorf("status %d: %+v", st, e.Payload)
		}
	}
	h.PagerDuty.Severities = map[string]string{"1": "info", "default": "critical"}
	h.PagerDuty.DedupKey, h.PagerDuty.Summary, h.PagerDuty.Link = "{{.Entity.Name}}", strings.Repeat("s", 3000), "https://x/{{.Name}}"
	h.PagerDuty.Component, h.PagerDuty.Group, h.PagerDuty.Class = "{{.Check.Name}}", "rack {{.Entity.Labels.rack}}", "c"
	if e := f(event(1)); e.DedupKey != "web1" || len([]rune(e.Payload.Summary)) != 1024 ||
		e.ClientURL != "https://x/web1/disk" || e.Payload.Severity != "info" ||
		e.Payload.Component != "disk" || e.Payload.Group != "rack 17" || e.Payload.Class != "c" {
		t.Errorf("got %+v, %+v", e, e.Payload)
	}
	if e := f(event(9)); e.Payload.Severity != "critical" {
		t.Errorf("got %+v", e.Payload)
	}
	// Long keys stay different.
	keys := map[string]bool{}
	for _, end := range []string{"a", "b"} {
		h.PagerDuty.DedupKey = strings.Repeat("k", 300) + end
		e := f(event(1))
		if len(e.DedupKey) > 255 {
			t.Errorf("a key of %d bytes", len(e.DedupKey))
		}
		keys[e.DedupKey] = true
	}
	if len(keys) != 2 {
		t.Errorf("keys are %v", keys)
	}

	metrics := event(0)
	metrics.Check = nil
	want(t, "metrics", s.Run(t.Context(), h, job(metrics)), KindOK, false, "")
	if len(srv.requests) != 0 {
		t.Error("metrics were sent")
	}
	srv.answers(status(400, `{"status":"invalid event"}`))
	want(t, "invalid", s.Run(t.Context(), h, job(event(2))), KindFailed, false, "status 400")
	srv.answers(status(429, ""))
	want(t, "too many", s.Run(t.Context(), h, job(event(2))), KindFailed, true, "status 429")
	srv.answers(func(w http.ResponseWriter) { w.WriteHeader(500) })
	want(t, "broken", s.Run(t.Context(), h, job(event(2))), KindFailed, true, "status 500")
	h.PagerDuty.RoutingKeyFile = "/no/such/file"
	want(t, "no key", s.Run(t.Context(), h, job(event(2))), KindError, true, "read secret")
}
