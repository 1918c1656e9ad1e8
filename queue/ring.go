package queue

import (
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// agent is a connected agent. It is in the ring of each of its subscriptions once, however many members it is connected
// to. There are very many, so it is small.
type agent struct {
	name string
	home *home // that gets requests, the newest; others are in Presence.older
}

// home is a set of subscriptions at a member, without an agent's own one (see Presence.own). The agents that are connected to
// that member and have these subscriptions share it.
type home struct {
	homeKey
	rings  []*ring
	agents int // that share it
}

// homeKey tells the homes of a site apart.
type homeKey struct {
	site                     *site
	namespace, subscriptions string
}

func (a *agent) full() resource.Name { return resource.Name{Namespace: a.home.namespace, Name: a.name} }

// ring is the agents of a subscription in the order of their names, which is the order of their turns. Changes wait until
// the ring is looked at: when many agents come together, each of them would move half of the others.
type ring struct {
	subscription resource.Name
	agents       []*agent
	turns        []uint32        // how many each of them had since it came
	changed      map[*agent]bool // whether it is in the ring from now on
}

func (r *ring) set(a *agent, in bool) {
	if r.changed == nil {
		r.changed = map[*agent]bool{}
	}
	r.changed[a] = in
}

// settle puts the changes into effect.
func (r *ring) settle() {
	if len(r.changed) == 0 {
		return
	}
	var come []*agent
	for a, in := range r.changed {
		if in {
			come = append(come, a)
		}
	}
	slices.SortFunc(come, byName)
	agents, turns := make([]*agent, 0, len(r.agents)+len(come)), make([]uint32, 0, len(r.agents)+len(come))
	add := func(a *agent, had uint32) { agents, turns = append(agents, a), append(turns, had) }
	for i, a := range r.agents {
		for len(come) > 0 && byName(come[0], a) < 0 {
			add(come[0], 0)
			come = come[1:]
		}
		if len(come) > 0 && byName(come[0], a) == 0 {
			add(come[0], r.turns[i]) // it was there, or is back
			come = come[1:]
		} else if _, changed := r.changed[a]; !changed {
			add(a, r.turns[i])
		}
	}
	for _, a := range come {
		add(a, 0)
	}
	r.agents, r.turns, r.changed = agents, turns, nil
}

func byName(a, b *agent) int { return strings.Compare(a.name, b.name) }

func (r *ring) empty() bool {
	r.settle()
	return len(r.agents) == 0
}

// search returns the place of a name. The ring must be settled.
func (r *ring) search(name string) (at int, found bool) {
	return slices.BinarySearchFunc(r.agents, name, func(a *agent, name string) int { return strings.Compare(a.name, name) })
}

// after returns the place of the first agent behind a name, and begins anew at the end. The ring must not be empty. near is
// where the name may be: mostly no agent has come or gone.
func (r *ring) after(name string, near int) int {
	at, found := near, near < len(r.agents) && r.agents[near].name == name
	if !found {
		at, found = r.search(name)
	}
	if found {
		at++
	}
	return at % len(r.agents)
}
