package carbon

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"
)

// patience is how long a test waits for something that must happen.
const patience = 20 * time.Second

// sink makes writers, and receives what they get.
type sink struct {
	points chan string
	gate   chan struct{} // if not nil, Add waits until it is closed or the writer is
	fail   error         // of Flush

	mu                 sync.Mutex // guards the fields below
	open, most, closed int
	flushes            int
}

func newSink() *sink { return &sink{points: make(chan string, 100_000)} }

type sinkWriter struct {
	s      *sink
	closed chan struct{}
}

func (s *sink) writer() *sinkWriter {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	s.most = max(s.most, s.open)
	return &sinkWriter{s: s, closed: make(chan struct{})}
}

func (s *sink) NewWriter() Writer { return s.writer() }

func (w *sinkWriter) Add(name []byte, unixMilli int64, value float64) error {
	if w.s.gate != nil {
		select {
		case <-w.s.gate:
		case <-w.closed:
			return errors.New("the writer is closed")
		}
	}
	w.s.points <- fmt.Sprintf("%s %v %v", name, value, unixMilli)
	return nil
}

func (w *sinkWriter) Flush() error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.flushes++
	return w.s.fail
}

func (w *sinkWriter) Close() error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.open--
	w.s.closed++
	close(w.closed)
	return nil
}

// next waits for n points.
func (s *sink) next(t *testing.T, n int) []string {
	t.Helper()
	var got []string
	for range n {
		select {
		case p := <-s.points:
			got = append(got, p)
		case <-time.After(patience):
			t.Fatalf("only %d points of %d arrived: %.300q", len(got), n, got)
		}
	}
	return got
}

// rest returns the points that nothing waits for.
func (s *sink) rest() (got []string) {
	for {
		select {
		case p := <-s.points:
			got = append(got, p)
		default:
			return got
		}
	}
}

// running is a Listener in a test.
type running struct {
	*Listener
	sink     *sink
	registry *prometheus.Registry
	log      *bytes.Buffer // read it after stop only
}

// listen starts a Listener on a free port.
func listen(t *testing.T, opts Options) *running {
	t.Helper()
	r := prepare(t, opts)
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// prepare makes a Listener on a free port, and stops it at the end of the test.
func prepare(t *testing.T, opts Options) *running {
	t.Helper()
	r := &running{sink: newSink(), registry: prometheus.NewRegistry(), log: &bytes.Buffer{}}
	opts.Address, opts.Registerer, opts.Now = "127.0.0.1:0", r.registry, testNow
	opts.Logger = slog.New(slog.NewTextHandler(r.log, nil))
	if opts.NewWriter == nil && opts.NewDroppingWriter == nil {
		opts.NewWriter = r.sink.NewWriter
	}
	var err error
	if r.Listener, err = New(opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.stop(t) })
	return r
}

func (r *running) stop(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.Stop(ctx); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

// dial connects to a Listener.
func (r *running) dial(t *testing.T) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", r.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// send connects, writes data, and closes the connection in an orderly way.
func (r *running) send(t *testing.T, data []byte) {
	t.Helper()
	c := r.dial(t)
	if _, err := c.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	waitClosed(t, c)
}

// waitClosed waits until the other side closes the connection.
func waitClosed(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the connection is not closed: %d, %v", n, err)
	}
}

