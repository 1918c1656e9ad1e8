// Package local serves the programs of an agent's host, on loopback: an HTTP API that takes events, sockets that take
// results of checks as Sensu 1 did, and StatsD. The agent starts a Server and passes the events on to its backend
// through Options.Send.
//
// Each interface has its own address and can be left out. None trusts its input, and each is bounded: in the size of an
// event, in clients at a time, in remembered series.
package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Options configures a Server.
type Options struct {
	// APIAddress, SocketAddress (TCP and UDP) and StatsDAddress (UDP) are where to listen; "" for not at all.
	APIAddress, SocketAddress, StatsDAddress string
	// APIHosts are further names under which programs call the HTTP API. Addresses, localhost, the name in APIAddress,
	// and the names of the agent and its host are always valid.
	APIHosts []string
	// Agent and Namespace are the names of the agent's entity.
	Agent, Namespace string
	// Entity returns the agent's entity, which all events get. Required.
	Entity func() *resource.Entity
	// Send forwards events to the backend. Required.
	Send func(*resource.Event)
	// Connected reports whether a backend is connected. Required.
	Connected func() bool
	// Rate bounds the events per second that the HTTP API takes in the long run, Burst those at once; default no limit.
	// Clients above it are asked to wait.
	Rate  float64
	Burst int
	// StatsDFlush is how often metrics are sent. Default 10 s. StatsDHandlers are the handlers of their events.
	StatsDFlush    time.Duration
	StatsDHandlers []string
	// MaxSeries bounds the series that StatsD remembers. Default 50,000.
	MaxSeries int
	Version   string
	// Gatherer provides /metrics. Default nothing.
	Gatherer   prometheus.Gatherer
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time // default time.Now
}

// Server is all three interfaces.
type Server struct {
	opts    Options
	log     *slog.Logger
	rare    *rarelog.Log // for messages that depend on the programs' input
	metrics metrics
	limit   *rate.Limiter
	statsd  *statsd

	mu      sync.Mutex // guards the fields below
	started bool
	stop    context.CancelFunc
	closers []func() error
	running sync.WaitGroup

	apiAddr, tcpAddr, statsdAddr net.Addr
}

type metrics struct {
	events, refused *prometheus.CounterVec
	samples         prometheus.Counter
	bad             prometheus.Counter
	dropped         prometheus.Counter
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		events:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_agent_local_events_total", Help: "Events taken from programs of the host, by interface."}, []string{"interface"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_agent_local_refused_total", Help: "What programs of the host sent that was no event, or too much, by interface."}, []string{"interface"}),
		samples: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_agent_statsd_samples_total", Help: "Samples taken by StatsD."}),
		bad:     prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_agent_statsd_bad_lines_total", Help: "Lines that StatsD could not read."}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_agent_statsd_dropped_samples_total",
			Help: "Samples that StatsD dropped because there were too many series or values."}),
	}
	for _, name := range []string{"api", "tcp", "udp"} {
		m.events.WithLabelValues(name)
		m.refused.WithLabelValues(name)
	}
	if r != nil {
		r.MustRegister(m.events, m.refused, m.samples, m.bad, m.dropped)
	}
	return m
}

// New checks the options.
func New(opts Options) (*Server, error) {
	if opts.Entity == nil || opts.Send == nil || opts.Connected == nil {
		return nil, errors.New("local interfaces: Entity, Send and Connected are required")
	}
	opts.StatsDFlush = cmp.Or(opts.StatsDFlush, 10*time.Second)
	opts.MaxSeries = cmp.Or(opts.MaxSeries, 50_000)
	if opts.StatsDFlush < 0 || opts.MaxSeries < 0 || opts.Rate < 0 {
		return nil, errors.New("local interfaces: a limit is negative")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	s := &Server{opts: opts, log: opts.Logger.With("component", "local"), metrics: newMetrics(opts.Registerer), limit: rate.NewLimiter(rate.Inf, 0)}
	if opts.Rate > 0 {
		s.limit = rate.NewLimiter(rate.Limit(opts.Rate), max(1, opts.Burst, int(math.Ceil(min(opts.Rate, 1e6)))))
	}
	s.rare = rarelog.New(s.log)
	s.statsd = newStatsD(opts.MaxSeries, opts.Now)
	return s, nil
}

// Start listens. An address that cannot be used is an error, and the other interfaces are served all the same.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return errors.New("start local interfaces: started before")
	}
	s.started = true
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	return errors.Join(s.startAPI(ctx), s.startSockets(ctx), s.startStatsD(ctx))
}

