package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

const (
	maxBatchEvents = 512
	maxBatchBytes  = 256 << 10 // unless one event is larger, or the backend accepts less
	keepBatch      = 1 << 20   // a longer write buffer is not kept
	maxReceipts    = 512       // that wait while the backend does not read

	leaveGrace = time.Second // leaveGrace bounds a write in progress, and the last write, when the transport must end.
	// partGrace bounds how long an agent that moves to another backend waits for acknowledgements from this one. Events
	// without one by then are sent to the other backend too.
	partGrace = 5 * time.Second
)

// link is a Transport's one connection, from handshake to close. One goroutine writes, another reads.
type link struct {
	t          *Transport
	conn       *wire.Conn
	about      Connection
	configured chan struct{} // the backend has sent its definition of the agent
	readDone   chan error
	apart      chan struct{} // it is parting, and an acknowledgement arrived

	moving sync.WaitGroup // the transport's move

	// For the reader only.
	revision uint64 // of the newest schedule message
	known    bool   // the backend has just sent its definition of the agent
	moved    bool   // the backend has asked for a move

	// For the writer only.
	ripe    time.Time // when waiting events should leave, if the pace allows; zero if none waits
	left    time.Time // when the last batch left
	silence silence

	mu       sync.Mutex // guards the fields below
	pace     wire.Pace
	every    time.Duration // between batches, under wire.PaceSlow
	parts    bool          // no events are sent any more: see part
	receipts [][]byte      // messages that wait to be written
}

// errSessionOver ends a connection that has reached its maximum age.
var errSessionOver = errors.New("the session has lasted for long enough")

// errParted ends a connection in favour of another backend.
var errParted = errors.New("gone to another backend")

// violation is a message after which the agent cannot know its schedule any more. It ends the connection.
type violation struct{ cause error }

func (v *violation) Error() string { return v.cause.Error() }
func (v *violation) Unwrap() error { return v.cause }

// newLink begins a connection: all events without an acknowledgement will be sent again.
func newLink(t *Transport, conn *wire.Conn, about Connection) *link {
	t.outbox.rewind()
	t.greeted.Store(false)
	return &link{t: t, conn: conn, about: about, configured: make(chan struct{}, 1), readDone: make(chan error, 1), apart: make(chan struct{}, 1)}
}

// serve runs the connection until it fails or ctx ends. The error is a *lostError if the connection was ready.
func (l *link) serve(ctx context.Context) error {
	l.t.link.Store(l)
	defer l.t.link.Store(nil)
	bye := func() { _ = l.conn.Close(wire.CloseGoingAway, "bye") } // its error has no reader
	written := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-written:
		case <-time.After(leaveGrace):
			bye() // ends a write in progress too
		}
	})
	defer stop()
	// a failure makes Read fail too
	trust := func() { _ = l.conn.SetReadDeadline(time.Now().Add(l.t.opts.HeartbeatTimeout)) }
	l.conn.OnPong(trust)
	trust()
	read := make(chan struct{})
	go func() {
		defer close(read)
		l.readDone <- l.read(ctx)
	}()

	ready, err := l.write(ctx)
	close(written)
	bye()
	<-read
	l.setPace(wire.PaceGo, 0)
	if ctx.Err() != nil {
		return nil
	}
	select {
	case readErr := <-l.readDone:
		if _, closed := errors.AsType[*wire.CloseError](readErr); closed {
			err = readErr // the backend's reason says more than the write that failed
		}
	default:
	}
	l.giveUpRefused(err)
	if ready {
		return &lostError{err}
	}
	return err
}

// giveUpRefused prevents endless retries of what is too big for the backend: the next batches are smaller, and an event
// that is too big even alone is given up.
func (l *link) giveUpRefused(err error) {
	closed, ok := errors.AsType[*wire.CloseError](err)
	if !ok || closed.Code != wire.CloseTooBig || !l.about.Lapwing {
		return
	}
	if gone, ok := l.t.outbox.giveUpLargest(l.t.batchBytes); ok {
		l.t.metrics.dropped.Inc()
		l.t.metrics.buffered.Dec()
		l.t.rare.Error("event given up: too big for the backend", gone.check, "check", gone.check, "bytes", gone.size)
		return
	}
	l.t.batchBytes /= 2
	l.t.log.Warn("batch too big for the backend: the next ones are smaller", "bytes", l.t.batchBytes)
}

