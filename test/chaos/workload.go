//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/agent"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	agents       = 10 // that live; one more dies
	apiSenders   = 4
	configUsers  = 3
	registers    = 3 // keys of the configuration
	stepInterval = 150 * time.Millisecond

	// An agent notices a dead connection after heartbeatTimeout and then tries the next member, so its keepalives pause
	// for less than keepaliveTimeout, unless all members are gone: then their silence must be excused.
	keepaliveInterval = 2 * time.Second
	keepaliveTimeout  = 20 * time.Second
	heartbeatInterval = 2 * time.Second
	heartbeatTimeout  = 5 * time.Second

	requestTimeout = 5 * time.Second

	namespace     = "default"
	pager         = "pager"
	registerField = "chaos/value" // the annotation that is a register's value
	mortal        = "agent-mortal"
)

// workload sends events, writes configuration, and keeps what was acknowledged.
type workload struct {
	seed    uint64
	members []*member
	clients []*client.Client // one for each member
	begin   time.Time        // times of configuration operations count from here

	scripts  []*script
	fleet    []*simAgent
	senders  sync.WaitGroup // of events and configuration, until stopSending
	stopSend chan struct{}
	follower *follower

	mu       sync.Mutex // guards the fields below
	config   []configOp
	mayBeOld int // reads of registers whose answers said that they may be old
}

func newWorkload(seed uint64, members []*member) (*workload, error) {
	w := &workload{seed: seed, members: members, begin: time.Now(), stopSend: make(chan struct{})}
	for _, m := range members {
		c, err := newClient(m, nil)
		if err != nil {
			return nil, err
		}
		w.clients = append(w.clients, c)
	}
	w.follower = newFollower(w.clients)
	return w, nil
}

func newClient(m *member, warn func(path, text string)) (*client.Client, error) {
	return client.New(client.Options{URL: m.apiURL(), APIKey: adminKey, Timeout: requestTimeout, OnWarning: warn})
}

func meta(name string) resource.ObjectMeta {
	return resource.ObjectMeta{Name: name, Namespace: namespace}
}

// define makes the handlers and the registers.
func (w *workload) define(ctx context.Context, receiverURL string) error {
	c := w.clients[0]
	for _, name := range []string{pager, "keepalive"} {
		handler := &resource.Handler{
			Metadata: meta(name), Type: "webhook", Filters: []string{"is_incident"}, Timeout: 10,
			Webhook: &resource.HandlerWebhook{URL: receiverURL + "/" + name},
			Retry:   &resource.HandlerRetry{MaxAttempts: 100_000, Backoff: 1, MaxBackoff: 4, MaxAge: 86_400},
		}
		if err := client.Put(ctx, c, client.Handlers, namespace, name, handler); err != nil {
			return err
		}
	}
	for i := range registers {
		name := registerName(i)
		if err := client.Put(ctx, c, client.Checks, namespace, name, register(name, initial)); err != nil {
			return err
		}
	}
	return nil
}

// start begins to send. It returns when all agents are connected.
func (w *workload) start(ctx context.Context) error {
	var urls []string
	for _, m := range w.members {
		urls = append(urls, m.agentURL())
	}
	sender := 1 // 0 is the schedule's
	for i := range agents {
		s := newScript(w.seed, sender, fmt.Sprintf("agent-%d", i), true)
		a, err := newSimAgent(s.entity, urls)
		if err != nil {
			return err
		}
		w.scripts, w.fleet = append(w.scripts, s), append(w.fleet, a)
		sender++
	}
	last, err := newSimAgent(mortal, urls)
	if err != nil {
		return err
	}
	w.fleet = append(w.fleet, last)
	for _, a := range w.fleet {
		a.start(ctx)
	}
	for _, a := range w.fleet {
		select {
		case <-a.ready:
		case <-time.After(time.Minute):
			return fmt.Errorf("%s has found no backend in a minute", a.name)
		}
	}
	for i, s := range w.scripts {
		w.senders.Go(func() { w.steps(func() { w.fleet[i].send(s.next()) }) })
	}
	for i := range apiSenders {
		s := newScript(w.seed, sender, fmt.Sprintf("api-%d", i), false)
		w.scripts = append(w.scripts, s)
		w.senders.Go(func() { w.steps(func() { w.put(ctx, s) }) })
		sender++
	}
	for i := range configUsers {
		u := &configUser{index: i, rng: newRand(w.seed, sender)}
		for _, m := range w.members {
			c, err := newClient(m, func(string, string) { u.warned = true })
			if err != nil {
				return err
			}
			u.clients = append(u.clients, c)
		}
		w.senders.Go(func() { w.steps(func() { w.configure(ctx, u) }) })
		sender++
	}
	w.follower.start(ctx)
	return nil
}

