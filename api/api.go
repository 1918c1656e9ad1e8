// Package api serves the HTTP API: Sensu Go 6's /auth and /api/core/v2 field for field, lapwing's own /api/lapwing/v1,
// and the pages of package web at /. Package backend makes it and serves it on the API's port.
//
// There is one file per resource, which adds its paths with a handler for each method. crud.go serves kinds of
// definitions without special cases; resource.Kinds has their names. A request passes, in this order: the routes (404,
// 405), the user's token (401), the gate that is closed while the backend starts (503), the roles (403), and its
// handler. A handler returns an error for every answer that it does not write itself.
//
// Each thing that a user can do to definitions, events or silences is a function of an act (act.go): who does it, with
// which rights, to what. It checks, writes and records. Request handlers call it, and so do bulk and prune, always
// through API.perform. So put a rule of admission into such a function and not into a handler.
//
// Reads come from config's snapshot and from State, both in this process. A write of a definition returns when the
// snapshot has it. A write of an event returns when the event is durable in the log and folded. So a write that was
// answered 2xx can be read back.
//
// Every list takes the query parameters labelSelector and fieldSelector (see package selector). In Sensu, only the
// commercial edition does. Storing is the task of packages config, intake and state, rights are package auth's.
package api

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/inhibit"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/oncall"
	"github.com/lapwing-monitoring/lapwing/report"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// State reads events and entities. *state.State implements it.
type State interface {
	Event(namespace, entity, check string) (*resource.Event, error)
	Events(namespace, entity, after string, limit int) (events []*resource.Event, next string, err error)
	Select(ctx context.Context, query state.Query) (*state.Page, error)
	EntityState(namespace, name string) (*resource.EntityState, bool)
	EntityFacts(namespace, name string) (*resource.EntityState, bool) // without the processes
	History(namespace, entity, check string, before uint64, limit int) (changes []state.StateChange, next uint64, err error)
	Tail(buffer int) *state.Tail
	Cursor() state.Cursor
	ChangedSince(namespace string, c state.Cursor) (changed []state.Update, ok bool)
	WaitFolded(ctx context.Context, partition int, seq uint64) error
}

// Intake writes to the event log. Its methods return when the change is durable and State shows it.
type Intake interface {
	// Submit writes a valid event.
	Submit(ctx context.Context, ev *resource.Event) error
	// PutEntityState replaces the reported half of an entity.
	PutEntityState(ctx context.Context, st *resource.EntityState) error
	DeleteEvent(ctx context.Context, namespace, entity, check string) error
	// DeleteEntity deletes an entity's state and its events.
	DeleteEntity(ctx context.Context, namespace, name string) error
	// Resolve writes a passing result for each of the events.
	Resolve(ctx context.Context, events []*resource.Event, output string) error
	// Orphans returns the events whose entity or check is gone and that have not changed since before, in a namespace
	// or, for "", in all.
	Orphans(ctx context.Context, namespace string, before time.Time) ([]resource.Orphan, error)
}

// LongHistory has changes of checks' states in a database, PostgreSQL, that may be away or behind.
type LongHistory interface {
	report.Source
	// Configured reports whether there is a database.
	Configured() bool
	// Covers says which changes of a time it has. It answers within seconds.
	Covers(ctx context.Context, since, until time.Time) report.Coverage
	// History returns the changes of a check in a time, newest first: at most limit, and only those before the place that
	// an earlier call returned as next ("" for the newest). next is "" at the end.
	History(ctx context.Context, namespace, entity, check string, since, until time.Time, before string, limit int) (
		changes []state.StateChange, next string, err error)
}

