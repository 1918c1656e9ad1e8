// Package eventlog is the only access to the durable log of events.
//
// The intake appends records, and package fold reads them. Records of many agents are batched into one message per
// partition and commit (group commit): a partition's writer takes all records that arrived within FlushInterval, and
// publishes them to the partition's JetStream stream. Only one message a partition is on its way, so the order of
// Append is the order of the log. Readers get the messages in that order, with their sequence numbers, and fail if one
// is missing. A record's Acker is called once the broker has synced the message and the partition's reader is done with
// it. What a record means is left to both ends.
//
// A message is a batch of one backend, its origin, which numbers its batches. A writer that gets no answer publishes
// again, so a batch may be in the log twice: readers recognise it by its number.
//
// The buffer in front of each writer is the first of the two queues on an event's path. It is bounded by MaxPending
// bytes. When it is full Append waits and TryAppend refuses, and TCP stops the agents whose events wait. Appends that
// wait are served in order: the writer that makes room puts their records into the buffer, and leaves half of it to
// TryAppend. Keepalives and deadlines do not wait behind results, nor results behind large records: each class has a
// queue and a share of the buffer. A writer pauses while the partition's reader is MaxAhead bytes behind, so the log
// never runs far ahead of the fold. A reader that has reached the end of the log gets each message from its writer, in
// the writer's own buffer.
package eventlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/broker/blocks"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Errors of Append.
var (
	// ErrClosed is returned if the log was stopped before the record was durable.
	ErrClosed = errors.New("event log is closed")
	// ErrNoRoom is returned for a record that would have to wait for earlier ones.
	ErrNoRoom = errors.New("event log has no room for more at present")
	// ErrDiskFull is returned while the log takes no records because the disk is nearly full.
	ErrDiskFull = errors.New("disk is full: the event log takes no events until there is space again")
)

