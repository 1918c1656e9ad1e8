package wire

import (
	"bytes"
	"errors"
	"fmt"
	"net"

	"github.com/gobwas/ws"
)

// Read returns the next message, text or binary, with its fragments joined. The message is the caller's, which may
// change it, until the next Read: most messages are in a buffer that the next Read lends to another connection. Read
// answers pings.
//
// When the peer closes, the error is a *CloseError. A message over the limit is ErrTooBig, after a close frame with
// CloseTooBig; other violations of the protocol get one with CloseProtocol.
func (c *Conn) Read() ([]byte, error) {
	for {
		if msg, ok, err := c.Next(); ok || err != nil {
			return msg, err
		}
	}
}

// Next is Read for one frame: ok is false if it is not part of a message, for example a ping.
func (c *Conn) Next() (msg []byte, ok bool, err error) {
	c.Done()
	// Nearly all of its time a session's goroutine waits here. The runtime shrinks a waiting goroutine's stack only if
	// little of it is in use, so this call has small frames, and readMessage with its larger ones comes after.
	if err := c.in.wait(); err != nil {
		return nil, false, readError("header", err)
	}
	return c.readMessage()
}

// Await waits until the next message begins to arrive. If it is longer than a read buffer, Await returns its start, as
// Front does. Next continues from there.
func (c *Conn) Await() (start []byte, long bool, err error) {
	c.Done()
	if err := c.in.wait(); err != nil {
		return nil, false, readError("header", err)
	}
	h, n, err := parseHeader(c.in.data)
	if err != nil || n == 0 || !h.OpCode.IsData() || h.Length <= readSize {
		return nil, false, nil // Next returns the error
	}
	start, _ = c.Front()
	return start, true, nil
}

// readMessage reads the message that has begun to arrive. ok is false if that was a control frame.
func (c *Conn) readMessage() (msg []byte, ok bool, err error) {
	msg, ok, err = c.readFrames()
	switch {
	case !c.counted:
	case ok && err == nil:
		c.partials.complete(c)
	default:
		c.Done()
	}
	return msg, ok, err
}

// readFrames reads the frames of a message.
func (c *Conn) readFrames() (msg []byte, ok bool, err error) {
	state := c.side
	for {
		c.in.msg = cap(msg)
		h, err := c.in.header()
		if errors.Is(err, ws.ErrHeaderLengthMSB) {
			return nil, false, c.refuse(CloseProtocol, err)
		}
		if err != nil {
			return nil, false, readError("header", err)
		}
		if err := ws.CheckHeader(h, state); err != nil {
			return nil, false, c.refuse(CloseProtocol, err)
		}
		if h.OpCode.IsControl() {
			if err := c.readControl(h); err != nil || !state.Fragmented() {
				return nil, false, err
			}
			continue
		}
		start := len(msg)
		if c.maxMessage > 0 && h.Length > c.maxMessage-int64(start) {
			return nil, false, c.refuse(CloseTooBig, ErrTooBig)
		}
		whole := false
		if h.Fin && !state.Fragmented() {
			msg, whole = c.in.next(h.Length)
		}
		if !whole {
			if msg, err = c.in.appendTo(msg, h.Length, 0); err != nil {
				return nil, false, readError("payload", err)
			}
		}
		if h.Masked {
			ws.Cipher(msg[start:], h.Mask, 0)
		}
		if h.Fin {
			return msg, true, nil
		}
		state = state.Set(ws.StateFragmented)
	}
}

// Park ends a goroutine's reading of a connection that a Poller has adopted: the Poller's Next returns the owner from
// now on, maybe before Park returns. If it is false the goroutine must read on: something has arrived, or there is no
// Poller.
func (c *Conn) Park() bool {
	if c.in.polled == nil || len(c.in.data) > 0 || c.in.failed != nil {
		return false
	}
	c.Done()
	c.in.letGo()
	for !c.in.polled.park() {
		if c.in.readNow() {
			return false
		}
	}
	return true
}

// TryRead is Read for the goroutine that calls Poller.Next. It is not ok where there is nothing more to read; wait is
// true then if another goroutine has to take care of what there is: part of a message, a control frame, the end, or a
// mistake.
func (c *Conn) TryRead() (msg []byte, ok, wait bool) {
	c.Done()
	for {
		if c.in.whole(c.side, c.maxMessage) {
			msg, ok, err := c.readMessage()
			return msg, ok && err == nil, err != nil
		}
		part := len(c.in.data) > 0
		if part && !c.in.begun(c.side) || c.in.failed != nil {
			return nil, false, true
		}
		c.in.letGo()
		if !c.in.readNow() {
			return nil, false, part
		}
	}
}

// Front returns the first bytes of the message that comes next, without reading it; it is not ok if none has begun to
// arrive, or something else comes first. It is for the goroutine that calls Poller.Next, before it reads, and
// allocates.
func (c *Conn) Front() (start []byte, ok bool) {
	b := c.in.data
	if len(b) == 0 {
		b = c.in.polled.peek(make([]byte, 64))
	}
	h, n, err := parseHeader(b)
	if err != nil || n == 0 || !h.OpCode.IsData() {
		return nil, false
	}
	start = bytes.Clone(b[n:min(len(b), n+int(min(h.Length, 64)))])
	if h.Masked {
		ws.Cipher(start, h.Mask, 0)
	}
	return start, true
}

// Release gives back the memory that a connection has borrowed for what was read of it and not returned yet. It comes
// before ThenHold.
func (c *Conn) Release() { c.in.letGo() }

// readError keeps the stack use of wrapping an error out of Read's frame.
func readError(what string, err error) error {
	return fmt.Errorf("read frame %s: %w", what, err)
}

// Buffered reports whether the next Read returns without waiting for the peer, because its input has arrived with the
// last message. It is for the reading goroutine.
func (c *Conn) Buffered() bool {
	for b := c.in.data; ; {
		h, n, err := parseHeader(b)
		if err != nil {
			return true
		}
		if n == 0 || h.Length > int64(len(b)-n) {
			return false
		}
		if h.OpCode == ws.OpClose || h.Fin && !h.OpCode.IsControl() {
			return true
		}
		b = b[n+int(h.Length):]
	}
}

// readControl reads the payload of a control frame and acts on it.
func (c *Conn) readControl(h ws.Header) error {
	p, ok := c.in.next(h.Length)
	if !ok {
		var err error
		if p, err = c.in.appendTo(nil, h.Length, c.in.msg); err != nil {
			return fmt.Errorf("read control frame: %w", err)
		}
	}
	if h.Masked {
		ws.Cipher(p, h.Mask, 0)
	}
	switch h.OpCode {
	case ws.OpPing:
		// After Leave there are no answers any more, but still messages. If the connection is closed, the next read
		// fails.
		if err := c.write(ws.OpPong, p); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	case ws.OpPong:
		if c.onPong != nil {
			c.onPong()
		}
		return nil
	}
	return c.peerClosed(p)
}

// peerClosed answers the peer's close frame, as RFC 6455 demands, and returns its contents as an error.
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
	c.drop()
	return closed
}
