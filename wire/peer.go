package wire

import (
	"net"
	"syscall"
	"time"
)

// Peer says whether the other end of a connection is there, as far as the system knows.
type Peer uint8

const (
	PeerThere  Peer = iota // the peer is there, or the system does not know
	PeerHungUp             // the peer sends no more; its data can still be read
	PeerGone               // the connection works in neither direction
)

// HungUpPatience is how long a message that has to wait is kept after its peer has hung up.
const HungUpPatience = time.Minute

// Unread reports whether there is unread data from the peer. It is false where the system does not report that. Any
// goroutine may call it, as well as Silent and Peer.
func (c *Conn) Unread() bool {
	if c.in.polled != nil {
		return c.in.polled.unread()
	}
	unread := false
	c.ask(func(fd int) { unread = unreadOn(fd) })
	return unread
}

// Silent returns for how long the peer's system has sent nothing at all, not even the answer to a TCP probe, whether
// its data was read or not. It is longer than any time if the peer has hung up, and 0 where the system does not report
// that.
func (c *Conn) Silent() (silent time.Duration) {
	if c.in.polled != nil {
		return c.in.polled.silent()
	}
	c.ask(func(fd int) { silent = silentFor(fd) })
	return silent
}

// Peer reports whether the peer is there.
func (c *Conn) Peer() (peer Peer) {
	if c.in.polled != nil {
		return c.in.polled.peer()
	}
	c.ask(func(fd int) { peer = peerOf(fd) })
	return peer
}

// closedFD is the descriptor that ask passes for a closed socket.
const closedFD = -1

// ask calls f with the descriptor of the socket below the connection, also below TLS. Without a socket it does not call
// f.
func (c *Conn) ask(f func(fd int)) {
	raw := c.socket
	if raw == nil {
		below := c.conn
		if t, ok := below.(interface{ NetConn() net.Conn }); ok {
			below = t.NetConn()
		}
		s, ok := below.(syscall.Conn)
		if !ok {
			return
		}
		var err error
		if raw, err = s.SyscallConn(); err != nil {
			f(closedFD)
			return
		}
	}
	if raw.Control(func(fd uintptr) { f(int(fd)) }) != nil {
		f(closedFD)
	}
}
