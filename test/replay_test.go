package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/internal/testpostgres"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// replayHook is a receiver that keeps what it gets.
type replayHook struct {
	*httptest.Server
	mu  sync.Mutex
	got []string // "ID entity status occurrences", in order
	at  []time.Time
}

func newReplayHook(t *testing.T) *replayHook {
	h := &replayHook{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var ev resource.Event
		if err := json.Unmarshal(body, &ev); err != nil {
			t.Errorf("the receiver got %s: %v", body, err)
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.got = append(h.got, fmt.Sprint(r.Header.Get("Idempotency-Key"), " ", ev.Entity.Metadata.Name, " ", ev.Check.Status, " ", ev.Check.Occurrences,
			" ", ev.Entity.Metadata.Labels["team"]))
		h.at = append(h.at, time.Now())
		if ev.Entity.Metadata.Name == "refused" {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *replayHook) take() (got []string, at []time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	got, at, h.got, h.at = h.got, h.at, nil, nil
	return got, at
}

// replayed runs a replay, and returns its summary and its events.
func replayed(c *client.Client, in client.ReplayRequest) (sum *client.ReplaySummary, events []client.ReplayedEvent, err error) {
	if in.Since == "" {
		in.Since = "1h"
	}
	in.Details = -1
	err = c.Replay(context.Background(), "default", &in, func(l *client.ReplayLine) error {
		switch {
		case l.Event != nil:
			events = append(events, *l.Event)
		case l.Summary != nil:
			sum = l.Summary
		}
		return nil
	})
	return sum, events, err
}

func rawOf(t *testing.T, v any) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func named(name string) resource.ObjectMeta {
	return resource.ObjectMeta{Namespace: "default", Name: name}
}

func pipelineTo(name, handler string, filters ...string) *resource.Pipeline {
	w := resource.PipelineWorkflow{Name: "w", Handler: &resource.ResourceReference{APIVersion: "core/v2", Type: "Handler", Name: handler}}
	for _, f := range filters {
		w.Filters = append(w.Filters, &resource.ResourceReference{APIVersion: "core/v2", Type: "EventFilter", Name: f})
	}
	return &resource.Pipeline{Metadata: named(name), Workflows: []resource.PipelineWorkflow{w}}
}

// userWith gives a user who is made for it a role with rules.
func userWith(t *testing.T, b *testbackend.Backend, user string, rules ...resource.Rule) *client.Client {
	t.Helper()
	do := func(path string, in any) {
		t.Helper()
		if err := b.Client.Do(t.Context(), http.MethodPut, "/api/core/v2/"+path, in, nil); err != nil {
			t.Fatal(err)
		}
	}
	do("users/"+user, map[string]any{"username": user, "password": "P@ssw0rd!"})
	do("namespaces/default/roles/"+user, &resource.Role{Metadata: named(user), Rules: rules})
	do("namespaces/default/rolebindings/"+user, &resource.RoleBinding{
		Metadata: named(user), RoleRef: resource.RoleRef{Type: "Role", Name: user}, Subjects: []resource.Subject{{Type: "User", Name: user}},
	})
	c, err := client.New(client.Options{URL: "http://" + b.APIAddr().String(), Username: user, Password: "P@ssw0rd!", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func refusedWith(err error, status int) bool {
	var e *client.Error
	return errors.As(err, &e) && e.Status == status
}

// TestRealReplay takes the events of the past through pipelines that were not there when they came.
func TestRealReplay(t *testing.T) {
	dsn := testpostgres.Start(t, testpostgres.Options{NoFsync: true}).DSN()
	b := testbackend.Start(t, func(o *testbackend.Options) { o.Postgres.DSN = dsn })
	h := newReplayHook(t)
	put := func(path string, in any) {
		t.Helper()
		if err := b.Client.Do(t.Context(), http.MethodPut, "/api/core/v2/namespaces/default/"+path, in, nil); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	event := func(entity, check string, status uint32) {
		t.Helper()
		n++
		ev := testbackend.Event(entity, check, status, int64(1000+n))
		put("events/"+entity+"/"+check, ev)
	}
	for _, e := range []string{"web1", "web2"} {
		for _, status := range []uint32{0, 2, 2, 0} {
			event(e, "disk", status)
		}
	}
	event("refused", "disk", 1)
	web2 := testbackend.Entity("web2")
	web2.Metadata.Labels = map[string]string{"team": "a"}
	put("entities/web2", web2)                                                           // later than the events
	put("silenced/*:disk", &resource.Silenced{Metadata: named("*:disk"), Check: "disk"}) // later than the events
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	eventually(t, time.Minute, "all events in PostgreSQL", func() bool {
		var rows int
		return conn.QueryRow(t.Context(), `SELECT count(*) FROM lapwing.events WHERE "check" = 'disk'`).Scan(&rows) == nil && rows == n
	})
	put("handlers/ops", &resource.Handler{Metadata: named("ops"), Type: "webhook", Webhook: &resource.HandlerWebhook{URL: h.URL}})
	put("pipelines/pager", pipelineTo("pager", "ops", "is_incident", "not_silenced"))

	// A dry run says what would be sent, with the silences of the events' time, and sends nothing.
	dry, events, err := replayed(b.Client, client.ReplayRequest{Pipeline: "pager", Check: "disk"})
	if err != nil {
		t.Fatal(err)
	}
	if dry.Read != 9 || dry.Selected != 9 || dry.Delivered != 7 || dry.Failed != 0 || dry.Sent || dry.Verdicts["delivered"] != 7 ||
		dry.Verdicts["filtered"] != 2 || len(events) != 9 || len(dry.Routes) != 1 || dry.Routes[0].Verdicts["delivered"] != 7 ||
		dry.Routes[0].Pipeline != "pager" || dry.Routes[0].Handler != "ops" {
		t.Errorf("the dry run: %+v, %d events", dry, len(events))
	}
	for i := range events[1:] {
		if events[i].Received > events[i+1].Received {
			t.Errorf("event %d comes before an older one", i)
		}
	}
	if got, _ := h.take(); len(got) > 0 {
		t.Errorf("a dry run has sent %q", got)
	}

	// What it said is what is sent: in order, with the entities of the present and the numbers of the past.
	sent, events, err := replayed(b.Client, client.ReplayRequest{Pipeline: "pager", Entity: "web2", Send: true, Rate: 1000})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := h.take()
	var want []string
	for _, e := range events {
		if d := e.Deliveries[0]; d.Verdict == client.VerdictDelivered {
			want = append(want, fmt.Sprintf("%s web2 %d %d a", d.ID, e.Status, map[int]int64{0: 1, 1: 2, 2: 1}[len(want)]))
			if d.ID != "replay-"+sent.ID+"-"+e.ID+"/pager/w/ops" || len(d.Attempts) != 1 || d.Attempts[0].Result != "ok" {
				t.Errorf("delivery %+v", d)
			}
		}
	}
	if len(got) != 3 || !slices.Equal(got, want) || !sent.Sent || sent.Delivered != 3 {
		t.Errorf("sent %q, want %q: %+v", got, want, sent)
	}
	history := 0
	for one, err := range b.Client.Notifications(t.Context(), "default", client.NotificationOptions{Entity: "web2"}, 0) {
		if err != nil || !strings.HasPrefix(one.ID, "replay-"+sent.ID) {
			t.Errorf("a notification %+v: %v", one, err)
		}
		history++
	}
	if history != 3 {
		t.Errorf("%d notifications in the history, want 3", history)
	}
	var entries []struct{ Action, Resource, Name, User string }
	if err := b.Client.Do(t.Context(), http.MethodGet, "/api/lapwing/v1/namespaces/default/audit?action=execute", nil, &entries); err != nil ||
		len(entries) != 1 || entries[0].Name != "pager" || entries[0].Resource != "pipelines" {
		t.Errorf("audit log %+v: %v", entries, err)
	}

	t.Run("rate", func(t *testing.T) {
		begin := time.Now()
		_, _, err := replayed(b.Client, client.ReplayRequest{Pipeline: "pager", Check: "disk", Send: true, Rate: 20, Limit: 4})
		got, at := h.take()
		if err != nil || len(got) != 3 { // the first of the four is not an incident
			t.Fatalf("sent %q: %v", got, err)
		}
		if took := at[2].Sub(begin); took < 100*time.Millisecond {
			t.Errorf("three deliveries at 20 a second took %v", took)
		}
	})
	t.Run("a receiver refuses", func(t *testing.T) {
		sum, events, err := replayed(b.Client, client.ReplayRequest{Pipeline: "pager", Entity: "refused", Check: "disk", Send: true})
		if err != nil || sum.Failed != 1 || sum.Delivered != 0 || events[0].Deliveries[0].Verdict != client.VerdictDropped {
			t.Errorf("%+v %+v: %v", sum, events, err)
		}
		if got, _ := h.take(); len(got) != 1 {
			t.Errorf("%d attempts, want one", len(got))
		}
	})
	t.Run("drafts and selectors", func(t *testing.T) {
		filter := &resource.EventFilter{Metadata: named("own"), Action: "allow", Expressions: []string{"event.check.occurrences == 1 && !event.is_resolution"}}
		in := client.ReplayRequest{
			Pipelines: []json.RawMessage{rawOf(t, pipelineTo("draft", "ops", "own"))}, Filters: []json.RawMessage{rawOf(t, filter)},
			FieldSelector: `event.check.name == "disk" && event.entity.name != refused`, LabelSelector: "team == a",
		}
		sum, _, err := replayed(b.Client, in)
		if err != nil || sum.Selected != 4 || sum.Delivered != 2 || sum.Read < 9 {
			t.Errorf("%+v: %v", sum, err)
		}
		in.Send = true
		if sum, _, err = replayed(b.Client, in); err != nil || sum.Delivered != 2 {
			t.Errorf("%+v: %v", sum, err)
		}
		if got, _ := h.take(); len(got) != 2 {
			t.Errorf("the draft sent %q", got)
		}
	})
	t.Run("times", func(t *testing.T) {
		second := time.UnixMilli(events[1].Received)
		sum, list, err := replayed(b.Client, client.ReplayRequest{
			Pipeline: "pager", Entity: "web2", Check: "disk",
			Since: second.Format(time.RFC3339Nano), Until: time.UnixMilli(events[3].Received).Format(time.RFC3339Nano),
		})
		if err != nil || sum.Selected != 2 || list[0].ID != events[1].ID || list[1].ID != events[2].ID {
			t.Errorf("%+v %+v: %v", sum, list, err)
		}
	})
	t.Run("bad requests", func(t *testing.T) {
		for _, in := range []client.ReplayRequest{
			{}, {Pipeline: "nothing"}, {Pipeline: "pager", Since: "x"}, {Pipeline: "pager", Since: "1h", Until: "2h"},
			{Pipeline: "pager", Rate: -1}, {Pipeline: "pager", Limit: -1}, {Pipeline: "pager", LabelSelector: "("},
		} {
			if _, _, err := replayed(b.Client, in); !refusedWith(err, http.StatusBadRequest) {
				t.Errorf("%+v: %v", in, err)
			}
		}
	})
	t.Run("rights", func(t *testing.T) {
		read := resource.Rule{Verbs: []string{"get", "list"}, Resources: []string{"events"}}
		pipelines := resource.Rule{Verbs: []string{"update"}, Resources: []string{"pipelines"}}
		handlers := resource.Rule{Verbs: []string{"update"}, Resources: []string{"handlers"}, ResourceNames: []string{"ops"}}
		defined, draft := client.ReplayRequest{Pipeline: "pager", Check: "disk"}, client.ReplayRequest{Pipelines: []json.RawMessage{rawOf(t, pipelineTo("pager", "ops"))}}
		for i, tc := range []struct {
			rules             []resource.Rule
			dry, draft, sends bool
		}{
			{[]resource.Rule{{Verbs: []string{"get"}, Resources: []string{"checks"}}}, false, false, false},
			{[]resource.Rule{pipelines, handlers}, false, false, false},
			{[]resource.Rule{read}, true, false, false},
			{[]resource.Rule{read, pipelines}, true, false, false},
			{[]resource.Rule{read, handlers}, true, false, false},
			{[]resource.Rule{read, {Verbs: []string{"create", "update"}, Resources: []string{"pipelines"}}}, true, true, false},
			{[]resource.Rule{read, pipelines, handlers}, true, false, true},
		} {
			c := userWith(t, b, fmt.Sprint("user", i), tc.rules...)
			for what, ask := range map[string]struct {
				in   client.ReplayRequest
				send bool
				may  bool
			}{"dry": {defined, false, tc.dry}, "draft": {draft, false, tc.draft}, "send": {defined, true, tc.sends}} {
				ask.in.Send, ask.in.Rate = ask.send, 1000
				_, _, err := replayed(c, ask.in)
				if ask.may && err != nil || !ask.may && !refusedWith(err, http.StatusForbidden) {
					t.Errorf("%+v, %s: %v", tc.rules, what, err)
				}
			}
			if got, _ := h.take(); len(got) > 0 != tc.sends {
				t.Errorf("%+v: sent %q", tc.rules, got)
			}
		}
	})
	t.Run("a role that is limited by labels", func(t *testing.T) {
		c := userWith(t, b, "limited", resource.Rule{Verbs: []string{"get", "list"}, Resources: []string{"events"}, LabelSelector: "team == a"},
			resource.Rule{Verbs: []string{"update"}, Resources: []string{"pipelines", "handlers"}})
		sum, list, err := replayed(c, client.ReplayRequest{Pipeline: "pager", Check: "disk", Send: true, Rate: 1000})
		if err != nil || sum.Selected != 4 || slices.ContainsFunc(list, func(e client.ReplayedEvent) bool { return e.Entity != "web2" }) {
			t.Errorf("%+v %+v: %v", sum, list, err)
		}
		if got, _ := h.take(); len(got) != 3 {
			t.Errorf("sent %q", got)
		}
	})
	t.Run("one at a time, until the client goes", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		running, ended := make(chan struct{}), make(chan error, 1)
		in := client.ReplayRequest{Since: "1h", Pipeline: "pager", Check: "disk", Send: true, Rate: 0.001}
		go func() {
			once := sync.OnceFunc(func() { close(running) })
			ended <- b.Client.Replay(ctx, "default", &in, func(l *client.ReplayLine) error {
				if l.Progress != nil {
					once()
				}
				return nil
			})
		}()
		<-running
		if _, _, err := replayed(b.Client, client.ReplayRequest{Pipeline: "pager"}); !refusedWith(err, http.StatusConflict) {
			t.Errorf("a second replay: %v", err)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the first ended with %v", err)
		}
		eventually(t, time.Minute, "another replay may begin", func() bool {
			_, _, err := replayed(b.Client, client.ReplayRequest{Pipeline: "pager"})
			return err == nil
		})
	})
}

// TestReplayWithoutPostgres says what is missing.
func TestReplayWithoutPostgres(t *testing.T) {
	b := testbackend.Start(t, nil)
	if err := b.Client.Do(t.Context(), http.MethodPut, "/api/core/v2/namespaces/default/pipelines/pager", pipelineTo("pager", "ops"), nil); err != nil {
		t.Fatal(err)
	}
	_, _, err := replayed(b.Client, client.ReplayRequest{Pipeline: "pager"})
	if !refusedWith(err, http.StatusNotImplemented) || !strings.Contains(err.Error(), "replay needs PostgreSQL") {
		t.Error(err)
	}
}