// write sends pings and events until the connection fails or ctx ends, and reports whether the connection became ready.
// Events are held back until the backend has sent its definition of the agent, or ConfigTimeout has passed.
func (l *link) write(ctx context.Context) (ready bool, err error) {
	ping := time.NewTicker(l.t.opts.HeartbeatInterval)
	defer ping.Stop()
	timer := time.NewTimer(l.t.opts.ConfigTimeout) // until ready for ConfigTimeout, then for the next batch
	defer timer.Stop()
	l.silence.timer = time.NewTimer(l.t.opts.AnswerTimeout)
	l.silence.timer.Stop() // expect starts it
	defer l.silence.timer.Stop()
	l.expect()
	var over, parted <-chan time.Time
	why := errParted // the link parts
	if longest := l.t.opts.MaxSession; longest > 0 {
		end := time.NewTimer(longest - time.Duration(rand.Int64N(int64(longest)/2+1)))
		defer end.Stop()
		over = end.C
	}
	configured := l.configured
	var wake <-chan struct{} // nil until ready
	for {
		select {
		case <-ctx.Done():
			if ready {
				_ = l.flushAll() // the connection ends either way
			}
			return ready, ctx.Err()
		case err := <-l.readDone:
			return ready, err
		case <-over:
			if ready {
				_ = l.flushAll() // the connection ends either way
			}
			why = errSessionOver
			l.part()
			continue
		case <-l.apart:
			if l.t.outbox.allAcked() {
				return ready, why
			}
			if parted == nil {
				parted = time.After(partGrace)
			}
			continue
		case <-parted:
			return ready, why
		case <-ping.C:
			if err := l.conn.Ping(); err != nil {
				return ready, fmt.Errorf("ping: %w", err)
			}
			continue
		case <-l.silence.timer.C:
			if err := l.checkAnswered(ready); err != nil {
				return ready, err
			}
			continue
		case <-wake:
		case <-timer.C:
			if !ready {
				l.t.log.Warn("the backend sent no entity for this agent: continuing without it")
			}
		case <-configured:
		}
		if !ready {
			ready, configured, wake = true, nil, l.t.wake
			timer.Stop()
			l.t.urgent.Store(true) // events buffered before have waited long enough
			if l.t.opts.OnReady != nil {
				l.t.opts.OnReady()
			}
		}
		if err := l.sendReceipts(); err != nil {
			return ready, fmt.Errorf("send receipts: %w", err)
		}
		if err := l.depart(timer); err != nil {
			return ready, fmt.Errorf("send events: %w", err)
		}
	}
}

// depart sends the events that may leave now, and sets the timer for the later ones.
func (l *link) depart(timer *time.Timer) error {
	for {
		urgent := l.t.urgent.Swap(false) // before looking at the outbox: a later event keeps its own
		waiting, full := l.t.outbox.waiting()
		if !waiting {
			l.ripe = time.Time{}
			return nil
		}
		now := time.Now()
		ripe := now
		if l.about.Lapwing && !urgent && !full {
			ripe = now.Add(l.t.opts.BatchDelay)
		}
		if l.ripe.IsZero() || ripe.Before(l.ripe) {
			l.ripe = ripe
		}
		leaves := l.ripe
		switch pace, every := l.getPace(); {
		case pace == wire.PaceSpool, pace == wire.PaceLeave:
			return nil // the next pace wakes the writer if anything waits
		case pace == wire.PaceSlow && leaves.Before(l.left.Add(every)):
			leaves = l.left.Add(every)
		}
		if leaves.After(now) {
			timer.Reset(leaves.Sub(now))
			return nil
		}
		l.left = now
		more, err := l.flush()
		if err != nil {
			return err
		}
		l.expect()
		if l.ripe = (time.Time{}); more {
			l.ripe = now // it belongs to the same burst as the batch that has left
		}
	}
}

// flushAll sends the remaining receipts before a deliberate end of the connection, and the remaining events unless the
// backend asked for none.
func (l *link) flushAll() error {
	if err := l.sendReceipts(); err != nil {
		return err
	}
	for {
		if pace, _ := l.getPace(); pace != wire.PaceGo {
			return nil
		}
		if more, err := l.flush(); err != nil || !more {
			return err
		}
	}
}

func (l *link) getPace() (wire.Pace, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.parts {
		return wire.PaceLeave, 0
	}
	return l.pace, l.every
}

