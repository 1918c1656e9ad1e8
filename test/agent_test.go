package test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/agent"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestAgentFromCheckToHandler runs a lapwing agent against a backend: a check that fails twice and recovers is
// scheduled, run, folded and handled. Then the agent dies, its keepalive fails, and a new agent of that name resolves
// it.
func TestAgentFromCheckToHandler(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	dir := t.TempDir()
	out := filepath.Join(dir, "handled")
	putHandler(t, b, &resource.Handler{Type: "pipe", Command: "cat >> " + out + "; echo >> " + out, Filters: []string{"is_incident"}, Timeout: 10}, "file")
	check := &resource.CheckConfig{
		Metadata: resource.ObjectMeta{Name: "counting", Namespace: "default"},
		Command:  `n=$(cat ` + dir + `/n 2>/dev/null || echo 0); n=$((n+1)); echo $n > ` + dir + `/n; echo "run $n of $WHO"; [ $n -gt 2 ] || exit 2`,
		Interval: 1, Publish: true, Subscriptions: []string{"one", "two"}, Handlers: []string{"file"}, EnvVars: []string{"WHO=agent"},
	}
	if err := client.Put(t.Context(), b.Client, client.Checks, "default", "counting", check); err != nil {
		t.Fatal(err)
	}
	start := func() (stop func()) {
		a, err := agent.New(agent.Options{
			Name: "worker", Subscriptions: []string{"one", "two"}, BackendURLs: []string{b.URL()},
			KeepaliveInterval: time.Second, KeepaliveWarningTimeout: 5 * time.Second, KeepaliveHandlers: []string{"file"}, RetryMin: 50 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		return func() { _ = a.Stop() }
	}
	stop := start()
	defer func() { stop() }()
	handled := func() (events []resource.Event) {
		text, _ := os.ReadFile(out)
		for line := range strings.Lines(string(text)) {
			var ev resource.Event
			if json.Unmarshal([]byte(line), &ev) == nil && ev.Check != nil {
				events = append(events, ev)
			}
		}
		return events
	}
	eventually(t, 60*time.Second, "two incidents and the recovery are handled", func() bool { return len(handled()) >= 3 })
	var statuses []uint32
	var outputs []string
	for _, ev := range handled()[:3] {
		statuses, outputs = append(statuses, ev.Check.Status), append(outputs, strings.TrimSpace(ev.Check.Output))
	}
	if !slices.Equal(statuses, []uint32{2, 2, 0}) || !slices.Equal(outputs, []string{"run 1 of agent", "run 2 of agent", "run 3 of agent"}) {
		t.Fatalf("handled %v %v", statuses, outputs)
	}
	if n := len(handled()); n != 3 {
		t.Errorf("%d events were handled, want 3: OK after OK is no incident", n)
	}
	ent, err := client.Get(t.Context(), b.Client, client.Entities, "default", "worker")
	if err != nil || ent.System.OS != "linux" || !slices.Contains(ent.Subscriptions, "entity:worker") {
		t.Fatalf("entity %+v, %v", ent, err)
	}

	stop()
	keepalive := func() *resource.Check {
		ev, err := client.Get(t.Context(), b.Client, client.Events, "default", client.EventName("worker", "keepalive"))
		if err != nil {
			t.Fatal(err)
		}
		return ev.Check
	}
	eventually(t, 60*time.Second, "the keepalive warns", func() bool { return keepalive().Status == 1 })
	if c := keepalive(); c.Occurrences != 1 || !strings.HasPrefix(c.Output, "No keepalive sent from worker for ") || !strings.HasSuffix(c.Output, " seconds (>= 5)") {
		t.Errorf("keepalive %+v", c)
	}
	eventually(t, 60*time.Second, "that is handled", func() bool { return len(handled()) >= 4 })
	stop = start()
	eventually(t, 60*time.Second, "a new agent resolves it", func() bool { return keepalive().Status == 0 })
	eventually(t, 60*time.Second, "and that is handled too", func() bool {
		n := handled()
		return n[len(n)-1].Check.Metadata.Name == "keepalive" && n[len(n)-1].Check.Status == 0
	})
}
