package wire

import (
	"net"
	"syscall"
	"time"
)

// Peer says whether the other end of a connection is there, as far as the system knows.
type Peer uint8

const (
	PeerThere  Peer = iota // the peer is there, or the system does not tell
	PeerHungUp             // the peer sends no more; what it has sent can still be read
	PeerGone               // the connection is of no use in either direction
)

// HungUpPatience is how long messages are kept that cannot be dealt with, after their peer has hung up.
const HungUpPatience = time.Minute

// Unread reports whether something that the peer has sent has not been read yet. It is false where the system does not tell. Any
// goroutine may ask, as it may ask Silent and Peer.
func (c *Conn) Unread() bool {
	if c.in.polled != nil {
		return c.in.polled.unread()
	}
	unread := false
	c.ask(func(fd int) { unread = unreadOn(fd) })
	return unread
}

// Silent is for how long the peer's system has sent nothing at all, not even the answer to a probe of TCP, whether what it has sent
// before was read or not. It is longer than any time if the peer has hung up, and 0 where the system does not tell.
func (c *Conn) Silent() (silent time.Duration) {
	if c.in.polled != nil {
		return c.in.polled.silent()
	}
	c.ask(func(fd int) { silent = silentFor(fd) })
	return silent
}

// Peer says whether the peer is there.
func (c *Conn) Peer() (peer Peer) {
	if c.in.polled != nil {
		return c.in.polled.peer()
	}
	c.ask(func(fd int) { peer = peerOf(fd) })
	return peer
}

// closedFD is what ask passes for a socket that is closed.
const closedFD = -1

// ask calls f with the descriptor of the socket below the connection, even if there is TLS between them. Without a socket it does
// not call f.
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
