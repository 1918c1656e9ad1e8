package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// listener reads a live stream. Messages are "event default/a/c 2" with the check's status, "delete default/a/c",
// "synced", "overflow", "beat" and, at the end, "end".
type listener struct {
	t      testing.TB
	c      chan string
	cancel context.CancelFunc
	header http.Header
	ids    chan string
}

func (s *server) listen(namespace, token string) *listener {
	s.t.Helper()
	return s.follow("/api/lapwing/v1/namespaces/"+namespace+"/events/stream", token, "")
}

// follow reads a live stream, from an id on if that is not "".
func (s *server) follow(path, token, last string) *listener {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.StatusCode != 200 {
		s.t.Fatalf("open stream: status %d", resp.StatusCode)
	}
	l := &listener{t: s.t, c: make(chan string, 10_000), cancel: cancel, header: resp.Header, ids: make(chan string, 10_000)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer resp.Body.Close()
		l.read(bufio.NewScanner(resp.Body))
	}()
	s.t.Cleanup(func() { cancel(); <-done })
	return l
}

func (l *listener) read(lines *bufio.Scanner) {
	defer close(l.c)
	lines.Buffer(nil, 1<<20)
	name := ""
	for lines.Scan() {
		line := lines.Text()
		if v, ok := strings.CutPrefix(line, "event: "); ok {
			name = v
			continue
		}
		if id, ok := strings.CutPrefix(line, "id:"); ok {
			l.ids <- strings.TrimSpace(id)
			continue
		}
		data, ok := strings.CutPrefix(line, "data: ")
		switch {
		case strings.HasPrefix(line, ":"):
			l.c <- "beat"
		case ok && name == "event":
			var ev resource.Event
			if err := json.Unmarshal([]byte(data), &ev); err != nil {
				l.c <- err.Error()
				return
			}
			l.c <- fmt.Sprintf("event %s/%s/%s %d", ev.Entity.Metadata.Namespace, ev.Entity.Metadata.Name,
				ev.Check.Metadata.Name, ev.Check.Status)
		case ok && name == "delete":
			var k struct{ Namespace, Entity, Check string }
			if err := json.Unmarshal([]byte(data), &k); err != nil {
				l.c <- err.Error()
				return
			}
			l.c <- "delete " + k.Namespace + "/" + k.Entity + "/" + k.Check
		case ok:
			if data != "{}" {
				name += " " + data
			}
			l.c <- name
		case line != "":
			l.c <- "line " + line
		}
	}
	l.c <- "end"
}

// next returns the next message except beats.
func (l *listener) next() string {
	l.t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case m := <-l.c:
			if m != "beat" {
				return m
			}
		case <-timeout:
			l.t.Fatal("the stream says nothing")
		}
	}
}

func (l *listener) wants(messages ...string) {
	l.t.Helper()
	for _, want := range messages {
		if got := l.next(); got != want {
			l.t.Fatalf("the stream says %q, want %q", got, want)
		}
	}
}

func (s *server) event(namespace, entity, check string, status int) {
	s.t.Helper()
	s.do("PUT", "/api/core/v2/namespaces/"+namespace+"/events/"+entity+"/"+check, fmt.Sprintf(`{"check":{"status":%d}}`, status)).is(201)
}

func TestStream(t *testing.T) {
	s := newServer(t, nil)
	s.do("POST", "/api/core/v2/namespaces", `{"name":"dev"}`).is(201)
	s.event("default", "b", "x", 0)
	s.event("default", "a", "y", 1)
	s.event("default", "a", "x", 2)
	s.event("dev", "a", "x", 1)

	l, all := s.listen("default", s.token), s.listen("-", s.token)
	if got := l.header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("type %q", got)
	}
	l.wants("event default/a/x 2", "event default/a/y 1", "event default/b/x 0", "synced")
	all.wants("event default/a/x 2", "event default/a/y 1", "event default/b/x 0", "event dev/a/x 1", "synced")

	s.event("dev", "a", "x", 0)
	s.event("default", "a", "x", 0)
	s.do("DELETE", eventsPath+"/a/y", "").is(204)
	s.event("default", "c", "new", 1)
	l.wants("event default/a/x 0", "delete default/a/y", "event default/c/new 1")
	all.wants("event dev/a/x 0", "event default/a/x 0", "delete default/a/y", "event default/c/new 1")

	s.do("DELETE", entitiesPath+"/b", "").is(204)
	l.wants("delete default/b/x")
	if got := value(t, s.metrics.streams); got != 2 {
		t.Errorf("%v streams are counted, want 2", got)
	}
}

