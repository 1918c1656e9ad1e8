package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
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
	lapwing   bool  // speaks batches, acknowledgements, schedules and paces
	quiet     uint8 // looks of watchIdle that heard nothing; only for it

	// Of the reader alone, which is a goroutine or the poller.
	keepalives int
	begun      bool     // the agent was told its configuration
	pending    *pending // what the poller has left to a goroutine
	taken      int      // events of the message under way

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

// pending is what a goroutine goes on with after the poller: a message that has to wait, or the error that ends the session.
type pending struct {
	msg []byte
	err error
}

// errMustWait is returned for a message that takes longer than the poller may spend: nothing of it was taken in that is taken
// in again, but for the events of a batch that session.taken counts.
var errMustWait = errors.New("must wait")

// run reads the agent's messages until the connection ends. Where there is a poller, it is only until nothing more has arrived:
// then the session is parked, and has no goroutine.
func (s *session) run(ctx context.Context) (parked bool, err error) {
	if left := s.pending; left != nil {
		s.pending = nil
		if left.err != nil {
			return false, left.err
		}
		if err := s.onMessage(ctx, left.msg, false); err != nil {
			return false, err
		}
	}
	for !s.conn.Park(s) {
		msg, ok, err := s.conn.Next()
		if err != nil {
			return false, err
		}
		if !ok {
			continue // a ping, say
		}
		s.server.metrics.received.Add(float64(len(msg)))
		if err := s.onMessage(ctx, msg, false); err != nil {
			return false, err
		}
	}
	return true, nil
}

const (
	// maxTurn is how long the poller reads from one agent before it leaves it to a goroutine, so that others have their turn.
	maxTurn = time.Millisecond
	// maxPromptEvents is how many events of a batch it takes in.
	maxPromptEvents = 64
)

// Readable is the poller's call when something has arrived.
func (s *session) Readable() (keep bool) {
	for begin := time.Now(); time.Since(begin) < maxTurn; {
		msg, ok, wait := s.conn.TryRead()
		if !ok {
			return !wait
		}
		s.server.metrics.received.Add(float64(len(msg)))
		if err := s.onMessage(s.server.ctx, msg, true); err != nil {
			s.pending = &pending{err: err}
			if errors.Is(err, errMustWait) {
				*s.pending = pending{msg: bytes.Clone(msg)}
			}
			return false
		}
	}
	return false
}

// Resume is the poller's call when it is a goroutine's turn.
func (s *session) Resume() { go s.server.runSession(s) }

// onMessage is where an event enters: its frame is split, its payload becomes a record of the log. An error ends the
// session; an event that cannot be taken does not. If it has to be prompt it may fail with errMustWait.
func (s *session) onMessage(ctx context.Context, msg []byte, prompt bool) error {
	typ, payload, err := wire.Split(msg)
	if err != nil {
		s.server.metrics.badFrames.Inc()
		return fmt.Errorf("split message of %d bytes: %w", len(msg), err)
	}
	src := source{namespace: s.namespace, agent: s.name, prompt: prompt}
	switch typ {
	case wire.TypeEvent:
		err = s.settle(s.onEvent(ctx, payload, src))
	case wire.TypeKeepalive:
		err = s.settle(s.onKeepalive(ctx, payload, s.encoding, src))
	case wire.TypeEvents:
		if !s.lapwing {
			s.server.metrics.badFrames.Inc()
			s.logger().Warn("batch of events without having agreed on it")
			return nil
		}
		if err = s.onEvents(ctx, payload, prompt); err != nil && !errors.Is(err, errMustWait) {
			s.server.metrics.badFrames.Inc()
			return fmt.Errorf("read batch of events: %w", err)
		}
	default:
		s.server.metrics.badFrames.Inc()
		s.logger().Warn("message of unknown type", "type", typ)
	}
	if err != nil {
		return err
	}
	return ctx.Err()
}

func (s *session) onEvent(ctx context.Context, payload []byte, src source) error {
	if s.encoding == wire.JSON {
		var ev resource.Event
		if err := wire.Decode(payload, wire.JSON, &ev); err != nil {
			return reject("undecodable", "decode event: %w", err)
		}
		payload = ev.AppendProto(nil)
	}
	return s.server.opts.Intake.agentEvent(ctx, payload, src)
}