// metric returns a metric by its name without the common beginning, and perhaps a reason.
func (r *running) metric(t *testing.T, name, reason string) float64 {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "lapwing_metric_carbon_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			found := reason == ""
			for _, l := range m.GetLabel() {
				found = found || l.GetName() == "reason" && l.GetValue() == reason
			}
			if found {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("there is no metric %s with reason %q", name, reason)
	return 0
}

// wantMetrics compares metrics, given as name or name/reason.
func (r *running) wantMetrics(t *testing.T, want map[string]float64) {
	t.Helper()
	for key, value := range want {
		name, reason, _ := strings.Cut(key, "/")
		if got := r.metric(t, name, reason); got != value {
			t.Errorf("metric %s is %v, want %v", key, got, value)
		}
	}
}

func TestLineListener(t *testing.T) {
	r := listen(t, Options{Protocol: LineTCP})
	r.send(t, []byte("a.b 1.5 1423931224\r\nc;t=x 2 -1\r\nbad\nd nan 1423931224\n\ne 3 1423931224"))
	want := []string{"a.b 1.5 1423931224000", "c;t=x 2 1423931300000", "e 3 1423931224000"}
	if got := r.sink.next(t, 3); !slices.Equal(got, want) {
		t.Errorf("points %q", got)
	}
	r.stop(t)
	r.wantMetrics(t, map[string]float64{"points_total": 3, "rejected_points_total/format": 1, "rejected_points_total/nan": 1,
		"connections": 0, "connections_total": 1, "closed_connections_total/eof": 1, "received_bytes_total": 68})
	if got := r.Stats(); got != (Stats{Points: 3, Rejected: 2}) {
		t.Errorf("stats %+v", got)
	}
	if r.sink.closed != 1 || r.sink.flushes == 0 {
		t.Errorf("%d writers closed, %d flushes", r.sink.closed, r.sink.flushes)
	}
	if log := r.log.String(); !strings.Contains(log, "reason=format sample=bad") {
		t.Errorf("log %s", log)
	}
}

// TestPickleAtThePortForLines checks that the log says what is wrong, once a minute for each sender.
func TestPickleAtThePortForLines(t *testing.T) {
	const message = "pickle arrives at the port for lines; send it to --carbon-pickle-listen-address"
	pickled := frame("\x80\x02]q\x00(X\x03\x00\x00\x00a.bq\x01J" +
		"\xe8\x9b\xde\x54G\x3f\xf8\x00\x00\x00\x00\x00\x00\x86q\x02\x86q\x03e.")
	for name, tc := range map[string]struct {
		data []byte
		want int
	}{
		"pickle":              {pickled, 1},
		"a line feed in it":   {frame("\x80\x04" + strings.Repeat("x", 10-2)), 1},
		"protocol 0":          {frame("(lp0\n."), 0},
		"lines":               {[]byte("a.b 1.5 1423931224\na.b 1.5 1423931225\n"), 0},
		"too long":            {[]byte("\xff\x00\x00\x00\x80\x02"), 0},
		"breaks off":          {pickled[:5], 0},
		"later in connection": {append([]byte("a 1 1423931224\n"), pickled...), 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := listen(t, Options{Protocol: LineTCP})
			r.send(t, tc.data)
			r.send(t, tc.data)
			c := r.dial(t)
			for _, b := range tc.data {
				if _, err := c.Write([]byte{b}); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			waitClosed(t, c)
			r.stop(t)
			log := r.log.String()
			if got := strings.Count(log, message); got != tc.want {
				t.Errorf("the log says it %d times, want %d: %s", got, tc.want, log)
			}
			if tc.want > 0 && !strings.Contains(log, message+`" component=carbon protocol=line client=127.0.0.1`) {
				t.Errorf("the log does not name the sender: %s", log)
			}
		})
	}
}

// TestConnectionsStayOpen checks that bad lines do not end a connection.
func TestConnectionsStayOpen(t *testing.T) {
	r := listen(t, Options{Protocol: LineTCP})
	c := r.dial(t)
	for i := range 3 {
		if _, err := fmt.Fprintf(c, "\x00\xff garbage\n\nmore of it 1 2 3 4\na 1 1423931224\n"); err != nil {
			t.Fatal(err)
		}
		if got := r.sink.next(t, 1); got[0] != "a 1 1423931224000" {
			t.Errorf("%d: points %q", i, got)
		}
	}
	if got := r.Stats().Connections; got != 1 {
		t.Errorf("%d connections", got)
	}
}

// chunks is a reader that returns the pieces one by one, and then an error.
type chunks struct {
	pieces [][]byte
	err    error
}

func (c *chunks) Read(b []byte) (int, error) {
	if len(c.pieces) == 0 {
		return 0, c.err
	}
	n := copy(b, c.pieces[0])
	if c.pieces[0] = c.pieces[0][n:]; len(c.pieces[0]) == 0 {
		c.pieces = c.pieces[1:]
	}
	return n, nil
}

// inPieces cuts data at every position into two, and last into single bytes.
func inPieces(data []byte) (all [][][]byte) {
	for i := range len(data) + 1 {
		all = append(all, [][]byte{data[:i], data[i:]})
	}
	var single [][]byte
	for i := range data {
		single = append(single, data[i:i+1])
	}
	return append(all, single)
}

func withoutEmpty(pieces [][]byte) [][]byte {
	return slices.DeleteFunc(pieces, func(p []byte) bool { return len(p) == 0 })
}

func TestLinesInPieces(t *testing.T) {
	r := prepare(t, Options{Protocol: LineTCP, MaxName: 50, MaxLine: 3000})
	long := strings.Repeat("n", 400)
	data := []byte("a.b 1.5 1423931224\r\nbad\n" + long + "\n\nc\t2\t1423931224\n" + strings.Repeat("x", 60) + " 1 1\nd 3 1423931224")
	for _, big := range []bool{true, false} {
		if !big {
			r.buffers.lent.Store(maxBig) // no big buffer is left
		}
		for _, pieces := range inPieces(data) {
			c := newConn(r.Listener, nil, nil)
			if reason := c.lines(&chunks{withoutEmpty(pieces), io.EOF}); reason != closedEOF {
				t.Fatalf("closed: %s", closedNames[reason])
			}
			want := []string{"a.b 1.5 1423931224000", "c 2 1423931224000", "d 3 1423931224000"}
			if got := r.sink.rest(); !slices.Equal(got, want) {
				t.Fatalf("cut behind %d: %q", len(pieces[0]), got)
			}
			c.deliver()
			c.release()
		}
	}
	r.buffers.lent.Store(0)
	n := float64(2 * (len(data) + 2))
	r.wantMetrics(t, map[string]float64{"points_total": 3 * n, "rejected_points_total/format": n,
		"rejected_points_total/line_too_long": n, "rejected_points_total/name_too_long": n,
		"rejected_points_total/incomplete": 0})
}

func TestLongLinesInPieces(t *testing.T) {
	r := prepare(t, Options{Protocol: LineTCP, MaxLine: 8000})
	for _, tc := range []struct {
		length int
		want   closed
	}{{3000, closedEOF}, {5000, closedEOF}, {8000, closedEOF}, {8001, closedLine}, {100_000, closedLine}} {
		for _, size := range []int{1, 7, 1000, 4096, 1 << 20} {
			data := []byte("a 1 1423931224\n" + strings.Repeat("x", tc.length) + "\nb 2 1423931224\n")
			c := newConn(r.Listener, nil, nil)
			if reason := c.lines(&chunks{slices.Collect(slices.Chunk(data, size)), io.EOF}); reason != tc.want {
				t.Errorf("%d bytes, %d at a time: closed: %s", tc.length, size, closedNames[reason])
			}
			points := 2
			if tc.want == closedLine {
				points = 1
			}
			if got := r.sink.rest(); len(got) != points {
				t.Errorf("%d bytes, %d at a time: points %q", tc.length, size, got)
			}
			c.deliver()
			c.release()
		}
	}
	r.wantMetrics(t, map[string]float64{"rejected_points_total/line_too_long": 4 * 5, "rejected_points_total/format": 5})
	if got := r.buffers.lent.Load(); got != 0 {
		t.Errorf("%d buffers are lent", got)
	}
}

// TestBrokenConnections checks that the rest of a line does not count if the connection does not end in order.
func TestBrokenConnections(t *testing.T) {
	r := prepare(t, Options{Protocol: LineTCP})
	c := newConn(r.Listener, nil, nil)
	if reason := c.lines(&chunks{[][]byte{[]byte("a 1 1423931224\nb 1 142")}, io.ErrClosedPipe}); reason != closedError {
		t.Errorf("closed: %s", closedNames[reason])
	}
	c.deliver()
	if got := r.sink.rest(); len(got) != 1 {
		t.Errorf("points %q", got)
	}
	r.wantMetrics(t, map[string]float64{"rejected_points_total/incomplete": 1})
}

func TestLongNameClosesConnection(t *testing.T) {
	r := listen(t, Options{Protocol: LineTCP})
	c := r.dial(t)
	// The Listener may close the connection before all of it is written.
	_, _ = c.Write([]byte("a 1 1423931224\n" + strings.Repeat("x", 1<<20) + " 1 1423931224\nb 1 1423931224\n"))
	waitClosed(t, c)
	r.stop(t)
	if got := r.sink.rest(); !slices.Equal(got, []string{"a 1 1423931224000"}) {
		t.Errorf("points %q", got)
	}
	r.wantMetrics(t, map[string]float64{"closed_connections_total/line_too_long": 1,
		"rejected_points_total/line_too_long": 1})
}

// TestBackPressure checks that a writer that blocks stops the reading, so that the sender's write blocks, and that
// nothing is lost.
func TestBackPressure(t *testing.T) {
	r := prepare(t, Options{Protocol: LineTCP})
	r.sink.gate = make(chan struct{})
	var taken int
	done := make(chan struct{})
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := r.dial(t)
	line := "servers.h1.cpu.total.idle 60.2 1423931224\n"
	batch := []byte(strings.Repeat(line, 1000))
	sent := 0
	for {
		if err := c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		n, err := c.Write(batch[sent%len(line):])
		sent += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if sent > 256<<20 {
			t.Fatal("the sender was never held up")
		}
	}
	if got := len(r.sink.points); got != 0 {
		t.Errorf("%d points went through a closed gate", got)
	}
	whole := sent / len(line)
	go func() {
		defer close(done)
		for taken < whole {
			select {
			case <-r.sink.points:
				taken++
			case <-time.After(patience):
				return
			}
		}
	}()
	close(r.sink.gate)
	<-done
	if taken != whole {
		t.Errorf("%d points of %d arrived", taken, whole)
	}
}

func TestStopReadsWhatHasArrived(t *testing.T) {
	r := listen(t, Options{Protocol: LineTCP})
	for i := range 20 {
		if _, err := fmt.Fprintf(r.dial(t), "a%d 1 1423931224\nb%d 1 1423931224\nc", i, i); err != nil {
			t.Fatal(err)
		}
	}
	r.stop(t)
	if got := r.sink.rest(); len(got) != 40 {
		t.Errorf("%d points", len(got))
	}
	if r.sink.closed != 20 || r.sink.open != 0 {
		t.Errorf("%d writers were closed, %d are open", r.sink.closed, r.sink.open)
	}
	r.wantMetrics(t, map[string]float64{"closed_connections_total/stop": 20, "rejected_points_total/incomplete": 20})
	if _, err := net.Dial("tcp", r.Addr().String()); err == nil {
		t.Error("the port is still open")
	}
}

func TestStopOfBusyConnection(t *testing.T) {
	r := listen(t, Options{Protocol: LineTCP, Drain: 100 * time.Millisecond})
	c := r.dial(t)
	var sender sync.WaitGroup
	sender.Go(func() {
		for {
			if _, err := c.Write([]byte("bad\n")); err != nil {
				return
			}
		}
	})
	r.stop(t) // before patience ends, although the sender does not stop
	sender.Wait()
}

func TestStopCutsOffBlockedWriters(t *testing.T) {
	for _, protocol := range []Protocol{LineTCP, Pickle} {
		r := prepare(t, Options{Protocol: protocol})
		r.sink.gate = make(chan struct{})
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		data := asLines([]point{{"a", 1423931224, 1}})
		if protocol == Pickle {
			data = asPickle(point{"a", 1423931224, 1})
		}
		for range 20 { // more than may decode pickles at a time
			if _, err := r.dial(t).Write(data); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		err := r.Stop(ctx)
		cancel()
		if err == nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: Stop: %v", protocol, err)
		}
		<-r.done
		r.stop(t) // a second time
		if r.sink.open != 0 {
			t.Errorf("%s: %d writers are open", protocol, r.sink.open)
		}
	}
}

func TestLifecycle(t *testing.T) {
	r := prepare(t, Options{Protocol: LineTCP})
	r.stop(t) // before Start
	r.stop(t)
	if err := r.Start(t.Context()); err == nil {
		t.Error("Start after Stop")
	}
	r = listen(t, Options{Protocol: Pickle})
	if err := r.Start(t.Context()); err == nil {
		t.Error("a second Start")
	}
	var stops sync.WaitGroup
	for range 5 {
		stops.Go(func() { r.stop(t) })
	}
	stops.Wait()
}

func TestIdleTimeout(t *testing.T) {
	r := listen(t, Options{Protocol: LineTCP, IdleTimeout: 20 * time.Millisecond})
	c := r.dial(t)
	if _, err := c.Write([]byte("a 1 1423931224\nb 1 1")); err != nil {
		t.Fatal(err)
	}
	waitClosed(t, c)
	r.stop(t)
	r.wantMetrics(t, map[string]float64{"closed_connections_total/idle": 1, "rejected_points_total/incomplete": 1,
		"points_total": 1})
}

func TestMaxConnections(t *testing.T) {
	r := listen(t, Options{Protocol: LineTCP, MaxConnections: 2})
	for i := range 10 {
		c := r.dial(t)
		if _, err := fmt.Fprintf(c, "a%d 1 1423931224\n", i); err != nil {
			t.Fatal(err)
		}
		if i >= 1 {
			// From here on the connection before has to end for the next one to be read.
			r.sink.next(t, 1)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.sink.next(t, 1)
	r.stop(t)
	if r.sink.most != 2 || r.sink.closed != 10 {
		t.Errorf("%d connections at once, %d in all", r.sink.most, r.sink.closed)
	}
	if got := r.metric(t, "connections_full_total", ""); got < 1 {
		t.Errorf("full: %v", got)
	}
}

func TestWriterFails(t *testing.T) {
	r := prepare(t, Options{Protocol: LineTCP})
	r.sink.fail = errors.New("disk full")
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := r.dial(t)
	if _, err := c.Write([]byte("a 1 1423931224\n")); err != nil {
		t.Fatal(err)
	}
	waitClosed(t, c)
	r.stop(t)
	r.wantMetrics(t, map[string]float64{"closed_connections_total/writer": 1})
	if !strings.Contains(r.log.String(), "disk full") {
		t.Errorf("log %s", r.log)
	}
}

// compressed returns data as gzip writes it, flushed at the end of each part, with or without its end.
func compressed(t *testing.T, end bool, parts ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	for _, p := range parts {
		if _, err := w.Write([]byte(p)); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if end {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func TestGzip(t *testing.T) {
	lines := []string{"a 1 1423931224\n", "b 1 1423931224\n", "c 1 1423931224"}
	for _, tc := range []struct {
		data   []byte
		points int
		metric string
	}{
		{compressed(t, true, lines...), 3, "closed_connections_total/eof"},
		{append(compressed(t, true, lines[:2]...), compressed(t, true, lines...)...), 5, "closed_connections_total/eof"},
		{compressed(t, false, lines...), 2, "closed_connections_total/gzip"},
		{nil, 0, "closed_connections_total/eof"},
		{[]byte("a 1 1423931224\nb 1 1423931224\n"), 0, "closed_connections_total/gzip"},
		{append(compressed(t, true, lines[:2]...), "garbage that is no header"...), 2, "closed_connections_total/gzip"},
		{compressed(t, true, lines[0], strings.Repeat("\n", 16<<20)), 1, "closed_connections_total/expansion"},
	} {
		r := listen(t, Options{Protocol: LineTCP, Gzip: true})
		c := r.dial(t)
		_, _ = c.Write(tc.data) // a bomb may be refused before its end
		_ = c.CloseWrite()
		waitClosed(t, c)
		r.stop(t)
		if got := r.sink.rest(); len(got) != tc.points {
			t.Errorf("%.40q: points %q", tc.data, got)
		}
		r.wantMetrics(t, map[string]float64{tc.metric: 1})
	}
	// What was flushed is read before the connection ends.
	r := listen(t, Options{Protocol: LineTCP, Gzip: true})
	if _, err := r.dial(t).Write(compressed(t, false, lines[:2]...)); err != nil {
		t.Fatal(err)
	}
	r.sink.next(t, 2)
}

// frame puts a length in front of data.
func frame(data string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)
}

func TestFrameListeners(t *testing.T) {
	points := various()
	points = points[len(points)-600:]
	points[len(points)-1].seconds = now
	for i := range points {
		points[i].seconds = min(points[i].seconds, now)
	}
	for protocol, data := range map[Protocol][]byte{Pickle: asPickle(points...), Protobuf: asProtobuf(points...)} {
		t.Run(string(protocol), func(t *testing.T) {
			r := listen(t, Options{Protocol: protocol})
			stream := slices.Concat(data, frame("garbage"), frame(""), data, data[:100])
			r.send(t, stream)
			for range 2 {
				for i, got := range r.sink.next(t, 600) {
					want := fmt.Sprintf("%s %v %v", points[i].name, points[i].value, points[i].seconds*1000)
					if got != want {
						t.Fatalf("point %d: %q, want %q", i, got, want)
					}
				}
			}
			// The longest frame that is allowed, and one more byte.
			c := r.dial(t)
			if _, err := c.Write(binary.BigEndian.AppendUint32(nil, 1<<20+1)); err != nil {
				t.Fatal(err)
			}
			waitClosed(t, c)
			big := frame(strings.Repeat("x", 1<<20))
			r.send(t, append(big, data...))
			r.sink.next(t, 600)
			r.stop(t)
			r.wantMetrics(t, map[string]float64{"points_total": 1800, "rejected_points_total/frame": 4,
				"rejected_points_total/incomplete": 1, "closed_connections_total/frame_too_large": 1,
				"closed_connections_total/eof": 2, "connections": 0})
			if held, lent := r.pending.Load(), r.buffers.lent.Load(); held != 0 || lent != 0 {
				t.Errorf("%d bytes are held, %d buffers are lent", held, lent)
			}
		})
	}
}

func TestFramesInPieces(t *testing.T) {
	r := prepare(t, Options{Protocol: Pickle})
	var points []point
	for i := range 5 {
		points = append(points, point{fmt.Sprintf("m%d", i), now, 1})
	}
	data := slices.Concat(asPickle(points...), frame("]."), asPickle(points[0]))
	for _, pieces := range inPieces(data) {
		c := newConn(r.Listener, nil, nil)
		if reason := c.frames(&chunks{withoutEmpty(pieces), io.EOF}, c.pickle); reason != closedEOF {
			t.Fatalf("closed: %s", closedNames[reason])
		}
		if got := r.sink.rest(); len(got) != 6 {
			t.Fatalf("cut behind %d: %q", len(pieces[0]), got)
		}
		c.release()
	}
	// Long frames, with and without big buffers.
	points = points[:0]
	for i := range 500 {
		points = append(points, point{fmt.Sprintf("m%0300d", i), now, 1})
	}
	data = slices.Concat(asPickle(points...), asPickle(points...))
	for _, lent := range []int64{0, maxBig} {
		r.buffers.lent.Store(lent)
		for _, size := range []int{1, 1000, 1024, 65_536, 1 << 20} {
			c := newConn(r.Listener, nil, nil)
			if reason := c.frames(&chunks{slices.Collect(slices.Chunk(data, size)), io.EOF}, c.pickle); reason != closedEOF {
				t.Fatalf("closed: %s", closedNames[reason])
			}
			if got := r.sink.rest(); len(got) != 1000 {
				t.Fatalf("%d at a time: %d points", size, len(got))
			}
			c.release()
		}
		if held := r.pending.Load(); held != 0 || r.buffers.lent.Load() != lent {
			t.Errorf("%d bytes are held, %d buffers are lent", held, r.buffers.lent.Load())
		}
	}
	r.buffers.lent.Store(0)
}

// TestPendingFrames checks that senders of half frames cannot fill the memory.
func TestPendingFrames(t *testing.T) {
	r := listen(t, Options{Protocol: Protobuf, MaxFrame: 1 << 20, MaxPending: 2 << 20})
	half := frame(strings.Repeat("x", 1<<20))[:900_000]
	var conns []net.Conn
	for range 4 {
		c := r.dial(t)
		_, _ = c.Write(half) // one of the connections is closed on the way
		conns = append(conns, c)
	}
	// At most two can be held.
	closedOnes := make(chan struct{}, len(conns))
	var waits sync.WaitGroup
	for _, c := range conns {
		waits.Go(func() {
			_, _ = c.Read(make([]byte, 1))
			closedOnes <- struct{}{}
		})
	}
	for range 2 {
		select {
		case <-closedOnes:
		case <-time.After(patience):
			t.Fatal("no connection was closed")
		}
	}
	r.stop(t)
	waits.Wait()
	if got := r.metric(t, "closed_connections_total", "memory"); got < 2 {
		t.Errorf("%v connections were closed", got)
	}
	if held := r.pending.Load(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
}

// dropper is a DroppingWriter with room for so many points.
type dropper struct {
	s             *sink
	room, dropped int
}

func (d *dropper) Add(name []byte, unixMilli int64, value float64) error {
	if d.room == 0 {
		d.dropped++
		d.s.points <- "dropped"
		return nil
	}
	d.room--
	d.s.points <- fmt.Sprintf("%s %v %v", name, value, unixMilli)
	return nil
}

func (d *dropper) Flush() (int, error) {
	n := d.dropped
	d.dropped = 0
	return n, nil
}

func (d *dropper) Close() error {
	close(d.s.points)
	return nil
}

func TestUDPListener(t *testing.T) {
	s := newSink()
	r := listen(t, Options{Protocol: LineUDP, NewDroppingWriter: func() DroppingWriter { return &dropper{s: s, room: 3} }})
	c, err := net.Dial("udp", r.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for _, datagram := range []string{"a 1 1423931224\nbad\nb 1 1423931224", "", "c 1 1423931224\r\n",
		"d 1 1423931224\ne 1 1423931224\n"} {
		if _, err := c.Write([]byte(datagram)); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"a 1 1423931224000", "b 1 1423931224000", "c 1 1423931224000", "dropped", "dropped"}
	if got := s.next(t, 5); !slices.Equal(got, want) {
		t.Errorf("points %q", got)
	}
	// What the kernel has when Stop is called is read too.
	for range 50 {
		if _, err := c.Write([]byte("f 1 1423931224")); err != nil {
			t.Fatal(err)
		}
	}
	r.stop(t)
	n := 0
	for range s.points {
		n++
	}
	if n != 50 {
		t.Errorf("%d points of 50 were read", n)
	}
	r.wantMetrics(t, map[string]float64{"points_total": 55, "dropped_points_total": 52, "rejected_points_total/format": 1})
	if got := r.Stats(); got != (Stats{Points: 55, Rejected: 1, Dropped: 52}) {
		t.Errorf("stats %+v", got)
	}
}

func TestUDPListenerOfIPv6(t *testing.T) {
	s := newSink()
	l, err := New(Options{Protocol: LineUDP, Address: "[::1]:0", Now: testNow,
		NewDroppingWriter: func() DroppingWriter { return &dropper{s: s, room: 1} }})
	if err != nil {
		t.Skipf("no IPv6: %v", err)
	}
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte("a 1 1423931224")); err != nil {
		t.Fatal(err)
	}
	s.next(t, 1)
	if err := l.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	writer := newSink().NewWriter
	for _, tc := range []struct {
		opts Options
		want string
	}{
		{Options{}, "Protocol"},
		{Options{Protocol: LineTCP, Address: "127.0.0.1:0"}, "NewWriter"},
		{Options{Protocol: LineUDP, Address: "127.0.0.1:0", NewWriter: writer}, "NewDroppingWriter"},
		{Options{Protocol: LineTCP, NewWriter: writer}, "Address"},
		{Options{Protocol: LineTCP, NewWriter: writer, Address: "127.0.0.1:x"}, "listen"},
		{Options{Protocol: Pickle, NewWriter: writer, Address: "127.0.0.1:0", Gzip: true}, "Gzip"},
		{Options{Protocol: Pickle, NewWriter: writer, Address: "127.0.0.1:0", TLS: &tls.Config{}}, "TLS"},
		{Options{Protocol: LineTCP, NewWriter: writer, Address: "127.0.0.1:0", TLS: &tls.Config{}, Gzip: true}, "TLS"},
		{Options{Protocol: Pickle, NewWriter: writer, Address: "127.0.0.1:0", MaxFrame: 65 << 20}, "MaxFrame"},
		{Options{Protocol: Pickle, NewWriter: writer, Address: "127.0.0.1:0", MaxPending: 5}, "MaxPending"},
		{Options{Protocol: LineTCP, NewWriter: writer, Address: "127.0.0.1:0", MaxLine: 1}, "MaxLine"},
		{Options{Protocol: LineTCP, NewWriter: writer, Address: "127.0.0.1:0", MaxName: -1}, "MaxName"},
		{Options{Protocol: LineTCP, NewWriter: writer, Address: "127.0.0.1:0", MaxConnections: -1}, "MaxConnections"},
		{Options{Protocol: LineTCP, NewWriter: writer, Address: "127.0.0.1:0", Drain: -1}, "Drain"},
		{Options{Protocol: LineTCP, NewWriter: writer, Address: "127.0.0.1:0", UDPBuffer: -1}, "UDPBuffer"},
	} {
		if l, err := New(tc.opts); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("New(%+v) = %v, %v; want an error with %q", tc.opts, l, err, tc.want)
		}
	}
}

// TestListenersShareMetrics checks that several listeners can have one registry.
func TestListenersShareMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	for _, protocol := range []Protocol{LineTCP, LineTCP, Pickle} {
		l, err := New(Options{Protocol: protocol, Address: "127.0.0.1:0", NewWriter: newSink().NewWriter,
			Registerer: registry})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	other := prometheus.NewRegistry()
	other.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "lapwing_metric_carbon_points_total"}))
	if _, err := New(Options{Protocol: LineTCP, Address: "127.0.0.1:0", NewWriter: newSink().NewWriter,
		Registerer: other}); err == nil {
		t.Error("a metric of another kind is no error")
	}
}

// TestIdleConnectionsHoldLittle checks what connections cost that have sent a burst and wait.
func TestIdleConnectionsHoldLittle(t *testing.T) {
	if testing.Short() {
		t.Skip("opens many connections")
	}
	r := listen(t, Options{Protocol: LineTCP})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const n = 400
	burst := []byte(strings.Repeat("servers.h1.cpu.total.idle 60.2 1423931224\n", 250) + "half a li")
	for range n {
		if _, err := r.dial(t).Write(burst); err != nil {
			t.Fatal(err)
		}
		r.sink.next(t, 250)
	}
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	heap := int64(after.HeapInuse-before.HeapInuse) / n
	stack := int64(after.StackInuse-before.StackInuse) / n
	t.Logf("a connection holds %d bytes of heap and %d of stack, with the client's side", heap, stack)
	if heap+stack > 32<<10 {
		t.Errorf("a connection holds %d bytes of heap and %d of stack", heap, stack)
	}
}
