package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

func TestAnEventCanBeReadOnceItIsAnswered(t *testing.T) {
	s := newServer(t, nil)
	for i := range 20 {
		s.do("PUT", eventsPath+"/web1/cpu", fmt.Sprintf(`{"check":{"status":2,"output":"%d","executed":%d}}`, i, 1000+i)).is(201)
		var ev resource.Event
		s.do("GET", eventsPath+"/web1/cpu", "").is(200).has(&ev)
		if ev.Check.Output != fmt.Sprint(i) || ev.Check.Occurrences != int64(i+1) {
			t.Fatalf("after event %d: output %q, occurrences %d", i, ev.Check.Output, ev.Check.Occurrences)
		}
	}
}

func TestEventsGetWhatTheyLack(t *testing.T) {
	s := newServer(t, nil)
	const id = "12345678-1234-4234-8234-123456789abc"
	now := time.Now().Unix()
	for _, tc := range []struct {
		name, method, path, body string
		check                    func(ev *resource.Event) bool
	}{
		{"names and class", "PUT", "/a/c", `{"check":{"status":1}}`, func(ev *resource.Event) bool {
			return ev.Entity.EntityClass == "proxy" && ev.Entity.Metadata.Name == "a" &&
				ev.Check.Metadata.Namespace == "default" && ev.Metadata.Namespace == ""
		}},
		{"an entity", "POST", "/a/c", `{"entity":{},"check":{}}`, func(ev *resource.Event) bool { return ev.Entity.Metadata.Name == "a" }},
		{"id and time", "PUT", "/a/c", `{"check":{}}`, func(ev *resource.Event) bool {
			return len(ev.ID) == 16 && ev.Timestamp >= now && ev.Timestamp <= now+60 && ev.Sequence == 0
		}},
		{"nothing", "PUT", "/a/c", `{"id":"` + id + `","timestamp":1600000000,"sequence":7,"check":{}}`, func(ev *resource.Event) bool {
			return ev.ID[0] == 0x12 && ev.Timestamp == 1600000000 && ev.Sequence == 7
		}},
		{"its sender", "PUT", "/a/c", `{"metadata":{"created_by":"x"},"entity":{"metadata":{"created_by":"x"}},"check":{"metadata":{"created_by":"x"}}}`, func(ev *resource.Event) bool {
			return ev.Metadata.CreatedBy == admin && ev.Check.Metadata.CreatedBy == admin && ev.Entity.Metadata.CreatedBy == admin
		}},
		{"a clock somewhat ahead", "PUT", "/a/c", fmt.Sprintf(`{"timestamp":%d,"check":{}}`, now+590),
			func(ev *resource.Event) bool { return ev.Timestamp == now+590 }},
	} {
		s.do(tc.method, eventsPath+tc.path, tc.body).is(201)
		var ev resource.Event
		s.do("GET", eventsPath+"/a/c", "").is(200).has(&ev)
		if !tc.check(&ev) {
			t.Errorf("%s: stored %+v of %+v, %+v", tc.name, ev, ev.Entity, ev.Check)
		}
	}
	if c, _ := config.Get(s.store.Snapshot(), config.Entities, "default", "a"); c.Metadata.CreatedBy != admin || c.EntityClass != "proxy" {
		t.Errorf("the entity was made as %+v", c)
	}
}

func TestEventsThatAreRefused(t *testing.T) {
	s := newServer(t, nil)
	now := time.Now().Unix()
	future := func(at int64) string {
		return fmt.Sprintf("timestamp %d is more than 10 minutes in the future: it must be in Unix seconds, and the server's is ", at)
	}
	for _, tc := range []struct {
		method, path, body string
		status             int
		message            string // its beginning
	}{
		{"POST", "", `{"check":{"metadata":{"name":"c"}}}`, 400, "event must contain an entity"},
		{"PUT", "/a/c", `{}`, 400, "event must contain a check or metrics"},
		{"PUT", "/a/c", `{"check":{"metadata":{"name":"d"}}}`, 400, "the name of the resource (d) does not match the name of the URI (c)"},
		{"PUT", "/a/c", `{"check":{"metadata":{"namespace":"dev"}}}`, 400,
			"the namespace of the resource (dev) does not match the namespace of the URI (default)"},
		{"PUT", "/a/c", `{"metadata":{"namespace":"dev"},"check":{}}`, 400,
			"the namespace of the resource (dev) does not match the namespace of the URI (default)"},
		{"PUT", "/a/c", `{"metadata":{"name":"x"},"check":{}}`, 400, "events cannot be named"},
		{"PUT", "/a/c", `{"id":"x","check":{}}`, 400, "invalid event id: "},
		{"PUT", "/a/c%20d", `{"check":{}}`, 400, "check is invalid: check name cannot contain spaces or special characters"},
		{"PUT", "/a/c", fmt.Sprintf(`{"timestamp":%d,"check":{}}`, now+700), 400, future(now + 700)},
		{"PUT", "/a/c", fmt.Sprintf(`{"timestamp":%d,"check":{}}`, now*1000), 400, future(now * 1000)},
		{"PUT", "/a/c", fmt.Sprintf(`{"timestamp":%d,"metrics":{"points":[]}}`, now+700), 400, future(now + 700)},
	} {
		got := s.do(tc.method, eventsPath+tc.path, tc.body).is(tc.status)
		if !strings.HasPrefix(got.body, `{"message":"`+tc.message) {
			t.Errorf("%s %s %s: %s, want %q", tc.method, tc.path, tc.body, got.body, tc.message)
		}
	}
	s.do("PUT", "/api/core/v2/namespaces/nope/events/a/c", `{"check":{}}`).refuses(404, codeNotFound, "the namespace nope does not exist")
	if got := s.do("GET", "/api/core/v2/events", "").names(); got != "" {
		t.Errorf("events %s were stored", got)
	}
	if got := s.do("GET", "/api/core/v2/entities", "").names(); got != "" {
		t.Errorf("entities %s were made", got)
	}
}