func (s *session) onKeepalive(ctx context.Context, payload []byte, enc wire.Encoding, src source) error {
	var ev resource.Event
	if err := wire.Decode(payload, enc, &ev); err != nil {
		return reject("undecodable", "decode keepalive: %w", err)
	}
	if ev.Entity != nil && ev.Entity.Metadata.Name != s.name {
		return reject("invalid", "keepalive of %q in the session of %q", ev.Entity.Metadata.Name, s.name)
	}
	err := s.server.opts.Intake.keepalive(ctx, &ev, src, s.keepalives == 0 || ev.Sequence == 1)
	if !errors.Is(err, errMustWait) {
		s.keepalives++
	}
	return err
}

// onEvents takes a lapwing agent's batch. Each event is acknowledged when it is durable; one that will never be taken is
// acknowledged without, or the agent would send it for ever.
func (s *session) onEvents(ctx context.Context, payload []byte, prompt bool) error {
	n, first := 0, s.taken
	err := wire.DecodeEvents(payload, func(seq uint64, it wire.Item) error {
		if n++; n <= first {
			return nil
		}
		if prompt && n > maxPromptEvents {
			return errMustWait
		}
		err := s.onItem(ctx, seq, it, prompt)
		if err == nil {
			s.taken = n
		}
		return err
	})
	if !errors.Is(err, errMustWait) {
		s.taken = 0
	}
	return err
}

func (s *session) onItem(ctx context.Context, seq uint64, it wire.Item, prompt bool) error {
	s.mu.Lock()
	s.acks.expect(seq, len(it.Event))
	s.mu.Unlock()
	src := source{namespace: s.namespace, agent: s.name, epoch: s.epoch, sequence: seq, acker: s, token: seq, prompt: prompt}
	var err error
	if it.Keepalive {
		err = s.onKeepalive(ctx, it.Event, wire.Protobuf, src)
	} else {
		err = s.server.opts.Intake.agentEvent(ctx, it.Event, src)
	}
	_ = s.settle(err)
	var refused *rejection
	if errors.As(err, &refused) {
		s.Logged(seq, 0, 0, nil)
		return nil
	}
	return err // ends the session, unless it must wait; the agent will send the event again
}

// settle counts and logs an event that was not taken. The sender is not told: the protocol has no word for it. What must wait
// is not settled, and returned.
func (s *session) settle(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errMustWait):
		return err
	}
	s.server.opts.Intake.count(err)
	s.logger().Warn("event was not taken", "err", err)
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

// begin tells the agent its stored configuration, or that there is none, and subscribes the session accordingly.
func (s *session) begin(ctx context.Context) error {
	cfg, ok := s.stored()
	if ok && cfg.EntityClass != resource.EntityAgentClass {
		_, err := config.Update(ctx, s.server.opts.Config, config.Entities, s.namespace, s.name, func(c *resource.EntityConfig) (*resource.EntityConfig, error) {
			c.EntityClass = resource.EntityAgentClass
			return c, nil
		})
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
		cfg = &resource.EntityConfig{Metadata: resource.ObjectMeta{Name: unknownEntity, Namespace: s.namespace}, EntityClass: resource.EntityAgentClass}
	}
	frame, err := wire.Append(nil, wire.TypeEntityConfig, s.encoding, forAgent(cfg))
	if err != nil {
		return fmt.Errorf("encode entity config of %s: %w", s.name, err)
	}
	if ok {
		s.server.registry.subscribe(s, resource.AddEntitySubscription(cfg.Subscriptions, s.name))
	}
	s.send(frame)
	return nil
}

// forAgent is an entity's configuration as its agent gets it.
func forAgent(cfg *resource.EntityConfig) *resource.EntityConfig {
	if !managed(cfg) {
		return cfg
	}
	sent := *cfg
	sent.Metadata.Labels = map[string]string{}
	for k, v := range cfg.Metadata.Labels {
		if k != managedByLabel {
			sent.Metadata.Labels[k] = v
		}
	}
	return &sent
}