// Options wires a Log. If the comment of a field does not say what 0 means, 0 is replaced by the value of
// DefaultOptions.
type Options struct {
	Broker *broker.Broker
	// Dir is the directory whose free space is watched; the broker's. Required.
	Dir string
	// Origin is this backend's id, unique and lasting.
	Origin string
	// Number is above the numbers of all batches that earlier processes made with this Origin: batches are numbered from
	// it on. 0 is the time in nanoseconds, which is enough as long as no clock is set back.
	Number uint64
	// Partitions is the number of streams. It cannot change once there is data. 0 is SuitablePartitions.
	Partitions int
	// FlushInterval is how long records gather before a commit. Longer costs less CPU per event and adds as
	// much latency. 0 is 20 ms, and 50 ms if the broker is not this process alone: then a commit costs each of its servers.
	FlushInterval time.Duration
	// MaxBatch ends the gathering early, in bytes.
	MaxBatch int
	// MaxPending bounds the records waiting for a commit in one partition, in bytes.
	MaxPending int
	// MaxAhead bounds the messages of one partition that are durable and that its reader has not dealt with, in bytes.
	MaxAhead int
	// MaxRate bounds the bytes written in a second on average, over all partitions. A flood must not fill the memory:
	// JetStream keeps the last 10 s of a stream in memory while a reader catches up with it. 0 is no bound.
	MaxRate int64
	// Lost are, by partition, the messages whose loss an operator accepted: readers pass over them.
	Lost [][]blocks.Range
	// MinFree is the free space below which the log takes no records, in bytes. 0 is none.
	MinFree    uint64
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// DefaultOptions returns the default settings.
func DefaultOptions() Options {
	return Options{
		MaxBatch: 256 << 10, MaxPending: 3 << 20, MaxAhead: 16 << 20, MinFree: 256 << 20,
	}
}

// SuitablePartitions is the number of partitions that suits this machine: one for two processors, 8 at most. Each partition
// has its own commits, which cost the same for one event as for a thousand, and its own fold, which is one core's work.
func SuitablePartitions() int { return min(max(1, runtime.NumCPU()/2), 8) }

// Acker learns what became of a record it appended. It is called on the reader's goroutine, or on the writer's if there
// is no reader, and must not block.
type Acker interface {
	// Logged is called once for each record: with the sequence number of its message, when the record is durable and
	// the partition's reader is done with it or has stopped; or with the reason why the log was closed before the
	// record was known to be durable.
	Logged(token uint64, partition int, seq uint64, err error)
}

// Log is the partitioned event log.
type Log struct {
	opts      Options
	log       *slog.Logger
	rare      *rarelog.Log
	metrics   metrics
	js        jetstream.JetStream
	parts     []*partition
	noWaiting atomic.Bool // set by StopWaiting: appends do not wait any more
	full      atomic.Bool
	minFree   atomic.Uint64
	free      atomic.Uint64 // of the disk at the last check, in bytes
	rate      *rate.Limiter // of bytes, from MaxRate

	cancel    context.CancelFunc // of the writers
	stopWatch context.CancelFunc // of the disk watch
	done      sync.WaitGroup
}

// partition is one stream and the records waiting to be written to it.
type partition struct {
	id       int
	stream   jetstream.Stream
	subject  string // at the broker
	streamID string
	lost     []blocks.Range // that an operator accepted
	wake     chan struct{}  // capacity 1
	outage   broker.Outage  // of the store, as the writer sees it
	mark     *broker.Mark

	full atomic.Bool // results have to wait for room

	mu      sync.Mutex // guards the fields below
	caught  sync.Cond  // wakes the writer when the reader has caught up
	buf     []byte
	waiting []waiter
	number  uint64         // of the batch in buf, or of the newest
	roster  uint64         // for the headers of batches
	since   time.Time      // when the oldest waiting record was appended
	under   commit         // the commit under way; the zero value when there is none
	queues  [classes]queue // by class: appends that wait for room
	blocked int            // appends in all queues
	newest  uint64         // sequence number of the newest known message
	rested  *time.Timer    // ends a pause in which only urgent records are taken; nil if there is none
	commits commitTimes
	ahead   ahead
	spare   [][]byte   // buffers of earlier batches, for reuse
	lists   [][]waiter // lists of earlier batches, for reuse
	stored  uint64     // bytes of the stream on disk, when last read
	hold    hold       // what Trim must keep
	closed  bool
	err     error // of the last commit; nil if it succeeded
}

// commit is what a partition's writer has taken out of the buffer and not made durable yet.
type commit struct {
	records, bytes int
	since          time.Time // when its oldest record was appended
}

type waiter struct {
	acker Acker
	token uint64
}

// blockedAppend is an append that waits for room. The writer puts its record into the buffer when there is room.
type blockedAppend struct {
	record     Record // its body and strings belong to the caller, who waits
	waiter     waiter
	size       int
	since      time.Time
	passed     bool       // a batch began with a record of an earlier class while this one was the first of its class
	done       chan error // capacity 1
	prev, next *blockedAppend
}

// class is how soon a waiting record is served: the classes are served in their order. None starves: after a batch
// that passes over the first record of a class, the next batch begins with that record.
type class uint8

const (
	urgent   class = iota // keepalives, deadlines and all that is no event, up to largeUrgent: an agent whose keepalive waits looks dead
	ordinary              // results
	large                 // large records: a few agents with large results must not delay the others
	classes
)

// The sizes in bytes above which a record is large. Few results are: this is how much a session reads at a time. An
// urgent record may have all facts of a host.
const (
	largeResult = 8 << 10
	largeUrgent = 64 << 10
)

func classOf(r *Record, size int) class {
	c, limit := ordinary, largeResult
	if r.Flags&(FlagKeepalive|FlagDeadline) != 0 || r.Kind != KindEvent {
		c, limit = urgent, largeUrgent
	}
	if size > limit {
		return large
	}
	return c
}

// queue has waiting appends, in their order. It is doubly linked, so that an append leaves it without a search: when
// many sessions end at once, each removes its append.
type queue struct{ first, last *blockedAppend }

func (q *queue) push(b *blockedAppend) {
	if b.prev = q.last; b.prev == nil {
		q.first = b
	} else {
		b.prev.next = b
	}
	q.last = b
}

func (q *queue) pop() *blockedAppend {
	b := q.first
	q.remove(b)
	return b
}

// remove removes b, and reports whether it was in the queue.
func (q *queue) remove(b *blockedAppend) bool {
	if b.prev == nil && q.first != b {
		return false
	}
	if b.prev == nil {
		q.first = b.next
	} else {
		b.prev.next = b.next
	}
	if b.next == nil {
		q.last = b.prev
	} else {
		b.next.prev = b.prev
	}
	b.prev, b.next = nil, nil
	return true
}

const (
	flushInterval        = 20 * time.Millisecond
	clusterFlushInterval = 50 * time.Millisecond
)

// New checks the options; Start opens the streams.
func New(opts Options) (*Log, error) {
	switch {
	case opts.Broker == nil:
		return nil, errors.New("event log: no broker")
	case opts.Origin == "":
		return nil, errors.New("event log: no origin")
	case len(opts.Origin) > maxOrigin:
		return nil, fmt.Errorf("event log: the origin has %d bytes, %d at most", len(opts.Origin), maxOrigin)
	}
	defaults := DefaultOptions()
	opts.Partitions = cmp.Or(opts.Partitions, SuitablePartitions())
	opts.Number = cmp.Or(opts.Number, uint64(max(0, time.Now().UnixNano())))
	if opts.Broker.Alone() {
		opts.FlushInterval = cmp.Or(opts.FlushInterval, flushInterval)
	} else {
		opts.FlushInterval = cmp.Or(opts.FlushInterval, clusterFlushInterval)
	}
	opts.MaxBatch = cmp.Or(opts.MaxBatch, defaults.MaxBatch)
	opts.MaxPending = cmp.Or(opts.MaxPending, defaults.MaxPending)
	opts.MaxAhead = cmp.Or(opts.MaxAhead, defaults.MaxAhead)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Log{opts: opts, log: opts.Logger.With("component", "eventlog"), rate: rate.NewLimiter(rate.Inf, 0)}
	if opts.MaxRate > 0 {
		l.rate = rate.NewLimiter(rate.Limit(opts.MaxRate), int(max(opts.MaxRate, int64(opts.Broker.MaxPayload()))))
	}
	l.rare = rarelog.New(l.log)
	l.SetMinFree(opts.MinFree)
	for i := range opts.Partitions {
		p := &partition{id: i, wake: make(chan struct{}, 1), number: opts.Number}
		p.caught.L = &p.mu
		if i < len(opts.Lost) {
			p.lost = opts.Lost[i]
		}
		l.parts = append(l.parts, p)
	}
	l.metrics = newMetrics(opts.Registerer, l)
	return l, nil
}

// Start opens the streams and starts their writers.
func (l *Log) Start(ctx context.Context) error {
	l.js = l.opts.Broker.JetStream()
	for _, p := range l.parts {
		var err error
		if p.stream, p.streamID, err = openStream(ctx, l.opts.Broker, p.id, l.opts.Partitions); err != nil {
			return fmt.Errorf("open event log partition %d: %w", p.id, err)
		}
		p.subject, p.outage.Stream = l.opts.Broker.Subject(subject(p.id)), streamName(p.id)
		if p.mark, err = l.opts.Broker.Mark(streamName(p.id)); err != nil {
			return err
		}
	}
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	watchCtx, stopWatch := context.WithCancel(runCtx)
	l.cancel, l.stopWatch = cancel, stopWatch
	l.checkDisk()
	l.done.Go(func() { l.watchDisk(watchCtx) })
	for _, p := range l.parts {
		l.done.Go(func() { l.write(runCtx, p) })
	}
	return nil
}

// StopWaiting must be called before Stop: from now on an Append that would wait fails with ErrNoRoom, and so does one that
// waits. Otherwise parts that stop before the log could wait for it, on a full disk for ever.
func (l *Log) StopWaiting() {
	l.noWaiting.Store(true)
	for _, p := range l.parts {
		p.mu.Lock()
		p.refuseBlocked(ErrNoRoom)
		p.mu.Unlock()
	}
}

// refuseBlocked ends all appends that wait for room. The caller holds mu, and has made sure that no more will wait.
func (p *partition) refuseBlocked(err error) {
	for c := range p.queues {
		for p.queues[c].first != nil {
			p.queues[c].pop().done <- err
		}
	}
	p.blocked = 0
}

// Stop commits what has gathered, then ends the writers. Records that cannot be committed are reported to their Ackers
// with ErrClosed. A reader that is not stopped goes on to answer for the messages that it has been handed.
func (l *Log) Stop() error {
	if l.cancel == nil {
		return nil
	}
	for _, p := range l.parts {
		p.mu.Lock()
		p.closed = true
		if p.rested != nil {
			p.rested.Stop()
		}
		p.refuseBlocked(ErrClosed)
		p.caught.Broadcast()
		p.mu.Unlock()
		p.signal()
	}
	l.stopWatch()
	// The writers end by themselves once their buffers are empty. The timer ends them if the broker does not answer.
	timer := time.AfterFunc(5*time.Second, l.cancel)
	l.done.Wait()
	timer.Stop()
	l.cancel()
	l.cancel = nil
	return nil
}

// Origin returns this backend's id.
func (l *Log) Origin() string { return l.opts.Origin }

// NumberFrom makes the batches of a partition have numbers above number, which is that of this backend's newest batch
// in the log. It must be called before the first record is appended. It is a second guard beside Options.Number: a state
// directory may be an old copy, or of an earlier release whose clock was ahead. Then the batch that the process before
// had under way may still come into the log, so the numbers right behind are left out.
func (l *Log) NumberFrom(partition int, number uint64) {
	p := l.parts[partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	if number > p.number {
		p.number = number + numbersLeftOut
	}
}

// numbersLeftOut is more batches of a partition than a process has under way.
const numbersLeftOut = 1 << 20

// SetRoster says which roster of a partition is the newest. Package fold calls it.
func (l *Log) SetRoster(partition int, number uint64) {
	p := l.parts[partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.roster = number
}

// Partitions returns the number of partitions.
func (l *Log) Partitions() int { return len(l.parts) }

// Partition returns the partition of an entity's records.
func (l *Log) Partition(namespace, entity string) int {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(namespace)
	_, _ = d.Write([]byte{0})
	_, _ = d.WriteString(entity)
	return int(d.Sum64() % uint64(len(l.parts)))
}

// Err returns why the log takes no records at present, or nil.
func (l *Log) Err() error {
	if l.full.Load() {
		return ErrDiskFull
	}
	for _, p := range l.parts {
		p.mu.Lock()
		err := p.err
		p.mu.Unlock()
		if err != nil {
			return fmt.Errorf("event log partition %d: %w", p.id, err)
		}
	}
	return nil
}

// MaxRecord returns the size of the largest record, in bytes. Its body must be a little smaller.
func (l *Log) MaxRecord() int { return l.opts.Broker.MaxPayload() - batchOverhead - frameOverhead }

// Append puts a record into its partition's next commit. r and its body may be reused when it returns. If acker is not
// nil, it gets token when the record is durable. Append waits while the buffer is full. A record that the broker could
// not store even alone is refused with a *resource.TooLargeError.
func (l *Log) Append(r *Record, acker Acker, token uint64) error {
	return l.add(context.Background(), r, acker, token, true)
}

// AppendContext is Append, but stops waiting for room when ctx ends: then the record is not in the log, and acker is
// not called.
func (l *Log) AppendContext(ctx context.Context, r *Record, acker Acker, token uint64) error {
	return l.add(ctx, r, acker, token, true)
}

// TryAppend is Append, but fails with ErrNoRoom instead of waiting. A record that is not large overtakes appends that
// wait, which have their own share of the buffer: agents that are read without waiting must not stand still while
// others wait.
func (l *Log) TryAppend(r *Record, acker Acker, token uint64) error {
	return l.add(context.Background(), r, acker, token, false)
}

// AppendTo is AppendContext for a record about a partition instead of an entity.
func (l *Log) AppendTo(ctx context.Context, partition int, r *Record, acker Acker, token uint64) error {
	return l.addTo(ctx, l.parts[partition], r, acker, token, true)
}

func (l *Log) add(ctx context.Context, r *Record, acker Acker, token uint64, wait bool) error {
	return l.addTo(ctx, l.parts[l.Partition(r.Namespace, r.Entity)], r, acker, token, wait)
}

func (l *Log) addTo(ctx context.Context, p *partition, r *Record, acker Acker, token uint64, wait bool) error {
	size := maxSize(r)
	if size > l.MaxRecord() {
		return &resource.TooLargeError{What: "event", Size: size, Limit: l.MaxRecord()}
	}
	c := classOf(r, size)
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return ErrClosed
	}
	if (wait || c == large) && p.waits(c) || c > urgent && p.rested != nil || !l.fits(p, size, l.limit(c, false)) {
		if !wait || l.noWaiting.Load() {
			p.mu.Unlock()
			return ErrNoRoom
		}
		return l.waitForRoom(ctx, p, r, waiter{acker, token}, size, c)
	}
	wake := l.put(p, r, waiter{acker, token})
	l.next(p)
	p.mu.Unlock()
	if wake {
		p.signal()
	}
	return nil
}

// put adds a record to the buffer, and reports whether the writer must be woken. The caller holds mu.
func (l *Log) put(p *partition, r *Record, w waiter) (wake bool) {
	first := len(p.waiting) == 0
	if first {
		p.number++
		p.buf = startBatch(p.buf[:0], Header{Origin: l.opts.Origin, Number: p.number, Roster: p.roster})
		p.since = time.Now()
	}
	p.buf = appendFramed(p.buf, r)
	p.waiting = append(p.waiting, w)
	return first || len(p.buf) >= l.opts.MaxBatch
}

// waits reports whether an append waits that a record of the class must not overtake. The caller holds mu.
func (p *partition) waits(c class) bool {
	for i := range c + 1 {
		if p.queues[i].first != nil {
			return true
		}
	}
	return false
}

// fits reports whether a record of that size fits into the buffer, filled up to limit, so that the batch is still one
// message of the broker. The caller holds mu.
func (l *Log) fits(p *partition, size, limit int) bool {
	if len(p.waiting) == 0 {
		return true
	}
	return len(p.buf) <= limit && len(p.buf)+frameOverhead+size+crc32.Size <= l.opts.Broker.MaxPayload()
}

// limit returns how full the buffer may be, in bytes, for a record of the class to go in. Results that have waited get
// half of it: the rest is for appends that do not wait.
func (l *Log) limit(c class, waited bool) int {
	switch {
	case c == urgent:
		return l.opts.MaxPending + l.opts.MaxPending/4
	case c == large || waited:
		return l.opts.MaxPending / 2
	}
	return l.opts.MaxPending
}

// Waited returns how long the oldest append has waited for room, among large records and among all others; 0 if none
// waits.
func (l *Log) Waited(now time.Time) (others, largeOnes time.Duration) {
	for _, p := range l.parts {
		p.mu.Lock()
		for c := range p.queues {
			first, longest := p.queues[c].first, &others
			if class(c) == large {
				longest = &largeOnes
			}
			if first != nil {
				*longest = max(*longest, now.Sub(first.since))
			}
		}
		p.mu.Unlock()
	}
	return others, largeOnes
}

// Room reports whether a partition takes results at present. It costs next to nothing.
func (l *Log) Room(partition int) bool { return !l.parts[partition].full.Load() }

// next serves the appends that wait for room, and records whether results have to wait. The caller holds mu, and has
// changed something that this depends on.
func (l *Log) next(p *partition) {
	if p.blocked > 0 {
		l.serve(p)
	}
	if full := p.rested != nil || len(p.buf) > l.opts.MaxPending; full != p.full.Load() {
		p.full.Store(full)
	}
}

// serve puts the records of waiting appends into the buffer while they fit: class by class, each queue in its order,
// and results up to half of the buffer. A class waits until no earlier one waits, but the first of a class that was
// passed over begins the next batch: a record may be so large that it fits only there. The caller holds mu.
func (l *Log) serve(p *partition) {
	wake := false
	take := func(q *queue) {
		b := q.pop()
		p.blocked--
		wake = l.put(p, &b.record, b.waiter) || wake
		b.done <- nil
	}
	if len(p.waiting) == 0 && p.rested == nil {
		for c := classes - 1; c > urgent; c-- {
			first := p.queues[c].first
			if first == nil {
				continue
			}
			if first.passed && l.fits(p, first.size, l.limit(c, true)) {
				take(&p.queues[c])
			}
			first.passed = p.waits(c - 1)
		}
	}
	for c := range classes {
		if c > urgent && p.rested != nil {
			break
		}
		q := &p.queues[c]
		for q.first != nil && l.fits(p, q.first.size, l.limit(c, true)) {
			take(q)
		}
		if q.first != nil {
			break
		}
	}
	if wake {
		p.signal()
	}
}

// waitForRoom waits until the record is in the buffer, until ctx ends, or until appends must not wait. A record that
// is too large for the rest of the message waits for a later commit, at the latest until it is the first of a batch.
// The caller holds mu, which waitForRoom unlocks.
func (l *Log) waitForRoom(ctx context.Context, p *partition, r *Record, w waiter, size int, c class) error {
	begin := time.Now()
	// The copy keeps the caller's record on its stack.
	b := &blockedAppend{record: *r, waiter: w, size: size, since: begin, done: make(chan error, 1)}
	q := &p.queues[c]
	q.push(b)
	p.blocked++
	l.next(p)
	p.mu.Unlock()
	var err error
	select {
	case err = <-b.done:
	case <-ctx.Done():
		err = l.stopWaiting(ctx, p, q, b)
	}
	l.metrics.blocked.Inc()
	l.metrics.blockedSeconds.Add(time.Since(begin).Seconds())
	return err
}

// stopWaiting removes an append from its queue. If it has just left the queue, its result counts.
func (l *Log) stopWaiting(ctx context.Context, p *partition, q *queue, b *blockedAppend) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !q.remove(b) {
		return <-b.done // sent with mu held
	}
	p.blocked--
	l.next(p)
	return fmt.Errorf("wait for room in event log partition %d: %w", p.id, ctx.Err())
}

// appendFramed appends a record behind its length. The length is not known in advance, so four bytes are reserved,
// enough for any record that fits into a message of the broker.
func appendFramed(b []byte, r *Record) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	b = AppendRecord(b, r)
	n := len(b) - at - 4
	b[at], b[at+1], b[at+2], b[at+3] = byte(n)|0x80, byte(n>>7)|0x80, byte(n>>14)|0x80, byte(n>>21)&0x7f
	return b
}

