// Package session is the backend's end of the agents' connections.
//
// Server does the handshake of the Sensu agent protocol, with lapwing's additions for lapwing agents, and keeps one
// session per connection. The scheduler calls Publish with check requests and Assign with schedules. The intake takes
// the events, and asks the sessions about their connections. Most events enter in Server.read (session.go), which
// reads the sessions of a poller; a session has a goroutine only while a message has to wait, and if its connection
// cannot be polled. The pacer writes to agents, each at its own moment of the second.
//
// A session keeps the order of its agent's events, and never loses an event that it has acknowledged. An agent that
// does not read, or sends too much, delays no other. What an event means, and whether it is taken, is left to the
// intake.
package session

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/intake"
	"github.com/lapwing-monitoring/lapwing/internal/clientaddr"
	"github.com/lapwing-monitoring/lapwing/internal/connlimit"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule/timetable"
	"github.com/lapwing-monitoring/lapwing/state"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// Options wires a Server. If the comment of a field does not say what 0 means, 0 is replaced by the value of
// DefaultOptions.
type Options struct {
	// Listener is where agents connect; Stop closes it. Required.
	Listener net.Listener
	// Failed is called when agents can no longer connect because the listener has failed. Default: nothing.
	Failed func(error)
	// TLS, if set, is used on the listener. An agent with a certificate that was verified by it needs no password.
	TLS *tls.Config
	// CertRequired refuses agents without such a certificate, and CertNames also those whose name is not in theirs.
	CertRequired, CertNames bool
	// BackendID is told to agents. Required.
	BackendID string
	Config    *config.Store
	Auth      *auth.Auth
	Intake    *intake.Intake
	Log       *eventlog.Log
	State     *state.State
	// Other serves all paths but "/" and those below ArchivePath: health and readiness.
	Other http.Handler
	// Archives, if set, serves an agent of a namespace what is below ArchivePath, and ForLapwing is what a request is for
	// agents that make use of that. Neither may change it.
	Archives   func(w http.ResponseWriter, r *http.Request, namespace string)
	ForLapwing func(*resource.CheckRequest) *resource.CheckRequest
	// Proxies are trusted to tell the address of agents behind them. Default: none are.
	Proxies clientaddr.Proxies
	// MaxConnections bounds the connections, and MaxPerAddress those from one address. Required.
	MaxConnections, MaxPerAddress int
	// IdleTimeout is after how long without a byte from an agent its connection is closed. It is pinged after half of it,
	// so an agent may have nothing to say for longer.
	IdleTimeout time.Duration
	// MessageTimeout is how long a message may take from its first byte to its last.
	MessageTimeout time.Duration
	// PartialBytes bounds the messages of all agents that are not complete, or are complete and have to wait. At the
	// bound sessions stop reading messages of 64 KiB and more, and TCP holds their agents up. Shorter messages may use a
	// quarter more, and those up to 8 KiB are always read. It is at least twice MaxMessage.
	PartialBytes int64
	// MaxMessage bounds an agent's message, in bytes.
	MaxMessage int64
	// SendQueue bounds the frames waiting to be written to one agent.
	SendQueue int
	// Spread is the time over which what falls due for all agents together leaves. Each agent has its moment in it, at
	// which all its requests and acknowledgements leave with one write. In whole hundredths of a second, a minute at
	// most. 0 is none: all leaves at once.
	Spread time.Duration
	// ReadDelay is how long data of agents may wait in the sockets: reading from many at a time costs less. 100 ms at
	// most; 0 is none.
	ReadDelay time.Duration
	// Pressure tells how hard it is to take events; it is asked four times a second and sets the pace of lapwing agents.
	// Default: as the log and the fold show it.
	Pressure func() Pressure
	// Agents is told which agents are connected. Default: none.
	Agents Agents
	// Receipt takes what a lapwing agent says about a turn of a round-robin check. It must not block. Default: receipts are dropped.
	Receipt func(agent resource.Name, r *wire.Receipt)
	// Members returns the members of the cluster that live and take agents, in any order. It is asked every second and
	// must not block. Lapwing agents get their URLs, and agents move to other members until each has its share.
	// Default: this backend is alone.
	Members    func() []Member
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Agents is told of each agent that connects, that has other subscriptions, and that goes. It must not block, and must not
// call the Server.
type Agents interface {
	Connected(agent resource.Name, subscriptions []string)
	Gone(agent resource.Name)
}

// maxReadDelay bounds ReadDelay, because it limits an agent's throughput to one socket buffer per delay.
const maxReadDelay = 100 * time.Millisecond

// maxHeaderBytes bounds the header of a handshake.
const maxHeaderBytes = 64 << 10

// ArchivePath is the path below which agents fetch archives of assets.
const ArchivePath = "/assets/"

// Server accepts agents.
type Server struct {
	opts     Options
	log      *slog.Logger
	rare     *rarelog.Log // for lines that depend on what others send
	metrics  serverMetrics
	registry *registry
	pacer    *pacer
	pollers  []*wire.Poller[*session] // each has a goroutine, which runs read
	next     atomic.Uint32            // round robin over pollers for new sessions
	paced    atomic.Uint32            // a wire.Pace
	writing  sync.WaitGroup           // goroutines that write to an agent

	departures departures
	signpost   atomic.Pointer[signpost] // nil until members are known
	suspended  atomic.Pointer[string]   // why agents are refused

	duplicates *duplicates
	publishing sync.Mutex // guards published
	published  uint64     // the number of the last request

	partials *wire.Partials // messages that are incomplete, or have to wait
	// socketsFull is wire.SocketsFull, except in tests.
	socketsFull func() bool
	waits       waits

	http     *http.Server
	listener net.Listener
	unwatch  func()
	cancel   context.CancelFunc
	ctx      context.Context // of the sessions; ends at Stop
	running  sync.WaitGroup
}

// DefaultOptions returns the default settings.
func DefaultOptions() Options {
	return Options{
		IdleTimeout: 5 * time.Minute, MessageTimeout: time.Minute, PartialBytes: 256 << 20, MaxMessage: 4 << 20, SendQueue: 1000,
		Spread: time.Second, ReadDelay: 5 * time.Millisecond,
	}
}

// New checks the options; Start listens.
func New(opts Options) (*Server, error) {
	if opts.Config == nil || opts.Auth == nil || opts.Intake == nil || opts.Log == nil || opts.State == nil ||
		opts.Listener == nil || opts.BackendID == "" {
		return nil, errors.New("session: config, auth, intake, log, state, listener and backend id are required")
	}
	if opts.MaxConnections < 1 || opts.MaxPerAddress < 1 {
		return nil, fmt.Errorf("session: %d connections and %d from one address must be positive", opts.MaxConnections, opts.MaxPerAddress)
	}
	if opts.Other == nil {
		opts.Other = http.NotFoundHandler()
	}
	if opts.Failed == nil {
		opts.Failed = func(error) {}
	}
	defaults := DefaultOptions()
	opts.MaxMessage = cmp.Or(opts.MaxMessage, defaults.MaxMessage)
	opts.IdleTimeout = cmp.Or(opts.IdleTimeout, defaults.IdleTimeout)
	opts.MessageTimeout = cmp.Or(opts.MessageTimeout, defaults.MessageTimeout)
	opts.SendQueue = cmp.Or(opts.SendQueue, defaults.SendQueue)
	opts.PartialBytes = max(cmp.Or(opts.PartialBytes, defaults.PartialBytes), 2*opts.MaxMessage)
	if opts.IdleTimeout < time.Millisecond || opts.MessageTimeout < time.Millisecond || opts.PartialBytes < 0 {
		return nil, fmt.Errorf("session: idle timeout %s, message timeout %s and %d bytes of partial messages must be positive",
			opts.IdleTimeout, opts.MessageTimeout, opts.PartialBytes)
	}
	if opts.Spread < 0 || opts.Spread > time.Minute || opts.Spread%(slotMillis*time.Millisecond) != 0 {
		return nil, fmt.Errorf("session: spread %s is negative, over a minute or not in whole hundredths of a second", opts.Spread)
	}
	if opts.ReadDelay < 0 || opts.ReadDelay > maxReadDelay {
		return nil, fmt.Errorf("session: read delay %s is negative or over %s", opts.ReadDelay, maxReadDelay)
	}
	if opts.Pressure == nil {
		opts.Pressure = newGauge(opts.Log, opts.State).look
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := newServer(opts)
	opts.Intake.SetSessions(s.registry)
	return s, nil
}

func newServer(opts Options) *Server {
	if opts.ForLapwing == nil {
		opts.ForLapwing = func(q *resource.CheckRequest) *resource.CheckRequest { return q }
	}
	if opts.Receipt == nil {
		opts.Receipt = func(resource.Name, *wire.Receipt) {}
	}
	s := &Server{
		opts: opts, log: opts.Logger.With("component", "session"), registry: newRegistry(), socketsFull: wire.SocketsFull,
	}
	s.rare, s.registry.present = rarelog.New(s.log), opts.Agents
	s.duplicates = newDuplicates(s)
	s.waits.all = map[*session]*sessionWait{}
	s.pacer = newPacer(opts.Spread, (*session).flush)
	s.partials = wire.NewPartials(opts.PartialBytes, opts.MessageTimeout, s.slowMessage)
	s.metrics = newServerMetrics(opts.Registerer, s)
	return s
}

// Start listens and serves.
func (s *Server) Start(ctx context.Context) error {
	s.listener = s.opts.Listener
	var l net.Listener = connlimit.New(s.listener, connlimit.Options{
		Name: "agents", Max: s.opts.MaxConnections, PerAddress: s.opts.MaxPerAddress, Shared: s.opts.Proxies.Trusts,
		Logger: s.opts.Logger, Registerer: s.opts.Registerer,
	})
	if s.opts.TLS != nil {
		l = tls.NewListener(l, s.opts.TLS)
	}
	if err := s.startPollers(); err != nil {
		return errors.Join(err, l.Close())
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.unwatch = s.opts.Config.OnChange(s.onChange)
	go s.pacer.run()
	s.running.Go(func() { s.watchPressure(s.ctx) })
	s.running.Go(func() { s.duplicates.run(s.ctx) })
	s.running.Go(func() { s.watchIdle(s.ctx) })
	s.running.Go(func() { s.waits.run(s.ctx) })
	if s.opts.Members != nil {
		var b balance
		s.lookAtMembers(&b, time.Now())
		s.running.Go(func() { s.watchMembers(s.ctx, &b) })
	}
	s.http = &http.Server{
		Handler:           s.opts.Proxies.Handler(http.HandlerFunc(s.serve)),
		ConnContext:       connlimit.Context,
		MaxHeaderBytes:    maxHeaderBytes,
		ReadHeaderTimeout: 15 * time.Second, // also of TLS handshakes
		IdleTimeout:       30 * time.Second,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	s.running.Go(func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.opts.Failed(fmt.Errorf("accept agents: %w", err))
		}
	})
	return nil
}

// startPollers starts one reader for two processors. Each ends when its poller is closed.
func (s *Server) startPollers() error {
	log := s.opts.Log
	for range max(1, runtime.GOMAXPROCS(0)/2) {
		p, err := wire.NewPoller[*session](s.opts.ReadDelay, wire.Lanes{Count: log.Partitions(), Open: log.Room})
		if errors.Is(err, errors.ErrUnsupported) {
			return nil
		}
		if err != nil {
			s.stopPollers()
			return fmt.Errorf("start to read from agents: %w", err)
		}
		s.pollers = append(s.pollers, p)
		go s.read(p)
	}
	return nil
}

func (s *Server) stopPollers() {
	for _, p := range s.pollers {
		p.Close()
	}
}

// Addr returns the address where agents connect, once started.
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
	s.pacer.close()
	s.writing.Wait()
	s.stopPollers()
	s.cancel = nil
	return nil
}

// serve does an agent's handshake, and serves archives to agents. The order of the checks, and the answers, match
// Sensu's.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	archive := s.opts.Archives != nil && strings.HasPrefix(r.URL.Path, ArchivePath)
	if r.URL.Path != "/" && !archive {
		s.opts.Other.ServeHTTP(w, r)
		return
	}
	refuse := func(status int, text string) {
		if !archive {
			s.metrics.handshakes.WithLabelValues(strconv.Itoa(status)).Inc()
		}
		http.Error(w, text, status)
	}
	if !archive && s.refuseAgents(w, refuse) {
		return
	}
	name, namespace := r.Header.Get(wire.HeaderAgentName), r.Header.Get(wire.HeaderNamespace)
	if len(name) > resource.MaxName || len(namespace) > resource.MaxName {
		refuse(http.StatusBadRequest, fmt.Sprintf("names of agents and namespaces must not be longer than %d bytes", resource.MaxName))
		return
	}
	if name == resource.BackendEntity {
		refuse(http.StatusBadRequest, fmt.Sprintf("the name %s is the backend's own: give the agent another one (--name)", name))
		return
	}
	host := clientaddr.Host(r.RemoteAddr)
	err := s.authenticate(r, namespace, name)
	switch {
	case errors.Is(err, errNoCredentials):
		refuse(http.StatusUnauthorized, "missing credentials")
		return
	case errors.Is(err, auth.ErrCredentials):
		s.rare.Warn("agent with bad credentials", host, "agent", name, "address", r.RemoteAddr, "err", err)
		refuse(http.StatusUnauthorized, "bad credentials")
		return
	case errors.Is(err, auth.ErrDenied):
		refuse(http.StatusForbidden, "Forbidden")
		return
	case err != nil:
		s.rare.Warn("agent could not be authenticated", host, "agent", name, "address", r.RemoteAddr, "err", err)
		refuse(http.StatusServiceUnavailable, "authentication is not available")
		return
	}
	connlimit.Prove(r.Context())
	ns, ok := config.Get(s.opts.Config.Snapshot(), config.Namespaces, "", namespace)
	if !ok || namespace == "" {
		refuse(http.StatusNotFound, fmt.Sprintf("namespace %q not found", rarelog.Short(namespace)))
		return
	}
	if archive {
		s.opts.Archives(w, r, ns.Name)
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
	s.upgrade(w, r, ns.Name, name) // the string that all sessions of the namespace share
}

var errNoCredentials = errors.New("neither a password nor a certificate")

// authenticate checks an agent's password or, if it sends none, its certificate.
func (s *Server) authenticate(r *http.Request, namespace, name string) error {
	var cert *x509.Certificate
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		cert = r.TLS.VerifiedChains[0][0]
	}
	switch {
	case cert == nil && (s.opts.CertRequired || s.opts.CertNames): // without a certificate an agent could claim any name
		return errNoCredentials
	case s.opts.CertNames && cert != nil && cert.Subject.CommonName != name && !slices.Contains(cert.DNSNames, name):
		s.rare.Warn("agent with the certificate of another", clientaddr.Host(r.RemoteAddr),
			"agent", name, "address", r.RemoteAddr, "subject", cert.Subject.String())
		return auth.ErrDenied
	}
	user, password, ok := r.BasicAuth()
	var err error
	switch {
	case ok:
		_, err = s.opts.Auth.Agent(r.Context(), clientaddr.Host(r.RemoteAddr), user, password, namespace, name)
	case cert != nil:
		user = cert.Subject.CommonName
		_, err = s.opts.Auth.AgentCertificate(cert, namespace, name)
	default:
		return errNoCredentials
	}
	if err != nil {
		return fmt.Errorf("sign in user %q: %w", user, err)
	}
	return nil
}

