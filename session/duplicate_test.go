package session

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// lockedText is a log that several goroutines may write.
type lockedText struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *lockedText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestDuplicateNames: agents that share a name get a log line, an event and a metric, all of which end when one agent
// is left. A reconnect makes no duplicate.
func TestDuplicateNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startBare(t, time.Second)
		var out lockedText
		s.rare = rarelog.New(slog.New(slog.NewTextHandler(&out, nil)))
		var reports []string
		s.duplicates.report = func(_ context.Context, namespace, check string, status uint32, output string) error {
			reports = append(reports, fmt.Sprintf("%s %s %d", namespace, check, status))
			if status != 0 && !strings.Contains(output, "pipe and pipe") {
				t.Errorf("no addresses in %q", output)
			}
			return nil
		}
		s.duplicates.failing = func() []resource.Name { return []resource.Name{{Namespace: "default", Name: "of-before"}} }
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.duplicates.run(ctx) })
		defer running.Wait()
		defer cancel()
		keepalive := func(p *peer) {
			if p.shared.Load() {
				s.duplicates.heard(p.session)
			}
		}
		leave := func(p *peer) {
			p.close()
			s.registry.remove(p.session)
		}
		want := func(when string, names int, all ...string) {
			t.Helper()
			synctest.Wait()
			if n := s.duplicates.count(); n != names || !slices.Equal(reports, all) {
				t.Errorf("%s: %d names, reports %q, want %d and %q", when, n, reports, names, all)
			}
		}

		// A reconnect: the backend does not know yet that the old session is dead, and the new one sends keepalives.
		dead := s.join(t, "moved", false)
		keepalive(dead)
		time.Sleep(time.Hour)
		moved := s.join(t, "moved", false)
		keepalive(dead) // had arrived before the connection broke
		for range 20 {
			time.Sleep(20 * time.Second)
			keepalive(moved)
		}
		const resolved = "default duplicate-agent-of-before 0" // left by an earlier process
		want("after a reconnect", 0, resolved)
		leave(dead)

		// Two hosts.
		one, two := s.join(t, "twin", false), s.join(t, "twin", true)
		for range 10 {
			time.Sleep(20 * time.Second)
			keepalive(one)
			keepalive(two)
		}
		want("with two", 1, resolved, "default duplicate-agent-twin 1")
		const line = `msg="several agents are connected under one name: give each a name of its own" ` +
			`agent=twin namespace=default addresses="pipe and pipe"`
		if text := out.String(); strings.Count(text, line) != 1 || strings.Contains(text, "agent=moved") {
			t.Errorf("it logs %s", text)
		}
		leave(two)
		time.Sleep(30 * time.Second)
		want("soon after one has left", 1, resolved, "default duplicate-agent-twin 1")
		two = s.join(t, "twin", true) // a mere reconnect
		for range 10 {
			time.Sleep(20 * time.Second)
			keepalive(one)
		}
		want("with two again", 1, resolved, "default duplicate-agent-twin 1")
		leave(one)
		time.Sleep(2 * time.Minute)
		want("long after one has left", 0, resolved, "default duplicate-agent-twin 1", "default duplicate-agent-twin 0")
		leave(two)
		leave(moved)
	})
}

func TestDuplicateCheckName(t *testing.T) {
	if got := duplicateCheckName("web-1"); got != "duplicate-agent-web-1" {
		t.Errorf("got %q", got)
	}
	long := duplicateCheckName(strings.Repeat("n", 255))
	if len(long) != 255 || long == duplicateCheckName(strings.Repeat("n", 254)+"m") {
		t.Errorf("got %q", long)
	}
}
