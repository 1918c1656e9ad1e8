package test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/agent"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/longtest"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// runAgent runs a lapwing agent until stop is called, or the test ends.
func runAgent(t *testing.T, b *testbackend.Backend, name string, subscriptions ...string) (stop func()) {
	t.Helper()
	a, err := agent.New(agent.Options{
		Name: name, Subscriptions: subscriptions, BackendURLs: []string{b.URL()}, RetryMin: 20 * time.Millisecond, RetryMax: 200 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	stop = func() { _ = a.Stop() }
	t.Cleanup(stop)
	return stop
}

// TestLateChecks follows a check that no agent runs: it is in the lists, the metrics and an event of the backend. Then
// an agent runs it, stops, and the check is deleted. Another check, which always runs, is never reported.
func TestLateChecks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func() *testbackend.Backend {
		return testbackend.Start(t, func(o *testbackend.Options) {
			o.StateDir = dir
			o.Lateness.Every, o.Lateness.Grace = 100*time.Millisecond, time.Second
			o.Lateness.Silence, o.Lateness.Reconnect = time.Second, time.Second
		})
	}
	b := start()
	put := func(name, subscription string, timeout uint32) {
		t.Helper()
		c := &resource.CheckConfig{
			Metadata: resource.ObjectMeta{Name: name, Namespace: "default"}, Command: agent.TestCommand, Interval: 1, Timeout: timeout, Publish: true,
			Subscriptions: []string{subscription},
		}
		if err := client.Put(t.Context(), b.Client, client.Checks, "default", name, c); err != nil {
			t.Fatal(err)
		}
	}
	put("runs", "linux", 600) // a busy machine may stand still
	put("unrun", "web", 0)
	lateness := func(name string) *resource.CheckLateness {
		t.Helper()
		l, err := b.Client.CheckLateness(t.Context(), "default", name)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	reported := func(status func(uint32) bool, words string) func() bool {
		return func() bool {
			ev, err := client.Get(t.Context(), b.Client, client.Events, "default", client.EventName(resource.BackendEntity, "late-check-unrun"))
			return err == nil && status(ev.Check.Status) && strings.Contains(ev.Check.Output, words)
		}
	}
	failing, fine := func(status uint32) bool { return status > 0 }, func(status uint32) bool { return status == 0 }
	runAgent(t, b, "linux-1", "linux")
	eventually(t, time.Minute, "no agent has its subscription", func() bool {
		l := lateness("unrun")
		return strings.HasPrefix(l.Summary, "never ran: no agent has subscription web") && slices.Equal(l.WithoutAgent, []string{"web"})
	})
	eventually(t, time.Minute, "the other check runs", func() bool { l := lateness("runs"); return l.LastRun > 0 && l.Summary == "" })
	eventually(t, time.Minute, "it is reported", reported(failing, "No connected agent has the subscription web. Start an agent with that"))
	eventually(t, time.Minute, "it is in the metrics", func() bool {
		return b.Counter(t, "lapwing_checks_late") == 1 && b.Counter(t, "lapwing_check_without_agent") == 1 &&
			b.Counter(t, "lapwing_check_lateness_seconds") > 1
	})

	stop := runAgent(t, b, "web-1", "web")
	eventually(t, time.Minute, "it runs", reported(fine, "The check unrun runs again: its newest result came at"))
	stop()
	eventually(t, time.Minute, "it does not run any more", reported(failing, "No agent has run the check unrun since"))
	eventually(t, time.Minute, "its event is overdue", func() bool {
		late, err := b.Client.EventsLateness(t.Context(), "default", client.ListOptions{FieldSelector: "event.check.name == unrun"})
		if err != nil {
			t.Fatal(err)
		}
		return len(late) == 1 && late[0].Entity == "web-1" && late[0].Overdue > 0 && strings.HasPrefix(late[0].Summary, "overdue by ")
	})
	if l, err := b.Client.EventLateness(t.Context(), "default", "web-1/unrun"); err != nil || l.Overdue == 0 {
		t.Errorf("%+v, %v", l, err)
	}
	last := lateness("unrun").LastRun

	// Another process knows it from the state, and says nothing before it has listened.
	if err := b.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	b = start()
	if l := lateness("unrun"); l.LastRun != last {
		t.Errorf("after a restart %+v, want the last run at %d", l, last)
	}
	if !reported(failing, "No agent has run the check unrun since")() {
		t.Error("a restart has resolved the event")
	}
	eventually(t, time.Minute, "it is late again", func() bool { return lateness("unrun").Overdue > 0 })
	if err := client.Delete(t.Context(), b.Client, client.Checks, "default", "unrun"); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "it is deleted", reported(fine, "The check is not defined any more"))
	if _, err := client.Get(t.Context(), b.Client, client.Events, "default", client.EventName(resource.BackendEntity, "late-check-runs")); err == nil {
		t.Error("the check that runs was reported")
	}
}

// TestLateChecksOfACluster: all members know when a check ran and which subscriptions agents have, wherever these are
// connected, and one of them makes the event.
func TestLateChecksOfACluster(t *testing.T) {
	longtest.Only(t)
	t.Parallel()
	all := newMembers(t, 3)
	all.start()
	var clients []*client.Client
	for _, p := range all {
		clients = append(clients, p.client())
	}
	for name, subscription := range map[string]string{"runs": "web", "unrun": "none"} {
		c := &resource.CheckConfig{
			Metadata: resource.ObjectMeta{Name: name, Namespace: "default"}, Command: agent.TestCommand, Interval: 10, Timeout: 600, Publish: true,
			Subscriptions: []string{subscription},
		}
		if name == "unrun" {
			c.Timeout = 0
		}
		if err := client.Put(t.Context(), clients[0], client.Checks, "default", name, c); err != nil {
			t.Fatal(err)
		}
	}
	a, err := agent.New(agent.Options{Name: "web-1", Subscriptions: []string{"web"}, BackendURLs: []string{"ws://127.0.0.1:" + all[1].agent}})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Stop() }()
	for i, c := range clients {
		want := func(check, summary string, ran bool) {
			eventually(t, time.Minute, fmt.Sprintf("member %d knows: %s %q", i, check, summary), func() bool {
				l, err := c.CheckLateness(t.Context(), "default", check)
				return err == nil && l.Summary == summary && (l.LastRun > 0) == ran
			})
		}
		want("runs", "", true)
		want("unrun", "never ran: no agent has subscription none", false)
	}
	var ev *resource.Event
	eventually(t, 5*time.Minute, "the check is reported", func() bool {
		ev, err = client.Get(t.Context(), clients[2], client.Events, "default", client.EventName(resource.BackendEntity, "late-check-unrun"))
		return err == nil
	})
	if h := ev.Check.History; len(h) != 1 || !strings.Contains(ev.Check.Output, "No connected agent has the subscription none") {
		t.Errorf("history %+v, output %q", h, ev.Check.Output)
	}
	if _, err := client.Get(t.Context(), clients[0], client.Events, "default", client.EventName(resource.BackendEntity, "late-check-runs")); err == nil {
		t.Error("the check that runs was reported")
	}
}
