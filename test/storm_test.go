package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/longtest"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// stormAgents is how many agents fail; LAPWING_STORM sets another number.
var stormAgents = func() int {
	if n, err := strconv.Atoi(os.Getenv("LAPWING_STORM")); err == nil {
		return n
	}
	return 4000
}()

const (
	stormSpread  = 4 * time.Second  // in which their keepalives fail
	stormBegin   = 20 * time.Second // after the first of the last keepalives; all must be sent by then
	stormLate    = 2 * time.Second  // how late the last may fail on a machine that does everything at once
	stormWait    = 12 * time.Second // in which one alert collects them
	stormWorkers = 4                // of a handler, and so its processes
	stormRate    = 1000             // results per second of a healthy agent
)

// TestStorm makes the keepalives of 4,000 agents fail within five seconds, while another agent sends results. A handler
// with a group gets one alert for them all; one without runs for each, a few at a time; the results keep coming in at
// their rate. LAPWING_STORM=10000 is for a machine without other work:
//
//	LAPWING_STORM=10000 go test -tags long ./test -run 'TestStorm$' -v
func TestStorm(t *testing.T) {
	longtest.Only(t)
	b := testbackend.Start(t, nil)
	dir := t.TempDir()
	alerts, forks := filepath.Join(dir, "alerts"), filepath.Join(dir, "forks")
	putHandler(t, b, &resource.Handler{Type: "set", Handlers: []string{"folded", "each"}}, "keepalive")
	putHandler(t, b, &resource.Handler{
		Type: "pipe", Filters: []string{"is_incident"}, Command: "cat >> " + alerts + "; echo >> " + alerts,
		Group: &resource.HandlerGroup{By: []string{"check.name"}, Wait: uint32(stormWait.Seconds()), Interval: 300},
	}, "folded")
	putHandler(t, b, &resource.Handler{
		Type: "pipe", Filters: []string{"is_incident"}, Command: "echo + >> " + forks + "; sleep 0.2; echo - >> " + forks, Concurrency: stormWorkers,
	}, "each")

	fleet := &fleet{t: t, b: b}
	stalls := startStalls(t)
	begin := time.Now()
	fleet.register()
	t.Logf("%d agents registered in %v", stormAgents, time.Since(begin).Round(time.Millisecond))

	steady := startSteady(t, b)
	begin, stalled := time.Now(), stalls.lost()
	before := steady.rate(3 * time.Second)
	if before < 0.9*stormRate {
		stalled, over := stalls.lost()-stalled, time.Since(begin)
		if stalled > over/10 {
			t.Skipf("results come in at %.0f/s without a storm, of %d/s: this machine stood still for %v of %v", before, stormRate, stalled, over)
		}
		t.Errorf("results come in at %.0f/s without a storm, of %d/s", before, stormRate)
	}
	begin = time.Now()
	sentAll := fleet.keepalives(begin.Add(stormBegin), stormSpread)
	sending := time.Since(begin)
	t.Logf("their last keepalives came in %v", sending.Round(time.Millisecond))
	fleet.failed()
	if !sentAll || sending > stormBegin {
		t.Skipf("the keepalives took %v to send, longer than %v: this machine is too slow for the storm", sending, stormBegin)
	}

	stalled = stalls.lost()
	eventually(t, 60*time.Second, "the first keepalive fails", func() bool { return fleet.failed() > 0 })
	first := time.Now()
	during := steady.rate(4 * time.Second)
	stalledThen, watched := stalls.lost()-stalled, time.Since(first)
	eventually(t, 30*time.Second+stormBegin, "all have failed", func() bool { return fleet.failed() >= stormAgents })
	spread, late := time.Since(first), time.Since(fleet.lastDue())
	stalled = stalls.lost() - stalled
	// Firing a deadline is less work than taking a keepalive.
	if most := stormLate + sending + stalled; late > most {
		t.Fatalf("the last failure came %v late. The keepalives took %v to send, and this machine stood still for %v: %v would do", late, sending, stalled, most)
	}
	if spread > stormWait-time.Second { // plus what this machine took beyond stormLate
		t.Skipf("the failures came in %v: no storm. The keepalives took %v to send, and this machine stood still for %v", spread, sending, stalled)
	}
	var lines []string
	eventually(t, time.Minute, "the alert", func() bool {
		text, _ := os.ReadFile(alerts)
		lines = strings.Split(strings.TrimSpace(string(text)), "\n")
		return strings.HasSuffix(string(text), "\n")
	})
	took := time.Since(first)
	var after float64
	for range 10 { // the alert's one-time cost is not part of the rate
		if after = max(after, steady.rate(3*time.Second)); after >= 0.9*before {
			break
		}
	}
	steady.stop()

	var alert resource.Event
	if err := json.Unmarshal([]byte(lines[0]), &alert); err != nil || len(lines) != 1 {
		t.Fatalf("%d alerts, the first is %.500s: %v", len(lines), lines[0], err)
	}
	title, _, _ := strings.Cut(alert.Check.Output, "\n")
	var members []struct{ Entity string }
	if err := json.Unmarshal([]byte(alert.Metadata.Annotations["lapwing.io/folded"]), &members); err != nil || len(members) != stormAgents {
		t.Errorf("the alert lists %d of %d agents, %v", len(members), stormAgents, err)
	}
	if want := fmt.Sprintf("%d keepalives failing (%d warning)", stormAgents, stormAgents); title != want {
		t.Errorf("the alert says %q, want %q", title, want)
	}
	most, all := concurrent(t, forks)
	if most > stormWorkers || all < stormWorkers {
		t.Errorf("%d processes ran at a time, of %d in all; %d may", most, all, stormWorkers)
	}
	// A rate is measured over seconds, so a pause of a few hundred milliseconds shows as a few percent.
	if still := stalledThen > watched/10; during < 0.9*before && !still || after < 0.9*before {
		t.Errorf("results came in at %.0f/s before the storm, %.0f/s in it and %.0f/s after it", before, during, after)
	}
	if extra, _ := os.ReadFile(alerts); strings.Count(string(extra), "\n") != 1 {
		t.Errorf("there are %d alerts in the end", strings.Count(string(extra), "\n"))
	}
	t.Logf("%d keepalives failed in %v; one alert %v after the first; %d processes at a time, %d in all; results at %.0f/s before, %.0f/s in the storm, %.0f/s after",
		stormAgents, spread.Round(time.Millisecond), took.Round(time.Millisecond), most, all, before, during, after)
}

