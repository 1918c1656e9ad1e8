package api

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	previewPath = "/api/lapwing/v1/namespaces/default/silenced/preview"
	purgePath   = "/api/lapwing/v1/namespaces/default/silenced/purge"
	ackPath     = "/api/lapwing/v1/namespaces/default/events/web2/disk/ack"
)

// silencedEvents lists the silenced events.
func (s *server) silencedEvents() string {
	s.t.Helper()
	var events []resource.Event
	s.do("GET", eventsPath+"?fieldSelector=event.is_silenced%20%3D%3D%20true", "").is(http.StatusOK).has(&events)
	var out []string
	for _, ev := range events {
		out = append(out, ev.Entity.Metadata.Name+" "+strings.Join(ev.Check.Silenced, ","))
	}
	return strings.Join(out, "; ")
}

func TestSilencesWithSelectors(t *testing.T) {
	s := newServer(t, nil)
	post := func(body string) *answer { return s.do("POST", silencedPath, body) }
	refused := func(body, want string) {
		t.Helper()
		if a := post(body).is(http.StatusBadRequest); !strings.Contains(a.body, want) {
			t.Errorf("%s: %s, want %s", body, a.body, want)
		}
	}
	refused(`{"label_selector":"region == eu"}`, "silence name must not be empty")
	refused(`{"metadata":{"name":"a:b"},"label_selector":"region == eu"}`, "cannot contain a colon")
	refused(`{"metadata":{"name":"eu"},"label_selector":"region == eu","check":"disk"}`, "in the place of check and subscription")
	refused(`{"metadata":{"name":"eu"},"label_selector":"region =="}`, "label selector")
	refused(`{"metadata":{"name":"eu"},"field_selector":"event.check.output == x"}`, "cannot ask for event.check.output")
	refused(`{"metadata":{"name":"eu"},"field_selector":"evnet.check.name == x"}`, `unknown field \"evnet.check.name\" in field selector: did you mean \"event.check.name\"?`)
	refused(`{"metadata":{"name":"eu"},"field_selector":"event.check.status == failing"}`, "it is a whole number, never")
	refused(`{"check":"c","windows":[{"duration":60}]}`, "a cron or an rrule")
	refused(`{"check":"c","windows":[{"cron":"61 * * * *","duration":60}]}`, "window 1: cron")
	refused(`{"check":"c","windows":[{"cron":"@every 1h","duration":60}]}`, "names no times of the day")
	refused(`{"check":"c","windows":[{"cron":"0 1 * * *","time_zone":"Mars/Base","duration":60}]}`, "there is no time zone")
	refused(`{"check":"c","windows":[{"rrule":"FREQ=SECONDLY","duration":60}]}`, "not more often")
	refused(`{"check":"c","windows":[{"rrule":"FREQ=DAILY","duration":99999999}]}`, "the duration of a window")
	refused(`{"check":"c","begin":1,"windows":[{"rrule":"FREQ=DAILY","duration":60}]}`, "more than ten years ago")
	refused(`{"check":"c","remind":60}`, "remind needs a silence that ends by itself")
	refused(`{"check":"c","expire":60,"remind":60}`, "remind must be less")
	refused(`{"check":"c","acknowledgement":true}`, "of one check of one entity")

	s.events(6)
	post(`{"metadata":{"name":"eu"},"label_selector":"region == eu","field_selector":"event.check.name in [disk, cpu]"}`).is(http.StatusCreated)
	if got := s.silence("eu"); got.Creator != admin || got.LabelSelector != "region == eu" {
		t.Errorf("made %+v", got)
	}
	if got, want := s.silencedEvents(), "web0 eu; web2 eu; web4 eu"; got != want {
		t.Errorf("silenced: %s, want %s", got, want)
	}
	s.do("PUT", silencedPath+"/eu", `{"label_selector":"region == us","field_selector":"event.check.status == 1"}`).is(http.StatusCreated)
	if got, want := s.silencedEvents(), "web1 eu"; got != want {
		t.Errorf("silenced: %s, want %s", got, want)
	}
	s.do("DELETE", silencedPath+"/eu", "").is(http.StatusNoContent)
	if got := s.silencedEvents(); got != "" {
		t.Errorf("still silenced: %s", got)
	}
	var ev resource.Event
	s.do("GET", eventsPath+"/web1/disk", "").is(http.StatusOK).has(&ev)
	if ev.Check.IsSilenced || len(ev.Check.Silenced) > 0 {
		t.Errorf("event: %+v", ev.Check)
	}
}

