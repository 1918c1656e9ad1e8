package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/agent"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestCrashes kills the backend with SIGKILL at random moments while agents report 2,000 events/s and a client posts
// more through the API. Events that were acknowledged to an agent, or by the API with 2xx, must be in the state after
// each restart; in the end every event must be there exactly once. All results are OK, so a check's occurrences are the
// number of its folded results.
//
// It kills three times; LAPWING_CRASHES sets another number.
func TestCrashes(t *testing.T) {
	t.Parallel()
	crashes := 3
	if n, err := strconv.Atoi(os.Getenv("LAPWING_CRASHES")); err == nil {
		crashes = n
	}
	const agents, checks, rate = 10, 5, 2000
	p := newProcess(t)
	p.start()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	senders := make([]*sender, agents)
	for i := range senders {
		senders[i] = newSender(t, fmt.Sprintf("agent-%d", i), "ws://127.0.0.1:"+p.agent, checks)
		running.Go(func() { senders[i].transport.Run(ctx) })
	}
	stop := make(chan struct{})
	var sending sync.WaitGroup
	for _, s := range senders {
		sending.Go(func() { s.send(stop, rate/agents) })
	}
	var viaAPI apiSender
	c := p.client()
	sending.Go(func() { viaAPI.send(ctx, stop, c) })

	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	var slowest time.Duration
	for n := range crashes {
		pause := time.NewTimer(time.Second + time.Duration(rng.IntN(2000))*time.Millisecond)
		<-pause.C
		p.kill(syscall.SIGKILL)
		acked := make([]uint64, agents)
		for i, s := range senders {
			acked[i] = s.acked.Load()
		}
		answered := viaAPI.ok.Load()
		took := p.start()
		slowest = max(slowest, took)
		if took > time.Minute {
			t.Errorf("start %d took %s", n+1, took)
		}
		for i, s := range senders {
			for check := range checks {
				if got, want := occurrences(t, c, s.name, check), s.sentUpTo(acked[i], check); got < want {
					t.Errorf("crash %d: %s/check-%d has %d results, but %d were acknowledged before", n+1, s.name, check, got, want)
				}
			}
		}
		if got := occurrences(t, c, "api", 0); got < answered {
			t.Errorf("crash %d: %d results came through the API, but %d were answered 2xx before", n+1, got, answered)
		}
		if t.Failed() {
			break
		}
	}
	close(stop)
	sending.Wait()
	eventually(t, 60*time.Second, "all events are acknowledged", func() bool {
		for _, s := range senders {
			if s.transport.Buffered() > 0 {
				return false
			}
		}
		return true
	})
	total := int64(0)
	for _, s := range senders {
		for check := range checks {
			got, want := occurrences(t, c, s.name, check), s.sentUpTo(s.last.Load(), check)
			if got != want {
				t.Errorf("%s/check-%d has %d results, %d were sent", s.name, check, got, want)
			}
			total += got
		}
	}
	if got, least, most := occurrences(t, c, "api", 0), viaAPI.ok.Load(), viaAPI.ok.Load()+viaAPI.unknown.Load(); got < least || got > most {
		t.Errorf("%d results came through the API; %d were answered 2xx and %d not at all", got, least, most-least)
	}
	t.Logf("%d crashes, %d agent events and %d API events, each once; slowest start %s", crashes, total, viaAPI.ok.Load(), slowest.Round(time.Millisecond))
}

func occurrences(t testing.TB, c *client.Client, entity string, check int) int64 {
	t.Helper()
	var ev *resource.Event
	eventually(t, 60*time.Second, fmt.Sprintf("%s/check-%d can be read", entity, check), func() (ok bool) {
		var err error
		ev, err = client.Get(context.Background(), c, client.Events, "default", client.EventName(entity, fmt.Sprintf("check-%d", check)))
		return err == nil
	})
	h := ev.Check.History
	for i := 1; i < len(h); i++ {
		if h[i].Executed <= h[i-1].Executed {
			t.Errorf("%s/check-%d: history out of order: %v", entity, check, h)
			break
		}
	}
	return ev.Check.Occurrences
}

// sender is an agent that reports as many results as required.
type sender struct {
	name      string
	checks    int
	transport *agent.Transport
	acked     atomic.Uint64
	onAcked   func() // set before the transport runs; may be nil

	mu   sync.Mutex
	seqs [][]uint64 // by check, the numbers of its events
	last atomic.Uint64
}

func newSender(t testing.TB, name, url string, checks int, more ...string) *sender {
	t.Helper()
	s := &sender{name: name, checks: checks, seqs: make([][]uint64, checks)}
	tr, err := agent.NewTransport(agent.TransportOptions{
		Name: name, User: testbackend.AgentUser, Password: testbackend.AgentPassword,
		BackendURLs: append([]string{url}, more...),
		RetryMin:    20 * time.Millisecond, RetryMax: 200 * time.Millisecond, BatchDelay: time.Second, BufferEvents: 100000,
		ConfigTimeout: time.Second,
		Acked: func(seq uint64) {
			s.acked.Store(seq)
			if s.onAcked != nil {
				s.onAcked()
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.transport = tr
	return s
}

func (s *sender) send(stop chan struct{}, rate int) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	executed := int64(0)
	for {
		select {
		case <-tick.C:
		case <-stop:
			return
		}
		for range rate / 50 {
			executed++
			check := int(executed) % s.checks
			ev := testbackend.Event(s.name, fmt.Sprintf("check-%d", check), 0, executed)
			seq := s.transport.Send(ev)
			s.mu.Lock()
			s.seqs[check] = append(s.seqs[check], seq)
			s.mu.Unlock()
			s.last.Store(seq)
		}
	}
}

// sentUpTo returns how many results of a check have a number up to seq.
func (s *sender) sentUpTo(seq uint64, check int) (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.seqs[check] {
		if q <= seq {
			n++
		}
	}
	return n
}

// apiSender puts events through the API and counts the answers.
type apiSender struct{ ok, unknown atomic.Int64 }

func (a *apiSender) send(ctx context.Context, stop chan struct{}, c *client.Client) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for executed := int64(1); ; executed++ {
		select {
		case <-tick.C:
		case <-stop:
			return
		}
		ev := testbackend.Event("api", "check-0", 0, executed)
		ev.Entity.EntityClass = resource.EntityProxyClass
		if err := client.Put(ctx, c, client.Events, "default", client.EventName("api", "check-0"), ev); err != nil {
			a.unknown.Add(1)
		} else {
			a.ok.Add(1)
		}
	}
}

// ports are those that freePort has returned.
var ports sync.Map

// freePort is a port for a process that is yet to start, perhaps several times. It is below the range from which the system takes
// ports for connections and for listeners that name none, so other tests do not take it meanwhile.
func freePort(t testing.TB) string {
	t.Helper()
	for range 1000 {
		port := strconv.Itoa(10_000 + rand.IntN(20_000))
		if _, given := ports.LoadOrStore(port, true); given {
			continue
		}
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}