func (p *partition) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// write is a partition's writer: it gathers, takes and publishes records. It calls their Ackers if the partition has
// no reader, or if they could not be published.
func (l *Log) write(ctx context.Context, p *partition) {
	gather := time.NewTimer(0)
	defer gather.Stop()
	for {
		p.mu.Lock()
		empty, closed, size, age := len(p.waiting) == 0, p.closed, len(p.buf), time.Since(p.since)
		p.mu.Unlock()
		if empty {
			if closed {
				return
			}
			select {
			case <-p.wake:
			case <-ctx.Done():
				return
			}
			continue
		}
		if wait := l.opts.FlushInterval - age; wait > 0 && size < l.opts.MaxBatch && !closed {
			gather.Reset(wait)
			select {
			case <-gather.C:
			case <-p.wake:
			case <-ctx.Done():
			}
			continue
		}

		p.mu.Lock()
		for p.ahead.bytes > l.opts.MaxAhead && !p.closed {
			p.caught.Wait()
		}
		buf, waiting := p.buf, p.waiting
		p.buf, p.waiting = p.takeBuffer(), p.takeList()
		since, number := p.since, p.number
		p.under = commit{records: len(waiting), bytes: len(buf), since: since}
		l.next(p)
		p.mu.Unlock()

		buf = finishBatch(buf)
		begin, records := time.Now(), len(waiting)
		seq, err := l.publish(ctx, p, buf, number)
		now := time.Now()
		written := len(buf)
		handed := false
		p.mu.Lock()
		p.under = commit{}
		if err == nil {
			p.newest = max(p.newest, seq)
			p.commits.add(seq, now)
			handed = l.handOver(p, message{seq, buf, waiting})
		} else {
			l.keepBuffer(p, buf)
		}
		p.mu.Unlock()
		if err == nil {
			l.metrics.appended.Add(float64(records))
			l.metrics.bytes.Add(float64(written))
			l.metrics.batchRecords.Observe(float64(records))
			l.metrics.commitSeconds.Observe(now.Sub(begin).Seconds())
			l.metrics.appendSeconds.Observe(now.Sub(since).Seconds())
		}
		if !handed {
			l.answer(p, seq, waiting, err)
		}
		l.rest(p, written)
	}
}

