//go:build unix

package agent

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"

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
	ran, err := os.OpenFile(path, os.O_RDWR, 0) // for both, so that no check waits for a reader
	if err != nil {
		t.Fatal(err)
	}
	defer ran.Close()
	check := every("tick", 1, 200, func(c *resource.CheckConfig) { c.Command = "echo {{ .labels.rack }}; echo >" + path })
	s.schedule(1, true, check)
	var results []received
	read := func() received {
		t.Helper()
		for {
			for _, r := range s.read() {
				if !r.keepalive {
					results = append(results, r)
					return r
				}
			}
		}
	}
	last := read()
	s.ack(last.seq)
	lost := read() // and not acknowledged

	b.become(func() { b.refuse = http.StatusServiceUnavailable })
	s.Close(wire.CloseGoingAway, "bye")
	for range 2 + 4 { // two ran before
		if _, err := ran.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if n := a.transport.Buffered(); n < 1+3 { // the last result may not be there yet
		t.Fatalf("%d results held", n)
	}
	if a.Connected() {
		t.Fatal("connected")
	}
	b.become(func() { b.refuse = 0 })
	s = b.accept(t)
	s.send(wire.TypeEntityConfig, &resource.EntityConfig{Metadata: resource.ObjectMeta{Name: "web-1", Namespace: "default"}, EntityClass: "agent"})
	resent := slices.DeleteFunc(s.read(), func(r received) bool { return r.keepalive })
	if resent[0].seq != lost.seq || len(resent) < 4 {
		t.Fatalf("got %d events from %d on, want 4 at least from %d on", len(resent), resent[0].seq, lost.seq)
	}
	results = append(results, resent[1:]...)
	before := len(results)
	s.schedule(1, true, check) // the same
	for range 2 {
		read()
	}
	for i, r := range results {
		c := r.event.Check
		if want := results[0].event.Check.Issued + int64(i); c.Issued != want {
			t.Errorf("result %d is issued at %d, want %d", i, c.Issued, want)
		}
		if i > 0 && r.seq <= results[i-1].seq {
			t.Errorf("number %d after %d", r.seq, results[i-1].seq)
		}
		if i < before && c.Output != "r8\n" {
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