func TestSilencePreview(t *testing.T) {
	s := newServer(t, nil)
	s.events(6)
	f := func(body, want string) (p silencePreview) {
		t.Helper()
		s.do("POST", previewPath, body).is(http.StatusOK).has(&p)
		if got := fmt.Sprintf("%d %d %d %v %d", p.Events, p.Failing, p.Entities, p.Holds, len(p.Spans)); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
		return p
	}
	p := f(`{"label_selector":"region == eu"}`, "3 2 3 true 1")
	if len(p.Listed) != 3 || p.Listed[0].Entity != "web2" || p.Listed[0].Status != 2 ||
		p.Listed[2].Entity != "web0" || p.Spans[0].Ends != 0 {
		t.Errorf("%+v", p)
	}
	f(`{"check":"disk"}`, "6 4 6 true 1")
	f(`{"subscription":"entity:web1"}`, "1 1 1 true 1")
	f(`{"subscription":"linux"}`, "0 0 0 true 1")
	p = f(`{"check":"disk","windows":[{"rrule":"FREQ=DAILY;COUNT=2","duration":60}]}`, "6 4 6 true 2")
	if p.Spans[0].Ends-p.Spans[0].Begins != 60 || p.Spans[1].Begins-p.Spans[0].Begins != 86400 {
		t.Errorf("%+v", p.Spans)
	}
	daily := `{"check":"disk","windows":[{"cron":"0 2 * * *","duration":60}]}`
	s.do("POST", previewPath+"?since=1900000000&until=1900864000", daily).is(http.StatusOK).has(&p)
	if n := len(p.Spans); n != 10 || p.Spans[0].Begins != 1900029600 || p.Spans[9].Begins != 1900807200 {
		t.Errorf("from a time to another: %+v", p.Spans)
	}
	s.do("POST", previewPath+"?until=soon", daily).is(http.StatusBadRequest)
	s.do("POST", previewPath, `{"label_selector":"=="}`).is(http.StatusBadRequest)
	if n := config.Len(s.store.Snapshot(), config.Silences); n != 0 {
		t.Errorf("%d silences were stored", n)
	}
	s.do("POST", silencedPath, `{"check":"disk"}`).is(http.StatusCreated)
	if p = f(`{"subscription":"entity:web2"}`, "1 1 1 true 1"); fmt.Sprint(p.Listed[0].Silenced) != "[*:disk]" {
		t.Errorf("%+v", p)
	}

	s.grant("eu", "default", resource.Rule{Verbs: []string{"list"}, Resources: []string{"events"}, LabelSelector: "region == eu"})
	eu := []string{"Authorization", "Bearer " + s.user("ed", "eu")}
	s.do("POST", previewPath, `{"check":"disk"}`, eu...).is(http.StatusOK).has(&p)
	if p.Events != 3 || p.Failing != 2 || len(p.Listed) != 3 {
		t.Errorf("of a role with labels: %+v", p)
	}
	s.do("POST", previewPath, `{"check":"disk"}`, "Authorization", "Bearer "+s.user("none", "none")).is(http.StatusForbidden)
}

