package wire

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gobwas/ws"
)

// countingConn counts the writes that reach the network.
type countingConn struct {
	net.Conn
	writes atomic.Int32
}

func (c *countingConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

func TestWriteBatch(t *testing.T) {
	s, c := tcpPair(t)
	counter := &countingConn{Conn: s}
	server, client := NewServerConn(counter, nil, 0), NewClientConn(c, nil, 0)
	if err := server.WriteBatch(nil); err != nil || counter.writes.Load() != 0 {
		t.Errorf("empty batch: %v, %d writes", err, counter.writes.Load())
	}
	batch := [][]byte{[]byte("a"), nil, bytes.Repeat([]byte("x"), 1000)}
	if err := server.WriteBatch(batch); err != nil {
		t.Fatal(err)
	}
	if n := counter.writes.Load(); n != 1 {
		t.Errorf("%d writes", n)
	}
	for _, want := range batch {
		if got, err := client.Read(); err != nil || !bytes.Equal(got, want) {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

func TestClientFramesAreMaskedCopies(t *testing.T) {
	server, c := tcpPair(t)
	client := NewClientConn(c, nil, 0)
	msg := []byte("the message")
	masks := make(map[[4]byte]bool)
	for range 4 {
		if err := client.Write(msg); err != nil {
			t.Fatal(err)
		}
		f, err := readFrame(server)
		if err != nil {
			t.Fatal(err)
		}
		if !f.Header.Masked || string(ws.UnmaskFrame(f).Payload) != "the message" {
			t.Errorf("got %+v", f)
		}
		masks[f.Header.Mask] = true
	}
	if string(msg) != "the message" {
		t.Error("Write changed the message")
	}
	if len(masks) < 2 {
		t.Error("every frame has the same mask")
	}
}

func TestConcurrentWrites(t *testing.T) {
	server, client := connPair(t)
	const writers, each = 8, 100
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				msg := fmt.Appendf(nil, "%d %d %s", w, i, strings.Repeat("x", 37*i))
				var err error
				if i%2 == 0 {
					err = client.Write(msg)
				} else {
					err = client.WriteBatch([][]byte{msg})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	next := make([]int, writers)
	for range writers * each {
		got, err := server.Read()
		if err != nil {
			t.Fatal(err)
		}
		var w, i int
		if _, err := fmt.Sscanf(string(got), "%d %d", &w, &i); err != nil {
			t.Fatal(err)
		}
		if i != next[w] {
			t.Errorf("writer %d: message %d, want %d", w, i, next[w])
		}
		next[w]++
	}
	wg.Wait()
}

func TestPeerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		c := NewServerConn(near, nil, 0)
		start := time.Now()
		if err := c.Write([]byte("x")); err == nil || time.Since(start) != writeTimeout {
			t.Errorf("Write: %v after %v", err, time.Since(start))
		}
		// The stream is broken now, so no more is written.
		if err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("second Write: %v", err)
		}
		if _, err := c.Read(); err == nil {
			t.Error("Read went on")
		}
	})
}

func TestCloseDuringStuckWrite(t *testing.T) {
	t.Parallel() // takes closeTimeout
	server, _ := connPair(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := server.Write(make([]byte, 64<<20)); err == nil {
			t.Error("the write succeeded")
		}
	})
	for server.mu.TryLock() { // until the write has begun
		server.mu.Unlock()
		runtime.Gosched()
	}
	start := time.Now()
	if err := server.Close(CloseGoingAway, "bye"); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if d := time.Since(start); d > writeTimeout/2 {
		t.Errorf("Close took %v", d)
	}
}

// socketPair is connPair for tests that need plain sockets.
func socketPair(t *testing.T) (server, client *Conn) {
	t.Helper()
	server, client = connPair(t)
	if server.socket == nil {
		t.Skip("sockets cannot be asked without waiting here")
	}
	return server, client
}

// fill writes to c until the socket takes no more, and returns the rest and the number of messages.
func fill(t *testing.T, c *Conn, msg []byte) (rest []byte, n int) {
	t.Helper()
	for n = 1; ; n++ {
		rest, err := c.TryWriteBatch([][]byte{msg})
		if err != nil {
			t.Fatal(err)
		}
		if rest != nil {
			return rest, n
		}
	}
}

