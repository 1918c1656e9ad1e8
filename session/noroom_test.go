package session_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/internal/testcert"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// noRoom is a backend whose log takes nothing, because it requires more free space than the disk has.
type noRoom struct {
	*testbackend.Backend
	t    *testing.T
	opts testbackend.Options
	tls  *tls.Config // of the agents' port; nil without TLS
}

// fillers is how many agents fill the log's buffer.
const fillers = 8

// startNoRoom starts a backend whose log takes nothing. The log's buffers are empty; see fill.
func startNoRoom(t *testing.T, secure bool, change func(*testbackend.Options)) *noRoom {
	t.Helper()
	n := &noRoom{t: t}
	n.Backend = testbackend.Start(t, func(o *testbackend.Options) {
		if secure {
			ca := testcert.New(t, "ca")
			server := ca.Issue(t, []string{"127.0.0.1"}, nil)
			o.TLS.AgentCertFile, o.TLS.AgentKeyFile = server.Cert, server.Key
			pem, err := os.ReadFile(ca.File)
			if err != nil {
				t.Fatal(err)
			}
			n.tls = &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1"}
			n.tls.RootCAs.AppendCertsFromPEM(pem)
		}
		o.Log.Partitions = 1
		if change != nil {
			change(o)
		}
		n.opts = *o
	})
	n.setMinFree(1 << 60)
	wait(t, "the log takes nothing", func() bool {
		resp, err := http.Get("http://" + n.APIAddr().String() + "/ready")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusServiceUnavailable
	})
	return n
}

func (n *noRoom) setMinFree(bytes uint64) {
	n.t.Helper()
	opts := n.opts
	opts.Log.MinFree = bytes
	if err := n.Reload(n.t.Context(), opts); err != nil {
		n.t.Fatal(err)
	}
}

// giveRoom lets the log take events again.
func (n *noRoom) giveRoom() { n.setMinFree(1 << 20) }

// fill fills the log's buffer, until all agents that send are delayed. It has one event more than theirs.
func (n *noRoom) fill() {
	n.t.Helper()
	// The writer takes what the buffer has and keeps it, because its commit fails. From then on the buffer only fills.
	first := n.connect("first")
	if _, err := first.Write(eventFrame(n.t, "first", 10)); err != nil {
		n.t.Fatal(err)
	}
	wait(n.t, "a commit fails", func() bool { return n.Counter(n.t, "lapwing_eventlog_commit_failures_total") > 0 })
	first.Close()
	wait(n.t, "the first session ends", func() bool { return n.Counter(n.t, "lapwing_agent_sessions") == 0 })
	for i := range fillers {
		name := fmt.Sprint("filler-", i)
		n.flood(n.connect(name), name)
	}
	n.heldUp(fillers)
}

// flood sends 1,000 events, which are more than the buffer takes, until the connection ends.
func (n *noRoom) flood(c net.Conn, name string) {
	event := eventFrame(n.t, name, 6000)
	go func() {
		for range 1000 {
			if _, err := c.Write(event); err != nil {
				return
			}
		}
	}()
}

// heldUp waits until that many agents are delayed because the log has no room.
func (n *noRoom) heldUp(agents int) {
	n.t.Helper()
	var blocked, unread float64
	defer func() {
		if n.t.Failed() {
			n.t.Logf("%v appends are blocked, %v agents are not read", blocked, unread)
		}
	}()
	wait(n.t, fmt.Sprint(agents, " agents are held up"), func() bool {
		blocked, unread = n.Counter(n.t, "lapwing_eventlog_blocked_appends"), n.Counter(n.t, "lapwing_agents_unread")
		return blocked+unread == float64(agents)
	})
}

// connect does an agent's handshake and returns the connection once the agent's configuration has arrived on it.
func (n *noRoom) connect(name string) net.Conn {
	n.t.Helper()
	c := dialFrom(n.t, "127.0.0.1", n.AgentAddr())
	if n.tls != nil {
		c = tls.Client(c, n.tls)
	}
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: backend\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nAccept: %s\r\n"+
		"Sensu-AgentName: %s\r\nSensu-Namespace: default\r\nAuthorization: Basic %s\r\n\r\n", wire.ContentType(wire.Protobuf), name,
		base64.StdEncoding.EncodeToString([]byte(testbackend.AgentUser+":"+testbackend.AgentPassword))); err != nil {
		n.t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		n.t.Fatalf("handshake of %s: %v, %v", name, answer, err)
	}
	if err := c.SetDeadline(time.Time{}); err != nil { // the machine's speed must not matter
		n.t.Fatal(err)
	}
	return c
}

// breakOff ends a connection like a killed process: unread data is lost.
func breakOff(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	_ = c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// frameOf returns a message as an agent sends it.
func frameOf(t *testing.T, typ string, ev *resource.Event) []byte {
	t.Helper()
	msg, err := wire.Append(nil, typ, wire.Protobuf, ev)
	if err != nil {
		t.Fatal(err)
	}
	return ws.MustCompileFrame(ws.MaskFrame(ws.NewBinaryFrame(msg)))
}

// eventFrame returns an agent's event with that many bytes of output.
func eventFrame(t *testing.T, name string, output int) []byte {
	t.Helper()
	ev := testbackend.Event(name, "long", 0, time.Now().Unix())
	ev.Check.Output = strings.Repeat("x", output)
	return frameOf(t, wire.TypeEvent, ev)
}
