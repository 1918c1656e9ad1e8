package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/agent"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestDrain moves a small fleet between two independent backends: one is drained, its agents move to the other, and
// back. Exactly one of the backends must have every run of every check.
func TestDrain(t *testing.T) {
	t.Parallel()
	const agents = 24 // half of them prefer the first backend
	var mu sync.Mutex
	heard := map[string][]int{} // the runs of each agent that either backend reported
	a, b := newFleetBackend(t, &mu, heard), newFleetBackend(t, &mu, heard)
	dir := t.TempDir()
	check := &resource.CheckConfig{
		Metadata: resource.ObjectMeta{Name: "count", Namespace: "default"}, Interval: 1, Publish: true, Subscriptions: []string{"fleet"}, Handlers: []string{"told"},
		Command: `f=` + dir + `/{{ .name }}; n=$(cat $f 2>/dev/null || echo 0); n=$((n+1)); echo $n > $f.new; mv $f.new $f; echo "run $n"`,
	}
	for _, one := range []*testbackend.Backend{a, b} {
		if err := client.Put(t.Context(), one.Client, client.Checks, "default", "count", check); err != nil {
			t.Fatal(err)
		}
	}
	name := func(i int) string { return fmt.Sprintf("agent-%02d", i) }
	var fleet []*agent.Agent
	for i := range agents {
		one, err := agent.New(agent.Options{
			Name: name(i), Subscriptions: []string{"fleet"}, BackendURLs: []string{a.URL(), b.URL()}, InOrder: i%2 == 0,
			KeepaliveInterval: time.Second, KeepaliveWarningTimeout: time.Hour, RetryMin: 50 * time.Millisecond, RetryMax: 500 * time.Millisecond,
			SpoolDir: filepath.Join(dir, "spool"), BatchDelay: 100 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := one.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = one.Stop() })
		fleet = append(fleet, one)
	}
	sessions := func(one *testbackend.Backend) int { return int(one.Counter(t, "lapwing_agent_sessions")) }
	ran := func(times int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			for i := range agents {
				if len(heard[name(i)]) < times {
					return false
				}
			}
			return true
		}
	}
	most := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, r := range heard {
			n = max(n, len(r))
		}
		return n
	}
	eventually(t, 60*time.Second, "every agent's check has run", ran(2))
	if n := sessions(a); n < agents/2 {
		t.Fatalf("%d of %d that prefer the first backend are there", n, agents/2)
	}

	// All of the first backend's agents move to the second, and the first accepts none.
	if _, err := a.Client.Drain(t.Context(), "", 3*time.Second); err != nil {
		t.Fatal(err)
	}
	if n := a.Counter(t, "lapwing_agent_draining"); n != 1 {
		t.Errorf("lapwing_agent_draining is %v", n)
	}
	eventually(t, 60*time.Second, "the first backend is empty", func() bool { return sessions(a) == 0 && sessions(b) == agents })
	if _, _, err := a.TryDialAgent("late", nil); !refused(err) {
		t.Errorf("a new agent got %v", err)
	}
	if err := a.Client.Ready(t.Context()); err == nil {
		t.Error("the backend says that it is ready")
	}
	if resp, err := http.Get(strings.Replace(a.URL(), "ws", "http", 1) + "/ready"); err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("on the agents' port: %v, %v", resp, err)
	} else {
		_ = resp.Body.Close()
	}
	eventually(t, 60*time.Second, "checks go on there", ran(most()+2))

	// When it accepts agents again, those that prefer it return by themselves, and the others when the second is
	// drained.
	if err := a.Client.Undrain(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, "those that prefer the first backend are back", func() bool { return sessions(a) == agents/2 && sessions(b) == agents/2 })
	if _, err := b.Client.Drain(t.Context(), "", 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, "all are back", func() bool { return sessions(a) == agents && sessions(b) == 0 })
	eventually(t, 60*time.Second, "checks go on there, too", ran(most()+2))

	// No more runs, and then the comparison.
	for _, one := range []*testbackend.Backend{a, b} {
		if err := client.Delete(t.Context(), one.Client, client.Checks, "default", "count"); err != nil {
			t.Fatal(err)
		}
	}
	ended := func(i int) int {
		text, err := os.ReadFile(filepath.Join(dir, name(i)))
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	settled := func() bool {
		mu.Lock()
		defer mu.Unlock()
		for i := range agents {
			if len(heard[name(i)]) < ended(i) {
				return false
			}
		}
		return true
	}
	stable := time.Now()
	runs := 0
	eventually(t, 60*time.Second, "all runs are told of", func() bool {
		now := 0
		for i := range agents {
			now += ended(i)
		}
		if now != runs || !settled() {
			runs, stable = now, time.Now()
		}
		return time.Since(stable) > 3*time.Second // three intervals without another run
	})
	for _, one := range fleet {
		if err := one.Stop(); err != nil {
			t.Error(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for i := range agents {
		got := heard[name(i)]
		slices.Sort(got) // each backend reports at its own times
		for n, run := range got {
			if run != n+1 {
				t.Errorf("%s: the runs that were told of are %v", name(i), got)
				break
			}
		}
		if n := ended(i); len(got) != n {
			t.Errorf("%s: %d runs, %d told of", name(i), n, len(got))
		}
	}
	t.Logf("%d runs of %d agents", runs, agents)
}

func refused(err error) bool {
	var refusal *wire.HandshakeError
	return errors.As(err, &refusal) && refusal.Status == http.StatusServiceUnavailable && strings.Contains(refusal.Body, "draining")
}

// newFleetBackend is a backend that reports every run of every check.
func newFleetBackend(t *testing.T, mu *sync.Mutex, heard map[string][]int) *testbackend.Backend {
	t.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var ev resource.Event
		var run int
		if err := json.Unmarshal(body, &ev); err != nil {
			t.Errorf("receiver got %q: %v", body, err)
			return
		}
		if _, err := fmt.Sscanf(ev.Check.Output, "run %d", &run); err != nil {
			t.Errorf("receiver got output %q", ev.Check.Output)
		}
		mu.Lock()
		defer mu.Unlock()
		heard[ev.Entity.Metadata.Name] = append(heard[ev.Entity.Metadata.Name], run)
	}))
	t.Cleanup(receiver.Close)
	b := testbackend.Start(t, nil)
	putHandler(t, b, &resource.Handler{Type: "webhook", Webhook: &resource.HandlerWebhook{URL: receiver.URL}}, "told")
	return b
}
