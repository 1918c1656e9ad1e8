package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/gobwas/ws"
)

// Close codes that the protocol uses. An end that leaves on purpose sends CloseGoingAway with the reason "bye".
const (
	CloseGoingAway = uint16(ws.StatusGoingAway)     // 1001
	CloseProtocol  = uint16(ws.StatusProtocolError) // 1002
	CloseNoStatus  = uint16(ws.StatusNoStatusRcvd)  // 1005, never on the wire: the peer gave no code
	CloseTooBig    = uint16(ws.StatusMessageTooBig) // 1009
)

const (
	// readAhead is the size of a connection's own buffer, which it holds even when idle: enough for a small message
	// with its header in one system call. Longer payloads are read straight into the caller's buffer.
	readAhead = 512
	// payloadStep is how much memory a frame's header alone can make Read allocate.
	payloadStep = 64 << 10
	// keepFrames is the size up to which a buffer for outgoing frames is kept for the next write.
	keepFrames = 64 << 10

	writeTimeout = 30 * time.Second // for a write, when the peer does not read
	closeTimeout = time.Second      // for a close frame to leave, or for a refused peer to go
)

// ErrTooBig is a message longer than the connection allows.
var ErrTooBig = errors.New("message too big")

// CloseError says that the peer closed the connection, and what reason it gave.
type CloseError struct {
	Code   uint16
	Reason string
}

func (e *CloseError) Error() string {
	return fmt.Sprintf("closed by peer: %d %s", e.Code, e.Reason)
}

// Conn is either end of a websocket connection. One goroutine reads; any may write, ping and close. After an error
// from any method but Close the connection is of no more use, except to be closed.
type Conn struct {
	conn       net.Conn
	r          *bufio.Reader // over conn
	side       ws.State
	maxMessage int64
	onPong     func()
	header     [ws.MaxHeaderSize]byte
	control    [ws.MaxControlFramePayloadSize]byte

	mu     sync.Mutex // held while writing to conn
	closed bool       // nothing may be written any more
}

// NewServerConn returns the server's end of c, whose handshake is done. What br has buffered is read first; br may be
// nil and is not kept. Messages over maxMessage bytes are refused; 0 means no limit.
func NewServerConn(c net.Conn, br *bufio.Reader, maxMessage int64) *Conn {
	return newConn(c, br, maxMessage, ws.StateServerSide)
}

// NewClientConn returns the client's end of c. Its arguments are those of NewServerConn.
func NewClientConn(c net.Conn, br *bufio.Reader, maxMessage int64) *Conn {
	return newConn(c, br, maxMessage, ws.StateClientSide)
}

func newConn(c net.Conn, br *bufio.Reader, maxMessage int64, side ws.State) *Conn {
	var r io.Reader = c
	if br != nil && br.Buffered() > 0 {
		early, _ := br.Peek(br.Buffered())
		r = io.MultiReader(bytes.NewReader(bytes.Clone(early)), c)
	}
	return &Conn{conn: c, r: bufio.NewReaderSize(r, readAhead), side: side, maxMessage: maxMessage}
}

// OnPong sets what Read calls at each pong. Set it before the first Read.
func (c *Conn) OnPong(f func()) { c.onPong = f }

// SetReadDeadline bounds the reads from now on; the zero time removes the bound.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.conn.SetReadDeadline(t) }

// RemoteAddr is the address of the peer.
func (c *Conn) RemoteAddr() net.Addr { return c.conn.RemoteAddr() }

// Read returns the next message, text or binary, with its fragments joined. It uses buf's array if it is large enough,
// and otherwise a new one, but only once a message has begun: a reader that keeps no buffer between messages costs no
// memory while it waits. Pings are answered on the way.
//
// The peer's leaving is a *CloseError. A message over the limit is ErrTooBig, after a close frame with CloseTooBig;
// whatever else breaks the protocol gets one with CloseProtocol.
func (c *Conn) Read(buf []byte) ([]byte, error) {
	msg, state := buf[:0], c.side
	for {
		h, err := ws.ReadHeaderBuffer(c.r, c.header[:])
		if errors.Is(err, ws.ErrHeaderLengthMSB) {
			return nil, c.refuse(CloseProtocol, err)
		}
		if err != nil {
			return nil, fmt.Errorf("read frame header: %w", err)
		}
		if err := ws.CheckHeader(h, state); err != nil {
			return nil, c.refuse(CloseProtocol, err)
		}
		if h.OpCode.IsControl() {
			if err := c.readControl(h); err != nil {
				return nil, err
			}
			continue
		}
		start := len(msg)
		if c.maxMessage > 0 && h.Length > c.maxMessage-int64(start) {
			return nil, c.refuse(CloseTooBig, ErrTooBig)
		}
		if msg, err = c.readPayload(msg, h.Length); err != nil {
			return nil, fmt.Errorf("read frame payload: %w", err)
		}
		if h.Masked {
			ws.Cipher(msg[start:], h.Mask, 0)
		}
		if h.Fin {
			return msg, nil
		}
		state = state.Set(ws.StateFragmented)
	}
}

// readPayload appends n bytes of the connection to dst. A length that is only announced is not trusted: dst grows as
// the bytes arrive.
func (c *Conn) readPayload(dst []byte, n int64) ([]byte, error) {
	for n > 0 {
		dst = slices.Grow(dst, int(min(n, payloadStep)))
		start := len(dst)
		dst = dst[:start+int(min(n, int64(cap(dst)-start)))]
		if _, err := io.ReadFull(c.r, dst[start:]); err != nil {
			return nil, unexpected(err)
		}
		n -= int64(len(dst) - start)
	}
	return dst, nil
}