func TestStreamOfNothing(t *testing.T) {
	s := newServer(t, nil)
	s.listen("default", s.token).wants("synced")
	s.listen("nope", s.token).wants("synced")
}

func TestStreamOutlivesTheServersDeadlines(t *testing.T) {
	s := newServer(t, nil)
	s.heartbeat = 20 * time.Millisecond
	const deadline = 200 * time.Millisecond
	srv := httptest.NewUnstartedServer(s.API)
	srv.Config.ReadTimeout, srv.Config.WriteTimeout = deadline, deadline
	srv.Start()
	defer srv.Close()
	defer s.Stop()
	s.url = srv.URL
	l := s.listen("default", s.token)
	l.wants("synced")
	for end := time.Now().Add(2 * deadline); time.Now().Before(end); {
		if m := <-l.c; m != "beat" {
			t.Fatalf("the stream says %q", m)
		}
	}
	s.event("default", "a", "x", 1)
	l.wants("event default/a/x 1")
}

func TestStreamEndsWhenItsUserMayNotListenAnyMore(t *testing.T) {
	s := newServer(t, nil)
	s.heartbeat = 10 * time.Millisecond
	s.grant("listeners", "default", resource.Rule{Verbs: []string{"list"}, Resources: []string{"events"}})
	token := s.user("bob", "listeners")
	l := s.listen("default", token)
	l.wants("synced")
	s.now.Store(3600) // the token expires, the permission does not
	s.token = s.login(admin)
	s.event("default", "a", "x", 1)
	l.wants("event default/a/x 1")
	l.waitID("")
	s.grant("listeners", "default", resource.Rule{Verbs: []string{"get"}, Resources: []string{"events"}})
	l.wants("end")
	last := "none"
	for len(l.ids) > 0 {
		last = <-l.ids
	}
	if last != "" {
		t.Errorf("the client goes on from %q, although its rights have changed", last)
	}

	s.grant("listeners", "default", resource.Rule{Verbs: []string{"list"}, Resources: []string{"events"}})
	l = s.listen("default", s.login("bob"))
	l.wants("event default/a/x 1", "synced")
	if _, err := config.Update(t.Context(), s.store, config.Users, "", "bob", func(u *resource.User) (*resource.User, error) {
		u.Disabled = true
		return u, nil
	}); err != nil {
		t.Fatal(err)
	}
	l.wants("end")
}

func TestStopEndsStreams(t *testing.T) {
	s := newServer(t, nil)
	listeners := []*listener{s.listen("default", s.token), s.listen("-", s.token)}
	for _, l := range listeners {
		l.wants("synced")
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, l := range listeners {
		l.wants("end")
	}
	s.do("GET", "/api/lapwing/v1/namespaces/-/events/stream", "").refuses(503, codeInternal, "the backend is stopping")
	if got := value(t, s.metrics.streams); got != 0 {
		t.Errorf("%v streams are counted, want 0", got)
	}
}

func TestStreamEndsWithItsClient(t *testing.T) {
	s := newServer(t, nil)
	l := s.listen("default", s.token)
	l.wants("synced")
	l.cancel()
	s.streams.Wait()
}

// TestStreamMissesNoChange writes while streams begin: each must end up with the newest version of every event.
func TestStreamMissesNoChange(t *testing.T) {
	s := newServer(t, nil)
	const entities, rounds = 10, 20
	var writers sync.WaitGroup
	for e := range entities {
		writers.Go(func() {
			for i := range rounds {
				s.event("default", fmt.Sprintf("e%d", e), "c", i)
			}
			if e%2 == 1 {
				s.do("DELETE", fmt.Sprintf("%s/e%d/c", eventsPath, e), "").is(204)
			}
		})
	}
	var listeners []*listener
	for range 5 {
		listeners = append(listeners, s.listen("default", s.token))
	}
	writers.Wait()
	s.event("default", "last", "c", 0)
	for _, l := range listeners {
		seen := map[string]string{}
		for m := l.next(); m != "event default/last/c 0"; m = l.next() {
			if typ, rest, _ := strings.Cut(m, " "); typ == "event" || typ == "delete" {
				name, status, _ := strings.Cut(rest, " ")
				seen[name] = typ + status
			} else if m != "synced" {
				t.Fatalf("the stream says %q", m)
			}
		}
		for e := range entities {
			want := fmt.Sprint("event", rounds-1)
			if e%2 == 1 {
				want = "delete"
			}
			// A stream that began after the deletion has not seen the event.
			if got := seen[fmt.Sprintf("default/e%d/c", e)]; got != want && !(want == "delete" && got == "") {
				t.Errorf("the last of e%d is %q, want %q", e, got, want)
			}
		}
	}
}

func TestStreamThatIsTooSlowIsEnded(t *testing.T) {
	s := newServer(t, nil)
	s.backlog = 3
	// The client reads nothing until the sockets' buffers are full; large output fills them soon.
	fat := strings.Repeat("x", 400_000)
	req, _ := http.NewRequestWithContext(t.Context(), "GET", s.url+"/api/lapwing/v1/namespaces/-/events/stream", nil)
	req.Header.Set("Authorization", "Bearer "+s.token)
	resp, err := s.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for i := 0; !s.overflowed(); i++ {
		if i == 100 {
			t.Fatal("the stream never overflowed")
		}
		s.do("PUT", fmt.Sprintf("%s/e%d/c", eventsPath, i), `{"check":{"output":"`+fat+`"}}`).is(201)
	}
	// Now it reads again, and gets the overflow.
	l := &listener{t: t, c: make(chan string, 10_000), ids: make(chan string, 10_000)}
	go l.read(bufio.NewScanner(resp.Body))
	var got []string
	for m := range l.c {
		got = append(got, m)
	}
	if n := len(got); n < 2 || got[n-2] != "overflow" || got[n-1] != "end" {
		t.Errorf("the stream ends with %q", got[max(0, len(got)-3):])
	}
	if value(t, s.metrics.overflows) != 1 {
		t.Errorf("%v overflows are counted", value(t, s.metrics.overflows))
	}
}

// overflowed reports whether the backlog of a stream is over its limit.
func (a *API) overflowed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for b := range a.backlogs {
		b.mu.Lock()
		over := b.overflow
		b.mu.Unlock()
		if over {
			return true
		}
	}
	return false
}

