package relay

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlclark/regexp2/v2"
	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/metric/ring"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		regexp2.StopTimeoutClock()
	}))
}

// receiver is a real listener that remembers what it reads.
type receiver struct {
	t    testing.TB
	addr string
	mode receiverMode

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
	lines    map[string]int // by line, or by message for frames
	again    int
	reads    bool          // otherwise connections are accepted and left alone
	release  chan struct{} // closed when reads becomes true
	wg       sync.WaitGroup
}

type receiverMode struct {
	tls    *tls.Config
	gzip   bool
	frames bool
	hold   bool // do not read before read is called
	small  bool // a small buffer in the kernel
}

func newReceiver(t testing.TB, mode receiverMode) *receiver {
	t.Helper()
	r := &receiver{t: t, addr: "127.0.0.1:0", mode: mode, lines: map[string]int{}, conns: map[net.Conn]bool{},
		reads: !mode.hold, release: make(chan struct{})}
	r.start()
	t.Cleanup(func() { r.kill(); r.read(); r.wg.Wait() })
	return r
}

func (r *receiver) destination() ring.Destination {
	addr, err := net.ResolveTCPAddr("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	return ring.Destination{Host: "127.0.0.1", Port: addr.Port}
}

// start listens, at the same address as before.
func (r *receiver) start() {
	r.t.Helper()
	l, err := net.Listen("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.addr = l.Addr().String()
	r.mu.Lock()
	r.listener = l
	r.mu.Unlock()
	r.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if r.mode.small {
				_ = conn.(*net.TCPConn).SetReadBuffer(256 << 10)
			}
			r.mu.Lock()
			if r.listener != l {
				r.mu.Unlock()
				conn.Close()
				continue
			}
			r.conns[conn] = true
			r.wg.Go(func() { r.serve(conn) })
			r.mu.Unlock()
		}
	})
}

func (r *receiver) serve(conn net.Conn) {
	defer func() {
		conn.Close()
		r.mu.Lock()
		delete(r.conns, conn)
		r.mu.Unlock()
	}()
	if r.mode.hold {
		<-r.release
	}
	var in io.Reader = conn
	if r.mode.tls != nil {
		in = tls.Server(conn, r.mode.tls)
	}
	if r.mode.gzip {
		z, err := gzip.NewReader(in)
		if err != nil {
			return
		}
		in = z
	}
	b := bufio.NewReaderSize(in, 16<<10)
	for {
		var got string
		var err error
		if r.mode.frames {
			var length [4]byte
			if _, err = io.ReadFull(b, length[:]); err == nil {
				frame := make([]byte, binary.BigEndian.Uint32(length[:]))
				_, err = io.ReadFull(b, frame)
				got = string(frame)
			}
		} else {
			got, err = b.ReadString('\n')
		}
		if err != nil {
			return // what is before the end of a line is dropped, as carbon does
		}
		r.mu.Lock()
		if r.lines[got]++; r.lines[got] > 1 {
			r.again++
		}
		r.mu.Unlock()
	}
}

// read begins to read if the receiver has held its connections.
func (r *receiver) read() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.reads {
		r.reads = true
		close(r.release)
	}
}

func (r *receiver) stopListening() (conns []*net.TCPConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != nil {
		r.listener.Close()
		r.listener = nil
	}
	for c := range r.conns {
		conns = append(conns, c.(*net.TCPConn))
	}
	return conns
}

// kill resets all connections, whatever the kernel has for them.
func (r *receiver) kill() {
	for _, c := range r.stopListening() {
		_ = c.SetLinger(0)
		c.Close()
	}
}

// quit ends all connections in order: it announces the end, and reads what is on the way.
func (r *receiver) quit() {
	for _, c := range r.stopListening() {
		_ = c.CloseWrite()
	}
	eventually(r.t, func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.conns) > 0 {
			return "the sender does not close its connection"
		}
		return ""
	})
}

// count returns how many different lines have arrived, and how many arrived again.
func (r *receiver) count() (lines, again int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.lines), r.again
}

func (r *receiver) has(point int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines[pointLine(point)] > 0
}

func (r *receiver) got() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]bool, len(r.lines))
	for line := range r.lines {
		all[line] = true
	}
	return all
}

// wantPoints waits for points 0 to n-1 of addPoints.
func (r *receiver) wantPoints(n int) {
	r.t.Helper()
	eventually(r.t, func() string {
		if got, _ := r.count(); got < n {
			return fmt.Sprintf("%d points have arrived, want %d", got, n)
		}
		return ""
	})
	got := r.got()
	for i := range n {
		if !got[pointLine(i)] {
			r.t.Fatalf("point %d is missing among %d", i, len(got))
		}
	}
}

func pointLine(i int) string { return fmt.Sprintf("servers.host%d.value %d 1423931224\n", i, i) }

func addPoints(d *Destination, from, to int) (added int) {
	var name []byte
	for i := from; i < to; i++ {
		name = fmt.Appendf(name[:0], "servers.host%d.value", i)
		if d.Add(name, 1423931224, float64(i)) {
			added++
		}
	}
	return added
}

func eventually(t testing.TB, ask func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		complaint := ask()
		if complaint == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(complaint)
		case <-tick.C:
		}
	}
}

// start returns a running relay, whose destinations write lines if they do not say otherwise.
func start(t testing.TB, o Options) *Relay {
	t.Helper()
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.Start()
	t.Cleanup(func() { stopNow(t, r) })
	return r
}

// stopNow stops without sending what is left.
func stopNow(t testing.TB, r *Relay) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func stopInOrder(t testing.TB, r *Relay) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func repeat(s string, n int) string { return strings.Repeat(s, n) }
