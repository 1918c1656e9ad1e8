package agent

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/hostfacts"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// self is the agent's own entity: the definition and the facts of the host. The definition is the one that a backend
// pushed last, which checks also use while no backend is connected. The options define the entity before that, when the
// backend does not know the agent, and always if Managed.
type self struct {
	local  atomic.Pointer[resource.EntityConfig]
	pushed atomic.Pointer[resource.EntityConfig] // nil for none
	system atomic.Pointer[resource.System]
	// processes are those of the host. Only keepalives have them: with events they would travel too often.
	processes atomic.Pointer[[]resource.Process]
	version   string
}

// The label (key and value) of an entity that its agent defines.
const (
	managedByLabel = "sensu.io/managed_by"
	managedByAgent = "sensu-agent"
)

// localEntity is the entity that the options define.
func localEntity(opts *Options) *resource.EntityConfig {
	e := &resource.EntityConfig{
		Metadata: resource.ObjectMeta{
			Name:        opts.Name,
			Namespace:   opts.Namespace,
			Labels:      maps.Clone(opts.Labels),
			Annotations: maps.Clone(opts.Annotations),
		},
		EntityClass:       resource.EntityAgentClass,
		User:              opts.User,
		Subscriptions:     slices.Clone(opts.Subscriptions),
		Deregister:        opts.Deregister,
		Deregistration:    resource.Deregistration{Handler: opts.DeregistrationHandler},
		KeepaliveHandlers: slices.Clone(opts.KeepaliveHandlers),
		Redact:            slices.Clone(opts.Redact),
	}
	if opts.Managed {
		if e.Metadata.Labels == nil {
			e.Metadata.Labels = map[string]string{}
		}
		e.Metadata.Labels[managedByLabel] = managedByAgent
		e.Metadata.CreatedBy = opts.User
	}
	return e
}

// entity returns the agent's current entity. Its maps and slices are shared: events only read them.
func (s *self) entity() *resource.Entity {
	config := s.pushed.Load()
	if config == nil {
		config = s.local.Load()
	}
	state := &resource.EntityState{LastSeen: time.Now().Unix(), SensuAgentVersion: s.version}
	if facts := s.system.Load(); facts != nil {
		state.System = *facts
	}
	return resource.JoinEntity(config, state)
}

// entityWithProcesses returns the entity as keepalives have it.
func (s *self) entityWithProcesses() *resource.Entity {
	e := s.entity()
	if processes := s.processes.Load(); processes != nil {
		e.System.Processes = *processes
	}
	return e
}

// systemRefresh is how often the facts of the host are read again.
const systemRefresh = 20 * time.Second

// watchSystem keeps the facts of the host fresh until ctx ends.
func (a *Agent) watchSystem(ctx context.Context, libC string) {
	tick := time.NewTicker(systemRefresh)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.refreshSystem(ctx, libC)
		}
	}
}

func (a *Agent) refreshSystem(ctx context.Context, libC string) {
	if a.opts.DiscoverProcesses && hostfacts.DiscoversProcesses {
		a.refreshProcesses(ctx)
	}
	facts, err := hostfacts.System(ctx, libC, !a.opts.StripNetworks)
	if err != nil {
		if ctx.Err() == nil {
			a.log.Warn("facts of the host not refreshed", "err", err)
		}
		return
	}
	if a.opts.DetectCloud {
		facts.CloudProvider = cloudProvider("/sys/class/dmi/id")
	}
	a.self.system.Store(facts)
}

// refreshProcesses lists the processes of the host again.
func (a *Agent) refreshProcesses(ctx context.Context) {
	listing, cancel := context.WithTimeout(ctx, processesTimeout)
	defer cancel()
	some, total, err := hostfacts.Processes(listing)
	if err != nil {
		if ctx.Err() == nil {
			a.log.Warn("processes of the host not refreshed", "err", err)
		}
		return
	}
	if len(some) < total && !a.processesCut {
		a.processesCut = true
		a.log.Warn("the host has more processes than an entity may have, or may be read: some are left out",
			"processes", total, "reported", len(some), "limit", resource.MaxProcesses, "bytes", resource.MaxProcessBytes)
	}
	a.self.processes.Store(&some)
}

const processesTimeout = 5 * time.Second
