package wire

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// polled is a socket that a Poller watches. It implements syscall.RawConn.
type polled struct {
	sockets       *sockets
	owner         any // what Next of the Poller returns
	local, remote net.Addr

	generation uint32 // distinguishes it from earlier sockets with its descriptor

	mu       sync.Mutex // guards the fields below, and is held while fd is used
	fd       int        // -1 when closed
	arrived  bool       // there may be input
	ending   bool       // the end follows it, which the system reports only once
	hungUp   time.Time  // when the peer hung up; zero before
	died     time.Time  // when the connection stopped working in both directions; zero before
	reader   reader
	readable waiter
	writable waiter
}

// reader says which part reads from a socket.
type reader uint8

const (
	byGoroutine reader = iota // one that may wait
	parked                    // none; the Poller will
	byPoller                  // the Poller, at this moment
	held                      // none, although there is input; the Poller will in its turn
)

// waiter lets a goroutine wait for a socket.
type waiter struct {
	wake     chan struct{} // capacity 1; made by the first wait
	deadline time.Time
}

func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // it is nil, too, where no goroutine waits
	}
}

// arrive notes what has happened to the socket. It reports whether the Poller's goroutine must read it now: it was
// parked.
func (s *polled) arrive(events uint32) (read bool) {
	const in, out, both = unix.EPOLLIN | unix.EPOLLRDHUP, unix.EPOLLOUT, unix.EPOLLHUP | unix.EPOLLERR
	s.mu.Lock()
	defer s.mu.Unlock()
	if events&(out|both) != 0 {
		s.writable.signal()
	}
	if events&(in|both) == 0 || s.fd < 0 {
		return false
	}
	s.arrived = true
	if events&(unix.EPOLLRDHUP|both) != 0 {
		s.ending = true
		if s.hungUp.IsZero() {
			s.hungUp = time.Now()
		}
		if events&both != 0 && s.died.IsZero() {
			s.died = time.Now()
		}
	}
	if s.reader != parked {
		s.readable.signal()
		return false
	}
	s.reader = byPoller
	return true
}

// again reports whether a held socket is to be read in its turn: it may have been closed since.
func (s *polled) again() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader != held {
		return false
	}
	s.reader = byPoller
	return true
}

// leave ends the reading by the Poller's goroutine. If it is false another goroutine must go on.
func (s *polled) leave(then Then) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.fd < 0:
	case then == ThenPark && !s.arrived:
		s.reader = parked
		return true
	case then == ThenHold:
		s.reader = held
		return true
	}
	s.reader = byGoroutine
	return false
}

// isHeld reports whether the connection waits for its turn.
func (s *polled) isHeld() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reader == held
}

// overdue reports whether a held connection is to be closed, because its peer has gone and its lane has been closed
// since opened.
func (s *polled) overdue(now, opened time.Time, died, hungUp time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	late := func(since time.Time, patience time.Duration) bool {
		return !since.IsZero() && now.Sub(since) >= patience && now.Sub(opened) >= patience
	}
	return s.reader == held && (late(s.died, died) || late(s.hungUp, hungUp))
}

func (s *polled) silent() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return silentFor(s.fd)
}

func (s *polled) peer() Peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return peerOf(s.fd)
}

// peek copies input into b, as far as it fits, without consuming it.
func (s *polled) peek(b []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return nil
	}
	n, _, err := unix.Recvfrom(s.fd, b, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if err != nil {
		return nil
	}
	return b[:n]
}

// unread reports whether there is unread input.
func (s *polled) unread() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.fd < 0:
		return false
	case s.arrived || s.reader == held:
		return true
	}
	n, err := unix.IoctlGetInt(s.fd, unix.SIOCINQ)
	return err == nil && n > 0
}

// park leaves the reading to the Poller, unless there may be something to read already.
func (s *polled) park() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.arrived || s.fd < 0 {
		return false // beginRead says which, and the read whether it is true
	}
	s.reader = parked
	s.readable.wake = nil // the goroutine that waited there ends
	return true
}

// beginRead returns the descriptor if there may be something to read. Then the caller holds the socket until endRead.
func (s *polled) beginRead() (fd uintptr, arrived bool, err error) {
	s.mu.Lock()
	switch {
	case s.fd < 0:
		err = net.ErrClosed
	case s.arrived:
		return uintptr(s.fd), true, nil
	}
	s.mu.Unlock()
	return 0, false, err
}

