package session

import (
	"slices"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// hold is what an agent's queue remembers of requests that are held back.
//
// When agents send more than the backend takes, what they have sent waits in their sockets. An agent that is asked for more
// then only makes the wait longer, until its results are as old as the socket's buffers are large. So requests wait at this
// end: an agent whose earlier results were not read is asked for nothing, and a request whose turn comes while the one before it
// still waits takes its place. That run is skipped, and counted. Each check keeps its place in the queue, so all checks of an agent
// run less often, and none of them never.
type hold struct {
	due   int32 // requests that came since requests last left
	some  bool  // some were held back when requests last left
	since int64 // when some were last held back, Unix milliseconds; 0 if never
}

// held is how requests for an agent are treated at this moment.
type held uint8

const (
	heldNot  held = iota
	heldSome      // the backend is overloaded: no more leave than fall due
	heldAll       // and results of the agent were not read yet
)

// holdBack looks whether requests for the agent are to be held back. The caller must not hold mu.
func (s *session) holdBack() held {
	switch {
	case s.server.pace() == wire.PaceGo:
		return heldNot
	case s.behind():
		return heldAll
	}
	return heldSome
}

// behind reports whether something that the agent has sent is not in the log's buffer yet.
func (s *session) behind() bool { return s.busy.Load() || s.conn.Unread() }

// excused reports whether the silence of the agent is the backend's doing: something that the agent has sent was not read, and its
// host is still there. A host that has died may have left much behind. Keepalives, TTLs and the idle timeout all ask this.
func (s *session) excused() bool { return s.behind() && s.conn.Silent() < maxSilent }

// maxSilent is longer than a system that is alive ever needs to answer TCP's own probes, which leave every 15 s.
const maxSilent = time.Minute

// merge lets a request take the place of an earlier one for the same, if requests are held back.
func (o *outgoing) merge(m *message) bool {
	if !o.hold.some {
		return false
	}
	for i, old := range o.frames {
		if old.check == m.check && old.proxy == m.proxy {
			o.bytes += len(m.frame) - len(old.frame)
			o.frames[i] = m
			return true
		}
	}
	return false
}

// allowance is how many requests may leave now. Under overload no more leave than fall due, so that an agent which has many
// waiting does not send as many results at once; when it is over, those that wait leave over some seconds.
func (o *outgoing) allowance(h held) int {
	switch {
	case h == heldAll:
		return 0
	case h == heldSome:
		return max(1, int(o.hold.due))
	case o.hold.some:
		return int(o.hold.due) + 1 + len(o.frames)/8
	}
	return len(o.frames)
}

// takeFrames moves frames into the batch, and returns how many of them are requests. What is held back is looked at again in the
// agent's next turn. The caller holds mu.
func (s *session) takeFrames(b *batch, h held) (requests int) {
	o := &s.out
	allowed := o.allowance(h)
	kept := o.frames[:0]
	for _, m := range o.frames {
		if m.check != "" {
			if requests == allowed {
				kept = append(kept, m)
				continue
			}
			requests++
		}
		b.frames = append(b.frames, m.frame)
		o.bytes -= len(m.frame)
	}
	clear(o.frames[len(kept):])
	o.frames = kept
	o.hold.due, o.hold.some = 0, len(kept) > 0
	switch {
	case o.hold.some:
		o.hold.since = time.Now().UnixMilli()
		if s.server.pacer.spread > 0 {
			s.server.pacer.turn(s)
		}
	case cap(kept) > maxKeptFrames:
		o.frames = nil
	}
	return requests
}

// heldSince is when requests for the agent were last held back, Unix milliseconds.
func (s *session) heldSince() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.hold.since
}

// Excused reports whether the silence of an agent is the backend's doing, in any of its sessions.
func (r *registry) Excused(namespace, agent string) bool {
	return slices.ContainsFunc(r.agent(namespace, agent), (*session).excused)
}

// HeldSince is when requests for an agent were last held back, in Unix milliseconds; 0 if never.
func (r *registry) HeldSince(namespace, agent string) (since int64) {
	for _, s := range r.agent(namespace, agent) {
		since = max(since, s.heldSince())
	}
	return since
}
