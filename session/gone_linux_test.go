package session_test

import (
	"fmt"
	"net"
	"testing"
)

// eachTransport runs a test for plain connections, which the poller reads, and for TLS connections, which have
// goroutines.
func eachTransport(t *testing.T, test func(t *testing.T, secure bool)) {
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, secure)
		})
	}
}

// TestGoneWhileLogHasNoRoom: agents connect, send and break the connection while the log takes nothing. Their sessions
// end.
func TestGoneWhileLogHasNoRoom(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, secure bool) {
		b := startNoRoom(t, secure, nil)
		b.fill()
		const gone = 20
		var conns []net.Conn
		for i := range gone {
			name := fmt.Sprint("gone-", i)
			c := b.connect(name)
			b.flood(c, name) // the buffer may have room for a few events
			conns = append(conns, c)
		}
		b.heldUp(fillers + gone)
		for _, c := range conns {
			breakOff(c)
		}
		wait(t, "the sessions of those that have gone end", func() bool { return b.Counter(t, "lapwing_agent_sessions") == fillers })
		b.heldUp(fillers)
	})
}
