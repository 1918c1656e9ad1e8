// Package wheel is a timing wheel for millions of ids whose due times move all the time. Package backend holds the
// deadlines of entities and checks in one: state arms it, and intake takes what fires.
//
// The wheel holds ids, not due times. The owner of the ids calls Arm when an id gets a due time or an earlier one. It
// need not call when a due time moves later or is cancelled, so that costs the wheel nothing. When the time comes under
// which an id was filed, the wheel calls Due, and then files the id again, forgets it, or calls Fire. What an id means,
// and whether it is still due in Fire, is up to the owner.
package wheel

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Options configures a Wheel. The wheel calls Due and Fire on its one goroutine, without holding a lock.
type Options struct {
	// Tick is the precision: an id fires at its due time or less than a tick later. Whole milliseconds. Default 250 ms.
	Tick time.Duration
	// Due returns when an id is due, in Unix milliseconds; false if it is not due at all. Required.
	Due func(id uint64) (unixMilli int64, armed bool)
	// Fire is called when the time that Due returned has come. It must be quick, and must check that the id is still due. If Due
	// returns a later time after Fire, the wheel files the id under that. Otherwise the wheel forgets the id until Arm is called
	// for it again. Required.
	Fire func(id uint64)
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

const (
	// slots is the size of the wheel: at the default tick it covers 17 minutes. An id due later is filed in the last
	// slot and again from there, which costs one call of Due each time.
	slots = 4096
	// yieldAfter chunks of one slot, other goroutines get their turn.
	yieldAfter = 8
)

// Wheel files ids by the tick at which to call Due. It takes 8 bytes for an id in its slot and 4 in the index.
type Wheel struct {
	opts  Options
	tick  int64 // milliseconds
	fired atomic.Uint64
	stop  chan struct{}
	done  chan struct{}

	// Memory of the goroutine, kept for reuse.
	detached []bucket
	later    []filing
	gone     []uint64

	lifecycle sync.Mutex // guards the two below
	started   bool
	stopped   bool

	mu sync.Mutex // guards the fields below
	// base is the Unix time of tick 0 in milliseconds; ahead is how far the wheel's clock is ahead of the wall clock.
	// It becomes positive when the wall clock is set back: the wheel continues to turn, calls Due too early, and gets
	// the right time.
	base, ahead int64
	last        int64  // the wheel's clock when it was last read
	current     uint32 // the tick whose slot was emptied last
	handling    uint32 // the tick whose ids are being handled; 0 if none is
	slots       [slots]*chunk
	free        *chunk
	index       index
}

// bucket is the content of one slot, taken out of the wheel.
type bucket struct {
	tick uint32
	head *chunk
}

// filing is an id with its due time, in Unix milliseconds.
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

// New checks the options. Arm may be called before Start.
func New(opts Options) (*Wheel, error) {
	if opts.Due == nil || opts.Fire == nil {
		return nil, errors.New("wheel: Due and Fire are required")
	}
	if opts.Tick == 0 {
		opts.Tick = 250 * time.Millisecond
	}
	if opts.Tick < time.Millisecond || opts.Tick%time.Millisecond != 0 {
		return nil, fmt.Errorf("wheel: Tick %s is not a positive number of milliseconds", opts.Tick)
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
	}
	return w, nil
}

// Start begins to turn the wheel. The context is not kept.
func (w *Wheel) Start(context.Context) error {
	w.lifecycle.Lock()
	defer w.lifecycle.Unlock()
	if w.started || w.stopped {
		return errors.New("start wheel: started or stopped before")
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

// Fired is how many ids have fired since New.
func (w *Wheel) Fired() uint64 { return w.fired.Load() }

// Late is how long ago the first unhandled tick was due; 0 if there is none.
func (w *Wheel) Late() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	tick := w.handling
	if tick == 0 {
		tick = w.current + 1
	}
	due := w.base + int64(tick)*w.tick
	return max(0, time.Duration(w.clock()-due)*time.Millisecond)
}

// Arm files an id that has got a due time, or an earlier one. Due must return that time already. The caller may hold
// locks that Due takes.
func (w *Wheel) Arm(id uint64, due int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.place(id, due)
}

// place files id under its due time, unless it is filed there or earlier: then the wheel calls Due in time anyway. An
// entry under a later tick stays; the index no longer points at it, so it is dropped when its tick comes.
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

// tickOf returns the first tick not before the time, within the wheel's range.
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
	// No entry is further ahead than slots. So when the clock jumps further (a machine that slept), it is handled as a
	// jump of that length, and the ticks in between need no number.
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

// handled notes that nothing is left to handle.
func (w *Wheel) handled() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handling = 0
}

// handle calls Due for each id of a chunk that was filed under the tick, fires those that are due, and puts the chunk
// back for reuse.
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
	w.fired.Add(uint64(len(due)))
	// A due time may have moved after Due returned it and before Fire acted on it. The owner saw an armed id, so it did
	// not call Arm.
	w.refile(due)

	w.mu.Lock()
	c.next, w.free = w.free, c
	w.mu.Unlock()
}

// refile calls Due for ids that are out of the wheel, files those due later, and returns those due now, in place. If
// Arm filed an id in the meantime, the earlier of the two times stays.
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