// rest stops results in the partition after a commit of that many bytes, until the rate allows more.
func (l *Log) rest(p *partition, bytes int) {
	wait := l.rate.ReserveN(time.Now(), bytes).Delay()
	if wait == 0 {
		return
	}
	l.rare.Warn("events wait: the log writes a bounded number of bytes a second, to keep memory below --memory-limit", "",
		"bytes_per_second", l.opts.MaxRate)
	l.metrics.heldSeconds.Add(wait.Seconds())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	if p.rested != nil {
		p.rested.Stop() // a later commit's wait is the longer one
	}
	var rested *time.Timer
	rested = time.AfterFunc(wait, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.rested == rested {
			p.rested = nil
			l.next(p)
		}
	})
	p.rested = rested
	l.next(p)
}

// A commit that takes longer is tried again. In a cluster the leader that got it may have died, and the next one is
// elected within seconds.
const (
	commitTimeout        = 5 * time.Second
	clusterCommitTimeout = 1500 * time.Millisecond
	mostCommitPause      = time.Second
	mostClusterPause     = 200 * time.Millisecond
)

// publish commits one message, and retries until it succeeds, because the records are nowhere else. A repeat has the
// same message id, so it counts once if an earlier try arrived.
func (l *Log) publish(ctx context.Context, p *partition, msg []byte, number uint64) (seq uint64, err error) {
	id := l.opts.Origin + "-" + strconv.FormatUint(number, 36)
	pause, mostPause, timeout := 50*time.Millisecond, mostCommitPause, commitTimeout
	if !l.opts.Broker.Alone() {
		mostPause, timeout = mostClusterPause, clusterCommitTimeout
	}
	for {
		if l.full.Load() {
			err = ErrDiskFull
		} else {
			tryCtx, cancel := context.WithTimeout(ctx, timeout)
			var ack *jetstream.PubAck
			ack, err = l.js.Publish(tryCtx, p.subject, msg, jetstream.WithMsgID(id))
			cancel()
			if err == nil {
				p.setErr(nil)
				p.outage.Answered()
				p.mark.Stored(ack.Sequence)
				return ack.Sequence, nil
			}
		}
		err = l.opts.Broker.Explain(err)
		l.metrics.failures.Inc()
		if errors.Is(err, context.DeadlineExceeded) && !l.full.Load() {
			err = errors.Join(fmt.Errorf("no answer within %s", timeout), l.opts.Broker.TimedOut(&p.outage))
		}
		if p.setErr(err) {
			l.log.Error("commit failed, trying again until it succeeds", "partition", p.id, "err", err)
		}
		p.mu.Lock()
		closed := p.closed
		p.mu.Unlock()
		if closed {
			return 0, ErrClosed
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return 0, ErrClosed
		}
		pause = min(2*pause, mostPause)
	}
}