func TestMetricsOnlyEvents(t *testing.T) {
	s := newServer(t, nil)
	const metrics = `"metrics":{"handlers":["tsdb"],"points":[{"name":"load","value":0.5,"timestamp":1600000000}]}`
	s.do("POST", eventsPath, `{"entity":{"metadata":{"name":"a"}},`+metrics+`}`).is(201)
	s.do("PUT", eventsPath+"/a/c", `{`+metrics+`}`).is(201)
	if got := s.do("GET", eventsPath, "").names(); got != "" {
		t.Errorf("events %s were stored", got)
	}
	// With a check they are handled and not kept.
	s.do("PUT", eventsPath+"/a/c", `{"check":{},`+metrics+`}`).is(201)
	if got := s.do("GET", eventsPath+"/a/c", "").is(200); strings.Contains(got.body, `"metrics":`) {
		t.Errorf("stored %s", got.body)
	}
}

func TestNothingIsAcceptedThatIsNotDurable(t *testing.T) {
	s := newServer(t, nil)
	s.do("PUT", eventsPath+"/a/c", `{"check":{}}`).is(201)
	for _, tc := range []struct {
		err    error
		status int
	}{
		{errors.New("append a/c: disk is full: the event log takes no events until there is space again"), 503},
		{fmt.Errorf("append a/c: %w", context.DeadlineExceeded), 504},
	} {
		s.intake.fail(tc.err)
		for _, got := range []*answer{
			s.do("PUT", eventsPath+"/a/c", `{"check":{"status":1}}`),
			s.do("POST", eventsPath+"/a/c", `{"check":{"status":1}}`),
			s.do("DELETE", eventsPath+"/a/c", ""),
		} {
			if got.is(tc.status); tc.status == 503 {
				got.refuses(503, codeInternal, tc.err.Error())
				if got.header.Get("Retry-After") == "" {
					t.Errorf("%s: no Retry-After", got.what)
				}
			} else {
				got.refuses(504, codeDeadline, "deadline exceeded")
			}
		}
	}
	s.intake.fail(nil)
	var ev resource.Event
	s.do("GET", eventsPath+"/a/c", "").is(200).has(&ev)
	if ev.Check.Status != 0 {
		t.Error("a refused event was stored")
	}
}

// slowIntake takes longer than the time limit of a request.
type slowIntake struct{ Intake }

func (slowIntake) Submit(ctx context.Context, _ *resource.Event) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestWritesHaveADeadline(t *testing.T) {
	s := newServer(t, func(o *Options) {
		o.Intake = slowIntake{o.Intake}
		o.WriteTimeout = 20 * time.Millisecond
	})
	s.do("PUT", eventsPath+"/a/c", `{"check":{}}`).refuses(504, codeDeadline, "deadline exceeded")
}

func TestDeletedEventsStayAway(t *testing.T) {
	s := newServer(t, nil)
	s.do("PUT", eventsPath+"/a/c", `{"check":{"ttl":60,"interval":10}}`).is(201)
	s.do("PUT", eventsPath+"/a/c2", `{"check":{}}`).is(201)
	s.do("DELETE", eventsPath+"/a/c", "").is(204)
	s.do("GET", eventsPath+"/a/c", "").refuses(404, codeNotFound, "not found") // and not c2, which has it as a prefix
	s.do("DELETE", eventsPath+"/a/c", "").refuses(404, codeNotFound, "not found")
	s.do("DELETE", eventsPath+"/nobody/c", "").is(404)
	if got := s.do("GET", eventsPath, "").names(); got != "default/a/c2" {
		t.Errorf("events %s", got)
	}
}

func TestEventTags(t *testing.T) {
	s := newServer(t, nil)
	s.do("PUT", eventsPath+"/a/c", `{"check":{}}`).is(201)
	tag := s.do("GET", eventsPath+"/a/c", "").is(200).header.Get("Etag")
	s.do("GET", eventsPath+"/a/c", "", "If-None-Match", tag).is(304)
	s.do("PUT", eventsPath+"/a/c", `{"check":{}}`).is(201)
	s.do("GET", eventsPath+"/a/c", "", "If-None-Match", tag).is(200)
}

// breakingState fails on the second chunk of a list.
type breakingState struct{ State }

func (b *breakingState) Select(ctx context.Context, q state.Query) (*state.Page, error) {
	if q.After != "" {
		return nil, errors.New("disk is broken")
	}
	return b.State.Select(ctx, q)
}

func TestAListThatBreaksDoesNotLookWhole(t *testing.T) {
	s := newServer(t, func(o *Options) { o.State = &breakingState{o.State} })
	s.chunk = 1
	s.do("PUT", eventsPath+"/a/c", `{"check":{"output":"`+strings.Repeat("x", sendAt)+`"}}`).is(201)
	s.do("PUT", eventsPath+"/b/c", `{"check":{}}`).is(201)
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.url+eventsPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	resp, err := s.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("status %d with a whole body that ends with %q", resp.StatusCode, body[max(0, len(body)-60):])
	}
	// Before anything is sent, a proper answer is possible.
	s.do("GET", eventsPath+"?limit=10&continue="+continueToken("default\x00a\x00c"), "").refuses(500, codeInternal, "disk is broken")
}
