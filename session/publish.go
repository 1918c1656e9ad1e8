package session

import (
	"slices"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// Publish sends a check request to its agents: all that have one of its subscriptions. Agents that have the check in
// their schedule are left out. It never waits for an agent.
func (s *Server) Publish(q schedule.Request) {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.published++
	p := publication{server: s, request: q.Request, number: s.published, tick: q.Due.UnixMilli(), now: time.Now().UnixMilli()}
	p.all(&q)
	s.metrics.requests.Add(float64(p.sent))
}

// Ask sends a check request that is due to one agent, and reports whether a connection of it takes it. It never waits for
// the agent. If the request does not leave after all, because the agent goes or another request for the same check replaces
// it, lost is called, with locks held: it must not call the Server.
func (s *Server) Ask(agent resource.Name, q *resource.CheckRequest, due time.Time, lost func()) bool {
	p := publication{server: s, request: q, tick: due.UnixMilli(), now: time.Now().UnixMilli(), lost: lost}
	for _, one := range slices.Backward(s.registry.agent(agent.Namespace, agent.Name)) {
		if p.to(one); p.queued { // by one session only: see message.scratch
			s.metrics.requests.Add(float64(p.sent))
			return true
		}
	}
	return false
}

// publication is one request on its way to the sessions. Its number identifies it; it is 0 for one to a single agent.
type publication struct {
	server    *Server
	request   *resource.CheckRequest
	own       *resource.CheckRequest // for lapwing agents, made when first needed; often the same
	number    uint64
	tick, now int64          // Unix milliseconds
	frames    [2][2]*message // by protocol and encoding, made when first needed and shared by all sessions
	lost      func()
	queued    bool // by a session at least
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

// scratches are buffers to encode requests in: a frame that grows as it is encoded would leave twice its size as garbage.
var scratches = sync.Pool{New: func() any { return new([]byte) }}

// encode makes the frame. own says that only one session sends it: then it stays in the buffer that it was made in, unless
// that is much larger.
func (m *message) encode(e wire.Encoding, q *resource.CheckRequest, own bool) error {
	scratch := scratches.Get().(*[]byte)
	frame, err := wire.Append((*scratch)[:0], wire.TypeCheckRequest, e, q)
	if err != nil {
		scratches.Put(scratch)
		return err
	}
	if *scratch = frame; own && cap(frame) <= 2*len(frame) {
		m.frame, m.scratch = frame, scratch
		return nil
	}
	m.frame = slices.Clone(frame)
	scratches.Put(scratch)
	return nil
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
		m = &message{check: p.request.Config.Metadata.Name, proxy: p.request.Config.ProxyEntityName, lost: p.lost}
		if err := m.encode(s.encoding, request, p.number == 0); err != nil {
			p.server.rare.Error("check request cannot be encoded", m.check, "check", m.check, "err", err)
		}
		p.frames[protocol][s.encoding] = m
	}
	if len(m.frame) == 0 {
		return
	}
	queued, replaced := s.request(m, p.number, p.tick, p.now)
	p.queued = p.queued || queued
	if queued && !replaced { // one that replaces another counts with that
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

// OwnSchedule reports whether an agent is connected, and whether it runs the checks of its schedule by itself.
func (s *Server) OwnSchedule(agent resource.Name) (connected, own bool) {
	for _, one := range slices.Backward(s.registry.agent(agent.Namespace, agent.Name)) {
		return true, one.lapwing // the newest one
	}
	return false, false
}

// WithoutAgent returns the subscriptions that no connected agent has.
func (s *Server) WithoutAgent(namespace string, subscriptions []string) []string {
	return s.registry.without(namespace, subscriptions)
}
