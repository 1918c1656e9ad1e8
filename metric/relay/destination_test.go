package relay

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/longtest"
	"github.com/lapwing-monitoring/lapwing/internal/testcert"
	"github.com/lapwing-monitoring/lapwing/metric/ring"
)

// one returns a running relay with one destination.
func one(t testing.TB, o DestinationOptions) (*Relay, *Destination) {
	t.Helper()
	r := start(t, Options{Destinations: []DestinationOptions{o}})
	return r, r.Destinations()[0]
}

// points flow in the larger tests.
var points = longtest.Size(200_000, 60_000)

// feed adds points while between is called after each tenth of them.
func feed(t *testing.T, d *Destination, between func(part int)) {
	t.Helper()
	for part := range 10 {
		if n := addPoints(d, part*points/10, (part+1)*points/10); n != points/10 {
			t.Fatalf("%d points were dropped", points/10-n)
		}
		between(part)
	}
}

// TestReceiverRestarts: the receiver ends its connections in order while points flow, and nothing is lost.
func TestReceiverRestarts(t *testing.T) {
	rec := newReceiver(t, receiverMode{})
	r, d := one(t, DestinationOptions{Destination: rec.destination(), Protocol: Line, SpillDir: t.TempDir()})
	feed(t, d, func(part int) {
		if part%3 == 2 {
			rec.quit()
			rec.start()
		}
	})
	stopInOrder(t, r)
	if b := d.Stats().SpillBytes; b != 0 {
		// The destination was behind by what was on disk: the next process sends that.
		one(t, DestinationOptions{Destination: rec.destination(), Protocol: Line, SpillDir: d.opts.SpillDir})
	}
	rec.wantPoints(points)
}

// TestReceiverIsKilled: what the receiver's host had acknowledged and the receiver had not read is lost, and no more.
func TestReceiverIsKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux knows what was acknowledged")
	}
	rec := newReceiver(t, receiverMode{small: true})
	_, d := one(t, DestinationOptions{Destination: rec.destination(), Protocol: Line, SpillDir: t.TempDir()})
	kills := 0
	feed(t, d, func(part int) {
		if part%3 == 2 {
			before, _ := rec.count()
			eventually(t, func() string { // so that there is something to lose
				if n, _ := rec.count(); n < min(before+1000, points*part/10) {
					return "nothing arrives"
				}
				return ""
			})
			rec.kill()
			rec.start()
			kills++
		}
	})
	eventually(t, func() string {
		if s := d.Stats(); s.QueueLength > 0 || s.SpillBytes > 0 || !s.Connected {
			return fmt.Sprintf("not all was sent: %+v", s)
		}
		return ""
	})
	// The last point arrives last.
	eventually(t, func() string {
		if !rec.has(points - 1) {
			return "the last point is missing"
		}
		return ""
	})
	if s := d.Stats(); s.Sent != uint64(points) {
		t.Errorf("%d points count as sent", s.Sent)
	}
	got := rec.got()
	lost, bytes := 0, 0
	for i := range points {
		if line := pointLine(i); !got[line] {
			lost++
			bytes += len(line)
		}
	}
	// 512 KiB in the kernel (twice what was asked for), 16 KiB in the program, and what its window had let through.
	if most := kills * (640 << 10); bytes > most {
		t.Errorf("%d points of %d bytes are lost at %d kills, want %d bytes at most", lost, bytes, kills, most)
	}
	_, again := rec.count()
	t.Logf("%d points of %d lost, %d arrived twice, %+v", lost, points, again, d.Stats())
}

// narrow is a connection with little room in the kernel.
func narrow(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(64 << 10)
	}
	return conn, err
}

// TestSlowReceiver: one receiver does not read. The other gets everything meanwhile, and the slow one when it reads.
func TestSlowReceiver(t *testing.T) {
	good, slow := newReceiver(t, receiverMode{}), newReceiver(t, receiverMode{hold: true, small: true})
	o := DestinationOptions{Protocol: Line, MaxQueueBytes: 1 << 20, Dial: narrow}
	fast := o
	fast.Destination, o.Destination = good.destination(), slow.destination()
	r := start(t, Options{SpillDir: t.TempDir(), Destinations: []DestinationOptions{fast, o}})
	dests := r.Route("any", nil)
	for i := range points {
		for _, d := range dests {
			if addPoints(d, i, i+1) == 1 {
				continue
			}
			eventually(t, func() string { // the disk makes room
				if addPoints(d, i, i+1) == 0 {
					return "the queue stays full"
				}
				return ""
			})
		}
	}
	good.wantPoints(points)
	if s := dests[1].Stats(); s.SpillBytes < 256<<10 || s.QueueBytes > 1<<20 {
		t.Errorf("the slow destination: %+v", s)
	}
	slow.read()
	slow.wantPoints(points)
	if s := dests[1].Stats(); s.Sent != uint64(points) || s.Resent != 0 {
		t.Errorf("the slow destination: %+v", s)
	}
}

