package eventlog

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// readBytes is how much of the log is on its way to a reader at a time. The broker ends a connection that has 64 MiB to
// take, and a reader that must connect again loses seconds.
const readBytes = 16 << 20

// Reader reads the messages of one partition in order. It belongs to one goroutine.
type Reader struct {
	p         *partition
	consuming jetstream.ConsumeContext
	closed    <-chan struct{} // of consuming
	messages  chan received
	stopped   chan struct{}
	last      uint64 // what Next returned last; 0 before
}

// received is a message of the log.
type received struct {
	seq  uint64
	data []byte
}

// Reader begins to read a partition at the message from. While there is a reader, the writer is never more than
// MaxAhead bytes ahead of it. A partition has one reader at a time.
func (l *Log) Reader(ctx context.Context, partition int, from uint64) (*Reader, error) {
	cfg := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(from, 1)}
	consumer, err := l.js.OrderedConsumer(ctx, streamName(partition), cfg)
	if err != nil {
		return nil, fmt.Errorf("read event log partition %d from %d: %w", partition, from, err)
	}
	r := &Reader{p: l.parts[partition], messages: make(chan received), stopped: make(chan struct{})}
	r.p.follow(true)
	r.consuming, err = consumer.Consume(func(msg jetstream.Msg) {
		meta, err := msg.Metadata()
		if err != nil {
			l.log.Error("message without metadata", "partition", partition, "err", err)
			return
		}
		select {
		case r.messages <- received{meta.Sequence.Stream, msg.Data()}:
		case <-r.stopped:
		}
	}, jetstream.PullMaxBytes(readBytes), jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		l.log.Warn("reading the log is interrupted", "partition", partition, "err", err)
	}))
	if err != nil {
		r.p.follow(false)
		return nil, fmt.Errorf("read event log partition %d from %d: %w", partition, from, err)
	}
	r.closed = r.consuming.Closed() // each call starts a goroutine
	return r, nil
}

// Next waits for the next message. The call also means that the message before is dealt with. The error is that of ctx,
// or ErrClosed when the log cannot be read any more. Interruptions are logged, and Next waits until they are over.
func (r *Reader) Next(ctx context.Context) (seq uint64, msg []byte, err error) {
	if r.last > 0 {
		r.p.followed(r.last)
	}
	select {
	case m := <-r.messages:
		r.last = m.seq
		return m.seq, m.data, nil
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	case <-r.closed:
		return 0, nil, ErrClosed
	}
}

// Stop ends the reading. No Next may run.
func (r *Reader) Stop() {
	close(r.stopped)
	r.consuming.Stop()
	<-r.closed
	r.p.follow(false)
}

// ahead is the messages that this process committed and its reader has not dealt with. Without a reader it is empty.
type ahead struct {
	on    bool
	queue []message // oldest first
	bytes int
	done  uint64 // what the reader has dealt with, which it may report before the writer reports the commit
}

// message is one in ahead.
type message struct {
	seq  uint64
	size int
}

func (a *ahead) add(seq uint64, size int) {
	if a.on && seq > a.done {
		a.queue = append(a.queue, message{seq, size})
		a.bytes += size
	}
}

// follow notes that there is a reader, or none any more.
func (p *partition) follow(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ahead = ahead{on: on}
	p.caught.Broadcast()
}

// followed notes that the reader has dealt with all messages up to seq.
func (p *partition) followed(seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, n := &p.ahead, 0
	a.done = seq
	for n < len(a.queue) && a.queue[n].seq <= seq {
		a.bytes -= a.queue[n].size
		n++
	}
	if n > 0 {
		a.queue = append(a.queue[:0], a.queue[n:]...)
		p.caught.Broadcast()
	}
}

// Followed is the sum of the sequence numbers up to which the partitions' readers have come: it grows while they make
// progress.
func (l *Log) Followed() (sum uint64) {
	for _, p := range l.parts {
		p.mu.Lock()
		sum += p.ahead.done
		p.mu.Unlock()
	}
	return sum
}