// addReceipt lets the writer send a receipt, unless too many wait.
func (l *link) addReceipt(r *wire.Receipt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.receipts) < maxReceipts {
		l.receipts = append(l.receipts, wire.AppendReceipt(nil, r))
	}
}

// sendReceipts writes the receipts that wait. They are short and the backend stores none, so no pace holds them up.
func (l *link) sendReceipts() error {
	l.mu.Lock()
	waiting := l.receipts
	l.receipts = nil
	l.mu.Unlock()
	return l.conn.WriteBatch(waiting)
}

// part ends the connection in favour of another backend. No more events are sent, and the connection ends when all that
// were sent are acknowledged, so that no event is in the logs of two backends.
func (l *link) part() {
	l.mu.Lock()
	l.parts = true
	l.mu.Unlock()
	l.checkParted()
}

// checkParted lets the writer check whether it may end the connection.
func (l *link) checkParted() {
	select {
	case l.apart <- struct{}{}:
	default:
	}
}

// setPace changes how fast events may leave.
func (l *link) setPace(pace wire.Pace, every time.Duration) {
	l.mu.Lock()
	old := l.pace
	l.pace, l.every = pace, every
	l.mu.Unlock()
	if old != wire.PaceGo {
		l.t.metrics.paced.WithLabelValues(old.String()).Dec()
	}
	if pace != wire.PaceGo {
		l.t.metrics.paced.WithLabelValues(pace.String()).Inc()
	}
}

// batch is the memory of one flush. All transports share a pool of them: few flush at the same time.
type batch struct {
	items []wire.Item
	seqs  []uint64 // the items' numbers
	buf   []byte
	ends  []int // of the messages in buf
	msgs  [][]byte
}

var batches = sync.Pool{New: func() any { return new(batch) }}

func (b *batch) release() {
	clear(b.items)
	clear(b.msgs)
	b.items, b.seqs, b.buf, b.ends, b.msgs = b.items[:0], b.seqs[:0], b.buf[:0], b.ends[:0], b.msgs[:0]
	if cap(b.buf) <= keepBatch {
		batches.Put(b)
	}
}

// messages are the pieces of buf, which must not grow any more.
func (b *batch) messages() [][]byte {
	start := 0
	for _, end := range b.ends {
		b.msgs = append(b.msgs, b.buf[start:end])
		start = end
	}
	return b.msgs
}

// flush writes one batch of unsent events, and reports whether there are more.
func (l *link) flush() (more bool, err error) {
	b := batches.Get().(*batch)
	defer b.release()
	more, lost := l.t.outbox.take(b, maxBatchEvents, l.t.batchBytes)
	if lost > 0 {
		l.t.metrics.dropped.Add(float64(lost))
		l.t.metrics.buffered.Sub(float64(lost))
	}
	if len(b.items) == 0 {
		return false, nil
	}
	sent := len(b.items)
	if l.about.Lapwing {
		b.appendEvents()
	} else {
		sent = l.appendPlain(b)
	}
	if err := l.conn.WriteBatch(b.messages()); err != nil {
		return false, err
	}
	l.t.metrics.batches.Inc()
	l.t.metrics.sent.Add(float64(sent))
	if !l.about.Lapwing {
		l.t.delivered(b.seqs[len(b.seqs)-1])
	}
	return more, nil
}

// appendEvents encodes the batch in lapwing's protocol: a message for each run of numbers without a gap.
func (b *batch) appendEvents() {
	for start := 0; start < len(b.items); {
		end := start + 1
		for end < len(b.items) && b.seqs[end] == b.seqs[end-1]+1 {
			end++
		}
		b.buf = wire.AppendEvents(b.buf, b.seqs[start], b.items[start:end])
		b.ends = append(b.ends, len(b.buf))
		start = end
	}
}

// appendPlain encodes a message for each event, in Sensu's protocol, and returns how many.
func (l *link) appendPlain(b *batch) int {
	for i, it := range b.items {
		typ := wire.TypeEvent
		if it.Keepalive {
			typ = wire.TypeKeepalive
		}
		longer, err := wire.Append(b.buf, typ, l.about.Encoding, encoded(it.Event))
		if err != nil { // JSON has no NaN, which metrics may hold
			if gone, ok := l.t.outbox.giveUp(b.seqs[i]); ok {
				l.t.metrics.dropped.Inc()
				l.t.metrics.buffered.Dec()
				l.t.rare.Error("event given up: it cannot be encoded for this backend", gone.check, "check", gone.check, "err", err)
			}
			continue
		}
		b.buf = longer
		b.ends = append(b.ends, len(b.buf))
	}
	return len(b.ends)
}