// readControl reads the payload of a control frame and does what it asks for.
func (c *Conn) readControl(h ws.Header) error {
	p := c.control[:h.Length]
	if _, err := io.ReadFull(c.r, p); err != nil {
		return fmt.Errorf("read control frame: %w", unexpected(err))
	}
	if h.Masked {
		ws.Cipher(p, h.Mask, 0)
	}
	switch h.OpCode {
	case ws.OpPing:
		return c.write(ws.OpPong, [][]byte{p})
	case ws.OpPong:
		if c.onPong != nil {
			c.onPong()
		}
		return nil
	}
	return c.peerClosed(p)
}

// peerClosed answers the peer's close frame, as RFC 6455 wants, and returns its contents as an error.
func (c *Conn) peerClosed(p []byte) error {
	closed := &CloseError{Code: CloseNoStatus}
	if len(p) > 0 {
		code, reason := ws.ParseCloseFrameData(p)
		if err := ws.CheckCloseFrameData(code, reason); err != nil {
			return c.refuse(CloseProtocol, err)
		}
		closed = &CloseError{Code: uint16(code), Reason: reason}
		p = p[:2]
	}
	c.writeClose(p)
	c.conn.Close()
	return closed
}

// unexpected turns an end of input where a frame had to go on into io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// refuse tells the peer why it is cut off, gives it a moment to read that, and closes the connection. Without the
// moment, what the peer is still sending would reset the connection and take the close frame with it.
func (c *Conn) refuse(code uint16, cause error) error {
	c.writeClose(ws.NewCloseFrameBody(ws.StatusCode(code), cause.Error()))
	if half, ok := c.conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		if c.conn.SetReadDeadline(time.Now().Add(closeTimeout)) == nil {
			_, _ = io.Copy(io.Discard, c.conn)
		}
	}
	c.conn.Close()
	return fmt.Errorf("refuse frame: %w", cause)
}

// Write sends msg as one binary frame. It does not keep msg, nor change it. A peer that does not read fails it after
// 30 s, and every write after it.
func (c *Conn) Write(msg []byte) error {
	return c.write(ws.OpBinary, [][]byte{msg})
}

// WriteBatch sends each of msgs as one binary frame, all with one system call.
func (c *Conn) WriteBatch(msgs [][]byte) error {
	if len(msgs) == 0 {
		return nil
	}
	return c.write(ws.OpBinary, msgs)
}

// Ping sends a ping without payload.
func (c *Conn) Ping() error {
	return c.write(ws.OpPing, [][]byte{nil})
}

// framePool holds buffers in which frames are put together.
var framePool = sync.Pool{New: func() any { return new([]byte) }}

func (c *Conn) write(op ws.OpCode, payloads [][]byte) error {
	buf := framePool.Get().(*[]byte)
	b := (*buf)[:0]
	for _, p := range payloads {
		b = c.appendFrame(b, op, p)
	}

	c.mu.Lock()
	err := c.writeLocked(b, writeTimeout)
	c.mu.Unlock()

	if cap(b) <= keepFrames {
		*buf = b
		framePool.Put(buf)
	}
	if err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}

// writeLocked sends whole frames. One that leaves in part makes the rest of the connection meaningless, so an error
// closes it. The caller holds c.mu.
func (c *Conn) writeLocked(b []byte, timeout time.Duration) error {
	if c.closed {
		return net.ErrClosed
	}
	err := c.conn.SetWriteDeadline(time.Now().Add(timeout))
	if err == nil {
		_, err = c.conn.Write(b)
	}
	if err != nil {
		c.closed = true
		c.conn.Close()
	}
	return err
}

// appendFrame appends p in a frame of its own, masked if this is the client's end.
func (c *Conn) appendFrame(b []byte, op ws.OpCode, p []byte) []byte {
	h := ws.Header{Fin: true, OpCode: op, Length: int64(len(p)), Masked: c.side.ClientSide()}
	if h.Masked {
		h.Mask = ws.NewMask()
	}
	b = slices.Grow(b, ws.HeaderSize(h)+len(p))
	b = appendHeader(b, h)
	start := len(b)
	b = append(b, p...)
	if h.Masked {
		ws.Cipher(b[start:], h.Mask, 0)
	}
	return b
}

// Close sends a close frame, if there was none yet, and closes the connection without waiting for an answer. A Read
// in progress fails. It takes a second at most, and may be called again.
func (c *Conn) Close(code uint16, reason string) error {
	// A writer stuck on a peer that does not read must not hold up the closing.
	cut := time.AfterFunc(closeTimeout, c.cut)
	defer cut.Stop()
	c.writeClose(ws.NewCloseFrameBody(ws.StatusCode(code), reason))
	if err := c.conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close connection: %w", err)
	}
	return nil
}

// cut drops the transport below TLS, whose own Close would wait for the peer.
func (c *Conn) cut() {
	if t, ok := c.conn.(interface{ NetConn() net.Conn }); ok {
		t.NetConn().Close()
		return
	}
	c.conn.Close()
}

// writeClose sends a close frame, unless one was sent before. Whether it arrives matters to nobody.
func (c *Conn) writeClose(body []byte) {
	b := c.appendFrame(nil, ws.OpClose, body[:min(len(body), ws.MaxControlFramePayloadSize)])
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.writeLocked(b, closeTimeout)
	c.closed = true
}
