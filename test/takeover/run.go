//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	ttl           = 5 * time.Second // the least that a backend takes
	dueAfter      = 1500 * time.Millisecond
	parkedPerPart = 3
	alertEvery    = 200 * time.Millisecond // between alerts through any member, all the time
	wellFor       = 3 * time.Second        // how long a cluster must be well before the next loss
)

// run is the cluster, its agents, and what was measured.
type run struct {
	s        *settings
	members  []*member
	fleet    *fleet
	receiver *receiver
	rng      *rand.Rand
	results  []*result
	disk     time.Duration // from the loss of a disk until its deliveries were sent
	alerting sync.WaitGroup
	quiet    chan struct{} // closed to end the alerts
	verdict  verdict

	mu     sync.Mutex        // guards the fields below
	down   string            // the member that is lost at the moment
	alerts map[string]*alert // by output
	n      int               // numbers entities
}

// alert is an event that was sent through the API, with an entity and an output of its own.
type alert struct {
	entity string
	acked  bool
}

// result is what one loss has cost, from the signal on.
type result struct {
	how            loss
	events         time.Duration   // until events are accepted through all survivors, for all partitions
	deadline       time.Duration   // until a TTL passes that was heard through a survivor
	heard          time.Duration   // until a TTL begins anew that was heard through the lost member
	parked         time.Duration   // until deliveries that waited at the lost member are made
	alerts         time.Duration   // until the alerts of the first accepted events come
	lapwing, sensu []time.Duration // until agents that have lost their connection have another one
	held           time.Duration   // the longest wait of an event of a lapwing agent
}

func newRun(s *settings) (*run, error) {
	r := &run{s: s, rng: newRand(s.seed), quiet: make(chan struct{}), alerts: map[string]*alert{}}
	var err error
	if r.members, err = newMembers(s); err != nil {
		return nil, err
	}
	if r.receiver, err = newReceiver(); err != nil {
		return nil, err
	}
	var urls []string
	for _, m := range r.members {
		urls = append(urls, m.agentURL())
	}
	r.fleet, err = newFleet(s, urls)
	return r, err
}

// begin starts everything.
func (r *run) begin(ctx context.Context) error {
	for _, m := range r.members {
		if err := m.start(); err != nil {
			return err
		}
	}
	for _, m := range r.members {
		if err := m.ready(ctx); err != nil {
			return err
		}
	}
	for _, name := range []string{pager, "keepalive"} {
		handler := &resource.Handler{
			Metadata: meta(name), Type: "webhook", Filters: []string{"is_incident"}, Timeout: 10,
			Webhook: &resource.HandlerWebhook{URL: r.receiver.url + "/" + name},
			Retry:   &resource.HandlerRetry{MaxAttempts: 100_000, Backoff: 1, MaxBackoff: 1, MaxAge: 86_400},
		}
		if err := client.Put(ctx, r.members[0].client, client.Handlers, namespace, name, handler); err != nil {
			return err
		}
	}
	r.say("three backends are ready; %d agents connect", r.s.agents)
	if err := r.fleet.start(ctx); err != nil {
		return err
	}
	r.alerting.Go(func() { r.alertAlways(ctx) })
	return nil
}

func (r *run) stop() {
	r.endAlerts()
	r.fleet.stop()
	for _, m := range r.members {
		m.kill()
	}
	_ = r.receiver.server.Close()
}

func (r *run) endAlerts() {
	select {
	case <-r.quiet:
	default:
		close(r.quiet)
	}
	r.alerting.Wait()
}

// alertAlways sends alerts through all members by turns, except the lost one.
func (r *run) alertAlways(ctx context.Context) {
	tick := time.NewTicker(alertEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-r.quiet:
			return
		case <-tick.C:
		}
		m := r.members[i%len(r.members)]
		r.mu.Lock()
		lost := r.down == m.name
		r.mu.Unlock()
		if lost {
			continue
		}
		entity := r.newEntity()
		r.alerting.Go(func() { _ = r.put(ctx, m, entity, "alert of "+entity) }) // without an answer it need not come
	}
}

