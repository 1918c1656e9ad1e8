package wire

import (
	"slices"
	"sync"
	"time"
)

// Partials bounds the memory of many connections' messages: incomplete ones, and complete ones that wait until their
// readers are done with them. Messages that are read and handled at once are never counted.
//
// At the limit, connections stop reading long messages, and TCP slows the peers down. They continue in their order when
// there is room. Messages shorter than payloadStep may use a quarter more, and those that fit into a read buffer are
// always read. If incomplete messages fill the memory, one connection may exceed the limit to complete its message;
// otherwise all of them would wait for each other.
type Partials struct {
	limit   int64
	longest time.Duration
	cut     func(c *Conn, arrived int64, took time.Duration)

	mu       sync.Mutex // guards the fields below
	arriving int64      // bytes of incomplete messages
	kept     int64      // bytes of complete messages that wait
	oldest   partial    // head of a ring of all incomplete messages, oldest first
	queue    []*partial // connections that stopped reading long messages, and some that were closed since
	shorts   []*partial // the same for short messages
	passed   int64      // bytes of short messages that overtook the first in queue
	stopped  int        // connections that stopped reading
	beyond   *partial   // may exceed the limit
}

// partial is the memory that a connection holds for a message. A connection reuses its own for the next message: at
// full load most reads end within a message, and an allocation for each would cost more than the rest of the read's
// bookkeeping.
type partial struct {
	conn       *Conn
	bytes      int64
	began      time.Time
	prev, next *partial // nil unless the message is incomplete
	kept       bool     // the message is complete

	want  int64         // bytes that the connection waits to hold; 0 if it reads
	leave chan struct{} // capacity 1: gets an element when want is granted, or the connection closed
}

// shortShare is the part of the limit by which messages shorter than payloadStep may exceed it: a few agents with long
// messages must not delay them.
const shortShare = 4

// crowdedShare divides the longest time of a message while slow ones keep others waiting.
const crowdedShare = 8

func (m *partial) arriving() bool { return m != nil && m.next != nil }

// append adds a message at the end of the ring that begins with head.
func (head *partial) append(m *partial) {
	m.prev, m.next = head.prev, head
	m.prev.next, head.prev = m, m
}

func (m *partial) remove() {
	m.prev.next, m.next.prev = m.next, m.prev
	m.prev, m.next = nil, nil
}

// NewPartials returns a Partials that holds at most limit bytes, and each message no longer than longest, if Sweep is
// called regularly. cut is called for each connection that was closed because its message took too long; it must not
// wait.
func NewPartials(limit int64, longest time.Duration, cut func(c *Conn, arrived int64, took time.Duration)) *Partials {
	p := &Partials{limit: limit, longest: longest, cut: cut}
	p.oldest.prev, p.oldest.next = &p.oldest, &p.oldest
	return p
}

// PartialsUse is the use of a Partials.
type PartialsUse struct {
	Arriving int64 // bytes of incomplete messages
	Kept     int64 // bytes of complete messages that wait
	Stopped  int   // connections that wait for room
}

// Use returns how much is in use.
func (p *Partials) Use() PartialsUse {
	p.mu.Lock()
	defer p.mu.Unlock()
	return PartialsUse{p.arriving, p.kept, p.stopped}
}

// hold is called before a connection waits for the rest of a message, with the bytes that it will hold in the meantime.
// If there is no room it waits, or returns false if it may not wait.
func (p *Partials) hold(c *Conn, bytes int64, wait bool) bool {
	p.mu.Lock()
	if c.cutOff { // the next read fails
		p.mu.Unlock()
		return true
	}
	one := c.memory()
	if p.holdsNow(one, bytes) {
		p.mu.Unlock()
		return true
	}
	if wait {
		p.stop(one, bytes)
	}
	p.mu.Unlock()
	if wait {
		<-one.leave
	}
	return wait
}

// memory returns the connection's own entry. The caller holds the mu of its Partials.
func (c *Conn) memory() *partial {
	if c.partial == nil {
		c.partial = &partial{conn: c}
	}
	return c.partial
}

// holdsNow lets a connection hold bytes if there is room, or if they are few. The caller holds mu.
func (p *Partials) holdsNow(one *partial, bytes int64) bool {
	p.begin(one)
	past := one == p.beyond && p.kept+bytes <= p.limit
	switch {
	case bytes <= readSize || past:
	case isShort(bytes):
		if len(p.shorts) > 0 || p.longTurn() || !p.fitsShort(one, bytes) {
			return false
		}
		p.pass(bytes)
	case len(p.queue) > 0 || !p.fits(one, bytes):
		return false
	}
	p.arriving += bytes - one.bytes
	one.bytes = bytes
	return true
}

