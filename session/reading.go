package session

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/lapwing-monitoring/lapwing/intake"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// pending is what Server.read leaves to a session's goroutine: a message that has to wait, or the error that ends the
// session.
type pending struct {
	msg  []byte
	full bool // the log had no room for the message
	err  error
}

// run reads the agent's messages until the connection ends. With a poller, it reads only until nothing more has
// arrived: then the session is parked, and has no goroutine.
func (s *session) run(ctx context.Context) (parked bool, err error) {
	if left := s.pending; left != nil {
		s.pending = nil
		if left.err != nil {
			return false, left.err
		}
		if left.full && !s.server.opts.Log.Room(int(s.lane)) {
			// The connection was closed in the meantime. A message without room in the log is dropped with it.
			s.warn("connection ended while the log had no room: the last message is dropped", "")
		} else if err := s.wait(ctx, left.msg); err != nil {
			return false, err
		}
	}
	for !s.conn.Park() {
		msg, ok, err := s.next(ctx)
		if err != nil {
			return false, err
		}
		if !ok {
			continue // a ping, say
		}
		s.server.metrics.received.Add(float64(len(msg)))
		s.busy.Store(true)
		if err = s.onMessage(ctx, msg, prompt); errors.Is(err, intake.ErrMustWait) {
			err = s.wait(ctx, msg)
		}
		if err != nil {
			return false, err
		}
		s.heldUp = false
		s.busy.Store(s.conn.Buffered())
	}
	return true, nil
}

// next reads the next frame. While the quotas delay the agent, a long message of events stays in the socket, where it
// takes no memory of the backend.
func (s *session) next(ctx context.Context) (msg []byte, ok bool, err error) {
	if s.meter != nil {
		start, long, err := s.conn.Await()
		if err != nil {
			return nil, false, err
		}
		if long && !isKeepalive(start) {
			s.busy.Store(true)
			waiting, end := s.server.waits.begin(ctx, s)
			err := s.holdUp(waiting, patient)
			if errors.Is(context.Cause(waiting), errPeerGone) {
				err = errPeerGone
			}
			end()
			s.busy.Store(false)
			if err != nil {
				return nil, false, err
			}
		}
	}
	return s.conn.Next()
}

// wait is onMessage, on the session's goroutine, for a message that has to wait. Until it returns the agent counts as
// behind.
func (s *session) wait(ctx context.Context, msg []byte) error {
	s.busy.Store(true)
	s.conn.Keep(len(msg))
	ctx, end := s.server.waits.begin(ctx, s)
	defer end()
	err := s.onMessage(ctx, msg, patient)
	if errors.Is(context.Cause(ctx), errPeerGone) {
		err = errPeerGone
	}
	s.heldUp = false
	s.busy.Store(s.conn.Buffered())
	return err
}

const (
	// maxTurn and maxTurnBytes bound how long and how much Server.read reads from one agent before it goes on to the
	// others: agents share the bytes a second that the log takes.
	maxTurn      = time.Millisecond
	maxTurnBytes = 32 << 10
	// maxBriefEvents is how many events of a batch it takes in one turn.
	maxBriefEvents = 64
)

// patience is how long a message may take.
type patience uint8

const (
	brief   patience = iota // no waiting, and little work: Server.read has other agents to read from
	prompt                  // no waiting
	patient                 // waits where it has to
)

// mayRead reports whether the next message may be read now: the log has room for events, or the message has none.
func (s *session) mayRead() bool {
	if s.server.opts.Log.Room(int(s.lane)) {
		return true
	}
	if s.pending != nil {
		return false
	}
	start, ok := s.conn.Front()
	return !ok || isKeepalive(start)
}

// isKeepalive reports whether a message is a single keepalive, from its start.
func isKeepalive(start []byte) bool { return bytes.HasPrefix(start, []byte(wire.TypeKeepalive+"\n")) }

// putOff keeps a message that must wait, or the error that ends the session.
func (s *session) putOff(msg []byte, err error) wire.Then {
	var full intake.NoRoomError
	switch {
	case errors.As(err, &full):
		s.lane = uint16(full.Partition)
		s.keep(msg, true)
		s.conn.Release()
		return wire.ThenHold
	case errors.Is(err, intake.ErrMustWait):
		s.keep(msg, false)
		s.busy.Store(true)
	default:
		s.pending = &pending{err: err}
	}
	return wire.ThenResume
}

// keep copies a message that has to wait, because the next read reuses its memory.
func (s *session) keep(msg []byte, full bool) {
	s.pending = &pending{msg: bytes.Clone(msg), full: full}
	s.conn.Keep(len(msg))
}

// holdUp waits until the quotas allow more events of the agent. Nothing is lost: a lapwing agent keeps events until
// they are acknowledged, and TCP stops others. It is not called for keepalives.
func (s *session) holdUp(ctx context.Context, p patience) error {
	if s.meter == nil || s.heldUp {
		return nil
	}
	wait, quota := s.meter.Wait()
	switch {
	case wait == 0:
		return nil
	case p != patient:
		return intake.ErrMustWait
	}
	s.heldUp = true
	wait = min(wait, intake.MaxHeld)
	if quota == intake.QuotaNamespaceEvents {
		s.server.rare.Warn("agents of a namespace are held up: together they send more events than the namespace's quota allows",
			s.namespace, "quota", quota, "namespace", s.namespace, "for_example", s.name)
	} else {
		s.warn("agent is held up: it sends more events than its quota allows", quota, "quota", quota)
	}
	s.meter.Held(quota, wait)
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
