// Package carbon receives points as Graphite's carbon does: lines over TCP and UDP, and frames of pickle or protobuf
// over TCP. The programs that take points start a Listener per port; package frame writes what it reads.
//
// A Listener passes points to a Writer of the caller's, one per connection. If that blocks, the connection is not read,
// and the sender notices by TCP's own means. UDP has no such means, so a DroppingWriter drops and says how much.
// Nothing that a sender writes can stop a Listener or make it hold more memory than its options allow. The names of
// points are passed on as they came; package name reads their tags.
package carbon

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
)

// Protocol is an encoding and its transport.
type Protocol string

// The protocols of carbon. Their values are the label "protocol" of the metrics.
const (
	LineTCP  Protocol = "line"
	LineUDP  Protocol = "udp"
	Pickle   Protocol = "pickle"
	Protobuf Protocol = "protobuf"
)

// Writer takes the points of one connection. Add and Flush may block, and then the connection is not read.
type Writer interface {
	Adder
	// Flush is called when what has arrived is read. An error means that the writer can take no more: the connection is
	// closed.
	Flush() error
	// Close is the last call for a connection, after Flush. Only if Stop runs out of time, Close is called while Add or
	// Flush blocks, and must make them return. Later calls of both must return an error then.
	Close() error
}

// Finisher is a Writer that knows when points are safe. Finish is called after the last Flush of a connection that its
// sender has ended, and before the listener closes it. It may block like Flush. After an error the sender sees a reset,
// and not an orderly end.
type Finisher interface {
	Finish() error
}

// DroppingWriter takes the points that arrive by UDP. Add and Flush must not block: a point for which there is no room
// is dropped.
type DroppingWriter interface {
	Adder
	// Flush is called when what has arrived is read. It returns how many points were dropped since its last call.
	Flush() (dropped int, err error)
	Close() error
}