// checkUpgrade returns what is wrong with a websocket handshake; status 0 if nothing is.
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

// adoptTries and adoptPause bound how long an agent that has signed in waits for a descriptor.
const (
	adoptTries = 50
	adoptPause = 2 * time.Millisecond
)

// upgrade answers the handshake and starts the session on a new goroutine: the HTTP server's has grown a stack and
// buffers that a session does not need. The new goroutine ends as well once the agent has nothing to send; see
// session.run.
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
	epoch, broken := strconv.ParseUint(r.Header.Get(wire.HeaderEpoch), 16, 64)
	lapwing := r.Header.Get(wire.HeaderProtocol) == wire.ProtocolVersion && broken == nil && epoch != 0
	if lapwing {
		answer.Set(wire.HeaderProtocol, wire.ProtocolVersion)
	}
	conn, ahead, err := wire.Accept(w, r, answer)
	if err != nil {
		s.rare.Warn("agent could not be connected", clientaddr.Host(r.RemoteAddr), "agent", name, "address", r.RemoteAddr, "err", err)
		return
	}
	s.metrics.handshakes.WithLabelValues("101").Inc()
	conn, slot := connlimit.Detach(conn)
	if !s.registry.enter(&s.running) {
		conn.Close()
		slot.Release()
		return
	}
	one := s.newSession(nil, namespace, name)
	if n := uint32(len(s.pollers)); n > 0 {
		poller := s.pollers[s.next.Add(1)%n]
		adopted, err := poller.Adopt(conn, one)
		// For a moment the agent needs a second descriptor. A closed connection's is free once its reader has noticed.
		for try := 0; errors.Is(err, syscall.EMFILE) && try < adoptTries && slot.MakeRoom(); try++ {
			time.Sleep(adoptPause)
			adopted, err = poller.Adopt(conn, one)
		}
		if err != nil {
			s.rare.Warn("agent could not be connected", clientaddr.Host(r.RemoteAddr), "agent", name, "address", r.RemoteAddr, "err", err)
			conn.Close()
			slot.Release()
			s.running.Done()
			return
		}
		conn = adopted
	}
	one.conn = wire.NewServerConn(conn, ahead, s.opts.MaxMessage)
	one.encoding, one.lapwing, one.epoch, one.slot = enc, lapwing, epoch, slot
	one.follows = lapwing && r.Header.Get(wire.HeaderMembers) == wire.MembersFollow
	one.stays = lapwing && r.Header.Get(wire.HeaderMembers) == wire.MembersStay
	one.conn.Watch(s.partials)
	one.meter = s.opts.Intake.Meter(namespace, name)
	one.lane = uint16(s.opts.Log.Partition(namespace, name))
	if !s.registry.add(one) {
		one.meter.Leave()
		one.close()
		slot.Release()
		s.running.Done()
		return
	}
	s.metrics.sessions.WithLabelValues(namespace).Inc()
	go s.runSession(one)
}

