package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/intake"
	"github.com/lapwing-monitoring/lapwing/internal/connlimit"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// session is one agent's connection. There are tens of thousands, nearly all idle, so it is kept small.
type session struct {
	server    *Server
	conn      *wire.Conn
	slot      *connlimit.Slot // of the connection
	namespace string
	name      string
	epoch     uint64 // of a lapwing agent
	offset    int64  // frames that are not urgent leave this many milliseconds after the start of each spread
	shift     uint64 // the schedule of a lapwing agent is shifted by this many seconds
	encoding  wire.Encoding
	lapwing   bool          // speaks batches, acknowledgements, schedules and paces
	follows   bool          // gets the members of the cluster, and moves to another one when asked
	stays     bool          // chooses its backend by itself: it is not moved to make the members even
	meter     *intake.Meter // nil if the rate of events has no bound
	joined    int64         // when it began, Unix milliseconds
	shared    atomic.Bool   // another session of the same name began beside it
	busy      atomic.Bool   // its goroutine has a message that is not done
	quiet     uint8         // sweeps of watchIdle that found no data; only for watchIdle

	// For the reader alone: the session's goroutine or Server.read.
	keepalives int
	begun      bool     // the agent got its configuration
	lane       uint16   // the log's partition that its events go to, or the last one that had no room
	pending    *pending // what Server.read has left to a goroutine
	taken      int      // events done of the message under way
	heldUp     bool     // the quotas have delayed the message under way

	configuring sync.Mutex // held while the agent's configuration is read and queued; taken before all other locks

	mu            sync.Mutex // guards the fields below; see registry for the order of locks
	subscriptions []string
	configured    bool // the agent's entity is known: it may get checks
	closed        bool
	counted       bool // in the registry's number of sessions that are to stay
	departure     departure
	directed      bool   // was asked to move to a member, or there was none
	signpost      uint32 // the number of the one that the agent has
	out           outgoing
	plan          plan
	told          wire.Pace // the pace that was last sent to the agent
	acks          acks
	published     uint64 // the last request that was queued for it
}

// logger makes the logger on demand: kept, it would be a good part of an idle session's memory.
func (s *session) logger() *slog.Logger {
	return s.server.log.With("agent", s.name, "namespace", s.namespace)
}

// warn logs a line about what the agent sent, at most one a minute for each agent and detail.
func (s *session) warn(message, detail string, attrs ...any) {
	s.server.rare.Warn(message, s.namespace+"/"+s.name+"/"+detail, append(attrs, "agent", s.name, "namespace", s.namespace)...)
}

// read takes in what has arrived from the agents of one poller, until the poller is closed. Nearly all events enter on
// this goroutine, so it waits for nothing else: a message that may take longer gets a goroutine of its session.
func (s *Server) read(p *wire.Poller[*session]) {
	for {
		one, turn := p.Next()
		switch turn {
		case wire.TurnEnd:
			return
		case wire.TurnResume:
			go s.runSession(one)
		case wire.TurnRead:
			then := one.readable()
			if !p.Return(then, int(one.lane)) {
				go s.runSession(one)
			}
		}
	}
}

// readable reads what has arrived, for a bounded time. If the log has no room, data stays in the socket: only messages
// that were under way when the log became full are kept in memory.
func (s *session) readable() wire.Then {
	read := 0
	for begin := time.Now(); read < maxTurnBytes && time.Since(begin) < maxTurn && s.mayRead(); {
		var msg []byte
		waited := s.pending != nil
		if waited {
			msg, s.pending = s.pending.msg, nil
		} else {
			var ok, wait bool
			if msg, ok, wait = s.conn.TryRead(); !ok {
				if wait {
					return wire.ThenResume
				}
				return wire.ThenPark
			}
			s.server.metrics.received.Add(float64(len(msg)))
		}
		read += len(msg)
		if err := s.onMessage(s.server.ctx, msg, brief); err != nil {
			return s.putOff(msg, err)
		}
		if waited {
			s.conn.Done()
		}
	}
	s.conn.Release()
	return wire.ThenHold
}

// onMessage splits a message, and passes its events to the intake. An error ends the session; an event that is refused
// does not. Unless it is patient it may fail with intake.ErrMustWait. The caller then passes the message again later,
// and the events of a batch that session.taken counts are skipped.
func (s *session) onMessage(ctx context.Context, msg []byte, p patience) error {
	typ, payload, err := wire.Split(msg)
	if err != nil {
		s.server.metrics.badFrames.Inc()
		return fmt.Errorf("split message of %d bytes: %w", len(msg), err)
	}
	src := intake.Source{Namespace: s.namespace, Agent: s.name, Prompt: p != patient}
	switch typ {
	case wire.TypeEvent:
		if err := s.holdUp(ctx, p); err != nil {
			return err
		}
		if err = s.refuse(s.onEvent(ctx, payload, src)); err == nil {
			s.meter.Spend()
		}
	case wire.TypeKeepalive:
		err = s.refuse(s.onKeepalive(ctx, payload, s.encoding, src))
	case wire.TypeEvents:
		if !s.lapwing {
			s.server.metrics.badFrames.Inc()
			s.warn("batch of events from an agent that did not announce batches", "")
			return nil
		}
		if err = s.onEvents(ctx, payload, p); err != nil && !errors.Is(err, intake.ErrMustWait) && ctx.Err() == nil {
			s.server.metrics.badFrames.Inc()
			return fmt.Errorf("read batch of events: %w", err)
		}
	case wire.TypeReceipt:
		if err := s.holdUp(ctx, p); err != nil {
			return err
		}
		s.onReceipt(payload)
		s.meter.Spend()
	default:
		s.server.metrics.badFrames.Inc()
		s.warn("message of unknown type", "", "type", resource.Short(typ))
	}
	if err != nil {
		return err
	}
	return ctx.Err()
}