// newEntity returns a name that was not used before.
func (r *run) newEntity() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	return fmt.Sprint("host-", r.n)
}

// entityOf returns a new name of a partition.
func (r *run) entityOf(partition int) string {
	for {
		name := r.newEntity()
		if int(xxhash.Sum64String(namespace+"\x00"+name)%uint64(r.s.partitions)) == partition {
			return name
		}
	}
}

// put sends an alert through a member, and notes whether it was accepted.
func (r *run) put(ctx context.Context, m *member, entity, output string) error {
	r.mu.Lock()
	r.alerts[output] = &alert{entity: entity}
	r.mu.Unlock()
	err := r.submit(ctx, m, entity, &resource.Check{Metadata: meta(checkName), Status: 2, Output: output})
	if err == nil {
		r.mu.Lock()
		r.alerts[output].acked = true
		r.mu.Unlock()
	}
	return err
}

func (r *run) submit(ctx context.Context, m *member, entity string, check *resource.Check) error {
	check.Handlers, check.Executed = []string{pager}, time.Now().Unix()
	ev := &resource.Event{
		Metadata: resource.ObjectMeta{Namespace: namespace},
		Entity:   &resource.Entity{Metadata: meta(entity), EntityClass: resource.EntityProxyClass}, Check: check,
	}
	name := client.EventName(entity, check.Metadata.Name)
	return client.Put(ctx, m.client, client.Events, namespace, name, ev)
}

