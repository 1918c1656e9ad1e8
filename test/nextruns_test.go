package test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/agent"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestNextRunsOfAnAgent: a lapwing agent runs a check at the moments that the backend tells, with --entity and as the only agent.
func TestNextRunsOfAnAgent(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	p.start()
	nextRuns(t, p, p)
}

// TestNextRunsOfAnotherMember: a member that an agent has no session with asks the member that has it.
func TestNextRunsOfAnotherMember(t *testing.T) {
	t.Parallel()
	all := newMembers(t, 3)
	all.start()
	nextRuns(t, all[0], all[1])
}

// nextRuns has two agents join a backend and asks a backend when they run a check.
func nextRuns(t *testing.T, asked, joined *process) {
	c := asked.client()
	const every = 3
	check := &resource.CheckConfig{Metadata: resource.ObjectMeta{Name: "disk", Namespace: "default"}, Command: agent.TestCommand,
		Publish: true, Interval: every, Subscriptions: []string{"linux"}}
	if err := client.Put(t.Context(), c, client.Checks, "default", "disk", check); err != nil {
		t.Fatal(err)
	}
	join := func(name string) {
		t.Helper()
		a, err := agent.New(agent.Options{Name: name, Subscriptions: []string{"linux"}, BackendURLs: []string{"ws://127.0.0.1:" + joined.agent}})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = a.Stop() })
	}
	next := func(query string) (r resource.CheckRuns) {
		t.Helper()
		if err := c.Do(t.Context(), http.MethodGet, "/api/lapwing/v1/namespaces/default/checks/disk/next?count=20"+query, nil, &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	requests := next("") // those of agents that are asked
	join("web-1")
	var alone resource.CheckRuns
	eventually(t, 30*time.Second, "the only agent's moments are told", func() bool { alone = next(""); return alone.Agent == "web-1" })
	join("web-2")
	eventually(t, 30*time.Second, "both agents count", func() bool { return next("").Spread })
	told := map[string]resource.CheckRuns{"web-1": alone, "web-2": next("&entity=web-2")}
	shifted := false
	for name, runs := range told {
		if runs.Agent != name || len(runs.Runs) != 20 {
			t.Fatalf("%s: told %+v", name, runs)
		}
		shifted = shifted || (runs.Runs[0]-requests.Runs[0])%every != 0
		eventually(t, 60*time.Second, name+" ran the check twice", func() bool {
			ev, err := client.Get(t.Context(), c, client.Events, "default", client.EventName(name, "disk"))
			if err != nil || ev.Check.Occurrences < 2 {
				return false
			}
			if (ev.Check.Issued-runs.Runs[0])%every != 0 { // it may be later than all that were told
				t.Fatalf("%s ran at %d, told %v", name, ev.Check.Issued, runs.Runs)
			}
			return true
		})
	}
	if !shifted {
		t.Error("both agents run the check at the times of the requests: the test shows nothing")
	}
}
