package api

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/oncall"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestOnCall(t *testing.T) {
	s := newServer(t, nil)
	const base = "/api/lapwing/v1/namespaces/default/"
	s.do("POST", base+"contacts", `{"metadata":{"name":"alice"},"handlers":["mail"]}`).is(201)
	s.do("POST", "/api/core/v2/namespaces/default/handlers",
		`{"metadata":{"name":"mail"},"type":"email","email":{"host":"mail.example.org","from":"lapwing@example.org","to":["{{.Contact.Email}}"]}}`).is(201)
	said := s.do("PUT", base+"contacts/alice", `{"metadata":{"name":"alice"},"handlers":["mail"]}`).is(201).header.Get("Warning")
	if !strings.Contains(said, "it has no email, and handler mail sends only to that") {
		t.Errorf("the warning is %q", said)
	}
	said = s.do("POST", "/api/core/v2/namespaces/default/checks",
		`{"metadata":{"name":"c"},"command":"x","interval":60,"publish":true,"subscriptions":["x"],"handlers":["mail"]}`).is(201).header.Get("Warning")
	if !strings.Contains(said, "handler mail sends only to the email of a contact, and no contact is named here") {
		t.Errorf("the warning is %q", said)
	}
	s.do("POST", base+"contacts", `{"metadata":{"name":"bob"},"handlers":[]}`).refuses(400, codeInvalid,
		"resource is invalid: handlers must name at least one handler, or nothing would reach the contact")
	s.do("POST", base+"rotas", `{"metadata":{"name":"ops"},"contacts":["alice","bob"],"start":"2026-11-02T09:00","shift":604800,
		"overrides":[{"contact":"carol","begin":1793700000,"end":1793710000,"reason":"swap"}]}`).is(201)
	s.do("POST", base+"rotas", `{"metadata":{"name":"bad"},"contacts":["alice"],"start":"2026-11-02T09:00","shift":7}`).refuses(400, codeInvalid,
		"resource is invalid: shift must be a number of seconds that is whole hours, from 1 hour to 366 days: a week is 604800")
	var one resource.OnCall
	s.do("GET", base+"rotas/ops/oncall?since=1793610000&until=1794300000", "").is(200).has(&one)
	var names []string
	for _, shift := range one.Shifts {
		names = append(names, shift.Contact)
	}
	if got := strings.Join(names, " "); got != "alice carol alice bob" {
		t.Errorf("on call are %s", got)
	}
	var all []resource.OnCall
	s.do("GET", base+"oncall", "").is(200).has(&all)
	if len(all) != 1 || all[0].Rota != "ops" {
		t.Errorf("all rotas: %+v", all)
	}
	s.do("GET", base+"oncall?since=2&until=1", "").is(400)
	var list resource.EscalationList
	s.do("GET", base+"escalations", "").is(200).has(&list)
	if list.Escalations == nil || len(list.Escalations) != 0 {
		t.Errorf("escalations: %+v", list)
	}
}