func (s *session) onEvent(ctx context.Context, payload []byte, src intake.Source) error {
	if s.encoding == wire.JSON {
		var ev resource.Event
		if err := wire.Decode(payload, wire.JSON, &ev); err != nil {
			return intake.Undecodable("event", err)
		}
		payload = ev.AppendProto(nil)
	}
	return s.server.opts.Intake.Event(ctx, payload, src)
}

func (s *session) onKeepalive(ctx context.Context, payload []byte, enc wire.Encoding, src intake.Source) error {
	var ev resource.Event
	if err := wire.Decode(payload, enc, &ev); err != nil {
		return intake.Undecodable("keepalive", err)
	}
	err := s.server.opts.Intake.Keepalive(ctx, &ev, src, s.keepalives == 0 || ev.Sequence == 1)
	if !errors.Is(err, intake.ErrMustWait) {
		s.keepalives++
	}
	if err == nil && s.shared.Load() {
		s.server.duplicates.heard(s)
	}
	return err
}

// onReceipt takes what a lapwing agent says about a turn.
func (s *session) onReceipt(payload []byte) {
	r, err := wire.DecodeReceipt(payload)
	if err != nil || !s.lapwing {
		s.server.metrics.badFrames.Inc()
		s.warn("receipt of an agent was not taken", "", "err", err, "lapwing", s.lapwing)
		return
	}
	s.server.opts.Receipt(resource.Name{Namespace: s.namespace, Name: s.name}, &r)
}

// onEvents takes a lapwing agent's batch. Each event is acknowledged when it is durable. An event that will never be
// taken is acknowledged too, with the reason, or the agent would send it for ever.
func (s *session) onEvents(ctx context.Context, payload []byte, p patience) error {
	err := s.takeEvents(ctx, payload, p)
	if !errors.Is(err, intake.ErrMustWait) {
		s.taken = 0
	}
	return err
}

// takeEvents takes those events of a batch that were not taken before, and counts them in taken.
func (s *session) takeEvents(ctx context.Context, payload []byte, p patience) error {
	asked := false
	events := wire.ReadEvents(payload)
	for n := 1; events.Next(); n++ {
		if n <= s.taken {
			continue
		}
		if p == brief && n > maxBriefEvents {
			return intake.ErrMustWait
		}
		if !events.Item.Keepalive && (p != patient || !asked) {
			asked = true
			if err := s.holdUp(ctx, p); err != nil {
				return err
			}
		}
		if err := s.onItem(ctx, events.Seq, events.Item, p); err != nil {
			return err
		}
		s.taken = n
	}
	return events.Err()
}

func (s *session) onItem(ctx context.Context, seq uint64, it wire.Item, p patience) error {
	s.mu.Lock()
	s.acks.expect(seq, len(it.Event))
	s.mu.Unlock()
	src := intake.Source{
		Namespace: s.namespace, Agent: s.name, Epoch: s.epoch, Sequence: seq, Acker: s, Token: seq, Prompt: p != patient,
	}
	var err error
	if it.Keepalive {
		err = s.onKeepalive(ctx, it.Event, wire.Protobuf, src)
	} else {
		err = s.server.opts.Intake.Event(ctx, it.Event, src)
		if !errors.Is(err, intake.ErrMustWait) {
			s.meter.Spend()
		}
	}
	_ = s.refuse(err)
	if why := intake.Rejection(err); why != "" {
		s.mu.Lock()
		s.add(&message{frame: wire.AppendRefused(nil, seq, why)}, time.Now().UnixMilli()) // leaves with the acknowledgement
		s.mu.Unlock()
		s.Logged(seq, 0, 0, nil)
		return nil
	}
	return err // ends the session, unless it must wait; the agent will send the event again
}

// refuse counts and logs an event that was not taken. A Sensu agent gets no answer: its protocol has none. It returns
// the error of an event that must wait.
func (s *session) refuse(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, intake.ErrMustWait):
		return err
	}
	cause, text := s.server.opts.Intake.NotTaken(err)
	s.warn("event was not taken", cause, "err", text)
	return nil
}