// fleet is agents whose keepalives come through the API.
type fleet struct {
	t *testing.T
	b *testbackend.Backend
	// Each keepalive must fail between these: its timeout after it was sent, and after it was taken.
	earliest, latest []time.Time
	timeout          []time.Duration // after it has failed, it fails again after each
}

// all calls do for each agent, and returns when it is done.
func (f *fleet) all(do func(ctx context.Context, name string) error) {
	f.t.Helper()
	const senders = 64
	var sending sync.WaitGroup
	for first := range senders {
		sending.Go(func() {
			for i := first; i < stormAgents; i += senders {
				if err := do(f.t.Context(), fmt.Sprintf("host-%05d", i)); err != nil {
					f.t.Error(err)
					return
				}
			}
		})
	}
	sending.Wait()
}

func (f *fleet) register() {
	f.all(func(ctx context.Context, name string) error {
		return inTime(func() error {
			return client.Put(ctx, f.b.Client, client.Entities, "default", name, testbackend.Entity(name))
		})
	})
}

// inTime repeats a request as long as the backend answers that it could not do it in time.
func inTime(do func() error) error {
	for {
		err := do()
		if late, ok := errors.AsType[*client.Error](err); !ok || late.Status != http.StatusGatewayTimeout {
			return err
		}
	}
}

// keepalives sends one of each agent. They time out from a moment on, spread over a time, regardless of how long
// sending takes. Once it takes longer than to that moment, no more are sent, and it returns false.
func (f *fleet) keepalives(from time.Time, over time.Duration) bool {
	var sent atomic.Int64
	var late atomic.Bool
	f.earliest, f.latest = make([]time.Time, stormAgents), make([]time.Time, stormAgents)
	f.timeout = make([]time.Duration, stormAgents)
	f.all(func(ctx context.Context, name string) error {
		if time.Now().After(from) {
			late.Store(true)
			return nil
		}
		n := sent.Add(1)
		until := time.Until(from.Add(over * time.Duration(n) / time.Duration(stormAgents)))
		ev := testbackend.Event(name, "keepalive", 0, time.Now().Unix())
		ev.Check.Interval, ev.Check.Timeout, ev.Check.Handlers = 60, uint32(max(1, until.Seconds())), []string{"keepalive"}
		timeout := time.Duration(ev.Check.Timeout) * time.Second
		f.timeout[n-1] = timeout
		f.earliest[n-1] = time.Now().Truncate(time.Millisecond).Add(timeout)
		return inTime(func() error {
			err := client.Put(ctx, f.b.Client, client.Events, "default", client.EventName(name, "keepalive"), ev)
			f.latest[n-1] = time.Now().Add(timeout)
			return err
		})
	})
	return !late.Load()
}

