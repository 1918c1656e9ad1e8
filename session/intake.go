package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/silence"
	"github.com/lapwing-monitoring/lapwing/state"
)

// maxKeptBody is the size up to which a buffer for a body is used again.
const maxKeptBody = 64 << 10

// maxSkew is how far an event's time may lie in the future.
const maxSkew = 10 * time.Minute

// IntakeOptions wires an Intake.
type IntakeOptions struct {
	Config *config.Store
	Log    *eventlog.Log
	State  *state.State
	// ProxyTTL is the TTL of entities without an agent that have none of their own: after so long without a result they are
	// removed with their events. 0 is never.
	ProxyTTL time.Duration
	// ProxyLabels has the labels and annotations of proxy entities that agents' events make. Default: they have none, for checks of all
	// agents may have tokens for them.
	ProxyLabels bool
	// AnyEntity lets agents report for the entities of other agents, as Sensu does. Default: only if the check is defined for that
	// entity, or has proxy requests.
	AnyEntity bool
	// AnySubscription lets agents have the subscriptions of other entities, as Sensu does. Default: they are left out.
	AnySubscription bool
	// Silences finds those that apply to events. Default one of its own; it is better to have one for all.
	Silences *silence.Matcher
	// Quotas bound what events may make and store.
	Quotas     Quotas
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Intake turns events, wherever they come from, into records of the log: agents' sessions, the API and deadlines all
// write through it.
type Intake struct {
	opts    IntakeOptions
	log     *slog.Logger
	metrics intakeMetrics
	names   *interner
	bodies  sync.Pool    // of *[]byte, for bodies on their way into the log
	hearing atomic.Int64 // since when events can arrive, Unix milliseconds; deaf while they cannot
	// asking is since when agents are asked for all that is due, Unix milliseconds; deaf while the backend is overloaded.
	asking atomic.Int64
	agents atomic.Pointer[registry] // the sessions, once there are any

	registering chan struct{} // room for those that register an entity at a time
	removing    chan struct{} // likewise for those that remove one
	removals    sync.WaitGroup
	turns       turns
	rare        *rarelog.Log
	quotas      *quotas
	unwatch     func()
}

type intakeMetrics struct {
	received *prometheus.CounterVec
	rejected *prometheus.CounterVec
	skewed   prometheus.Counter
	silenced prometheus.Counter
	removed  *prometheus.CounterVec
}

func newIntakeMetrics(r prometheus.Registerer) intakeMetrics {
	m := intakeMetrics{
		received: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_events_received_total", Help: "Events received, by where they came from.",
		}, []string{"source"}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_events_rejected_total", Help: "Events that were not taken, by reason.",
		}, []string{"reason"}),
		skewed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_events_clock_skewed_total", Help: "Agents' events that were dated in the future and got the time of receipt.",
		}),
		silenced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_events_silenced_total", Help: "Events received that silences applied to.",
		}),
	}
	m.removed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lapwing_entities_removed_total",
		Help: "Entities that the backend removed by itself, by why: their agent had asked for that, or their TTL has passed.",
	}, []string{"reason"})
	for _, reason := range []string{removedDeregistered, removedExpired} {
		m.removed.WithLabelValues(reason)
	}
	for _, source := range []string{"agent", "keepalive", "api", "deadline"} {
		m.received.WithLabelValues(source)
	}
	for _, reason := range []string{"undecodable", "invalid", "namespace", "entity", "too_large", "quota", "log"} {
		m.rejected.WithLabelValues(reason)
	}
	if r != nil {
		r.MustRegister(m.received, m.rejected, m.skewed, m.silenced, m.removed)
	}
	return m
}

// DefaultIntakeOptions returns the default settings.
func DefaultIntakeOptions() IntakeOptions { return IntakeOptions{Quotas: DefaultQuotas()} }

