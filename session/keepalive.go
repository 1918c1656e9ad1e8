package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

const (
	defaultKeepaliveTimeout  = 120 // seconds
	defaultKeepaliveInterval = 20  // seconds

	managedByLabel = "sensu.io/managed_by"
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

// first is after how many milliseconds of silence the first of them has passed.
func (t timeouts) first() int64 {
	switch {
	case t.warning == 0:
		return min(t.critical, maxStoredTTL) * 1000
	case t.critical <= 0:
		return t.warning * 1000
	}
	return min(t.warning, t.critical) * 1000
}

// keepalive takes an agent's keepalive: it registers the agent if need be, logs what changed of its host, and appends the
// keepalive check's result. Its time is that of receipt, so an agent's wrong clock can neither raise nor hide an alarm.
func (i *Intake) keepalive(ctx context.Context, ev *resource.Event, src source, firstOfSession bool) error {
	if err := ev.Validate(); err != nil {
		return reject("invalid", "keepalive: %w", err)
	}
	if ev.Timestamp == 0 {
		return reject("invalid", "keepalive without a timestamp")
	}
	if ev.Entity.Metadata.Namespace != src.namespace {
		return reject("namespace", "keepalive of namespace %q in a session of namespace %q",
			resource.Short(ev.Entity.Metadata.Namespace), src.namespace)
	}
	cfg, registered, err := i.register(ctx, ev.Entity, firstOfSession, src.prompt)
	if err != nil {
		return err
	}
	now := time.Now()
	if registered {
		// The next keepalive of the agent would not announce it again, so the end of the session does not end this one.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), announceTimeout)
		defer cancel()
		err = i.registrationEvent(ctx, ev.Entity, now)
	} else {
		err = i.hostChanged(ctx, ev.Entity, src.prompt)
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
			Metadata: resource.ObjectMeta{Namespace: src.namespace, Name: state.KeepaliveCheck},
			Interval: defaultKeepaliveInterval, Timeout: uint32(limits.warning), TTL: limits.critical,
			Handlers: handlers, Executed: now.Unix(), Issued: now.Unix(), Scheduler: "etcd",
			Output: fmt.Sprintf("Keepalive last sent from %s at %s", ev.Entity.Metadata.Name,
				now.Truncate(time.Second).Format("2006-01-02 15:04:05 -0700 MST")),
		},
	}
	if ev.Check != nil && ev.Check.Interval != 0 {
		out.Check.Interval = ev.Check.Interval
	}
	rec := eventlog.Record{
		Kind: eventlog.KindEvent, Flags: eventlog.FlagKeepalive | eventlog.FlagHandlers, Received: now.UnixMilli(),
		Namespace: src.namespace, Entity: ev.Entity.Metadata.Name, Check: state.KeepaliveCheck,
		Executed: now.Unix(), Due: now.UnixMilli() + limits.first(),
	}
	mend(&out, i.silenced(&rec, &out, ev.Entity, now), now)
	rec.Body = encodeBody(&out)
	if src.epoch != 0 {
		rec.Flags |= eventlog.FlagFromAgent
		rec.Epoch, rec.Sequence = src.epoch, src.sequence
	}
	if err := i.appendFrom(ctx, src, &rec); err != nil {
		return fmt.Errorf("append keepalive of %s: %w", rec.Entity, err)
	}
	i.metrics.received.WithLabelValues("keepalive").Inc()
	return nil
}

