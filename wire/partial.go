package wire

import (
	"sync"
	"time"
)

// Partials bounds what connections hold of messages that have not arrived in whole: their time, and their bytes over all
// connections. A connection comes here only when it has to wait for the rest of a message.
type Partials struct {
	limit   int64
	longest time.Duration
	cut     func(c *Conn, arrived int64, took time.Duration)

	mu     sync.Mutex // guards the fields below
	bytes  int64
	oldest partial // head of a ring of all that are held, in the order in which they began
}

// partial is a message of which a part has arrived. A connection keeps its own for the next message: at full load most reads
// end within a message, and an allocation for each would cost more than the rest of the read's bookkeeping.
type partial struct {
	conn       *Conn
	bytes      int64
	began      time.Time
	prev, next *partial // nil unless it is held
}

func (m *partial) held() bool { return m != nil && m.next != nil }

// append puts a message at the end of the ring that begins with head.
func (head *partial) append(m *partial) {
	m.prev, m.next = head.prev, head
	m.prev.next, head.prev = m, m
}

func (m *partial) remove() {
	m.prev.next, m.next.prev = m.next, m.prev
	m.prev, m.next = nil, nil
}

// NewPartials returns a Partials that holds at most limit bytes, and each message no longer than longest, if Sweep is called
// now and then. cut is told of a connection that was closed for it; it must not wait.
func NewPartials(limit int64, longest time.Duration, cut func(c *Conn, arrived int64, took time.Duration)) *Partials {
	p := &Partials{limit: limit, longest: longest, cut: cut}
	p.oldest.prev, p.oldest.next = &p.oldest, &p.oldest
	return p
}

// Bytes is how much is held.
func (p *Partials) Bytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes
}

// hold says how much a connection holds of a message that it waits for. If it is too much over all connections, those
// whose messages have been under way the longest are closed: honest ones take only moments.
func (p *Partials) hold(c *Conn, bytes int64) {
	p.mu.Lock()
	if c.cutOff { // it will notice
		p.mu.Unlock()
		return
	}
	if c.partial == nil {
		c.partial = &partial{conn: c}
	}
	one := c.partial
	if !one.held() {
		one.bytes, one.began = 0, time.Now()
		p.oldest.append(one)
	}
	p.bytes += bytes - one.bytes
	one.bytes = bytes
	var closed []partial
	for p.bytes > p.limit {
		closed = append(closed, p.cutOldest())
	}
	p.mu.Unlock()
	p.end(closed)
}

// done says that a connection waits for nothing any more.
func (p *Partials) done(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.partial.held() {
		p.drop(c.partial)
	}
}

// Sweep closes the connections whose messages have taken too long. A connection that has more to read than was read of it gets
// the whole time anew: this side is behind, and not the peer.
func (p *Partials) Sweep() {
	var closed []partial
	p.mu.Lock()
	now := time.Now()
	for one := p.oldest.next; one != &p.oldest && now.Sub(one.began) >= p.longest; one = p.oldest.next {
		if one.conn.Unread() {
			one.began = now
			one.remove()
			p.oldest.append(one)
			continue
		}
		closed = append(closed, p.cutOldest())
	}
	p.mu.Unlock()
	p.end(closed)
}

// cutOldest takes the message that has been under way the longest, whose connection is to be closed. The caller holds mu.
func (p *Partials) cutOldest() partial {
	one := p.oldest.next
	one.conn.cutOff = true
	p.drop(one)
	return *one
}

// drop forgets a message. The caller holds mu.
func (p *Partials) drop(one *partial) {
	one.remove()
	p.bytes -= one.bytes
}

func (p *Partials) end(closed []partial) {
	for _, one := range closed {
		p.cut(one.conn, one.bytes, time.Since(one.began))
		one.conn.cut()
	}
}
