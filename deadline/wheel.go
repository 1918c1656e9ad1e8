// Package deadline notices what has gone quiet: agents without a keepalive, checks without a result in their TTL.
//
// A Wheel holds ids, not due times. Whoever owns the ids (the fold of events) calls Arm when an id gets a deadline or
// an earlier one; that a deadline moves later, as each keepalive makes it, or is called off costs the wheel nothing.
// When the time under which an id was filed comes, the wheel asks the owner when the id is due by now, and files it
// anew, forgets it, or fires it. Who may act on a deadline in a cluster, and what then happens, is the owner's affair.
package deadline

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// WheelOptions wires a Wheel. Due and Fire are called on the wheel's one goroutine, never while it holds a lock.
type WheelOptions struct {
	// Tick is how exactly deadlines are met: an id fires at its due time or less than a tick later. Default 250 ms;
	// whole milliseconds only.
	Tick time.Duration
	// Due tells when an id is due, in Unix milliseconds, or that it has no deadline (any more).
	Due func(id uint64) (unixMilli int64, armed bool)
	// Fire is called once the time that Due told has come. It must be quick, and look again: since Due told, the deadline
	// may have moved. If Due tells a later time when Fire has returned, the wheel goes by that. Otherwise it knows the id
	// no more, even if Due goes on telling the time that has passed, until its owner calls Arm for the next deadline.
	Fire func(id uint64)
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Registerer takes the metrics. Default none.
	Registerer prometheus.Registerer
}

const (
	// slots is the size of the wheel: at the default tick it looks 17 minutes ahead. An id due later is filed in the
	// last slot and again from there, which costs one question each time.
	slots = 4096
	// yieldAfter chunks of one slot, other goroutines get their turn.
	yieldAfter = 8
)

// Wheel files ids by the tick at which to ask for them. It takes 8 bytes for an id in its slot and 4 in the index.
type Wheel struct {
	opts  WheelOptions
	tick  int64 // milliseconds
	fired prometheus.Counter
	stop  chan struct{}
	done  chan struct{}

	// What the goroutine works on, kept for reuse.
	detached []bucket
	later    []filing
	gone     []uint64

	lifecycle sync.Mutex // guards the two below
	started   bool
	stopped   bool

	mu sync.Mutex // guards the fields below
	// base is the Unix time in milliseconds at which tick 0 was; ahead is by how much the wheel's clock is before the
	// wall clock. It becomes positive when the wall clock is set back: the wheel goes on turning, asks too early, and
	// hears of the right time.
	base, ahead int64
	last        int64  // the wheel's clock when it was last read
	current     uint32 // the tick whose slot was emptied last
	handling    uint32 // the tick whose ids are being asked for; 0 when none is
	slots       [slots]*chunk
	free        *chunk
	index       index
}

// bucket is the content of one slot, taken out of the wheel.
type bucket struct {
	tick uint32
	head *chunk
}

// filing is an id and when it is due, Unix milliseconds.
type filing struct {
	id  uint64
	due int64
}

// chunk is 1 KB of a slot. Chunks are kept for reuse, so a full slot costs no copying and no garbage.
type chunk struct {
	next *chunk
	n    int
	ids  [126]uint64
}

// NewWheel checks the options. Arm may be called before Start.
func NewWheel(opts WheelOptions) (*Wheel, error) {
	if opts.Due == nil || opts.Fire == nil {
		return nil, errors.New("deadline wheel: Due and Fire are required")
	}
	if opts.Tick == 0 {
		opts.Tick = 250 * time.Millisecond
	}
	if opts.Tick < time.Millisecond || opts.Tick%time.Millisecond != 0 {
		return nil, fmt.Errorf("deadline wheel: Tick %s is not a positive number of milliseconds", opts.Tick)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	now := opts.Now().UnixMilli()
	w := &Wheel{
		opts:  opts,
		tick:  opts.Tick.Milliseconds(),
		stop:  make(chan struct{}),
		done:  make(chan struct{}),
		base:  now,
		last:  now,
		index: newIndex(),
		fired: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_deadline_fired_total", Help: "Deadlines that passed."}),
	}
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(w.fired, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lapwing_deadline_armed",
			Help: "Ids in the wheel, with those called off that it has not asked about yet.",
		}, func() float64 { return float64(w.Len()) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lapwing_deadline_late_seconds",
			Help: "How long ago the tick was due that the wheel has not handled yet; 0 when it has handled all.",
		}, func() float64 { return w.late().Seconds() }))
	}
	return w, nil
}

// Start begins to turn the wheel. The context is not kept.
func (w *Wheel) Start(context.Context) error {
	w.lifecycle.Lock()
	defer w.lifecycle.Unlock()
	if w.started || w.stopped {
		return errors.New("start deadline wheel: started or stopped before")
	}
	w.started = true
	go w.run()
	return nil
}

// Stop ends the wheel for good. No Due or Fire runs after it has returned.
func (w *Wheel) Stop() error {
	w.lifecycle.Lock()
	if !w.stopped {
		w.stopped = true
		close(w.stop)
	}
	started := w.started
	w.lifecycle.Unlock()
	if started {
		<-w.done
	}
	return nil
}

// Len is the number of ids in the wheel.
func (w *Wheel) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.index.armed
}