func (s *Server) startAPI(ctx context.Context) error {
	if s.opts.APIAddress == "" {
		return nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.opts.APIAddress)
	if err != nil {
		return fmt.Errorf("listen for the agent's API: %w", err)
	}
	s.apiAddr = l.Addr()
	s.serveAPI(l)
	return nil
}

func (s *Server) startSockets(ctx context.Context) error {
	if s.opts.SocketAddress == "" {
		return nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.opts.SocketAddress)
	if err != nil {
		return fmt.Errorf("listen for results: %w", err)
	}
	s.tcpAddr = l.Addr()
	s.closers = append(s.closers, l.Close)
	s.running.Go(func() { s.acceptSockets(ctx, l) })
	// The same port for both, even if the system chose it.
	p, err := new(net.ListenConfig).ListenPacket(ctx, "udp", l.Addr().String())
	if err != nil {
		return fmt.Errorf("listen for results: %w", err)
	}
	s.closers = append(s.closers, p.Close)
	s.running.Go(func() { s.readDatagrams(p, s.takeDatagram) })
	return nil
}

func (s *Server) startStatsD(ctx context.Context) error {
	if s.opts.StatsDAddress == "" {
		return nil
	}
	p, err := new(net.ListenConfig).ListenPacket(ctx, "udp", s.opts.StatsDAddress)
	if err != nil {
		return fmt.Errorf("listen for StatsD: %w", err)
	}
	s.statsdAddr = p.LocalAddr()
	s.closers = append(s.closers, p.Close)
	s.running.Go(func() { s.readDatagrams(p, s.takeStatsD) })
	s.running.Go(func() { s.flushStatsD(ctx) })
	return nil
}

// Stop closes the interfaces and waits for them. It may be called more than once.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = true // Start must fail from now on
	if s.stop != nil {
		s.stop()
	}
	var errs []error
	for _, closes := range s.closers {
		if err := closes(); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) {
			errs = append(errs, err)
		}
	}
	s.closers = nil
	s.running.Wait()
	return errors.Join(errs...)
}

// APIAddr is the address of the HTTP API, nil if there is none.
func (s *Server) APIAddr() net.Addr { return s.apiAddr }

// SocketAddr is the address of both sockets for results.
func (s *Server) SocketAddr() net.Addr { return s.tcpAddr }

// StatsDAddr is where StatsD listens.
func (s *Server) StatsDAddr() net.Addr { return s.statsdAddr }

// prepare completes a program's event: it becomes an event of the agent, which submits it for the entity that it names.
func (s *Server) prepare(ev *resource.Event) error {
	now := s.opts.Now().Unix()
	if ev.Check == nil && ev.Metrics == nil {
		return errors.New("at least check or metrics need to be instantiated for this event")
	}
	if ns := ev.Metadata.Namespace; len(ns) > resource.MaxName {
		return fmt.Errorf("event namespace must not be longer than %d bytes", resource.MaxName)
	}
	ev.Metadata.Namespace = cmp.Or(ev.Metadata.Namespace, s.opts.Namespace)
	ev.Timestamp = cmp.Or(ev.Timestamp, now)
	if c := ev.Check; c != nil {
		c.Metadata.Namespace = cmp.Or(c.Metadata.Namespace, s.opts.Namespace)
		c.Interval = cmp.Or(c.Interval, 1)
		c.Executed = cmp.Or(c.Executed, now)
		c.ProcessedBy = s.opts.Agent
		if ev.Entity != nil && ev.Entity.Metadata.Name != "" && ev.Entity.Metadata.Name != s.opts.Agent {
			c.ProxyEntityName = ev.Entity.Metadata.Name
		}
		if c.ProxyEntityName == resource.BackendEntity {
			return fmt.Errorf("entity %q is the backend's own: use another name", resource.BackendEntity)
		}
		if err := c.Validate(); err != nil {
			return err
		}
	} else if ev.Entity != nil && ev.Entity.Metadata.Name != "" && ev.Entity.Metadata.Name != s.opts.Agent {
		return fmt.Errorf("metrics without a check are this agent's, and cannot be those of entity %q", ev.Entity.Metadata.Name)
	}
	ev.Entity = s.opts.Entity()
	if len(ev.ID) == 0 {
		ev.ID = resource.NewEventID()
	}
	return ev.Validate()
}

// readDatagrams passes each datagram to take until the socket is closed.
func (s *Server) readDatagrams(p net.PacketConn, take func(b []byte, from net.Addr)) {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := p.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // for example an ICMP reply to what was sent
			s.log.Debug("datagram not read", "err", err)
			continue
		}
		take(buf[:n], from)
	}
}
