package intake

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// deaf is the value of Intake.hearing while no event can arrive.
const deaf = math.MaxInt64

// askAgain is when to check a deadline again that passed while no event could arrive, in milliseconds from now.
const askAgain = 5000

const (
	// clockStep is the least difference between two measures of a time that counts as a step of the clock, in
	// milliseconds. Adjustments that are no steps move both measures.
	clockStep = 1000
	// longPause is the least time between two looks at the clock in which the process cannot have run.
	longPause = 2 * time.Second
)

// moment is a time on both clocks of the system.
type moment struct {
	wall int64         // Unix milliseconds
	mono time.Duration // since the process began
}

// momentOf returns the moment of a time that time.Now has returned.
func momentOf(now time.Time) *moment { return &moment{now.UnixMilli(), now.Sub(processBegan)} }

var processBegan = time.Now()

// LookAtClock must be called several times a second while agents can connect. It notices when the wall clock was set,
// and when the process or the machine stood still. Deadlines are times on the wall clock, so after either all of them
// have passed at once, though the agents could not be heard. Each has to wait for a whole period then.
func (i *Intake) LookAtClock(now time.Time) {
	if i.look(momentOf(now)) {
		i.opts.State.ClockSetBack(now.UnixMilli())
	}
}

// look is LookAtClock. It reports whether the wall clock was set back.
func (i *Intake) look(now *moment) (back bool) {
	last := i.looked.Swap(now)
	if last == nil {
		return false
	}
	pause := now.mono - last.mono
	step := now.wall - last.wall - pause.Milliseconds()
	if pause < longPause && step < clockStep && step > -clockStep {
		return false
	}
	for _, begin := range []*atomic.Int64{&i.hearing, &i.asking} {
		if since := begin.Load(); since != deaf {
			begin.CompareAndSwap(since, now.wall)
		}
	}
	return step <= -clockStep
}

// SetHearing records whether events can arrive: the log takes them, and agents may send them.
func (i *Intake) SetHearing(hears bool, now time.Time) {
	if hears {
		i.hearing.Store(now.UnixMilli())
	} else {
		i.hearing.Store(deaf)
	}
}

// Unheard returns when a deadline may count, in Unix milliseconds, if events could not arrive during its whole period;
// else 0. It looks at the clock itself: after a pause of the process a deadline may be the first to do so.
func (i *Intake) Unheard(period int64, now time.Time) int64 {
	if i.looked.Load() != nil {
		i.LookAtClock(now)
	}
	return wholePeriod(i.hearing.Load(), period, now)
}

// HeardFor returns for how long events have been able to arrive and agents have got all requests that were due; 0 while
// either is not so. A start does not count: the caller knows since when agents can connect.
func (i *Intake) HeardFor(now time.Time) time.Duration {
	if i.looked.Load() != nil {
		i.LookAtClock(now)
	}
	since := max(i.hearing.Load(), i.asking.Load())
	if since == deaf {
		return 0
	}
	return max(0, now.Sub(time.UnixMilli(since)))
}

// SetAsking records whether agents get all requests that are due, as they do while the backend is not overloaded.
func (i *Intake) SetAsking(yes bool, now time.Time) {
	if yes {
		i.asking.Store(now.UnixMilli())
	} else {
		i.asking.Store(deaf)
	}
}

// wholePeriod returns when a whole period has passed since a time, in Unix milliseconds; 0 if it has passed already.
func wholePeriod(since, period int64, now time.Time) int64 {
	switch {
	case since == deaf:
		return now.UnixMilli() + askAgain
	case since+period > now.UnixMilli():
		return since + period
	}
	return 0
}

// waiting returns when a deadline may count, in Unix milliseconds, if the backend has not read all that the agent has
// sent, or has not requested a result; else 0. Keepalives need no request, so the backend notices a dead agent under
// overload too.
func (i *Intake) waiting(o *state.Overdue, cfg *resource.EntityConfig, now time.Time) (again int64) {
	period := periodOf(o)
	if cfg.EntityClass != resource.EntityAgentClass {
		return wholePeriod(i.asking.Load(), period, now) // any agent may bring its results
	}
	sessions := i.sessions.Load()
	if sessions == nil {
		return 0
	}
	if (*sessions).Excused(o.Namespace, o.Entity) {
		return now.UnixMilli() + askAgain
	}
	if o.Check == state.KeepaliveCheck {
		return 0
	}
	held := (*sessions).HeldSince(o.Namespace, o.Entity)
	if held-now.UnixMilli() >= clockStep {
		return 0 // the clock was set back since, and Unheard has waited for a whole period from then on
	}
	return wholePeriod(held, period, now)
}

// periodOf returns the period of a deadline, in milliseconds. After a start the state has moved the deadline on, by as
// much as the backend was down, so the period is no longer than the check's own.
func periodOf(o *state.Overdue) int64 {
	period := o.Due - o.Received
	if o.Event == nil || o.Event.Check == nil {
		return period
	}
	own := o.Event.Check.TTL * 1000
	if o.Check == state.KeepaliveCheck {
		own = keepaliveTimeouts(o.Event.Check).first()
	}
	if own > 0 {
		period = min(period, own)
	}
	return period
}