func TestBacklog(t *testing.T) {
	key := func(i int) eventKey { return eventKey{"n", "e", fmt.Sprint(i)} }
	b := newBacklog(3)
	for _, i := range []int{1, 2, 1, 1, 3, 2} {
		if !b.add(key(i)) {
			t.Fatal("full too early")
		}
	}
	<-b.ready
	keys, _, ended, overflow := b.take()
	if !slices.Equal(keys, []eventKey{key(1), key(2), key(3)}) || ended || overflow {
		t.Errorf("took %v, %v, %v", keys, ended, overflow)
	}
	b.add(key(1)) // again, since it was taken
	if keys, _, _, _ = b.take(); len(keys) != 1 {
		t.Errorf("took %v", keys)
	}
	for i := range 3 {
		b.add(key(i))
	}
	if b.add(key(4)) {
		t.Error("room for a fourth of three")
	}
	<-b.ready
	if _, _, _, overflow = b.take(); !overflow {
		t.Error("no overflow")
	}
	b = newBacklog(3)
	b.end(true)
	if _, _, ended, overflow := b.take(); !ended || !overflow {
		t.Errorf("a tail that overflowed: ended %v, overflow %v", ended, overflow)
	}
}

func TestBacklogMetrics(t *testing.T) {
	s := newServer(t, nil)
	collect := func() (backlog, age float64) {
		ch := make(chan prometheus.Metric, 2)
		backlogCollector{s.API}.Collect(ch)
		var sum, oldest dto.Metric
		if err := errors.Join((<-ch).Write(&sum), (<-ch).Write(&oldest)); err != nil {
			t.Fatal(err)
		}
		return sum.GetGauge().GetValue(), oldest.GetGauge().GetValue()
	}
	if n, age := collect(); n != 0 || age != 0 {
		t.Errorf("backlog %v of %v s without a stream", n, age)
	}
	b, tail := newBacklog(10), s.fold.Tail(1)
	defer tail.Close()
	stop := s.trackBacklog(b, tail)
	for i := range 3 {
		b.add(eventKey{"n", "e", fmt.Sprint(i)})
	}
	if n, age := collect(); n != 3 || age <= 0 {
		t.Errorf("backlog %v of %v s, want 3", n, age)
	}
	b.take()
	b.add(eventKey{"n", "e", "0"})
	if n, _ := collect(); n != 4 {
		t.Errorf("backlog %v while 3 are being sent and 1 waits", n)
	}
	b.sent()
	if n, _ := collect(); n != 1 {
		t.Errorf("backlog %v when 3 are sent and 1 waits", n)
	}
	stop()
	if n, age := collect(); n != 0 || age != 0 {
		t.Errorf("backlog %v of %v s of a stream that has ended", n, age)
	}
}

var _ State = (*state.State)(nil)

// waitID returns the next id of the stream that differs from not.
func (l *listener) waitID(not string) string {
	l.t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case id := <-l.ids:
			if id != not {
				return id
			}
		case <-timeout:
			l.t.Fatal("the stream tells no new id")
		}
	}
}

