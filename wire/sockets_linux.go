package wire

import (
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// sockets are what a Poller watches: its place in the system, and the sockets by descriptor.
type sockets struct {
	epoll int
	wake  int // an eventfd: a socket was closed, or the Poller is to end

	mu       sync.Mutex // guards the fields below
	watched  []*polled  // by descriptor
	count    uint32     // of those that were ever there
	closed   []*polled  // which had no reader when they were closed
	ending   bool
	released bool // the descriptors are closed
}

func newSockets() (*sockets, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(epoll)
		return nil, os.NewSyscallError("eventfd", err)
	}
	// Each write wakes once, so nothing needs to be read.
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(wake)}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, wake, &ev); err != nil {
		unix.Close(epoll)
		unix.Close(wake)
		return nil, os.NewSyscallError("epoll_ctl", err)
	}
	return &sockets{epoll: epoll, wake: wake}, nil
}

// adopt watches a connection in place of the runtime, which would be woken for each packet as long as it knows of the
// socket. A copy of the descriptor is one that it does not know of.
func (p *sockets) adopt(t *net.TCPConn, owner any) (*polled, error) {
	s := &polled{sockets: p, owner: owner, local: t.LocalAddr(), remote: t.RemoteAddr()}
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
	return s, nil
}

func (p *sockets) watch(s *polled) error {
	p.mu.Lock()
	for s.fd >= len(p.watched) {
		p.watched = append(p.watched, nil)
	}
	p.watched[s.fd] = s
	p.count++
	s.generation = p.count
	p.mu.Unlock()
	// The system tells of each arrival once, whether it is read or not.
	const events = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET
	ev := unix.EpollEvent{Events: events, Fd: int32(s.fd), Pad: int32(s.generation)}
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, s.fd, &ev); err != nil {
		p.forget(s.fd)
		return os.NewSyscallError("epoll_ctl", err)
	}
	return nil
}

// find returns the socket that an event is about; nil if that was closed since, and its descriptor is another's.
func (p *sockets) find(ev unix.EpollEvent) *polled {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.watched[ev.Fd]; s != nil && s.generation == uint32(ev.Pad) {
		return s
	}
	return nil
}

// forget takes a descriptor from the system's list, before it is closed: a process that is just being started may
// hold a copy, and with it the place in the epoll.
func (p *sockets) forget(fd int) {
	_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, fd, nil)
	p.mu.Lock()
	p.watched[fd] = nil
	p.mu.Unlock()
}

// wasClosed has Next return the owner of a socket that was closed while it had no reader.
func (p *sockets) wasClosed(s *polled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = append(p.closed, s)
	p.signal()
}

// end has Next end.
func (p *sockets) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ending = true
	p.signal()
}

// signal wakes the goroutine in Next. The caller holds mu.
func (p *sockets) signal() {
	if !p.released {
		_, _ = unix.Write(p.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// woken returns why signal was called: the sockets that were closed since the last time, and whether Next is to end.
func (p *sockets) woken() (closed []*polled, ending bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	closed, p.closed = p.closed, nil
	return closed, p.ending
}

// release closes the descriptors.
func (p *sockets) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = true
	unix.Close(p.epoll)
	unix.Close(p.wake)
}
