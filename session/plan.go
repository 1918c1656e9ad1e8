package session

import (
	"slices"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// assignment is a check that lapwing agents run by themselves, as the scheduler assigned it. It is shared by all their
// sessions and never changed.
type assignment struct {
	name          string
	subscriptions []string
	every, phase  uint64 // milliseconds; every is 0 with a cron that has no such distance
	request       []byte // protobuf
}

func newAssignment(a *schedule.Assignment, q *resource.CheckRequest) *assignment {
	c := a.Request.Config
	n := &assignment{name: a.Check, subscriptions: c.Subscriptions, request: q.AppendProto(nil)}
	n.every, n.phase = uint64(a.Every.Milliseconds()), uint64(a.Phase.Milliseconds())
	return n
}

// entry is the assignment for one agent. The agent's schedule is turned by whole seconds, so that a check runs on other hosts in
// other seconds of its interval: the seconds of a fleet are equally busy even if most of its checks have ticks in a few of them.
// All checks of one agent are turned alike: what it runs in one second it still does, and sends together at its moment.
func (a *assignment) entry(offset int64, shift uint64) wire.ScheduleEntry {
	const second = uint64(time.Second / time.Millisecond)
	e := wire.ScheduleEntry{Request: a.request}
	if a.every > 0 {
		e.PhaseMillis = (a.phase + shift%(a.every/second)*second + uint64(offset)) % a.every
	} else { // ticks of a cron line are times that users chose
		e.PhaseMillis = uint64(offset) % second
	}
	return e
}

// plan is what a session has to tell a lapwing agent about its schedule.
type plan struct {
	revision uint64 // of the last message
	stale    bool   // the agent is to be told all anew
	changes  []change
}

// change is a check that is assigned to an agent, or no more if assignment is nil.
type change struct {
	name       string
	assignment *assignment
}

// maxChanges is how many changes are kept for one agent. More, and it is told all anew.
const maxChanges = 64

// change notes a change of the agent's schedule, which it is told in its turn. The caller holds mu.
func (s *session) change(name string, a *assignment) {
	p := &s.plan
	if p.stale || s.closed {
		return
	}
	switch i := slices.IndexFunc(p.changes, func(c change) bool { return c.name == name }); {
	case i >= 0:
		p.changes[i].assignment = a
	case len(p.changes) < maxChanges:
		p.changes = append(p.changes, change{name, a})
	default:
		p.stale, p.changes = true, nil
	}
	s.server.pacer.turn(s)
}

// lockPlan locks mu. If the agent is to be told its whole schedule, the schedule is in b then.
func (s *session) lockPlan(b *batch) {
	b.entries = b.entries[:0]
	s.mu.Lock()
	if !s.plan.stale {
		return
	}
	s.mu.Unlock()
	r := s.server.registry
	r.mu.RLock()
	defer r.mu.RUnlock()
	s.mu.Lock()
	b.entries = r.schedule(s, b.entries)
}

// takePlan appends what the agent is to be told of its schedule. The caller holds mu, from lockPlan.
func (s *session) takePlan(b *batch) {
	p := &s.plan
	if !p.stale && len(p.changes) == 0 {
		return
	}
	for _, c := range p.changes {
		if c.assignment != nil {
			b.entries = append(b.entries, c.assignment.entry(s.offset, s.shift))
		} else {
			b.entries = append(b.entries, wire.ScheduleEntry{Remove: c.name})
		}
	}
	p.revision++
	s.server.metrics.schedules.Inc()
	b.frames = append(b.frames, wire.AppendSchedule(nil, p.revision, p.stale, b.entries))
	clear(b.entries)
	p.stale, p.changes = false, nil
}
