package intake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

const (
	defaultKeepaliveTimeout  = 120 // seconds
	defaultKeepaliveInterval = 20  // seconds

	// ManagedByLabel marks entities that their agents manage.
	ManagedByLabel = "sensu.io/managed_by"
	managedByAgent = "sensu-agent"
)

// timeouts are how long an agent may be silent before its keepalive is a warning and critical, in seconds; 0 is never.
type timeouts struct{ warning, critical int64 }

func keepaliveTimeouts(c *resource.Check) timeouts {
	t := timeouts{warning: defaultKeepaliveTimeout}
	if c != nil {
		t = timeouts{warning: int64(c.Timeout), critical: c.TTL}
	}
	if t.warning == 0 && t.critical <= 0 {
		t.warning = defaultKeepaliveTimeout
	}
	return t
}

// first returns the shorter of the two, in milliseconds.
func (t timeouts) first() int64 {
	switch {
	case t.warning == 0:
		return min(t.critical, maxStoredTTL) * 1000
	case t.critical <= 0:
		return t.warning * 1000
	}
	return min(t.warning, t.critical) * 1000
}

// Keepalive takes an agent's keepalive: it registers the agent if necessary, logs changed facts of its host, and
// appends the keepalive check's result. The result has the time of receipt, so a wrong clock of the agent can neither
// raise nor hide an alarm.
func (i *Intake) Keepalive(ctx context.Context, ev *resource.Event, src Source, firstOfSession bool) error {
	if ev.Entity != nil && ev.Entity.Metadata.Name != src.Agent {
		return reject("invalid", "keepalive of %q in the session of %q", resource.Short(ev.Entity.Metadata.Name), src.Agent)
	}
	if err := ev.Validate(); err != nil {
		return reject("invalid", "keepalive: %w", err)
	}
	if ev.Timestamp == 0 {
		return reject("invalid", "keepalive without a timestamp")
	}
	if ev.Entity.Metadata.Namespace != src.Namespace {
		return reject("namespace", "keepalive of namespace %q in a session of namespace %q",
			resource.Short(ev.Entity.Metadata.Namespace), src.Namespace)
	}
	cfg, registered, err := i.register(ctx, ev.Entity, firstOfSession, src.Prompt)
	if err != nil {
		return err
	}
	now := time.Now()
	if registered {
		// The agent's next keepalive would not announce it again, so the announcement outlives the session.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), announceTimeout)
		defer cancel()
		err = i.registrationEvent(ctx, ev.Entity, now)
	} else {
		err = i.hostChanged(ctx, ev.Entity, src.Prompt)
	}
	if err != nil {
		return err
	}

	handlers := cfg.KeepaliveHandlers
	if len(handlers) == 0 {
		handlers = []string{"keepalive"}
	}
	limits := keepaliveTimeouts(ev.Check)
	out := resource.Event{
		Timestamp: now.Unix(), ID: resource.NewEventID(), Sequence: ev.Sequence, Metadata: ev.Metadata, Pipelines: ev.Pipelines,
		Check: &resource.Check{
			Metadata: resource.ObjectMeta{Namespace: src.Namespace, Name: state.KeepaliveCheck},
			Interval: defaultKeepaliveInterval, Timeout: uint32(limits.warning), TTL: limits.critical,
			Handlers: handlers, Executed: now.Unix(), Issued: now.Unix(), Scheduler: "etcd",
			Output: fmt.Sprintf("Keepalive last sent from %s at %s", ev.Entity.Metadata.Name,
				now.Truncate(time.Second).Format("2006-01-02 15:04:05 -0700 MST")),
		},
	}
	if ev.Check != nil && ev.Check.Interval != 0 {
		out.Check.Interval = ev.Check.Interval
	}
	rec := recordOf(&out, src.Namespace, ev.Entity.Metadata.Name, now)
	rec.Due = now.UnixMilli() + limits.first()
	src.mark(&rec)
	i.complete(&rec, &out, ev.Entity, now)
	if err := i.appendFrom(ctx, src, &rec); err != nil {
		return fmt.Errorf("append keepalive of %s: %w", rec.Entity, err)
	}
	i.metrics.received.WithLabelValues("keepalive").Inc()
	return nil
}

// register makes sure that an agent's entity is configured. Users own the configuration, unless the agent manages it:
// then each session's first keepalive brings it. A proxy entity that only events have made becomes the agent's:
// another agent could otherwise take the name of a future host, which would then run no checks. Nothing is stored for
// a prompt source.
func (i *Intake) register(
	ctx context.Context, e *resource.Entity, firstOfSession, prompt bool,
) (cfg *resource.EntityConfig, registered bool, err error) {
	namespace, name := e.Metadata.Namespace, e.Metadata.Name
	cfg, ok := config.Get(i.opts.Config.Snapshot(), config.Entities, namespace, name)
	if !ok && prompt {
		return nil, false, ErrMustWait
	}
	sent := resource.EntityConfigOf(e)
	sent.EntityClass = resource.EntityAgentClass
	sent.Subscriptions = resource.AddEntitySubscription(i.OwnSubscriptions(namespace, name, sent.Subscriptions), name)
	if err := sent.Validate(); err != nil {
		return nil, false, reject("invalid", "keepalive: %w", err)
	}
	if ok {
		takeOver := Managed(sent) && firstOfSession || Managed(cfg) && !Managed(sent) ||
			cfg.EntityClass == resource.EntityProxyClass && cfg.Metadata.CreatedBy == ""
		if !takeOver {
			return cfg, false, nil
		}
		if prompt {
			return nil, false, ErrMustWait
		}
		err := i.mayDefine(sent, cfg, 0)
		if err != nil && cfg.EntityClass == resource.EntityAgentClass {
			i.rare.Warn("an agent's definition is not stored, the earlier one stays", namespace+"/"+name,
				"namespace", namespace, "entity", name, "err", err)
			return cfg, false, nil // a refused definition must not make a living host look dead
		}
		if err != nil {
			return nil, false, err
		}
		if err := config.Put(ctx, i.opts.Config, config.Entities, sent); err != nil {
			return nil, false, fmt.Errorf("store entity %s of its agent: %w", name, err)
		}
		return sent, false, nil
	}
	if err = i.quotas.mayMake(i.opts.Config.Snapshot(), namespace, ""); err != nil {
		return nil, false, err
	}
	if err = i.create(ctx, sent); err == nil {
		i.quotas.made(namespace, "", name)
		i.rare.Info("agent registered", namespace+"/"+name, "namespace", namespace, "entity", name)
		return sent, true, nil
	}
	if errors.Is(err, config.ErrExists) { // another session was faster
		if cfg, ok := config.Get(i.opts.Config.Snapshot(), config.Entities, namespace, name); ok {
			return cfg, false, nil
		}
		return sent, false, nil
	}
	return nil, false, fmt.Errorf("register entity %s: %w", name, err)
}