// TestRestart: points that wait for a receiver survive a stop, and come in order.
func TestRestart(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rec := &receiver{t: t, addr: closed.Addr().String(), lines: map[string]int{}, conns: map[net.Conn]bool{},
		release: make(chan struct{})}
	closed.Close()
	dir := t.TempDir()
	o := DestinationOptions{Destination: rec.destination(), Protocol: Line}
	for round := range 4 {
		r := start(t, Options{SpillDir: dir, Destinations: []DestinationOptions{o}})
		addPoints(r.Destinations()[0], round*10_000, round*10_000+10_000)
		stopInOrder(t, r)
		stopInOrder(t, r)
		if s := r.Destinations()[0].Stats(); s.Spilled != 10_000 || s.SpillBytes == 0 {
			t.Fatalf("round %d: %+v", round, s)
		}
	}
	rec.start()
	t.Cleanup(func() { rec.kill(); rec.wg.Wait() })
	r := start(t, Options{SpillDir: dir, Destinations: []DestinationOptions{o}})
	rec.wantPoints(40_000)
	eventually(t, func() string {
		if s := r.Destinations()[0].Stats(); s.SpillBytes != 0 || s.Sent != 40_000 {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	if files, _ := filepath.Glob(filepath.Join(dir, "*", "*.spill")); len(files) > 0 {
		t.Errorf("files are left: %v", files)
	}
}

// TestDamagedSpill: a batch that is damaged on disk costs its points only.
func TestDamagedSpill(t *testing.T) {
	dir := t.TempDir()
	rec := newReceiver(t, receiverMode{})
	o := DestinationOptions{Destination: rec.destination(), Protocol: Line, SpillDir: dir}
	r, err := New(Options{Destinations: []DestinationOptions{o}})
	if err != nil {
		t.Fatal(err)
	}
	addPoints(r.Destinations()[0], 0, 10_000)
	stopInOrder(t, r) // before Start
	files, _ := filepath.Glob(filepath.Join(dir, "*.spill"))
	if len(files) != 1 {
		t.Fatalf("files %v", files)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(files[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, d := one(t, o)
	eventually(t, func() string {
		if s := d.Stats(); s.SpillBytes > 0 || s.SpillDamaged != 1 || s.Sent < 10_000-batchBytes/30 {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
}

// TestStopSends: without a spill, Stop sends everything that is in memory.
func TestStopSends(t *testing.T) {
	for _, p := range []Protocol{Line, Pickle, Protobuf} {
		rec := newReceiver(t, receiverMode{frames: p != Line})
		r, d := one(t, DestinationOptions{Destination: rec.destination(), Protocol: p, FlushInterval: time.Hour})
		addPoints(d, 0, 10_000)
		stopInOrder(t, r)
		if s := d.Stats(); s.Sent != 10_000 || s.QueueLength != 0 || s.Dropped[dropStopped] != 0 {
			t.Errorf("%v: %+v", p, s)
		}
		if p == Line {
			rec.wantPoints(10_000)
		}
		if d.Add([]byte("x"), 1, 1) || d.Stats().Dropped[dropStopped] != 1 {
			t.Error("a point was added after Stop")
		}
	}
}

// TestStopIsBounded: a receiver that does not read holds Stop only until its context ends.
func TestStopIsBounded(t *testing.T) {
	rec := newReceiver(t, receiverMode{hold: true, small: true})
	dir := t.TempDir()
	r, d := one(t, DestinationOptions{Destination: rec.destination(), Protocol: Line, SpillDir: dir, Dial: narrow})
	addPoints(d, 0, points)
	eventually(t, func() string {
		if s := d.Stats(); s.Sent == 0 {
			return "nothing is sent"
		}
		return ""
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	rec.kill()
	rec.read()
	rec.start()
	one(t, DestinationOptions{Destination: rec.destination(), Protocol: Line, SpillDir: dir})
	eventually(t, func() string {
		if !rec.has(points - 1) {
			return "the last point is missing"
		}
		return ""
	})
}

func TestTransports(t *testing.T) {
	authority := testcert.New(t, "ca")
	pair := authority.Issue(t, []string{"localhost", "127.0.0.1"}, nil)
	cert, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	pem, err := os.ReadFile(authority.File)
	if err != nil || !roots.AppendCertsFromPEM(pem) {
		t.Fatalf("read the authority: %v", err)
	}
	server := &tls.Config{Certificates: []tls.Certificate{cert}}
	client := func() *tls.Config { return &tls.Config{RootCAs: roots} }
	for _, tc := range []struct {
		name string
		mode receiverMode
		opts DestinationOptions
	}{
		{"tls", receiverMode{tls: server}, DestinationOptions{TLS: client, Protocol: Line}},
		{"gzip", receiverMode{gzip: true}, DestinationOptions{Protocol: Gzip}},
		{"tls and gzip", receiverMode{tls: server, gzip: true}, DestinationOptions{TLS: client, Protocol: Gzip}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rec := newReceiver(t, tc.mode)
			tc.opts.Destination = rec.destination()
			r, d := one(t, tc.opts)
			addPoints(d, 0, 5000)
			rec.wantPoints(5000)
			rec.quit()
			rec.start()
			addPoints(d, 5000, 10_000)
			stopInOrder(t, r)
			rec.wantPoints(10_000)
		})
	}
	t.Run("wrong certificate", func(t *testing.T) {
		rec := newReceiver(t, receiverMode{tls: server})
		_, d := one(t, DestinationOptions{Destination: rec.destination(), Protocol: Line,
			TLS: func() *tls.Config { return &tls.Config{RootCAs: x509.NewCertPool()} }})
		eventually(t, func() string {
			if s := d.Stats(); s.ConnectErrors == 0 || s.Connects != 0 {
				return fmt.Sprintf("%+v", s)
			}
			return ""
		})
	})
}

func TestUDP(t *testing.T) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, d := one(t, DestinationOptions{Protocol: UDP,
		Destination: ring.Destination{Host: "127.0.0.1", Port: conn.LocalAddr().(*net.UDPAddr).Port}})
	addPoints(d, 0, 100)
	got := map[string]bool{}
	b := make([]byte, 65536)
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	for len(got) < 100 {
		n, err := conn.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if n > maxDatagram {
			t.Errorf("a datagram of %d bytes", n)
		}
		for line := range strings.Lines(string(b[:n])) {
			got[line] = true
		}
	}
	for i := range 100 {
		if !got[pointLine(i)] {
			t.Errorf("point %d is missing", i)
		}
	}
}

// TestDrops: each point that finds no room is counted by its reason.
func TestDrops(t *testing.T) {
	nowhere := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nowhere") }
	o := DestinationOptions{Destination: ring.Destination{Host: "h", Port: 1}, MaxQueueBytes: 4 * batchBytes,
		Dial: nowhere}
	t.Run("memory", func(t *testing.T) {
		r, d := one(t, o)
		added := addPoints(d, 0, 20_000)
		s := d.Stats()
		if s.Dropped[dropQueueFull] != uint64(20_000-added) || added < 2000 || s.QueueLength != added ||
			s.QueueBytes > 4*batchBytes ||
			s.MaxQueueLength != added || s.QueuedUntilConnected != uint64(added) {
			t.Errorf("%d added: %+v", added, s)
		}
		stopNow(t, r)
		if s := d.Stats(); s.Dropped[dropStopped] != uint64(added) {
			t.Errorf("after Stop: %+v", s)
		}
	})
	t.Run("disk", func(t *testing.T) {
		o := o
		o.SpillDir, o.MaxSpillBytes = t.TempDir(), 256<<10
		_, d := one(t, o)
		i := 0
		eventually(t, func() string {
			addPoints(d, i, i+1000)
			i += 1000
			s := d.Stats()
			if s.Dropped[dropSpillFull] == 0 {
				return fmt.Sprintf("no drop after %d points: %+v", i, s)
			}
			return ""
		})
		s := d.Stats()
		if s.SpillBytes > 256<<10 || s.SpillBytes < 200<<10 || s.FullQueueDrops+uint64(s.QueueLength)+s.Spilled != uint64(i) {
			t.Errorf("%d points: %+v", i, s)
		}
	})
	t.Run("unusable", func(t *testing.T) {
		_, d := one(t, o)
		for _, name := range []string{"", repeat("x", maxName+1)} {
			if d.Add([]byte(name), 1, 1) {
				t.Errorf("a name of %d bytes is taken", len(name))
			}
		}
		if d.Add([]byte("x"), 1, math.NaN()) {
			t.Error("NaN is taken")
		}
		if s := d.Stats(); s.Dropped[dropUnusable] != 3 || s.FullQueueDrops != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestReconnectDelays: attempts to connect are at most MaxReconnectDelay apart, and grow apart until then.
func TestReconnectDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		r, err := New(Options{Destinations: []DestinationOptions{{Destination: ring.Destination{Host: "h", Port: 1},
			Dial: func(context.Context, string, string) (net.Conn, error) {
				at = append(at, time.Now())
				return nil, errors.New("down")
			}}}})
		if err != nil {
			t.Fatal(err)
		}
		r.Start()
		time.Sleep(time.Minute)
		stopNow(t, r)
		if len(at) < 12 || len(at) > 30 {
			t.Errorf("%d attempts in a minute", len(at))
		}
		for i := range len(at) - 2 { // the last one may be of the stop
			gap := at[i+1].Sub(at[i])
			if gap > 5*time.Second || i == 0 && gap != firstReconnectDelay || i > 10 && gap != 5*time.Second {
				t.Errorf("attempt %d is %v after the one before", i+1, gap)
			}
		}
		time.Sleep(2 * time.Minute) // the log's periods end
	})
}

// TestFlushInterval: a point waits for others, but not longer than FlushInterval.
func TestFlushInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		r, err := New(Options{Destinations: []DestinationOptions{{Destination: ring.Destination{Host: "h", Port: 1},
			Protocol:      Line,
			FlushInterval: time.Second, Dial: func(context.Context, string, string) (net.Conn, error) { return here, nil }}}})
		if err != nil {
			t.Fatal(err)
		}
		r.Start()
		d, begin := r.Destinations()[0], time.Now()
		addPoints(d, 0, 1)
		time.Sleep(600 * time.Millisecond)
		addPoints(d, 1, 2)
		b := make([]byte, 1000)
		n, err := there.Read(b)
		if got := string(b[:n]); err != nil || got != pointLine(0)+pointLine(1) {
			t.Errorf("got %q, %v", got, err)
		}
		if waited := time.Since(begin); waited != time.Second {
			t.Errorf("waited %v", waited)
		}
		go func() { _, _ = io.Copy(io.Discard, there) }()
		addPoints(d, 2, 3)
		if err := r.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if s := d.Stats(); s.Sent != 3 {
			t.Errorf("%+v", s)
		}
		there.Close()
	})
}

// TestWriteTimeout: a receiver that takes nothing is left, and its points are sent to the next connection.
func TestWriteTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := make(chan net.Conn, 1)
		r, err := New(Options{Destinations: []DestinationOptions{{Destination: ring.Destination{Host: "h", Port: 1},
			Protocol: Line,
			Dial: func(context.Context, string, string) (net.Conn, error) {
				here, there := net.Pipe()
				conns <- there
				return here, nil
			}}}})
		if err != nil {
			t.Fatal(err)
		}
		r.Start()
		d := r.Destinations()[0]
		first := <-conns
		addPoints(d, 0, 1)
		second := <-conns
		b := make([]byte, 1000)
		n, err := second.Read(b)
		if got := string(b[:n]); err != nil || got != pointLine(0) {
			t.Errorf("got %q, %v", got, err)
		}
		synctest.Wait()
		if s := d.Stats(); s.SlowConnectionResets != 1 || s.Sent != 1 || s.Resent != 0 || s.Disconnects != 1 {
			t.Errorf("%+v", s)
		}
		first.Close()
		second.Close()
		stopNow(t, r)
		time.Sleep(2 * time.Minute)
	})
}

func TestDestinationOptions(t *testing.T) {
	h := ring.Destination{Host: "h", Port: 1}
	for _, tc := range []struct {
		o    DestinationOptions
		want string
	}{
		{DestinationOptions{}, "port 0"},
		{DestinationOptions{Destination: h, Protocol: 9}, "unknown protocol 9"},
		{DestinationOptions{Destination: h, Protocol: UDP, TLS: func() *tls.Config { return nil }}, "TLS"},
		{DestinationOptions{Destination: h, MaxQueueBytes: 1}, "MaxQueueBytes"},
		{DestinationOptions{Destination: h, WriteTimeout: -1}, "must not be negative"},
		{DestinationOptions{Destination: h, SpillDir: t.TempDir(), MaxSpillBytes: 1}, "MaxBytes"},
	} {
		if _, err := New(Options{Destinations: []DestinationOptions{tc.o}}); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: got %v, want %q", tc.o, err, tc.want)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	rec := newReceiver(b, receiverMode{})
	_, d := one(b, DestinationOptions{Destination: rec.destination(), Protocol: Pickle})
	name := []byte("servers.host.cpu.total.idle")
	b.ReportAllocs()
	for b.Loop() {
		d.Add(name, 1423931224, 60.2)
	}
	b.ReportMetric(float64(d.Stats().FullQueueDrops)/float64(b.N), "drops/op")
}