func TestStreamResumes(t *testing.T) {
	s := newServer(t, nil)
	const path = "/api/lapwing/v1/namespaces/default/events/stream"
	for _, entity := range []string{"a", "b", "c", "d"} {
		s.event("default", entity, "x", 0)
	}
	first := s.listen("default", s.token)
	first.wants("event default/a/x 0", "event default/b/x 0", "event default/c/x 0", "event default/d/x 0", "synced")
	begin := first.waitID("")
	s.event("default", "b", "x", 1)
	first.wants("event default/b/x 1")
	after := first.waitID(begin)
	first.cancel()

	s.event("default", "a", "x", 2)
	s.do(http.MethodDelete, "/api/core/v2/namespaces/default/events/c/x", "")
	s.event("sensu-system", "b", "x", 2)
	gone := map[string]bool{}
	second := s.follow(path, s.token, after)
	for range 2 {
		gone[second.next()] = true
	}
	if !gone["event default/a/x 2"] || !gone["delete default/c/x"] {
		t.Errorf("resumed with %v", gone)
	}
	second.wants("synced")
	s.event("default", "d", "x", 1)
	second.wants("event default/d/x 1")
	second.cancel()

	// An unknown position begins anew.
	s.positionWait = time.Millisecond
	for _, id := range []string{"nonsense", "1", "zzzzzz.zzzzzz"} {
		anew := s.follow(path+"?last_event_id="+id, s.token, "")
		anew.wants("reset", "event default/a/x 2", "event default/b/x 1", "event default/d/x 1", "synced")
		anew.cancel()
	}
}

func TestStreamOfASelection(t *testing.T) {
	s := newServer(t, nil)
	s.event("default", "a", "x", 0)
	s.event("default", "b", "x", 1)
	const path = "/api/lapwing/v1/namespaces/default/events/stream?fieldSelector=event.check.status%20!=%200"
	l := s.follow(path, s.token, "")
	l.wants("event default/b/x 1", "synced")
	s.event("default", "a", "x", 0) // never shown
	s.event("default", "b", "x", 2)
	l.wants("event default/b/x 2")
	s.event("default", "b", "x", 0)
	l.wants("delete default/b/x")
	s.event("default", "b", "x", 0)
	s.event("default", "a", "x", 1)
	l.wants("event default/a/x 1")
	if a := s.do(http.MethodGet, path+"%20%26%26", ""); a.status != http.StatusBadRequest {
		t.Errorf("bad selector: %d", a.status)
	}
}

// laggingState is a State that says when a stream waits for its fold.
type laggingState struct {
	*state.State
	waits chan struct{}
}

func (l *laggingState) WaitFolded(ctx context.Context, partition int, seq uint64) error {
	if l.Cursor()[partition] < seq {
		l.waits <- struct{}{}
	}
	return l.State.WaitFolded(ctx, partition, seq)
}

// TestStreamWaitsForThePosition: a client comes from another backend, which had folded a message more.
func TestStreamWaitsForThePosition(t *testing.T) {
	lagging := &laggingState{waits: make(chan struct{}, 1)}
	s := newServer(t, func(o *Options) {
		lagging.State = o.State.(*state.State)
		o.State = lagging
	})
	s.positionWait = time.Minute
	const path = "/api/lapwing/v1/namespaces/default/events/stream"
	before := s.fold.Cursor()
	s.event("default", "a", "x", 0)
	ahead := s.fold.Cursor()
	for i := range ahead {
		if ahead[i] > before[i] { // the partition of a
			ahead[i]++
		}
	}
	l := s.follow(path, s.token, ahead.String())
	<-lagging.waits
	s.event("default", "a", "x", 1) // what the client has seen elsewhere
	l.wants("synced")
	if id := l.waitID(""); id != ahead.String() {
		t.Errorf("it goes on at %s, want %s", id, ahead)
	}
	s.event("default", "a", "x", 2)
	if m := l.next(); m == "event default/a/x 1" { // the stream had it waiting
		m = l.next()
		if m != "event default/a/x 2" {
			t.Errorf("then it says %q", m)
		}
	} else if m != "event default/a/x 2" {
		t.Errorf("then it says %q", m)
	}

	// It does not wait for ever, nor longer than the server runs.
	ahead[0] += 1000
	s.positionWait = time.Millisecond
	short := s.follow(path, s.token, ahead.String())
	<-lagging.waits
	short.wants("reset", "event default/a/x 2", "synced")
	s.positionWait = time.Hour
	s.follow(path, s.token, ahead.String())
	<-lagging.waits // the test's end stops the API
}