// read handles the backend's messages until the connection fails. The error is never nil.
func (l *link) read(ctx context.Context) error {
	for {
		msg, err := l.conn.Read()
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		typ, payload, err := wire.Split(msg)
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if err := l.handle(ctx, typ, payload); err != nil {
			if broken, ok := errors.AsType[*violation](err); ok {
				_ = l.conn.Close(wire.CloseProtocol, broken.Error()) // its error has no reader
				return fmt.Errorf("read %s: %w", typ, err)
			}
			l.t.rare.Warn("message of the backend ignored", resource.Short(typ), "type", resource.Short(typ), "err", err)
		}
		// messages that came along, for example a pace, apply from the first event on
		if l.known && !l.conn.Buffered() {
			l.known = false
			select {
			case l.configured <- struct{}{}:
			default:
			}
		}
	}
}

func (l *link) handle(ctx context.Context, typ string, payload []byte) error {
	switch {
	case typ == wire.TypeAck && l.about.Lapwing:
		seq, err := wire.DecodeAck(payload)
		if err != nil {
			return err
		}
		l.t.delivered(seq)
		if pace, _ := l.getPace(); pace == wire.PaceLeave {
			l.checkParted()
		}
	case typ == wire.TypeRefused && l.about.Lapwing:
		seq, reason, err := wire.DecodeRefused(payload)
		if err != nil {
			return err
		}
		l.t.refused(seq, reason)
	case typ == wire.TypeSchedule && l.about.Lapwing:
		return l.schedule(payload)
	case typ == wire.TypePace && l.about.Lapwing:
		pace, every, err := wire.DecodePace(payload)
		if err != nil {
			return err
		}
		l.t.log.Debug("the backend sets the pace", "pace", pace.String(), "every", every)
		if pace == wire.PaceLeave {
			l.part()
			return nil
		}
		l.setPace(pace, every)
		l.t.wakeWriter()
	case typ == wire.TypeMembers && l.about.Lapwing:
		return l.members(ctx, payload)
	case typ == wire.TypeCheckRequest:
		req := new(resource.CheckRequest)
		if err := wire.Decode(payload, l.about.Encoding, req); err != nil {
			return fmt.Errorf("decode: %w", err)
		}
		if l.t.opts.OnCheckRequest != nil {
			l.t.opts.OnCheckRequest(req)
		}
	case typ == wire.TypeEntityConfig:
		config := new(resource.EntityConfig)
		if err := wire.Decode(payload, l.about.Encoding, config); err != nil {
			return fmt.Errorf("decode: %w", err)
		}
		if config.Metadata.Name == notFound {
			config = nil
		}
		if l.t.opts.OnEntityConfig != nil {
			l.t.opts.OnEntityConfig(config)
		}
		l.known = true
	default:
		return errors.New("unknown type")
	}
	return nil
}

// schedule forwards the checks that the agent is to run by itself. A lost message would leave it with the wrong checks
// for good, so the messages are numbered.
func (l *link) schedule(payload []byte) error {
	revision, replace, entries, err := wire.DecodeSchedule(payload)
	switch {
	case err != nil:
		return &violation{err}
	case revision != l.revision+1:
		return &violation{fmt.Errorf("schedule revision %d after %d", revision, l.revision)}
	case revision == 1 && !replace:
		return &violation{errors.New("the first schedule of a session replaces nothing")}
	}
	l.revision = revision
	if l.t.opts.OnSchedule != nil {
		l.t.opts.OnSchedule(replace, entries)
	}
	return nil
}

// members takes the members of the backend's cluster, and moves to another one if the backend asks for that. A backend
// gets one move from a connection, so that it cannot make the agent call hosts for ever.
func (l *link) members(ctx context.Context, payload []byte) error {
	m, err := wire.DecodeMembers(payload)
	if err != nil {
		return err
	}
	next, changed, err := l.t.addresses.learn(m)
	if err != nil {
		l.t.rare.Info("the agent does not connect to a backend that was named to it", "", "err", err)
	}
	if changed && l.t.opts.OnMembers != nil {
		l.t.opts.OnMembers()
	}
	if next != "" && next != l.about.URL && !l.moved && l.t.addresses.mayMove(time.Now()) {
		l.moved = true
		l.moving.Go(func() { l.t.move(ctx, next, l) })
	}
	return nil
}
