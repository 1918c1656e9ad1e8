package eventlog

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// This file brings a partition's messages to its follower.
//
// JetStream keeps each block of a stream in memory until 10 s after it was last written or read. A follower that reads what has just
// been written keeps 10 s of the log there, and each message is copied six times on its way. Without such a reader a block's buffer
// is used again for the next block. So the follower reads from the stream only what was there before it; from then on the writer
// hands it each message, once the message is durable, and gets the buffer back later.

const (
	// followBytes is how much of the log is on its way to a follower at a time. The broker ends a connection that has 64 MiB to
	// take, and a follower that must connect again loses seconds.
	followBytes = 16 << 20
	// spareBuffers is how many buffers a partition keeps beside those in use.
	spareBuffers = 4
	// rereadPause is the time between attempts to read the stream.
	rereadPause = time.Second
)

// Follow calls f with every message of a partition whose sequence is from or above, in order, on one goroutine, until
// stop is called; stop waits for f. The message is valid only until f returns.
//
// The first follower of a partition is the one that the writer waits for. Others, while it is there, read the stream alone.
func (l *Log) Follow(ctx context.Context, partition int, from uint64, f func(seq uint64, msg []byte)) (stop func(), err error) {
	p := l.parts[partition]
	r := &reader{log: l, p: p, f: f, next: max(from, 1)}
	first := p.follow()
	last := uint64(math.MaxUint64)
	if first {
		r.f = func(seq uint64, msg []byte) {
			f(seq, msg)
			l.followed(p, seq)
		}
		if _, last, err = l.Bounds(ctx, partition); err != nil {
			p.unfollow()
			return nil, err
		}
	}
	var stored *reading
	if r.next <= last {
		if stored, err = r.read(ctx, last); err != nil {
			if first {
				p.unfollow()
			}
			return nil, err
		}
	}
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if stored != nil && !stored.wait(runCtx) {
			return
		}
		r.takeOver(runCtx)
	}()
	return func() {
		cancel()
		<-done
		if first {
			p.unfollow()
		}
	}, nil
}

// reader brings the messages of a partition to one follower.
type reader struct {
	log  *Log
	p    *partition
	f    func(seq uint64, msg []byte)
	next uint64 // the message that f gets next
}

// takeOver hands on what the writer has committed, until ctx ends. Messages that the writer does not have, because another process
// wrote them, are read from the stream.
func (r *reader) takeOver(ctx context.Context) {
	for {
		m, ok := r.p.oldest(ctx, r.next)
		if !ok || m.seq > r.next && !r.readUpTo(ctx, m.seq-1) {
			return
		}
		r.f(m.seq, m.buf)
		r.next = m.seq + 1
	}
}

// readUpTo reads what the stream has up to a message, and tries again until it succeeds or ctx ends.
func (r *reader) readUpTo(ctx context.Context, last uint64) bool {
	for {
		stored, err := r.read(ctx, last)
		if err == nil {
			return stored.wait(ctx)
		}
		r.interrupted(err)
		select {
		case <-time.After(rereadPause):
		case <-ctx.Done():
			return false
		}
	}
}

func (r *reader) interrupted(err error) {
	r.log.log.Warn("reading the log is interrupted", "partition", r.p.id, "err", err)
}

// reading is messages of the stream under way to a follower.
type reading struct {
	r         *reader
	consumer  jetstream.Consumer
	consuming jetstream.ConsumeContext
	end       chan struct{} // closed when all are there
}

// read begins to read the stream from the next message up to last, behind which there must be others if it is missing.
func (r *reader) read(ctx context.Context, last uint64) (*reading, error) {
	cfg := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.next}
	consumer, err := r.log.js.OrderedConsumer(ctx, streamName(r.p.id), cfg)
	if err != nil {
		return nil, fmt.Errorf("follow event log partition %d from %d: %w", r.p.id, r.next, err)
	}
	stored := &reading{r: r, consumer: consumer, end: make(chan struct{})}
	ended := false
	stored.consuming, err = consumer.Consume(func(msg jetstream.Msg) {
		meta, err := msg.Metadata()
		if err != nil {
			r.log.log.Error("message without metadata", "partition", r.p.id, "err", err)
			return
		}
		seq := meta.Sequence.Stream
		if ended {
			return
		}
		if seq <= last {
			r.f(seq, msg.Data())
			r.next = seq + 1
		}
		if seq >= last {
			ended = true
			close(stored.end)
		}
	}, jetstream.PullMaxBytes(followBytes), jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { r.interrupted(err) }))
	if err != nil {
		return nil, fmt.Errorf("follow event log partition %d from %d: %w", r.p.id, r.next, err)
	}
	return stored, nil
}

// wait returns when all messages are there, or false when ctx ends before. None comes afterwards.
func (s *reading) wait(ctx context.Context) bool {
	all := true
	select {
	case <-s.end:
	case <-ctx.Done():
		all = false
	}
	s.consuming.Stop()
	<-s.consuming.Closed()
	if info := s.consumer.CachedInfo(); all && info != nil { // the broker forgets others by itself, minutes later
		_ = s.r.log.js.DeleteConsumer(ctx, info.Stream, info.Name)
	}
	return all
}

// ahead is the messages that this process committed and its follower has not dealt with. Without a follower it is empty.
type ahead struct {
	on    bool
	queue []message // oldest first
	bytes int
	done  uint64        // what the follower has dealt with, which may be told of a message first
	came  chan struct{} // capacity 1; a message has come
}

// message is one in ahead.
type message struct {
	seq uint64
	buf []byte
}

// handOver leaves a committed message to the follower, if there is one. The caller holds mu.
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

// keepBuffer keeps a buffer for another batch, but not a burst's. The caller holds mu.
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

// follow notes that there is a follower, and reports whether it is the first one.
func (p *partition) follow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ahead.on {
		return false
	}
	p.ahead = ahead{on: true, came: make(chan struct{}, 1)}
	p.caught.Broadcast()
	return true
}

func (p *partition) unfollow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ahead = ahead{}
	p.caught.Broadcast()
}

// oldest waits for the first message from a sequence number on. It returns false when ctx ends before.
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

// followed notes that the follower has dealt with all messages up to seq.
func (l *Log) followed(p *partition, seq uint64) {
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

// Followed is the sum of the sequence numbers up to which the partitions' followers have come: it grows while they make progress.
func (l *Log) Followed() (sum uint64) {
	for _, p := range l.parts {
		p.mu.Lock()
		sum += p.ahead.done
		p.mu.Unlock()
	}
	return sum
}
