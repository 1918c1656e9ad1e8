// Package session is the backend's end of an agent's connection, and the intake of events.
//
// Server does the handshake of the Sensu agent protocol, with lapwing's additions for agents that ask for them, and keeps
// one session per connection: a goroutine that reads, and one that writes only while there is something to write. Intake
// turns what arrives, here or through the API or from a deadline, into records of the event log.
package session

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gobwas/ws"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/wire"
)

const (
	maxKeptBuffer = 2 << 10 // larger buffers are not kept for a session's next message: most of the time it is idle
	maxKeptFrames = 16
	maxOutBytes   = 4 << 20 // frames queued for one agent
)

// Options wires a Server.
type Options struct {
	// Address is where agents connect. Default "[::]:8081".
	Address string
	// TLS, if set, is used on the listener.
	TLS *tls.Config
	// BackendID is told to agents. Required.
	BackendID string
	Config    *config.Store
	Auth      *auth.Auth
	Intake    *Intake
	// Other serves all paths but "/": health and readiness.
	Other http.Handler
	// MaxMessage bounds an agent's message, in bytes. Default 4 MiB.
	MaxMessage int64
	// SendQueue bounds the frames waiting to be written to one agent. Default 1000.
	SendQueue  int
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Server accepts agents.
type Server struct {
	opts     Options
	log      *slog.Logger
	metrics  serverMetrics
	registry *registry

	http     *http.Server
	listener net.Listener
	unwatch  func()
	cancel   context.CancelFunc
	ctx      context.Context // of the sessions; ends at Stop
	running  sync.WaitGroup
}

type serverMetrics struct {
	sessions   *prometheus.GaugeVec
	handshakes *prometheus.CounterVec
	received   prometheus.Counter
	badFrames  prometheus.Counter
	dropped    prometheus.Counter
	requests   prometheus.Counter
}

func newServerMetrics(r prometheus.Registerer) serverMetrics {
	m := serverMetrics{
		sessions:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "lapwing_agent_sessions", Help: "Open agent sessions, by namespace."}, []string{"namespace"}),
		handshakes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_agent_handshakes_total", Help: "Agents' handshakes, by HTTP status."}, []string{"status"}),
		received:   prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_agent_received_bytes_total", Help: "Bytes of agents' messages."}),
		badFrames:  prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_agent_bad_frames_total", Help: "Agents' messages that are not of the protocol."}),
		dropped:    prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_agent_dropped_frames_total", Help: "Frames for agents that were dropped because the agent did not read."}),
		requests:   prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_check_requests_total", Help: "Check requests sent to agents."}),
	}
	for _, status := range []int{101, 400, 401, 403, 404, 503} {
		m.handshakes.WithLabelValues(strconv.Itoa(status))
	}
	m.sessions.WithLabelValues("default")
	if r != nil {
		r.MustRegister(m.sessions, m.handshakes, m.received, m.badFrames, m.dropped, m.requests)
	}
	return m
}

// New checks the options; Start listens.
func New(opts Options) (*Server, error) {
	if opts.Config == nil || opts.Auth == nil || opts.Intake == nil || opts.BackendID == "" {
		return nil, errors.New("session: config, auth, intake and backend id are required")
	}
	if opts.Address == "" {
		opts.Address = "[::]:8081"
	}
	if opts.Other == nil {
		opts.Other = http.NotFoundHandler()
	}
	if opts.MaxMessage == 0 {
		opts.MaxMessage = 4 << 20
	}
	if opts.SendQueue == 0 {
		opts.SendQueue = 1000
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{opts: opts, log: opts.Logger.With("component", "session"), metrics: newServerMetrics(opts.Registerer), registry: newRegistry()}, nil
}

// Start listens and serves.
func (s *Server) Start(ctx context.Context) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.opts.Address)
	if err != nil {
		return fmt.Errorf("listen for agents: %w", err)
	}
	s.listener = l
	if s.opts.TLS != nil {
		l = tls.NewListener(l, s.opts.TLS)
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.unwatch = s.opts.Config.OnChange(s.onChange)
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: 15 * time.Second,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	s.running.Go(func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("agent listener failed", "err", err)
		}
	})
	return nil
}

// Addr is where agents connect, from Start on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Stop closes the listener and all sessions, and waits for them.
func (s *Server) Stop() error {
	if s.cancel == nil {
		return nil
	}
	s.unwatch()
	_ = s.http.Close()
	s.cancel()
	var closing sync.WaitGroup
	for _, open := range s.registry.stop() {
		closing.Go(open.close)
	}
	closing.Wait()
	s.running.Wait()
	s.cancel = nil
	return nil
}

