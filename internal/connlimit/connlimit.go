// Package connlimit bounds the connections of a listener, in total and per address. Package backend wraps both
// listeners in it; the servers report with Prove that a client has signed in.
//
// A connection is unproven until its client has signed in. When there is no room, or no file descriptor is left, the
// oldest unproven one is closed, so clients without credentials cannot keep out those with credentials. A listener
// continues when file descriptors run out, and logs it. Who may sign in is up to the servers.
package connlimit

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
)

// Options are the bounds of a listener.
type Options struct {
	// Name is in log lines and metrics. Required.
	Name string
	// Max bounds the open connections. Required.
	Max int
	// PerAddress bounds those from one IPv4 address or one IPv6 network of 64 bits. Default Max.
	PerAddress int
	// Shared reports addresses that many clients share, for example a proxy's, which PerAddress does not bound. Default
	// none.
	Shared func(netip.Addr) bool
	// Unproven bounds the connections whose clients have not signed in. More wait to be accepted. Default 4096, Max at
	// most.
	Unproven int
	// Grace is how long an unproven connection keeps its place for certain. Default 2 s.
	Grace      time.Duration
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Listener is a net.Listener for TCP whose connections are bounded.
type Listener struct {
	net.Listener
	opts    Options
	rare    *rarelog.Log
	refused *prometheus.CounterVec
	room    chan struct{} // has an element when a place may have become free

	mu       sync.Mutex // guards the fields below
	open     int
	hosts    map[netip.Addr]*host
	unproven queue
	most     *host // the host with more than half of the allowed unproven connections; nil if there is none
	waiting  bool  // the last accepted connection waits for a place
	spare    *os.File
	closed   bool
}

// host counts an address's connections.
type host struct {
	address        netip.Addr
	open, unproven int
}

// The reasons in the metric of refused connections.
const (
	reasonTotal    = "total"
	reasonAddress  = "address"
	reasonUnproven = "unproven"
	reasonFiles    = "files"
)

// New bounds the connections of l.
func New(l net.Listener, opts Options) *Listener {
	if opts.PerAddress <= 0 {
		opts.PerAddress = opts.Max
	}
	if opts.Shared == nil {
		opts.Shared = func(netip.Addr) bool { return false }
	}
	if opts.Unproven <= 0 {
		opts.Unproven = 4096
	}
	opts.Unproven = min(opts.Unproven, opts.Max)
	if opts.Grace == 0 {
		opts.Grace = 2 * time.Second
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	limited := &Listener{
		Listener: l, opts: opts, rare: rarelog.New(opts.Logger.With("component", "connections", "listener", opts.Name)),
		room: make(chan struct{}, 1), hosts: map[netip.Addr]*host{},
	}
	limited.spare, _ = os.Open(os.DevNull) // without one the listener pauses when files run out
	limited.register()
	return limited
}

func (l *Listener) register() {
	l.refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lapwing_connections_refused_total",
		Help: "Connections that were closed because there were too many, by listener and by what there were too many of.",
	}, []string{"reason"})
	for _, reason := range []string{reasonTotal, reasonAddress, reasonUnproven, reasonFiles} {
		l.refused.WithLabelValues(reason)
	}
	if l.opts.Registerer == nil {
		return
	}
	of := func(read func() int) func() float64 {
		return func() float64 {
			l.mu.Lock()
			defer l.mu.Unlock()
			return float64(read())
		}
	}
	prometheus.WrapRegistererWith(prometheus.Labels{"listener": l.opts.Name}, l.opts.Registerer).MustRegister(
		l.refused,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lapwing_connections", Help: "Open connections, by listener."},
			of(func() int { return l.open })),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lapwing_connections_limit", Help: "Connections that may be open, by listener."},
			of(func() int { return l.opts.Max })),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lapwing_connections_unproven", Help: "Open connections whose clients have not signed in, by listener."},
			of(func() int { return l.unproven.n })),
	)
}

// Accept returns the next connection for which there is room.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			l.outOfFiles(err)
			continue
		}
		if err != nil {
			return nil, err
		}
		tcp, ok := c.(*net.TCPConn)
		if !ok {
			return c, nil
		}
		if slot := l.admit(tcp); slot != nil {
			return &Conn{TCPConn: tcp, slot: slot}, nil
		}
		tcp.Close()
	}
}