// register makes sure that an agent's entity is configured. Users own the configuration, unless the agent manages it: then
// the first keepalive of a session brings it. A proxy entity that only events have made becomes the agent's: another agent could
// otherwise take the name of a host that is yet to come, which would then run no checks. If it has to be prompt nothing is stored.
func (i *Intake) register(
	ctx context.Context, e *resource.Entity, firstOfSession, prompt bool,
) (cfg *resource.EntityConfig, registered bool, err error) {
	namespace, name := e.Metadata.Namespace, e.Metadata.Name
	cfg, ok := config.Get(i.opts.Config.Snapshot(), config.Entities, namespace, name)
	if !ok && prompt {
		return nil, false, errMustWait
	}
	sent := resource.EntityConfigOf(e)
	sent.EntityClass = resource.EntityAgentClass
	sent.Subscriptions = resource.AddEntitySubscription(i.ownSubscriptions(namespace, name, sent.Subscriptions), name)
	if err := sent.Validate(); err != nil {
		return nil, false, reject("invalid", "keepalive: %w", err)
	}
	if ok {
		takeOver := managed(sent) && firstOfSession || managed(cfg) && !managed(sent) ||
			cfg.EntityClass == resource.EntityProxyClass && cfg.Metadata.CreatedBy == ""
		if !takeOver {
			return cfg, false, nil
		}
		if prompt {
			return nil, false, errMustWait
		}
		err := i.mayDefine(sent, cfg, 0)
		if err != nil && cfg.EntityClass == resource.EntityAgentClass {
			i.rare.Warn("an agent's definition is not stored, the one before stays", namespace+"/"+name,
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
	maxRegistering  = 32              // entities written to the configuration at a time
	registerTimeout = time.Minute     // for a turn, and again for the write
	announceTimeout = 2 * time.Minute // for the events of a new agent, while the log has no room
)

// create stores the configuration of a new entity. A fleet that comes for the first time waits here, a few at a time in the
// store: were they all there, each write would take so long that it is given up.
func (i *Intake) create(ctx context.Context, entity *resource.EntityConfig) error {
	turn, cancelTurn := context.WithTimeout(ctx, registerTimeout)
	defer cancelTurn()
	select {
	case i.registering <- struct{}{}:
		defer func() { <-i.registering }()
	case <-turn.Done():
		return fmt.Errorf("wait for a turn: %w", turn.Err())
	}
	// A write that has begun may succeed even if the session ends. Its caller must learn that, to announce the agent.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), registerTimeout)
	defer cancel()
	if err := i.mayDefine(entity, nil, 0); err != nil {
		return err
	}
	return config.Create(ctx, i.opts.Config, config.Entities, entity)
}

func managed(cfg *resource.EntityConfig) bool {
	return cfg.Metadata.Labels[managedByLabel] == managedByAgent
}

// hostChanged logs an agent's system facts if they are not the ones logged last. When it was last seen is left out: that
// is what its keepalives say. Facts for which there is no room are left out, too: the keepalive counts all the same.
func (i *Intake) hostChanged(ctx context.Context, e *resource.Entity, prompt bool) error {
	namespace, name := e.Metadata.Namespace, e.Metadata.Name
	st := resource.EntityStateOf(e)
	st.LastSeen = 0
	st.Metadata = resource.ObjectMeta{Namespace: namespace, Name: name}
	facts, old := st.AppendProto(nil), i.opts.State.EntityStateBytes(namespace, name)
	if bytes.Equal(facts, old) || i.tooLarge(namespace, name, facts) {
		return nil
	}
	if prompt {
		return errMustWait
	}
	if err := i.quotas.mayHold(i.opts.Config.Snapshot(), namespace, int64(len(facts)-len(old))); err != nil {
		i.rare.Warn("facts of a host are not stored: there is no room for them", namespace,
			"namespace", namespace, "entity", name, "bytes", len(facts), "err", err)
		return nil
	}
	return i.entityState(ctx, st)
}

// registrationEvent logs the system facts of a new agent, and then the event that sets off what users want done for it. That
// event has no state. No later keepalive makes up for it, so it is reported if it cannot be logged.
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
	rec := eventlog.Record{
		Kind: eventlog.KindEvent, Flags: eventlog.FlagStateless | eventlog.FlagHandlers, Received: now.UnixMilli(),
		Namespace: namespace, Entity: entity, Check: check, Status: 1,
	}
	mend(&ev, i.silenced(&rec, &ev, nil, now), now)
	rec.Body = encodeBody(&ev)
	if err := i.append(ctx, &rec, nil, 0); err != nil {
		return fmt.Errorf("append %s of %s: %w", check, entity, err)
	}
	return nil
}

// deaf is the value of Intake.hearing while no event can arrive.
const deaf = math.MaxInt64

// askAgain is how soon a deadline is looked at again that passed while no event could arrive, in milliseconds.
const askAgain = 5000

// hear notes whether events can arrive: whether the log takes them, and agents were told to send them.
func (i *Intake) hear(hears bool, now time.Time) {
	if hears {
		i.hearing.Store(now.UnixMilli())
	} else {
		i.hearing.Store(deaf)
	}
}

// unheard is when a deadline may count, in Unix milliseconds, if events could not arrive during all of its period; else 0.
func (i *Intake) unheard(period int64, now time.Time) int64 {
	return wholePeriod(i.hearing.Load(), period, now)
}

// askAll notes whether agents are asked for all that is due, as they are while the backend is not overloaded.
func (i *Intake) askAll(yes bool, now time.Time) {
	if yes {
		i.asking.Store(now.UnixMilli())
	} else {
		i.asking.Store(deaf)
	}
}

// wholePeriod is when a whole period has passed since a time, in Unix milliseconds; 0 if it has.
func wholePeriod(since, period int64, now time.Time) int64 {
	switch {
	case since == deaf:
		return now.UnixMilli() + askAgain
	case since+period > now.UnixMilli():
		return since + period
	}
	return 0
}

// waiting is when a deadline may count, in Unix milliseconds, because of what the backend itself has not done: it has not read
// what the agent has sent (session.excused), or has not asked it for a result. It is 0 if there is no such thing. A keepalive is not
// asked for, so an agent that is really dead is noticed under overload too.
func (i *Intake) waiting(o *state.Overdue, cfg *resource.EntityConfig, now time.Time) (again int64) {
	period := o.Due - o.Received
	if cfg.EntityClass != resource.EntityAgentClass {
		return wholePeriod(i.asking.Load(), period, now) // any agent may bring its results
	}
	r := i.agents.Load()
	if r == nil {
		return 0
	}
	for _, s := range r.agent(o.Namespace, o.Entity) {
		if s.excused() {
			return now.UnixMilli() + askAgain
		}
		if o.Check != state.KeepaliveCheck {
			again = max(again, wholePeriod(s.heldSince(), period, now))
		}
	}
	return again
}

// Expire takes a deadline that has passed: it appends the event that says so, unless there is a reason not to. The id is
// the state's. If again is not 0 the deadline counts only then, in Unix milliseconds: silence that nobody could have heard
// is no failure, so a whole period must pass with events arriving.
func (i *Intake) Expire(ctx context.Context, id uint64) (again int64, err error) {
	o, ok := i.opts.State.Overdue(id)
	if !ok {
		return 0, nil
	}
	cfg, ok := config.Get(i.opts.Config.Snapshot(), config.Entities, o.Namespace, o.Entity)
	if !ok {
		return 0, nil // nobody watches this entity any more
	}
	now := time.Now()
	if o.Due > now.UnixMilli() {
		return 0, nil // an event came at the last moment
	}
	if again := i.unheard(o.Due-o.Received, now); again != 0 {
		return again, nil
	}
	if again := i.waiting(&o, cfg, now); again != 0 {
		return again, nil
	}
	if o.Check == state.KeepaliveCheck {
		if o.Rebuilt {
			o.Event.Check.Handlers = []string{state.KeepaliveCheck} // unless the entity names others
		}
		if cfg.Deregister {
			return i.deregisterSoon(cfg, now), nil
		}
		return 0, i.keepaliveFailed(ctx, &o, cfg, now)
	}
	def, defined := config.Get(i.opts.Config.Snapshot(), config.Checks, o.Namespace, o.Check)
	if o.KeepaliveFailing && (!defined || !def.TTLWithoutKeepalive) {
		return 0, nil // a dead agent is one incident, not one for each of its checks
	}
	if o.Rebuilt && defined {
		define(o.Event.Check, def)
	}
	if i.turns.passed(&o) {
		return 0, nil // another agent's turn was later, and that one has a deadline of its own
	}
	status := uint32(1)
	if defined && def.TTLStatus != 0 {
		status = def.TTLStatus
	}
	return 0, i.ttlExpired(ctx, &o, cfg, status, now)
}

// define gives a check that was made anew from the state what its definition says.
func define(c *resource.Check, def *resource.CheckConfig) {
	known := *c
	*c = *resource.CheckOf(def)
	c.Status, c.Executed, c.Issued = known.Status, known.Executed, known.Issued
	if c.TTL == 0 {
		c.TTL = known.TTL
	}
}

// keepaliveFailed appends the keepalive check's failure: a warning from the warning timeout on, critical from the critical
// one, and again after each further warning timeout, counted from the last keepalive's receipt.
func (i *Intake) keepaliveFailed(ctx context.Context, o *state.Overdue, cfg *resource.EntityConfig, now time.Time) error {
	ev := o.Event
	limits := keepaliveTimeouts(ev.Check)
	elapsed := max(o.Due/1000, now.Unix()) - o.LastOK
	status, threshold := uint32(1), limits.warning
	if limits.critical > 0 && elapsed >= limits.critical {
		status, threshold = 2, limits.critical
	}
	step := limits.warning
	if step == 0 {
		step = limits.critical
	}
	if left := limits.critical - elapsed; status == 1 && limits.critical > 0 && left > 0 {
		step = min(step, left)
	}
	ev.Timestamp, ev.ID = now.Unix(), resource.NewEventID()
	c := ev.Check
	c.Status, c.Executed, c.Issued = status, now.Unix(), now.Unix()
	c.Output = fmt.Sprintf("No keepalive sent from %s for %d seconds (>= %d)", o.Entity, elapsed, threshold)
	if len(cfg.KeepaliveHandlers) > 0 {
		c.Handlers = cfg.KeepaliveHandlers
	}
	return i.expired(ctx, o, ev, now, max(o.Due+step*1000, now.UnixMilli()+1000))
}

// ttlExpired appends that a check's result is missing. What belongs to the stored result alone is left out.
func (i *Intake) ttlExpired(ctx context.Context, o *state.Overdue, cfg *resource.EntityConfig, status uint32, now time.Time) error {
	ev := o.Event
	c := ev.Check
	c.Output = fmt.Sprintf("Last check execution was %d seconds ago", now.Unix()-c.Executed)
	if i.entityTTL(cfg) > 0 {
		rememberResult(ev, o.Received)
	}
	ev.Timestamp, c.Status, c.Executed = now.Unix(), status, now.Unix()
	c.Issued, c.Duration, c.ProcessedBy, c.Hooks, c.Secrets, c.Subdues = 0, 0, "", nil, nil, nil
	return i.expired(ctx, o, ev, now, now.UnixMilli()+min(c.TTL, maxStoredTTL)*1000)
}

// maxStoredTTL bounds the TTL of an event that is stored, in seconds: it may be of before there were bounds.
const maxStoredTTL = 10 * 365 * 24 * 3600

func (i *Intake) expired(ctx context.Context, o *state.Overdue, ev *resource.Event, now time.Time, due int64) error {
	c := ev.Check
	c.History, c.State, c.Occurrences, c.OccurrencesWatermark, c.LastOK, c.TotalStateChange = nil, "", 0, 0, 0, 0
	rec := eventlog.Record{
		Kind: eventlog.KindEvent, Flags: eventlog.FlagDeadline, Basis: o.Position, Received: now.UnixMilli(),
		Namespace: o.Namespace, Entity: o.Entity, Check: o.Check,
		Status: c.Status, Executed: c.Executed, LowFlap: c.LowFlapThreshold, HighFlap: c.HighFlapThreshold,
		Due: due,
	}
	mend(ev, i.silenced(&rec, ev, ev.Entity, now), now)
	rec.Body = encodeBody(ev)
	if o.Check == state.KeepaliveCheck {
		rec.Flags |= eventlog.FlagKeepalive
	}
	if len(c.Handlers)+len(c.Pipelines)+len(ev.Pipelines) > 0 {
		rec.Flags |= eventlog.FlagHandlers
	}
	if err := i.append(ctx, &rec, nil, 0); err != nil {
		return fmt.Errorf("append deadline of %s/%s: %w", o.Entity, o.Check, err)
	}
	i.metrics.received.WithLabelValues("deadline").Inc()
	return nil
}
