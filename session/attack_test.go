package session_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"github.com/lapwing-monitoring/lapwing/internal/longtest"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// dialFrom opens a connection from an address of this host.
func dialFrom(t testing.TB, from string, to net.Addr) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(t.Context(), "tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(60 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// sign sends a handshake without an upgrade and returns its status, which is 400 if the password is right.
func sign(t testing.TB, b *testbackend.Backend, from, user, password string) int {
	t.Helper()
	c := dialFrom(t, from, b.AgentAddr())
	defer c.Close()
	credentials := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	_, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nSensu-AgentName: web\r\n"+
		"Sensu-Namespace: default\r\nAuthorization: Basic %s\r\n\r\n", credentials)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestLongHeaders sends headers of 900 kB to both ports. They are refused after 64 KiB, with and without an upgrade.
func TestLongHeaders(t *testing.T) {
	b := testbackend.Start(t, nil)
	long := strings.Repeat("x", 900_000)
	for _, to := range []net.Addr{b.AgentAddr(), b.APIAddr()} {
		for _, upgrade := range []string{"", "Connection: Upgrade\r\nUpgrade: websocket\r\n"} {
			c := dialFrom(t, "127.0.0.1", to)
			go func() { // the server may stop reading early
				_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n"+upgrade+"Sensu-AgentName: "+long+"\r\n\r\n")
			}()
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				var reset *net.OpError // closed before the header was read to its end
				if !errors.As(err, &reset) {
					t.Error(err)
				}
				continue
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
				t.Errorf("a header of 900 kB: status %d", resp.StatusCode)
			}
		}
	}
}

// TestGuessesAtTheAgentPort guesses the agents' password from one address. Agents at other addresses get in with the
// right one.
func TestGuessesAtTheAgentPort(t *testing.T) {
	b := testbackend.Start(t, nil)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 20 {
				if status := sign(t, b, "127.0.0.66", testbackend.AgentUser, fmt.Sprint("guess ", i, j)); status == http.StatusBadRequest {
					t.Error("a guess was right")
				}
			}
		})
	}
	all.Wait()
	for range 3 {
		if status := sign(t, b, "127.0.0.1", testbackend.AgentUser, testbackend.AgentPassword); status != http.StatusBadRequest {
			t.Errorf("the right password from elsewhere: status %d", status)
		}
	}
	if status := sign(t, b, "127.0.0.66", testbackend.AgentUser, testbackend.AgentPassword); status != http.StatusBadRequest {
		t.Errorf("a known password at the address of the guesses: status %d", status)
	}
}

