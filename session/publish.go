package session

import (
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// Publish sends a check request to its agents: all that have one of its subscriptions, or with round robin one agent
// of each. Agents that have the check in their schedule are left out. It never waits for an agent.
func (s *Server) Publish(q schedule.Request) {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.published++
	p := publication{server: s, request: q.Request, number: s.published, tick: q.Tick.UnixMilli(), now: time.Now().UnixMilli()}
	if q.Pick {
		p.pick(&q)
	} else {
		p.all(&q)
	}
	s.metrics.requests.Add(float64(p.sent))
}

// publication is one request on its way to the sessions. Its number identifies it.
type publication struct {
	server    *Server
	request   *resource.CheckRequest
	own       *resource.CheckRequest // for lapwing agents, made when first needed; often the same
	number    uint64
	tick, now int64          // Unix milliseconds
	frames    [2][2]*message // by protocol and encoding, made when first needed and shared by all sessions
	sent      int
}

func (p *publication) all(q *schedule.Request) {
	r := p.server.registry
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, name := range q.Subscriptions {
		sub := r.subscriptions[resource.Name{Namespace: q.Namespace, Name: name}]
		if sub == nil {
			continue
		}
		for _, s := range sub.asked {
			p.to(s)
		}
		if !q.Assigned {
			for _, s := range sub.planned {
				p.to(s)
			}
		}
	}
}

func (p *publication) pick(q *schedule.Request) {
	r := p.server.registry
	r.mu.Lock() // byName may have to be built
	defer r.mu.Unlock()
	for _, name := range q.Subscriptions {
		if sub := r.subscriptions[resource.Name{Namespace: q.Namespace, Name: name}]; sub != nil {
			if s := sub.pick(q.Ordinal); s != nil {
				p.to(s)
			}
		}
	}
}

func (p *publication) to(s *session) {
	request, protocol := p.request, 0
	if s.lapwing {
		if p.own == nil {
			p.own = p.server.opts.ForLapwing(p.request)
		}
		if p.own != p.request {
			request, protocol = p.own, 1
		}
	}
	m := p.frames[protocol][s.encoding]
	if m == nil {
		frame, err := wire.Append(nil, wire.TypeCheckRequest, s.encoding, request)
		if err != nil {
			p.server.rare.Error("check request cannot be encoded", p.request.Config.Metadata.Name,
				"check", p.request.Config.Metadata.Name, "err", err)
			frame = nil
		}
		m = &message{frame: frame, check: p.request.Config.Metadata.Name, proxy: p.request.Config.ProxyEntityName}
		p.frames[protocol][s.encoding] = m
	}
	if len(m.frame) > 0 && s.request(m, p.number, p.tick, p.now) {
		p.sent++
	}
}

// Assign replaces the checks that lapwing agents run by themselves. Each agent gets all its changes together, at its
// moment.
func (s *Server) Assign(changed []schedule.Assignment) {
	for i := range changed {
		c := &changed[i]
		var a *assignment
		if c.Request != nil {
			a = newAssignment(c, s.opts.ForLapwing(c.Request))
		}
		s.registry.assign(resource.Name{Namespace: c.Namespace, Name: c.Check}, a)
	}
}

// WithoutAgent returns the subscriptions that no connected agent has.
func (s *Server) WithoutAgent(namespace string, subscriptions []string) []string {
	return s.registry.without(namespace, subscriptions)
}
