package wire

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/gobwas/ws"
)

// keepFrames is the size up to which a buffer for outgoing frames is kept for the next write.
const keepFrames = 64 << 10

// Write sends msg as one binary frame. It does not keep msg, nor change it. A peer that does not read fails it after
// 30 s, and every write after it.
func (c *Conn) Write(msg []byte) error {
	return c.write(ws.OpBinary, msg)
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

// TryWriteBatch is WriteBatch for a caller that must not wait: it sends what the socket takes at once. If that is not
// all it returns the rest, which the caller must pass to FinishWrite on a goroutine that may wait, even if the connection
// is closed in the meantime; until then other writers wait, or have a rest themselves. All is left over while another
// goroutine writes, and always on a TLS connection. No rest comes with an error.
func (c *Conn) TryWriteBatch(msgs [][]byte) (rest []byte, err error) {
	if len(msgs) == 0 {
		return nil, nil
	}
	o := c.frames(ws.OpBinary, msgs...)
	if c.socket == nil || !c.mu.TryLock() {
		return o.b, nil // o is not released: its memory is the rest's
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

// FinishWrite sends what a TryWriteBatch has left over. It waits as Write does.
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

// outgoing is whole frames on their way to the socket.
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

// frames puts each of payloads into a frame of its own.
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

// writeOnce is called by the socket. It never asks to be called again.
func (o *outgoing) writeOnce(fd uintptr) bool {
	o.sent, o.err = writeSocket(fd, o.b)
	return true
}

// writeLocked sends o and waits until all of it has left. The caller holds mu.
func (c *Conn) writeLocked(o *outgoing, timeout time.Duration) error {
	if err := c.tryLocked(o); err != nil {
		return err
	}
	if o.sent == len(o.b) {
		return nil
	}
	return c.finishLocked(o.b[o.sent:], timeout)
}

// tryLocked sends as much of o as the socket takes. The caller holds mu. A socket nearly always takes all: no deadline,
// which costs a timer, is set before it is known that there is something to wait for.
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
		err = c.conn.SetWriteDeadline(time.Time{}) // or it would pass, and the socket refuse the next try
	}
	return c.failLocked(err)
}

// failLocked closes the connection if err is not nil: a frame that has left in part makes the rest of the connection
// meaningless. The caller holds mu.
func (c *Conn) failLocked(err error) error {
	if err != nil {
		c.closed = true
		c.drop()
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
