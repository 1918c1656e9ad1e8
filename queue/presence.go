package queue

import (
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Presence knows which agents are connected to which member of the cluster, and their subscriptions. Members send each
// other what changes, under numbers without gaps, and a whole copy to one that has missed something. The heartbeats carry
// Number, so that a member notices that it has missed the last change.
//
// It is safe for concurrent use.
type Presence struct {
	mu     sync.Mutex // guards the fields below, and all that they lead to
	self   *site
	rings  map[resource.Name]*ring
	agents map[string]map[string]*agent // by namespace and name
	older  map[*agent][]*home           // of agents that are connected to several members; the newer ones come last
	homes  map[homeKey]*home
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
	missed bool   // its agents may be others than Presence says
	asked  bool   // for a copy, which has not come yet
}

// newPresence returns the presence of a member and one of its process's lives, without agents.
func newPresence(member, life string) *Presence {
	return &Presence{
		self: &site{member: member, life: life}, rings: map[resource.Name]*ring{}, agents: map[string]map[string]*agent{},
		older: map[*agent][]*home{}, homes: map[homeKey]*home{}, sites: map[string]*site{},
		changed: map[resource.Name]struct{}{}, left: map[connection]struct{}{},
	}
}

// Connected says that an agent is connected to this member, and has these subscriptions from now on. It also has its own
// one, whether that is among them or not.
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
	if p.leave(p.self, p.agent(name)) {
		p.changed[name] = struct{}{}
	}
}

// agent returns a connected agent; nil if it is not. The caller holds mu, as for all functions with a small initial that do
// not take it.
func (p *Presence) agent(name resource.Name) *agent { return p.agents[name.Namespace][name.Name] }

// homeAt returns an agent's home at a site; nil if it has none there.
func (p *Presence) homeAt(s *site, a *agent) *home {
	switch {
	case a == nil:
		return nil
	case a.home.site == s:
		return a.home
	}
	for _, h := range p.older[a] {
		if h.site == s {
			return h
		}
	}
	return nil
}

// settle gives an agent a home with these subscriptions.
func (p *Presence) settle(s *site, name resource.Name, subscriptions []string) {
	a := p.agent(name)
	old, h := p.homeAt(s, a), p.share(s, name, subscriptions)
	if old == h {
		h.agents-- // nothing has changed
		return
	}
	switch {
	case a == nil:
		a = &agent{name.Name, h}
		p.add(a)
	case a.home == old:
		a.home = h
	case old != nil:
		p.older[a][slices.Index(p.older[a], old)] = h
	default:
		p.older[a] = append(p.older[a], a.home)
		a.home = h
	}
	for _, r := range h.rings {
		r.set(a, true)
	}
	if old != nil {
		p.leaveHome(a, old)
	}
}

// leave takes the home at a site away from an agent, and reports whether it had one.
func (p *Presence) leave(s *site, a *agent) bool {
	old := p.homeAt(s, a)
	if old == nil {
		return false
	}
	p.left[connection{a.full(), s.member}] = struct{}{}
	others := slices.DeleteFunc(append(p.older[a], a.home), func(h *home) bool { return h == old })
	last := len(others) - 1
	if last < 0 {
		p.remove(a)
	} else {
		a.home = others[last]
		if p.older[a] = others[:last]; last == 0 {
			delete(p.older, a)
		}
	}
	p.leaveHome(a, old)
	return true
}

// leaveHome takes an agent out of the rings that it has through no other home.
func (p *Presence) leaveHome(a *agent, old *home) {
	for _, r := range old.rings {
		has := func(h *home) bool { return slices.Contains(h.rings, r) }
		if (a.home == nil || !has(a.home)) && !slices.ContainsFunc(p.older[a], has) {
			p.part(r, a)
		}
	}
	if old.agents--; old.agents == 0 {
		delete(p.homes, old.homeKey)
	}
}

// part takes an agent out of a ring, and removes the ring if it is empty then.
func (p *Presence) part(r *ring, a *agent) {
	r.set(a, false)
	if len(r.changed) >= len(r.agents) && r.empty() {
		delete(p.rings, r.subscription)
	}
}

// add adds an agent that had no home.
func (p *Presence) add(a *agent) {
	of := p.agents[a.home.namespace]
	if of == nil {
		of = map[string]*agent{}
		p.agents[a.home.namespace] = of
	}
	of[a.name] = a
	if r := p.own(a.full()); r != nil {
		r.set(a, true)
	}
}

