package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/intake"
	"github.com/lapwing-monitoring/lapwing/internal/connlimit"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// session is one agent's connection. There are tens of thousands, nearly all of them idle: what it keeps is small.
type session struct {
	server    *Server
	conn      *wire.Conn
	slot      *connlimit.Slot // of the connection
	namespace string
	name      string
	epoch     uint64 // of a lapwing agent
	offset    int64  // what is not urgent leaves so many milliseconds after each spread began
	encoding  wire.Encoding
	lapwing   bool          // speaks batches, acknowledgements, schedules and paces
	meter     *intake.Meter // nil if events a second are not bounded
	joined    int64         // when it began, Unix milliseconds
	shared    atomic.Bool   // another session of the same name began beside it
	busy      atomic.Bool   // its goroutine has a message that is not dealt with
	quiet     uint8         // looks of watchIdle that heard nothing; only for it

	// Of the reader alone, which is a goroutine or the poller.
	keepalives int
	begun      bool     // the agent was told its configuration
	lane       uint16   // the log's partition that its events go to, or the last one that had no room for one
	pending    *pending // what the poller has left to a goroutine
	taken      int      // events of the message under way
	heldUp     bool     // the quotas have held up the message under way

	configuring sync.Mutex // held while the agent's configuration is read and queued; taken before all other locks

	mu            sync.Mutex // guards the fields below; see registry for the order of locks
	subscriptions []string
	configured    bool // the agent's entity is known: it may get checks
	closed        bool
	parting       bool // was asked to leave
	out           outgoing
	plan          plan
	told          wire.Pace // the pace the agent was told
	acks          acks
	published     uint64 // the last request that reached it
}

// logger is made when there is something to say: kept, it would be a good part of an idle session.
func (s *session) logger() *slog.Logger {
	return s.server.log.With("agent", s.name, "namespace", s.namespace)
}

// warn logs a line about what the agent sent, at most one a minute for each agent and detail.
func (s *session) warn(message, detail string, attrs ...any) {
	s.server.rare.Warn(message, s.namespace+"/"+s.name+"/"+detail, append(attrs, "agent", s.name, "namespace", s.namespace)...)
}

// pending is what a goroutine goes on with after the poller: a message that has to wait, or the error that ends the session.
type pending struct {
	msg  []byte
	full bool // the log had no room for the message
	err  error
}

// run reads the agent's messages until the connection ends. Where there is a poller, it is only until nothing more has arrived:
// then the session is parked, and has no goroutine.
func (s *session) run(ctx context.Context) (parked bool, err error) {
	if left := s.pending; left != nil {
		s.pending = nil
		if left.err != nil {
			return false, left.err
		}
		if left.full && !s.server.opts.Log.Room(int(s.lane)) {
			// The connection was closed meanwhile, or it would still be held. A message for which there is no room is not kept longer.
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

// next reads the next frame. A long message of events stays in the socket while the quotas hold it up, because there it takes no
// memory of the backend.
func (s *session) next(ctx context.Context) (msg []byte, ok bool, err error) {
	if s.meter != nil {
		start, long, err := s.conn.Await()
		if err != nil {
			return nil, false, err
		}
		if long && !isKeepalive(start) {
			s.busy.Store(true)
			err := s.holdUp(ctx, patient)
			s.busy.Store(false)
			if err != nil {
				return nil, false, err
			}
		}
	}
	return s.conn.Next()
}

// wait is onMessage on the session's goroutine for a message that has to wait. The agent is known to be behind until it returns.
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
	// maxTurn is how long the poller reads from one agent before all others have had their turn, and maxTurnBytes how much: while the
	// log takes a bounded number of bytes a second, those are what agents share.
	maxTurn      = time.Millisecond
	maxTurnBytes = 32 << 10
	// maxBriefEvents is how many events of a batch it takes in.
	maxBriefEvents = 64
)

// patience is how long a message may take.
type patience uint8

const (
	brief   patience = iota // no waiting, and not much work: the poller has other agents to read from
	prompt                  // no waiting
	patient                 // waits where it has to
)

// read passes on what has arrived from the agents of one poller, until that is closed. It is the goroutine on which nearly all events
// enter, and waits for nothing else: what may take longer gets a goroutine of its session.
func (s *Server) read(p *wire.Poller[*session]) {
	for {
		one, turn := p.Next()
		switch turn {
		case wire.TurnEnd:
			return
		case wire.TurnResume:
			go s.runSession(one)
		case wire.TurnRead:
			if !p.Return(one.readable(), int(one.lane)) {
				go s.runSession(one)
			}
		}
	}
}

// readable reads what has arrived, for a bounded time. What the log has no room for stays in the socket: memory is only kept of
// messages that were under way when it became full.
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

// mayRead says whether the next message is to be read now: if the log has room for events, or it is none.
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

// isKeepalive reports whether a message is a keepalive by itself, from how it starts.
func isKeepalive(start []byte) bool { return bytes.HasPrefix(start, []byte(wire.TypeKeepalive+"\n")) }

// putOff keeps a message that could not be taken in at once, or the error that ends the session.
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

// keep copies a message that has to wait: it lies in memory that the poller uses again.
func (s *session) keep(msg []byte, full bool) {
	s.pending = &pending{msg: bytes.Clone(msg), full: full}
	s.conn.Keep(len(msg))
}

// onMessage is where an event enters: its frame is split, its payload becomes a record of the log. An error ends the
// session; an event that cannot be taken does not. Unless it is patient it may fail with intake.ErrMustWait.
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
		if err = s.settle(s.onEvent(ctx, payload, src)); err == nil {
			s.meter.Spend()
		}
	case wire.TypeKeepalive:
		err = s.settle(s.onKeepalive(ctx, payload, s.encoding, src))
	case wire.TypeEvents:
		if !s.lapwing {
			s.server.metrics.badFrames.Inc()
			s.warn("batch of events without having agreed on it", "")
			return nil
		}
		if err = s.onEvents(ctx, payload, p); err != nil && !errors.Is(err, intake.ErrMustWait) && ctx.Err() == nil {
			s.server.metrics.badFrames.Inc()
			return fmt.Errorf("read batch of events: %w", err)
		}
	default:
		s.server.metrics.badFrames.Inc()
		s.warn("message of unknown type", "", "type", resource.Short(typ))
	}
	if err != nil {
		return err
	}
	return ctx.Err()
}

