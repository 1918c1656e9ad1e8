package fleet

import (
	"github.com/lapwing-monitoring/lapwing/internal/natural"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
	"github.com/lapwing-monitoring/lapwing/view"
)

// Row is an entity in the table. It is replaced and not changed.
type Row struct {
	Config   *resource.EntityConfig // its definition
	Host     *Host
	Hostname string
	LastSeen int64  // Unix seconds; 0 if never
	Backend  string // the member that its agent is connected to; "" if it is not, or if that is not known
	Events   view.Counts
	Agent    Agent

	slot int // its place in the table
	// version is that of the first snapshot with the row, and changed the same of the first row since which nothing but
	// LastSeen has changed.
	version, changed uint64
}

// Host is what agents report of their hosts, as far as many hosts have it in common. Equal ones are shared.
type Host struct {
	System  resource.System // without what differs from host to host
	Version string          // of the agent
	order   string          // orders by Version
}

// Agent is the state of an entity's agent.
type Agent uint8

// The states, the worst last. None is for entities without an agent: proxies, and the backend's own.
const (
	None Agent = iota
	Connected
	Late
	Gone
	agents
)

// NoEvents is the worst class of an entity without events. It comes after view.OK.
const NoEvents = view.OK + 1

// Worst returns the worst class of the entity's events.
func (r *Row) Worst() view.Class {
	for class, n := range r.Events {
		if n > 0 {
			return view.Class(class)
		}
	}
	return NoEvents
}

// same reports whether two rows of an entity differ in nothing but LastSeen.
func (r *Row) same(as *Row) bool {
	return r.Config == as.Config && r.Host == as.Host && r.Hostname == as.Hostname && r.Backend == as.Backend &&
		r.Events == as.Events && r.Agent == as.Agent
}

// entity joins what the row has, for selectors. It lacks the addresses and the processes of the host.
func (r *Row) entity() *resource.Entity {
	st := resource.EntityState{System: r.Host.System, LastSeen: r.LastSeen, SensuAgentVersion: r.Host.Version}
	st.System.Hostname = r.Hostname
	return resource.JoinEntity(r.Config, &st)
}

// hostKey has those fields of a host that can be compared.
type hostKey struct {
	os, platform, family, platformVersion, arch, libc, vm, role, cloud, float, version string
	arm                                                                                int32
}

// hosts shares equal hosts.
type hosts map[hostKey]*Host

func (h hosts) of(st *resource.EntityState) *Host {
	host := &Host{System: st.System, Version: st.SensuAgentVersion}
	k := host.key()
	if known := h[k]; known != nil {
		return known
	}
	host.order = natural.Key(host.Version)
	host.System.Hostname, host.System.Network, host.System.Processes = "", resource.Network{}, nil
	h[k] = host
	return host
}

func (h *Host) key() hostKey {
	s := &h.System
	return hostKey{
		s.OS, s.Platform, s.PlatformFamily, s.PlatformVersion, s.Arch, s.LibCType, s.VMSystem, s.VMRole, s.CloudProvider, s.FloatType,
		h.Version, s.ARMVersion,
	}
}

// tally is what the events of one entity say.
type tally struct {
	events    view.Counts
	keepalive bool
	status    uint32 // of the keepalive
}

func (t *tally) add(g *state.Glance) {
	t.events[view.ClassOf(g)]++
	if g.Check == state.KeepaliveCheck {
		t.keepalive, t.status = true, g.Status
	}
}

// agent returns the state of the agent of an entity of a class.
func (t *tally) agent(class string) Agent {
	switch {
	case t.keepalive && t.status == 0:
		return Connected
	case t.keepalive && t.status == 1:
		return Late
	case t.keepalive || class == resource.EntityAgentClass:
		return Gone
	}
	return None
}
