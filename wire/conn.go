package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gobwas/ws"
)

// Close codes of the protocol. An end that leaves on purpose sends CloseGoingAway with the reason "bye".
const (
	CloseGoingAway = uint16(ws.StatusGoingAway)     // 1001
	CloseProtocol  = uint16(ws.StatusProtocolError) // 1002
	CloseNoStatus  = uint16(ws.StatusNoStatusRcvd)  // 1005, never on the wire: the peer gave no code
	CloseTooBig    = uint16(ws.StatusMessageTooBig) // 1009
)

const (
	writeTimeout = 30 * time.Second // for a write, when the peer does not read
	closeTimeout = time.Second      // for sending a close frame, or for a refused peer to disconnect
)

// ErrTooBig is a message longer than the connection allows.
var ErrTooBig = errors.New("message too big")

// CloseError says that the peer closed the connection, with its reason.
type CloseError struct {
	Code   uint16
	Reason string
}

func (e *CloseError) Error() string {
	return fmt.Sprintf("closed by peer: %d %s", e.Code, e.Reason)
}

// Conn is either end of a websocket connection. One goroutine reads; any may write, ping and close. After an error
// from any method but Close the connection is of no more use, except to be closed.
//
// A backend holds tens of thousands of connections, most of which are idle at any moment. An idle one has no buffer,
// and costs little more than the stack of the goroutine that waits in Read, if there is one.
type Conn struct {
	conn       net.Conn
	socket     syscall.RawConn // the socket below conn, or nil: see plainSocket
	in         input
	side       ws.State
	maxMessage int64
	onPong     func()
	partials   *Partials // nil if nothing bounds messages
	counted    bool      // partials counts a message of this connection; for the reader only
	cutOff     bool      // the connection was closed; guarded by the mu of partials, as partial is
	partial    *partial  // nil until a message had to wait

	// mu is held while writing to conn: by the writer, and from a TryWriteBatch that has left a rest until the
	// FinishWrite of that rest, which may be on another goroutine. The rest is known by its first byte.
	mu     sync.Mutex
	rest   atomic.Pointer[byte]
	closed bool // nothing may be written any more; guarded by mu
}

// NewServerConn returns the server's end of c, whose handshake is done. What br has buffered is read first; br may be
// nil and is not kept. Messages over maxMessage bytes are refused; 0 means no limit.
func NewServerConn(c net.Conn, br *bufio.Reader, maxMessage int64) *Conn {
	return newConn(c, br, maxMessage, ws.StateServerSide)
}

// NewClientConn returns the client's end of c. Its arguments are as for NewServerConn.
func NewClientConn(c net.Conn, br *bufio.Reader, maxMessage int64) *Conn {
	return newConn(c, br, maxMessage, ws.StateClientSide)
}

func newConn(nc net.Conn, br *bufio.Reader, maxMessage int64, side ws.State) *Conn {
	c := &Conn{conn: nc, socket: plainSocket(nc), side: side, maxMessage: maxMessage}
	var early []byte
	if br != nil && br.Buffered() > 0 {
		early, _ = br.Peek(br.Buffered())
		early = bytes.Clone(early)
	}
	c.in.init(nc, c.socket, early)
	return c
}

// OnPong sets the function that Read calls at each pong. Set it before the first Read.
func (c *Conn) OnPong(f func()) { c.onPong = f }

// Watch makes p bound the memory of messages. Call it before the first Read. A message that had to wait counts until
// the next Read, or until Done.
func (c *Conn) Watch(p *Partials) {
	c.partials = p
	c.in.hold = c.hold
}

// hold asks p to hold bytes of a message while its rest is awaited.
func (c *Conn) hold(bytes int, wait bool) bool {
	c.counted = true
	return c.partials.hold(c, int64(bytes), wait)
}

// Keep says that the last message must wait, and takes bytes of memory until the next Read or Done. It is for the
// reader.
func (c *Conn) Keep(bytes int) {
	if c.partials != nil {
		c.counted = true
		c.partials.keepMessage(c, int64(bytes))
	}
}

// Done says that the reader is finished with the last message, as the next Read does.
func (c *Conn) Done() {
	if c.counted {
		c.counted = false
		c.partials.done(c)
	}
}

// Heard reports whether anything has arrived since the last call. It may be called on any goroutine.
func (c *Conn) Heard() bool { return c.in.heard.Swap(false) }

// SetReadDeadline sets a deadline for all later reads; the zero time removes it.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.conn.SetReadDeadline(t) }

// RemoteAddr is the address of the peer.
func (c *Conn) RemoteAddr() net.Addr { return c.conn.RemoteAddr() }

// refuse sends the peer a close frame with the reason, gives it a moment to read that, and closes the connection.
// Without the moment, data that the peer still sends would reset the connection, and the close frame would be lost.
func (c *Conn) refuse(code uint16, cause error) error {
	c.writeClose(ws.NewCloseFrameBody(ws.StatusCode(code), cause.Error()))
	if half, ok := c.conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		if c.conn.SetReadDeadline(time.Now().Add(closeTimeout)) == nil {
			_, _ = io.Copy(io.Discard, c.conn)
		}
	}
	c.drop()
	return fmt.Errorf("refuse frame: %w", cause)
}

// Close sends a close frame, if there was none yet, and closes the connection without waiting for an answer. A Read in
// progress fails. It takes a second at most, and may be called again. It waits for the FinishWrite of a rest.
func (c *Conn) Close(code uint16, reason string) error {
	// A writer stuck on a peer that does not read must not delay the close.
	cut := time.AfterFunc(closeTimeout, c.cut)
	defer cut.Stop()
	c.writeClose(ws.NewCloseFrameBody(ws.StatusCode(code), reason))
	if err := c.drop(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close connection: %w", err)
	}
	return nil
}

// Leave sends a close frame, if there was none yet, and leaves the connection open for Read, which returns what the
// peer has sent before its answer. Nothing can be written any more. It takes a second at most. Close must follow in the
// end.
func (c *Conn) Leave(code uint16, reason string) {
	cut := time.AfterFunc(closeTimeout, c.cut)
	defer cut.Stop()
	c.writeClose(ws.NewCloseFrameBody(ws.StatusCode(code), reason))
}

// Abort closes the connection without a close frame, as if this end had crashed. TCP resets the connection, so the peer
// gets an error.
func (c *Conn) Abort() {
	raw := c.conn
	if t, ok := raw.(interface{ NetConn() net.Conn }); ok {
		raw = t.NetConn() // below TLS
	}
	if t, ok := raw.(interface{ SetLinger(seconds int) error }); ok {
		_ = t.SetLinger(0) // a failure means that the connection is closed already
	}
	c.cut()
}

// cut closes the transport below TLS, whose own Close would wait for the peer.
func (c *Conn) cut() {
	if t, ok := c.conn.(interface{ NetConn() net.Conn }); ok {
		t.NetConn().Close()
		c.forget()
		return
	}
	c.drop()
}

// drop closes the transport.
func (c *Conn) drop() error {
	err := c.conn.Close()
	c.forget()
	return err
}

// forget wakes a reader that waits for room: the connection is closed.
func (c *Conn) forget() {
	if c.partials != nil {
		c.partials.closed(c)
	}
}

// writeClose sends a close frame, unless one was sent before. It does not matter whether it arrives.
func (c *Conn) writeClose(body []byte) {
	o := c.frames(ws.OpClose, body[:min(len(body), ws.MaxControlFramePayloadSize)])
	defer o.release()
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.writeLocked(o, closeTimeout)
	c.closed = true
}
