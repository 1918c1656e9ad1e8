package test

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/lapwing-monitoring/lapwing/agent"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestScheduleOutlivesTheBackend kills the backend with SIGKILL while a lapwing agent is connected: the agent continues
// to run its checks, and the restarted backend gets every result, once and in order. The checks are always OK, so their
// occurrences are the number of their folded results.
func TestScheduleOutlivesTheBackend(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	p.start()
	c := p.client()
	for name, edit := range map[string]func(*resource.CheckConfig){
		"by-interval":    func(c *resource.CheckConfig) { c.Interval = 1 },
		"by-cron":        func(c *resource.CheckConfig) { c.Cron = "* * * * *" },
		"every-two":      func(c *resource.CheckConfig) { c.Cron = "@every 2s" },
		"by-round-robin": func(c *resource.CheckConfig) { c.Interval, c.RoundRobin = 1, true },
	} {
		check := &resource.CheckConfig{
			Metadata: resource.ObjectMeta{Name: name, Namespace: "default"}, Command: agent.TestCommand, Publish: true, Subscriptions: []string{"linux", "web"},
		}
		edit(check)
		if err := client.Put(t.Context(), c, client.Checks, "default", name, check); err != nil {
			t.Fatal(err)
		}
	}
	registry := prometheus.NewRegistry()
	a, err := agent.New(agent.Options{
		Name: "web-1", Subscriptions: []string{"linux", "web"}, BackendURLs: []string{"ws://127.0.0.1:" + p.agent},
		RetryMin: 20 * time.Millisecond, RetryMax: 200 * time.Millisecond, Registerer: registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Stop() }()
	ticks := func() float64 { return agentMetric(t, registry, "lapwing_agent_schedule_ticks_total", "accepted") }
	requests := func() float64 { return agentMetric(t, registry, "lapwing_agent_check_requests_total", "accepted") }
	eventually(t, 60*time.Second, "the agent has its schedule and runs it", func() bool { return ticks() >= 5 && requests() >= 2 })
	if n := agentMetric(t, registry, "lapwing_agent_schedule_checks", ""); n != 3 {
		t.Errorf("%v checks in the schedule, want all but round robin", n)
	}

	for range 2 {
		p.kill(syscall.SIGKILL)
		ran, asked := ticks(), requests()
		eventually(t, 60*time.Second, "checks run without a backend", func() bool { return ticks() >= ran+4 })
		if requests() != asked {
			t.Error("somebody asked for a run")
		}
		p.start()
		eventually(t, 60*time.Second, "the backend asks again", func() bool { return requests() > asked })
	}
	ran := ticks()
	eventually(t, 60*time.Second, "the schedule goes on", func() bool { return ticks() >= ran+3 })

	// Without any checks left, all runs can be counted.
	for _, name := range []string{"by-interval", "by-cron", "every-two", "by-round-robin"} {
		if err := client.Delete(t.Context(), c, client.Checks, "default", name); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 60*time.Second, "the schedule is empty and all is acknowledged", func() bool {
		return agentMetric(t, registry, "lapwing_agent_schedule_checks", "") == 0 && agentMetric(t, registry, "lapwing_agent_checks_running", "") == 0 &&
			agentMetric(t, registry, "lapwing_agent_buffered_events", "") == 0
	})
	var total int64
	for _, name := range []string{"by-interval", "by-cron", "every-two", "by-round-robin"} {
		ev, err := client.Get(t.Context(), c, client.Events, "default", client.EventName("web-1", name))
		if err != nil {
			if name == "by-cron" {
				continue // no minute began
			}
			t.Fatal(err)
		}
		total += ev.Check.Occurrences
		var executed []int64
		for _, h := range ev.Check.History {
			executed = append(executed, h.Executed)
		}
		if !slices.IsSorted(executed) || slices.ContainsFunc(ev.Check.History, func(h resource.CheckHistory) bool { return h.Status != 0 }) {
			t.Errorf("%s: history %+v", name, ev.Check.History)
		}
		if name != "by-interval" {
			continue
		}
		for i := 1; i < len(executed); i++ {
			if gap := executed[i] - executed[i-1]; gap < 1 || gap > 2 { // a second late at worst
				t.Errorf("%s: %d s between two runs: %v", name, gap, executed)
			}
		}
	}
	if want := int64(ticks() + requests()); total != want {
		t.Errorf("%d results are counted, %d runs were made", total, want)
	}
	if n := agentMetric(t, registry, "lapwing_agent_events_dropped_total", ""); n != 0 {
		t.Errorf("%v results were given up", n)
	}
	t.Logf("%d results; skipped: missed %v, in progress %v, duplicate %v", total, agentMetric(t, registry, "lapwing_agent_schedule_ticks_total", "missed"),
		agentMetric(t, registry, "lapwing_agent_schedule_ticks_total", "in_progress"), agentMetric(t, registry, "lapwing_agent_schedule_ticks_total", "duplicate"))
}

// agentMetric returns the value of an agent's metric, with a result if it has that label.
func agentMetric(t testing.TB, g prometheus.Gatherer, name, result string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if result == "" || slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "result" && l.GetValue() == result }) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