// TestSilenceOfNothing: a silence that hits nothing tells which of its names nothing has, and which may be meant, as far as
// the user may list them.
func TestSilenceOfNothing(t *testing.T) {
	s := newServer(t, nil)
	s.events(6)
	s.do("POST", checksPath, `{"metadata":{"name":"cpu","labels":{"team":"red"}},"command":"true","interval":10,"subscriptions":["linux"]}`).
		is(http.StatusCreated)
	for body, want := range map[string]string{
		`{"check":"disk"}`:               "",
		`{"check":"cpu"}`:                "", // it has no events yet
		`{"check":"dsk"}`:                "no check is named dsk (disk?)",
		`{"subscription":"linxu"}`:       "no entity and no check has the subscription linxu (linux?)",
		`{"subscription":"linux"}`:       "",
		`{"subscription":"entity:wbe1"}`: "no entity is named wbe1 (web1?)",
		`{"subscription":"entity:web1","check":"quite-another"}`: "no check is named quite-another",
		`{"label_selector":"region == ue"}`:                      `no entity and no check has the label region "ue" (eu?)`,
		`{"label_selector":"regin == eu"}`:                       "no entity and no check has a label regin (region?)",
		`{"label_selector":"region in [ue, uss]"}`: `no entity and no check has the label region "ue" (eu?); ` +
			`no entity and no check has the label region "uss" (us?)`,
		`{"label_selector":"region == eu && team == red"}`:          "",
		`{"label_selector":"region != eu && region != us"}`:         "",
		`{"field_selector":"event.entity.labels.region == 'ue'"}`:   `no entity and no check has the label region "ue" (eu?)`,
		`{"field_selector":"event.check.name == dik"}`:              `no entity and no check has the name "dik" (disk?)`,
		`{"field_selector":"'linxu' in event.check.subscriptions"}`: `no entity and no check has the subscription "linxu" (linux?)`,
		`{"field_selector":"event.check.status == 7"}`:              "",
	} {
		a := s.do("POST", previewPath, body).is(http.StatusOK)
		if got := warningOf(a); got != want {
			t.Errorf("%s: warns %q, want %q", body, got, want)
		}
	}
	s.grant("events", "default", resource.Rule{Verbs: []string{"list"}, Resources: []string{"events"}})
	ed := []string{"Authorization", "Bearer " + s.user("ed", "events")}
	for _, body := range []string{`{"subscription":"linxu"}`, `{"label_selector":"region == ue"}`, `{"subscription":"entity:wbe1"}`} {
		if got := warningOf(s.do("POST", previewPath, body, ed...).is(http.StatusOK)); got != "" {
			t.Errorf("%s: a user who may list events only is told %q", body, got)
		}
	}
}

// warningOf returns the text of an answer's warning, or "".
func warningOf(a *answer) string {
	text, _ := strconv.Unquote(strings.TrimPrefix(a.header.Get("Warning"), "299 - "))
	return text
}

func TestAcknowledge(t *testing.T) {
	s := newServer(t, nil)
	s.events(6) // web2 and web5 fail with 2, web1 and web4 with 1
	ack := func(body string) *answer { return s.do("POST", ackPath, body) }
	ack(`{}`).refuses(http.StatusBadRequest, codeInvalid, "comment must not be empty")
	ack(`{"comment":"x","expire":-1}`).is(http.StatusBadRequest)
	s.do("POST", strings.Replace(ackPath, "web2", "web0", 1), `{"comment":"x"}`).
		refuses(http.StatusConflict, codePrecondition, "web0/disk does not fail: there is nothing to acknowledge")
	s.do("POST", strings.Replace(ackPath, "web2", "web9", 1), `{"comment":"x"}`).is(http.StatusNotFound)
	ack(`{"comment":"on it"}`).is(http.StatusCreated)
	const name = "entity:web2:disk"
	got := s.silence(name)
	if !got.Acknowledgement || !got.ExpireOnResolve || !got.PassResolve || got.Reason != "on it" ||
		got.Creator != admin || got.ExpireAt != 0 {
		t.Errorf("made %+v", got)
	}
	if got := s.silencedEvents(); got != "web2 "+name {
		t.Errorf("silenced: %s", got)
	}
	ack(`{"comment":"still","expire":60}`).is(http.StatusCreated)
	if got := s.silence(name); got.Reason != "still" || got.ExpireAt != got.Begin+60 {
		t.Errorf("replaced by %+v", got)
	}
	s.do("DELETE", ackPath, "").is(http.StatusNoContent)
	s.do("DELETE", ackPath, "").is(http.StatusNotFound)
	s.do("POST", silencedPath, `{"subscription":"entity:web2","check":"disk"}`).is(http.StatusCreated)
	ack(`{"comment":"x"}`).refuses(http.StatusConflict, codeExists, "it is silenced already, by entity:web2:disk")
	s.do("DELETE", ackPath, "").is(http.StatusNotFound)
	s.do("DELETE", silencedPath+"/"+name, "").is(http.StatusNoContent)

	r := s.bulkDo(bulkPath, `{"resource":"events","action":"acknowledge","all":true,"reason":"storm"}`)
	if r.Matched != 6 || r.Done != 6 || r.Failed != 0 {
		t.Errorf("bulk: %+v", r)
	}
	if got, want := s.silencedEvents(), "web1 entity:web1:disk; web2 entity:web2:disk; web4 entity:web4:disk; web5 entity:web5:disk"; got != want {
		t.Errorf("silenced: %s, want %s", got, want)
	}
	r = s.bulkDo(bulkPath, `{"resource":"events","action":"unacknowledge","all":true}`)
	if r.Done != 6 || s.silencedEvents() != "" {
		t.Errorf("bulk: %+v, silenced %s", r, s.silencedEvents())
	}
	s.do("POST", bulkPath, `{"resource":"events","action":"acknowledge","all":true}`).is(http.StatusBadRequest)
}