// Expire handles a deadline that has passed: it appends the event that reports it, unless there is a reason not to.
// The id is the state's. If again is not 0 the deadline counts only then, in Unix milliseconds: silence is no failure
// while the backend cannot hear, so events must have been able to arrive for a whole period.
func (i *Intake) Expire(ctx context.Context, id uint64) (again int64, err error) {
	o, ok := i.opts.State.Overdue(id)
	if !ok {
		return 0, nil
	}
	cfg, ok := config.Get(i.opts.Config.Snapshot(), config.Entities, o.Namespace, o.Entity)
	if !ok {
		return 0, nil // the entity has no deadlines any more
	}
	now := time.Now()
	if o.Due > now.UnixMilli() {
		return 0, nil // an event came at the last moment
	}
	watches, since := i.opts.Watches(o.Partition, o.Origin)
	if !watches {
		return now.UnixMilli() + askAgain, nil // another backend watches it, and may stop to
	}
	// Counted back from now, because the clock may have been set since.
	if again := wholePeriod(now.Add(-now.Sub(since)).UnixMilli(), periodOf(&o), now); again != 0 {
		return again, nil
	}
	if again := i.Unheard(periodOf(&o), now); again != 0 {
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
	if defined && !def.Calendars.Empty() {
		if again := i.outside(def, periodOf(&o), now); again != 0 {
			return again, nil
		}
	}
	if o.Rebuilt && defined {
		define(o.Event.Check, def)
	}
	if takesTurns(o.Event.Check) && i.opts.TurnAt(o.Namespace, o.Check) > o.Received {
		if o.Missing && o.Event.Check.Status != 0 {
			return 0, i.runsAgain(ctx, &o, now)
		}
		return 0, nil // another agent ran it later, and has a deadline of its own
	}
	status := uint32(1)
	if defined && def.TTLStatus != 0 {
		status = def.TTLStatus
	}
	return 0, i.ttlExpired(ctx, &o, cfg, status, now)
}

// outside returns when a deadline may count, in Unix milliseconds, of a check whose calendars did not let it run at some
// moment of its last period; else 0. After such a time a whole period must pass.
func (i *Intake) outside(def *resource.CheckConfig, period int64, now time.Time) (again int64) {
	gate, _ := calendar.NewGate(def.Calendars, i.opts.Calendars.In(i.opts.Config.Snapshot(), def.Metadata.Namespace))
	until := gate.ClosedUntil(now.Add(-time.Duration(min(period, maxStoredTTL*1000))*time.Millisecond), now)
	if until.IsZero() {
		return 0
	}
	// A definition may change before: the deadline asks again every hour.
	return min(max(until.UnixMilli()+period, now.UnixMilli()+askAgain), now.Add(time.Hour).UnixMilli())
}

// takesTurns reports whether agents take turns with a check. The results of a proxy entity are its own, from any agent.
func takesTurns(c *resource.Check) bool { return c.RoundRobin && c.ProxyEntityName == "" }

// define sets the fields of a check, rebuilt from the state, that its definition has.
func define(c *resource.Check, def *resource.CheckConfig) {
	known := *c
	*c = *resource.CheckOf(def)
	c.Status, c.Executed, c.Issued = known.Status, known.Executed, known.Issued
	if c.TTL == 0 {
		c.TTL = known.TTL
	}
}

// keepaliveFailed appends the keepalive check's failure: a warning from the warning timeout on, critical from the
// critical one, and a repeat after each further warning timeout, counted from the receipt of the last keepalive.
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

// ttlExpired appends that a check's result is missing. It leaves out fields that belong only to the stored result.
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

// runsAgain appends that other agents run a round-robin check whose results were missing.
func (i *Intake) runsAgain(ctx context.Context, o *state.Overdue, now time.Time) error {
	ev := o.Event
	c := ev.Check
	c.Output, c.Status = "Another agent has run the check since", 0
	ev.Timestamp, c.Executed = now.Unix(), now.Unix()
	return i.expired(ctx, o, ev, now, 0)
}

// maxStoredTTL bounds the TTL of a stored event, in seconds: the event may be older than the validation.
const maxStoredTTL = 10 * 365 * 24 * 3600

func (i *Intake) expired(ctx context.Context, o *state.Overdue, ev *resource.Event, now time.Time, due int64) error {
	c := ev.Check
	c.History, c.State, c.Occurrences, c.OccurrencesWatermark, c.LastOK, c.TotalStateChange = nil, "", 0, 0, 0, 0
	rec := recordOf(ev, o.Namespace, o.Entity, now)
	rec.Flags |= eventlog.FlagDeadline
	rec.Basis, rec.Due = o.Position, due
	i.complete(&rec, ev, ev.Entity, now)
	if err := i.append(ctx, &rec, nil, 0); err != nil {
		return fmt.Errorf("append deadline of %s/%s: %w", o.Entity, o.Check, err)
	}
	i.metrics.received.WithLabelValues("deadline").Inc()
	return nil
}
