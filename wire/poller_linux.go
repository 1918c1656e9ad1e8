package wire

import (
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// maxEvents is how many sockets with something to read are taken up with one system call.
const maxEvents = 512

// Poller says which of many connections have something to read, one after the other, so that one goroutine can read
// from all. The runtime's own way, a goroutine that waits on each connection, costs a wake-up and two reads for each
// message; with a Poller it is one read, and one wake-up for all that arrives within a few milliseconds.
//
// A Conn whose transport was adopted by a Poller is used as any other. In addition its reading goroutine may end with
// Park. From then on Next returns the connection's owner when something has arrived.
type Poller[Owner any] struct {
	*sockets
	every time.Duration
	lanes Lanes
	ended chan struct{}

	holding atomic.Int64 // how many connections are held
	behind  atomic.Int64 // since when there has always been something to read, Unix milliseconds; 0 when there was nothing left

	// The rest is for the goroutine that calls Next.

	events  [maxEvents]unix.EpollEvent
	at, n   int       // events[at:n] are not passed on yet
	timeout int       // of the next wait, in milliseconds
	current *polled   // which Next has returned last
	resume  []*polled // which were closed and are not passed on yet
	stop    bool

	held   [][]*polled // by lane, in the order of their turns
	lane   int         // whose connections have their turn in this round
	turn   int         // how many of them had it
	turns  int         // how many have one: those that are held again wait for the next round
	opened []time.Time // since when connections of a lane have waited and it was not seen open
	tidied time.Time   // when tidyHeld has last looked at all that are held

	// A held connection is closed if the lane stays closed for so long after the peer has gone: the peer has broken the connection,
	// or it only sends no more. Set before connections are adopted.
	diedPatience, hungUpPatience time.Duration
}

// NewPoller returns a Poller that finds what has arrived, and then lets so much time pass before it looks again. What
// is read goes through the lanes. One goroutine calls Next until the Poller is closed.
func NewPoller[Owner any](every time.Duration, lanes Lanes) (*Poller[Owner], error) {
	s, err := newSockets()
	if err != nil {
		return nil, err
	}
	return &Poller[Owner]{
		sockets: s, every: every, lanes: lanes, ended: make(chan struct{}),
		held: make([][]*polled, max(1, lanes.Count)), opened: make([]time.Time, max(1, lanes.Count)),
		diedPatience: tidyEvery, hungUpPatience: HungUpPatience,
	}, nil
}

// Close ends the Poller, whose connections are closed already. It returns when Next has said so.
func (p *Poller[Owner]) Close() {
	p.end()
	<-p.ended
}

// Adopt moves a TCP connection of the owner to the Poller and returns it in its new form. Another kind of connection
// is returned as it is.
func (p *Poller[Owner]) Adopt(c net.Conn, owner Owner) (net.Conn, error) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return c, nil
	}
	s, err := p.adopt(t, owner)
	if err != nil {
		return nil, err
	}
	return polledConn{s}, nil
}

// Behind is for how long there has always been something to read; 0 when all that had arrived was read at the last look.
func (p *Poller[Owner]) Behind(now time.Time) time.Duration {
	since := p.behind.Load()
	if since == 0 {
		return 0
	}
	return max(0, now.Sub(time.UnixMilli(since)))
}

// Holding is how many connections are held: something has arrived on them, and is not read because their lanes are closed.
func (p *Poller[Owner]) Holding() int { return int(p.holding.Load()) }

// Next waits for the next connection that a goroutine must deal with, and says what to do. It goes in rounds: first
// all connections on which something has arrived, then the held ones whose lanes are open, each once.
func (p *Poller[Owner]) Next() (owner Owner, turn Turn) {
	for {
		switch {
		case len(p.resume) > 0:
			s := p.resume[0]
			p.resume = p.resume[1:]
			return s.owner.(Owner), TurnResume
		case p.stop:
			p.release()
			close(p.ended)
			return owner, TurnEnd
		case p.at < p.n:
			ev := p.events[p.at]
			p.at++
			if int(ev.Fd) == p.wake {
				p.resume, p.stop = p.woken()
				continue
			}
			if p.current = p.find(ev); p.current == nil || !p.current.arrive(ev.Events) {
				continue
			}
		default:
			if p.current = p.nextHeld(); p.current == nil {
				p.endRound()
				p.beginRound()
				continue
			}
		}
		return p.current.owner.(Owner), TurnRead
	}
}

