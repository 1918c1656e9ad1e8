package send

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/testcert"
	"github.com/lapwing-monitoring/lapwing/resource"
)

var quietLog = log.New(io.Discard, "", 0)

func serverTLS(t testing.TB, pair testcert.Pair) *tls.Config {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert}
}

// collector takes lines on any number of connections, as carbon does.
type collector struct {
	net.Listener
	lines chan string // after the number of their connection

	mu    sync.Mutex
	conns []net.Conn
	wg    sync.WaitGroup
}

func newCollector(t testing.TB, addr string, config *tls.Config) *collector {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	c := &collector{Listener: l, lines: make(chan string, 1000)}
	c.wg.Go(func() {
		for n := 1; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.mu.Lock()
			c.conns = append(c.conns, conn)
			c.mu.Unlock()
			c.wg.Go(func() {
				for in := bufio.NewScanner(conn); in.Scan(); {
					c.lines <- fmt.Sprint(n, " ", in.Text())
				}
			})
		}
	})
	t.Cleanup(c.stop)
	return c
}

func (c *collector) stop() {
	c.Close()
	c.hangUp()
	c.wg.Wait()
}

// hangUp ends all connections.
func (c *collector) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = nil
}

func stream(addr net.Addr) *resource.Handler {
	h := socket("tcp_stream", addr)
	h.Stream = &resource.HandlerStream{}
	return h
}

// noticed waits until the sender knows that its connections have ended.
func noticed(t testing.TB, s *Sender) {
	t.Helper()
	eventually(t, func() string {
		if n := s.streams.open(); n > 0 {
			return fmt.Sprintf("%d connections are open", n)
		}
		return ""
	})
}

func TestStream(t *testing.T) {
	c := newCollector(t, "127.0.0.1:0", nil)
	s := setup(t, Options{})
	h := stream(c.Addr())
	send := func(text string) {
		t.Helper()
		want(t, text, s.Run(t.Context(), h, Job{Data: []byte(text)}), KindOK, false, "")
	}
	send("a")
	send("b")
	if a, b := <-c.lines, <-c.lines; a != "1 a" || b != "1 b" {
		t.Errorf("got %q, %q", a, b)
	}
	if n := s.streams.open(); n != 1 {
		t.Errorf("%d connections are open", n)
	}
	// The receiver restarts: nothing is written to a connection that has ended.
	c.hangUp()
	noticed(t, s)
	send("c")
	if got := <-c.lines; got != "2 c" {
		t.Errorf("got %q", got)
	}
	// A changed definition has connections of its own.
	h = stream(c.Addr())
	h.Stream.Separator = "|\n"
	h.Stream.Connections = 2
	send("d")
	if got := <-c.lines; got != "3 d|" {
		t.Errorf("got %q", got)
	}
	noticedOld := s.streams.open()
	if noticedOld != 1 {
		t.Errorf("%d connections are open", noticedOld)
	}
	// Gone for good.
	c.stop()
	noticed(t, s)
	want(t, "refused", s.Run(t.Context(), h, Job{Data: []byte("x")}), KindError, true, "refused")
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	want(t, "stopped", s.Run(t.Context(), stream(c.Addr()), Job{Data: []byte("x")}), KindError, true, "stopping")
}

// TestStreamConnections writes from many goroutines: lines stay whole, and the bound on connections holds.
func TestStreamConnections(t *testing.T) {
	c := newCollector(t, "127.0.0.1:0", nil)
	s := setup(t, Options{})
	h := stream(c.Addr())
	h.Stream.Connections = 3
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			want(t, "line", s.Run(t.Context(), h, Job{Data: []byte(strings.Repeat(fmt.Sprintf("%02d", i), 500))}), KindOK, false, "")
		})
	}
	wg.Wait()
	conns, texts := map[string]bool{}, []string{}
	for range 100 {
		conn, text, _ := strings.Cut(<-c.lines, " ")
		conns[conn] = true
		texts = append(texts, text)
	}
	sort.Strings(texts)
	for i, text := range texts {
		if text != strings.Repeat(fmt.Sprintf("%02d", i), 500) {
			t.Fatalf("line %d is %q", i, text)
		}
	}
	if len(conns) > 3 {
		t.Errorf("there were %d connections", len(conns))
	}
}

func TestStreamThatReadsNothing(t *testing.T) {
	t.Parallel()
	s := setup(t, Options{})
	h := stream(silent(t))
	h.Timeout = 1
	want(t, "full", s.Run(t.Context(), h, Job{Data: make([]byte, 64<<20)}), KindTimeout, true, "deadline")
	if n := s.streams.open(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
	// Other deliveries of the handler wait no longer than their own timeout.
	h.Timeout = 60
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan Result)
	go func() { done <- s.Run(ctx, h, Job{Data: make([]byte, 64<<20)}) }()
	eventually(t, func() string {
		if s.streams.open() == 0 {
			return "no connection is open yet"
		}
		return ""
	})
	short, end := timeoutContext(t, 10*time.Millisecond)
	defer end()
	want(t, "waits", s.Run(short, h, Job{Data: []byte("x")}), KindTimeout, true, "wait for the connection")
	cancel()
	<-done
}

// TestStreamThatTalks: the receiver sends more than it may.
func TestStreamThatTalks(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	flooded := make(chan struct{})
	go func() {
		defer close(flooded)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for b := make([]byte, 1<<20); ; {
			if _, err := conn.Write(b); err != nil {
				return
			}
		}
	}()
	s := setup(t, Options{})
	want(t, "first", s.Run(t.Context(), stream(l.Addr()), Job{Data: []byte("x")}), KindOK, false, "")
	<-flooded
	noticed(t, s)
}

func TestStreamTLS(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t, "ours")
	c := newCollector(t, "127.0.0.1:0", serverTLS(t, ca.Issue(t, []string{"127.0.0.1"}, nil)))
	s := setup(t, Options{})
	h := stream(c.Addr())
	h.Stream.TLS = &resource.HandlerTLS{CAFile: ca.File}
	for _, text := range []string{"a", "b"} {
		want(t, text, s.Run(t.Context(), h, Job{Data: []byte(text)}), KindOK, false, "")
		if got := <-c.lines; got != "1 "+text {
			t.Errorf("got %q", got)
		}
	}
	h.Stream.TLS = &resource.HandlerTLS{}
	want(t, "untrusted", s.Run(t.Context(), h, Job{Data: []byte("x")}), KindError, true, "unknown authority")
	h = stream(silent(t))
	h.Timeout, h.Stream.TLS = 1, &resource.HandlerTLS{}
	want(t, "no handshake", s.Run(t.Context(), h, Job{Data: []byte("x")}), KindTimeout, true, "deadline")
}

func TestStreamsAreForgotten(t *testing.T) {
	c := newCollector(t, "127.0.0.1:0", nil)
	s := setup(t, Options{})
	for i := range 2 * maxStreams {
		h := stream(c.Addr())
		h.Metadata.Name = fmt.Sprint("h", i)
		want(t, "x", s.Run(t.Context(), h, Job{Data: []byte("x")}), KindOK, false, "")
		<-c.lines // so the connection was accepted
		if i%maxStreams == maxStreams-1 {
			c.hangUp()
			noticed(t, s)
		}
	}
	if n := len(s.streams.pools); n > maxStreams {
		t.Errorf("%d handlers are remembered", n)
	}
}
