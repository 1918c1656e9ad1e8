package session

import (
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

const (
	maxKeptFrames = 4       // a larger slice is dropped: most of the time a session is idle
	maxOutBytes   = 4 << 20 // bytes queued for one agent
)

// message is a frame for agents. All sessions that send it share it, unless it has a scratch.
type message struct {
	frame []byte
	check string // the requested check; empty if it is no request
	proxy string // the entity that the check is run for, if it is not the agent's own
	lost  func() // called if the message does not leave; nil for most
	// scratch is the frame's memory, which other frames use once this one is written. Only one session may send it then.
	scratch *[]byte
}

// outgoing is what waits to be written to one agent, beside its schedule, pace and acknowledgements.
type outgoing struct {
	frames  []*message
	bytes   int
	since   int64 // when the oldest frame was queued, Unix milliseconds
	request int64 // when the oldest request was to leave, Unix milliseconds; 0 if there is none
	turn    int64 // the pacer's slot in which it will be written; 0 if it is in none
	writing bool  // a goroutine writes, and takes along what is queued in the meantime
	again   bool  // something urgent was queued in the meantime
	hold    hold
}

// add queues a frame. If the queue is full the frame is dropped and counted: an agent that does not read must not
// delay the others. The caller holds mu.
func (s *session) add(m *message, now int64) bool {
	if s.closed {
		return false
	}
	o := &s.out
	if len(o.frames) >= s.server.opts.SendQueue || o.bytes > maxOutBytes {
		s.server.metrics.dropped.Inc()
		return false
	}
	if len(o.frames) == 0 {
		o.since = now
	}
	o.frames = append(o.frames, m)
	o.bytes += len(m.frame)
	return true
}

// send queues a frame and writes it with all queued frames, without waiting for the agent.
func (s *session) send(frame []byte) {
	s.mu.Lock()
	added := s.add(&message{frame: frame}, time.Now().UnixMilli())
	s.mu.Unlock()
	if added {
		b := batches.Get().(*batch)
		s.flush(b)
		batches.Put(b)
	}
}

// request queues the request of a tick. It leaves at the agent's moment after the tick. A tick long past leaves at the
// agent's next moment, so that the pacer's work after a pause is spread. number is the request's: a request through
// several subscriptions is queued once. It may replace one that was held back.
func (s *session) request(m *message, number uint64, tick, now int64) (queued, replaced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number > 0 {
		if s.published == number {
			return false, false
		}
		s.published = number
	}
	s.out.hold.due++
	merged := s.out.merge(m)
	switch {
	case merged:
		s.server.metrics.skipped.Inc()
	case !s.add(m, now):
		return false, false
	}
	due := s.server.pacer.moment(tick, s.offset)
	if s.out.request == 0 {
		s.out.request = due
	}
	if now-due > longPast {
		s.server.pacer.turn(s)
	} else {
		s.server.pacer.at(s, due, now)
	}
	return true, merged
}

// longPast is how many milliseconds late a tick must be for its request to wait for the agent's next moment.
const longPast = 1000

// batch is what one system call writes to one agent. It is reused.
type batch struct {
	frames    [][]byte
	scratches []*[]byte // with the memory of some frames
	entries   []wire.ScheduleEntry
	ack       []byte
}

// written ends the use of the frames.
func (b *batch) written() {
	clear(b.frames)
	for i, s := range b.scratches {
		scratches.Put(s)
		b.scratches[i] = nil
	}
	b.scratches = b.scratches[:0]
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// flush writes the queue without waiting: a goroutine writes what the socket does not take at once. If another
// goroutine is writing, that one writes the queue too.
func (s *session) flush(b *batch) {
	h := s.holdBack()
	s.lockPlan(b)
	s.out.turn = 0
	if s.out.writing {
		s.out.again = true
		s.mu.Unlock()
		return
	}
	if !s.take(b, h) {
		s.mu.Unlock()
		return
	}
	s.out.writing = true
	s.server.writing.Add(1)
	s.mu.Unlock()

	rest, err := s.conn.TryWriteBatch(b.frames)
	b.written()
	if len(rest) > 0 {
		s.server.metrics.slowWrites.Inc()
		go s.finish(rest)
		return
	}
	if err != nil {
		s.broken(err)
	}
	s.mu.Lock()
	s.out.writing = false
	if s.out.again && !s.closed {
		s.server.pacer.now(s)
	}
	s.out.again = false
	s.mu.Unlock()
	s.server.writing.Done()
}

// finish writes what the socket did not take at once, and all that was queued since.
func (s *session) finish(rest []byte) {
	defer s.server.writing.Done()
	b := batches.Get().(*batch)
	defer batches.Put(b)
	for {
		err := s.conn.FinishWrite(rest)
		if err != nil {
			s.broken(err)
		}
		h := s.holdBack()
		s.lockPlan(b)
		if s.out.hold.some {
			h = heldAll // until the agent's turn
		}
		if err != nil || !s.take(b, h) {
			s.out.writing, s.out.again = false, false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		rest, err = s.conn.TryWriteBatch(b.frames)
		b.written()
		if err != nil {
			s.broken(err)
		}
	}
}

// broken records that a write has failed. It closes the connection, so reading ends and with it the session.
func (s *session) broken(err error) {
	s.logger().Debug("write to agent failed", "err", err)
}

// take moves the queue into the batch, except requests that are held back, and reports whether there is anything to
// write. The caller holds mu, from lockPlan.
func (s *session) take(b *batch, h held) bool {
	o := &s.out
	b.frames = b.frames[:0]
	if s.closed {
		s.lose()
		return false
	}
	requests := s.takeFrames(b, h)
	if requests > 0 && o.request != 0 {
		s.server.metrics.lateness.Observe(float64(max(0, time.Now().UnixMilli()-o.request)) / 1000)
		o.request = 0
	}
	if s.lapwing {
		s.takePlan(b)
		if s.follows {
			s.takeMembers(b)
		}
		if pace := s.pace(); pace != s.told {
			s.told = pace
			b.frames = append(b.frames, wire.AppendPace(nil, pace, slowBatches))
		}
		if seq, ok := s.acks.take(); ok {
			b.ack = wire.AppendAck(b.ack[:0], seq)
			b.frames = append(b.frames, b.ack)
		}
	}
	return len(b.frames) > 0
}

// lose drops what waits to be written. The caller holds mu.
func (s *session) lose() {
	o := &s.out
	for _, m := range o.frames {
		if m.lost != nil {
			m.lost()
		}
	}
	o.frames, o.bytes, o.request = nil, 0, 0
}

// close ends the session as Sensu does: 1001, "bye".
func (s *session) close() {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.server.registry.goes(s)
	s.mu.Unlock()
	if !closed {
		_ = s.conn.Close(wire.CloseGoingAway, "bye")
	}
}
