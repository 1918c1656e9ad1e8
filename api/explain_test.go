package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/explain"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// incidentOf is a failing event with one delivery.
func incidentOf(d trace.Delivery) []trace.Outcome {
	return []trace.Outcome{{Event: "0-7-0", Status: 2, Incident: true, Received: 5000, Deliveries: []trace.Delivery{d}}}
}

func (s *server) failing(t *testing.T, entity, region string) {
	t.Helper()
	body := fmt.Sprintf(`{"entity":{"metadata":{"name":%q,"labels":{"region":%q}}},"check":{"metadata":{"name":"disk"},"interval":10,"status":2}}`, entity, region)
	if a := s.do(http.MethodPut, "/api/core/v2/namespaces/default/events/"+entity+"/disk", body); a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}
}

// mutedBy is a delivery that a silence ended.
func mutedBy(silence string) trace.Delivery {
	return trace.Delivery{Header: delivery.Header{Handler: "mail"}, Verdict: trace.Silenced, Updated: 5000, Steps: []trace.Step{{Kind: trace.StepFilter,
		Name: "not_silenced", Verdict: trace.Deny, Saw: []trace.Value{{Name: "event.check.silenced", Value: "[" + silence + "]"}}}}}
}

func TestExplain(t *testing.T) {
	told := trace.Delivery{Header: delivery.Header{Handler: "mail"}, Verdict: trace.Delivered, Updated: 6000}
	past := &pastEvents{events: map[string][]trace.Outcome{
		"default/told/disk": incidentOf(told), "default/muted/disk": incidentOf(mutedBy("*:disk")),
		"default/gone/disk": incidentOf(told),
	}}
	s := newServer(t, func(o *Options) { o.Trace = past })
	for _, entity := range []string{"told", "muted", "fresh"} {
		s.failing(t, entity, "eu")
	}
	s.do(http.MethodPut, "/api/core/v2/namespaces/default/silenced/*:disk",
		`{"metadata":{"name":"*:disk"},"check":"disk","reason":"new switch","expire":7200}`)
	s.grant("readers", "default", resource.Rule{Verbs: []string{"get"}, Resources: []string{"events"}})
	s.grant("eu", "default", resource.Rule{Verbs: []string{"get"}, Resources: []string{"events"}, LabelSelector: "region == us"})
	reader, other := s.user("rita", "readers"), s.user("eve", "eu")
	for _, tc := range []struct {
		entity, query, token string
		status               int
		told                 explain.Told
		first                int64
		sentence             string
	}{
		{"told", "", "", 200, explain.Yes, 6000, "It did alert: mail at 1970-01-01T00:00:06Z."},
		{"told", "?at=1970-01-01T00:00:05.5Z", "", 200, explain.No, 6000, "It had not alerted by then; it did later: mail at"},
		{"told", "?at=1970-01-01T00:00:01Z", "", 200, explain.Unknown, 0, "No event of told/disk that came before 1970-01-01T00:00:01Z is traced."},
		{"told", "?at=noon", "", 400, "", 0, ""},
		{"muted", "", "", 200, explain.No, 0, "mail: it is silenced by *:disk of admin: new switch (ends in "},
		{"muted", "", reader, 200, explain.No, 0, "mail: it is silenced by *:disk (you may not see it, "},
		{"fresh", "", "", 200, explain.Unknown, 0, "There is no trace of this: "},
		{"gone", "", "", 200, explain.Yes, 6000, "There is no event gone/disk now. Its last incident did alert: mail"},
		{"never", "", "", 200, explain.Unknown, 0, "There is no event never/disk and no trace of one."},
		{"told", "", other, 404, "", 0, ""},
		{"gone", "", other, 404, "", 0, ""},
	} {
		var header []string
		if tc.token != "" {
			header = []string{"Authorization", "Bearer " + tc.token}
		}
		a := s.do(http.MethodGet, "/api/lapwing/v1/namespaces/default/events/"+tc.entity+"/disk/explain"+tc.query, "", header...)
		if a.status != tc.status {
			t.Errorf("%s%s: %d %s", tc.entity, tc.query, a.status, a.body)
		}
		if tc.status != 200 {
			continue
		}
		var got explain.Explanation
		a.has(&got)
		if got.Told != tc.told || got.FirstTold != tc.first || !strings.Contains(got.Sentence, tc.sentence) {
			t.Errorf("%s%s: %s at %d: %s", tc.entity, tc.query, got.Told, got.FirstTold, got.Sentence)
		}
	}

	for entity, want := range map[string]int{"told": len(past.events["default/told/disk"]), "never": 0} {
		var plain, whole explain.Explanation
		path := "/api/lapwing/v1/namespaces/default/events/" + entity + "/disk/explain"
		s.do(http.MethodGet, path, "").has(&plain)
		s.do(http.MethodGet, path+"?outcomes=true", "").has(&whole)
		if plain.Outcomes != nil || whole.Outcomes == nil || len(whole.Outcomes) != want {
			t.Errorf("%s: outcomes %v unless asked for, %v if asked for; want none and %d", entity, plain.Outcomes, whole.Outcomes, want)
		}
	}

	// In brief, of several.
	const many = "/api/lapwing/v1/namespaces/default/events/explain"
	const keys = `{"keys":[{"entity":"told","check":"disk"},{"entity":"never","check":"disk"},{"entity":"muted","check":"disk"}]}`
	want := `[{"namespace":"default","entity":"told","check":"disk","told":"yes","first_told":6000,"by":[{"handler":"mail","at":6000}]},` +
		`{"namespace":"default","entity":"muted","check":"disk","told":"no","by":[],"reason":"mail: it is silenced by *:disk"}]`
	if a := s.do(http.MethodPost, many, keys); a.status != 200 || a.body != want {
		t.Errorf("of several: %d %s, want %s", a.status, a.body, want)
	}
	if a := s.do(http.MethodPost, strings.Replace(many, "default", "-", 1), strings.ReplaceAll(keys, `{"entity"`, `{"namespace":"default","entity"`)); a.body != want {
		t.Errorf("of all namespaces: %d %s", a.status, a.body)
	}
	if a := s.do(http.MethodPost, many, keys, "Authorization", "Bearer "+other); a.status != 200 || a.body != "[]" {
		t.Errorf("of a user who may not see them: %d %s", a.status, a.body)
	}
	tooMany := `{"keys":[` + strings.TrimSuffix(strings.Repeat(`{"entity":"told","check":"disk"},`, explainedKeys+1), ",") + `]}`
	for _, body := range []string{tooMany, `{"keys":[{"entity":"told"}]}`, `{"keys":[{"namespace":"eu","entity":"told","check":"disk"}]}`} {
		if a := s.do(http.MethodPost, many, body); a.status < 400 || a.status > 499 {
			t.Errorf("%.60s: %d %.200s", body, a.status, a.body)
		}
	}
}
