// Package agent runs on monitored hosts: it keeps a connection to a backend, sends keepalives, runs checks and sends
// their results. cmd/lapwing starts an Agent with New, Start and Stop; load generators and tests use Transport alone.
//
// Transport is the connection. It delivers events at least once to a lapwing backend, and as reliably as the protocol
// allows to a Sensu Go 6 backend. A lapwing backend leaves most checks to schedule, which runs them on the agent's own
// clock, connected or not. It requests the others, and a Sensu backend requests all. A request goes from Transport to
// accept, a tick from schedule to acceptTick; both drop a run that was taken already. Then execute replaces tokens,
// runs the command in a process group, extracts metrics and runs hooks, and Transport.Send takes the result. About
// turns of round-robin checks the agent also sends receipts, see turn.go.
//
// docs/agent-protocol.md describes the protocol, package wire encodes it. Events from programs on the host come through
// package local.
package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/agent/collect"
	"github.com/lapwing-monitoring/lapwing/agent/local"
	"github.com/lapwing-monitoring/lapwing/asset"
	"github.com/lapwing-monitoring/lapwing/internal/hostfacts"
	"github.com/lapwing-monitoring/lapwing/internal/proc"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// DefaultRedact are the keys of labels and annotations whose values the API hides.
var DefaultRedact = []string{"password", "passwd", "pass", "api_key", "api_token", "access_key", "secret_key", "private_key", "secret"}