// NewIntake checks the options.
func NewIntake(opts IntakeOptions) (*Intake, error) {
	if opts.Config == nil || opts.Log == nil || opts.State == nil {
		return nil, errors.New("intake: config, log and state are required")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Silences == nil {
		opts.Silences = silence.NewMatcher(opts.Logger)
	}
	i := &Intake{
		opts: opts, log: opts.Logger.With("component", "intake"), metrics: newIntakeMetrics(opts.Registerer), names: newInterner(),
		bodies: sync.Pool{New: func() any { return new([]byte) }}, registering: make(chan struct{}, maxRegistering),
		removing: make(chan struct{}, maxRemoving), rare: rarelog.New(opts.Logger.With("component", "intake")),
		quotas: newQuotas(opts.Quotas, func(namespace, entity string) int {
			return len(opts.State.EntityStateBytes(namespace, entity))
		}, opts.Registerer),
	}
	i.unwatch = opts.Config.OnChange(func(c config.Change) {
		if c.Deleted && c.Kind == config.Entities.String() {
			i.quotas.forget(c.Namespace, c.Name)
		}
	})
	return i, nil
}

// rejection is why an event was not taken. The reason is a metric's label.
type rejection struct {
	reason string
	err    error
}

func (r *rejection) Error() string { return shortError(r.err) }
func (r *rejection) Unwrap() error { return r.err }

func reject(reason, format string, args ...any) error {
	return &rejection{reason, fmt.Errorf(format, args...)}
}

// rejectionOf returns why an event will never be taken; nil if it may be taken later.
func rejectionOf(err error) *rejection {
	var r *rejection
	var large *resource.TooLargeError
	var quota *resource.QuotaError
	switch {
	case errors.As(err, &r):
		return r
	case errors.As(err, &large):
		return &rejection{"too_large", err}
	case errors.As(err, &quota):
		return &rejection{"quota", err}
	}
	return nil
}

// maxErrorText is the longest text of an error about an event, in bytes: parts of the event may stand in it.
const maxErrorText = 500

func shortError(err error) string {
	text := err.Error()
	if len(text) > maxErrorText {
		text = text[:maxErrorText] + "…"
	}
	return text
}

// count notes a rejection in the metrics, and returns its reason.
func (i *Intake) count(err error) (reason string) {
	reason = "log"
	if r := rejectionOf(err); r != nil {
		reason = r.reason
	}
	i.metrics.rejected.WithLabelValues(reason).Inc()
	return reason
}

// source says who sent an event and who is told when it is durable.
type source struct {
	namespace string // which the event must belong to
	agent     string // whose session it came through
	epoch     uint64 // of a lapwing agent, with its sequence
	sequence  uint64
	acker     eventlog.Acker
	token     uint64
	prompt    bool // whoever sends it in must not wait, and gets errMustWait
}

// agentEvent appends an event of an agent, given as protobuf. The body goes into the log as it came, without its entity if that
// is configured; only an event that needs mending is decoded.
func (i *Intake) agentEvent(ctx context.Context, body []byte, src source) error {
	if limit := i.opts.Log.MaxRecord(); len(body) > limit {
		return &resource.TooLargeError{What: "event", Size: len(body), Limit: limit}
	}
	view, err := resource.PeekEvent(body)
	if err != nil {
		return reject("undecodable", "decode event: %w", err)
	}
	if err := view.Validate(); err != nil {
		return reject("invalid", "event: %w", err)
	}
	ent, err := resource.PeekEntity(view.Entity)
	if err != nil {
		return reject("undecodable", "decode event: %w", err)
	}
	if string(ent.Namespace) != src.namespace {
		return reject("namespace", "event of namespace %q in a session of namespace %q", resource.Short(ent.Namespace), src.namespace)
	}
	if err := ent.Validate(); err != nil {
		return reject("invalid", "event of entity %q: %w", resource.Short(ent.Name), err)
	}
	now := time.Now()
	rec := eventlog.Record{Kind: eventlog.KindEvent, Received: now.UnixMilli(), Namespace: src.namespace, Entity: src.agent}
	if string(ent.Name) != src.agent {
		rec.Entity = i.names.get(ent.Name)
	}
	if src.epoch != 0 {
		rec.Flags |= eventlog.FlagFromAgent
		rec.Epoch, rec.Sequence = src.epoch, src.sequence
	}
	if view.Pipelines {
		rec.Flags |= eventlog.FlagHandlers
	}
	if view.Metrics != nil {
		// Who handles the metrics is in their own list; the pipeline looks there.
		rec.Flags |= eventlog.FlagMetrics
	}
	mend := len(view.ID) == 0 || view.Timestamp == 0
	skewed := view.Timestamp > now.Add(maxSkew).Unix()
	mend = mend || skewed
	var check resource.CheckView
	if view.Check == nil {
		rec.Flags |= eventlog.FlagStateless
	} else {
		if check, err = resource.PeekCheck(view.Check); err != nil {
			return reject("undecodable", "decode event: %w", err)
		}
		if err := check.Validate(); err != nil {
			return reject("invalid", "event of check %q: %w", resource.Short(check.Name), err)
		}
		i.describe(&rec, &check, now)
		mend = mend || check.Silenced > 0 || check.IsSilenced
	}
	proxied := len(check.ProxyEntityName) > 0
	known, err := i.resolveEntity(ctx, &rec, check.ProxyEntityName, ent, body, src)
	if err != nil {
		return err
	}
	silenced, err := i.silencedEncoded(&rec, body, view.Check, view.Entity, proxied, now)
	if err != nil {
		return reject("undecodable", "decode event: %w", err)
	}
	if mend || silenced != nil || !known {
		rec.Body, err = mended(body, silenced, known, now)
	} else {
		bare := i.bodies.Get().(*[]byte)
		*bare, err = resource.AppendEventWithoutEntity((*bare)[:0], body)
		if rec.Body = *bare; cap(rec.Body) <= maxKeptBody {
			defer i.bodies.Put(bare)
		}
	}
	if err != nil {
		return reject("undecodable", "decode event: %w", err)
	}
	if rec.Entity != src.agent && rec.Check != "" {
		if err := i.quotas.store(rec.Namespace, src.agent, rec.Entity, rec.Check, len(rec.Body)); err != nil {
			return err
		}
	}
	if err := i.appendFrom(ctx, src, &rec); err != nil {
		return fmt.Errorf("append event %s/%s: %w", rec.Entity, rec.Check, err)
	}
	if skewed {
		i.metrics.skewed.Inc()
	}
	i.metrics.received.WithLabelValues("agent").Inc()
	return nil
}

// describe fills a record's header from an event's check.
func (i *Intake) describe(rec *eventlog.Record, c *resource.CheckView, now time.Time) {
	rec.Check = i.names.get(c.Name)
	rec.Status, rec.Executed = c.Status, c.Executed
	rec.LowFlap, rec.HighFlap = c.LowFlap, c.HighFlap
	if c.MaxOutputSize > 0 && int64(c.OutputLen) > c.MaxOutputSize {
		rec.MaxOutput = c.MaxOutputSize
	}
	if c.TTL > 0 {
		rec.Due = now.UnixMilli() + c.TTL*1000
		if c.RoundRobin && len(c.ProxyEntityName) == 0 {
			i.turns.took(rec.Namespace, rec.Check, rec.Received, rec.Due)
		}
	}
	if c.Handlers+c.MetricHandlers+c.Pipelines > 0 {
		rec.Flags |= eventlog.FlagHandlers
	}
}

// resolveEntity settles which entity an agent's event is about, and makes the proxy entity of a result if there is none, unless
// it has to be prompt. If the entity is not known then, there is nothing of it but what the event carries.
func (i *Intake) resolveEntity(
	ctx context.Context, rec *eventlog.Record, proxy []byte, ent resource.EntityView, body []byte, src source,
) (known bool, err error) {
	byName := len(proxy) > 0 && string(proxy) != rec.Entity
	if byName {
		rec.Entity, ent.Class = string(proxy), nil // the class was the sender's
	}
	if rec.Entity != src.agent {
		if rec.Entity == resource.BackendEntity {
			return false, errReserved()
		}
		if !i.opts.AnyEntity {
			if err := i.mayReport(rec, src.agent, ent); err != nil {
				return false, err
			}
		}
	}
	if i.configured(rec) {
		return true, nil
	}
	if byName {
		if src.prompt {
			return false, errMustWait
		}
		bare := &resource.Entity{Metadata: resource.ObjectMeta{Namespace: rec.Namespace, Name: rec.Entity}}
		return true, i.ensureProxy(ctx, src.agent, bare, true)
	}
	if string(ent.Class) == resource.EntityAgentClass || rec.Check == "" {
		return false, nil // agents are registered by their keepalives, and metrics make no entity
	}
	if src.prompt {
		return false, errMustWait
	}
	var ev resource.Event
	if err := ev.UnmarshalProto(body); err != nil {
		return false, reject("undecodable", "decode event: %w", err)
	}
	if !i.opts.ProxyLabels {
		ev.Entity.Metadata.Labels, ev.Entity.Metadata.Annotations = nil, nil
	}
	return true, i.ensureProxy(ctx, src.agent, ev.Entity, true)
}

// mayReport refuses an agent's event about another agent, unless the operator has defined the check for that: with proxy requests, or
// with the other entity's name. One host's credentials would otherwise do to forge the state of all.
func (i *Intake) mayReport(rec *eventlog.Record, agent string, ent resource.EntityView) error {
	sn := i.opts.Config.Snapshot()
	cfg, ok := config.Get(sn, config.Entities, rec.Namespace, rec.Entity)
	isAgent := ok && cfg.EntityClass == resource.EntityAgentClass || !ok && string(ent.Class) == resource.EntityAgentClass
	// The entity of an agent that is connected may be missing or a proxy at this moment: it was deleted, or is not made yet.
	if !isAgent && !i.connected(rec.Namespace, rec.Entity) {
		return nil
	}
	def, ok := config.Get(sn, config.Checks, rec.Namespace, rec.Check)
	if ok && rec.Check != state.KeepaliveCheck && (def.ProxyRequests != nil || def.ProxyEntityName == rec.Entity) {
		return nil
	}
	return reject("entity", "event of agent %q in the session of %q (--agent-any-entity takes such)", rec.Entity, agent)
}

// connected reports whether an agent of that name has a session.
func (i *Intake) connected(namespace, name string) bool {
	r := i.agents.Load()
	return r != nil && r.connected(namespace, name)
}

// configured says whether the entity is defined that a record is about.
func (i *Intake) configured(rec *eventlog.Record) bool {
	_, ok := config.Get(i.opts.Config.Snapshot(), config.Entities, rec.Namespace, rec.Entity)
	return ok
}

// ensureProxy makes a proxy entity unless there is an entity of that name. It is for an event of the agent, or of a user for "". The
// quotas are asked if the event is limited.
func (i *Intake) ensureProxy(ctx context.Context, agent string, e *resource.Entity, limited bool) error {
	namespace, name := e.Metadata.Namespace, e.Metadata.Name
	if _, ok := config.Get(i.opts.Config.Snapshot(), config.Entities, namespace, name); ok {
		return nil
	}
	cfg := resource.EntityConfigOf(e)
	cfg.EntityClass = resource.EntityProxyClass
	cfg.Subscriptions = resource.AddEntitySubscription(cfg.Subscriptions, name)
	if agent != "" {
		cfg.Metadata.CreatedBy = "" // it is no user's: see register
	}
	if err := cfg.Validate(); err != nil {
		return reject("invalid", "proxy entity %q: %w", resource.Short(name), err)
	}
	st := resource.EntityStateOf(e)
	if limited {
		if err := i.quotas.mayMake(i.opts.Config.Snapshot(), namespace, agent); err != nil {
			return err
		}
		facts := st.AppendProto(nil)
		if i.tooLarge(namespace, name, facts) {
			st, facts = nil, nil
		}
		if err := i.mayDefine(cfg, nil, len(facts)); err != nil {
			return err
		}
	}
	err := config.Create(ctx, i.opts.Config, config.Entities, cfg)
	if errors.Is(err, config.ErrExists) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create proxy entity %s: %w", name, err)
	}
	i.quotas.made(namespace, agent, name)
	if st == nil {
		return nil
	}
	return i.entityState(ctx, st)
}

