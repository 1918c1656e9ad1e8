package member

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/metric/spill"
)

const (
	// flushPoints and flushEvery bound how long points are gathered for a batch.
	flushPoints = 5000
	flushEvery  = 100 * time.Millisecond
	// maxFilled bounds the gathered points that are not encoded yet, in units of flushPoints.
	maxFilled = 64
	// maxQueue bounds the batches in memory, in bytes.
	maxQueue = 16 << 20
	// askTimeout is how long a member has to answer for a batch.
	askTimeout = 3 * time.Second
	// firstPause and mostPause are between two attempts to send a batch.
	firstPause, mostPause = 50 * time.Millisecond, 2 * time.Second
	// awayPoll is how often it is looked whether a member is back.
	awayPoll = 100 * time.Millisecond
	// lastSends is how long Stop waits for batches in memory to be sent before it puts them on disk.
	lastSends = 2 * time.Second
)

// Peer takes points for one other member. Its queue is in the order of Add: batches are in memory as long as the member
// answers, and on disk from the first that it does not answer for until it has got them all. One batch is under way at
// a time, so that a member gets the points of a series in their order.
type Peer struct {
	group *Group
	id    string
	away  atomic.Bool
	full  atomic.Bool // memory and disk are full
	spill *spill.Spill

	mu     sync.Mutex // guards the fields below
	points []point
	filled [][]point
	spare  [][]point
	added  uint64
	ended  bool
	wake   chan struct{} // for the encoder: filled has grown

	qmu        sync.Mutex // guards the fields below; never locked together with mu
	queue      []batch
	queueBytes int
	queued     int // points in queue
	next       uint64
	// spilling says that the spill has batches, which are older than those of the queue.
	spilling bool
	buffer   []byte

	ready    chan struct{} // for the sender: there is a batch
	safe     atomic.Uint64 // points of added that were delivered or dropped, or are on disk
	settling atomic.Int64  // calls that wait for safe

	stopEncoder, stopSender context.CancelFunc
	encoding, sending       sync.WaitGroup
}

// batch is an encoded batch in memory.
type batch struct {
	number  uint64
	payload []byte
	points  int
}

func newPeer(g *Group, id, dir string) (*Peer, error) {
	s, err := spill.Open(spill.Options{Dir: dir, MaxBytes: g.opts.SpillBytes})
	if err != nil {
		return nil, fmt.Errorf("open the queue of points for member %s: %w", id, err)
	}
	p := &Peer{group: g, id: id, spill: s, wake: make(chan struct{}, 1), ready: make(chan struct{}, 1)}
	p.points = make([]point, 0, flushPoints)
	p.spilling = s.Bytes() > 0
	return p, nil
}

func (p *Peer) start() {
	encoder, stopEncoder := context.WithCancel(context.Background())
	sender, stopSender := context.WithCancel(context.Background())
	p.stopEncoder, p.stopSender = stopEncoder, stopSender
	p.encoding.Go(func() { p.encode(encoder) })
	p.sending.Go(func() { p.send(sender) })
}

// stop sends what it can within a short time, and leaves the rest on disk.
func (p *Peer) stop(ctx context.Context) error {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.stopEncoder()
	p.encoding.Wait()
	if !p.away.Load() {
		ctx, cancel := context.WithTimeout(ctx, lastSends)
		p.until(ctx, func() bool {
			p.qmu.Lock()
			defer p.qmu.Unlock()
			return len(p.queue) == 0 || p.spilling
		})
		cancel()
	}
	p.stopSender()
	p.sending.Wait()
	p.qmu.Lock()
	defer p.qmu.Unlock()
	err := p.toDisk()
	if p.queued > 0 {
		p.group.metrics.dropped.Add(float64(p.queued))
		err = fmt.Errorf("%d points for member %s are lost: %w", p.queued, p.group.nameOf(p.id), err)
	}
	return errors.Join(err, p.spill.Close())
}

// until polls a condition until it holds or ctx ends, and reports whether it holds.
func (p *Peer) until(ctx context.Context, holds func() bool) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return holds()
		}
	}
	return true
}

