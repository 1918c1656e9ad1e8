package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// session is one agent's connection.
type session struct {
	server    *Server
	conn      *wire.Conn
	log       *slog.Logger
	namespace string
	name      string
	encoding  wire.Encoding
	lapwing   bool   // speaks batches and acknowledgements
	epoch     uint64 // of a lapwing agent

	// Of the read loop alone.
	names      interner
	scratch    []byte
	keepalives int

	mu            sync.Mutex // guards the fields below
	subscriptions []string
	configured    bool // the agent's entity is known: it may get check requests
	out           [][]byte
	outBytes      int
	writing       bool // a goroutine is writing out
	closed        bool
	acks          acks
}

// run reads the agent's messages until the connection ends.
func (s *session) run(ctx context.Context) error {
	var buf []byte
	for {
		msg, err := s.conn.Read(buf)
		if err != nil {
			return err
		}
		if err := s.onMessage(ctx, msg); err != nil {
			return err
		}
		if cap(msg) <= maxKeptBuffer {
			buf = msg
		}
	}
}

// onMessage is where an event enters: its frame is split, its payload becomes a record of the log. An error ends the
// session; an event that cannot be taken does not.
func (s *session) onMessage(ctx context.Context, msg []byte) error {
	s.server.metrics.received.Add(float64(len(msg)))
	typ, payload, err := wire.Split(msg)
	if err != nil {
		s.server.metrics.badFrames.Inc()
		return fmt.Errorf("split message of %d bytes: %w", len(msg), err)
	}
	switch typ {
	case wire.TypeEvent:
		s.settle(s.onEvent(ctx, payload, source{namespace: s.namespace, names: &s.names}))
	case wire.TypeKeepalive:
		s.settle(s.onKeepalive(ctx, payload, s.encoding, source{namespace: s.namespace, names: &s.names}))
	case wire.TypeEvents:
		if !s.lapwing {
			s.server.metrics.badFrames.Inc()
			s.log.Warn("batch of events without having agreed on it")
			return nil
		}
		if err := s.onEvents(ctx, payload); err != nil {
			s.server.metrics.badFrames.Inc()
			return fmt.Errorf("read batch of events: %w", err)
		}
	default:
		s.server.metrics.badFrames.Inc()
		s.log.Warn("message of unknown type", "type", typ)
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
	var err error
	s.scratch, err = s.server.opts.Intake.agentEvent(ctx, payload, src, s.scratch)
	if cap(s.scratch) > maxKeptBuffer {
		s.scratch = nil
	}
	return err
}

func (s *session) onKeepalive(ctx context.Context, payload []byte, enc wire.Encoding, src source) error {
	var ev resource.Event
	if err := wire.Decode(payload, enc, &ev); err != nil {
		return reject("undecodable", "decode keepalive: %w", err)
	}
	if ev.Entity != nil && ev.Entity.Metadata.Name != s.name {
		return reject("invalid", "keepalive of %q in the session of %q", ev.Entity.Metadata.Name, s.name)
	}
	s.keepalives++
	return s.server.opts.Intake.keepalive(ctx, &ev, src, s.keepalives == 1)
}

// onEvents takes a lapwing agent's batch. Each event is acknowledged when it is durable; one that will never be taken is
// acknowledged at once, or the agent would send it for ever.
func (s *session) onEvents(ctx context.Context, payload []byte) error {
	return wire.DecodeEvents(payload, func(seq uint64, it wire.Item) error {
		s.mu.Lock()
		s.acks.expect(seq)
		s.mu.Unlock()
		src := source{namespace: s.namespace, epoch: s.epoch, sequence: seq, acker: s, token: seq, names: &s.names}
		var err error
		if it.Keepalive {
			err = s.onKeepalive(ctx, it.Event, wire.Protobuf, src)
		} else {
			s.scratch, err = s.server.opts.Intake.agentEvent(ctx, it.Event, src, s.scratch)
		}
		s.settle(err)
		var refused *rejection
		if errors.As(err, &refused) {
			s.Logged(seq, 0, 0, nil)
			return nil
		}
		return err // ends the session; the agent will send it again
	})
}

// settle counts and logs an event that was not taken. The sender is not told: the protocol has no word for it.
func (s *session) settle(err error) {
	if err == nil {
		return
	}
	s.server.opts.Intake.count(err)
	s.log.Warn("event was not taken", "err", err)
}

// Logged is the log's word that an event is durable.
func (s *session) Logged(token uint64, _ int, _ uint64, err error) {
	if err != nil {
		return // not acknowledged: the agent keeps it and sends it again
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.acks.done(token) {
		s.startWriter()
	}
}

// send queues a frame for the agent. When the queue is full the frame is dropped and counted: one agent that does not
// read must not hold up the schedule of all.
func (s *session) send(frame []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if len(s.out) >= s.server.opts.SendQueue || s.outBytes > maxOutBytes {
		s.server.metrics.dropped.Inc()
		return
	}
	s.out = append(s.out, frame)
	s.outBytes += len(frame)
	s.startWriter()
}

// startWriter starts the goroutine that writes what is queued, unless it runs. An idle session has none. The caller holds mu.
func (s *session) startWriter() {
	if !s.writing && !s.closed {
		s.writing = true
		go s.write()
	}
}

func (s *session) write() {
	var frames [][]byte
	for {
		s.mu.Lock()
		frames = append(frames[:0], s.out...)
		clear(s.out)
		s.out, s.outBytes = s.out[:0], 0
		if seq, ok := s.acks.take(); ok {
			frames = append(frames, wire.AppendAck(nil, seq))
		}
		if len(frames) == 0 || s.closed {
			s.writing = false
			if cap(s.out) > maxKeptFrames {
				s.out = nil
			}
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if err := s.conn.WriteBatch(frames); err != nil {
			s.log.Debug("write to agent failed", "err", err)
			s.close()
		}
	}
}

// close ends the session as Sensu does: 1001, "bye".
func (s *session) close() {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if !closed {
		_ = s.conn.Close(wire.CloseGoingAway, "bye")
	}
}

// begin tells the agent its stored configuration, or that there is none, and subscribes the session accordingly.
func (s *session) begin(ctx context.Context) error {
	cfg, ok := config.Get(s.server.opts.Config.Snapshot(), config.Entities, s.namespace, s.name)
	if ok && cfg.EntityClass != resource.EntityAgentClass {
		var err error
		cfg, err = config.Update(ctx, s.server.opts.Config, config.Entities, s.namespace, s.name, func(c *resource.EntityConfig) (*resource.EntityConfig, error) {
			c.EntityClass = resource.EntityAgentClass
			return c, nil
		})
		if err != nil {
			return fmt.Errorf("make entity %s an agent's: %w", s.name, err)
		}
	}
	if ok {
		s.configure(cfg)
		return nil
	}
	unknown := &resource.EntityConfig{Metadata: resource.ObjectMeta{Name: unknownEntity, Namespace: s.namespace}, EntityClass: resource.EntityAgentClass}
	frame, err := wire.Append(nil, wire.TypeEntityConfig, s.encoding, unknown)
	if err != nil {
		return fmt.Errorf("encode entity config: %w", err)
	}
	s.mu.Lock()
	late := s.configured // a registration has overtaken this
	s.mu.Unlock()
	if !late {
		s.send(frame)
	}
	return nil
}

// unknownEntity is the name in the entity_config that says that an agent is not registered yet.
const unknownEntity = "not found"

// configure sends the agent its configuration and subscribes it to what stands there.
func (s *session) configure(cfg *resource.EntityConfig) {
	sent := *cfg
	if managed(cfg) {
		labels := map[string]string{}
		for k, v := range cfg.Metadata.Labels {
			if k != managedByLabel {
				labels[k] = v
			}
		}
		sent.Metadata.Labels = labels
	}
	frame, err := wire.Append(nil, wire.TypeEntityConfig, s.encoding, &sent)
	if err != nil {
		s.log.Error("entity config cannot be encoded", "err", err)
		return
	}
	s.mu.Lock()
	old := s.subscriptions
	s.subscriptions = resource.AddEntitySubscription(cfg.Subscriptions, s.name)
	s.configured = true
	fresh := s.subscriptions
	closed := s.closed
	s.mu.Unlock()
	if !closed {
		s.server.registry.resubscribe(s, old, fresh)
		s.send(frame)
	}
}

// acks tracks which of a lapwing agent's events are durable. Events of one agent may stand in several partitions, whose
// commits end in any order; the agent is told the highest number up to which all that it sent are durable. Numbers grow, but
// not by one where the agent had to drop an event.
type acks struct {
	sent    []sentEvent // in the order of arrival, from the first that is not durable
	durable uint64      // all up to it are
	pending bool        // there is something to tell
}

type sentEvent struct {
	seq  uint64
	done bool
}

// expect notes that an event has arrived.
func (a *acks) expect(seq uint64) {
	if n := len(a.sent); n > 0 && seq <= a.sent[n-1].seq {
		return // not of an agent that keeps to the protocol
	}
	a.sent = append(a.sent, sentEvent{seq: seq})
}

// done notes that an event is durable and says whether the agent should be told.
func (a *acks) done(seq uint64) bool {
	i, ok := slices.BinarySearchFunc(a.sent, seq, func(e sentEvent, seq uint64) int { return cmp.Compare(e.seq, seq) })
	if !ok {
		return false
	}
	a.sent[i].done = true
	if i > 0 {
		return false
	}
	n := 0
	for n < len(a.sent) && a.sent[n].done {
		n++
	}
	a.durable, a.pending = a.sent[n-1].seq, true
	a.sent = slices.Delete(a.sent, 0, n)
	return true
}

// take returns the number to tell, if there is one that was not told.
func (a *acks) take() (uint64, bool) {
	told := !a.pending
	a.pending = false
	return a.durable, !told
}