// TestAcknowledgeNeedsRights: to see the event, and to make its silence.
func TestAcknowledgeNeedsRights(t *testing.T) {
	s := newServer(t, nil)
	s.events(3)
	events := resource.Rule{Verbs: []string{"get", "list"}, Resources: []string{"events"}}
	silences := resource.Rule{Verbs: []string{"create", "delete"}, Resources: []string{"silenced"}}
	s.grant("lookers", "default", events)
	s.grant("silencers", "default", silences)
	s.grant("both", "default", events, silences)
	teams := silences
	teams.LabelSelector = "team == red"
	s.grant("red", "default", events, teams)
	as := func(group string) []string { return []string{"Authorization", "Bearer " + s.user(group+"1", group)} }
	s.do("POST", ackPath, `{"comment":"x"}`, as("lookers")...).is(http.StatusForbidden)
	var told struct{ Verb, Resource string }
	s.do("POST", ackPath, `{"comment":"x"}`, as("silencers")...).is(http.StatusForbidden).has(&told)
	if told.Verb != "get" || told.Resource != "events" {
		t.Errorf("the answer tells that the right to %s %s lacks, want get events", told.Verb, told.Resource)
	}
	red := as("red")
	s.do("POST", ackPath, `{"comment":"x"}`, red...).is(http.StatusForbidden)
	s.do("POST", ackPath, `{"comment":"x","labels":{"team":"red"}}`, red...).is(http.StatusCreated)
	s.do("DELETE", ackPath, "", red...).is(http.StatusNoContent)
	both := as("both")
	s.do("POST", ackPath, `{"comment":"x"}`, both...).is(http.StatusCreated)
	s.do("DELETE", ackPath, "", red...).is(http.StatusNotFound)
	s.do("DELETE", ackPath, "", both...).is(http.StatusNoContent)
}

func TestPurgeSilences(t *testing.T) {
	s := newServer(t, nil)
	s.events(2)
	for _, body := range []string{`{"subscription":"entity:web1"}`, `{"subscription":"entity:gone","check":"a"}`,
		`{"subscription":"entity:gone"}`, `{"check":"a"}`, `{"subscription":"linux"}`} {
		s.do("POST", silencedPath, body).is(http.StatusCreated)
	}
	const want = `{"silences":[{"namespace":"default","name":"entity:gone:*"},{"namespace":"default","name":"entity:gone:a"}],"denied":0}`
	if a := s.do("POST", purgePath, `{"dry_run":true}`).is(http.StatusOK); strings.TrimSpace(a.body) != want {
		t.Errorf("dry run: %s", a.body)
	}
	s.grant("looker", "default", resource.Rule{Verbs: []string{"list"}, Resources: []string{"silenced"}})
	if a := s.do("POST", purgePath, `{}`, "Authorization",
		"Bearer "+s.user("lou", "looker")).is(http.StatusOK); strings.TrimSpace(a.body) != `{"silences":[],"denied":2}` {
		t.Errorf("without rights: %s", a.body)
	}
	if a := s.do("POST", strings.Replace(purgePath, "default", "-", 1), `{}`).is(http.StatusOK); strings.TrimSpace(a.body) != want {
		t.Errorf("purge: %s", a.body)
	}
	if got := s.do("GET", silencedPath, "").silences(); got != "default/*:a default/entity:web1:* default/linux:*" {
		t.Errorf("left: %s", got)
	}
}