// steps calls f at intervals until the senders are stopped.
func (w *workload) steps(f func()) {
	tick := time.NewTicker(stepInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f()
		case <-w.stopSend:
			return
		}
	}
}

// stopSending ends all but the keepalives.
func (w *workload) stopSending() {
	close(w.stopSend)
	w.senders.Wait()
}

// killMortal ends the agent whose death must be noticed.
func (w *workload) killMortal() { w.fleet[len(w.fleet)-1].stop() }

// living are the names of the agents that live through the whole run.
func (w *workload) living() (names []string) {
	for _, a := range w.fleet[:len(w.fleet)-1] {
		names = append(names, a.name)
	}
	return names
}

// unsent are the agents with events that no backend has acknowledged.
func (w *workload) unsent() (names []string) {
	for _, a := range w.fleet {
		if a.acked.Load() < a.last {
			names = append(names, a.name)
		}
	}
	return names
}

// pairs are the logs of all senders.
func (w *workload) pairs() (logs []*pairLog) {
	for _, s := range w.scripts {
		logs = append(logs, s.logs...)
	}
	return logs
}

// put sends the next event of a script through a random member's API.
func (w *workload) put(ctx context.Context, s *script) {
	member := s.rng.IntN(len(w.clients))
	log := s.next()
	ev := log.event(resource.EntityProxyClass)
	err := client.Put(ctx, w.clients[member], client.Events, namespace, client.EventName(log.Entity, log.Check), ev)
	log.Events[len(log.Events)-1].Acked = err == nil
}

// event makes the last event of a log.
func (p *pairLog) event(class string) *resource.Event {
	last := p.Events[len(p.Events)-1]
	ev := &resource.Event{
		Timestamp: time.Now().Unix(), ID: resource.NewEventID(), Sequence: last.N, Entity: entity(p.Entity, class),
		Check: &resource.Check{
			Metadata: meta(p.Check), Interval: 60, Status: last.Status, Executed: last.N, Issued: last.N,
			Output: fmt.Sprintf("event %d of %s", last.N, p.name()),
		},
	}
	if p.Alerts {
		ev.Check.Handlers = []string{pager}
	}
	return ev
}

func entity(name, class string) *resource.Entity {
	return &resource.Entity{Metadata: meta(name), EntityClass: class, Subscriptions: []string{"chaos"}}
}

// simAgent is an agent without checks: the real agent's transport, and keepalives.
type simAgent struct {
	name      string
	transport *agent.Transport
	ready     chan struct{} // closed at the first connection
	cancel    context.CancelFunc
	running   sync.WaitGroup
	last      uint64        // the transport's number of the last event that is no keepalive
	acked     atomic.Uint64 // the number up to which all are acknowledged
}

func newSimAgent(name string, urls []string) (*simAgent, error) {
	a := &simAgent{name: name, ready: make(chan struct{})}
	var once sync.Once
	var err error
	a.transport, err = agent.NewTransport(agent.TransportOptions{
		Name: name, User: "agent", Password: agentPassword, Subscriptions: []string{"chaos"}, BackendURLs: urls,
		HandshakeTimeout: 3 * time.Second, HeartbeatInterval: heartbeatInterval, HeartbeatTimeout: heartbeatTimeout,
		ConfigTimeout: 2 * time.Second, RetryMin: 100 * time.Millisecond, RetryMax: time.Second,
		BatchDelay: 200 * time.Millisecond,
		OnReady: func() {
			once.Do(func() { close(a.ready) })
			a.keepalive()
		},
		Acked: a.acked.Store,
	})
	return a, err
}

func (a *simAgent) start(ctx context.Context) {
	ctx, a.cancel = context.WithCancel(ctx)
	a.running.Go(func() { a.transport.Run(ctx) })
	a.running.Go(func() {
		for pause(ctx.Done(), keepaliveInterval) {
			if a.transport.Connected() {
				a.keepalive()
			}
		}
	})
}

func (a *simAgent) stop() {
	a.cancel()
	a.running.Wait()
}

func (a *simAgent) keepalive() {
	a.transport.SendKeepalive(&resource.Event{
		Timestamp: time.Now().Unix(), ID: resource.NewEventID(), Entity: entity(a.name, resource.EntityAgentClass),
		Check: &resource.Check{
			Metadata: meta("keepalive"),
			Interval: uint32(keepaliveInterval / time.Second), Timeout: uint32(keepaliveTimeout / time.Second),
		},
	})
}

