package session

import (
	"slices"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// hold records which requests in an agent's queue are held back.
//
// When agents send more than the backend reads, their results wait in the sockets. More requests only make the wait
// longer, until results are as old as the socket buffers are large. So requests wait in the backend: an agent gets no
// request while earlier results of it are unread. A newer request replaces an earlier one for the same check that
// still waits; that run is skipped and counted. Each check keeps its place in the queue, so all checks of an agent run
// less often and none starves.
type hold struct {
	due   int32 // requests that came since requests last left
	some  bool  // whether some were held back when requests last left
	since int64 // when some were last held back, Unix milliseconds; 0 if never
}

// held is how requests for an agent are treated at the moment.
type held uint8

const (
	heldNot  held = iota
	heldSome      // the backend is overloaded: no more requests leave than fall due
	heldAll       // results of the agent are unread as well
)

// holdBack returns how to treat requests for the agent now. The caller must not hold mu.
func (s *session) holdBack() held {
	switch {
	case s.server.pace() == wire.PaceGo:
		return heldNot
	case s.behind():
		return heldAll
	}
	return heldSome
}

// behind reports whether anything that the agent sent is not in the log's buffer yet.
func (s *session) behind() bool { return s.busy.Load() || s.conn.Unread() }

// excused reports whether the backend is to blame for the agent's silence: data of the agent is unread, and its host
// is still alive. A host that has died may have left much unread. Keepalives, TTLs and the idle timeout all use this.
func (s *session) excused() bool { return s.behind() && s.conn.Silent() < maxSilent }

// maxSilent is longer than any live system takes to answer TCP's own probes, which leave every 15 s.
const maxSilent = time.Minute

// merge replaces an earlier request for the same check and entity with this one, if requests are held back.
func (o *outgoing) merge(m *message) bool {
	if !o.hold.some {
		return false
	}
	for i, old := range o.frames {
		if old.check == m.check && old.proxy == m.proxy {
			o.bytes += len(m.frame) - len(old.frame)
			o.frames[i] = m
			if old.lost != nil {
				old.lost()
			}
			return true
		}
	}
	return false
}

// allowance returns how many requests may leave now. Under overload that is as many as fall due, so that an agent with
// many waiting requests does not send all the results at once. After an overload the waiting requests leave over some
// seconds.
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

// takeFrames moves frames into the batch, and returns how many of them are requests. Frames that are held back stay
// for the agent's next turn. The caller holds mu.
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
		if m.scratch != nil {
			b.scratches = append(b.scratches, m.scratch)
		}
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

// heldSince returns when requests for the agent were last held back, in Unix milliseconds.
func (s *session) heldSince() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.hold.since
}

// Excused reports whether the backend is to blame for an agent's silence, in any of its sessions.
func (r *registry) Excused(namespace, agent string) bool {
	return slices.ContainsFunc(r.agent(namespace, agent), (*session).excused)
}

// HeldSince returns when requests for an agent were last held back, in Unix milliseconds; 0 if never.
func (r *registry) HeldSince(namespace, agent string) (since int64) {
	for _, s := range r.agent(namespace, agent) {
		since = max(since, s.heldSince())
	}
	return since
}