// Return ends the reading of the connection that Next has returned last, and says how it goes on. lane is the one
// that its messages go through. If it is false a goroutine must read on: that was asked for, something has arrived,
// or the connection was closed.
func (p *Poller[Owner]) Return(then Then, lane int) bool {
	ok := p.current.leave(then)
	if ok && then == ThenHold {
		p.hold(p.current, lane)
	}
	return ok
}

// beginRound waits until something has happened to the sockets, or does not if connections are held. Only where there
// is nothing at all does it wait in the system, which costs a thread.
func (p *Poller[Owner]) beginRound() {
	for {
		n, err := unix.EpollWait(p.epoll, p.events[:], p.timeout)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			panic(fmt.Sprintf("wire: wait for connections: %v", err)) // the descriptor is ours, and so is the memory
		case n == 0 && p.holding.Load() == 0:
			p.behind.Store(0)
			p.timeout = -1
			continue
		}
		p.at, p.n, p.lane, p.turn = 0, n, 0, 0
		return
	}
}

// endRound tidies up, and sleeps until the next round unless there is more than one round can take.
func (p *Poller[Owner]) endRound() {
	p.tidyHeld()
	if p.n < len(p.events) && p.holding.Load() == 0 {
		p.behind.Store(0)
	} else if p.behind.Load() == 0 {
		p.behind.Store(time.Now().UnixMilli())
	}
	p.timeout = 0
	if p.n < len(p.events) {
		time.Sleep(max(p.every, minEvery*time.Duration(min(p.holding.Load(), 1))))
	}
}

// tidyEvery is between two looks at all that are held.
const tidyEvery = time.Second

// minEvery is between two looks while connections are held, even if nothing is to be waited for otherwise.
const minEvery = time.Millisecond

// hold files a connection whose turn comes later.
func (p *Poller[Owner]) hold(s *polled, lane int) {
	if len(p.held[lane]) == 0 {
		p.opened[lane] = time.Now()
	}
	p.held[lane] = append(p.held[lane], s)
	p.holding.Add(1)
}

// nextHeld takes the next held connection of a lane that is open; nil if all had their turn in this round.
// Connections that are held again stand behind the others.
func (p *Poller[Owner]) nextHeld() *polled {
	if p.lane == 0 && p.turn == 0 && p.holding.Load() == 0 {
		return nil
	}
	for ; p.lane < len(p.held); p.lane, p.turn = p.lane+1, 0 {
		if p.turn == 0 {
			p.turns = len(p.held[p.lane])
		}
		for p.turn < p.turns && p.lanes.Open(p.lane) {
			s := p.held[p.lane][p.turn]
			p.held[p.lane][p.turn] = nil
			p.turn++
			p.holding.Add(-1)
			if s.again() {
				return s
			}
		}
		if p.turn > 0 {
			p.opened[p.lane] = time.Now()
			p.held[p.lane] = append(p.held[p.lane][:0], p.held[p.lane][p.turn:]...)
		}
	}
	return nil
}

// tidyHeld forgets held connections that were closed, and closes those whose peers have gone: while the disk is full agents connect
// anew again and again, and what they leave behind would fill memory and keep others out.
func (p *Poller[Owner]) tidyHeld() {
	now := time.Now()
	if p.holding.Load() == 0 || now.Sub(p.tidied) < min(tidyEvery, p.diedPatience) {
		return
	}
	p.tidied = now
	for lane, all := range p.held {
		if len(all) == 0 {
			continue
		}
		open := p.lanes.Open(lane)
		p.held[lane] = slices.DeleteFunc(all, func(s *polled) bool {
			if !open && s.overdue(now, p.opened[lane], p.diedPatience, p.hungUpPatience) {
				_ = polledConn{s}.Close()
			}
			return !s.isHeld()
		})
		p.holding.Add(int64(len(p.held[lane]) - len(all)))
	}
}