// remove removes an agent that has no home any more.
func (p *Presence) remove(a *agent) {
	name := a.full()
	if delete(p.agents[name.Namespace], name.Name); len(p.agents[name.Namespace]) == 0 {
		delete(p.agents, name.Namespace)
	}
	if r := p.own(name); r != nil {
		p.part(r, a)
	}
	a.home = nil
}

// own returns the ring of an agent's own subscription; nil if there is none yet. It is made when a group or another agent
// first needs it: otherwise there would be one more ring for each agent.
func (p *Presence) own(agent resource.Name) *ring {
	return p.rings[resource.Name{Namespace: agent.Namespace, Name: resource.EntitySubscription(agent.Name)}]
}

// of returns a subscription's ring, and makes it if necessary.
func (p *Presence) of(subscription resource.Name) *ring {
	r := p.rings[subscription]
	if r == nil {
		r = &ring{subscription: subscription}
		p.rings[subscription] = r
		if a := p.owner(subscription); a != nil {
			r.set(a, true)
		}
	}
	return r
}

// owner returns the connected agent whose own subscription it is; nil if there is none.
func (p *Presence) owner(subscription resource.Name) *agent {
	name, own := strings.CutPrefix(subscription.Name, resource.EntitySubscription(""))
	if !own {
		return nil
	}
	return p.agent(resource.Name{Namespace: subscription.Namespace, Name: name})
}

// share counts an agent in for a home, and makes the home if it is the first one. leaveHome counts it out again.
func (p *Presence) share(s *site, agent resource.Name, subscriptions []string) *home {
	own := resource.EntitySubscription(agent.Name)
	list := slices.DeleteFunc(slices.Clone(subscriptions), func(name string) bool { return name == own })
	slices.Sort(list)
	list = slices.Compact(list)
	var text []byte
	for _, name := range list {
		text = fields.AppendBytes(text, name)
	}
	k := homeKey{s, agent.Namespace, string(text)}
	h := p.homes[k]
	if h == nil {
		h = &home{homeKey: k}
		for _, name := range list {
			h.rings = append(h.rings, p.of(resource.Name{Namespace: agent.Namespace, Name: name}))
		}
		p.homes[k] = h
	}
	h.agents++
	return h
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
		w.agent(name, p.homeAt(p.self, p.agent(name)))
	}
	return w.buf, false
}

// copy returns a message with all own agents. The changes up to its number are in it.
func (p *Presence) copy() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.begin()
	for a := range p.at(p.self) {
		w.agent(a.full(), p.homeAt(p.self, a))
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
	has := make(map[*agent]bool, len(m.agents))
	for _, a := range m.agents {
		has[p.agent(a.name)] = true
	}
	for a := range p.at(s) {
		if !has[a] {
			p.leave(s, a)
		}
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
		s = &site{member: member, life: life}
		p.sites[member] = s
	}
	return s
}

// at returns the agents that are connected to a site. Any of them may be taken away meanwhile.
func (p *Presence) at(s *site) iter.Seq[*agent] {
	return func(yield func(*agent) bool) {
		for _, agents := range p.agents {
			for _, a := range agents {
				if p.homeAt(s, a) != nil && !yield(a) {
					return
				}
			}
		}
	}
}

func (p *Presence) vacate(s *site) {
	for a := range p.at(s) {
		p.leave(s, a)
	}
}

func (p *Presence) apply(s *site, agents []present) {
	for _, a := range agents {
		if a.connected {
			p.settle(s, a.name, a.subscriptions)
		} else {
			p.leave(s, p.agent(a.name))
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

// MemberOf returns the member that an agent is connected to; "" for none.
func (p *Presence) MemberOf(agent resource.Name) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.agent(agent); a != nil {
		return a.home.site.member
	}
	return ""
}

// ring returns the agents of a group; nil if there is none. The caller holds mu.
func (p *Presence) ring(g Group) *ring {
	subscription := resource.Name{Namespace: g.Check.Namespace, Name: g.Subscription}
	r := p.rings[subscription]
	if r == nil && p.owner(subscription) != nil {
		r = p.of(subscription)
	}
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
	return r != nil && slices.ContainsFunc(r.agents, func(a *agent) bool { return !slices.Contains(tried, a.name) })
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
		g.cursor = r.agents[hash%uint64(len(r.agents))].name
	}
	for name, steps := g.cursor, 0; steps <= len(tried); steps++ {
		g.place = r.after(name, g.place)
		if name = r.agents[g.place].name; !slices.Contains(tried, name) {
			r.turns[g.place]++
			return name, r.agents[g.place].home.site.member, true
		}
	}
	return "", "", true
}
