package wire

import (
	"errors"
	"fmt"

	"github.com/gobwas/ws"
)

// Read returns the next message, text or binary, with its fragments joined. The message is the caller's, to change too,
// until the next Read: most lie where they arrived, in memory that the next Read lends to whichever connection has
// something to read then. Pings are answered on the way.
//
// The peer's leaving is a *CloseError. A message over the limit is ErrTooBig, after a close frame with CloseTooBig;
// whatever else breaks the protocol gets one with CloseProtocol.
func (c *Conn) Read() ([]byte, error) {
	for {
		// Nearly all of its time a session waits here. The runtime takes back half of a waiting goroutine's stack only
		// where little is in use, so this call has small frames, and readMessage with its larger ones comes after.
		if err := c.in.wait(); err != nil {
			return nil, readError("header", err)
		}
		if msg, ok, err := c.readMessage(); ok || err != nil {
			return msg, err
		}
	}
}

// readMessage reads the message that has begun to arrive. It is not ok if that was a control frame.
func (c *Conn) readMessage() (msg []byte, ok bool, err error) {
	state := c.side
	for {
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
			if msg, err = c.in.appendTo(msg, h.Length); err != nil {
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

// readError keeps what wrapping an error needs on the stack out of Read's frame.
func readError(what string, err error) error {
	return fmt.Errorf("read frame %s: %w", what, err)
}

// Buffered reports whether the next Read returns without waiting for the peer, because what it will return has arrived
// together with the last message. Like Read, it is for the reading goroutine.
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

// readControl reads the payload of a control frame and does what it asks for.
func (c *Conn) readControl(h ws.Header) error {
	p, ok := c.in.next(h.Length)
	if !ok {
		var err error
		if p, err = c.in.appendTo(nil, h.Length); err != nil {
			return fmt.Errorf("read control frame: %w", err)
		}
	}
	if h.Masked {
		ws.Cipher(p, h.Mask, 0)
	}
	switch h.OpCode {
	case ws.OpPing:
		return c.write(ws.OpPong, p)
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