// entityState logs what is known of an entity's host.
func (i *Intake) entityState(ctx context.Context, st *resource.EntityState) error {
	rec := eventlog.Record{
		Kind: eventlog.KindEntity, Received: time.Now().UnixMilli(),
		Namespace: st.Metadata.Namespace, Entity: st.Metadata.Name, Body: st.AppendProto(nil),
	}
	if err := i.append(ctx, &rec, nil, 0); err != nil {
		return fmt.Errorf("append state of entity %s: %w", rec.Entity, err)
	}
	return nil
}

// mended gives an event what it must have: an id, a time that is not in the future, and the silences we know. It is as it stands
// in the log then, without its entity if that is known.
func mended(body []byte, silenced []string, known bool, now time.Time) ([]byte, error) {
	var ev resource.Event
	if err := ev.UnmarshalProto(body); err != nil {
		return nil, err
	}
	mend(&ev, silenced, now)
	if known {
		return encodeBody(&ev), nil
	}
	ev.Entity.Subscriptions = resource.AddEntitySubscription(ev.Entity.Subscriptions, ev.Entity.Metadata.Name)
	return ev.AppendProto(nil), nil
}

func mend(ev *resource.Event, silenced []string, now time.Time) {
	if len(ev.ID) != 16 {
		ev.ID = resource.NewEventID()
	}
	if ev.Timestamp == 0 || ev.Timestamp > now.Add(maxSkew).Unix() {
		ev.Timestamp = now.Unix()
	}
	if ev.Check != nil {
		ev.Check.Silenced, ev.Check.IsSilenced = silenced, len(silenced) > 0
	}
}

