// Package intake is the only way into the event log.
//
// Intake takes events of agents (Event, Keepalive), of the API and of the backend's own parts (Submit, Internal,
// Report), and deadlines that have passed (Expire). It checks an event, finds its entity, records which silences
// apply, and appends one record to the log. It registers agents, makes proxy entities within the quotas, and removes
// entities that have gone; Housekeeper finds the silent ones.
//
// Sessions, the API, aggregates and the wheel of deadlines call it. When Event and Keepalive return, the record is in
// the log's buffer; the log notifies the source when it is durable. Submit and the other calls for the API return when
// their effect can be read. Intake leaves connections to package session, which it asks through Sessions, and the
// consequences of an event to the parts behind the log.
package intake

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/silence"
	"github.com/lapwing-monitoring/lapwing/state"
)

// Options wires an Intake. Config, Log and State are required.
type Options struct {
	Config *config.Store
	Log    *eventlog.Log
	State  *state.State
	// ProxyTTL is the TTL of entities without an agent that have none of their own: after so long without a result
	// they are removed with their events. 0 is never.
	ProxyTTL time.Duration
	// ProxyLabels keeps the labels and annotations of proxy entities that agents' events make. Default: they are
	// dropped, because checks of all agents may have tokens for them.
	ProxyLabels bool
	// AnyEntity lets agents report for the entities of other agents, as Sensu does. Default: only if the check is
	// defined for that entity, or has proxy requests.
	AnyEntity bool
	// AnySubscription lets agents have the subscriptions of other entities, as Sensu does. Default: they are left out.
	AnySubscription bool
	// Silences finds the silences that apply to an event. Default: a matcher of its own. One matcher for all parts
	// costs less.
	Silences *silence.Matcher
	// Calendars has the calendars of checks. Default: the intake's own.
	Calendars *calendar.Calendars
	// Quotas bound what events may make and store.
	Quotas Quotas
	// Watches reports whether this backend watches deadlines of a partition whose pairs were last heard through an
	// origin, and since when that origin has been heard again or replaced. Default: it watches all.
	Watches func(partition int, origin string) (watches bool, since time.Time)
	// TurnAt returns when an agent last had a result of a round-robin check, in Unix milliseconds; 0 if that is not known.
	// The agents share the check's TTL: some agent must run it, not each of them. Default: it is never known.
	TurnAt func(namespace, check string) int64
	// Metrics takes the metric points of events. Default: none, and the intake does not decode points.
	Metrics    Sink
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Sessions answers the intake's questions about agents' connections. The server of package session implements it.
type Sessions interface {
	// Connected reports whether an agent of that name has a session.
	Connected(namespace, agent string) bool
	// Excused reports whether the backend is to blame for an agent's silence, because data of the agent is unread.
	Excused(namespace, agent string) bool
	// HeldSince returns when requests for an agent were last held back, in Unix milliseconds; 0 if never.
	HeldSince(namespace, agent string) int64
}

// Intake turns events into records of the log.
type Intake struct {
	opts     Options
	log      *slog.Logger
	rare     *rarelog.Log
	metrics  metrics
	names    *interner
	bodies   sync.Pool // of *[]byte, for bodies on their way into the log
	sessions atomic.Pointer[Sessions]
	hearing  atomic.Int64           // since when events can arrive, Unix milliseconds; deaf while they cannot
	looked   atomic.Pointer[moment] // of the last LookAtClock; nil before the first
	// asking is since when agents get all requests that are due, Unix milliseconds; deaf while the backend is
	// overloaded.
	asking atomic.Int64
	quotas *quotas

	registering chan struct{} // a slot for each registration under way
	removing    chan struct{} // a slot for each removal under way
	removals    sync.WaitGroup
	unwatch     func()
}

// DefaultOptions returns the default settings.
func DefaultOptions() Options { return Options{Quotas: DefaultQuotas()} }

// New checks the options.
func New(opts Options) (*Intake, error) {
	if opts.Config == nil || opts.Log == nil || opts.State == nil {
		return nil, errors.New("intake: config, log and state are required")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Calendars == nil {
		opts.Calendars = calendar.New(opts.Logger)
	}
	if opts.Silences == nil {
		opts.Silences = silence.NewMatcher(opts.Calendars, opts.Logger)
	}
	if opts.Watches == nil {
		opts.Watches = func(int, string) (bool, time.Time) { return true, time.Time{} }
	}
	if opts.TurnAt == nil {
		opts.TurnAt = func(string, string) int64 { return 0 }
	}
	log := opts.Logger.With("component", "intake")
	facts := func(namespace, entity string) int { return len(opts.State.EntityStateBytes(namespace, entity)) }
	i := &Intake{
		opts: opts, log: log, rare: rarelog.New(log), metrics: newMetrics(opts.Registerer), names: newInterner(),
		bodies: sync.Pool{New: func() any { return new([]byte) }}, quotas: newQuotas(opts.Quotas, facts, opts.Registerer),
		registering: make(chan struct{}, maxRegistering), removing: make(chan struct{}, maxRemoving),
	}
	i.unwatch = opts.Config.OnChange(func(c config.Change) {
		if c.Deleted && c.Kind == config.Entities.String() {
			i.quotas.forget(c.Namespace, c.Name)
		}
	})
	return i, nil
}

// SetSessions sets what answers questions about agents' connections. Before it no agent counts as connected.
func (i *Intake) SetSessions(s Sessions) { i.sessions.Store(&s) }

// connected reports whether an agent of that name has a session.
func (i *Intake) connected(namespace, name string) bool {
	s := i.sessions.Load()
	return s != nil && (*s).Connected(namespace, name)
}

// Stop waits for the removals under way. The intake must not be called any more.
func (i *Intake) Stop() error {
	i.unwatch()
	i.removals.Wait()
	return nil
}
