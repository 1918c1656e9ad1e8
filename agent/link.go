package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

const (
	maxBatchEvents = 512
	maxBatchBytes  = 256 << 10 // unless one event alone is larger
	keepBuffer     = 1 << 10   // a longer read buffer is not kept while waiting for the next message
	keepBatch      = 1 << 20   // nor a longer write buffer
)

// link is a Transport's one connection, from handshake to close. One goroutine writes, another reads.
type link struct {
	t          *Transport
	conn       *wire.Conn
	about      Connection
	configured chan struct{} // the backend has said what it knows of the agent
	readDone   chan error
}

func newLink(t *Transport, conn *wire.Conn, about Connection) *link {
	return &link{t: t, conn: conn, about: about, configured: make(chan struct{}, 1), readDone: make(chan error, 1)}
}

// serve runs the connection until it fails or ctx ends. The error is a *lostError if the connection was ready.
func (l *link) serve(ctx context.Context) error {
	bye := func() { _ = l.conn.Close(wire.CloseGoingAway, "bye") } // its error has no reader
	stop := context.AfterFunc(ctx, bye)                            // ends a write in progress, too
	defer stop()
	trust := func() { _ = l.conn.SetReadDeadline(time.Now().Add(l.t.opts.HeartbeatTimeout)) } // a failure fails Read, too
	l.conn.OnPong(trust)
	trust()
	read := make(chan struct{})
	go func() {
		defer close(read)
		l.readDone <- l.read()
	}()

	ready, err := l.write(ctx)
	bye()
	<-read
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

// giveUpRefused keeps an event that the backend finds too big from being sent again for ever.
func (l *link) giveUpRefused(err error) {
	closed, ok := errors.AsType[*wire.CloseError](err)
	if !ok || closed.Code != wire.CloseTooBig || !l.about.Lapwing {
		return
	}
	if gone, ok := l.t.outbox.giveUpLargest(); ok {
		l.t.metrics.dropped.Inc()
		l.t.metrics.buffered.Dec()
		l.t.log.Error("event given up: too big for the backend", "check", gone.check, "bytes", len(gone.Event))
	}
}

// write sends pings and events until the connection fails or ctx ends, and reports whether the connection became ready:
// events are held back until the backend has said what it knows of the agent, or keeps silent for too long.
func (l *link) write(ctx context.Context) (ready bool, err error) {
	ping := time.NewTicker(l.t.opts.HeartbeatInterval)
	defer ping.Stop()
	patience := time.NewTimer(l.t.opts.ConfigTimeout)
	defer patience.Stop()
	configured := l.configured
	var wake <-chan struct{} // nil until ready
	for {
		select {
		case <-ctx.Done():
			return ready, ctx.Err()
		case err := <-l.readDone:
			return ready, err
		case <-ping.C:
			if err := l.conn.Ping(); err != nil {
				return ready, fmt.Errorf("ping: %w", err)
			}
			continue
		case <-wake:
			more, err := l.flush()
			if err != nil {
				return ready, fmt.Errorf("send events: %w", err)
			}
			if more {
				l.t.wakeWriter()
			}
			continue
		case <-patience.C:
			l.t.log.Warn("the backend does not say what it knows of this agent, going on without")
		case <-configured:
			patience.Stop()
		}
		ready, configured, wake = true, nil, l.t.wake
		l.t.wakeWriter() // for what was buffered before
		if l.t.opts.OnReady != nil {
			l.t.opts.OnReady()
		}
	}
}

// batch is the memory of one flush. It is shared among all transports: few flush at the same time.
type batch struct {
	items []wire.Item
	buf   []byte
	msgs  [][]byte
}

var batches = sync.Pool{New: func() any { return new(batch) }}

func (b *batch) release() {
	clear(b.items)
	clear(b.msgs)
	b.items, b.msgs, b.buf = b.items[:0], b.msgs[:0], b.buf[:0]
	if cap(b.buf) <= keepBatch {
		batches.Put(b)
	}
}

// flush writes one batch of events that are not sent yet, and reports whether there are more.
func (l *link) flush() (more bool, err error) {
	b := batches.Get().(*batch)
	defer b.release()
	var first uint64
	first, b.items, more = l.t.outbox.take(b.items, maxBatchEvents, maxBatchBytes)
	if len(b.items) == 0 {
		return false, nil
	}
	last := first + uint64(len(b.items)) - 1
	sent := len(b.items)
	if l.about.Lapwing {
		b.buf = wire.AppendEvents(b.buf, first, b.items)
		err = l.conn.Write(b.buf)
	} else {
		sent, err = l.writePlain(b, first)
	}
	if err != nil {
		return false, err
	}
	l.t.metrics.sent.Add(float64(sent))
	if !l.about.Lapwing {
		l.t.delivered(last)
	}
	return more, nil
}

// writePlain writes a message for each event, as Sensu's protocol has it, and returns how many.
func (l *link) writePlain(b *batch, first uint64) (int, error) {
	var ends []int
	for i, it := range b.items {
		typ := wire.TypeEvent
		if it.Keepalive {
			typ = wire.TypeKeepalive
		}
		longer, err := wire.Append(b.buf, typ, l.about.Encoding, encoded(it.Event))
		if err != nil { // JSON has no NaN, which metrics may hold
			if gone, ok := l.t.outbox.giveUp(first + uint64(i)); ok {
				l.t.metrics.dropped.Inc()
				l.t.metrics.buffered.Dec()
				l.t.log.Error("event given up: it cannot be encoded for this backend", "check", gone.check, "err", err)
			}
			continue
		}
		b.buf = longer
		ends = append(ends, len(b.buf))
	}
	start := 0 // of each message; the buffer does not move any more
	for _, end := range ends {
		b.msgs = append(b.msgs, b.buf[start:end])
		start = end
	}
	return len(ends), l.conn.WriteBatch(b.msgs)
}

// read handles what the backend sends until the connection fails. The error is never nil.
func (l *link) read() error {
	var buf []byte
	for {
		msg, err := l.conn.Read(buf)
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		typ, payload, err := wire.Split(msg)
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if err := l.handle(typ, payload); err != nil {
			l.t.log.Warn("message of the backend ignored", "type", typ, "err", err)
		}
		if buf = msg; cap(buf) > keepBuffer {
			buf = nil
		}
	}
}

func (l *link) handle(typ string, payload []byte) error {
	switch {
	case typ == wire.TypeAck && l.about.Lapwing:
		seq, err := wire.DecodeAck(payload)
		if err != nil {
			return err
		}
		l.t.delivered(seq)
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
		if config.Metadata.Name != notFound && l.t.opts.OnEntityConfig != nil {
			l.t.opts.OnEntityConfig(config)
		}
		select {
		case l.configured <- struct{}{}:
		default:
		}
	default:
		return errors.New("unknown type")
	}
	return nil
}
