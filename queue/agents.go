package queue

import (
	"slices"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// AgentsOf returns the names of the agents of a namespace that are connected to any member and have one of some
// subscriptions, in order.
func (p *Presence) AgentsOf(namespace string, subscriptions []string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := map[string]bool{}
	for _, name := range subscriptions {
		id := resource.Name{Namespace: namespace, Name: name}
		if a := p.owner(id); a != nil { // its ring may not be made yet
			found[a.name] = true
		}
		r := p.rings[id]
		if r == nil {
			continue
		}
		r.settle()
		for _, a := range r.agents {
			found[a.name] = true
		}
	}
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// IsConnected reports whether an agent is connected to any member.
func (p *Presence) IsConnected(agent resource.Name) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.agent(agent) != nil
}

// Counts returns how many connected agents of a namespace have each subscription but their own ones.
func (p *Presence) Counts(namespace string) map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := map[string]int{}
	for id, r := range p.rings {
		if id.Namespace != namespace {
			continue
		}
		r.settle()
		if len(r.agents) > 0 {
			counts[id.Name] = len(r.agents)
		}
	}
	return counts
}
