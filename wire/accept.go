package wire

import (
	"bufio"
	"crypto/fips140"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/gobwas/ws"
)

// Accept answers a client's handshake, with more headers, and returns the connection without its deadlines, and what the
// HTTP server has read ahead, which may be nil. With an error the client has its answer.
func Accept(w http.ResponseWriter, r *http.Request, header http.Header) (conn net.Conn, ahead *bufio.Reader, err error) {
	var buf *bufio.ReadWriter
	// The protocol puts a SHA-1 of the client's key into the answer. It protects nothing, but GODEBUG=fips140=only would
	// refuse it.
	fips140.WithoutEnforcement(func() { conn, buf, _, err = ws.HTTPUpgrader{Header: header}.Upgrade(r, w) })
	if err != nil {
		return nil, nil, fmt.Errorf("websocket handshake: %w", err)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		conn.Close()
		return nil, nil, fmt.Errorf("websocket handshake: %w", err)
	}
	if buf != nil {
		ahead = buf.Reader
	}
	return conn, ahead, nil
}
