package eventlog

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// This file brings a partition's messages to its reader.
//
// JetStream keeps each block of a stream in memory until 10 s after its last write or read. A reader of new messages
// would keep 10 s of the log there, and each message would be copied six times on its way. Without such a reader
// JetStream reuses a block's buffer for the next block. So a Reader reads from the stream only the messages from
// before its start. After that the writer hands it each message once it is durable, and gets the buffer back later.

const (
	// readBytes is how much of the log is on its way to a reader at a time. The broker closes a connection with 64 MiB
	// to send, and a reader that must reconnect loses seconds.
	readBytes = 16 << 20
	// spareBuffers is how many buffers a partition keeps beside those in use.
	spareBuffers = 4
	// rereadPause is the time between attempts to read the stream.
	rereadPause = time.Second
)

// Reader reads the messages of one partition in order. It belongs to one goroutine.
type Reader struct {
	log    *Log
	p      *partition
	first  bool     // the writer hands it each commit
	ended  bool     // by Stop
	stored *reading // messages of the stream on their way to it; nil when the writer's are next
	next   uint64   // the message that Next will return
	last   uint64   // the message that Next returned last; 0 before
}

// Reader starts to read a partition at the message from. The writer is never more than MaxAhead bytes ahead of a
// partition's first reader. Further readers at the same time read only the stream, and delay nothing.
func (l *Log) Reader(ctx context.Context, partition int, from uint64) (*Reader, error) {
	r := &Reader{log: l, p: l.parts[partition], next: max(from, 1)}
	r.first = r.p.attachReader()
	if err := r.begin(ctx); err != nil {
		if r.first {
			r.p.detachReader()
		}
		return nil, err
	}
	return r, nil
}

// begin starts to read what is already in the stream; for a further reader that is everything.
func (r *Reader) begin(ctx context.Context) (err error) {
	last := uint64(math.MaxUint64)
	if r.first {
		if _, last, err = r.log.Bounds(ctx, r.p.id); err != nil {
			return err
		}
	}
	if r.next <= last {
		r.stored, err = r.read(ctx, last)
	}
	return err
}

// Next waits for the next message, which is valid until Next is called again. That call also means that the message is
// done. The error is that of ctx, or ErrClosed when the log cannot be read any more. Interruptions are logged, and
// Next waits until they are over.
func (r *Reader) Next(ctx context.Context) (seq uint64, msg []byte, err error) {
	if r.ended {
		return 0, nil, ErrClosed
	}
	if r.last > 0 && r.first {
		r.log.release(r.p, r.last)
	}
	for {
		var m message
		var ok bool
		if r.stored != nil {
			m, ok, err = r.nextStored(ctx)
		} else {
			m, ok, err = r.nextLive(ctx)
		}
		if err != nil {
			return 0, nil, err
		}
		if ok {
			r.last, r.next = m.seq, m.seq+1
			return m.seq, m.buf, nil
		}
	}
}

// nextStored waits for a message of the stream. It returns false at the end of what is to be read there.
func (r *Reader) nextStored(ctx context.Context) (m message, ok bool, err error) {
	if r.next > r.stored.last {
		r.finish(ctx)
		return m, false, nil
	}
	select {
	case m = <-r.stored.messages:
	case <-ctx.Done():
		return m, false, ctx.Err()
	case <-r.stored.closed:
		return m, false, ErrClosed
	}
	if m.seq > r.stored.last { // the stream has no message up to last any more
		r.finish(ctx)
		return m, false, nil
	}
	return m, true, nil
}

// nextLive waits for a message of the writer. It returns false when messages before that one must be looked for in the stream.
func (r *Reader) nextLive(ctx context.Context) (m message, ok bool, err error) {
	if m, ok = r.p.oldest(ctx, r.next); !ok {
		return m, false, ctx.Err()
	}
	if m.seq == r.next {
		return m, true, nil
	}
	// Another writer wrote the messages before this one, or they are lost: a repair leaves gaps, at the end too.
	if r.stored, err = r.read(ctx, m.seq-1); err == nil {
		return m, false, nil
	}
	r.interrupted(err)
	select {
	case <-time.After(rereadPause):
		return m, false, nil
	case <-ctx.Done():
		return m, false, ctx.Err()
	}
}

func (r *Reader) interrupted(err error) {
	r.log.log.Warn("reading the log is interrupted", "partition", r.p.id, "err", err)
}

// Stop ends the reading. Next must not be running.
func (r *Reader) Stop() {
	r.ended = true
	if r.stored != nil {
		r.stored.stop()
	}
	if r.first {
		r.p.detachReader()
	}
}

// finish ends the reading of the stream. Messages up to its last one that have not come are lost.
func (r *Reader) finish(ctx context.Context) {
	r.next = max(r.next, r.stored.last+1)
	r.stored.stop()
	if info := r.stored.consumer.CachedInfo(); info != nil { // otherwise the broker drops the consumer itself, minutes later
		_ = r.log.js.DeleteConsumer(ctx, info.Stream, info.Name)
	}
	r.stored = nil
}

