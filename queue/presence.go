package queue

import (
	"maps"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Presence knows which agents are connected to which member of the cluster, and their subscriptions. Members send each
// other what changes, under numbers without gaps, and a whole copy to one that has missed something. The heartbeats carry
// Number, so that a member notices that it has missed the last change.
//
// It is safe for concurrent use.
type Presence struct {
	mu   sync.Mutex // guards the fields below, and all that they lead to
	self *site
	rings
	agents map[resource.Name]*agent
	sites  map[string]*site // the other members, by id
	// changed are the own agents whose change the other members have not got, and left the connections that have ended
	// since takeLeft.
	changed map[resource.Name]struct{}
	left    map[connection]struct{}
}

// site is a member, as far as its agents are concerned.
type site struct {
	member string
	life   string // of its process
	number uint64 // of its newest change that is in effect
	homes  map[resource.Name]*home
	missed bool // its agents may be others than homes says
	asked  bool // for a copy, which has not come yet
}

// newPresence returns the presence of a member and one of its process's lives, without agents.
func newPresence(member, life string) *Presence {
	return &Presence{
		self: newSite(member, life), rings: rings{}, agents: map[resource.Name]*agent{}, sites: map[string]*site{},
		changed: map[resource.Name]struct{}{}, left: map[connection]struct{}{},
	}
}

func newSite(member, life string) *site {
	return &site{member: member, life: life, homes: map[resource.Name]*home{}}
}

// Connected says that an agent is connected to this member, and has these subscriptions from now on.
func (p *Presence) Connected(name resource.Name, subscriptions []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle(p.self, name, subscriptions)
	p.changed[name] = struct{}{}
}

// Gone says that an agent is not connected to this member any more.
func (p *Presence) Gone(name resource.Name) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.self.homes[name] != nil {
		p.leave(p.self, name)
		p.changed[name] = struct{}{}
	}
}

// settle gives an agent a home with these subscriptions. The caller holds mu.
func (p *Presence) settle(s *site, name resource.Name, subscriptions []string) {
	a := p.agents[name]
	if a == nil {
		a = &agent{name: name}
		p.agents[name] = a
	}
	h := s.homes[name]
	if h == nil {
		h = &home{site: s, agent: a}
		s.homes[name] = h
		a.homes = append(a.homes, h)
	}
	old := h.rings
	h.rings = make([]*ring, 0, len(subscriptions))
	for _, subscription := range subscriptions {
		r := p.of(resource.Name{Namespace: name.Namespace, Name: subscription})
		if !slices.Contains(h.rings, r) {
			h.rings = append(h.rings, r)
			r.set(a, true)
		}
	}
	p.leaveRings(a, old)
}

// leave takes a home away. The caller holds mu.
func (p *Presence) leave(s *site, name resource.Name) {
	h := s.homes[name]
	delete(s.homes, name)
	a := h.agent
	a.homes = slices.DeleteFunc(a.homes, func(o *home) bool { return o == h })
	p.leaveRings(a, h.rings)
	if len(a.homes) == 0 {
		delete(p.agents, name)
	}
	p.left[connection{name, s.member}] = struct{}{}
}

// leaveRings takes an agent out of the rings that it has through no home any more, and removes those that are empty then.
func (p *Presence) leaveRings(a *agent, old []*ring) {
	for _, r := range old {
		if a.has(r) {
			continue
		}
		r.set(a, false)
		if len(r.changed) >= len(r.agents) && r.empty() {
			delete(p.rings, r.subscription)
		}
	}
}

// Number is that of the newest change that the other members were told.
func (p *Presence) Number() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.self.number
}

// changes returns a message for the other members about own agents that have changed since the last call, and more if
// there are others left. It returns nil if none has changed. size bounds it, in bytes, as far as one agent fits.
func (p *Presence) changes(size int) (message []byte, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.changed) == 0 {
		return nil, false
	}
	p.self.number++
	w := p.begin()
	for name := range p.changed {
		if w.items > 0 && len(w.buf) > size {
			return w.buf, true
		}
		delete(p.changed, name)
		w.agent(name, p.self.homes[name])
	}
	return w.buf, false
}

// copy returns a message with all own agents. The changes up to its number are in it.
func (p *Presence) copy() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.begin()
	for name, h := range p.self.homes {
		w.agent(name, h)
	}
	return w.buf
}

// begin begins a message. The caller holds mu.
func (p *Presence) begin() *writer {
	w := newWriter(presenceVersion, p.self.member)
	w.text(p.self.life)
	w.uint(p.self.number)
	return w
}