// late is how long ago the first tick was due that is not handled.
func (w *Wheel) late() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	tick := w.handling
	if tick == 0 {
		tick = w.current + 1
	}
	due := w.base + int64(tick)*w.tick
	return max(0, time.Duration(w.clock()-due)*time.Millisecond)
}

// Arm says that id has a deadline, or an earlier one than the wheel may know of. Due must tell it already. The caller
// may hold locks that Due takes.
func (w *Wheel) Arm(id uint64, due int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.place(id, due)
}

// place files id under its due time, unless it is filed there or earlier: then the wheel will ask in time anyway. If it
// is filed later, that entry stays where it is; the index no longer points at it, so it is dropped when its tick comes.
func (w *Wheel) place(id uint64, due int64) {
	tick := w.tickOf(due)
	if filed := w.index.get(id); filed != 0 && filed <= tick {
		return
	}
	w.index.set(id, tick)
	slot := &w.slots[tick%slots]
	c := *slot
	if c == nil || c.n == len(c.ids) {
		c = w.newChunk()
		c.next, *slot = *slot, c
	}
	c.ids[c.n] = id
	c.n++
}

// tickOf is the first tick not before the time, within what the wheel can hold.
func (w *Wheel) tickOf(due int64) uint32 {
	begin := w.base - w.ahead // wall clock at tick 0
	if due <= begin {
		return w.current + 1
	}
	tick := (due-begin-1)/w.tick + 1
	return uint32(min(max(tick, int64(w.current)+1), int64(w.current)+slots-1))
}

func (w *Wheel) newChunk() *chunk {
	c := w.free
	if c == nil {
		return new(chunk)
	}
	w.free = c.next
	c.next, c.n = nil, 0
	return c
}

func (w *Wheel) run() {
	defer close(w.done)
	timer := time.NewTimer(w.untilNextTick())
	defer timer.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-timer.C:
		}
		w.turn()
		timer.Reset(w.untilNextTick())
	}
}

// clock reads the wheel's clock, which never goes back.
func (w *Wheel) clock() int64 {
	now := w.opts.Now().UnixMilli() + w.ahead
	if now < w.last {
		w.ahead += w.last - now
		now = w.last
	}
	w.last = now
	return now
}

func (w *Wheel) untilNextTick() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := w.base + (int64(w.current)+1)*w.tick
	return time.Duration(next-w.clock()) * time.Millisecond
}

// turn handles all slots whose tick has come.
func (w *Wheel) turn() {
	w.mu.Lock()
	now := w.clock()
	// No entry is further ahead than slots, so when the clock jumps further (a machine that slept) it is the same as if
	// it had jumped just so far, and the ticks in between need no number.
	ticks := max(0, (now-w.base)/w.tick-int64(w.current))
	if skip := ticks - slots; skip > 0 {
		w.base += skip * w.tick
		ticks = slots
	}
	w.detached = w.detached[:0]
	for range ticks {
		w.current++
		if head := w.slots[w.current%slots]; head != nil {
			w.slots[w.current%slots] = nil
			w.detached = append(w.detached, bucket{w.current, head})
		}
	}
	w.mu.Unlock()

	defer w.handled()
	chunks := 0
	for _, b := range w.detached {
		for c := b.head; c != nil; {
			select {
			case <-w.stop:
				return
			default:
			}
			next := c.next
			w.handle(b.tick, c)
			c = next
			if chunks++; chunks%yieldAfter == 0 {
				runtime.Gosched()
			}
		}
	}
}

// handled notes that there is nothing left to handle.
func (w *Wheel) handled() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handling = 0
}

// handle asks for each id of a chunk that was filed under the tick, fires those that are due, and puts the chunk back
// for reuse.
func (w *Wheel) handle(tick uint32, c *chunk) {
	ids := c.ids[:0]
	w.mu.Lock()
	w.handling = tick
	for _, id := range c.ids[:c.n] {
		if w.index.get(id) == tick {
			w.index.set(id, 0)
			ids = append(ids, id)
		}
	}
	w.mu.Unlock()

	due := w.refile(ids)
	for _, id := range due {
		w.opts.Fire(id)
	}
	w.fired.Add(float64(len(due)))
	// A deadline may have moved after Due told it and before Fire acted on it. Its owner saw the move of an id that is
	// armed, and needed not tell.
	w.refile(due)

	w.mu.Lock()
	c.next, w.free = w.free, c
	w.mu.Unlock()
}

// refile asks for ids that are out of the wheel, files those due later, and returns those due now, in place. If Arm
// filed an id meanwhile, the earlier of the two times stays.
func (w *Wheel) refile(ids []uint64) (due []uint64) {
	now := w.opts.Now().UnixMilli()
	due, w.later, w.gone = ids[:0], w.later[:0], w.gone[:0]
	for _, id := range ids {
		at, armed := w.opts.Due(id)
		switch {
		case armed && at > now:
			w.later = append(w.later, filing{id, at})
		case armed:
			due = append(due, id)
			fallthrough
		default:
			w.gone = append(w.gone, id)
		}
	}
	w.mu.Lock()
	for _, f := range w.later {
		w.place(f.id, f.due)
	}
	for _, id := range w.gone {
		w.index.release(id)
	}
	w.mu.Unlock()
	return due
}