// failed returns how often keepalives have failed. They may not have failed more often than was due.
func (f *fleet) failed() int {
	f.t.Helper()
	n, now, due := int(received(f.t, f.b, "deadline")), time.Now(), 0
	for i, first := range f.earliest {
		if f.timeout[i] > 0 && !first.After(now) {
			due += 1 + int(now.Sub(first)/f.timeout[i])
		}
	}
	if n > due {
		f.t.Fatalf("keepalives have failed %d times, and only %d were due", n, due)
	}
	return n
}

// lastDue is when the last keepalive must fail.
func (f *fleet) lastDue() time.Time { return slices.MaxFunc(f.latest, time.Time.Compare) }

// stalls measures how long the machine does not run this process.
type stalls struct{ sum atomic.Int64 }

func startStalls(t *testing.T) *stalls {
	s := new(stalls)
	over := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		const step = 10 * time.Millisecond
		tick := time.NewTicker(step)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			now := time.Now()
			if took := now.Sub(last); took > 2*step {
				s.sum.Add(int64(took - step))
			}
			last = now
		}
	})
	t.Cleanup(func() { close(over); running.Wait() })
	return s
}

// lost is the sum of the stalls so far.
func (s *stalls) lost() time.Duration { return time.Duration(s.sum.Load()) }

// drain reads what the backend sends until the connection ends.
func drain(conn *wire.Conn) {
	for {
		if _, err := conn.Read(); err != nil {
			return
		}
	}
}

// steady is an agent that sends results at a constant rate.
type steady struct {
	t       *testing.T
	b       *testbackend.Backend
	running sync.WaitGroup
	over    atomic.Bool
}

func startSteady(t *testing.T, b *testbackend.Backend) *steady {
	s := &steady{t: t, b: b}
	conn, _ := b.DialAgent(t, "steady", nil)
	go drain(conn)
	s.running.Go(func() {
		const step = 20 * time.Millisecond
		tick := time.NewTicker(step)
		defer tick.Stop()
		begin, sent := time.Now(), 0
		for !s.over.Load() {
			<-tick.C
			for due := int(time.Since(begin).Seconds() * stormRate); sent < due; sent++ {
				ev := testbackend.Event("steady", fmt.Sprint("check-", sent%50), 0, time.Now().Unix())
				frame, err := wire.Append(nil, wire.TypeEvent, wire.Protobuf, ev)
				if err == nil {
					err = conn.Write(frame)
				}
				if err != nil {
					t.Errorf("result: %v", err)
					return
				}
			}
		}
	})
	t.Cleanup(s.stop)
	return s
}

func (s *steady) stop() {
	s.over.Store(true)
	s.running.Wait()
}

// rate returns the results per second that are taken during a time.
func (s *steady) rate(over time.Duration) float64 {
	s.t.Helper()
	begin, n := time.Now(), received(s.t, s.b, "agent")
	<-time.After(over) // what is measured is a rate
	return (received(s.t, s.b, "agent") - n) / time.Since(begin).Seconds()
}

// received returns how many events were taken from a source.
func received(t testing.TB, b *testbackend.Backend, source string) float64 {
	t.Helper()
	families, err := b.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "lapwing_events_received_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "source" && l.GetValue() == source {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}

// concurrent reads lines of + and -, and returns how many were open at a time and how many there were in all.
func concurrent(t *testing.T, path string) (most, all int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	open := 0
	for line := range strings.Lines(string(text)) {
		if strings.TrimSpace(line) == "+" {
			open++
			all++
			most = max(most, open)
		} else {
			open--
		}
	}
	return most, all
}