// Close ends the listener.
func (l *Listener) Close() error {
	l.mu.Lock()
	l.closed = true
	if l.spare != nil {
		l.spare.Close()
		l.spare = nil
	}
	l.mu.Unlock()
	l.signal()
	return l.Listener.Close()
}

// outOfFiles makes room for the next connection. If there is no unproven one to close, it uses the spare file's
// descriptor to accept one connection and close it at once: its client learns that there is no room, and does not hang.
func (l *Listener) outOfFiles(err error) {
	l.rare.Error("file descriptors are used up: raise the limit of open files (LimitNOFILE)", l.opts.Name, "err", err)
	l.refused.WithLabelValues(reasonFiles).Inc()
	l.mu.Lock()
	if oldest := l.unproven.first; oldest != nil {
		l.evict(oldest)
		l.mu.Unlock()
		return
	}
	spare := l.spare
	l.spare = nil
	l.mu.Unlock()
	if spare != nil {
		spare.Close()
		if c, err := l.Listener.Accept(); err == nil {
			c.Close()
		}
	} else {
		time.Sleep(50 * time.Millisecond) // another part may close a file in the meantime
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.spare, _ = os.Open(os.DevNull)
	}
}

// admit gives a connection its place; nil if there is none.
func (l *Listener) admit(c *net.TCPConn) *Slot {
	address := addressOf(c)
	shared := l.opts.Shared(address)
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.hosts[address]
	if h == nil {
		h = &host{address: address}
		l.hosts[address] = h
	}
	// The host counts this connection from now on: while makeRoom waits, the host's other connections may end, and a
	// host without connections is forgotten.
	h.open++
	if reason := l.makeRoom(h, shared); reason != "" {
		h.open--
		l.forget(h)
		l.refused.WithLabelValues(reason).Inc()
		l.rare.Warn("connection refused: too many are open", reason, "reason", reason, "address", address.String(),
			"open", l.open, "limit", l.opts.Max, "from_address", h.open, "limit_per_address", l.opts.PerAddress, "not_signed_in", l.unproven.n)
		return nil
	}
	s := &Slot{listener: l, host: h, conn: c, since: time.Now()}
	l.open++
	l.unproven.push(s)
	h.unproven++
	if h.unproven > l.opts.Unproven/2 && !shared {
		l.most = h
	}
	if l.open >= l.opts.Max-l.opts.Max/5 {
		l.rare.Warn("connections are running out", "", "open", l.open, "limit", l.opts.Max)
	}
	return s
}

// makeRoom makes room for a connection from h, which counts it already, or returns why it cannot. The caller holds mu;
// makeRoom releases it while it waits.
func (l *Listener) makeRoom(h *host, shared bool) (reason string) {
	if h.open > l.opts.PerAddress && !shared && !l.evictOf(h) {
		return reasonAddress
	}
	for l.unproven.n >= l.opts.Unproven && !l.closed {
		oldest := l.unproven.first
		age := time.Since(oldest.since)
		switch {
		case age >= l.opts.Grace:
			l.evict(oldest)
		case l.most == h:
			return reasonUnproven
		case l.most != nil:
			l.evictOf(l.most)
		default:
			l.wait(l.opts.Grace - age)
		}
	}
	if l.open >= l.opts.Max {
		if l.unproven.first == nil {
			return reasonTotal
		}
		l.evict(l.unproven.first)
	}
	return ""
}

// wait waits until a place may be free. The caller holds mu; wait releases it meanwhile.
func (l *Listener) wait(longest time.Duration) {
	l.waiting = true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.waiting = false
	}()
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-l.room:
	case <-timer.C:
	}
}

func (l *Listener) signal() {
	select {
	case l.room <- struct{}{}:
	default:
	}
}

// evictOf closes the oldest unproven connection of a host; false if it has none. The caller holds mu.
func (l *Listener) evictOf(h *host) bool {
	if h.unproven == 0 {
		return false
	}
	s := l.unproven.first
	for s.host != h {
		s = s.next
	}
	l.evict(s)
	return true
}

