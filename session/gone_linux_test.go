package session_test

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestGoneWhileLogHasNoRoom: agents connect, send and break off while the log takes nothing. Their sessions end.
func TestGoneWhileLogHasNoRoom(t *testing.T) {
	t.Parallel()
	var opts testbackend.Options
	b := testbackend.Start(t, func(o *testbackend.Options) { opts = *o })
	opts.MinFreeDisk = 1 << 60
	if err := b.Reload(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	wait(t, "the log takes nothing", func() bool {
		resp, err := http.Get("http://" + b.APIAddr().String() + "/ready")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusServiceUnavailable
	})
	frame := func(name string) []byte {
		ev := testbackend.Event(name, "long", 0, time.Now().Unix())
		ev.Check.Output = strings.Repeat("x", 6000)
		frame, err := wire.Append(nil, wire.TypeEvent, wire.Protobuf, ev)
		if err != nil {
			t.Fatal(err)
		}
		return frame
	}
	const fillers, gone = 8, 20
	for i := range fillers { // so many that each partition gets some
		name := fmt.Sprint("filler-", i)
		conn, _ := b.DialAgent(t, name, nil)
		a, event := agent{conn, t}, frame(name)
		a.want(wire.TypeEntityConfig)
		go func() {
			for range 1000 {
				if a.Write(event) != nil {
					return
				}
			}
		}()
	}
	wait(t, "the log has no room", func() bool { return b.Counter(t, "lapwing_eventlog_blocked_appends") >= 2 })
	var conns []net.Conn
	for i := range gone {
		name := fmt.Sprint("gone-", i)
		c := dialFrom(t, "127.0.0.66", b.AgentAddr())
		if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: backend\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nAccept: %s\r\n"+
			"Sensu-AgentName: %s\r\nSensu-Namespace: default\r\nAuthorization: Basic %s\r\n\r\n", wire.ContentType(wire.Protobuf), name,
			base64.StdEncoding.EncodeToString([]byte(testbackend.AgentUser+":"+testbackend.AgentPassword))); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(ws.MustCompileFrame(ws.MaskFrame(ws.NewBinaryFrame(frame(name))))); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	wait(t, "all are there", func() bool { return b.Counter(t, "lapwing_agent_sessions") == fillers+gone })
	time.Sleep(100 * time.Millisecond) // until their messages are held
	for _, c := range conns {
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
	wait(t, "the sessions of those that have gone end", func() bool { return b.Counter(t, "lapwing_agent_sessions") <= fillers })
}