// Add takes a point. It never waits: if there is no room the point is dropped and counted.
func (p *Peer) Add(name string, use Use, unixMilli int64, value float64) {
	p.mu.Lock()
	if len(p.points) == flushPoints && !p.fill() || p.ended {
		p.mu.Unlock()
		p.group.metrics.dropped.Inc()
		return
	}
	p.points = append(p.points, point{name, unixMilli, value, use})
	p.added++
	if len(p.points) == flushPoints {
		p.fill()
	}
	p.mu.Unlock()
}

// fill passes the gathered points to the encoder, if there is room. mu is locked.
func (p *Peer) fill() bool {
	if len(p.filled) >= maxFilled {
		return false
	}
	p.filled = append(p.filled, p.points)
	if n := len(p.spare); n > 0 {
		p.points = p.spare[n-1]
		p.spare = p.spare[:n-1]
	} else {
		p.points = make([]point, 0, flushPoints)
	}
	signal(p.wake)
	return true
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// waiting returns how many points are in memory.
func (p *Peer) waiting() int {
	p.mu.Lock()
	n := len(p.points)
	for _, f := range p.filled {
		n += len(f)
	}
	p.mu.Unlock()
	p.qmu.Lock()
	defer p.qmu.Unlock()
	return n + p.queued
}

// encode makes batches of what is gathered, until ctx ends, and then of the rest.
func (p *Peer) encode(ctx context.Context) {
	var e encoder
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		ended := false
		select {
		case <-p.wake:
		case <-tick.C:
			p.flush()
			p.rescue()
		case <-ctx.Done():
			ended = true
			p.mu.Lock()
			p.filled = append(p.filled, p.points)
			p.points = nil
			p.mu.Unlock()
		}
		for points := p.take(); points != nil; points = p.take() {
			for rest := points; len(rest) > 0; {
				payload, n := e.encode(rest)
				p.enqueue(ctx, bytes.Clone(payload), n)
				rest = rest[n:]
			}
			p.giveBack(points)
		}
		if ended {
			return
		}
	}
}

// take returns the oldest gathered points, nil for none.
func (p *Peer) take() []point {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.filled) == 0 {
		return nil
	}
	points := p.filled[0]
	copy(p.filled, p.filled[1:])
	p.filled[len(p.filled)-1] = nil
	p.filled = p.filled[:len(p.filled)-1]
	return points
}

func (p *Peer) giveBack(points []point) {
	clear(points)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.spare) < 4 && cap(points) >= flushPoints {
		p.spare = append(p.spare, points[:0])
	}
}

// rescue puts the batches of a member that is away on disk: this process may be killed before the member is back.
func (p *Peer) rescue() {
	p.qmu.Lock()
	defer p.qmu.Unlock()
	if p.away.Load() || p.spilling {
		p.full.Store(p.toDisk() != nil)
	}
}

// enqueue adds a batch to the queue. It waits while memory and disk are full; after ctx has ended it drops the batch
// then.
func (p *Peer) enqueue(ctx context.Context, payload []byte, points int) {
	for {
		if p.tryEnqueue(payload, points) {
			return
		}
		p.full.Store(true)
		select {
		case <-time.After(flushEvery):
		case <-ctx.Done():
			p.group.metrics.dropped.Add(float64(points))
			p.safe.Add(uint64(points))
			return
		}
	}
}

func (p *Peer) tryEnqueue(payload []byte, points int) bool {
	p.qmu.Lock()
	defer p.qmu.Unlock()
	if p.queueBytes+len(payload) > maxQueue {
		if err := p.toDisk(); err != nil && p.queueBytes+len(payload) > maxQueue {
			return false
		}
	}
	p.full.Store(false)
	p.queue = append(p.queue, batch{p.next, payload, points})
	p.next++
	p.queueBytes += len(payload)
	p.queued += points
	if p.spilling || p.away.Load() {
		_ = p.toDisk() // it has room in memory, and rescue tries again
	}
	signal(p.ready)
	return true
}

// toDisk moves the queue to the spill. qmu is locked. Batches that do not fit stay, and are newer than the spill's.
func (p *Peer) toDisk() error {
	for len(p.queue) > 0 {
		b := &p.queue[0]
		p.buffer = append(p.buffer[:0], b.payload...) // the payload itself may be on its way
		delay(p.buffer)
		if err := p.spill.Append(p.buffer); err != nil {
			p.group.rare.Warn("points for another member cannot be put on disk", p.id,
				"member", p.group.nameOf(p.id), "err", err)
			return err
		}
		p.spilling = true
		p.group.metrics.spilled.Add(float64(b.points))
		p.shift()
	}
	return nil
}