func (a *simAgent) send(log *pairLog) {
	a.last = a.transport.Send(log.event(resource.EntityAgentClass))
}

func registerName(i int) string { return fmt.Sprintf("register-%d", i) }

// register is a check that is a register of the configuration: an annotation has its value.
func register(name, value string) *resource.CheckConfig {
	c := &resource.CheckConfig{Metadata: meta(name), Command: "true", Interval: 3600, Subscriptions: []string{"none"}}
	c.Metadata.Annotations = map[string]string{registerField: value}
	return c
}

// configUser reads and writes registers.
type configUser struct {
	index   int
	rng     *rand.Rand
	clients []*client.Client // one for each member
	n       int              // values written so far
	warned  bool             // an answer had a warning since this was last unset
}

// configure reads a register through a random member, and often replaces what it has read through another one.
func (w *workload) configure(ctx context.Context, u *configUser) {
	key := registerName(u.rng.IntN(registers))
	from, to, replace := u.rng.IntN(len(u.clients)), u.rng.IntN(len(u.clients)), u.rng.IntN(3) > 0
	u.n++
	read := configOp{User: u.index, Member: from, Key: key, Call: time.Since(w.begin)}
	u.warned = false
	check, tag, err := client.GetTagged(ctx, u.clients[from], client.Checks, namespace, key)
	if err != nil {
		return // a read without an answer says nothing
	}
	read.Return, read.Old, read.Result = time.Since(w.begin), check.Metadata.Annotations[registerField], done
	if u.warned {
		w.mu.Lock()
		w.mayBeOld++
		w.mu.Unlock()
	} else {
		w.note(read)
	}
	if !replace {
		return
	}
	write := configOp{
		User: u.index, Member: to, Key: key, Write: true, Old: read.Old, New: fmt.Sprintf("%d-%d", u.index, u.n),
		Call: time.Since(w.begin),
	}
	check.Metadata.Annotations[registerField] = write.New
	err = client.PutIf(ctx, u.clients[to], client.Checks, namespace, key, tag, check)
	write.Return = time.Since(w.begin)
	switch {
	case err == nil:
		write.Result = done
	case errors.Is(err, client.ErrPrecondition):
		write.Result = refused
	default:
		write.Result = unknown
	}
	w.note(write)
}

// readRegisters reads all registers through all members, when nothing is written any more.
func (w *workload) readRegisters(ctx context.Context) error {
	for member, c := range w.clients {
		for i := range registers {
			op := configOp{User: configUsers, Member: member, Key: registerName(i), Result: done}
			op.Call = time.Since(w.begin)
			check, err := client.Get(ctx, c, client.Checks, namespace, op.Key)
			if err != nil {
				return err
			}
			op.Old, op.Return = check.Metadata.Annotations[registerField], time.Since(w.begin)
			w.note(op)
		}
	}
	return nil
}

func (w *workload) note(op configOp) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.config = append(w.config, op)
}

// configOps are the operations so far.
func (w *workload) configOps() []configOp {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.config)
}

// listEvents returns all events that a member has.
func (w *workload) listEvents(ctx context.Context, member int) ([]resource.Event, error) {
	return client.List(ctx, w.clients[member], client.Events, namespace, client.ListOptions{})
}

// clusterStatus is what a member says about the cluster.
type clusterStatus struct {
	Problems []string // advice is among them, so they are logged only
	Members  []struct {
		Name          string
		Digests       []client.DigestStatus // of the log, by partition
		DigestsDiffer []int                 `json:"digests_differ"`
		Definitions   bool                  `json:"definitions_differ"`
	}
}

// askCluster asks a member about the cluster.
func (w *workload) askCluster(ctx context.Context, member int) (status clusterStatus, err error) {
	err = w.clients[member].Do(ctx, http.MethodGet, "/api/lapwing/v1/cluster", nil, &status)
	return status, err
}

// keepaliveFailures counts the failures in the history of an agent's keepalive on a member.
func (w *workload) keepaliveFailures(ctx context.Context, member int, agent string) (n int, err error) {
	var changes []struct{ State string }
	path := fmt.Sprintf("/api/lapwing/v1/namespaces/%s/events/%s/keepalive/history", namespace, agent)
	if err := w.clients[member].Do(ctx, http.MethodGet, path, nil, &changes); err != nil {
		return 0, err
	}
	for _, change := range changes {
		if change.State != "passing" {
			n++
		}
	}
	return n, nil
}
