// Package agent runs on the hosts that are watched: it keeps a connection to a backend, says every few seconds that it
// is alive, runs the checks that it is asked to run and sends their results.
//
// New, Start and Stop are for the agent as a whole. Beneath it, Transport is the connection alone: it delivers events
// at least once to a lapwing backend and as well as their protocol allows to a Sensu Go 6 backend, and serves load
// generators and tests too. A lapwing backend leaves most checks to schedule, which runs them on the agent's own clock,
// connected or not; the others, and all of a Sensu backend, come as requests. Either goes from Transport to accept, or
// from schedule to acceptTick, which drop what ran before; to execute, which replaces tokens, runs the command in a process
// group, extracts metrics and runs hooks; and its result to Transport.Send. docs/agent-protocol.md has the protocol.
package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// DefaultRedact are the keys of labels and annotations whose values people are not shown.
var DefaultRedact = []string{"password", "passwd", "pass", "api_key", "api_token", "access_key", "secret_key", "private_key", "secret"}

// Options are the settings of an Agent.
type Options struct {
	Name          string   // of the entity; default the host's name
	Namespace     string   // default "default"
	Subscriptions []string // the backend adds entity:<name>
	User          string   // default "agent"
	Password      string   // default "P@ssw0rd!"
	BackendURLs   []string // ws or wss, port 8081 if none; default ws://127.0.0.1:8081
	// TLS is for wss, and is asked at each connection. A configuration with a certificate means that no password is sent.
	// Default: system roots.
	TLS func() *tls.Config

	// KeepaliveInterval (default 20 s) is the time between keepalives, KeepaliveWarningTimeout (default 120 s, at least
	// 5 s) when the backend warns without one, KeepaliveCriticalTimeout (default 0, none) when it cries. Whole seconds.
	KeepaliveInterval        time.Duration
	KeepaliveWarningTimeout  time.Duration
	KeepaliveCriticalTimeout time.Duration
	KeepaliveHandlers        []string
	KeepalivePipelines       []string // each like core/v2.Pipeline.name

	Labels                map[string]string
	Annotations           map[string]string
	Redact                []string // default DefaultRedact
	Deregister            bool     // the entity goes away with its agent
	DeregistrationHandler string
	StripNetworks         bool // do not report network interfaces

	// Connecting, as in TransportOptions and with its defaults.
	RetryMin          time.Duration
	RetryMax          time.Duration
	RetryMultiplier   float64
	HandshakeTimeout  time.Duration
	HeartbeatInterval time.Duration
	HeartbeatTimeout  time.Duration
	BatchDelay        time.Duration
	BufferEvents      int
	BufferBytes       int

	MaxConcurrency int // checks running at the same time; more wait; default 50
	MaxOutput      int // bytes kept of the output of a check or hook; default 2 MiB, well below what a backend takes as a message

	Version    string // reported in the entity; default "(devel)"
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Agent is one agent.
type Agent struct {
	opts               Options
	log                *slog.Logger
	checkMetrics       checkMetrics
	keepalivePipelines []resource.ResourceReference

	transport *Transport
	schedule  *schedule
	self      *self
	sequences sequences
	requests  requestLog
	slots     chan struct{} // one for each running check
	ready     chan struct{} // the backend has just become ready
	isReady   atomic.Bool

	checkCtx context.Context // of the running checks
	running  sync.WaitGroup  // goroutines

	mu      sync.Mutex // guards the fields below
	started bool
	stop    context.CancelFunc
}

// New makes an Agent that Start will connect.
func New(opts Options) (*Agent, error) {
	if err := opts.complete(); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	a := &Agent{
		opts:         opts,
		log:          opts.Logger.With("agent", opts.Name),
		checkMetrics: newCheckMetrics(opts.Registerer),
		self:         newSelf(&opts),
		sequences:    sequences{counts: map[string]int64{}},
		requests:     requestLog{checks: map[string]requested{}},
		slots:        make(chan struct{}, opts.MaxConcurrency),
		ready:        make(chan struct{}, 1),
	}
	a.keepalivePipelines = a.parsePipelines(opts.KeepalivePipelines)
	tick := func(req *resource.CheckRequest) verdict { return a.acceptTick(a.checkCtx, req) }
	a.schedule = newSchedule(tick, a.log, newScheduleMetrics(opts.Registerer))
	var err error
	a.transport, err = NewTransport(TransportOptions{
		Name:              opts.Name,
		Namespace:         opts.Namespace,
		Subscriptions:     opts.Subscriptions,
		User:              opts.User,
		Password:          opts.Password,
		BackendURLs:       opts.BackendURLs,
		TLS:               opts.TLS,
		HandshakeTimeout:  opts.HandshakeTimeout,
		HeartbeatInterval: opts.HeartbeatInterval,
		HeartbeatTimeout:  opts.HeartbeatTimeout,
		RetryMin:          opts.RetryMin,
		RetryMax:          opts.RetryMax,
		RetryMultiplier:   opts.RetryMultiplier,
		BatchDelay:        opts.BatchDelay,
		BufferEvents:      opts.BufferEvents,
		BufferBytes:       opts.BufferBytes,
		OnConnect:         a.meet,
		OnReady:           a.becomeReady,
		OnDisconnect:      func(error) { a.isReady.Store(false) },
		OnEntityConfig:    func(c *resource.EntityConfig) { a.self.pushed.Store(c) },
		OnSchedule:        a.schedule.apply,
		OnCheckRequest:    func(req *resource.CheckRequest) { a.accept(a.checkCtx, req) },
		Logger:            opts.Logger,
		Metrics:           NewMetrics(opts.Registerer),
	})
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	return a, nil
}

// complete applies the defaults and refuses what cannot work.
func (o *Options) complete() error {
	if o.Name == "" {
		o.Name, _ = os.Hostname() // without one, or with one that is no name, a random one will do
		if !resource.ValidName(o.Name) {
			o.Name = uuid.NewString()
		}
	}
	if !resource.ValidName(o.Name) {
		return fmt.Errorf("Name %q holds characters that no name may have", o.Name)
	}
	o.Namespace = cmp.Or(o.Namespace, "default")
	o.User = cmp.Or(o.User, "agent")
	o.Password = cmp.Or(o.Password, "P@ssw0rd!")
	o.KeepaliveInterval = cmp.Or(o.KeepaliveInterval, 20*time.Second)
	o.KeepaliveWarningTimeout = cmp.Or(o.KeepaliveWarningTimeout, 120*time.Second)
	warning, critical := o.KeepaliveWarningTimeout, o.KeepaliveCriticalTimeout
	switch {
	case o.KeepaliveInterval < 0:
		return fmt.Errorf("KeepaliveInterval %v is negative", o.KeepaliveInterval)
	case warning < 5*time.Second || warning <= o.KeepaliveInterval:
		return fmt.Errorf("KeepaliveWarningTimeout %v must be at least 5s and longer than the interval %v", warning, o.KeepaliveInterval)
	case critical != 0 && (critical < 5*time.Second || critical < warning):
		return fmt.Errorf("KeepaliveCriticalTimeout %v must be at least 5s and no shorter than the warning timeout %v", critical, warning)
	}
	if o.Redact == nil {
		o.Redact = DefaultRedact
	}
	o.MaxConcurrency = cmp.Or(o.MaxConcurrency, 50)
	o.MaxOutput = cmp.Or(o.MaxOutput, 2<<20)
	if o.MaxConcurrency < 0 || o.MaxOutput < 0 {
		return errors.New("MaxConcurrency or MaxOutput is negative")
	}
	o.Version = cmp.Or(o.Version, "(devel)")
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// parsePipelines reads references like core/v2.Pipeline.name. One that is none is logged and left out, as Sensu's
// agents do: it may come from a configuration that worked for years.
func (a *Agent) parsePipelines(refs []string) []resource.ResourceReference {
	var out []resource.ResourceReference
	for _, ref := range refs {
		parts := strings.SplitN(ref, ".", 3)
		if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
			a.log.Error("keepalive pipeline ignored: it is not like core/v2.Pipeline.name", "pipeline", ref)
			continue
		}
		out = append(out, resource.ResourceReference{APIVersion: parts[0], Type: parts[1], Name: parts[2]})
	}
	return out
}

// Start reads the facts of the host and starts connecting; it does not wait for a connection. The agent ends with Stop,
// or with ctx.
func (a *Agent) Start(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.started {
		return errors.New("agent: started before")
	}
	a.started = true
	ctx, a.stop = context.WithCancel(ctx)
	a.checkCtx = ctx
	libC := libcType(ctx)
	a.refreshSystem(ctx, libC)
	a.running.Go(func() { a.watchSystem(ctx, libC) })
	a.running.Go(func() { a.keepAlive(ctx) })
	a.running.Go(func() { a.schedule.loop(ctx) })
	a.running.Go(func() { a.transport.Run(ctx) })
	return nil
}

// Stop kills the running checks, leaves the backend and waits until all has ended. It may be called more than once.
func (a *Agent) Stop() error {
	a.mu.Lock()
	stop := a.stop
	a.started = true // never to start, if it has not
	a.mu.Unlock()
	if stop != nil {
		stop()
	}
	a.running.Wait()
	return nil
}

// Name is the name of the agent's entity.
func (a *Agent) Name() string { return a.opts.Name }

// Connected reports whether a backend is connected.
func (a *Agent) Connected() bool { return a.transport.Connected() }

// meet takes up with a backend. One that speaks Sensu's protocol asks for every run of a check: a schedule of another
// backend would run them twice. Events are numbered anew.
func (a *Agent) meet(c Connection) {
	a.sequences.reset()
	if !c.Lapwing {
		a.schedule.clear()
	}
}

// becomeReady has the first keepalive of a connection sent.
func (a *Agent) becomeReady() {
	a.isReady.Store(true)
	select {
	case a.ready <- struct{}{}:
	default:
	}
}

// keepAlive sends a keepalive when a backend becomes ready, and from then on at each interval.
func (a *Agent) keepAlive(ctx context.Context) {
	tick := time.NewTicker(a.opts.KeepaliveInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.ready:
			tick.Reset(a.opts.KeepaliveInterval)
		case <-tick.C:
		}
		if a.isReady.Load() {
			a.transport.SendKeepalive(a.newKeepalive())
		}
	}
}