// begin starts the time of a message that has not started. The caller holds mu.
func (p *Partials) begin(one *partial) {
	if !one.arriving() {
		one.began = time.Now()
		p.oldest.append(one)
	}
}

func (p *Partials) fits(one *partial, bytes int64) bool { return p.needs(one, bytes) <= p.limit }

// needs returns the total if a connection holds bytes. The caller holds mu.
func (p *Partials) needs(one *partial, bytes int64) int64 {
	return p.arriving + p.kept + bytes - one.bytes
}

// isShort reports whether a connection that holds so many bytes reads a short message: a longer one has at least
// payloadStep.
func isShort(bytes int64) bool { return bytes < payloadStep }

// longTurn reports whether a long message goes first: otherwise short ones could delay it without end. The caller holds
// mu.
func (p *Partials) longTurn() bool {
	if firstWaiting(&p.queue) == nil {
		p.passed = 0
	}
	return p.passed > p.limit
}

// pass counts a short message that overtakes a long one. The caller holds mu.
func (p *Partials) pass(bytes int64) {
	if len(p.queue) > 0 {
		p.passed += bytes
	}
}

// fitsShort is fits for a short message: the one message that may exceed the limit does not count. The caller holds mu.
func (p *Partials) fitsShort(one *partial, bytes int64) bool {
	needs := p.needs(one, bytes)
	if p.beyond != nil {
		needs -= p.beyond.bytes
	}
	return needs <= p.limit+p.limit/shortShare
}

// stop makes a connection wait to hold bytes. The one that may exceed the limit goes first. The caller holds mu.
func (p *Partials) stop(one *partial, bytes int64) {
	if one.leave == nil {
		one.leave = make(chan struct{}, 1)
	}
	one.want = bytes
	p.stopped++
	switch {
	case one == p.beyond:
		p.queue = slices.Insert(p.queue, 0, one)
	case isShort(bytes):
		p.shorts = append(p.shorts, one)
	default:
		p.queue = append(p.queue, one)
	}
	p.resume()
}

// resume lets connections continue while there is room: first those with short messages, unless it is the turn of a
// long one, and each sort in its order. The caller holds mu, and calls it after every change that makes room.
func (p *Partials) resume() {
	for p.resumeShort() || p.resumeLong() {
	}
}

// resumeShort lets the first connection that waits with a short message continue, and reports whether it did. The
// caller holds mu.
func (p *Partials) resumeShort() bool {
	one := firstWaiting(&p.shorts)
	if one == nil || p.longTurn() || !p.fitsShort(one, one.want) {
		return false
	}
	p.pass(one.want)
	p.grant(one, &p.shorts)
	return true
}

// resumeLong is resumeShort for a long message, of which one may exceed the limit. The caller holds mu.
func (p *Partials) resumeLong() bool {
	one := firstWaiting(&p.queue)
	switch {
	case one == nil:
		return false
	case p.fits(one, one.want):
	case p.beyond != nil && p.beyond != one || p.kept+one.want > p.limit:
		return false
	default:
		p.beyond = one
	}
	p.passed = 0
	p.grant(one, &p.queue)
	return true
}

// firstWaiting returns the first open connection of a queue, or nil.
func firstWaiting(queue *[]*partial) *partial {
	q := *queue
	for len(q) > 0 && q[0].want == 0 {
		q[0] = nil
		q = q[1:]
	}
	if *queue = q; len(q) == 0 {
		*queue = nil
		return nil
	}
	return q[0]
}

// grant lets the first connection of a queue hold the bytes that it wants. The caller holds mu.
func (p *Partials) grant(one *partial, queue *[]*partial) {
	(*queue)[0] = nil
	*queue = (*queue)[1:]
	p.arriving += one.want - one.bytes
	one.bytes = one.want
	p.renew(one)
	p.wake(one)
}

// renew restarts the time of a message that was not read for a while. The caller holds mu.
func (p *Partials) renew(one *partial) {
	one.began = time.Now()
	one.remove()
	p.oldest.append(one)
}

// wake ends the wait of a connection. The caller holds mu.
func (p *Partials) wake(one *partial) {
	one.want = 0
	p.stopped--
	one.leave <- struct{}{}
}

// complete says that a connection's message is complete. It counts until done.
func (p *Partials) complete(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := c.partial; one.arriving() {
		bytes := one.bytes
		p.leave(one)
		p.keep(one, bytes)
		p.resume()
	}
}

