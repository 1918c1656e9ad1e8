package intake

import "time"

// MaxHeld is how long a session may delay a message at most. An agent that gets no answer to its pings for 45 s
// reconnects.
const MaxHeld = 20 * time.Second

// rateBurst is how far events may be ahead of an even rate.
const rateBurst = time.Second

// spend counts an event against a rate of events a second. The debt is bounded, so a sender that returns to the rate
// is soon free.
func (u *use) spend(rate int64, now time.Time) {
	each := int64(time.Second) / rate
	for {
		next := u.next.Load()
		if u.next.CompareAndSwap(next, min(max(next, now.UnixNano())+each, now.Add(rateBurst+MaxHeld).UnixNano())) {
			return
		}
	}
}

// wait returns how long the next event has to wait.
func (u *use) wait(now time.Time) time.Duration {
	return max(0, time.Duration(u.next.Load()-now.UnixNano())-rateBurst)
}

// admit counts a user's event against the rate of its namespace, and refuses it if the rate is exceeded.
func (q *quotas) admit(namespace string, now time.Time) error {
	rate := q.limits.NamespaceEvents
	if rate == 0 {
		return nil
	}
	all := q.namespace(namespace)
	if wait := all.wait(now); wait > 0 {
		return q.refuse(QuotaNamespaceEvents, "namespace "+namespace, rate, wait)
	}
	all.spend(rate, now)
	return nil
}

// Meter counts a session's events against the quotas of events a second. A nil Meter counts nothing.
type Meter struct {
	quotas     *quotas
	agent, all *use
}

// Meter returns the meter for a session of an agent; nil if no quota bounds events a second. The session calls Leave
// when it ends.
func (i *Intake) Meter(namespace, agent string) *Meter { return i.quotas.meter(namespace, agent) }

func (q *quotas) meter(namespace, agent string) *Meter {
	if q.limits.AgentEvents == 0 && q.limits.NamespaceEvents == 0 {
		return nil
	}
	return &Meter{q, q.acquire(namespace, agent), q.namespace(namespace)}
}

// Leave ends the meter of a session.
func (m *Meter) Leave() {
	if m != nil {
		m.quotas.release(m.agent)
	}
}

// Spend counts an event.
func (m *Meter) Spend() {
	if m == nil {
		return
	}
	now := time.Now()
	if rate := m.quotas.limits.AgentEvents; rate > 0 {
		m.agent.spend(rate, now)
	}
	if rate := m.quotas.limits.NamespaceEvents; rate > 0 {
		m.all.spend(rate, now)
	}
}

// Wait returns how long the session must delay its next event, and because of which quota.
func (m *Meter) Wait() (wait time.Duration, quota string) {
	if m == nil {
		return 0, ""
	}
	now := time.Now()
	mine, ours := m.agent.wait(now), m.all.wait(now)
	if ours > mine {
		return ours, QuotaNamespaceEvents
	}
	return mine, quotaAgentEvents
}

// Held counts that a quota has delayed a message.
func (m *Meter) Held(quota string, wait time.Duration) {
	m.quotas.held.WithLabelValues(quota).Add(wait.Seconds())
}