// Options wires an API. Config, State, Intake and Auth are required. If the comment of a field does not say what 0
// means, 0 is replaced by the value of DefaultOptions.
type Options struct {
	Config *config.Store
	State  State
	Intake Intake
	Auth   *auth.Auth
	// Audit is the log of changes. Default: none.
	Audit AuditLog
	// Trace has what happened to events, and DeadLetters the deliveries that failed for good. Default: none.
	Trace       Traces
	DeadLetters DeadLetters
	// Waiting returns what waits for a handler of a namespace, each "" for all, on all backends, with up to limit parked
	// deliveries of each handler, and the backends that did not answer. Default: nothing waits.
	Waiting func(ctx context.Context, namespace, handler string, limit int) (
		list []delivery.Waiting, missing []string, err error)
	// RetryWaiting makes the deliveries of a handler due that wait for their next attempt, on all backends. It returns
	// their number, and the backends that did not answer. Default: nothing waits.
	RetryWaiting func(ctx context.Context, namespace, handler string) (n int, missing []string, err error)
	// Views keeps the live lists of events. Default: the API has no path for them.
	Views EventViews
	// EntityViews keeps the live lists of entities. Default: the API has no path for them.
	EntityViews EntityViews
	// Reports has the changes of checks' states. Default: there are no reports.
	Reports report.Source
	// LongHistory is a copy of these changes that may reach back further. Default: none.
	LongHistory LongHistory
	// Notifications is the history of notifications. Default: none.
	Notifications Notifications
	// Simulate returns what would happen to an event with drafts of definitions. It runs commands only if the caller
	// asks for it. Default: simulations are refused.
	Simulate func(ctx context.Context, o *SimulateOptions) []trace.Delivery
	// Replay takes stored events through a pipeline, and calls each with every event, in order. It ends when each returns an
	// error. Default: ErrNoPostgres.
	Replay func(ctx context.Context, r *Replay, each func(ReplayedEvent) error) error
	// Evaluate returns an aggregate's present result, computed from the events that reader selects; nil means all.
	// Default: aggregates cannot be evaluated.
	Evaluate func(ctx context.Context, def *resource.Aggregate, reader *selector.Selector) ([]resource.AggregateEvaluation, error)
	// Dependencies returns the dependencies of an event. Default: none.
	Dependencies func(ctx context.Context, ev *resource.Event) (*inhibit.Report, error)
	// AgentAccess lets members of the group system:agents use that group's roles in the API. Default: only agents'
	// sessions can.
	AgentAccess bool
	// HandlerAllowed and MutatorAllowed return the reason why the operator's settings forbid a definition, or nil.
	// Default: all are allowed.
	HandlerAllowed func(*resource.Handler) error
	MutatorAllowed func(*resource.Mutator) error
	// Web serves GET and HEAD requests outside of the API. Default: they are answered 404.
	Web http.Handler
	// Ready returns the reason why load balancers should send no requests here, or nil. Default: always ready.
	Ready func() error
	// Serves returns the reason why the backend cannot serve yet. Until it first returns nil, all but the public
	// endpoints are answered 503. Default: Ready.
	Serves func() error
	// Impaired returns what a serving backend cannot do; /ready then answers 503, and everything else works. Default:
	// nothing.
	Impaired func() error
	// Execute asks the agents of all backends with one of the subscriptions to run a check now; if the check is round robin
	// and all is false, only one agent of each subscription. Default: there are no agents.
	Execute func(ctx context.Context, check *resource.CheckConfig, subscriptions []string, all bool) Execution
	// Queue shows what round-robin checks owe. Default: there are none.
	Queue Queue
	// Postgres returns how each backend's copy of events in PostgreSQL stands. Default: there is none.
	Postgres func(context.Context) []PostgresStatus
	// Cluster shows all backends, and reaches the others. Default: this backend is alone.
	Cluster ClusterView
	// Lateness says which checks and events are late. Default: none is.
	Lateness Lateness
	// Backup writes a backup of the backend. It fails with backup.ErrBusy or backup.ErrNoRoom before it writes anything.
	// Default: backups cannot be made.
	Backup func(ctx context.Context, w io.Writer) error
	// Drain sends this backend's agents to other backends. Default: there are no agents.
	Drain Drainer
	// Health returns the state for /health. Default: one healthy member.
	Health func(context.Context) Health
	// Metrics is the store of metrics. Default: none.
	Metrics StoredMetrics
	// Schedule says when checks run, and Agents which agents are connected. Default: the API has no paths for that.
	Schedule Schedule
	Agents   Agents
	// OwnSchedule reports whether an agent that is connected to any member runs checks by a schedule of its own. It fails if the
	// agent's member does not tell. Default: no agent does.
	OwnSchedule func(ctx context.Context, agent resource.Name) (bool, error)
	// LogLevel does an action with the log levels of a member, "" for this backend. Default: the API has no path for it.
	LogLevel func(ctx context.Context, member string, do LogLevelAction) (resource.LogLevels, error)
	// OnCall says who is on call. Default: the API's own.
	OnCall *oncall.Directory
	// Links reads the links that acknowledge. Default: the API has no path for them.
	Links *oncall.Links
	// Escalations lists the escalations that are going on, of a namespace, an entity and a check; "" is all. Default: the
	// API has no path for them.
	Escalations func(namespace, entity, check string, limit int) (list []resource.Escalation, more bool, err error)
	// Calendars has the calendars of the snapshot. Default: the API's own.
	Calendars *calendar.Calendars
	// ParseMetricCheck checks a metric check's expression, and PreviewMetricCheck returns what a metric check would have
	// done between two times, in Unix seconds, with the rights of its author. Default: expressions are not checked, and there is no preview.
	ParseMetricCheck   func(def *resource.MetricCheck) error
	PreviewMetricCheck func(ctx context.Context, def *resource.MetricCheck, from, until int64) (*resource.MetricPreview, error)
	// Version is the backend's version, for /version.
	Version string
	// Gatherer has the metrics of /metrics. Default: none.
	Gatherer prometheus.Gatherer
	// MetricsAuth makes /metrics require a token or an API key with the permission to get metrics. Default: it is
	// public.
	MetricsAuth bool
	// RequestLimit bounds the body of a request, in bytes.
	RequestLimit int64
	// WriteTimeout bounds how long a request that writes may take; it should be shorter than the HTTP server's.
	WriteTimeout time.Duration
	// DefaultSilence is how long a silence lasts that says nothing of its end, and MaxSilence the longest, counted from its
	// making. 0 is no bound: silences last until they are deleted, and may be of any length.
	DefaultSilence, MaxSilence time.Duration
	// Now is the clock. Default: time.Now.
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// DefaultOptions returns the default settings. The limit of requests is Sensu's.
func DefaultOptions() Options { return Options{RequestLimit: 512_000, WriteTimeout: 10 * time.Second} }

// API is the handler of all HTTP requests.
type API struct {
	opts    Options
	log     *slog.Logger
	rare    *rarelog.Log // for log lines that depend on what clients send
	metrics metrics
	mux     *http.ServeMux
	routes  []route
	// definitions has the kinds of definitions that serve has added, by their name in roles. New fills it.
	definitions map[string]definition
	silences    *silences
	recent      *recent
	started     atomic.Bool // Serves has returned nil once
	limits      atomic.Pointer[Limits]

	heartbeat time.Duration // interval of the live streams' comments
	backlog   int           // limit of a live stream's backlog, in events
	chunk     int           // eventChunk
	// positionWait is how long a client's position may be ahead of this backend: the client has read another backend, which
	// had folded more of the log.
	positionWait time.Duration

	simulating  chan struct{} // limits concurrent simulations
	reports     chan struct{} // limits reports in memory
	reporting   chan struct{} // limits reports that are computed
	mu          sync.Mutex    // guards the fields below
	streams     sync.WaitGroup
	userStreams map[string]int // live streams by user
	renewals    renewals
	backlogs    map[*backlog]*state.Tail // of the live streams
	untolds     untoldAnswers
	replays     map[string]bool // by namespace: a replay is under way
	stopping    chan struct{}   // closed by Stop
	stopped     bool
	unlisten    func() // ends the calls that fill recent
}

// New makes the handler.
func New(opts Options) (*API, error) {
	if opts.Config == nil || opts.State == nil || opts.Intake == nil || opts.Auth == nil {
		return nil, errors.New("api: config, state, intake and auth are required")
	}
	if opts.Impaired == nil {
		opts.Impaired = func() error { return nil }
	}
	if opts.Ready == nil {
		opts.Ready = func() error { return nil }
	}
	if opts.Serves == nil {
		opts.Serves = opts.Ready
	}
	if opts.Execute == nil {
		opts.Execute = func(context.Context, *resource.CheckConfig, []string, bool) Execution {
			return Execution{Issued: opts.Now().Unix()}
		}
	}
	if opts.HandlerAllowed == nil {
		opts.HandlerAllowed = func(*resource.Handler) error { return nil }
	}
	if opts.MutatorAllowed == nil {
		opts.MutatorAllowed = func(*resource.Mutator) error { return nil }
	}
	if opts.Drain == nil {
		opts.Drain = noDrainer{}
	}
	if opts.Cluster == nil {
		opts.Cluster = newClusterOfOne(opts.Drain)
	}
	if opts.Lateness == nil {
		opts.Lateness = neverLate{}
	}
	if opts.Gatherer == nil {
		opts.Gatherer = prometheus.NewRegistry()
	}
	opts.WriteTimeout = cmp.Or(opts.WriteTimeout, DefaultOptions().WriteTimeout)
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Calendars == nil {
		opts.Calendars = calendar.New(opts.Logger)
	}
	if opts.OnCall == nil {
		opts.OnCall = oncall.New(opts.Config.Snapshot, opts.Calendars)
	}
	a := &API{
		opts:   opts,
		log:    opts.Logger.With("component", "api"),
		mux:    http.NewServeMux(),
		recent: newRecent(),

		definitions: map[string]definition{},

		heartbeat: 5 * time.Second,
		backlog:   500_000,
		chunk:     eventChunk,

		positionWait: 2 * time.Second,

		simulating:  make(chan struct{}, simulations),
		reports:     make(chan struct{}, reportsAnswered),
		reporting:   make(chan struct{}, reportsAtOnce),
		backlogs:    map[*backlog]*state.Tail{},
		userStreams: map[string]int{},
		replays:     map[string]bool{},
		stopping:    make(chan struct{}),
	}
	a.SetLimits(Limits{opts.RequestLimit, opts.DefaultSilence, opts.MaxSilence})
	a.rare = rarelog.New(a.log)
	a.metrics = newMetrics(opts.Registerer, a)
	if a.opts.Health == nil {
		a.opts.Health = a.aloneHealth
	}
	a.unlisten = opts.Config.OnChange(a.recent.add)
	a.recent.floor = opts.Config.Snapshot().Revision()
	a.mux.HandleFunc("/", a.fallback)
	a.serveDryRun()
	a.serveStatus()
	a.serveAuth()
	a.serveSignIn()
	a.servePageSession()
	a.servePostgresConfigs()
	a.servePostgresStatus()
	a.serveNamespaces()
	a.serveChecks()
	a.serveHandlers()
	a.serveFilters()
	a.serveMutators()
	a.serveHooks()
	a.serveAssets()
	a.servePipelines()
	a.serveFallbackPipelines()
	a.serveAggregates()
	a.serveCalendars()
	a.serveOnCall()
	a.serveLinks()
	a.serveLogLevel()
	a.serveLint()
	a.serveMetricChecks()
	a.serveEntities()
	a.serveEntityConfigs()
	a.serveEvents()
	a.serveStream()
	a.serveEventView()
	a.serveUntold()
	a.serveLive()
	a.serveEntityView()
	a.serveHistory()
	a.serveReports()
	a.serveEventLateness()
	a.serveDependencies()
	a.serveTrace()
	a.serveReplay()
	a.serveStoredMetrics()
	a.serveDeadLetters()
	a.serveWaiting()
	a.serveNotifications()
	a.serveAudit()
	a.serveConfigStream()
	a.serveCanI()
	a.serveBulk()
	a.serveOrphans()
	a.serveDocument()
	a.serveAccess()
	a.serveSilenced()
	a.serveUsers()
	a.serveAPIKeys()
	a.servePrune()
	a.serveCluster()
	a.serveClusterStatus()
	a.serveDrain()
	a.serveBackup()
	a.serveTessen()
	return a, nil
}

// Stop ends the live streams, which otherwise last as long as their clients want, and waits for them.
// http.Server.Shutdown also waits for them, so call Stop first.
func (a *API) Stop() error {
	a.mu.Lock()
	if !a.stopped {
		a.stopped = true
		close(a.stopping)
		a.unlisten()
	}
	a.mu.Unlock()
	a.streams.Wait()
	return nil
}

// untilStop returns a context that ends with ctx, and when Stop is called.
func (a *API) untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		select {
		case <-a.stopping:
			cancel(errors.New("the backend is stopping"))
		case <-done:
		}
	}()
	return ctx, func() {
		close(done)
		cancel(nil)
	}
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(hw http.ResponseWriter, r *http.Request) {
	w := &response{ResponseWriter: hw}
	begin := time.Now()
	defer func() {
		if v := recover(); v != nil {
			a.recovered(w, r, v)
		}
		a.observe(w, r, time.Since(begin))
	}()
	// The mux would redirect to a cleaned path. No path of the API needs that.
	if p := r.URL.EscapedPath(); p != "" && r.URL.Path != "*" {
		if c := path.Clean(p); c != p && c+"/" != p {
			writeUnknown(w)
			return
		}
	}
	a.mux.ServeHTTP(w, r)
}

// fallback serves requests without a route.
func (a *API) fallback(w http.ResponseWriter, r *http.Request) {
	outside := r.URL.Path != "/api" && !strings.HasPrefix(r.URL.Path, "/api/")
	if a.opts.Web != nil && outside && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		a.opts.Web.ServeHTTP(w, r)
		return
	}
	writeUnknown(w)
}
