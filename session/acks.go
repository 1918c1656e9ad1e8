package session

import (
	"cmp"
	"slices"
)

// acks tracks which of a lapwing agent's events are durable. Events of one agent may stand in several partitions, whose
// commits end in any order; the agent is told the highest number up to which all that it sent are durable. Numbers grow, but
// not by one where the agent had to drop an event.
type acks struct {
	arrived     []sentEvent // in their order; those before first are dealt with
	first       int
	bytes       int    // of the arrived ones from first on
	durable     uint64 // all up to it are
	untold      int    // durable events of which the agent was not told
	untoldBytes int
}

type sentEvent struct {
	seq  uint64
	size uint32
	done bool
}

const maxKeptEvents = 64 // room for more is not kept when all are durable

// expect notes that an event of some size has arrived.
func (a *acks) expect(seq uint64, size int) {
	if n := len(a.arrived); n > 0 && seq <= a.arrived[n-1].seq {
		return // not of an agent that keeps to the protocol
	}
	a.arrived = append(a.arrived, sentEvent{seq: seq, size: uint32(size)})
	a.bytes += size
}

// done notes that an event is durable and says whether there is something to tell the agent.
func (a *acks) done(seq uint64) bool {
	i, ok := slices.BinarySearchFunc(a.arrived[a.first:], seq, func(e sentEvent, seq uint64) int { return cmp.Compare(e.seq, seq) })
	if !ok {
		return false
	}
	a.arrived[a.first+i].done = true
	if i > 0 {
		return false
	}
	for a.first < len(a.arrived) && a.arrived[a.first].done {
		e := a.arrived[a.first]
		a.first++
		a.durable = e.seq
		a.bytes -= int(e.size)
		a.untold++
		a.untoldBytes += int(e.size)
	}
	switch {
	case a.first == len(a.arrived):
		a.arrived, a.first = a.arrived[:0], 0
		if cap(a.arrived) > maxKeptEvents {
			a.arrived = nil
		}
	case a.first > len(a.arrived)/2:
		a.arrived, a.first = slices.Delete(a.arrived, 0, a.first), 0
	}
	return true
}

// take returns the number to tell, if there is one that was not told.
func (a *acks) take() (uint64, bool) {
	if a.untold == 0 {
		return 0, false
	}
	a.untold, a.untoldBytes = 0, 0
	return a.durable, true
}

// outstanding is how many events have arrived of which the agent was not told that they are durable, and their bytes.
func (a *acks) outstanding() (events, bytes int) {
	return len(a.arrived) - a.first + a.untold, a.bytes + a.untoldBytes
}

// maxUntoldBytes is how much an agent may have to hold before it is told at once what is durable of it.
const maxUntoldBytes = 256 << 10

// Logged is called by the log when an event is durable. The agent is told in its turn, for all of a second's events
// at once.
func (s *session) Logged(token uint64, _ int, _ uint64, err error) {
	if err != nil {
		return // not acknowledged: the agent keeps it and sends it again
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.acks.done(token) {
		return
	}
	if _, bytes := s.acks.outstanding(); bytes > maxUntoldBytes || s.parting {
		s.server.pacer.now(s)
	} else {
		s.server.pacer.turn(s)
	}
}
