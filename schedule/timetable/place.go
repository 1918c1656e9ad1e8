package timetable

import (
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Place says when in a second and in the interval of a check one agent has its turn, so that a fleet is not busy all at
// once. It depends on the agent's names alone: an agent keeps it, and with it the phases of its checks, for ever.
type Place struct {
	Offset int64  // milliseconds, less than the spread: what is sent to the agent leaves that much later
	Shift  uint64 // seconds, modulo the interval of a check: the agent runs it that much later
}

// PlaceOf returns an agent's place for the spread of the backend's messages. Without a spread all agents have the same place.
func PlaceOf(agent resource.Name, spread time.Duration) Place {
	if spread < time.Millisecond {
		return Place{}
	}
	hash := xxhash.Sum64String(agent.Namespace + "\x00" + agent.Name)
	return Place{Offset: int64(hash % uint64(spread.Milliseconds())), Shift: hash >> 32} // the other half of the hash
}

// Phase returns the phase of a check in the schedule of an agent that runs it by itself. Phase and every are those of the
// check's ticks; every is 0 for a cron that does not tick at even distances.
//
// Each agent's schedule is shifted by whole seconds, so that hosts run a check in different seconds of its interval: the load
// of a fleet is even although most of its checks tick in a few seconds. All checks of one agent are shifted alike: those that
// run in the same second still do, and send their results together.
func (p Place) Phase(every, phase time.Duration) time.Duration {
	offset := time.Duration(p.Offset) * time.Millisecond
	if every <= 0 {
		return offset % time.Second // users chose the times of a cron line
	}
	shift := time.Duration(p.Shift%uint64(every/time.Second)) * time.Second
	return (phase + shift + offset) % every
}

// Planned returns the times of a check in an agent's schedule, and how long after each of them the agent runs it. With an
// interval or @every the phase alone determines them. With another cron, whose times are those of Cron, the phase is the
// distance of each run from its tick.
func Planned(times Timetable, every, phase time.Duration) (planned Timetable, after time.Duration) {
	if every > 0 {
		return Interval(phase, every), 0
	}
	return times, phase
}