const (
	maxRegistering  = 32              // registrations under way
	registerTimeout = time.Minute     // for a slot, and again for the write
	announceTimeout = 2 * time.Minute // for the events of a new agent, while the log has no room
)

// create stores the configuration of a new entity. Only a few agents may write at a time: if a whole new fleet did,
// each write would take so long that its agent gives up.
func (i *Intake) create(ctx context.Context, entity *resource.EntityConfig) error {
	turn, cancelTurn := context.WithTimeout(ctx, registerTimeout)
	defer cancelTurn()
	select {
	case i.registering <- struct{}{}:
		defer func() { <-i.registering }()
	case <-turn.Done():
		return fmt.Errorf("wait for a turn: %w", turn.Err())
	}
	// A write that has begun may succeed even if the session ends. Its caller must know that, to announce the agent.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), registerTimeout)
	defer cancel()
	if err := i.mayDefine(entity, nil, 0); err != nil {
		return err
	}
	return config.Create(ctx, i.opts.Config, config.Entities, entity)
}

// Managed reports whether an agent manages its entity: then each session's first keepalive brings the definition.
func Managed(cfg *resource.EntityConfig) bool {
	return cfg.Metadata.Labels[ManagedByLabel] == managedByAgent
}

// hostChanged logs an agent's system facts if they differ from those logged last. It leaves out the time at which the
// agent was last seen, which its keepalives have, and facts for which there is no room: the keepalive counts all the
// same. Processes differ in each keepalive, so if only they do, they are logged once in a while.
func (i *Intake) hostChanged(ctx context.Context, e *resource.Entity, prompt bool) error {
	namespace, name := e.Metadata.Namespace, e.Metadata.Name
	st := resource.EntityStateOf(e)
	st.LastSeen = 0
	st.Metadata = resource.ObjectMeta{Namespace: namespace, Name: name}
	processes := st.System.Processes
	st.System.Processes = nil
	facts, old := st.AppendProto(nil), i.opts.State.EntityStateBytes(namespace, name)
	oldFacts, oldProcesses := state.SplitFacts(old)
	now := time.Now()
	if bytes.Equal(facts, oldFacts) && !processesDue(name, processes, oldProcesses, now) {
		return nil
	}
	if len(processes) > 0 {
		st.System.Processes, st.LastSeen = i.boundProcesses(namespace, name, processes), now.Unix()
	}
	facts = state.AppendFacts(nil, st)
	if i.tooLarge(namespace, name, facts) {
		return nil
	}
	if prompt {
		return ErrMustWait
	}
	if err := i.quotas.mayHold(i.opts.Config.Snapshot(), namespace, int64(len(facts)-len(old))); err != nil {
		i.rare.Warn("facts of a host are not stored: there is no room for them", namespace,
			"namespace", namespace, "entity", name, "bytes", len(facts), "err", err)
		return nil
	}
	return i.entityState(ctx, st)
}

// registrationEvent logs the system facts of a new agent, and then the event for the registration handler. That event
// has no state, and no later keepalive repeats it, so a failure to log it is reported.
func (i *Intake) registrationEvent(ctx context.Context, e *resource.Entity, now time.Time) error {
	namespace, name := e.Metadata.Namespace, e.Metadata.Name
	err := i.hostChanged(ctx, e, false)
	if err == nil {
		err = i.announce(ctx, namespace, name, "registration", "registration", now)
	}
	if err != nil {
		i.rare.Warn("registration of an agent was not announced: the registration handler does not run for it", namespace,
			"namespace", namespace, "entity", name, "err", err)
	}
	return err
}

// announce appends an event that only its handler sees.
func (i *Intake) announce(ctx context.Context, namespace, entity, check, handler string, now time.Time) error {
	ev := resource.Event{
		Timestamp: now.Unix(), ID: resource.NewEventID(), Metadata: resource.ObjectMeta{Namespace: namespace},
		Check: &resource.Check{
			Metadata: resource.ObjectMeta{Namespace: namespace, Name: check},
			Interval: 1, Status: 1, Handlers: []string{handler},
		},
	}
	rec := recordOf(&ev, namespace, entity, now)
	rec.Flags |= eventlog.FlagStateless
	i.complete(&rec, &ev, nil, now)
	if err := i.append(ctx, &rec, nil, 0); err != nil {
		return fmt.Errorf("append %s of %s: %w", check, entity, err)
	}
	return nil
}
