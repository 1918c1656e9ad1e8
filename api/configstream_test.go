package api

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// changes reads n messages of a config stream, for example "change checks default/cpu" and "delete checks default/cpu".
func (l *listener) changes(n int) (out []string) {
	l.t.Helper()
	for len(out) < n {
		m := l.next()
		word, data, _ := strings.Cut(m, " ")
		var c struct {
			Kind, Namespace, Name string
			Deleted               bool
		}
		if data != "" {
			if err := json.Unmarshal([]byte(data), &c); err != nil {
				l.t.Fatalf("%s: %v", m, err)
			}
			if c.Deleted {
				word = "delete"
			}
			word += " " + c.Kind + " " + c.Namespace + "/" + c.Name
		}
		out = append(out, word)
	}
	return out
}

func (l *listener) wantsChanges(want ...string) {
	l.t.Helper()
	if got := l.changes(len(want)); strings.Join(got, ", ") != strings.Join(want, ", ") {
		l.t.Errorf("config stream: %q, want %q", got, want)
	}
}

func (s *server) check(namespace, name string) {
	s.t.Helper()
	c := &resource.CheckConfig{Metadata: resource.ObjectMeta{Namespace: namespace, Name: name}}
	if err := config.Put(s.t.Context(), s.store, config.Checks, c); err != nil {
		s.t.Fatal(err)
	}
}

func TestConfigStream(t *testing.T) {
	s := newServer(t, nil)
	const all, dev = "/api/lapwing/v1/namespaces/-/config/stream", "/api/lapwing/v1/namespaces/dev/config/stream"
	if got := s.ask(http.MethodGet, all, s.user("nobody")); got != http.StatusForbidden {
		t.Errorf("without a role: %d", got)
	}
	s.grant("dev", "dev", resource.Rule{Verbs: []string{"list"}, Resources: []string{"checks"}})
	bob := s.user("bob", "dev")
	if got := s.ask(http.MethodGet, all, bob); got != http.StatusForbidden {
		t.Errorf("all namespaces with a role in one: %d", got)
	}

	root, part, some := s.follow(all, s.token, ""), s.follow(dev, bob, ""), s.follow(all+"?kind=handlers", s.token, "")
	for _, l := range []*listener{root, part, some} {
		l.wantsChanges("synced")
	}
	begin := root.waitID("")
	s.check("dev", "a")
	s.check("prod", "b")
	if err := config.Put(t.Context(), s.store, config.Handlers,
		&resource.Handler{Metadata: resource.ObjectMeta{Namespace: "dev", Name: "h"}}); err != nil {
		t.Fatal(err)
	}
	if err := config.Delete(t.Context(), s.store, config.Checks, "dev", "a"); err != nil {
		t.Fatal(err)
	}
	root.wantsChanges("change checks dev/a", "change checks prod/b", "change handlers dev/h", "delete checks dev/a")
	part.wantsChanges("change checks dev/a", "delete checks dev/a")
	some.wantsChanges("change handlers dev/h")
	last := begin
	for range 4 {
		last = root.waitID(last)
	}

	resumed := s.follow(all, s.token, begin)
	resumed.wantsChanges("change checks dev/a", "change checks prod/b", "change handlers dev/h", "delete checks dev/a", "synced")
	s.follow(all, s.token, last).wantsChanges("synced")
	s.positionWait = time.Millisecond
	for _, id := range []string{"x", "1", "99999999"} {
		s.follow(all+"?last_event_id="+id, s.token, "").wantsChanges("reset", "synced")
	}
}