// Options configures a Listener.
type Options struct {
	// Protocol is required.
	Protocol Protocol
	// Address is host:port. Required.
	Address string
	// NewWriter makes the writer of a connection. Required, but for LineUDP.
	NewWriter func() Writer
	// NewDroppingWriter makes the writer for datagrams. Required for LineUDP.
	NewDroppingWriter func() DroppingWriter
	// IdleTimeout closes a connection that sends nothing. Default 10 min, negative for never.
	IdleTimeout time.Duration
	// MaxConnections bounds the open connections; further ones wait to be accepted. Default 15,000.
	MaxConnections int
	// MaxName bounds names, in bytes. Longer ones are counted. Default DefaultMaxName, at most 32 KiB.
	MaxName int
	// MaxLine bounds lines, in bytes. A longer one closes the connection. Default DefaultMaxLine, at most 1 MiB.
	MaxLine int
	// MaxFrame bounds frames, in bytes. A longer one closes the connection. Default 1 MiB, at most 64 MiB.
	MaxFrame int
	// MaxPending bounds what all connections together hold of frames that have not arrived in full, in bytes. The
	// connection that needs more is closed. Default 256 MiB.
	MaxPending int64
	// KeepInfinite takes infinite values. Default is to count them.
	KeepInfinite bool
	// Gzip is whether connections are compressed with gzip. For LineTCP only.
	Gzip bool
	// TLS encrypts connections. For LineTCP without Gzip only. What its GetConfigForClient returns is used, so that
	// certificates can change.
	TLS *tls.Config
	// UDPBuffer is the receive buffer to ask the kernel for, in bytes. Default 4 MiB.
	UDPBuffer int
	// Drain bounds how long Stop reads what has arrived already. Default 1 s.
	Drain time.Duration
	// Now is the clock for points that have no timestamp, and for those of the future. Default time.Now.
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

const (
	defaultIdle        = 10 * time.Minute
	defaultConnections = 15_000
	defaultMaxFrame    = 1 << 20
	maxMaxFrame        = 64 << 20
	defaultMaxPending  = 256 << 20
	defaultUDPBuffer   = 4 << 20
	defaultDrain       = time.Second
)

func (o Options) withDefaults() Options {
	o.IdleTimeout = cmp.Or(o.IdleTimeout, defaultIdle)
	o.MaxConnections = cmp.Or(o.MaxConnections, defaultConnections)
	o.MaxName = cmp.Or(o.MaxName, DefaultMaxName)
	o.MaxLine = cmp.Or(o.MaxLine, DefaultMaxLine)
	o.MaxFrame = cmp.Or(o.MaxFrame, defaultMaxFrame)
	o.MaxPending = cmp.Or(o.MaxPending, defaultMaxPending)
	o.UDPBuffer = cmp.Or(o.UDPBuffer, defaultUDPBuffer)
	o.Drain = cmp.Or(o.Drain, defaultDrain)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Check says which options cannot be used.
func (o Options) Check() error {
	o = o.withDefaults()
	var errs []error
	add := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	switch o.Protocol {
	case LineUDP:
		add(o.NewDroppingWriter == nil, "option NewDroppingWriter is missing")
	case LineTCP, Pickle, Protobuf:
		add(o.NewWriter == nil, "option NewWriter is missing")
	default:
		add(true, "option Protocol: %q is unknown: use line, udp, pickle or protobuf", o.Protocol)
	}
	add(o.Address == "", "option Address is missing")
	add(o.MaxConnections < 0, "option MaxConnections: %d is negative", o.MaxConnections)
	add(o.MaxName < 1 || o.MaxName > 32<<10, "option MaxName: %d is not between 1 and 32768", o.MaxName)
	add(o.MaxLine < 64 || o.MaxLine > 1<<20, "option MaxLine: %d is not between 64 and 1048576", o.MaxLine)
	add(o.MaxFrame < 64 || o.MaxFrame > maxMaxFrame, "option MaxFrame: %d is not between 64 and %d", o.MaxFrame,
		maxMaxFrame)
	add(o.MaxPending < int64(o.MaxFrame), "option MaxPending: %d is less than MaxFrame", o.MaxPending)
	add(o.Gzip && o.Protocol != LineTCP, "option Gzip: only lines over TCP can be compressed")
	add(o.TLS != nil && (o.Protocol != LineTCP || o.Gzip), "option TLS: only lines over TCP without gzip can be encrypted")
	add(o.UDPBuffer < 0, "option UDPBuffer: %d is negative", o.UDPBuffer)
	add(o.Drain < 0, "option Drain: %s is negative", o.Drain)
	return errors.Join(errs...)
}

// Listener receives points on one port.
type Listener struct {
	opts    Options
	log     *slog.Logger
	rare    *rarelog.Log // for messages that depend on what senders do
	metrics *metrics
	tcp     *net.TCPListener // nil for UDP
	udp     *net.UDPConn     // nil for TCP

	points, rejected, dropped atomic.Uint64
	active                    atomic.Int64
	pending                   atomic.Int64 // bytes held for unfinished frames, against MaxPending
	buffers                   buffers
	slots                     chan struct{} // one element per connection that is open or awaited
	decoding                  chan struct{} // one element per pickle that is decoded at the time

	stopping atomic.Bool
	stop     chan struct{} // closed with stopping
	drainEnd time.Time     // written before stopping is set
	done     chan struct{} // closed when all goroutines have ended
	aborted  chan struct{} // closed when Stop runs out of time
	running  sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	started bool
	cut     bool // aborted is closed
	conns   map[*conn]struct{}
}

// drainQuiet is how long a connection must be silent, once its Listener stops, to count as read to the end.
const drainQuiet = 50 * time.Millisecond

// New checks the options and binds the address. Senders can connect from now on, but are not read before Start.
func New(opts Options) (*Listener, error) {
	if err := opts.Check(); err != nil {
		return nil, fmt.Errorf("carbon listener %s: %w", opts.Protocol, err)
	}
	opts = opts.withDefaults()
	l := &Listener{
		opts: opts, log: opts.Logger.With("component", "carbon", "protocol", string(opts.Protocol)),
		stop: make(chan struct{}), done: make(chan struct{}), aborted: make(chan struct{}), conns: map[*conn]struct{}{},
		slots: make(chan struct{}, opts.MaxConnections), decoding: make(chan struct{}, max(8, 2*runtime.GOMAXPROCS(0))),
	}
	l.rare = rarelog.New(l.log)
	config := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 10 * time.Second, Interval: 30 * time.Second, Count: 2,
	}}
	// Binding does not wait for anything that a context could cut short.
	ctx := context.Background()
	if opts.Protocol == LineUDP {
		socket, err := config.ListenPacket(ctx, "udp", opts.Address)
		if err != nil {
			return nil, fmt.Errorf("carbon listener %s: %w", opts.Protocol, err)
		}
		l.udp = socket.(*net.UDPConn)
		l.setReceiveBuffer()
	} else {
		socket, err := config.Listen(ctx, "tcp", opts.Address)
		if err != nil {
			return nil, fmt.Errorf("carbon listener %s: %w", opts.Protocol, err)
		}
		l.tcp = socket.(*net.TCPListener)
	}
	m, err := newMetrics(opts.Registerer, opts.Protocol)
	if err != nil {
		_ = l.closeSocket()
		return nil, fmt.Errorf("carbon listener %s: %w", opts.Protocol, err)
	}
	l.metrics = m
	return l, nil
}

