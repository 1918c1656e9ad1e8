package queue

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule/timetable"
	"github.com/lapwing-monitoring/lapwing/state"
)

// results has the checks that are defined as round robin. All events of the log are looked up in it.
type results struct {
	mu     sync.RWMutex // guards checks
	checks map[resource.Name]*latest
	some   atomic.Bool // there are any
}

// latest is what is known of the results of one check.
type latest struct {
	subscriptions []string
	every         time.Duration
	received      atomic.Int64 // the newest of an agent's own with a TTL, Unix milliseconds
}

func (r *results) get(name resource.Name) *latest {
	if !r.some.Load() {
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.checks[name]
}

// defined reports whether a group is that of a defined check.
func (r *results) defined(g Group) bool {
	l := r.get(g.Check)
	return l != nil && slices.Contains(l.subscriptions, g.Subscription)
}

// Define takes the definition of a check, nil if it has none any more. It must be called for all checks before their first
// Offer and Follow, and when they change.
func (q *Queue) Define(name resource.Name, c *resource.CheckConfig) {
	r := &q.results
	r.mu.Lock()
	if c == nil || !c.RoundRobin {
		delete(r.checks, name)
		c = &resource.CheckConfig{}
	} else {
		l := &latest{subscriptions: c.Subscriptions, every: timetable.Every(c)}
		if old := r.checks[name]; old != nil {
			l.received.Store(old.received.Load())
		}
		r.checks[name] = l
	}
	r.some.Store(len(r.checks) > 0)
	r.mu.Unlock()
	q.forget(name, c.Subscriptions)
}

// Name implements fold.Follower.
func (q *Queue) Name() string { return "queue" }

// Follow implements fold.Follower: the result of a turn is its acknowledgement.
func (q *Queue) Follow(a *state.Applied) {
	if a.Kind != eventlog.KindEvent || a.Deleted || a.Deadline {
		return
	}
	if l := q.results.get(resource.Name{Namespace: a.Namespace, Name: a.Check}); l != nil {
		q.folded(l, resource.Name{Namespace: a.Namespace, Name: a.Check}, a.Entity, a.Body(), a.Received, a.Due > 0)
	}
}

// Recall takes what the state has of round-robin checks, before Start: the fold passes only the results since the state was
// last stored. event returns the newest event of a pair.
func (q *Queue) Recall(pairs iter.Seq[state.Pair], event func(p state.Pair) (*resource.Event, error), now time.Time) {
	left, newest := maxRecalled, map[resource.Name]state.Pair{}
	for p := range pairs {
		name := resource.Name{Namespace: p.Namespace, Name: p.Check}
		l := q.results.get(name)
		if l == nil {
			continue
		}
		if age := now.Sub(time.UnixMilli(p.Received)); age > 2*mostDeadline || left == 0 {
			if p.Due > 0 {
				raise(&l.received, p.Received)
			}
			if p.Received > newest[name].Received {
				newest[name] = p
			}
			continue
		}
		left--
		q.recall(name, l, &p, event)
	}
	for name, p := range newest { // only for the cursor
		q.recall(name, q.results.get(name), &p, event)
	}
}

func (q *Queue) recall(check resource.Name, l *latest, p *state.Pair, event func(p state.Pair) (*resource.Event, error)) {
	if ev, err := event(*p); err == nil && ev.Check != nil {
		ev.Entity = nil
		q.folded(l, check, p.Entity, ev.AppendProto(nil), p.Received, p.Due > 0)
	}
}

// maxRecalled bounds the events that Recall reads. A turn whose result it does not know may be run again.
const maxRecalled = 50_000

// folded takes an event of a round-robin check, as protobuf. deadline says that the next one must come in time.
func (q *Queue) folded(l *latest, check resource.Name, entity string, body []byte, received int64, deadline bool) {
	r, err := resource.PeekRun(body)
	if err != nil {
		return // no agent has sent it: the intake takes nothing that cannot be read
	}
	if len(r.ProxyEntity) == 0 && deadline {
		raise(&l.received, received)
	}
	g, ok := parseTurn(string(r.Turn), string(r.ProxyEntity))
	if !ok {
		return
	}
	agent := entity
	if n := len(r.ProcessedBy); n > 0 && n <= resource.MaxName {
		agent = string(r.ProcessedBy)
	}
	for _, subscription := range g.subscriptions {
		q.result(Group{check, subscription}, g.Turn, g.stamp, agent, r.Duration, time.Now())
	}
}

// result takes a turn's result. A group that is not known, an agent that has neither the subscription nor was asked, or a
// tick that cannot have been offered lately, is not kept in mind: agents could make up any number of them.
func (q *Queue) result(name Group, turn Turn, at uint64, agent string, took time.Duration, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	g := q.known(name, false)
	if g == nil {
		return
	}
	if q.complete && !slices.Contains(g.tried(turn), agent) && !q.presence.has(name, agent) {
		return // it was not asked; a member that has just begun cannot know that
	}
	g.move(at, agent, now)
	if g.open[turn] == nil && g.answer(turn) == nil {
		if age := now.Sub(time.Unix(turn.Tick, 0)); age > 2*g.limits.deadline || age < -leastDeadline {
			if q.here(turn) {
				g.counts.Late++
				q.count(g.check, q.metrics.late)
			}
			return
		}
	}
	q.answered(g, turn, agent, took, now)
}

func raise(at *atomic.Int64, to int64) {
	for old := at.Load(); to > old && !at.CompareAndSwap(old, to); {
		old = at.Load()
	}
}

// Received returns when an agent last had a result of a round-robin check with a TTL, in Unix milliseconds; 0 if that is not
// known. Results for proxy entities do not count.
func (q *Queue) Received(namespace, check string) int64 {
	if l := q.results.get(resource.Name{Namespace: namespace, Name: check}); l != nil {
		return l.received.Load()
	}
	return 0
}