// TestConfigStreamWaitsForThePosition: a client comes from another backend, which had a definition more.
func TestConfigStreamWaitsForThePosition(t *testing.T) {
	s := newServer(t, nil)
	s.positionWait = time.Minute
	ahead := s.store.Snapshot().Revision() + 1
	opened := make(chan *listener)
	go func() { opened <- s.follow(ours+"namespaces/-/config/stream", s.token, strconv.FormatUint(ahead, 10)) }()
	for open := new(dto.Metric); open.GetGauge().GetValue() == 0; time.Sleep(time.Millisecond) { // pause between polls
		if err := s.metrics.streams.Write(open); err != nil {
			t.Fatal(err)
		}
	}
	s.check("dev", "a")
	// The check's revision may be a later one: a sign-in is stored, too.
	if got := (<-opened).changes(1); got[0] == "reset" {
		t.Error("the stream did not wait")
	}
}

func TestConfigStreamEndsWithTheRight(t *testing.T) {
	s := newServer(t, nil)
	s.heartbeat = 20 * time.Millisecond
	s.grant("ops", "", resource.Rule{Verbs: []string{"list"}, Resources: []string{"checks"}})
	l := s.follow("/api/lapwing/v1/namespaces/-/config/stream", s.user("bob", "ops"), "")
	l.wantsChanges("synced")
	s.grant("ops", "")
	s.check("dev", "a")
	if got := l.next(); got != "end" {
		t.Errorf("%q after the right was taken away", got)
	}
}

func TestRecentIsBounded(t *testing.T) {
	rc := newRecent()
	for revision := uint64(1); revision <= 5*maxRecent; revision++ {
		rc.add(config.Change{Revision: revision})
		if len(rc.list) > 2*maxRecent {
			t.Fatalf("%d changes are kept", len(rc.list))
		}
	}
	if _, _, ok := rc.after(1); ok {
		t.Error("what was forgotten is said to be known")
	}
	if changes, _, ok := rc.after(5*maxRecent - 3); !ok || len(changes) != 3 {
		t.Errorf("the newest: %v %v", changes, ok)
	}
}

// TestReadsInACluster: a read waits for the definitions that another member has, and says that it may be old.
func TestReadsInACluster(t *testing.T) {
	fake := &fakeCluster{cutOff: true}
	s := newServer(t, func(o *Options) { o.Cluster = fake })
	s.positionWait = time.Minute
	fake.revision = s.store.Snapshot().Revision() + 1
	answered := make(chan *answer)
	go func() { answered <- s.do("GET", "/api/core/v2/namespaces/dev/checks/late", "") }()
	s.check("dev", "late")
	a := <-answered
	a.is(200)
	if got := a.header.Get("Warning"); !strings.Contains(got, "the answer may be old") {
		t.Errorf("the warning is %q", got)
	}
	fake.cutOff = false
	if a := s.do("GET", "/api/core/v2/namespaces/dev/checks/late", "").is(200); a.header.Get("Warning") != "" {
		t.Errorf("the warning is %q", a.header.Get("Warning"))
	}
	// It hears the others, but their definitions do not come.
	fake.revision, s.positionWait = s.store.Snapshot().Revision()+1000, time.Millisecond
	a = s.do("GET", "/api/core/v2/namespaces/dev/checks/late", "").is(200)
	if got := a.header.Get("Warning"); !strings.Contains(got, "the answer may be old") {
		t.Errorf("the warning is %q", got)
	}
	s.do("DELETE", "/api/core/v2/namespaces/dev/checks/late", "").is(204) // a write goes on with what is here
}

// TestWritesInACluster: a write to a member that is cut off waits for its lease, and is refused without; what reads only
// is answered. A user that this member does not know may be a new one.
func TestWritesInACluster(t *testing.T) {
	fake := &fakeCluster{cutOff: true}
	s := newServer(t, func(o *Options) { o.Cluster, o.WriteTimeout = fake, 100*time.Millisecond })
	const path = "/api/core/v2/namespaces/dev/checks/late"
	for _, sender := range []string{"Bearer " + s.token, "Key unknown"} {
		if text := s.do("DELETE", path, "", "Authorization", sender).is(503).body; !strings.Contains(text, "nothing was changed") {
			t.Errorf("the answer is %s", text)
		}
	}
	s.do("POST", previewPath, `{"check":"disk"}`).is(200)
}
