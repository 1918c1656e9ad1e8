package session

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// registry holds the open sessions by agent and by subscription, and the checks that are assigned to each
// subscription.
//
// Locks are taken in this order: the departures' mu, a session's configuring, the registry's mu, a session's mu, the
// pacer's mu or those of Agents. No definition is written while one of them is held: Server.onChange takes them, and
// writes wait for it.
type registry struct {
	mu            sync.RWMutex // guards the fields below
	agents        map[resource.Name][]*session
	subscriptions map[resource.Name]*subscription
	assignments   map[resource.Name]*assignment
	stopped       bool
	// Why new sessions are refused for now.
	draining, suspended bool

	staying atomic.Int64 // sessions that are to stay; each heartbeat to the other members has it
	present Agents       // nil for none
}

// subscription holds the sessions that have a subscription, and the checks that are assigned to it. The sessions are
// in the order in which they are written to.
type subscription struct {
	asked    []*session // sessions that get a request for each run
	planned  []*session // sessions with a schedule, which get requests only for checks that are not in it
	assigned []*assignment
}

func newRegistry() *registry {
	return &registry{
		agents:        map[resource.Name][]*session{},
		subscriptions: map[resource.Name]*subscription{},
		assignments:   map[resource.Name]*assignment{},
	}
}

// enter counts a caller that is about to add a session, so that running.Wait waits for it after stop. It returns false
// when the server is stopping.
func (r *registry) enter(running *sync.WaitGroup) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped {
		running.Add(1)
	}
	return !r.stopped
}

// add makes a session known. It returns false when the server takes no agents.
func (r *registry) add(s *session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped || r.draining || r.suspended {
		return false
	}
	k := resource.Name{Namespace: s.namespace, Name: s.name}
	same := append(r.agents[k], s)
	if r.agents[k] = same; len(same) > 1 {
		for _, one := range same {
			one.shared.Store(true)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counted = !s.closed; s.counted {
		r.staying.Add(1)
	}
	return true
}

// goes notes that a session is not to stay. The caller holds the session's mu.
func (r *registry) goes(s *session) {
	if s.counted {
		s.counted = false
		r.staying.Add(-1)
	}
}

func (r *registry) remove(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := resource.Name{Namespace: s.namespace, Name: s.name}
	same := slices.DeleteFunc(r.agents[k], func(o *session) bool { return o == s })
	if r.agents[k] = same; len(same) == 0 {
		delete(r.agents, k)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.goes(s)
	r.leave(s)
	s.lose()
	if s.configured {
		r.tell(k)
	}
}

// tell tells Agents which subscriptions an agent has now: those of its newest session. The caller holds mu.
func (r *registry) tell(k resource.Name) {
	if r.present == nil {
		return
	}
	for _, s := range slices.Backward(r.agents[k]) {
		if s.configured {
			r.present.Connected(k, s.subscriptions)
			return
		}
	}
	r.present.Gone(k)
}

// subscribe replaces a session's subscriptions. A lapwing agent gets its whole schedule again if they differ. A
// session that has ended in the meantime stays out.
func (r *registry) subscribe(s *session, subscriptions []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := resource.Name{Namespace: s.namespace, Name: s.name}
	if !slices.Contains(r.agents[k], s) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.configured && slices.Equal(s.subscriptions, subscriptions) {
		return
	}
	r.leave(s)
	s.subscriptions, s.configured = subscriptions, true
	s.plan.stale, s.plan.changes = s.lapwing, nil
	r.tell(k)
	for i, name := range subscriptions {
		if slices.Contains(subscriptions[:i], name) {
			continue
		}
		sub := r.subscription(resource.Name{Namespace: s.namespace, Name: name})
		list := sub.list(s)
		at, _ := slices.BinarySearchFunc(*list, s, func(o, s *session) int {
			return cmp.Or(compareTurns(o, s), -1) // behind those of the same agent
		})
		*list = slices.Insert(*list, at, s)
	}
}

// leave removes a session from its subscriptions. The caller holds both locks.
func (r *registry) leave(s *session) {
	for _, name := range s.subscriptions {
		k := resource.Name{Namespace: s.namespace, Name: name}
		sub := r.subscriptions[k]
		if sub == nil {
			continue // the list has it twice
		}
		list := sub.list(s)
		at, _ := slices.BinarySearchFunc(*list, s, compareTurns)
		for ; at < len(*list) && compareTurns((*list)[at], s) == 0; at++ {
			if (*list)[at] == s {
				*list = slices.Delete(*list, at, at+1)
				break
			}
		}
		r.tidy(k, sub)
	}
	s.subscriptions = nil
}

// compareTurns orders sessions by when in a second they are written to.
func compareTurns(a, b *session) int {
	return cmp.Or(cmp.Compare(a.offset, b.offset), strings.Compare(a.name, b.name))
}

func (r *registry) subscription(k resource.Name) *subscription {
	sub := r.subscriptions[k]
	if sub == nil {
		sub = new(subscription)
		r.subscriptions[k] = sub
	}
	return sub
}

// tidy removes a subscription that no session has and no check is assigned to.
func (r *registry) tidy(k resource.Name, sub *subscription) {
	if len(sub.asked)+len(sub.planned)+len(sub.assigned) == 0 {
		delete(r.subscriptions, k)
	}
}

func (sub *subscription) list(s *session) *[]*session {
	if s.lapwing {
		return &sub.planned
	}
	return &sub.asked
}

func (r *registry) agent(namespace, name string) []*session {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clone(r.agents[resource.Name{Namespace: namespace, Name: name}])
}

// Connected reports whether an agent of that name has a session.
func (r *registry) Connected(namespace, name string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.agents[resource.Name{Namespace: namespace, Name: name}]) > 0
}

// stop refuses new sessions and returns the open ones.
func (r *registry) stop() []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	return r.open()
}

// open returns all sessions. The caller holds mu.
func (r *registry) open() (all []*session) {
	for _, same := range r.agents {
		all = append(all, same...)
	}
	return all
}

// each calls f for every open session, with the session's mu held.
func (r *registry) each(f func(*session)) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, same := range r.agents {
		for _, s := range same {
			s.mu.Lock()
			f(s)
			s.mu.Unlock()
		}
	}
}