// setErr records the result of the last commit, and reports whether it differs from the one before.
func (p *partition) setErr(err error) (news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	news = (p.err == nil) != (err == nil)
	p.err = err
	return news
}

func (l *Log) watchDisk(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.checkDisk()
		case <-ctx.Done():
			return
		}
	}
}

// SetMinFree replaces Options.MinFree.
func (l *Log) SetMinFree(bytes uint64) { l.minFree.Store(bytes) }

// checkDisk refuses records before the disk is really full. The broker gives up for good when a write fails for lack
// of space, whereas the log goes on by itself when there is space again.
func (l *Log) checkDisk() {
	free, err := FreeSpace(l.opts.Dir)
	if err != nil {
		l.log.Error("free space is unknown", "dir", l.opts.Dir, "err", err)
		return
	}
	l.free.Store(free)
	full := free < l.minFree.Load()
	if l.full.Swap(full) != full {
		if full {
			l.log.Error("disk is nearly full: no events are taken", "dir", l.opts.Dir, "free_bytes", free, "needed_bytes", l.minFree.Load())
		} else {
			l.log.Info("disk has space again: events are taken", "dir", l.opts.Dir, "free_bytes", free)
		}
	}
}

// Bounds returns the sequence numbers of a partition's first and last message; last is 0 if there is none.
func (l *Log) Bounds(ctx context.Context, partition int) (first, last uint64, err error) {
	p := l.parts[partition]
	st, err := l.await(ctx, p)
	if err != nil {
		return 0, 0, err
	}
	last, err = p.newestOf(ctx, st)
	return st.FirstSeq, last, err
}