// evict closes an unproven connection. The caller holds mu.
func (l *Listener) evict(s *Slot) {
	l.refused.WithLabelValues(reasonUnproven).Inc()
	s.conn.Close()
	l.release(s)
}

// release ends a slot, once. The caller holds mu.
func (l *Listener) release(s *Slot) {
	if s.ended {
		return
	}
	s.ended = true
	l.prove(s)
	l.open--
	s.host.open--
	l.forget(s.host)
	l.signal()
}

// prove removes a slot from the unproven ones. The caller holds mu.
func (l *Listener) prove(s *Slot) {
	if s.proven {
		return
	}
	s.proven, s.conn = true, nil
	l.unproven.remove(s)
	s.host.unproven--
	if s.host == l.most && s.host.unproven <= l.opts.Unproven/2 {
		l.most = nil
	}
	l.signal()
}

// forget removes a host without connections. The caller holds mu.
func (l *Listener) forget(h *host) {
	if h.open == 0 && l.hosts[h.address] == h {
		delete(l.hosts, h.address)
	}
}

// addressOf returns the part of a client's address that is counted: an IPv6 host can choose from a network of 64 bits.
func addressOf(c *net.TCPConn) netip.Addr {
	remote, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	address := remote.AddrPort().Addr().Unmap().WithZone("")
	if address.Is6() {
		if network, err := address.Prefix(64); err == nil {
			return network.Addr()
		}
	}
	return address
}

// Conn is a connection of a Listener.
type Conn struct {
	*net.TCPConn
	slot *Slot
}

// Close closes the connection and frees its place.
func (c *Conn) Close() error {
	defer c.slot.Release()
	return c.TCPConn.Close()
}

// Detach returns the parts of a Conn, for callers that need the TCP connection itself. They must call Release when they
// have closed it. Another kind of connection is returned unchanged, with a nil Slot.
func Detach(c net.Conn) (net.Conn, *Slot) {
	if limited, ok := c.(*Conn); ok {
		return limited.TCPConn, limited.slot
	}
	return c, nil
}

// Slot is a connection's place in its Listener. A nil Slot does nothing.
type Slot struct {
	listener *Listener
	host     *host

	// Guarded by the listener's mu.
	conn       *net.TCPConn // of an unproven one
	since      time.Time
	prev, next *Slot // of the unproven ones
	proven     bool
	ended      bool
}

// Prove says that the client has signed in.
func (s *Slot) Prove() {
	if s == nil {
		return
	}
	s.listener.mu.Lock()
	defer s.listener.mu.Unlock()
	s.listener.prove(s)
}

// Release frees the place. It may be called more than once.
func (s *Slot) Release() {
	if s == nil {
		return
	}
	s.listener.mu.Lock()
	defer s.listener.mu.Unlock()
	s.listener.release(s)
}

// MakeRoom closes the oldest connection whose client has not signed in, for a client that has and needs one more file
// descriptor. It returns false if there is none.
func (s *Slot) MakeRoom() bool {
	if s == nil {
		return false
	}
	s.listener.mu.Lock()
	defer s.listener.mu.Unlock()
	oldest := s.listener.unproven.first
	if oldest == nil {
		return false
	}
	s.listener.evict(oldest)
	return true
}

type slotKey struct{}

// Context is for http.Server.ConnContext: it lets requests call Prove when their client has signed in.
func Context(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secure.NetConn()
	}
	if limited, ok := c.(*Conn); ok {
		return context.WithValue(ctx, slotKey{}, limited.slot)
	}
	return ctx
}

// Prove marks a request's connection: its client has signed in.
func Prove(ctx context.Context) {
	if s, ok := ctx.Value(slotKey{}).(*Slot); ok {
		s.Prove()
	}
}

// queue holds the unproven slots, the oldest first.
type queue struct {
	first, last *Slot
	n           int
}

func (q *queue) push(s *Slot) {
	s.prev = q.last
	if q.last != nil {
		q.last.next = s
	} else {
		q.first = s
	}
	q.last = s
	q.n++
}

func (q *queue) remove(s *Slot) {
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		q.first = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		q.last = s.prev
	}
	s.prev, s.next = nil, nil
	q.n--
}