// shift takes the first batch off the queue, because it is delivered or on disk. qmu is locked.
func (p *Peer) shift() {
	b := &p.queue[0]
	p.queueBytes -= len(b.payload)
	p.queued -= b.points
	p.safe.Add(uint64(b.points))
	*b = batch{}
	if p.queue = p.queue[1:]; len(p.queue) == 0 {
		p.queue = nil
	}
}

// head returns the oldest batch, and whether it is one of the spill. A nil payload is none.
func (p *Peer) head() (b batch, spilled bool) {
	p.qmu.Lock()
	defer p.qmu.Unlock()
	if p.spilling {
		payload, err := p.spill.Next()
		switch {
		case err == nil:
			return batch{payload: payload}, true
		case errors.Is(err, io.EOF):
			p.spilling = false
		default:
			p.group.rare.Error("points for another member cannot be read from disk", p.id,
				"member", p.group.nameOf(p.id), "err", err)
			return batch{}, false
		}
	}
	if len(p.queue) == 0 {
		return batch{}, false
	}
	return p.queue[0], false
}

// send sends batches until ctx ends.
func (p *Peer) send(ctx context.Context) {
	failed := 0
	for ctx.Err() == nil {
		if p.away.Load() {
			pause(ctx, awayPoll)
			continue
		}
		b, spilled := p.head()
		if b.payload == nil {
			select {
			case <-p.ready:
			case <-time.After(mostPause): // a spill that could not be read may be readable now
			case <-ctx.Done():
			}
			continue
		}
		began := time.Now()
		err := p.ask(ctx, b.payload)
		if err == nil {
			failed = 0
			p.group.metrics.seconds.Observe(time.Since(began).Seconds())
			p.delivered(b, spilled)
			if p.settling.Load() > 0 {
				p.flushIdle()
			}
			continue
		}
		if ctx.Err() != nil {
			return
		}
		p.group.metrics.failures.Inc()
		p.group.rare.Warn("another member has not taken points, they are sent again", p.id,
			"member", p.group.nameOf(p.id), "err", err)
		// One quick failure may be chance, for example too many questions at a time.
		if failed++; failed > 1 || time.Since(began) > time.Second {
			p.qmu.Lock()
			_ = p.toDisk() // what does not fit stays in memory
			p.qmu.Unlock()
		}
		pause(ctx, min(firstPause<<min(failed-1, 10), mostPause))
	}
}

func (p *Peer) ask(ctx context.Context, payload []byte) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := p.group.opts.Ask(ctx, p.id, PointsQuestion, payload)
	return err
}

func (p *Peer) delivered(b batch, spilled bool) {
	points := b.points
	p.qmu.Lock()
	if spilled {
		points = countPoints(b.payload)
		p.spill.Done()
	} else if len(p.queue) > 0 && p.queue[0].number == b.number {
		p.shift() // else it has been put on disk meanwhile, and is sent again
	}
	p.qmu.Unlock()
	p.group.metrics.sent.Add(float64(points))
}

func countPoints(payload []byte) (n int) {
	_ = Decode(payload, func([]byte, Use, int64, float64) error { n++; return nil }) // the member has read it
	return n
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// flush has the points that were added before sent at once.
func (p *Peer) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.points) > 0 && !p.ended {
		p.fill()
	}
}

// flushIdle is flush if no batch waits or is under way. Else points are gathered meanwhile, so that many short connections
// share batches.
func (p *Peer) flushIdle() {
	p.qmu.Lock()
	idle := len(p.queue) == 0
	p.qmu.Unlock()
	if idle {
		p.flush()
	}
}

// settle waits until all points that were added before are delivered or on disk.
func (p *Peer) settle(ctx context.Context) error {
	p.mu.Lock()
	mark := p.added
	p.mu.Unlock()
	if p.until(ctx, func() bool { return p.safe.Load() >= mark }) {
		return nil
	}
	return fmt.Errorf("pass points on to member %s: %w", p.group.nameOf(p.id), ctx.Err())
}
