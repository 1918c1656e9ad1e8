package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

const untoldPath = "/api/lapwing/v1/namespaces/default/events/untold"

// String says in a line what an answer has.
func (u *untoldAnswer) String() string {
	text := fmt.Sprintf("%d open, %d looked at: %d untold, %d waiting, %d unknown", u.Open, u.Looked, u.Untold, u.Waiting, u.Unknown)
	for _, one := range u.Events {
		text += " " + one.Entity + "/" + one.Check
	}
	return text
}

func TestUntold(t *testing.T) {
	told := trace.Delivery{Header: delivery.Header{Handler: "mail"}, Verdict: trace.Delivered, Updated: 6000}
	filtered := trace.Delivery{Header: delivery.Header{Handler: "mail"}, Verdict: trace.Filtered, Updated: 5000}
	waiting := trace.Delivery{Header: delivery.Header{Handler: "mail"}, Verdict: trace.Waiting, Updated: 5000}
	past := &pastEvents{events: map[string][]trace.Outcome{
		"default/told/disk": incidentOf(told), "default/silent/disk": incidentOf(filtered), "default/muted/disk": incidentOf(filtered),
		"default/later/disk": incidentOf(waiting), "default/far/disk": incidentOf(filtered),
	}}
	s := newServer(t, func(o *Options) { o.Trace = past })
	s.do(http.MethodPut, "/api/core/v2/namespaces/default/silenced/entity:muted:disk",
		`{"metadata":{"name":"entity:muted:disk"},"subscription":"entity:muted","check":"disk","reason":"known","expire":7200}`).is(201)
	for _, entity := range []string{"told", "silent", "muted", "later", "fresh"} {
		s.failing(t, entity, "eu")
	}
	s.failing(t, "far", "us")
	ask := func(want string, header ...string) {
		t.Helper()
		var got untoldAnswer
		s.do(http.MethodGet, untoldPath, "", header...).is(200).has(&got)
		if got.String() != want {
			t.Errorf("got %s, want %s", got.String(), want)
		}
	}
	ask("5 open, 5 looked at: 2 untold, 1 waiting, 1 unknown far/disk silent/disk")

	// The answer is kept for a moment, for users who may see all.
	past.events["default/silent/disk"] = incidentOf(told)
	ask("5 open, 5 looked at: 2 untold, 1 waiting, 1 unknown far/disk silent/disk")
	s.grant("all", "default", resource.Rule{Verbs: []string{"list", "get"}, Resources: []string{"events"}})
	ask("5 open, 5 looked at: 2 untold, 1 waiting, 1 unknown far/disk silent/disk", "Authorization", "Bearer "+s.user("ann", "all"))
	s.now.Add(6)
	ask("5 open, 5 looked at: 1 untold, 1 waiting, 1 unknown far/disk")

	// A user sees what the roles show.
	s.grant("eu", "default", resource.Rule{Verbs: []string{"list", "get"}, Resources: []string{"events"}, LabelSelector: "region == eu"})
	ask("4 open, 4 looked at: 0 untold, 1 waiting, 1 unknown", "Authorization", "Bearer "+s.user("eva", "eu"))
	s.grant("list", "default", resource.Rule{Verbs: []string{"list"}, Resources: []string{"events"}})
	ask("5 open, 0 looked at: 0 untold, 0 waiting, 0 unknown", "Authorization", "Bearer "+s.user("leo", "list"))
	s.do(http.MethodGet, untoldPath, "", "Authorization", "Bearer "+s.user("nora")).is(403)
}

// awayTraces are past events that a member lacks.
type awayTraces struct{ *pastEvents }

func (p awayTraces) Newest(ctx context.Context, list []trace.Query) ([]trace.Newest, []string, error) {
	found, _, err := p.pastEvents.Newest(ctx, list)
	return found, []string{"b2 did not answer"}, err
}

// TestUntoldMissing: what a member that is away may know counts as unknown.
func TestUntoldMissing(t *testing.T) {
	filtered := trace.Delivery{Header: delivery.Header{Handler: "mail"}, Verdict: trace.Filtered, Updated: 5000}
	past := &pastEvents{events: map[string][]trace.Outcome{"default/silent/disk": incidentOf(filtered)}}
	s := newServer(t, func(o *Options) { o.Trace = awayTraces{past} })
	s.failing(t, "silent", "eu")
	for range 2 { // the second answer is the kept one
		got := s.do("GET", untoldPath, "").is(200)
		var answer untoldAnswer
		got.has(&answer)
		if answer.Untold != 0 || answer.Unknown != 1 || !strings.Contains(got.header.Get("Warning"), "b2 did not answer") {
			t.Errorf("untold %+v, warning %q", answer, got.header.Get("Warning"))
		}
	}
}
