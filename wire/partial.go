package wire

import (
	"container/list"
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
	held   map[*Conn]*list.Element
	oldest list.List // of *partial, in the order in which they began
}

type partial struct {
	conn  *Conn
	bytes int64
	began time.Time
}

// NewPartials returns a Partials that holds at most limit bytes, and each message no longer than longest, if Sweep is called
// now and then. cut is told of a connection that was closed for it; it must not wait.
func NewPartials(limit int64, longest time.Duration, cut func(c *Conn, arrived int64, took time.Duration)) *Partials {
	return &Partials{limit: limit, longest: longest, cut: cut, held: map[*Conn]*list.Element{}}
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
	e, ok := p.held[c]
	if !ok {
		e = p.oldest.PushBack(&partial{conn: c, began: time.Now()})
		p.held[c] = e
	}
	one := e.Value.(*partial)
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
	if e, ok := p.held[c]; ok {
		p.drop(e)
	}
}

// Sweep closes the connections whose messages have taken too long. A connection that has more to read than was read of it gets
// the whole time anew: this side is behind, and not the peer.
func (p *Partials) Sweep() {
	var closed []partial
	p.mu.Lock()
	for range p.oldest.Len() {
		e := p.oldest.Front()
		one := e.Value.(*partial)
		if time.Since(one.began) < p.longest {
			break
		}
		if one.conn.Unread() {
			one.began = time.Now()
			p.oldest.MoveToBack(e)
			continue
		}
		closed = append(closed, p.cutOldest())
	}
	p.mu.Unlock()
	p.end(closed)
}

// cutOldest takes the message that has been under way the longest, whose connection is to be closed. The caller holds mu.
func (p *Partials) cutOldest() partial {
	one := p.drop(p.oldest.Front())
	one.conn.cutOff = true
	return *one
}

// drop forgets a message. The caller holds mu.
func (p *Partials) drop(e *list.Element) *partial {
	one := p.oldest.Remove(e).(*partial)
	delete(p.held, one.conn)
	p.bytes -= one.bytes
	return one
}

func (p *Partials) end(closed []partial) {
	for _, one := range closed {
		p.cut(one.conn, one.bytes, time.Since(one.began))
		one.conn.cut()
	}
}
