package session

import (
	"cmp"
	"slices"
)

// acks tracks which events of a lapwing agent are durable. Its events may go to several partitions, whose commits end
// in any order; the agent gets the highest number up to which all its events are durable. Numbers grow, with gaps
// where the agent dropped an event.
type acks struct {
	arrived      []sentEvent // in order of arrival; those before first are done
	first        int
	bytes        int    // of the events from first on
	durable      uint64 // all events up to this number are durable
	unacked      int    // durable events that are not acknowledged yet
	unackedBytes int
}

type sentEvent struct {
	seq  uint64
	size uint32
	done bool
}

const maxKeptEvents = 64 // a larger slice is dropped once all events are durable

// expect records the arrival of an event.
func (a *acks) expect(seq uint64, size int) {
	if n := len(a.arrived); n > 0 && seq <= a.arrived[n-1].seq {
		return // the agent breaks the protocol
	}
	a.arrived = append(a.arrived, sentEvent{seq: seq, size: uint32(size)})
	a.bytes += size
}

// done records that an event is durable and reports whether there is an acknowledgement to send.
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
		a.unacked++
		a.unackedBytes += int(e.size)
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

// take returns the number to acknowledge, if it has grown since the last call.
func (a *acks) take() (uint64, bool) {
	if a.unacked == 0 {
		return 0, false
	}
	a.unacked, a.unackedBytes = 0, 0
	return a.durable, true
}

// outstanding returns the count and the bytes of the events that have arrived and are not acknowledged.
func (a *acks) outstanding() (events, bytes int) {
	return len(a.arrived) - a.first + a.unacked, a.bytes + a.unackedBytes
}

// maxUnackedBytes is how many bytes of durable events an agent may have to keep before it gets an acknowledgement at
// once.
const maxUnackedBytes = 256 << 10

// Logged is called by the log when an event is durable. The acknowledgement leaves at the agent's next moment, one for
// all events of that second.
func (s *session) Logged(token uint64, _ int, _ uint64, err error) {
	if err != nil {
		return // not acknowledged: the agent keeps it and sends it again
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.acks.done(token) {
		return
	}
	if _, bytes := s.acks.outstanding(); bytes > maxUnackedBytes || s.departure != staying {
		s.server.pacer.now(s)
	} else {
		s.server.pacer.turn(s)
	}
}