// Options are the settings of an Agent. Callers begin with DefaultOptions. If the comment of a field does not say what 0
// means, 0 or an empty value is replaced by the value of DefaultOptions.
type Options struct {
	Name          string // of the entity; default the host's name
	Namespace     string
	Subscriptions []string // the backend adds entity:<name>
	User          string
	Password      string
	BackendURLs   []string // ws or wss, port 8081 if none
	// TLS is called for each connection to wss. A configuration with a certificate means that no password is sent.
	// Default: system roots.
	TLS func() *tls.Config

	// KeepaliveInterval is the time between keepalives. Without one the backend warns after KeepaliveWarningTimeout, at
	// least 5 s, and reports critical after KeepaliveCriticalTimeout; 0 is never. Whole seconds.
	KeepaliveInterval        time.Duration
	KeepaliveWarningTimeout  time.Duration
	KeepaliveCriticalTimeout time.Duration
	KeepaliveHandlers        []string
	KeepalivePipelines       []string // each like core/v2.Pipeline.name

	Labels                map[string]string
	Annotations           map[string]string
	Redact                []string // default DefaultRedact
	Deregister            bool     // the backend deletes the entity when the agent leaves
	DeregistrationHandler string
	StripNetworks         bool // do not report network interfaces
	DetectCloud           bool // report the cloud provider of the host
	DiscoverProcesses     bool // report the processes of the host (Linux)
	// AllowList is a file with the commands that may run, see docs/agent.md. Default: all may run.
	AllowList string
	// KeepaliveLabels and KeepaliveAnnotations are set on keepalive events.
	KeepaliveLabels      map[string]string
	KeepaliveAnnotations map[string]string
	// Managed says that these options define the agent's entity and override changes at the backend.
	Managed bool

	// As in TransportOptions.
	RetryMin          time.Duration
	RetryMax          time.Duration
	RetryMultiplier   float64
	InOrder           bool
	MaxSession        time.Duration
	HandshakeTimeout  time.Duration
	HeartbeatInterval time.Duration
	HeartbeatTimeout  time.Duration
	BatchDelay        time.Duration
	BufferEvents      int
	BufferBytes       int
	BufferAge         time.Duration
	// SpoolDir keeps undelivered events and the schedule on disk across restarts, in a directory per agent. Default
	// none: they are in memory only.
	SpoolDir string

	// CacheDir holds what can be made again at a cost: assets, and how far log files were read. It is created when
	// needed.
	CacheDir string
	// DisableAssets refuses checks and hooks that need runtime assets. Otherwise an asset is kept until it was not used
	// for AssetMaxAge. AssetsRateLimit, AssetsBurstLimit and AssetClient are Rate, Burst and Client of asset.Options.
	DisableAssets    bool
	AssetMaxAge      time.Duration
	AssetsRateLimit  float64
	AssetsBurstLimit int
	AssetClient      *http.Client

	// Local configures the interfaces for programs of the host; the agent sets its fields about the entity. Default
	// none.
	Local local.Options

	// Cgroups gives the commands of each check a control group (Linux), so that all processes they started can be ended
	// and counted, and CheckLimits or a check's own annotation can limit them. RecordUsage notes the commands' usage on
	// events.
	Cgroups     bool
	CheckLimits proc.Limits
	RecordUsage bool

	MaxConcurrency int // checks that run at the same time, the others wait
	MaxOutput      int // bytes kept of the output of a check or hook, well below a backend's limit for messages

	Version    string // reported in the entity; default "(devel)"
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// DefaultOptions returns the default settings of an agent whose events wait in memory only, and without local interfaces.
func DefaultOptions() Options {
	t := DefaultTransportOptions()
	assets := asset.DefaultOptions()
	return Options{
		Namespace: t.Namespace, User: "agent", Password: "P@ssw0rd!", BackendURLs: t.BackendURLs,
		KeepaliveInterval: 20 * time.Second, KeepaliveWarningTimeout: 120 * time.Second,
		RetryMin: t.RetryMin, RetryMax: t.RetryMax, RetryMultiplier: t.RetryMultiplier,
		HandshakeTimeout: t.HandshakeTimeout, HeartbeatInterval: t.HeartbeatInterval, HeartbeatTimeout: t.HeartbeatTimeout,
		BatchDelay: t.BatchDelay, BufferEvents: t.BufferEvents, BufferBytes: t.BufferBytes,
		CacheDir: "/var/cache/lapwing/agent", AssetMaxAge: 30 * 24 * time.Hour,
		AssetsRateLimit: assets.Rate, AssetsBurstLimit: assets.Burst, MaxConcurrency: 50, MaxOutput: 2 << 20,
	}
}

// Agent is one agent.
type Agent struct {
	opts         Options
	log          *slog.Logger
	checkMetrics checkMetrics
	settings     atomic.Pointer[settings]
	assets       *asset.Store // nil if they are disabled
	collectors   *collect.Set
	cgroups      *proc.Cgroups // nil for none
	local        *local.Server

	transport *Transport
	schedule  *schedule
	self      *self
	sequences sequences
	requests  requestLog
	slots     chan struct{} // one for each running check
	ready     chan struct{} // the backend has just become ready
	changed   chan struct{} // lastKnown must be written
	isReady   atomic.Bool

	connection atomic.Pointer[Connection] // the current connection

	processesCut bool // that was logged; for refreshProcesses alone

	checkCtx context.Context // for the running checks
	running  sync.WaitGroup  // goroutines

	mu      sync.Mutex // guards the fields below
	started bool
	stop    context.CancelFunc
}

// New returns an Agent that is not started.
func New(opts Options) (*Agent, error) {
	if err := opts.complete(); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	a := &Agent{
		opts:         opts,
		log:          opts.Logger.With("agent", opts.Name),
		checkMetrics: newCheckMetrics(opts.Registerer),
		self:         &self{version: opts.Version},
		sequences:    sequences{counts: map[string]int64{}},
		requests:     requestLog{checks: map[string]requested{}},
		slots:        make(chan struct{}, opts.MaxConcurrency),
		ready:        make(chan struct{}, 1),
		changed:      make(chan struct{}, 1),
	}
	a.collectors = collect.New(collect.Options{Host: opts.Name, StateDir: filepath.Join(opts.CacheDir, "collect")})
	tick := func(req *resource.CheckRequest) verdict { return a.acceptTick(a.checkCtx, req) }
	a.schedule = newSchedule(tick, a.log, newScheduleMetrics(opts.Registerer))
	first, err := a.newSettings(&opts)
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	a.settings.Store(first)
	if a.assets, err = a.newAssets(); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	if a.local, err = a.newLocal(); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
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
		BufferAge:         opts.BufferAge,
		SpoolDir:          opts.SpoolDir,
		OnConnect:         a.meet,
		OnReady:           a.becomeReady,
		OnDisconnect:      a.part,
		OnEntityConfig:    a.meetSelf,
		MaxSession:        opts.MaxSession,
		InOrder:           opts.InOrder,
		OnSchedule:        a.learn,
		OnMembers:         a.remember,
		OnCheckRequest:    func(req *resource.CheckRequest) { a.accept(a.checkCtx, req) },
		Logger:            opts.Logger,
		Metrics:           NewMetrics(opts.Registerer),
	})
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	return a, nil
}