// TestAcknowledgeByLink: the signature is the right, a GET changes nothing, and a link is for one incident.
func TestAcknowledgeByLink(t *testing.T) {
	s := newServer(t, nil)
	s.do("POST", "/api/lapwing/v1/namespaces/default/contacts", `{"metadata":{"name":"alice"},"handlers":["mail"],"user":"alice.smith"}`).is(201)
	s.do("POST", "/api/core/v2/namespaces/default/events",
		`{"entity":{"metadata":{"name":"srv"},"entity_class":"proxy"},"check":{"metadata":{"name":"disk"},"status":2,"output":"<b>full</b>"}}`).is(201)
	ev, err := s.fold.Event("default", "srv", "disk")
	if err != nil {
		t.Fatal(err)
	}
	path := func(to oncall.Link) string {
		link, err := s.opts.Links.URL(to, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(link)
		if err != nil || u.Host != "lapwing.example" {
			t.Fatal(link, err)
		}
		return u.EscapedPath()
	}
	right := oncall.Link{Namespace: "default", Entity: "srv", Check: "disk", Contact: "alice", LastOK: ev.Check.LastOK}
	other := func(change func(*oncall.Link)) string {
		to := right
		change(&to)
		return path(to)
	}
	s.token = ""
	for what, refused := range map[string]struct {
		path string
		says string
	}{
		"a damaged signature": {path(right)[:len(path(right))-2], "This link is not valid"},
		"no signature":        {oncall.LinkPath + "eyJuIjoiZGVmYXVsdCJ9", "This link is not valid"},
		"too late":            {other(func(l *oncall.Link) { l.Until = time.Now().Unix() - 1 }), "This link is not valid"},
		"an unknown contact":  {other(func(l *oncall.Link) { l.Contact = "zoe" }), "This link is not valid"},
		"an earlier incident": {other(func(l *oncall.Link) { l.LastOK-- }), "This incident of srv/disk is over"},
		"no event":            {other(func(l *oncall.Link) { l.Check = "gone" }), "srv/gone is gone"},
	} {
		for _, method := range []string{"GET", "POST"} {
			if got := string(s.do(method, refused.path, "").body); !strings.Contains(got, refused.says) || strings.Contains(got, "<button") {
				t.Errorf("%s: %s answers %s", what, method, got)
			}
		}
	}
	a := s.do("GET", path(right), "").is(200)
	if got := string(a.body); !strings.Contains(got, "srv/disk is CRITICAL") || !strings.Contains(got, "&lt;b&gt;full") || !strings.Contains(got, "<button") {
		t.Errorf("the page is %s", got)
	}
	if csp := a.header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") {
		t.Errorf("its policy is %q", csp)
	}
	silences := func() (list []resource.Silenced) {
		token := s.token
		defer func() { s.token = token }()
		s.token = s.login(admin)
		s.do("GET", "/api/core/v2/namespaces/default/silenced", "").is(200).has(&list)
		return list
	}
	if list := silences(); len(list) != 0 {
		t.Errorf("a GET made %+v", list)
	}
	if got := string(s.do("POST", path(right), "").is(200).body); !strings.Contains(got, "srv/disk is yours, alice.smith (contact alice)") {
		t.Errorf("the answer is %s", got)
	}
	if list := silences(); len(list) != 1 || !list[0].Acknowledgement || list[0].Creator != "alice.smith (contact alice)" || list[0].Reason != "by link" {
		t.Errorf("it made %+v", list)
	}
	if got := shownPath(path(right)); got != oncall.LinkPath+"…" {
		t.Errorf("logs show %s", got)
	}
	if got := string(s.do("POST", path(right), "").is(200).body); !strings.Contains(got, "Already acknowledged") {
		t.Errorf("a second time: %s", got)
	}
	if got := string(s.do("GET", path(right), "").is(200).body); !strings.Contains(got, "Already acknowledged by alice.smith (contact alice)") {
		t.Errorf("the page is %s", got)
	}

	// The same last_ok does not make a later incident the link's.
	first := path(right)
	s.token = s.login(admin)
	for _, status := range []string{"0", "2"} {
		s.do("POST", "/api/core/v2/namespaces/default/events",
			`{"entity":{"metadata":{"name":"srv"},"entity_class":"proxy"},"check":{"metadata":{"name":"disk"},"status":`+status+`}}`).is(201)
	}
	if ev, err := s.fold.Event("default", "srv", "disk"); err != nil || ev.Check.LastOK != right.LastOK {
		t.Fatalf("last_ok is %d, was %d: %v", ev.Check.LastOK, right.LastOK, err)
	}
	s.do("DELETE", "/api/core/v2/namespaces/default/silenced/"+url.PathEscape(silences()[0].Metadata.Name), "").is(204)
	s.token = ""
	if got := string(s.do("POST", first, "").is(409).body); !strings.Contains(got, "This incident of srv/disk is over") {
		t.Errorf("in a later incident: %s", got)
	}
	again := path(right)
	form := []string{"Content-Type", "application/x-www-form-urlencoded"}
	s.do("POST", again, "comment="+strings.Repeat("x", 10_000), form...).is(400)
	if got := string(s.do("POST", again, "comment=on%1B%5B31m+it", form...).is(200).body); !strings.Contains(got, "is yours") {
		t.Errorf("the answer is %s", got)
	}
	if list := silences(); len(list) != 1 || list[0].Reason != "on[31m it" {
		t.Errorf("it made %+v", list)
	}
}
