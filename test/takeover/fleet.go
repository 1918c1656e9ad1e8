//go:build linux

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/agent"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	namespace = "default"
	checkName = "takeover" // of the agents' events
	connects  = 500        // agents that begin to connect in a second
)

// fleet is the agents: the real agent's transport, with keepalives and events at intervals.
type fleet struct {
	s       *settings
	agents  []*simAgent
	running sync.WaitGroup
	quiet   chan struct{} // closed when no more events are to be sent
	cancel  context.CancelFunc
}

// simAgent is one agent. Its events are numbered from 1 and all have the same status. So a backend that has each of
// them once counts as many occurrences.
type simAgent struct {
	name      string
	sensu     bool
	transport *agent.Transport

	mu      sync.Mutex // guards the fields below
	sent    int        // events
	url     string     // of the backend that it is connected to
	ready   bool       // it is connected, and may send events
	back    time.Time  // when it was ready for the first time since reset
	waiting []sending  // not acknowledged; of a lapwing agent
	longest time.Duration
}

// sending is an event on its way.
type sending struct {
	seq uint64
	at  time.Time
}

func newFleet(s *settings, urls []string) (*fleet, error) {
	f := &fleet{s: s, quiet: make(chan struct{})}
	metrics := agent.NewMetrics(nil)
	out, err := os.Create(filepath.Join(s.dir, "agents.log"))
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelWarn}))
	for i := range s.agents {
		a := &simAgent{name: fmt.Sprintf("agent-%d", i), sensu: i%2 == 1}
		a.transport, err = agent.NewTransport(agent.TransportOptions{
			Name: a.name, User: agentUser, Password: agentPassword, Subscriptions: []string{"takeover"}, BackendURLs: urls,
			SensuOnly: a.sensu, Metrics: metrics, Logger: log,
			OnReady: func() { a.isReady(); a.keepalive(s) }, OnDisconnect: a.gone, OnConnect: a.connected,
			Acked: a.acked,
		})
		if err != nil {
			return nil, err
		}
		f.agents = append(f.agents, a)
	}
	return f, nil
}

// start connects the agents, and returns when all are connected.
func (f *fleet) start(ctx context.Context) error {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f.cancel = cancel
	for _, a := range f.agents {
		f.running.Go(func() { a.transport.Run(running) })
		pause(ctx, time.Second/connects)
	}
	f.running.Go(func() { f.each(running, f.s.keepalive, func(a *simAgent) { a.keepalive(f.s) }) })
	err := await(ctx, "all agents to be connected", func() error {
		n := 0
		for _, a := range f.agents {
			if _, ready := a.at(); ready {
				n++
			}
		}
		if n < len(f.agents) {
			return fmt.Errorf("%d of %d are", n, len(f.agents))
		}
		return nil
	})
	f.running.Go(func() { f.each(running, f.s.every, (*simAgent).event) })
	return err
}

// each calls do once for each agent in each interval, evenly.
func (f *fleet) each(ctx context.Context, interval time.Duration, do func(*simAgent)) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	begin, done := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for due := int(float64(time.Since(begin)) / float64(interval) * float64(len(f.agents))); done < due; done++ {
			a := f.agents[done%len(f.agents)]
			select {
			case <-f.quiet:
				if interval == f.s.every {
					return
				}
			default:
			}
			do(a)
		}
	}
}

func (f *fleet) stop() {
	if f.cancel != nil {
		f.cancel()
		f.running.Wait()
	}
}

func (a *simAgent) entity() *resource.Entity {
	return &resource.Entity{
		Metadata: meta(a.name), EntityClass: resource.EntityAgentClass, Subscriptions: []string{"takeover"},
	}
}

func meta(name string) resource.ObjectMeta {
	return resource.ObjectMeta{Name: name, Namespace: namespace}
}

func (a *simAgent) keepalive(s *settings) {
	if !a.transport.Connected() {
		return
	}
	a.transport.SendKeepalive(&resource.Event{
		Timestamp: time.Now().Unix(), ID: resource.NewEventID(), Entity: a.entity(),
		Check: &resource.Check{
			Metadata: meta("keepalive"),
			Interval: uint32(s.keepalive / time.Second), Timeout: uint32(s.warning / time.Second),
		},
	})
}

func (a *simAgent) event() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent++
	ev := &resource.Event{
		Timestamp: time.Now().Unix(), ID: resource.NewEventID(), Sequence: int64(a.sent), Entity: a.entity(),
		Check: &resource.Check{Metadata: meta(checkName), Interval: 60, Executed: time.Now().Unix(), Output: "all is well"},
	}
	at := time.Now()
	if seq := a.transport.Send(ev); !a.sensu {
		a.waiting = append(a.waiting, sending{seq, at})
	}
}

func (a *simAgent) acked(seq uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for n < len(a.waiting) && a.waiting[n].seq <= seq {
		a.longest = max(a.longest, time.Since(a.waiting[n].at))
		n++
	}
	a.waiting = append(a.waiting[:0], a.waiting[n:]...)
}

func (a *simAgent) connected(c agent.Connection) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.url = c.URL
}

func (a *simAgent) isReady() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready = true
	if a.back.IsZero() {
		a.back = time.Now()
	}
}

func (a *simAgent) gone(error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready = false
}

// at returns the backend that the agent is or was connected to, and whether it is ready.
func (a *simAgent) at() (url string, ready bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.url, a.ready
}

// reset begins to measure a loss.
func (a *simAgent) reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.longest, a.back = 0, time.Time{}
}

// since returns how long an event has waited for its acknowledgement at most, and when the agent was connected again;
// zero if it has kept its connection.
func (a *simAgent) since() (longest time.Duration, back time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.longest, a.back
}

// connectedTo are the agents of one backend.
func (f *fleet) connectedTo(url string) (agents []*simAgent) {
	for _, a := range f.agents {
		if at, ready := a.at(); at == url && ready {
			agents = append(agents, a)
		}
	}
	return agents
}