// lookTimeout bounds one question for the state of a stream in a cluster, and lookWait all of them.
const (
	lookTimeout = 2 * time.Second
	lookWait    = time.Minute
)

// await is look, and asks again in a cluster: the leader that was asked may have died, and the next one is elected within
// seconds.
func (l *Log) await(ctx context.Context, p *partition) (jetstream.StreamState, error) {
	if l.opts.Broker.Alone() {
		return p.look(ctx)
	}
	for begin := time.Now(); ; {
		tryCtx, cancel := context.WithTimeout(ctx, lookTimeout)
		st, err := p.look(tryCtx)
		cancel()
		if err == nil || ctx.Err() != nil || time.Since(begin) > lookWait {
			return st, err
		}
		select {
		case <-time.After(mostClusterPause):
		case <-ctx.Done():
		}
	}
}

// newestOf returns the sequence number of the newest message of a stream in that state; 0 if it has none.
func (p *partition) newestOf(ctx context.Context, st jetstream.StreamState) (uint64, error) {
	switch {
	case st.Msgs == 0:
		return 0, nil
	case st.LastSeq-st.FirstSeq+1 == st.Msgs:
		return st.LastSeq, nil
	}
	// After a repair numbers are missing, at the end too: no message will ever have them.
	newest, err := p.stream.GetLastMsgForSubject(ctx, p.subject)
	if err != nil {
		return 0, fmt.Errorf("look for the last message of event log partition %d: %w", p.id, err)
	}
	return newest.Sequence, nil
}

