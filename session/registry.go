package session

import (
	"slices"
	"strings"
	"sync"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// registry knows the open sessions by agent and by subscription.
type registry struct {
	mu      sync.RWMutex // guards the maps; taken after no other lock
	byAgent map[key][]*session
	bySub   map[key]map[*session]struct{}
	all     map[*session]struct{}
	stopped bool
}

// key is a namespace and, in it, an agent's name or a subscription.
type key struct{ namespace, name string }

func newRegistry() *registry {
	return &registry{byAgent: map[key][]*session{}, bySub: map[key]map[*session]struct{}{}, all: map[*session]struct{}{}}
}

// add makes a session known; false when the server is stopping.
func (r *registry) add(s *session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return false
	}
	r.all[s] = struct{}{}
	k := key{s.namespace, s.name}
	r.byAgent[k] = append(r.byAgent[k], s)
	return true
}

func (r *registry) remove(s *session) {
	s.mu.Lock()
	subs := s.subscriptions
	s.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, s)
	k := key{s.namespace, s.name}
	r.byAgent[k] = slices.DeleteFunc(r.byAgent[k], func(o *session) bool { return o == s })
	if len(r.byAgent[k]) == 0 {
		delete(r.byAgent, k)
	}
	r.unsubscribe(s, subs)
}

func (r *registry) unsubscribe(s *session, subs []string) {
	for _, sub := range subs {
		k := key{s.namespace, sub}
		delete(r.bySub[k], s)
		if len(r.bySub[k]) == 0 {
			delete(r.bySub, k)
		}
	}
}

// resubscribe replaces a session's subscriptions. A session that has ended in the meantime stays out.
func (r *registry) resubscribe(s *session, old, fresh []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.all[s]; !ok {
		return
	}
	r.unsubscribe(s, old)
	for _, sub := range fresh {
		k := key{s.namespace, sub}
		if r.bySub[k] == nil {
			r.bySub[k] = map[*session]struct{}{}
		}
		r.bySub[k][s] = struct{}{}
	}
}

func (r *registry) agent(namespace, name string) []*session {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clone(r.byAgent[key{namespace, name}])
}

// stop refuses new sessions and returns the open ones.
func (r *registry) stop() []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	open := make([]*session, 0, len(r.all))
	for s := range r.all {
		open = append(open, s)
	}
	return open
}

// targets are the sessions a request goes to: each once, however many of the subscriptions it has. A round-robin request
// goes to one agent of each subscription.
func (r *registry) targets(q *schedule.Request) []*session {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var targets []*session
	seen := map[*session]struct{}{}
	for _, sub := range q.Subscriptions {
		members := r.bySub[key{q.Namespace, sub}]
		if len(members) == 0 {
			continue
		}
		if q.Pick {
			names := make([]string, 0, len(members))
			for s := range members {
				names = append(names, s.name)
			}
			slices.Sort(names)
			names = slices.Compact(names)
			picked := names[q.Ordinal%uint64(len(names))]
			for s := range members {
				if s.name == picked {
					if _, twice := seen[s]; !twice {
						seen[s] = struct{}{}
						targets = append(targets, s)
					}
					break
				}
			}
			continue
		}
		for s := range members {
			if _, twice := seen[s]; !twice {
				seen[s] = struct{}{}
				targets = append(targets, s)
			}
		}
	}
	slices.SortFunc(targets, func(a, b *session) int { return strings.Compare(a.name, b.name) })
	return targets
}

// Publish sends a check request to the agents it is for. It never waits for an agent.
func (s *Server) Publish(q schedule.Request) {
	var frames [2][]byte // by encoding, made when the first session needs it
	for _, t := range s.registry.targets(&q) {
		if frames[t.encoding] == nil {
			frame, err := encodeRequest(q.Request, t.encoding)
			if err != nil {
				s.log.Error("check request cannot be encoded", "check", q.Request.Config.Metadata.Name, "err", err)
				return
			}
			frames[t.encoding] = frame
		}
		t.send(frames[t.encoding])
		s.metrics.requests.Inc()
	}
}

func encodeRequest(r *resource.CheckRequest, enc wire.Encoding) ([]byte, error) {
	return wire.Append(nil, wire.TypeCheckRequest, enc, r)
}
