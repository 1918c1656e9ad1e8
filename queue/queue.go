// Package queue gives the runs of round-robin checks to agents, each to one of its group in turn, and again to the next
// one until there is a result.
//
// A group is a check and one of its subscriptions. A turn is a tick of it, or with proxy requests one entity of a tick.
// Nothing is stored: all members of the cluster compute the same ticks, and the log has the results. So what a group owes
// is its ticks without a result, and each member keeps that. One member, the check's owner, gives the turns to agents, and
// tells the others; they know all it knows, and the next owner goes on where it stopped.
//
// The scheduler tells the ticks (Offer), the fold the results (Follow), and the sessions the agents (Presence) and their
// receipts (Receipt). Options.Deliver takes a turn to an agent. Files: group.go and owed.go have what is owed, owner.go
// gives it, news.go and newswire.go what members tell each other, presence.go and ring.go the agents, view.go what users
// see.
package queue

import (
	"container/heap"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Options configures a Queue.
type Options struct {
	// Member is this backend's id, and Life that of its process. Required.
	Member, Life string
	// Acts reports whether this member gives the turns of a check. It must not block. Default: it gives all.
	Acts func(check resource.Name) bool
	// Deliver has an agent that is connected to this member run a check, and reports whether a connection takes the
	// request. It must not block. Required.
	Deliver func(*Delivery) bool
	// Unheard returns when an agent's silence counts if results could not arrive at some time in the period before now; the
	// zero time if they could. It must not block. Default: they always could.
	Unheard func(period time.Duration) time.Time
	// Overloaded reports whether this member holds requests back. It must not block. Default: it never does.
	Overloaded func() bool
	// Bus carries news between the members. Default: there are no others.
	Bus Bus
	// Others returns the other members. It must not block. Required with a Bus.
	Others func() []Other
	// AskCopy asks a member for its Presence.Copy. Required with a Bus.
	AskCopy func(ctx context.Context, member string) ([]byte, error)

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Bus carries messages between the members; *broker.Bus.
type Bus interface {
	Publish(subject string, data []byte) error
	Subscribe(subject string, f func(reply string, data []byte)) (cancel func(), err error)
}

// Other is another member.
type Other struct {
	ID, Life string
	Heard    bool
	// Overloaded says that it holds requests back.
	Overloaded bool
	// Presence is the Number that its heartbeat has.
	Presence uint64
}

// Tick is a tick of a check, or with proxy requests what it owes for one entity.
type Tick struct {
	// Tick is when the check was due, in Unix seconds, and Due when this run of it is: with proxy requests and splay it may
	// be later.
	Tick, Due int64
	// Asked says that a user asked for the run.
	Asked bool
	// Request is what agents get, without the time of issue and the turn. The Queue does not change it.
	Request *resource.CheckRequest
	// Subscriptions are the check's; each of them is a group.
	Subscriptions []string
	// Every is the distance to the next tick, 0 if there is none.
	Every time.Duration
}

// Group names a group.
type Group struct {
	Check        resource.Name
	Subscription string
}

// Delivery is a turn on its way to an agent.
type Delivery struct {
	Agent resource.Name
	Check resource.Name
	// Subscriptions are those of the groups whose turn it is.
	Subscriptions []string
	Turn          Turn
	Attempt       int // from 1 on
	// Request is the check to run, with the time of issue and the turn. It is another one's as soon as Deliver returns.
	Request *resource.CheckRequest

	issued int64
	moved  uint64
}

// Queue holds what the groups owe.
type Queue struct {
	opts     Options
	rare     *rarelog.Log
	metrics  metrics
	presence *Presence
	results  results

	courier   courier       // of the loop
	wake      chan struct{} // capacity 1
	life      context.Context
	end       context.CancelFunc
	done      sync.WaitGroup
	lifecycle sync.Mutex // guards the fields below
	started   bool
	cancel    func() // of the subscription

	mu    sync.Mutex // guards the fields below
	began time.Time  // when Start was called
	// complete says that the agents of all members were known once. Before that the turns of the others would pass over them.
	complete bool
	swept    time.Time // when all checks were last looked at
	checks   map[resource.Name]*check
	timers   timers
	waiting  map[*owed]struct{} // no agent could take them
	lost     map[*owed]struct{} // the connections of their agents have ended
	offered  uint64             // turns so far
	// overloaded is when members last held requests back, by id.
	overloaded map[string]time.Time
	news       news      // not sent yet
	local      []passing // to deliver to agents of this member
	batch      uint64    // how often local has been delivered
}

// New checks the options.
func New(opts Options) (*Queue, error) {
	if opts.Member == "" || opts.Deliver == nil {
		return nil, errors.New("queue: a member and a way to deliver are required")
	}
	if opts.Bus != nil && (opts.Others == nil || opts.AskCopy == nil) {
		return nil, errors.New("queue: with a bus the other members are required")
	}
	if opts.Acts == nil {
		opts.Acts = func(resource.Name) bool { return true }
	}
	if opts.Unheard == nil {
		opts.Unheard = func(time.Duration) time.Time { return time.Time{} }
	}
	if opts.Overloaded == nil {
		opts.Overloaded = func() bool { return false }
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	q := &Queue{
		opts: opts, rare: rarelog.New(opts.Logger.With("component", "queue")), presence: newPresence(opts.Member, opts.Life),
		results: results{checks: map[resource.Name]*latest{}}, wake: make(chan struct{}, 1), checks: map[resource.Name]*check{},
		waiting: map[*owed]struct{}{}, lost: map[*owed]struct{}{}, overloaded: map[string]time.Time{},
	}
	q.life, q.end = context.WithCancel(context.Background())
	q.metrics = newMetrics(opts.Registerer, q)
	return q, nil
}

// Presence has the agents of all members. The sessions tell it about those of this one.
func (q *Queue) Presence() *Presence { return q.presence }

const (
	// lookEvery is the time between two looks at the agents, the other members, and who acts.
	lookEvery = 200 * time.Millisecond
	// sweepEvery is the time between two looks at all checks. One that is offered a tick is looked at then.
	sweepEvery = time.Second
	// incompleteFor is how long a member that has just begun may wait to know the agents of the others.
	incompleteFor = 10 * time.Second
	// gather is the least time between two deliveries: what comes together goes to another member in one message.
	gather = 5 * time.Millisecond
)

// Start begins to give turns, and to hear the other members.
func (q *Queue) Start(context.Context) error {
	q.lifecycle.Lock()
	defer q.lifecycle.Unlock()
	if q.started || q.life.Err() != nil {
		return errors.New("start queue: started or stopped before")
	}
	q.started = true
	q.mu.Lock()
	q.began = time.Now()
	q.complete = q.opts.Bus == nil
	q.mu.Unlock()
	if err := q.listen(); err != nil {
		return err
	}
	q.done.Go(q.run)
	return nil
}

// Stop ends it. What is owed is given by another member, or is lost.
func (q *Queue) Stop() error {
	q.lifecycle.Lock()
	defer q.lifecycle.Unlock()
	q.end()
	if q.cancel != nil {
		q.cancel()
	}
	q.done.Wait()
	return nil
}

func (q *Queue) run() {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	wake := q.wake
	for {
		select {
		case <-q.life.Done():
			q.send(time.Now()) // the others are to know what was given
			return
		case <-look.C:
			q.look(time.Now())
		case <-wake:
			wake = nil
		case <-timer.C:
			wake = q.wake
		}
		now := time.Now()
		next := q.fire(now)
		q.send(now)
		if wake == nil {
			next = now.Add(gather)
		}
		timer.Reset(max(0, time.Until(next)))
	}
}

// awake has the loop deliver and send what there is.
func (q *Queue) awake() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// look notes which agents have come or gone, and now and then who acts.
func (q *Queue) look(now time.Time) {
	q.sendPresence()
	complete, overloaded := q.lookAtMembers()
	left := q.presence.takeLeft()
	q.mu.Lock()
	defer q.mu.Unlock()
	for member, at := range q.overloaded {
		if at.After(now.Round(0)) { // the clock was set back
			delete(q.overloaded, member)
		}
	}
	for _, member := range overloaded {
		q.overloaded[member] = now.Round(0)
	}
	began := now.Sub(q.began) // not all members are heard at once
	q.complete = q.complete || complete && began > takeOver || began > incompleteFor
	all := now.Sub(q.swept) >= sweepEvery
	if all {
		q.swept = now
	}
	if all || len(left) > 0 {
		for name, c := range q.checks {
			q.setActing(c, q.complete && q.opts.Acts(name), now)
			for _, g := range c.groups {
				q.noteLost(g, left, now)
			}
			if all {
				q.dropUnused(c)
			}
		}
	}
	q.giveBack(now)
	q.giveWaiting(now)
}

// fire handles the turns whose time has come. It returns when it is to be called again.
func (q *Queue) fire(now time.Time) (next time.Time) {
	now = now.Round(0) // without the monotonic clock: a time that has passed by one clock only would be looked at again and again
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.timers) > 0 && q.timers[0].next <= now.UnixMicro() {
		q.timeout(q.timers[0], now)
	}
	if len(q.timers) == 0 {
		return now.Add(time.Hour)
	}
	return time.UnixMicro(q.timers[0].next)
}

// Offer takes a tick. All members call it, so that each of them knows what is owed.
func (q *Queue) Offer(t *Tick, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	name := resource.NameOf(&t.Request.Config.Metadata)
	if q.results.get(name) == nil {
		return // it was deleted in this moment
	}
	c := q.checkOf(name)
	q.setActing(c, q.complete && q.opts.Acts(name), now)
	turn := Turn{t.Tick, t.Request.Config.ProxyEntityName, t.Asked}
	limits := limitsOf(t.Request.Config, c.longest, t.Every)
	for _, subscription := range t.Subscriptions {
		g := c.groupOf(subscription)
		g.limits = limits
		q.offer(g, turn, t, now)
	}
	q.awake()
}

// offer takes a tick for one of the check's groups. The caller holds mu.
func (q *Queue) offer(g *group, turn Turn, t *Tick, now time.Time) {
	if !g.offered {
		g.offered = true
		g.recall(now)
	}
	due := time.Unix(t.Due, 0)
	if g.had(turn, now) || due.Add(g.limits.deadline).Before(now) {
		return
	}
	o := g.open[turn]
	if o == nil {
		o = q.owe(g, turn, now)
	} else if o.request != nil {
		return // the clock was set back
	}
	extended := o.deadline
	o.request = t.Request
	o.setDue(due, g.limits)
	switch {
	case o.agent != "": // the owner was faster
		if g.check.acting { // this member is the owner by now
			o.extend(extended)
			q.setTimer(o, earlier(o.deadline, o.given.Add(o.limits.answer)))
		} else {
			q.setTimer(o, o.deadline)
		}
		q.pass(o)
	case !g.check.acting:
		q.setTimer(o, o.deadline)
	case now.Before(g.check.begin):
		q.setTimer(o, g.check.begin)
	case due.Before(q.began) && now.Before(q.began.Add(leastAnswer)):
		// An agent may have it from an earlier process, and brings its result.
		o.deadline = later(o.deadline, q.began.Add(leastAnswer+g.limits.answer))
		q.setTimer(o, q.began.Add(leastAnswer))
	default:
		q.give(o, now)
	}
}

// forget drops what a check owes to groups that are not in the given subscriptions: it was deleted or changed.
func (q *Queue) forget(name resource.Name, subscriptions []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.checks[name]
	if c == nil {
		return
	}
	for subscription, g := range c.groups {
		if !slices.Contains(subscriptions, subscription) {
			for _, o := range g.open {
				q.drop(o)
			}
			delete(c.groups, subscription)
		}
	}
	if len(c.groups) == 0 {
		delete(q.checks, name)
	}
}

// outlive is how much longer than it may be given at all a member keeps a turn that another one gives. That one says when
// a turn has had its result or has expired, unless it has just died.
const outlive = time.Minute

// setTimer sets when a turn is looked at. A turn that another member gives is only looked at to forget it.
func (q *Queue) setTimer(o *owed, at time.Time) {
	if !o.group.check.acting {
		at = later(o.until(), o.most).Add(outlive)
	}
	// By the wall clock, whose steps do not change the order of turns. At the next microsecond, at is over.
	o.next = at.Add(time.Microsecond - 1).UnixMicro()
	if o.place < 0 {
		heap.Push(&q.timers, o)
	} else {
		heap.Fix(&q.timers, o.place)
	}
}

// timers is a heap: what is due first, and of what is due together what was offered first.
type timers []*owed

func (t timers) Len() int { return len(t) }

func (t timers) Less(a, b int) bool {
	if t[a].next == t[b].next {
		return t[a].order < t[b].order
	}
	return t[a].next < t[b].next
}

func (t timers) Swap(a, b int) {
	t[a], t[b] = t[b], t[a]
	t[a].place, t[b].place = a, b
}

func (t *timers) Push(x any) {
	o := x.(*owed)
	o.place = len(*t)
	*t = append(*t, o)
}

func (t *timers) Pop() any {
	last := len(*t) - 1
	o := (*t)[last]
	(*t)[last] = nil
	*t, o.place = (*t)[:last], -1
	return o
}