// encodeBody is an event as it stands in the log: without its entity.
func encodeBody(ev *resource.Event) []byte {
	bare := *ev
	bare.Entity = nil
	return bare.AppendProto(nil)
}

// encodeFor is encodeBody for an event whose entity may be unknown: then it keeps the one it carries.
func (i *Intake) encodeFor(rec *eventlog.Record, ev *resource.Event) []byte {
	if ev.Entity != nil && ev.Entity.Metadata.Name == rec.Entity && !i.configured(rec) {
		return ev.AppendProto(nil)
	}
	return encodeBody(ev)
}

// Submit takes an event of the API, and returns once it is durable and folded, so that its sender can read it. The API has
// validated it and has made sure that the user may report for the entity.
func (i *Intake) Submit(ctx context.Context, ev *resource.Event) error {
	return i.submit(ctx, ev, true)
}

// Internal is an Intake for events that the backend makes itself, such as results of aggregates. Quotas neither count nor refuse them.
type Internal struct{ *Intake }

// Internal returns the intake for the backend's own events.
func (i *Intake) Internal() Internal { return Internal{i} }

// Submit is Intake.Submit for an event of the backend, but not about it: for that there is Report.
func (i Internal) Submit(ctx context.Context, ev *resource.Event) error {
	if ev.AboutBackend() {
		return errReserved()
	}
	return i.submit(ctx, ev, false)
}

