package eventlog

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/lapwing-monitoring/lapwing/broker"
)

// This file brings a partition's messages to its reader.
//
// JetStream keeps each block of a stream in memory until 10 s after its last write or read. A reader of new messages
// would keep 10 s of the log there, and each message would be copied six times on its way. Without such a reader
// JetStream reuses a block's buffer for the next block. So a Reader reads from the stream only the messages from
// before its start. After that the writer hands it each message once it is durable, and gets the buffer back later.
//
// In a cluster most messages are of other members, so the reader reads everything from this member's copy of the
// stream. The writer hands its messages over all the same: their waiters are answered when the reader is done with them.

const (
	// spareBuffers is how many buffers a partition keeps beside those in use.
	spareBuffers = 4
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
			r.log.detachReader(r.p)
		}
		return nil, err
	}
	return r, nil
}

// begin starts to read what is already in the stream; for a further reader that is everything.
func (r *Reader) begin(ctx context.Context) error {
	st, err := r.log.await(ctx, r.p)
	if err != nil {
		return err
	}
	if r.next > st.LastSeq+1 {
		return fmt.Errorf("event log partition %d ends at message %d and cannot be read from %d", r.p.id, st.LastSeq, r.next)
	}
	if err := r.skip(st.FirstSeq); err != nil {
		return err
	}
	last := uint64(math.MaxUint64)
	if r.first && r.log.opts.Broker.Alone() {
		if last, err = r.p.newestOf(ctx, st); err != nil {
			return err
		}
	}
	if r.next <= last {
		r.stored = r.read(last)
	}
	return nil
}

// Next waits for the next message, which is valid until Next is called again. That call also means that the message is
// done. The error is that of ctx, ErrClosed when the log cannot be read any more, or a *GapError. Interruptions are
// logged, and Next waits until they are over.
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
		if !ok {
			continue
		}
		if err := r.skip(m.seq); err != nil {
			return 0, nil, err
		}
		r.last, r.next = m.seq, m.seq+1
		return m.seq, m.buf, nil
	}
}

// skip goes on at a later message. Those before it must be accepted losses.
func (r *Reader) skip(to uint64) error {
	if err := r.p.pass(r.next, to); err != nil {
		return err
	}
	r.next = max(r.next, to)
	return nil
}

// nextStored waits for a message of the stream. It returns false at the end of what is to be read there.
func (r *Reader) nextStored(ctx context.Context) (m message, ok bool, err error) {
	if r.next > r.stored.last {
		return m, false, r.finish()
	}
	select {
	case stored := <-r.stored.Messages:
		m = message{seq: stored.Seq, buf: stored.Data}
	case <-ctx.Done():
		return m, false, ctx.Err()
	case <-r.stored.Done:
		return m, false, ErrClosed
	}
	if m.seq > r.stored.last { // the stream has no message up to last any more
		return m, false, r.finish()
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
	r.stored = r.read(m.seq - 1)
	return m, false, nil
}

func (r *Reader) interrupted(err error) {
	r.log.rare.Warn("reading the log is interrupted", strconv.Itoa(r.p.id), "partition", r.p.id, "err", err)
}

// Stop ends the reading. Next must not be running.
func (r *Reader) Stop() {
	r.ended = true
	if r.stored != nil {
		r.stored.Stop()
	}
	if r.first {
		r.log.detachReader(r.p)
	}
}

// finish ends the reading of the stream. Messages up to its last one that have not come are lost.
func (r *Reader) finish() error {
	if err := r.skip(r.stored.last + 1); err != nil {
		return err
	}
	r.stored.Stop()
	r.stored = nil
	return nil
}

// reading is a read of the stream for a reader.
type reading struct {
	*broker.Following
	last uint64 // the last message to read
}

// read starts to read the stream from the next message up to last. If last is missing there must be later messages.
func (r *Reader) read(last uint64) *reading {
	return &reading{last: last, Following: r.log.opts.Broker.Follow(broker.FollowOptions{
		Stream: streamName(r.p.id), From: r.next, Interrupted: r.interrupted,
	})}
}

// ahead has the messages that this process committed and its reader has not done. Without a reader it is empty.
type ahead struct {
	on    bool
	queue []message // oldest first
	read  []message // for release alone
	bytes int
	done  uint64        // up to this message the reader is done, possibly before the writer reports the commit
	came  chan struct{} // capacity 1; signals a new message
}

// message is a message in ahead. The Ackers of its records are called when the reader is done with it.
type message struct {
	seq     uint64
	buf     []byte
	waiting []waiter
}

// handOver passes a committed message to the reader. It returns false if there is none, or if the reader is done with
// the message already. The caller holds mu.
func (l *Log) handOver(p *partition, m message) bool {
	a := &p.ahead
	if !a.on || m.seq <= a.done {
		l.keepBuffer(p, m.buf)
		return false
	}
	a.queue = append(a.queue, m)
	a.bytes += len(m.buf)
	select {
	case a.came <- struct{}{}:
	default:
	}
	return true
}

// answer calls the Ackers of a batch. It keeps the list for another batch.
func (l *Log) answer(p *partition, seq uint64, waiting []waiter, err error) {
	for i, w := range waiting {
		if w.acker != nil {
			w.acker.Logged(w.token, p.id, seq, err)
		}
		waiting[i] = waiter{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lists) < spareBuffers {
		p.lists = append(p.lists, waiting[:0])
	}
}

// takeList returns a list for the waiters of a batch, which may be nil. The caller holds mu.
func (p *partition) takeList() []waiter {
	n := len(p.lists)
	if n == 0 {
		return nil
	}
	list := p.lists[n-1]
	p.lists = p.lists[:n-1]
	return list
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

// detachReader ends the handing over. What was handed over and not read is durable, so it is answered.
func (l *Log) detachReader(p *partition) {
	p.mu.Lock()
	left := p.ahead.queue
	p.ahead = ahead{}
	p.caught.Broadcast()
	p.mu.Unlock()
	for _, m := range left {
		l.answer(p, m.seq, m.waiting, nil)
	}
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

// release records that the reader is done with all messages up to seq: it takes their buffers back, and calls the
// Ackers of their records.
func (l *Log) release(p *partition, seq uint64) {
	p.mu.Lock()
	a, n := &p.ahead, 0
	a.done = seq
	for n < len(a.queue) && a.queue[n].seq <= seq {
		a.bytes -= len(a.queue[n].buf)
		l.keepBuffer(p, a.queue[n].buf)
		n++
	}
	if n == 0 {
		p.mu.Unlock()
		return
	}
	a.read = append(a.read[:0], a.queue[:n]...)
	read := a.read
	left := copy(a.queue, a.queue[n:])
	clear(a.queue[left:])
	a.queue = a.queue[:left]
	p.caught.Broadcast()
	p.mu.Unlock()
	for i, m := range read {
		l.answer(p, m.seq, m.waiting, nil)
		read[i] = message{}
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