// setReceiveBuffer asks for a large buffer, because datagrams that find it full are lost.
func (l *Listener) setReceiveBuffer() {
	if err := l.udp.SetReadBuffer(l.opts.UDPBuffer); err != nil {
		l.log.Warn("cannot set the receive buffer of the UDP socket", "err", err)
		return
	}
	if got, ok := receiveBuffer(l.udp); ok && got < l.opts.UDPBuffer {
		l.log.Info("the kernel gives the UDP socket a smaller receive buffer than asked for; raise net.core.rmem_max",
			"asked", l.opts.UDPBuffer, "got", got)
	}
}

func (l *Listener) closeSocket() error {
	if l.udp != nil {
		return l.udp.Close()
	}
	return l.tcp.Close()
}

// Addr is the bound address.
func (l *Listener) Addr() net.Addr {
	if l.udp != nil {
		return l.udp.LocalAddr()
	}
	return l.tcp.Addr()
}

// Stats are the sums since New, and the connections of now.
type Stats struct {
	// Points were taken; Rejected could not be. Dropped are points that were taken, and that the writer for datagrams
	// dropped.
	Points, Rejected, Dropped uint64
	// Connections are open.
	Connections int
}

// Stats returns what the Listener has done so far.
func (l *Listener) Stats() Stats {
	return Stats{l.points.Load(), l.rejected.Load(), l.dropped.Load(), int(l.active.Load())}
}

// Start begins to receive, and returns.
func (l *Listener) Start(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started || l.stopping.Load() {
		return fmt.Errorf("start carbon listener %s: it was started or stopped before", l.opts.Protocol)
	}
	l.started = true
	if l.udp != nil {
		l.running.Go(l.readDatagrams)
	} else {
		l.running.Go(l.accept)
	}
	return nil
}

// Stop accepts no more connections, reads what has arrived already, at most for Options.Drain, flushes the writers and
// closes everything. If ctx ends before that, it closes the connections and the writers at once and returns an error.
func (l *Listener) Stop(ctx context.Context) error {
	l.beginStop()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	open := make([]*conn, 0, len(l.conns))
	for c := range l.conns {
		open = append(open, c)
	}
	if !l.cut {
		l.cut = true
		close(l.aborted)
	}
	l.mu.Unlock()
	_ = l.closeSocket()
	for _, c := range open {
		c.abort()
	}
	select {
	case <-l.done:
	case <-time.After(time.Second):
	}
	return fmt.Errorf("stop carbon listener %s: %d connections were cut off: %w", l.opts.Protocol, len(open),
		context.Cause(ctx))
}

// beginStop wakes all goroutines, the first time that it is called.
func (l *Listener) beginStop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopping.Load() {
		return
	}
	now := time.Now()
	l.drainEnd = now.Add(l.opts.Drain)
	l.stopping.Store(true)
	close(l.stop)
	if !l.started {
		_ = l.closeSocket()
		close(l.done)
		return
	}
	// What is read or accepted until the deadlines has been on its way already. A goroutine that sets a deadline of its
	// own at the same time looks at stopping afterwards.
	quiet := now.Add(drainQuiet)
	if l.udp != nil {
		_ = l.udp.SetReadDeadline(quiet)
	} else {
		_ = l.tcp.SetDeadline(quiet)
	}
	for c := range l.conns {
		_ = c.socket.SetReadDeadline(quiet)
	}
	go func() {
		l.running.Wait()
		close(l.done)
	}()
}

// accept takes connections until the Listener stops.
func (l *Listener) accept() {
	defer func() { _ = l.tcp.Close() }()
	wait := time.Duration(0)
	for {
		if !l.slot() {
			return
		}
		socket, err := l.tcp.AcceptTCP()
		if err == nil {
			wait = 0
			l.serve(socket)
			continue
		}
		<-l.slots
		if l.stopping.Load() || errors.Is(err, net.ErrClosed) {
			return
		}
		// Usually no file descriptor is left.
		l.rare.Warn("cannot accept a connection", "", "err", err)
		wait = min(max(2*wait, 5*time.Millisecond), time.Second)
		select {
		case <-time.After(wait):
		case <-l.stop:
		}
	}
}