// submit is Submit. An event that is not limited is the backend's own, which no quota counts.
func (i *Intake) submit(ctx context.Context, ev *resource.Event, limited bool) error {
	now := time.Now()
	if limited {
		if err := i.quotas.admit(ev.Entity.Metadata.Namespace, now); err != nil {
			i.count(err)
			return err
		}
	}
	sent := *ev
	forgetResult(&sent)
	if sent.Check != nil {
		check := *sent.Check
		sent.Check = &check
	}
	rec := eventlog.Record{
		Kind: eventlog.KindEvent, Received: now.UnixMilli(),
		Namespace: sent.Entity.Metadata.Namespace, Entity: sent.Entity.Metadata.Name,
	}
	if len(sent.Pipelines) > 0 {
		rec.Flags |= eventlog.FlagHandlers
	}
	if sent.Metrics != nil {
		rec.Flags |= eventlog.FlagMetrics
		if len(sent.Metrics.Handlers) > 0 {
			rec.Flags |= eventlog.FlagHandlers
		}
	}
	if c := sent.Check; c == nil {
		rec.Flags |= eventlog.FlagStateless
	} else {
		rec.Check, rec.Status, rec.Executed = c.Metadata.Name, c.Status, c.Executed
		rec.LowFlap, rec.HighFlap = c.LowFlapThreshold, c.HighFlapThreshold
		if c.MaxOutputSize > 0 && int64(len(c.Output)) > c.MaxOutputSize {
			rec.MaxOutput = c.MaxOutputSize
		}
		if c.TTL > 0 {
			rec.Due = now.UnixMilli() + c.TTL*1000
			if takesTurns(c) {
				i.turns.took(rec.Namespace, rec.Check, rec.Received, rec.Due)
			}
		}
		if len(c.Handlers) > 0 || len(c.Pipelines) > 0 {
			rec.Flags |= eventlog.FlagHandlers
		}
		if len(c.History) > 0 || c.OccurrencesWatermark != 0 || c.LastOK != 0 {
			rec.Flags |= eventlog.FlagHistory
		}
	}
	if rec.Check == state.KeepaliveCheck {
		rec.Flags |= eventlog.FlagKeepalive
		rec.Due = now.UnixMilli() + keepaliveTimeouts(sent.Check).first()
	}
	// The proxy entity of an event that is too large must not be made.
	if size, limit := len(sent.AppendProto(nil)), i.opts.Log.MaxRecord(); size > limit {
		i.metrics.rejected.WithLabelValues("too_large").Inc()
		return &resource.TooLargeError{What: "event", Size: size, Limit: limit}
	}
	proxy := *sent.Entity
	if sent.Check != nil && sent.Check.ProxyEntityName != "" && sent.Check.ProxyEntityName != rec.Entity {
		rec.Entity = sent.Check.ProxyEntityName
		proxy = resource.Entity{Metadata: resource.ObjectMeta{Namespace: rec.Namespace, Name: rec.Entity}}
	}
	if proxy.EntityClass != resource.EntityAgentClass && sent.Check != nil {
		proxy.Metadata.CreatedBy = sent.Metadata.CreatedBy
		if err := i.ensureProxy(ctx, "", &proxy, limited); err != nil {
			i.count(err)
			return err
		}
	}
	mend(&sent, i.silenced(&rec, &sent, sent.Entity, now), now)
	rec.Body = i.encodeFor(&rec, &sent)
	if limited && rec.Check != "" {
		if err := i.quotas.store(rec.Namespace, "", rec.Entity, rec.Check, len(rec.Body)); err != nil {
			i.count(err)
			return err
		}
	}
	i.metrics.received.WithLabelValues("api").Inc()
	return i.appendAndWait(ctx, &rec)
}