// without returns the subscriptions that no session has.
func (r *registry) without(namespace string, subscriptions []string) (none []string) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, name := range subscriptions {
		sub := r.subscriptions[resource.Name{Namespace: namespace, Name: name}]
		if sub == nil || len(sub.asked)+len(sub.planned) == 0 {
			none = append(none, name)
		}
	}
	return none
}

// assign replaces the assignment of a check; a is nil when it is assigned no more. The agents of its subscriptions get
// the change.
func (r *registry) assign(k resource.Name, a *assignment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.assignments[k]
	if old != nil {
		delete(r.assignments, k)
		for _, name := range old.subscriptions {
			at := resource.Name{Namespace: k.Namespace, Name: name}
			if sub := r.subscriptions[at]; sub != nil {
				sub.assigned = slices.DeleteFunc(sub.assigned, func(o *assignment) bool { return o == old })
				r.unassign(sub, k.Name, a)
				r.tidy(at, sub)
			}
		}
	}
	if a == nil {
		return
	}
	r.assignments[k] = a
	for i, name := range a.subscriptions {
		if slices.Contains(a.subscriptions[:i], name) {
			continue
		}
		sub := r.subscription(resource.Name{Namespace: k.Namespace, Name: name})
		sub.assigned = append(sub.assigned, a)
		for _, s := range sub.planned {
			s.mu.Lock()
			s.change(k.Name, a)
			s.mu.Unlock()
		}
	}
}

// unassign removes a check from sessions of a subscription, unless they have it again through another subscription
// of theirs.
func (r *registry) unassign(sub *subscription, name string, a *assignment) {
	for _, s := range sub.planned {
		s.mu.Lock()
		if a == nil || !slices.ContainsFunc(a.subscriptions, func(n string) bool { return slices.Contains(s.subscriptions, n) }) {
			s.change(name, nil)
		}
		s.mu.Unlock()
	}
}

// schedule appends all assignments of a session. The caller holds both locks.
func (r *registry) schedule(s *session, entries []wire.ScheduleEntry) []wire.ScheduleEntry {
	for i, name := range s.subscriptions {
		sub := r.subscriptions[resource.Name{Namespace: s.namespace, Name: name}]
		if sub == nil || slices.Contains(s.subscriptions[:i], name) {
			continue
		}
		for _, a := range sub.assigned {
			twice := slices.ContainsFunc(s.subscriptions[:i], func(n string) bool { return slices.Contains(a.subscriptions, n) })
			if !twice {
				entries = append(entries, a.entry(s.offset, s.shift))
			}
		}
	}
	return entries
}
