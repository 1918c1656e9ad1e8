package wire

import (
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// maxEvents is how many sockets with something to read are taken up with one system call.
const maxEvents = 512

// Poller reads from many connections on one goroutine. The runtime's own way, a goroutine that waits on each connection, costs
// a wake-up and two reads for each message; with a Poller it is one read, and one wake-up for all that arrives within a
// few milliseconds.
//
// A Conn whose transport was adopted by a Poller is used as any other. In addition its reading goroutine may end with
// Park, and have its Handler called when something arrives.
type Poller struct {
	every time.Duration
	epoll int
	stop  int // an eventfd
	done  chan struct{}
	lanes Lanes

	held    [][]*polled  // by lane, in the order of their turns; of the goroutine alone
	holding atomic.Int64 // how many are held
	opened  []time.Time  // since when connections of a lane have waited and it was not seen open
	tidied  time.Time    // when tidyHeld has last looked at all that are held
	behind  atomic.Int64 // since when there has always been something to read, Unix milliseconds; 0 when there was nothing left

	// A held connection is closed if the lane stays closed for so long after the peer has gone: the peer has broken the connection,
	// or it only sends no more. Set before connections are adopted.
	diedPatience, hungUpPatience time.Duration

	mu    sync.RWMutex // guards the fields below
	conns []*polled    // by descriptor
	count uint32       // of those that were ever there
}

// NewPoller returns a Poller that reads what has arrived, and then lets so much time pass before it looks again. It runs
// until Close. What it reads goes through the lanes.
func NewPoller(every time.Duration, lanes Lanes) (*Poller, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		unix.Close(epoll)
		return nil, os.NewSyscallError("eventfd", err)
	}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, stop, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(stop)}); err != nil {
		unix.Close(epoll)
		unix.Close(stop)
		return nil, os.NewSyscallError("epoll_ctl", err)
	}
	p := &Poller{
		every: every, epoll: epoll, stop: stop, done: make(chan struct{}), lanes: lanes, held: make([][]*polled, max(1, lanes.Count)),
		opened: make([]time.Time, max(1, lanes.Count)), diedPatience: tidyEvery, hungUpPatience: HungUpPatience,
	}
	go p.run()
	return p, nil
}

// Close ends the Poller, whose connections are closed already.
func (p *Poller) Close() {
	_, _ = unix.Write(p.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-p.done
	unix.Close(p.epoll)
	unix.Close(p.stop)
}

// Adopt moves a TCP connection to the Poller and returns it in its new form. Another kind of connection is returned as it is.
func (p *Poller) Adopt(c net.Conn) (net.Conn, error) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return c, nil
	}
	// The runtime would be woken for each packet as long as it knows of the socket. A copy of the descriptor is one that it
	// does not know of.
	s := &polled{poller: p, local: t.LocalAddr(), remote: t.RemoteAddr()}
	raw, err := t.SyscallConn()
	if err != nil {
		return nil, err
	}
	var copied error
	if err := raw.Control(func(fd uintptr) { s.fd, copied = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return nil, err
	}
	if copied != nil {
		return nil, os.NewSyscallError("fcntl", copied)
	}
	t.Close()
	if err := p.watch(s); err != nil {
		unix.Close(s.fd)
		return nil, err
	}
	return polledConn{s}, nil
}

func (p *Poller) watch(s *polled) error {
	p.mu.Lock()
	for s.fd >= len(p.conns) {
		p.conns = append(p.conns, nil)
	}
	p.conns[s.fd] = s
	p.count++
	s.generation = p.count
	p.mu.Unlock()
	// Each arrival is told once, whether it is read or not.
	const events = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET
	ev := unix.EpollEvent{Events: events, Fd: int32(s.fd), Pad: int32(s.generation)}
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, s.fd, &ev); err != nil {
		p.forget(s.fd)
		return os.NewSyscallError("epoll_ctl", err)
	}
	return nil
}

// forget takes a descriptor from the Poller, before it is closed: a process that is just being started may hold a copy, and with
// it the place in the epoll.
func (p *Poller) forget(fd int) {
	_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, fd, nil)
	p.mu.Lock()
	p.conns[fd] = nil
	p.mu.Unlock()
}

// Behind is for how long there has always been something to read; 0 when all that had arrived was read at the last look.
func (p *Poller) Behind(now time.Time) time.Duration {
	since := p.behind.Load()
	if since == 0 {
		return 0
	}
	return max(0, now.Sub(time.UnixMilli(since)))
}

// Holding is how many connections are held: something has arrived on them, and is not read because their lanes are closed.
func (p *Poller) Holding() int { return int(p.holding.Load()) }

// run hears of arrivals and has them read. While there are any it sleeps between two looks; only where there is nothing at all
// does it wait in the system, which costs a thread.
func (p *Poller) run() {
	defer close(p.done)
	var events [maxEvents]unix.EpollEvent
	timeout := -1
	for {
		n, err := unix.EpollWait(p.epoll, events[:], timeout)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			panic(fmt.Sprintf("wire: wait for connections: %v", err)) // the descriptor is ours, and so is the memory
		case n == 0 && p.holding.Load() == 0:
			p.behind.Store(0)
			timeout = -1
			continue
		}
		for _, ev := range events[:n] {
			if int(ev.Fd) == p.stop {
				return
			}
			p.tell(ev)
		}
		p.readHeld()
		p.tidyHeld()
		if n < len(events) && p.holding.Load() == 0 {
			p.behind.Store(0)
		} else if p.behind.Load() == 0 {
			p.behind.Store(time.Now().UnixMilli())
		}
		timeout = 0
		if n < len(events) {
			time.Sleep(max(p.every, minEvery*time.Duration(min(p.holding.Load(), 1))))
		}
	}
}

// tidyEvery is between two looks at all that are held.
const tidyEvery = time.Second

// minEvery is between two looks while connections are held, even if nothing is to be waited for otherwise.
const minEvery = time.Millisecond

// hold files a connection whose turn comes later.
func (p *Poller) hold(s *polled, lane int) {
	if len(p.held[lane]) == 0 {
		p.opened[lane] = time.Now()
	}
	p.held[lane] = append(p.held[lane], s)
	p.holding.Add(1)
}

// readHeld reads from held connections, of each lane as long as it is open, each once: those that are held again stand behind
// the others.
func (p *Poller) readHeld() {
	if p.holding.Load() == 0 {
		return
	}
	for lane := range p.held {
		n, read := len(p.held[lane]), 0
		for read < n && p.lanes.Open(lane) {
			s := p.held[lane][read]
			p.held[lane][read] = nil
			read++
			p.holding.Add(-1)
			s.again()
		}
		if read > 0 {
			p.opened[lane] = time.Now()
			p.held[lane] = append(p.held[lane][:0], p.held[lane][read:]...)
		}
	}
}

// tidyHeld forgets held connections that were closed, and closes those whose peers have gone: while the disk is full agents connect
// anew again and again, and what they leave behind would fill memory and keep others out.
func (p *Poller) tidyHeld() {
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
		p.held[lane] = slices.DeleteFunc(all, func(s *polled) bool { return !s.stillHeld(open, p.opened[lane], now) })
		p.holding.Add(int64(len(p.held[lane]) - len(all)))
	}
}

// tell passes an event on. The connection that it is about may have been closed since, and its descriptor be another's.
func (p *Poller) tell(ev unix.EpollEvent) {
	p.mu.RLock()
	s := p.conns[ev.Fd]
	p.mu.RUnlock()
	if s != nil && s.generation == uint32(ev.Pad) {
		s.notify(ev.Events)
	}
}