// awaitWell waits until the cluster is well and each member has agents. It returns the owner of most partitions, and these
// partitions.
func (r *run) awaitWell(ctx context.Context) (victim *member, owned []int, err error) {
	var status client.ClusterStatus
	var well time.Time
	err = await(ctx, "the cluster to be well", func() (err error) {
		if status, err = r.members[0].status(ctx); err == nil {
			err = unwell(&status, r.s.agents)
		}
		switch {
		case err != nil:
			well = time.Time{}
			return err
		case well.IsZero():
			well = time.Now()
		}
		if time.Since(well) < wellFor {
			return errors.New("it is well for a moment only")
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	byOwner := map[string][]int{}
	most := 0
	for _, p := range status.Partitions {
		byOwner[p.Owner] = append(byOwner[p.Owner], p.Partition)
		most = max(most, len(byOwner[p.Owner]))
	}
	var names []string
	for _, m := range r.members {
		if len(byOwner[m.name]) == most {
			names = append(names, m.name)
		}
	}
	if len(names) == 0 {
		return nil, nil, fmt.Errorf("no member owns a partition: %+v", status.Partitions)
	}
	name := r.pick(names)
	i := slices.IndexFunc(r.members, func(m *member) bool { return m.name == name })
	return r.members[i], byOwner[name], nil
}

// unwell returns why the next loss must wait.
func unwell(status *client.ClusterStatus, agents int) error {
	up := 0
	for _, m := range status.Members {
		if !m.Up || !m.Ready || !m.Leased || !m.OnRoster {
			continue
		}
		up++
		if m.Sessions < agents/members/2 {
			return fmt.Errorf("%s has %d agents", m.Name, m.Sessions)
		}
	}
	switch {
	case up < members:
		return fmt.Errorf("%d members are up", up)
	case len(status.Problems) > 0:
		return fmt.Errorf("problem: %s", status.Problems[0])
	}
	return nil
}

func (r *run) setDown(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = name
}

// lose loses a member in one way, measures, and brings the member back.
func (r *run) lose(ctx context.Context, how loss) error {
	victim, owned, err := r.awaitWell(ctx)
	if err != nil {
		return err
	}
	l, err := r.prepare(ctx, victim, owned)
	if err != nil {
		return err
	}
	agents := r.fleet.connectedTo(victim.agentURL())
	for _, a := range r.fleet.agents {
		a.reset()
	}
	l.how, l.begin = how, time.Now()
	r.setDown(victim.name)
	if err := victim.signal(map[loss]syscall.Signal{
		kill: syscall.SIGKILL, stop: syscall.SIGSTOP, restart: syscall.SIGTERM,
	}[how]); err != nil {
		return err
	}
	res, err := r.watch(ctx, l)
	if err != nil {
		return err
	}
	if how == stop {
		pause(ctx, time.Until(l.begin.Add(r.s.stopFor)))
		if err := victim.signal(syscall.SIGCONT); err != nil {
			return err
		}
	} else {
		victim.end()
		if err := victim.start(); err != nil {
			return err
		}
	}
	if err := victim.ready(ctx); err != nil {
		return err
	}
	r.setDown("")
	pause(ctx, wellFor) // a member that goes on may close connections
	if err := r.moved(ctx, l.begin, agents, res); err != nil {
		return err
	}
	for _, a := range r.fleet.agents {
		longest, _ := a.since()
		res.held = max(res.held, longest)
	}
	r.results = append(r.results, res)
	r.say("%d: %s of %s, owner of %d partitions with %d agents: events %.1f s, deadline %.1f s, heard through it %.1f s, "+
		"waiting deliveries %.1f s, new alerts %.1f s, slowest acknowledgement %.1f s",
		len(r.results), how, victim.name, len(owned), len(agents), res.events.Seconds(), res.deadline.Seconds(),
		res.heard.Seconds(), res.parked.Seconds(), res.alerts.Seconds(), res.held.Seconds())
	return r.forget(ctx, l)
}

// moved waits until agents are connected again, and notes when they were. Some have kept their connections to a member
// that was stopped.
func (r *run) moved(ctx context.Context, begin time.Time, agents []*simAgent, res *result) error {
	for _, a := range agents {
		err := await(ctx, a.name+" to be connected again", func() error {
			if _, ready := a.at(); !ready {
				return errors.New("it is not")
			}
			return nil
		})
		_, back := a.since()
		switch {
		case err != nil:
			return err
		case back.IsZero():
		case a.sensu:
			res.sensu = append(res.sensu, back.Sub(begin))
		default:
			res.lapwing = append(res.lapwing, back.Sub(begin))
		}
	}
	return nil
}

// loseDisk kills a member with waiting deliveries for good, and takes a new one in.
func (r *run) loseDisk(ctx context.Context) error {
	victim, owned, err := r.awaitWell(ctx)
	if err != nil {
		return err
	}
	outputs, err := r.park(ctx, victim, owned, r.s.parked)
	if err != nil {
		return err
	}
	begin := time.Now()
	r.setDown(victim.name)
	victim.kill()
	if err := os.RemoveAll(victim.stateDir()); err != nil {
		return err
	}
	r.receiver.refuse(false)
	last, err := r.cameAll(ctx, "the deliveries of the lost disk", func() (time.Time, bool) {
		return r.receiver.allCame(outputs)
	})
	if err != nil {
		return err
	}
	r.disk = last.Sub(begin)
	r.say("kill -9 of %s and loss of its disk: its %d waiting deliveries were made within %.1f s",
		victim.name, len(outputs), r.disk.Seconds())
	if err := victim.start(); err != nil {
		return err
	}
	if err := victim.ready(ctx); err != nil {
		return err
	}
	r.setDown("")
	return await(ctx, "the lost member to be removed", func() error {
		status, err := victim.status(ctx)
		if err != nil {
			return err
		}
		gone := slices.IndexFunc(status.Members, func(m client.MemberStatus) bool { return !m.Up })
		if gone < 0 {
			return fmt.Errorf("it is none of %d members that are away", len(status.Members))
		}
		return victim.client.RemoveMember(ctx, status.Members[gone].Name)
	})
}