func (s *Server) newSession(conn *wire.Conn, namespace, name string) *session {
	place := timetable.PlaceOf(resource.Name{Namespace: namespace, Name: name}, s.opts.Spread)
	return &session{
		server: s, conn: conn, namespace: namespace, name: name, joined: time.Now().UnixMilli(),
		offset: place.Offset, shift: place.Shift,
	}
}

// runSession is a session's goroutine, from its start or from when Server.read leaves it a message. It returns when
// the session is parked or has ended.
func (s *Server) runSession(one *session) {
	var err error
	if !one.begun {
		one.begun = true
		if err = one.begin(s.ctx); err == nil && s.log.Enabled(s.ctx, slog.LevelDebug) {
			one.logger().Debug("agent connected", "lapwing", one.lapwing, "encoding", wire.ContentType(one.encoding))
		}
	}
	if err == nil {
		var parked bool
		if parked, err = one.run(s.ctx); parked {
			return
		}
	}
	defer s.running.Done()
	defer s.metrics.sessions.WithLabelValues(one.namespace).Dec()
	defer s.registry.remove(one)
	defer one.meter.Leave()
	defer one.slot.Release()
	defer one.conn.Done()
	defer one.close()
	var bye *wire.CloseError
	switch {
	case s.ctx.Err() != nil:
	case errors.As(err, &bye) && bye.Code == wire.CloseGoingAway:
		one.logger().Debug("agent left")
	case errors.Is(err, wire.ErrTooBig):
		s.metrics.badFrames.Inc()
		one.warn("agent sent a message over the limit and was closed", "", "limit_bytes", s.opts.MaxMessage)
	case errors.Is(err, net.ErrClosed):
	default:
		s.rare.Info("agent session ended", one.namespace+"/"+one.name, "agent", one.name, "namespace", one.namespace, "err", err)
	}
}

// onChange sends a changed entity to its agent. It runs on the config watcher's goroutine and must not block.
func (s *Server) onChange(c config.Change) {
	if c.Kind != config.Entities.String() {
		return
	}
	for _, one := range s.registry.agent(c.Namespace, c.Name) {
		if c.Deleted {
			go one.close()
			continue
		}
		if err := one.configure(); err != nil {
			s.rare.Error("agent was not told its changed configuration", c.Namespace+"/"+c.Name,
				"agent", c.Name, "namespace", c.Namespace, "err", err)
		}
	}
}
