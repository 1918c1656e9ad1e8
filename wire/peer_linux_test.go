package wire

import (
	"net"
	"testing"
	"time"
)

// TestPeer asks about the peers of plain, polled and TLS connections that are open, hung up, and broken.
func TestPeer(t *testing.T) {
	plain := func(t *testing.T) (*Conn, *Conn) { return connPair(t) }
	for name, pair := range map[string]func(*testing.T) (server, client *Conn){
		"plain": plain,
		"TLS":   func(t *testing.T) (*Conn, *Conn) { return tlsPair(t) },
		"polled": func(t *testing.T) (*Conn, *Conn) {
			s, c := tcpPair(t)
			return NewServerConn(adopt(t, testPoller(t, 0), s, nil), nil, testLimit), NewClientConn(c, nil, testLimit)
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := func(when string, c *Conn, peer Peer) {
				t.Helper()
				eventually(t, when, func() bool { return c.Peer() == peer })
				if silent := c.Silent() > time.Hour; silent != (peer != PeerThere) {
					t.Errorf("%s: silent for %s", when, c.Silent())
				}
			}
			tcp := func(c *Conn) *net.TCPConn {
				if below, ok := c.conn.(interface{ NetConn() net.Conn }); ok {
					return below.NetConn().(*net.TCPConn)
				}
				return c.conn.(*net.TCPConn)
			}
			server, client := pair(t)
			want("it is there", server, PeerThere)
			if server.Unread() {
				t.Error("something was not read, and nothing sent")
			}
			if err := client.Write(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "what was sent waits to be read", server.Unread)
			if err := tcp(client).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			want("it has hung up", server, PeerHungUp)
			if err := tcp(client).SetLinger(0); err != nil {
				t.Fatal(err)
			}
			tcp(client).Close()
			want("it has broken off", server, PeerGone)
			server, _ = pair(t)
			server.Close(CloseGoingAway, "")
			want("this end is closed", server, PeerGone)
		})
	}
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	if c := NewServerConn(near, nil, 0); c.Peer() != PeerThere || c.Silent() != 0 || c.Unread() {
		t.Error("a pipe tells of its peer")
	}
}