// PutEntityState replaces what is known of an entity's host, and returns when it can be read.
func (i *Intake) PutEntityState(ctx context.Context, st *resource.EntityState) error {
	return i.appendAndWait(ctx, &eventlog.Record{
		Kind: eventlog.KindEntity, Received: time.Now().UnixMilli(),
		Namespace: st.Metadata.Namespace, Entity: st.Metadata.Name, Body: st.AppendProto(nil),
	})
}

// DeleteEvent forgets what is known of a check of an entity, and returns when it is forgotten.
func (i *Intake) DeleteEvent(ctx context.Context, namespace, entity, check string) error {
	i.quotas.forgetEvent(namespace, entity, check)
	return i.appendAndWait(ctx, &eventlog.Record{
		Kind: eventlog.KindDeleteEvent, Received: time.Now().UnixMilli(), Namespace: namespace, Entity: entity, Check: check,
	})
}

// DeleteEntity forgets an entity's state and all its events, and returns when they are forgotten.
func (i *Intake) DeleteEntity(ctx context.Context, namespace, name string) error {
	return i.appendAndWait(ctx, &eventlog.Record{
		Kind: eventlog.KindDeleteEntity, Received: time.Now().UnixMilli(), Namespace: namespace, Entity: name,
	})
}

// appendAndWait appends a record and waits until it is durable and folded. It fails at once while the log takes nothing:
// a person or script that waits is better told than kept.
func (i *Intake) appendAndWait(ctx context.Context, rec *eventlog.Record) error {
	what := rec.Entity + "/" + rec.Check
	if err := i.opts.Log.Err(); err != nil {
		i.metrics.rejected.WithLabelValues("log").Inc()
		return fmt.Errorf("append %s: %w", what, err)
	}
	done := make(waiting, 1)
	if err := i.append(ctx, rec, done, 0); err != nil {
		i.count(err)
		return fmt.Errorf("append %s: %w", what, err)
	}
	select {
	case l := <-done:
		if l.err != nil {
			return fmt.Errorf("append %s: %w", what, l.err)
		}
		return i.opts.State.WaitFolded(ctx, l.partition, l.seq)
	case <-ctx.Done():
		return fmt.Errorf("append %s: %w", what, ctx.Err())
	}
}

// waiting is an Acker for one record.
type waiting chan logged

type logged struct {
	partition int
	seq       uint64
	err       error
}

func (w waiting) Logged(_ uint64, partition int, seq uint64, err error) {
	w <- logged{partition, seq, err}
}