// slot waits until one more connection is allowed. It is false when the Listener stops first.
func (l *Listener) slot() bool {
	select {
	case l.slots <- struct{}{}:
		return true
	default:
	}
	l.metrics.full.Inc()
	l.rare.Warn("no more connections are accepted until one is closed", "", "max", l.opts.MaxConnections)
	select {
	case l.slots <- struct{}{}:
		return true
	case <-l.stop:
		return false
	}
}

// serve runs a connection in a goroutine of its own.
func (l *Listener) serve(socket *net.TCPConn) {
	c := newConn(l, socket, socket.RemoteAddr())
	l.mu.Lock()
	l.conns[c] = struct{}{}
	cut := l.cut
	l.mu.Unlock()
	if cut {
		c.abort()
	}
	l.metrics.opened.Inc()
	l.metrics.connections.Inc()
	l.active.Add(1)
	l.running.Go(func() {
		reason := c.run()
		l.mu.Lock()
		delete(l.conns, c)
		l.mu.Unlock()
		l.metrics.connections.Dec()
		l.active.Add(-1)
		l.metrics.closed[reason].Inc()
		<-l.slots
	})
}

// report adds a parser's counts to the metrics, and logs what it rejected first.
func (l *Listener) report(p *Parser, client net.Addr) {
	counts := p.TakeCounts()
	l.points.Add(counts.Points)
	l.metrics.points.Add(float64(counts.Points))
	for reason, n := range counts.Rejected {
		if n > 0 {
			l.rejected.Add(n)
			l.metrics.rejected[reason].Add(float64(n))
		}
	}
	sample, ok := p.TakeSample()
	if !ok {
		return
	}
	host := hostOf(client)
	attrs := []any{"client", host, "reason", sample.Reason.String(), "sample", sample.Text}
	if sample.Err != nil {
		attrs = append(attrs, "err", sample.Err)
	}
	l.rare.Warn("a point was not taken", host+" "+sample.Reason.String(), attrs...)
}

// hostOf returns the address without its port, by which senders are told apart.
func hostOf(addr net.Addr) string {
	switch a := addr.(type) {
	case *net.TCPAddr:
		return a.IP.String()
	case *net.UDPAddr:
		return a.IP.String()
	}
	return ""
}

// The sizes of read buffers.
const (
	// smallBuffer is what every connection has.
	smallBuffer = 1 << 10
	// bigBuffer is what a connection has for as long as it fills its buffer.
	bigBuffer = 64 << 10
	// maxBig bounds the big buffers of a Listener. Without one a connection is read in smaller pieces.
	maxBig = 512
)

// buffers lends big buffers.
type buffers struct {
	lent atomic.Int64
	pool sync.Pool
}

// get returns a buffer, or nil if all are lent.
func (b *buffers) get() *[bigBuffer]byte {
	if b.lent.Add(1) > maxBig {
		b.lent.Add(-1)
		return nil
	}
	if buffer, ok := b.pool.Get().(*[bigBuffer]byte); ok {
		return buffer
	}
	return new([bigBuffer]byte)
}

func (b *buffers) put(buffer *[bigBuffer]byte) {
	b.lent.Add(-1)
	b.pool.Put(buffer)
}

// closed is why a connection ended.
type closed uint8

const (
	closedEOF closed = iota
	closedError
	closedIdle
	closedStop
	closedLine
	closedFrame
	closedGzip
	closedHandshake
	closedCut
	closedExpansion
	closedMemory
	closedWriter

	closedReasons
)

var closedNames = [closedReasons]string{closedEOF: "eof", closedError: "error", closedIdle: "idle", closedStop: "stop",
	closedLine: "line_too_long", closedFrame: "frame_too_large", closedGzip: "gzip", closedHandshake: "tls_handshake",
	closedCut: "tls_cut", closedExpansion: "expansion", closedMemory: "memory", closedWriter: "writer"}

var (
	errIdle      = errors.New("the connection was idle for too long")
	errStop      = errors.New("the listener stops")
	errExpansion = errors.New("the compressed data expands too much")
)

// closedBy returns the reason for the end of a connection whose reading ended with an error.
func (c *conn) closedBy(err error) closed {
	switch {
	case c.readErr != nil && !errors.Is(c.readErr, io.EOF):
		err = c.readErr // without what the decompressor makes of it
	case c.l.opts.Gzip && !errors.Is(err, io.EOF) && !errors.Is(err, errExpansion):
		return closedGzip
	}
	switch {
	case errors.Is(err, errCut):
		return closedCut
	case errors.Is(err, io.EOF):
		return closedEOF
	case errors.Is(err, errIdle):
		return closedIdle
	case errors.Is(err, errStop):
		return closedStop
	case errors.Is(err, errExpansion):
		return closedExpansion
	}
	return closedError
}