// lockedBuffer is a log that several goroutines may write.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// TestHandshakesDoNotFillTheLog has 400 handshakes (100 without the tag long) with user names of 40 kB refused.
func TestHandshakesDoNotFillTheLog(t *testing.T) {
	var log lockedBuffer
	b := testbackend.Start(t, func(o *testbackend.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	log.mu.Lock()
	before := log.Len()
	log.mu.Unlock()
	for range longtest.Size(400, 100) {
		if status := sign(t, b, "127.0.0.66", strings.Repeat("x", 40_000), "password"); status != http.StatusUnauthorized {
			t.Fatalf("status %d", status)
		}
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	if logged := log.Len() - before; logged > 10_000 {
		t.Errorf("%d bytes were logged", logged)
	}
}

// TestSlowMessages has 40 agents (12 without the tag long) announce messages of 4 MiB, send all but the last byte and then
// nothing. The backend holds no more than it may, closes them one after the other, and goes on with an honest agent.
func TestSlowMessages(t *testing.T) {
	const limit = 10 << 20
	agents := longtest.Size(40, 12)
	b := testbackend.Start(t, func(o *testbackend.Options) { o.Session.PartialBytes, o.Session.MessageTimeout = limit, time.Second })
	honest := dial(t, b, "honest", nil)
	var all sync.WaitGroup
	for i := range agents {
		c := dialFrom(t, "127.0.0.66", b.AgentAddr())
		if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: backend\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nAccept: %s\r\n"+
			"Sensu-AgentName: slow-%d\r\nSensu-Namespace: default\r\nAuthorization: Basic %s\r\n\r\n", wire.ContentType(wire.Protobuf), i,
			base64.StdEncoding.EncodeToString([]byte(testbackend.AgentUser+":"+testbackend.AgentPassword))); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			frame := ws.MustCompileFrame(ws.MaskFrame(ws.NewBinaryFrame(make([]byte, 4<<20))))
			_, _ = c.Write(frame[:len(frame)-1]) // the backend may close it first
			_, err := io.Copy(io.Discard, c)
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				t.Errorf("agent %d is still connected", i)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	for most := 0.0; ; {
		most = max(most, b.Counter(t, "lapwing_agent_partial_bytes"))
		select {
		case <-time.After(5 * time.Millisecond):
			continue
		case <-done:
		}
		if most > limit+4<<20 { // one message may go past the limit
			t.Errorf("%v bytes were held, %d may be", most, limit)
		}
		break
	}
	if n := b.Counter(t, "lapwing_agent_slow_messages_total"); n != float64(agents) {
		t.Errorf("%v connections were closed for it, want %d", n, agents)
	}
	if held := b.Counter(t, "lapwing_agent_partial_bytes"); held != 0 {
		t.Errorf("%v bytes are held in the end", held)
	}
	received := b.Counter(t, "lapwing_events_received_total")
	if err := honest.Write(testbackend.Keepalive(t, "honest", wire.Protobuf)); err != nil {
		t.Fatal(err)
	}
	wait(t, "the honest agent is heard", func() bool { return b.Counter(t, "lapwing_events_received_total") > received })
}

// TestTrustedProxy: guesses through a proxy count against the address that the proxy names. Only a trusted proxy is
// believed.
func TestTrustedProxy(t *testing.T) {
	b := testbackend.Start(t, func(o *testbackend.Options) { o.TrustedProxies = []string{"127.0.0.9"} })
	login := func(peer, client, password string) int {
		t.Helper()
		c := dialFrom(t, peer, b.APIAddr())
		defer c.Close()
		req, _ := http.NewRequest(http.MethodGet, "http://x/auth", nil)
		req.Header.Set("X-Forwarded-For", client)
		req.SetBasicAuth(testbackend.User, password)
		if err := req.Write(c); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for i := range 10 {
		status, want := login("127.0.0.9", "203.0.113.66", fmt.Sprint("guess ", i)), http.StatusUnauthorized
		if i > 5 {
			want = http.StatusTooManyRequests
		}
		if status != want {
			t.Errorf("guess %d: status %d, want %d", i, status, want)
		}
	}
	if status := login("127.0.0.9", "203.0.113.1", "a guess from elsewhere"); status != http.StatusUnauthorized {
		t.Errorf("another client of the proxy: status %d", status)
	}
	for i := range 10 {
		if status := login("127.0.0.8", fmt.Sprint("203.0.113.", i), fmt.Sprint("forged ", i)); i > 5 && status != http.StatusTooManyRequests {
			t.Errorf("a client that invents addresses: status %d", status)
		}
	}
}

// TestIdleConnections leaves connections to the agents' port idle, before and after a request. Both are closed.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	for name, request := range map[string]string{
		"nothing was sent":  "",
		"part of a request": "GET / HTTP/1.1\r\nHost: x\r\n",
		"after a request":   "GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := dialFrom(t, "127.0.0.66", b.AgentAddr()) // reads time out after a minute
			if _, err := io.WriteString(c, request); err != nil {
				t.Fatal(err)
			}
			var timeout net.Error
			if _, err := io.Copy(io.Discard, c); errors.As(err, &timeout) && timeout.Timeout() {
				t.Error("it is still open")
			}
		})
	}
}