// look returns the state of the partition's stream from the broker.
func (p *partition) look(ctx context.Context) (jetstream.StreamState, error) {
	info, err := p.stream.Info(ctx)
	if err != nil {
		return jetstream.StreamState{}, fmt.Errorf("look at event log partition %d: %w", p.id, err)
	}
	p.mu.Lock()
	if st := info.State; st.Msgs > 0 && st.LastSeq-st.FirstSeq+1 == st.Msgs {
		p.newest = max(p.newest, st.LastSeq)
	}
	p.stored = info.State.Bytes
	p.mu.Unlock()
	return info.State, nil
}

// Newest returns the sequence number of a partition's newest message that this backend knows of, without asking the
// broker.
func (l *Log) Newest(partition int) uint64 {
	p := l.parts[partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.newest
}

// CommittedAt returns when a message of a partition became durable; false if this process did not write it recently.
func (l *Log) CommittedAt(partition int, seq uint64) (time.Time, bool) {
	p := l.parts[partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.commits.at(seq)
}

// commitTimes remembers when the last messages became durable.
type commitTimes [256]struct {
	seq uint64
	at  int64 // Unix nanoseconds
}

func (c *commitTimes) add(seq uint64, at time.Time) {
	slot := &c[seq%uint64(len(c))]
	slot.seq, slot.at = seq, at.UnixNano()
}

func (c *commitTimes) at(seq uint64) (time.Time, bool) {
	slot := c[seq%uint64(len(c))]
	return time.Unix(0, slot.at), slot.seq == seq && slot.at != 0
}

// Trim removes messages below the sequence, but keeps at least the newest keepBytes of the partition, and what Hold
// holds.
func (l *Log) Trim(ctx context.Context, partition int, below uint64, keepBytes uint64) error {
	p := l.parts[partition]
	p.mark.Took(below)
	st, err := p.look(ctx)
	if err != nil {
		return err
	}
	below = l.held(p, st.Bytes, below)
	if st.Bytes <= keepBytes || st.Msgs == 0 {
		return nil
	}
	// Messages differ in size; their mean is good enough to find the cut.
	mean := max(st.Bytes/st.Msgs, 1)
	cut := min(below, st.FirstSeq+(st.Bytes-keepBytes)/mean)
	if cut <= st.FirstSeq {
		return nil
	}
	p.mark.Trimmed(cut)
	if err := p.stream.Purge(ctx, jetstream.WithPurgeSequence(cut)); err != nil {
		return fmt.Errorf("trim event log partition %d below %d: %w", partition, cut, err)
	}
	return nil
}
