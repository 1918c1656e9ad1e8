//go:build unix

package agent

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

func (s *fakeSession) schedule(revision uint64, replace bool, entries ...wire.ScheduleEntry) {
	s.t.Helper()
	if err := s.Write(wire.AppendSchedule(nil, revision, replace, entries)); err != nil {
		s.t.Fatalf("send schedule: %v", err)
	}
}

// TestAgentGoesOnWithoutBackend disconnects an agent with a schedule: it keeps running its checks, with the entity as
// the backend had it, and the next session gets every result, once and in order.
func TestAgentGoesOnWithoutBackend(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	a, s := startAgent(t, b, nil)
	s.send(wire.TypeEntityConfig, &resource.EntityConfig{
		Metadata: resource.ObjectMeta{Name: "web-1", Namespace: "default", Labels: map[string]string{"rack": "r8"}}, EntityClass: "agent",
	})
	path := fifo(t)
	runs, err := os.OpenFile(path, os.O_RDWR, 0) // for both, so that no check waits for a reader
	if err != nil {
		t.Fatal(err)
	}
	defer runs.Close()
	check := every("tick", 1, 200, func(c *resource.CheckConfig) { c.Command = "echo {{ .labels.rack }}; echo >" + path })
	s.schedule(1, true, check)
	var results []received
	readTo := func(n int) {
		t.Helper()
		for deadline := time.Now().Add(patience); len(results) < n; {
			if time.Now().After(deadline) {
				t.Fatalf("%d results came, want %d", len(results), n)
			}
			results = append(results, slices.DeleteFunc(s.read(), func(r received) bool { return r.keepalive })...)
		}
	}
	readTo(2)
	s.ack(results[0].seq)
	ran, lost := len(results), slices.Clone(results[1:]) // not acknowledged

	b.become(func() { b.refuse = http.StatusServiceUnavailable })
	s.Close(wire.CloseGoingAway, "bye")
	for range ran + 4 {
		if _, err := runs.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if n := a.transport.Buffered(); n < len(lost)+3 { // the last result may not be there yet
		t.Fatalf("%d results held", n)
	}
	if a.Connected() {
		t.Fatal("connected")
	}
	b.become(func() { b.refuse = 0 })
	s = b.accept(t)
	s.send(wire.TypeEntityConfig, &resource.EntityConfig{Metadata: resource.ObjectMeta{Name: "web-1", Namespace: "default"}, EntityClass: "agent"})
	results = results[:1]
	readTo(1 + len(lost) + 3)
	if results[1].seq != lost[0].seq {
		t.Fatalf("got events from %d on, want them from %d on", results[1].seq, lost[0].seq)
	}
	before := len(results)
	s.schedule(1, true, check) // the same
	readTo(before + 2)
	for i, r := range results {
		c := r.event.Check
		// A tick is left out if the check of the one before still runs, which a slow machine may bring about.
		if i > 0 && (c.Issued <= results[i-1].event.Check.Issued || r.seq <= results[i-1].seq) {
			t.Errorf("number %d, issued at %d, after number %d, issued at %d", r.seq, c.Issued, results[i-1].seq, results[i-1].event.Check.Issued)
		}
		if i < 1+len(lost)+3 && c.Output != "r8\n" {
			t.Errorf("result %d: output %q", i, c.Output)
		}
	}
	if n := value(t, a.transport.metrics.dropped); n != 0 {
		t.Errorf("%v events given up", n)
	}
}

// TestAgentObeysASensuBackend moves an agent with a schedule to a backend without schedules.
func TestAgentObeysASensuBackend(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	a, s := startAgent(t, b, nil)
	s.schedule(1, true, every("tick", 1, 0))
	s.readCheck("tick")
	b.become(func() { b.stock = true })
	s.Close(wire.CloseGoingAway, "bye")
	s = b.accept(t)
	s.sendNotFound()
	waitFor(t, "the schedule is dropped", func() bool { return value(t, a.schedule.metrics.checks) == 0 })
	ran := value(t, a.schedule.metrics.ticks.WithLabelValues("accepted"))
	config := shellCheck("asked", "sleep 2.1") // past two ticks of the old schedule
	if ev := s.request(&resource.CheckRequest{Config: config, Issued: 1}); ev.Check.Status != 0 {
		t.Errorf("got %+v", ev.Check)
	}
	// A run that was due before may be counted after.
	if n := value(t, a.schedule.metrics.ticks.WithLabelValues("accepted")); n > ran+1 {
		t.Errorf("%v runs of the old schedule", n-ran)
	}
}

// TestAgentScheduleAndConcurrency: a check that still runs is not started again, and no more checks run than allowed.
func TestAgentScheduleAndConcurrency(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	a, s := startAgent(t, b, func(o *Options) { o.MaxConcurrency = 2 })
	var checks []wire.ScheduleEntry
	for i := range 6 {
		checks = append(checks, every(fmt.Sprint("check-", i), 1, 0, func(c *resource.CheckConfig) { c.Command = "sleep 0.6" }))
	}
	s.schedule(1, true, checks...)
	count := map[string]int{}
	for sum := 0; sum < 12; sum++ {
		for _, r := range s.readN(1) {
			count[r.check()]++
		}
		if n := value(t, a.checkMetrics.running); n > 2 {
			t.Errorf("%v checks are running", n)
		}
	}
	if n := value(t, a.schedule.metrics.ticks.WithLabelValues("in_progress")); n == 0 {
		t.Error("no tick met its check still running")
	}
	for i := range checks {
		if name := fmt.Sprint("check-", i); count[name] == 0 {
			t.Errorf("%s never ran: %v", name, count)
		}
	}
}
