package session

import (
	"slices"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule"
	"github.com/lapwing-monitoring/lapwing/schedule/timetable"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// assignment is a check that the scheduler has assigned to lapwing agents, which run it by themselves. All their
// sessions share it and it never changes.
type assignment struct {
	name          string
	subscriptions []string
	every, phase  time.Duration // every is 0 for a cron line without a fixed interval
	request       []byte        // protobuf
}

func newAssignment(a *schedule.Assignment, q *resource.CheckRequest) *assignment {
	c := a.Request.Config
	return &assignment{a.Check, c.Subscriptions, a.Every, a.Phase, q.AppendProto(nil)}
}

// entry returns the assignment for one agent.
func (a *assignment) entry(offset int64, shift uint64) wire.ScheduleEntry {
	place := timetable.Place{Offset: offset, Shift: shift}
	return wire.ScheduleEntry{PhaseMillis: uint64(place.Phase(a.every, a.phase).Milliseconds()), Request: a.request}
}

// plan is what a session still has to send a lapwing agent about its schedule.
type plan struct {
	revision uint64 // of the last message
	stale    bool   // the agent is to get its whole schedule again
	changes  []change
}

// change is a check that was assigned to an agent, or taken from it if assignment is nil.
type change struct {
	name       string
	assignment *assignment
}

// maxChanges bounds the changes kept for one agent. Beyond it the agent gets its whole schedule again.
const maxChanges = 64

// change records a change of the agent's schedule, which leaves at the agent's moment. The caller holds mu.
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

// lockPlan locks mu. If the agent is to get its whole schedule, b holds the schedule afterwards.
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

// takePlan appends the changes of the agent's schedule. The caller holds mu, from lockPlan.
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