// endRead ends what beginRead began, and notes what is left: something may be if there was anything at all.
func (s *polled) endRead(ready bool) {
	s.left(ready)
	s.mu.Unlock()
}

// left notes what a read has left. The caller holds mu.
func (s *polled) left(ready bool) {
	if ready {
		s.arrived = s.ending
	} else {
		s.arrived, s.ending = false, false
	}
}

// more notes that there may be more input after a read.
func (s *polled) more() {
	s.mu.Lock()
	s.arrived = true
	s.mu.Unlock()
}

// Read calls f, again after new input, until f is done.
func (s *polled) Read(f func(fd uintptr) bool) error {
	return s.until(&s.readable, func(fd uintptr) bool {
		ready := f(fd)
		s.left(ready)
		return ready
	})
}

// Write calls f, again when the socket takes data, until f is done.
func (s *polled) Write(f func(fd uintptr) bool) error { return s.until(&s.writable, f) }

// Control calls f once.
func (s *polled) Control(f func(fd uintptr)) error {
	return s.Write(func(fd uintptr) bool {
		f(fd)
		return true
	})
}

func (s *polled) until(w *waiter, f func(fd uintptr) bool) error {
	for {
		s.mu.Lock()
		if s.fd < 0 {
			s.mu.Unlock()
			return net.ErrClosed
		}
		if !w.deadline.IsZero() && !time.Now().Before(w.deadline) {
			s.mu.Unlock()
			return os.ErrDeadlineExceeded
		}
		if f(uintptr(s.fd)) {
			s.mu.Unlock()
			return nil
		}
		if w.wake == nil {
			w.wake = make(chan struct{}, 1)
		}
		wake, deadline := w.wake, w.deadline
		s.mu.Unlock()
		if deadline.IsZero() {
			<-wake
			continue
		}
		timer := time.NewTimer(time.Until(deadline))
		select {
		case <-wake:
			timer.Stop()
		case <-timer.C: // the deadline may have been moved
		}
	}
}

// setDeadline has goroutines that wait look at the deadline.
func (s *polled) setDeadline(w *waiter, t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return net.ErrClosed
	}
	w.deadline = t
	w.signal()
	return nil
}

// polledConn is a polled socket as a net.Conn.
type polledConn struct{ *polled }

func (c polledConn) socket() syscall.RawConn { return c.polled }

func polledOf(c net.Conn) *polled {
	if p, ok := c.(polledConn); ok {
		return p.polled
	}
	return nil
}

func (c polledConn) Read(b []byte) (n int, err error) {
	var failed error
	err = c.polled.Read(func(fd uintptr) (ready bool) {
		n, ready, failed = readSocket(fd, b)
		return ready
	})
	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		return 0, failed
	case n == 0 && len(b) > 0:
		return 0, io.EOF
	case n == len(b):
		c.more()
	}
	return n, nil
}

func (c polledConn) Write(b []byte) (sent int, err error) {
	var failed error
	err = c.polled.Write(func(fd uintptr) bool {
		for sent < len(b) && failed == nil {
			var n int
			if n, failed = writeSocket(fd, b[sent:]); n == 0 {
				break
			}
			sent += n
		}
		return sent == len(b) || failed != nil
	})
	if err == nil {
		err = failed
	}
	return sent, err
}

// Close closes the socket. Goroutines that wait for it are woken. Next returns the owner of one that is parked or held.
func (c polledConn) Close() error {
	s := c.polled
	s.mu.Lock()
	if s.fd < 0 {
		s.mu.Unlock()
		return net.ErrClosed
	}
	s.sockets.forget(s.fd)
	err := unix.Close(s.fd)
	s.fd = -1
	s.readable.signal()
	s.writable.signal()
	idle := s.reader == parked || s.reader == held
	if idle {
		s.reader = byGoroutine
	}
	s.mu.Unlock()
	if idle {
		s.sockets.wasClosed(s)
	}
	return os.NewSyscallError("close", err)
}

// CloseWrite closes the sending direction.
func (c polledConn) CloseWrite() error {
	var failed error
	err := c.Control(func(fd uintptr) { failed = unix.Shutdown(int(fd), unix.SHUT_WR) })
	if err == nil {
		err = os.NewSyscallError("shutdown", failed)
	}
	return err
}

func (c polledConn) LocalAddr() net.Addr  { return c.local }
func (c polledConn) RemoteAddr() net.Addr { return c.remote }

func (c polledConn) SetReadDeadline(t time.Time) error  { return c.setDeadline(&c.readable, t) }
func (c polledConn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.writable, t) }

func (c polledConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}