// complete applies the defaults and checks the options.
func (o *Options) complete() error {
	if o.Name == "" {
		o.Name, _ = os.Hostname() // without a valid name of the host the agent gets a random one
		if !resource.ValidName(o.Name) {
			o.Name = uuid.NewString()
		}
	}
	if !resource.ValidName(o.Name) {
		return fmt.Errorf("name %q is longer than %d bytes or holds characters that no name may have", resource.Short(o.Name), resource.MaxName)
	}
	if len(o.Namespace) > resource.MaxName {
		return fmt.Errorf("namespace is longer than %d bytes", resource.MaxName)
	}
	defaults := DefaultOptions()
	o.Namespace = cmp.Or(o.Namespace, defaults.Namespace)
	if o.SpoolDir != "" {
		o.SpoolDir = filepath.Join(o.SpoolDir, strings.ReplaceAll(o.Namespace+"/"+o.Name, ":", "_"))
	}
	o.User = cmp.Or(o.User, defaults.User)
	o.Password = cmp.Or(o.Password, defaults.Password)
	o.KeepaliveInterval = cmp.Or(o.KeepaliveInterval, defaults.KeepaliveInterval)
	o.KeepaliveWarningTimeout = cmp.Or(o.KeepaliveWarningTimeout, defaults.KeepaliveWarningTimeout)
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
	o.CacheDir = cmp.Or(o.CacheDir, defaults.CacheDir)
	o.AssetMaxAge = cmp.Or(o.AssetMaxAge, defaults.AssetMaxAge)
	o.MaxConcurrency = cmp.Or(o.MaxConcurrency, defaults.MaxConcurrency)
	o.MaxOutput = cmp.Or(o.MaxOutput, defaults.MaxOutput)
	if o.MaxConcurrency < 0 || o.MaxOutput < 0 {
		return errors.New("MaxConcurrency or MaxOutput is negative")
	}
	o.Version = cmp.Or(o.Version, "(devel)")
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// parsePipelines reads references like core/v2.Pipeline.name. An invalid one is logged and skipped, as Sensu's agents
// do: a configuration that has worked for years may hold it.
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

// Start reads the facts of the host and starts connecting; it does not wait for a connection. The agent ends with Stop
// or ctx.
func (a *Agent) Start(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.started {
		return errors.New("agent: started before")
	}
	a.started = true
	ctx, a.stop = context.WithCancel(ctx)
	a.checkCtx = ctx
	a.recall()
	a.openCgroups()
	if a.opts.DiscoverProcesses && !hostfacts.DiscoversProcesses {
		a.log.Warn("discover-processes has no effect: it is for Linux only")
	}
	libC := hostfacts.LibC(ctx)
	a.refreshSystem(ctx, libC)
	a.running.Go(func() { a.watchSystem(ctx, libC) })
	a.running.Go(func() { a.keepAlive(ctx) })
	a.running.Go(func() { a.schedule.loop(ctx) })
	a.running.Go(func() { a.stayConnected(ctx) })
	if a.opts.SpoolDir != "" {
		a.running.Go(func() { a.keepKnown(ctx) })
	}
	if a.assets != nil {
		a.running.Go(func() { a.purgeAssets(ctx) })
	}
	if err := a.local.Start(ctx); err != nil {
		// checks run without the interface
		a.log.Error("cannot start an interface for programs of this host", "err", err)
	}
	return nil
}

// Stop kills the running checks, disconnects and waits for all goroutines. It may be called more than once.
func (a *Agent) Stop() error {
	a.mu.Lock()
	stop := a.stop
	a.started = true // Start must fail from now on
	a.mu.Unlock()
	if stop != nil {
		stop()
	}
	err := a.local.Stop()
	a.running.Wait()
	if a.cgroups != nil {
		_ = a.cgroups.Close() // processes left in the background keep their group
	}
	return errors.Join(err, a.transport.Close())
}

// newLocal returns the interfaces for programs of the host.
func (a *Agent) newLocal() (*local.Server, error) {
	opts := a.opts.Local
	opts.Agent, opts.Namespace, opts.Version = a.opts.Name, a.opts.Namespace, a.opts.Version
	opts.Entity = a.self.entity
	opts.Connected = a.Connected
	opts.Send = func(ev *resource.Event) {
		if ev.Check != nil {
			ev.Sequence = a.sequences.next(ev.Check.Metadata.Name)
		}
		a.transport.Send(ev)
	}
	opts.Logger, opts.Registerer = a.log, a.opts.Registerer
	return local.New(opts)
}

// Name is the name of the agent's entity.
func (a *Agent) Name() string { return a.opts.Name }

// Connected reports whether a backend is connected.
func (a *Agent) Connected() bool { return a.transport.Connected() }

// meet starts work with a newly connected backend. A Sensu backend requests every run of a check, so the schedule of
// another backend would run them twice. Events are numbered from 1 again.
func (a *Agent) meet(c Connection) {
	a.sequences.reset()
	a.connection.Store(&c)
	if !c.Lapwing {
		a.schedule.clear()
		a.remember()
	}
}

// part notes that no backend is connected.
func (a *Agent) part(error) {
	a.isReady.Store(false)
	a.connection.Store(nil)
}

// becomeReady sends the first keepalive of a connection.
func (a *Agent) becomeReady() {
	a.isReady.Store(true)
	a.keepaliveNow()
}

// keepaliveNow sends a keepalive now if a backend is connected.
func (a *Agent) keepaliveNow() {
	select {
	case a.ready <- struct{}{}:
	default:
	}
}

// keepAlive sends a keepalive when a backend becomes ready, and from then on at each interval.
func (a *Agent) keepAlive(ctx context.Context) {
	tick := time.NewTicker(a.settings.Load().KeepaliveInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.ready:
			tick.Reset(a.settings.Load().KeepaliveInterval)
		case <-tick.C:
		}
		if a.isReady.Load() {
			a.transport.SendKeepalive(a.newKeepalive())
		}
	}
}