// holdUp waits until the quotas allow more events of the agent. Nothing is lost meanwhile: a lapwing agent keeps what is not
// acknowledged, and TCP holds up others. It is not called for keepalives.
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

// onEvents takes a lapwing agent's batch. Each event is acknowledged when it is durable. One that will never be taken is
// acknowledged too, or the agent would send it for ever, and the agent is told the reason.
func (s *session) onEvents(ctx context.Context, payload []byte, p patience) error {
	err := s.takeEvents(ctx, payload, p)
	if !errors.Is(err, intake.ErrMustWait) {
		s.taken = 0
	}
	return err
}

// takeEvents takes those events of a batch that it has not taken before. It counts them in taken.
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
	_ = s.settle(err)
	if why := intake.Rejection(err); why != "" {
		s.mu.Lock()
		s.add(&message{frame: wire.AppendRefused(nil, seq, why)}, time.Now().UnixMilli()) // leaves with the acknowledgement
		s.mu.Unlock()
		s.Logged(seq, 0, 0, nil)
		return nil
	}
	return err // ends the session, unless it must wait; the agent will send the event again
}

// settle counts and logs an event that was not taken. A Sensu agent is not told: its protocol has no word for it. What must wait
// is not settled, and returned.
func (s *session) settle(err error) error {
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

// maxUntoldBytes is how much an agent may have to hold before it is told at once what is durable of it.
const maxUntoldBytes = 256 << 10

// Logged is the log's word that an event is durable. The agent is told in its turn, for all of a second's events at once.
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

// begin tells the agent its stored configuration, or that there is none, and subscribes the session accordingly. A proxy entity that a
// user has defined becomes the agent's as it is. One that events have made is left to the first keepalive, which replaces it.
func (s *session) begin(ctx context.Context) error {
	cfg, ok := s.stored()
	if ok && cfg.EntityClass != resource.EntityAgentClass && cfg.Metadata.CreatedBy != "" {
		makeAgent := func(c *resource.EntityConfig) (*resource.EntityConfig, error) {
			c.EntityClass = resource.EntityAgentClass
			return c, nil
		}
		_, err := config.Update(ctx, s.server.opts.Config, config.Entities, s.namespace, s.name, makeAgent)
		if err != nil {
			return fmt.Errorf("make entity %s an agent's: %w", s.name, err)
		}
	}
	return s.configure()
}

// unknownEntity is the name in the entity_config that says that an agent is not registered yet.
const unknownEntity = "not found"

func (s *session) stored() (*resource.EntityConfig, bool) {
	return config.Get(s.server.opts.Config.Snapshot(), config.Entities, s.namespace, s.name)
}

// configure sends the agent its configuration and subscribes it to what stands there. Whoever calls it, the newest
// configuration is the last that the agent gets.
func (s *session) configure() error {
	s.configuring.Lock()
	defer s.configuring.Unlock()
	cfg, ok := s.stored()
	if !ok {
		cfg = &resource.EntityConfig{
			Metadata: resource.ObjectMeta{Name: unknownEntity, Namespace: s.namespace}, EntityClass: resource.EntityAgentClass,
		}
	}
	frame, err := wire.Append(nil, wire.TypeEntityConfig, s.encoding, forAgent(cfg))
	if err != nil {
		return fmt.Errorf("encode entity config of %s: %w", s.name, err)
	}
	if ok {
		own := s.server.opts.Intake.OwnSubscriptions(s.namespace, s.name, cfg.Subscriptions)
		s.server.registry.subscribe(s, resource.AddEntitySubscription(own, s.name))
	}
	s.send(frame)
	return nil
}

// forAgent is an entity's configuration as its agent gets it.
func forAgent(cfg *resource.EntityConfig) *resource.EntityConfig {
	if !intake.Managed(cfg) {
		return cfg
	}
	sent := *cfg
	sent.Metadata.Labels = map[string]string{}
	for k, v := range cfg.Metadata.Labels {
		if k != intake.ManagedByLabel {
			sent.Metadata.Labels[k] = v
		}
	}
	return &sent
}
