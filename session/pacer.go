package session

import (
	"math"
	"sync"
	"time"
)

// pacer writes queued frames to agents, on one goroutine and without waiting for any agent. The cost is a system call
// on either side, not the bytes. So each agent has one moment in every spread at which all that is due for it leaves
// together. The moments are spread out, so that a fleet is not asked, and does not answer, all at once.
//
// It is a wheel of slots of 10 ms. A session is in a slot only while something waits for it, so idle sessions cost
// nothing.
type pacer struct {
	spread int64 // slots; 0 if nothing is spread
	flush  func(*session, *batch)
	wake   chan struct{} // capacity 1
	stop   chan struct{}
	done   chan struct{}

	mu      sync.Mutex   // guards the fields below; taken after all other locks
	wheel   [][]*session // by slot, modulo its length
	waiting int          // sessions in the wheel
	urgent  []*session   // to be written at once
	current int64        // the slot that was emptied last, counted from 1970
	until   int64        // the slot until which the goroutine sleeps; 0 while it is awake
}

const (
	slotMillis = 10
	never      = math.MaxInt64
	// atOnce is the slot of a session that is to be written at once.
	atOnce = 1
)

// newPacer returns a pacer with a spread in whole slots. It calls flush for each session at its moment.
func newPacer(spread time.Duration, flush func(*session, *batch)) *pacer {
	slots := spread.Milliseconds() / slotMillis
	return &pacer{
		spread: slots, flush: flush, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		// Twice the spread: a session may be put one spread ahead of a clock that is one sleep ahead of current.
		wheel: make([][]*session, 2*slots+2), until: never,
	}
}

// moment returns when a frame that is due at a tick leaves for the agent with this offset, in Unix milliseconds:
// within a spread from the tick, and always at the same moment of a second, so that one write sends all that fell due
// in the second before. Ticks that are whole seconds apart stay as far apart.
func (p *pacer) moment(tick, offset int64) int64 {
	const second = 1000
	if p.spread*slotMillis < second {
		return tick + offset
	}
	wait := (offset - tick) % second
	if wait < 0 {
		wait += second
	}
	return tick + wait + offset/second*second
}

// now writes a session at once. The caller holds its mu.
func (p *pacer) now(s *session) {
	if s.out.turn != atOnce {
		s.out.turn = atOnce
		p.put(s, 0, 0)
	}
}

// turn writes a session at its next moment, unless it is to be written earlier. The caller holds its mu.
func (p *pacer) turn(s *session) {
	if s.out.turn != 0 {
		return
	}
	if p.spread == 0 {
		p.now(s)
		return
	}
	now := time.Now().UnixMilli() / slotMillis
	wait := (s.offset/slotMillis - now) % p.spread
	if wait <= 0 {
		wait += p.spread
	}
	s.out.turn = now + wait
	p.put(s, now+wait, now)
}

// at writes a session at a time in Unix milliseconds, unless it is to be written earlier. The caller holds its mu.
func (p *pacer) at(s *session, due, now int64) {
	if p.spread == 0 || due <= now {
		p.now(s)
		return
	}
	if slot := due / slotMillis; s.out.turn == 0 || slot < s.out.turn {
		s.out.turn = slot
		p.put(s, slot, now/slotMillis)
	}
}

// put adds a session to a slot. A session may be in several slots; the first one writes everything.
func (p *pacer) put(s *session, slot, now int64) {
	p.mu.Lock()
	if p.waiting == 0 {
		p.current = max(p.current, now-1) // current was not updated while the wheel was empty
	}
	if slot <= p.current {
		slot = 0
		p.urgent = append(p.urgent, s)
	} else {
		slot = min(slot, p.current+int64(len(p.wheel))-1)
		list := &p.wheel[slot%int64(len(p.wheel))]
		*list = append(*list, s)
		p.waiting++
	}
	early := slot < p.until
	p.mu.Unlock()
	if early {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// run writes until close.
func (p *pacer) run() {
	defer close(p.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var ready []*session
	var b batch
	for {
		select {
		case <-p.stop:
			return
		case <-p.wake:
		case <-timer.C:
		}
		ready = p.due(ready[:0], time.Now())
		for _, s := range ready {
			p.flush(s, &b)
		}
		clear(ready)
		timer.Reset(p.sleep())
	}
}

// due appends the sessions whose moment has come, in order of their moments.
func (p *pacer) due(ready []*session, at time.Time) []*session {
	now := at.UnixMilli() / slotMillis
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = 0
	ready = append(ready, p.urgent...)
	clear(p.urgent)
	p.urgent = p.urgent[:0]
	from := p.current + 1
	if now < p.current || now-p.current > int64(len(p.wheel)) {
		from = now - int64(len(p.wheel)) + 1 // the clock was set, or there was a long pause: empty all slots
	}
	for slot := from; slot <= now && p.waiting > 0; slot++ {
		list := &p.wheel[slot%int64(len(p.wheel))]
		ready = append(ready, *list...)
		p.waiting -= len(*list)
		clear(*list)
		*list = (*list)[:0]
	}
	p.current = now
	return ready
}

// sleep returns how long there is nothing to do.
func (p *pacer) sleep() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(p.urgent) > 0:
		return 0
	case p.waiting == 0:
		p.until = never
		return time.Hour
	}
	p.until = p.current + 1
	for len(p.wheel[p.until%int64(len(p.wheel))]) == 0 {
		p.until++
	}
	return time.Until(time.UnixMilli(p.until * slotMillis))
}

// close ends run, which must have been started.
func (p *pacer) close() {
	close(p.stop)
	<-p.done
}