// keepMessage counts a complete message, unless it counts already.
func (p *Partials) keepMessage(c *Conn, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := c.memory(); !one.kept && !one.arriving() {
		p.keep(one, bytes)
	}
}

// keep counts bytes of a complete message. The caller holds mu.
func (p *Partials) keep(one *partial, bytes int64) {
	one.kept, one.bytes = true, bytes
	p.kept += bytes
}

// done says that a connection does not wait, and that its reader is finished with the last message.
func (p *Partials) done(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := c.partial
	switch {
	case one.arriving():
		p.leave(one)
	case one != nil && one.kept:
		p.kept -= one.bytes
		one.kept, one.bytes = false, 0
	default:
		return
	}
	p.resume()
}

// closed says that a connection was closed: its reader must not wait.
func (p *Partials) closed(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.cutOff = true
	if one := c.partial; one.arriving() {
		p.leave(one)
		p.resume()
	}
}

// Relieve closes half of the connections that wait for room, those that would continue last, and returns how many these
// are. It is for a system that has no memory for sockets left: it keeps what these connections have sent and drops what
// arrives on all others, so that no message becomes complete and no connection would ever continue.
func (p *Partials) Relieve() int {
	p.mu.Lock()
	var waiting []*partial
	for _, one := range slices.Concat(p.shorts, p.queue) {
		if one.want > 0 && one != p.beyond {
			waiting = append(waiting, one)
		}
	}
	waiting = waiting[len(waiting)/2:]
	for _, one := range waiting {
		one.conn.cutOff = true
		p.leave(one)
	}
	p.resume()
	p.mu.Unlock()
	for _, one := range waiting {
		one.conn.cut()
	}
	return len(waiting)
}

// leave forgets an incomplete message, and wakes its reader if it waits. The caller holds mu.
func (p *Partials) leave(one *partial) {
	if one.want > 0 {
		p.wake(one)
	}
	if p.beyond == one {
		p.beyond = nil
	}
	one.remove()
	p.arriving -= one.bytes
	one.bytes = 0
}

// crowded reports whether connections wait for room that incomplete messages take. The caller holds mu.
func (p *Partials) crowded() bool { return p.stopped > 0 && p.arriving > p.kept }

// late is a slow message, as Sweep found it.
type late struct {
	*partial
	began time.Time // distinguishes the message from the connection's next one
}

// Sweep closes the connections whose messages take too long. Long messages may take an eighth of the time while they
// keep others waiting. A connection with unread data gets the whole time again: this side is late, not the peer. If the
// peer has gone in the meantime, the connection is closed.
//
// Sweep asks the system about each such connection once, without holding mu: readers take mu, and must not wait for
// system calls.
func (p *Partials) Sweep() {
	now := time.Now()
	for _, m := range p.late(now) {
		p.check(m, now)
	}
}

// late lists the slow messages.
func (p *Partials) late(now time.Time) (list []late) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for one := p.oldest.next; one != &p.oldest; one = one.next {
		age := now.Sub(one.began)
		if age < p.longest && (!p.crowded() || age < p.longest/crowdedShare) {
			break
		}
		if m := (late{one, one.began}); p.takesLong(m, now) {
			list = append(list, m)
		}
	}
	return list
}

// takesLong reports whether a message is incomplete, and either has had its whole time or keeps others waiting. The
// caller holds mu.
func (p *Partials) takesLong(m late, now time.Time) bool {
	if !m.arriving() || !m.partial.began.Equal(m.began) {
		return false
	}
	age := now.Sub(m.began)
	return age >= p.longest || p.crowded() && age >= p.longest/crowdedShare && m.bytes > readSize
}

// check closes the connection of a slow message, unless the peer is not to blame.
func (p *Partials) check(m late, now time.Time) {
	p.mu.Lock()
	takesLong, waits := p.takesLong(m, now), m.want > 0
	p.mu.Unlock()
	if !takesLong {
		return
	}
	gone, behind := false, false
	if waits {
		gone = m.conn.Peer() == PeerGone
	} else {
		behind = m.conn.Unread()
	}
	p.mu.Lock()
	if !p.takesLong(m, now) || waits != (m.want > 0) { // it has changed in the meantime
		p.mu.Unlock()
		return
	}
	if !gone && (waits || behind) {
		if now.Sub(m.began) >= p.longest {
			p.renew(m.partial)
		}
		p.mu.Unlock()
		return
	}
	arrived := m.bytes
	if !gone {
		m.conn.cutOff = true
		p.leave(m.partial)
		p.resume()
	}
	p.mu.Unlock()
	if !gone {
		p.cut(m.conn, arrived, now.Sub(m.began))
	}
	m.conn.cut()
}
