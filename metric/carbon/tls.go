package carbon

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

const (
	// handshakeTimeout bounds a TLS handshake, whatever arrives in the meantime.
	handshakeTimeout = 10 * time.Second
	// tlsWriteTimeout bounds a write. A listener writes little: the handshake, answers to changes of keys, and the end.
	tlsWriteTimeout = 5 * time.Second
)

// errCut says that the connection has ended without TLS's end, by which a sender says that it has sent everything.
var errCut = errors.New("the connection has ended without the end of TLS")

// tlsSocket is what TLS reads and writes: the connection with its timeouts and counts.
type tlsSocket struct {
	*net.TCPConn
	c *conn
}

func (s tlsSocket) Read(b []byte) (int, error) { return s.c.Read(b) }

func (s tlsSocket) Write(b []byte) (int, error) {
	if err := s.SetWriteDeadline(time.Now().Add(tlsWriteTimeout)); err != nil {
		return 0, err
	}
	return s.TCPConn.Write(b)
}

// decrypter reads an encrypted connection.
type decrypter struct{ c *conn }

func (d decrypter) Read(b []byte) (int, error) {
	n, err := d.c.secured.Read(b)
	if err != nil && errors.Is(d.c.readErr, io.EOF) {
		// The socket is read no further than TLS's end, so this came first. Some senders end in this way, and so may an
		// attacker.
		err = errCut
	}
	return n, err
}

// encrypted reads encrypted lines.
func (c *conn) encrypted() closed {
	c.secured = tls.Server(tlsSocket{c.socket, c}, c.l.opts.TLS)
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	defer cancel()
	if err := c.secured.HandshakeContext(ctx); err != nil {
		if c.received == 0 && errors.Is(c.readErr, io.EOF) {
			return closedEOF // a load balancer looks at whether the port is open
		}
		if c.l.stopping.Load() {
			return closedStop
		}
		host := hostOf(c.client)
		c.l.rare.Warn("a connection is closed, its TLS handshake has failed", host, "client", host, "err", err)
		return closedHandshake
	}
	return c.lines(decrypter{c})
}
