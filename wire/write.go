package wire

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/gobwas/ws"
)

// keepFrames bounds the buffer for outgoing frames that is kept for the next write.
const keepFrames = 64 << 10

// Write sends msg as one binary frame. It neither keeps nor changes msg. If the peer does not read, it fails after 30
// s, and so does every later write.
func (c *Conn) Write(msg []byte) error {
	return c.write(ws.OpBinary, msg)
}

// WriteText writes one message of text, which must be UTF-8: scripts of a browser get it as a string.
func (c *Conn) WriteText(msg []byte) error {
	return c.write(ws.OpText, msg)
}

// WriteBatch sends each of msgs as one binary frame, all with one system call.
func (c *Conn) WriteBatch(msgs [][]byte) error {
	if len(msgs) == 0 {
		return nil
	}
	return c.write(ws.OpBinary, msgs...)
}

// Ping sends a ping without payload.
func (c *Conn) Ping() error {
	return c.write(ws.OpPing, nil)
}

// TryWriteBatch is WriteBatch for a caller that must not wait: it sends what the socket takes at once. It returns the
// rest, if any, which the caller must pass to FinishWrite on a goroutine that may wait, even if the connection is
// closed in the meantime. Until then other writers wait, or get a rest themselves. The rest is everything while another
// goroutine writes, and always on a TLS connection. With an error there is no rest.
func (c *Conn) TryWriteBatch(msgs [][]byte) (rest []byte, err error) {
	if len(msgs) == 0 {
		return nil, nil
	}
	o := c.frames(ws.OpBinary, msgs...)
	if c.socket == nil || !c.mu.TryLock() {
		return o.b, nil // o is not released: the rest uses its memory
	}
	err = c.tryLocked(o)
	if err == nil && o.sent < len(o.b) {
		rest = o.b[o.sent:]
		c.rest.Store(&rest[0])
		return rest, nil // with mu held
	}
	c.mu.Unlock()
	o.release()
	if err != nil {
		return nil, fmt.Errorf("write frames: %w", err)
	}
	return nil, nil
}

// FinishWrite sends the rest of a TryWriteBatch. It waits as Write does.
func (c *Conn) FinishWrite(rest []byte) error {
	if len(rest) == 0 {
		return nil
	}
	if !c.rest.CompareAndSwap(&rest[0], nil) {
		c.mu.Lock()
	}
	err := c.finishLocked(rest, writeTimeout)
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("write frames: %w", err)
	}
	return nil
}

func (c *Conn) write(op ws.OpCode, payloads ...[]byte) error {
	o := c.frames(op, payloads...)
	defer o.release()
	c.mu.Lock()
	err := c.writeLocked(o, writeTimeout)
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}

// outgoing holds complete frames on their way to the socket.
type outgoing struct {
	b    []byte
	sent int   // how much of b the socket has taken
	err  error // of the socket
	try  func(fd uintptr) bool
}

var outgoings = sync.Pool{New: func() any {
	o := new(outgoing)
	o.try = o.writeOnce // once, for it allocates
	return o
}}

// frames puts each payload into its own frame.
func (c *Conn) frames(op ws.OpCode, payloads ...[]byte) *outgoing {
	o := outgoings.Get().(*outgoing)
	o.b, o.sent, o.err = o.b[:0], 0, nil
	for _, p := range payloads {
		o.b = c.appendFrame(o.b, op, p)
	}
	return o
}

// release ends the use of o and its memory.
func (o *outgoing) release() {
	if cap(o.b) <= keepFrames {
		outgoings.Put(o)
	}
}

// writeOnce is called by the socket, once.
func (o *outgoing) writeOnce(fd uintptr) bool {
	o.sent, o.err = writeSocket(fd, o.b)
	return true
}

// writeLocked sends o and waits until all of it is written. The caller holds mu.
func (c *Conn) writeLocked(o *outgoing, timeout time.Duration) error {
	if err := c.tryLocked(o); err != nil {
		return err
	}
	if o.sent == len(o.b) {
		return nil
	}
	return c.finishLocked(o.b[o.sent:], timeout)
}

// tryLocked sends as much of o as the socket takes. The caller holds mu. A socket nearly always takes all, so a
// deadline, which costs a timer, is set only when there is something to wait for.
func (c *Conn) tryLocked(o *outgoing) error {
	if c.closed {
		return net.ErrClosed
	}
	if c.socket == nil {
		return nil
	}
	err := c.socket.Write(o.try)
	if err == nil {
		err = o.err
	}
	return c.failLocked(err)
}

// finishLocked sends b, which the socket has not taken at once. The caller holds mu.
func (c *Conn) finishLocked(b []byte, timeout time.Duration) error {
	if c.closed {
		return net.ErrClosed
	}
	err := c.conn.SetWriteDeadline(time.Now().Add(timeout))
	if err == nil {
		_, err = c.conn.Write(b)
	}
	if err == nil {
		err = c.conn.SetWriteDeadline(time.Time{}) // or it would pass, and the socket refuse the next attempt
	}
	return c.failLocked(err)
}

// failLocked closes the connection if err is not nil: after a partial frame the rest of the connection is meaningless.
// The caller holds mu.
func (c *Conn) failLocked(err error) error {
	if err != nil {
		c.closed = true
		c.drop()
	}
	return err
}

// appendFrame appends p in its own frame, masked if this is the client's end.
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