func TestTryWriteBatch(t *testing.T) {
	server, client := socketPair(t)
	if rest, err := server.TryWriteBatch(nil); rest != nil || err != nil {
		t.Errorf("empty batch: %d left, %v", len(rest), err)
	}
	batch := [][]byte{[]byte("a"), nil, bytes.Repeat([]byte("x"), 1000)}
	if rest, err := server.TryWriteBatch(batch); rest != nil || err != nil {
		t.Fatalf("%d left, %v", len(rest), err)
	}
	for _, want := range batch {
		if got, err := client.Read(); err != nil || !bytes.Equal(got, want) {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	if err := server.Close(CloseGoingAway, "bye"); err != nil {
		t.Fatal(err)
	}
	if rest, err := server.TryWriteBatch(batch); rest != nil || !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %d left, %v", len(rest), err)
	}
}

// The peer gets every message completely and in order, though the socket took only a part of one.
func TestFinishWrite(t *testing.T) {
	server, client := socketPair(t)
	msg := bytes.Repeat([]byte("lapwing "), 8<<10)
	rest, n := fill(t, server, msg)
	if server.mu.TryLock() {
		t.Fatal("another writer may write in the middle of a frame")
	}
	// Neither another attempt nor its rest gets in between.
	second, err := server.TryWriteBatch([][]byte{[]byte("second")})
	if second == nil || err != nil {
		t.Fatalf("while a rest is outstanding: %q, %v", second, err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := server.FinishWrite(second); err != nil {
			t.Error(err)
		}
		if err := server.FinishWrite(nil); err != nil {
			t.Error(err)
		}
	})
	wg.Go(func() {
		if err := server.FinishWrite(rest); err != nil {
			t.Error(err)
		}
	})
	for i := range n {
		if got, err := client.Read(); err != nil || !bytes.Equal(got, msg) {
			t.Fatalf("message %d of %d: %d bytes, %v", i, n, len(got), err)
		}
	}
	if got, err := client.Read(); err != nil || string(got) != "second" {
		t.Errorf("got %q, %v", got, err)
	}
	wg.Wait()
	if rest, err := server.TryWriteBatch([][]byte{[]byte("third")}); rest != nil || err != nil {
		t.Errorf("afterwards: %d left, %v", len(rest), err)
	}
}

// TLS and other connections without a plain socket are left to a goroutine that may wait.
func TestTryWriteBatchOverTLS(t *testing.T) {
	server, client := tlsPair(t)
	rest, err := server.TryWriteBatch([][]byte{[]byte("a"), []byte("b")})
	if rest == nil || err != nil {
		t.Fatalf("%d left, %v", len(rest), err)
	}
	if err := server.FinishWrite(rest); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a", "b"} {
		if got, err := client.Read(); err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

// A connection may be closed before its rest is finished.
func TestCloseWithARest(t *testing.T) {
	t.Parallel() // takes closeTimeout
	server, _ := socketPair(t)
	rest, err := server.TryWriteBatch([][]byte{make([]byte, 64<<20)}) // more than the sockets hold, even a moment later
	if rest == nil || err != nil {
		t.Fatalf("%d left, %v", len(rest), err)
	}
	closed := make(chan error)
	go func() { closed <- server.Close(CloseGoingAway, "bye") }()
	if err := server.FinishWrite(rest); err == nil {
		t.Error("the peer has not read, and yet all is written")
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// deadlineConn notes the last deadline.
type deadlineConn struct {
	net.Conn
	sets int
	last time.Time
}

func (c *deadlineConn) SetWriteDeadline(t time.Time) error {
	c.sets, c.last = c.sets+1, t
	return c.Conn.SetWriteDeadline(t)
}

// A write that has to wait has a deadline, which must not affect a later one. A write that need not wait has none.
func TestWriteDeadlines(t *testing.T) {
	server, client := socketPair(t)
	deadlines := &deadlineConn{Conn: server.conn}
	server.conn = deadlines
	msg := make([]byte, 64<<10)
	rest, n := fill(t, server, msg)
	if deadlines.sets != 0 {
		t.Errorf("%d deadlines for writes that did not wait", deadlines.sets)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for range n {
			if _, err := client.Read(); err != nil {
				t.Error(err)
			}
		}
	})
	if err := server.FinishWrite(rest); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if deadlines.sets != 2 || !deadlines.last.IsZero() {
		t.Errorf("%d deadlines, %v is left", deadlines.sets, deadlines.last)
	}
}

func TestConcurrentTries(t *testing.T) {
	server, client := connPair(t)
	const writers, each = 4, 200
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				rest, err := server.TryWriteBatch([][]byte{fmt.Appendf(nil, "%d %d %s", w, i, strings.Repeat("x", 137*i))})
				if err == nil {
					err = server.FinishWrite(rest)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	next := make([]int, writers)
	for range writers * each {
		got, err := client.Read()
		if err != nil {
			t.Fatal(err)
		}
		var w, i int
		if _, err := fmt.Sscanf(string(got), "%d %d", &w, &i); err != nil {
			t.Fatal(err)
		}
		if i != next[w] {
			t.Errorf("writer %d: message %d, want %d", w, i, next[w])
		}
		next[w]++
	}
	wg.Wait()
}