// reading is a read of the stream for a reader.
type reading struct {
	last      uint64 // the last message to read
	consumer  jetstream.Consumer
	consuming jetstream.ConsumeContext
	closed    <-chan struct{} // of consuming
	messages  chan message
	stopped   chan struct{}
}

// read starts to read the stream from the next message up to last. If last is missing there must be later messages.
func (r *Reader) read(ctx context.Context, last uint64) (*reading, error) {
	cfg := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.next}
	consumer, err := r.log.js.OrderedConsumer(ctx, streamName(r.p.id), cfg)
	if err != nil {
		return nil, fmt.Errorf("read event log partition %d from %d: %w", r.p.id, r.next, err)
	}
	s := &reading{last: last, consumer: consumer, messages: make(chan message), stopped: make(chan struct{})}
	s.consuming, err = consumer.Consume(func(msg jetstream.Msg) {
		meta, err := msg.Metadata()
		if err != nil {
			r.log.log.Error("message without metadata", "partition", r.p.id, "err", err)
			return
		}
		select {
		case s.messages <- message{meta.Sequence.Stream, msg.Data()}:
		case <-s.stopped:
		}
	}, jetstream.PullMaxBytes(readBytes), jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { r.interrupted(err) }))
	if err != nil {
		return nil, fmt.Errorf("read event log partition %d from %d: %w", r.p.id, r.next, err)
	}
	s.closed = s.consuming.Closed() // each call starts a goroutine
	return s, nil
}

func (s *reading) stop() {
	close(s.stopped)
	s.consuming.Stop()
	<-s.closed
}

// ahead has the messages that this process committed and its reader has not done. Without a reader it is empty.
type ahead struct {
	on    bool
	queue []message // oldest first
	bytes int
	done  uint64        // up to this message the reader is done, possibly before the writer reports the commit
	came  chan struct{} // capacity 1; signals a new message
}

// message is a message in ahead.
type message struct {
	seq uint64
	buf []byte
}

// handOver passes a committed message to the reader, if there is one. The caller holds mu.
func (l *Log) handOver(p *partition, seq uint64, buf []byte) {
	a := &p.ahead
	if !a.on || seq <= a.done {
		l.keepBuffer(p, buf)
		return
	}
	a.queue = append(a.queue, message{seq, buf})
	a.bytes += len(buf)
	select {
	case a.came <- struct{}{}:
	default:
	}
}

// keepBuffer keeps a buffer for reuse, unless a burst made it large. The caller holds mu.
func (l *Log) keepBuffer(p *partition, buf []byte) {
	if cap(buf) <= 16*l.opts.MaxBatch && len(p.spare) < spareBuffers {
		p.spare = append(p.spare, buf[:0])
	}
}

// takeBuffer returns a buffer for a batch, which may be nil. The caller holds mu.
func (p *partition) takeBuffer() []byte {
	n := len(p.spare)
	if n == 0 {
		return nil
	}
	buf := p.spare[n-1]
	p.spare[n-1] = nil
	p.spare = p.spare[:n-1]
	return buf
}

// attachReader records that there is a reader, and reports whether it is the first one.
func (p *partition) attachReader() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ahead.on {
		return false
	}
	p.ahead = ahead{on: true, came: make(chan struct{}, 1)}
	p.caught.Broadcast()
	return true
}

func (p *partition) detachReader() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ahead = ahead{}
	p.caught.Broadcast()
}

// oldest waits for the first message from a sequence number on. It returns false if ctx ends before.
func (p *partition) oldest(ctx context.Context, from uint64) (message, bool) {
	for {
		p.mu.Lock()
		a := &p.ahead
		for _, m := range a.queue {
			if m.seq >= from {
				p.mu.Unlock()
				return m, true
			}
		}
		came := a.came
		p.mu.Unlock()
		select {
		case <-came:
		case <-ctx.Done():
			return message{}, false
		}
	}
}

// release records that the reader is done with all messages up to seq, and takes their buffers back.
func (l *Log) release(p *partition, seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, n := &p.ahead, 0
	a.done = seq
	for n < len(a.queue) && a.queue[n].seq <= seq {
		a.bytes -= len(a.queue[n].buf)
		l.keepBuffer(p, a.queue[n].buf)
		n++
	}
	if n > 0 {
		left := copy(a.queue, a.queue[n:])
		clear(a.queue[left:])
		a.queue = a.queue[:left]
		p.caught.Broadcast()
	}
}

// ReadSum returns the sum of the sequence numbers that the partitions' readers have reached. It grows while they make
// progress.
func (l *Log) ReadSum() (sum uint64) {
	for _, p := range l.parts {
		p.mu.Lock()
		sum += p.ahead.done
		p.mu.Unlock()
	}
	return sum
}