// hear takes another member's changes. A member whose changes are not complete is missed from then on.
func (p *Presence) hear(message []byte) error {
	m, err := readPresence(message)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.site(m.member, m.life)
	switch {
	case s == nil || m.number <= s.number:
		return nil // its own, or a change that a copy has
	case m.number != s.number+1:
		s.missed = true
	}
	if s.missed {
		return nil
	}
	s.number = m.number
	p.apply(s, m.agents)
	return nil
}

// take takes another member's copy.
func (p *Presence) take(message []byte) error {
	m, err := readPresence(message)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.site(m.member, m.life)
	if s == nil {
		return nil
	}
	s.number, s.missed = m.number, false
	gone := maps.Clone(s.homes)
	for _, a := range m.agents {
		delete(gone, a.name)
	}
	for name := range gone {
		p.leave(s, name)
	}
	p.apply(s, m.agents)
	return nil
}

// heard takes the Number of a member's heartbeat. It reports whether any of the member's agents were missed, and whether its
// copy is wanted; the caller must ask for it, and call asked when it came or did not.
func (p *Presence) heard(member, life string, number uint64) (missed, wanted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.site(member, life)
	if s == nil {
		return false, false
	}
	s.missed = s.missed || number > s.number
	wanted = s.missed && !s.asked
	s.asked = s.asked || wanted
	return s.missed, wanted
}

func (p *Presence) asked(member string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.sites[member]; s != nil {
		s.asked = false
	}
}

// lost says that a member is not heard any more: its agents have to be elsewhere, or are gone.
func (p *Presence) lost(member string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.sites[member]; s != nil {
		p.vacate(s)
		delete(p.sites, member)
	}
}

// site returns another member in one of its lives; nil for this one. An earlier life's agents are gone. The caller holds
// mu.
func (p *Presence) site(member, life string) *site {
	if member == p.self.member {
		return nil
	}
	s := p.sites[member]
	if s == nil || s.life != life {
		if s != nil {
			p.vacate(s)
		}
		s = newSite(member, life)
		p.sites[member] = s
	}
	return s
}

func (p *Presence) vacate(s *site) {
	for name := range maps.Clone(s.homes) {
		p.leave(s, name)
	}
}

func (p *Presence) apply(s *site, agents []present) {
	for _, a := range agents {
		if a.connected {
			p.settle(s, a.name, a.subscriptions)
		} else if s.homes[a.name] != nil {
			p.leave(s, a.name)
		}
	}
}

// connection is that of an agent to a member.
type connection struct {
	agent  resource.Name
	member string
}

// takeLeft returns the connections that have ended since the last call. The agents may be back.
func (p *Presence) takeLeft() map[connection]struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.left) == 0 {
		return nil
	}
	left := p.left
	p.left = map[connection]struct{}{}
	return left
}

// memberOf returns the member that an agent is connected to; "" for none.
func (p *Presence) memberOf(agent resource.Name) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.agents[agent]; a != nil {
		return a.at().site.member
	}
	return ""
}

// ring returns the agents of a group; nil if there is none. The caller holds mu.
func (p *Presence) ring(g Group) *ring {
	r := p.rings[resource.Name{Namespace: g.Check.Namespace, Name: g.Subscription}]
	if r == nil || r.empty() {
		return nil
	}
	return r
}

// others reports whether a group has agents besides those that were tried.
func (p *Presence) others(g Group, tried []string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.ring(g)
	return r != nil && slices.ContainsFunc(r.agents, func(a *agent) bool { return !slices.Contains(tried, a.name.Name) })
}

// has reports whether a group has an agent.
func (p *Presence) has(g Group, agent string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.ring(g)
	if r == nil {
		return false
	}
	_, found := r.search(agent)
	return found
}

// some reports whether a group has agents.
func (p *Presence) some(g Group) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ring(g) != nil
}

// countTurn counts a turn that another member has given to an agent of a group.
func (p *Presence) countTurn(g Group, agent string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.ring(g); r != nil {
		if at, found := r.search(agent); found {
			r.turns[at]++
		}
	}
}

// next returns the agent that has a group's next turn, and its member. The agent is "" if there is none but those who
// were tried; some reports whether there are any.
func (p *Presence) next(g *group, tried []string) (agent, member string, some bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.ring(g.name)
	if r == nil {
		return "", "", false
	}
	if g.cursor == "" { // each group begins with another agent, or the first one would have the first turns of all
		hash := xxhash.Sum64String(g.name.Check.Name + "\x00" + g.name.Subscription)
		g.cursor = r.agents[hash%uint64(len(r.agents))].name.Name
	}
	for name, steps := g.cursor, 0; steps <= len(tried); steps++ {
		at := r.after(name)
		if name = r.agents[at].name.Name; !slices.Contains(tried, name) {
			r.turns[at]++
			return name, r.agents[at].at().site.member, true
		}
	}
	return "", "", true
}