// serve does an agent's handshake. The order of the checks, and the answers, are those agents know from Sensu.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/" {
		s.opts.Other.ServeHTTP(w, r)
		return
	}
	refuse := func(status int, text string) {
		s.metrics.handshakes.WithLabelValues(strconv.Itoa(status)).Inc()
		http.Error(w, text, status)
	}
	user, password, ok := r.BasicAuth()
	if !ok {
		refuse(http.StatusUnauthorized, "missing credentials")
		return
	}
	name, namespace := r.Header.Get(wire.HeaderAgentName), r.Header.Get(wire.HeaderNamespace)
	_, err := s.opts.Auth.Agent(r.Context(), user, password, namespace, name)
	switch {
	case errors.Is(err, auth.ErrCredentials):
		s.log.Warn("agent with bad credentials", "agent", name, "user", user, "address", r.RemoteAddr)
		refuse(http.StatusUnauthorized, "bad credentials")
		return
	case errors.Is(err, auth.ErrDenied):
		refuse(http.StatusForbidden, "Forbidden")
		return
	case err != nil:
		s.log.Warn("agent could not be authenticated", "agent", name, "err", err)
		refuse(http.StatusServiceUnavailable, "authentication is not available")
		return
	}
	if _, ok := config.Get(s.opts.Config.Snapshot(), config.Namespaces, "", namespace); !ok || namespace == "" {
		refuse(http.StatusNotFound, fmt.Sprintf("namespace %q not found", namespace))
		return
	}
	if status, text := checkUpgrade(r); status != 0 {
		refuse(status, text)
		return
	}
	if name == "" {
		refuse(http.StatusBadRequest, "the "+wire.HeaderAgentName+" header is missing")
		return
	}
	s.upgrade(w, r, namespace, name)
}

// checkUpgrade says what is wrong with a websocket handshake; status 0 if nothing is.
func checkUpgrade(r *http.Request) (status int, text string) {
	key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-Websocket-Key"))
	switch {
	case r.Method != http.MethodGet:
		return http.StatusMethodNotAllowed, "a websocket handshake is a GET"
	case !hasToken(r.Header, "Connection", "upgrade") || !hasToken(r.Header, "Upgrade", "websocket"):
		return http.StatusBadRequest, "not a websocket handshake"
	case r.Header.Get("Sec-Websocket-Version") != "13":
		return http.StatusBadRequest, "websocket version 13 is required"
	case err != nil || len(key) != 16:
		return http.StatusBadRequest, "the Sec-WebSocket-Key header is missing or malformed"
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if _, host, ok := strings.Cut(origin, "://"); !ok || !strings.EqualFold(host, r.Host) {
			return http.StatusForbidden, "request origin is not allowed"
		}
	}
	return 0, ""
}

func hasToken(h http.Header, name, token string) bool {
	for _, line := range h.Values(name) {
		for t := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(t), token) {
				return true
			}
		}
	}
	return false
}

// upgrade answers the handshake and starts the session on a goroutine of its own: the one of the HTTP server has grown a
// stack and buffers that a session does not need.
func (s *Server) upgrade(w http.ResponseWriter, r *http.Request, namespace, name string) {
	enc := wire.JSON
	if r.Header.Get("Accept") == wire.ContentType(wire.Protobuf) {
		enc = wire.Protobuf
	}
	answer := http.Header{
		wire.HeaderBackendID: {s.opts.BackendID},
		"Accept":             {wire.ContentType(wire.Protobuf), wire.ContentType(wire.JSON)},
		"Content-Type":       {wire.ContentType(enc)},
	}
	epoch, err := strconv.ParseUint(r.Header.Get(wire.HeaderEpoch), 16, 64)
	lapwing := r.Header.Get(wire.HeaderProtocol) == wire.ProtocolVersion && err == nil && epoch != 0
	if lapwing {
		answer.Set(wire.HeaderProtocol, wire.ProtocolVersion)
	}
	conn, buf, _, err := ws.HTTPUpgrader{Header: answer}.Upgrade(r, w)
	if err != nil {
		s.log.Warn("agent could not be connected", "agent", name, "err", err)
		return
	}
	s.metrics.handshakes.WithLabelValues("101").Inc()
	_ = conn.SetDeadline(time.Time{})
	var br *bufio.Reader
	if buf != nil {
		br = buf.Reader
	}
	one := &session{
		server: s, conn: wire.NewServerConn(conn, br, s.opts.MaxMessage), namespace: namespace, name: name,
		encoding: enc, lapwing: lapwing, epoch: epoch,
		log: s.log.With("agent", name, "namespace", namespace),
	}
	if !s.registry.add(one) {
		one.close()
		return
	}
	s.running.Go(func() { s.runSession(one) })
}

func (s *Server) runSession(one *session) {
	gauge := s.metrics.sessions.WithLabelValues(one.namespace)
	gauge.Inc()
	defer gauge.Dec()
	defer s.registry.remove(one)
	defer one.close()
	err := one.begin(s.ctx)
	if err == nil {
		one.log.Debug("agent connected", "lapwing", one.lapwing, "encoding", wire.ContentType(one.encoding))
		err = one.run(s.ctx)
	}
	var bye *wire.CloseError
	switch {
	case s.ctx.Err() != nil:
	case errors.As(err, &bye) && bye.Code == wire.CloseGoingAway:
		one.log.Debug("agent left")
	case errors.Is(err, wire.ErrTooBig):
		s.metrics.badFrames.Inc()
		one.log.Warn("agent sent a message over the limit and was closed", "limit_bytes", s.opts.MaxMessage)
	case errors.Is(err, net.ErrClosed):
	default:
		one.log.Info("agent session ended", "err", err)
	}
}

// onChange passes a changed entity on to its agent. It runs on the config watcher's goroutine and must not block.
func (s *Server) onChange(c config.Change) {
	if c.Kind != config.Entities.String() {
		return
	}
	for _, one := range s.registry.agent(c.Namespace, c.Name) {
		if c.Deleted {
			go one.close()
			continue
		}
		if cfg, ok := config.Get(s.opts.Config.Snapshot(), config.Entities, c.Namespace, c.Name); ok {
			one.configure(cfg)
		}
	}
}
