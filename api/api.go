// Package api serves the HTTP API: Sensu Go 6's /auth and /api/core/v2 field for field, lapwing's own /api/lapwing/v1
// beside it, and the pages of package web at /. Package backend builds it and mounts it on the port of the API.
//
// There is one file per resource, which adds the paths of the resource with a handler for each method. crud.go serves a
// kind of definition that needs nothing special; resource.Kinds has the names. A request passes, in this order: the
// routes (404, 405), the user's token (401), the gate that is shut while the backend starts (503), the roles (403), and
// its handler. A handler returns an error for everything that it does not answer itself.
//
// Each thing that a user can do to definitions, events or silences is a function that takes an act (act.go): who does it,
// with which rights, to what. It checks, writes and records. The handlers of requests call it, and so do bulk and prune,
// all through API.perform. So a rule of admission belongs there and not into a handler.
//
// Reads come from config's snapshot and from State, both in this process. A write of a definition returns when the
// snapshot has it; a write of an event returns when the event is durable in the log and folded. What was answered 2xx
// can be read back.
//
// Every list takes the query parameters labelSelector and fieldSelector (see package selector). Of Sensu, only the
// commercial edition does.
package api

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/inhibit"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// State is what the API reads of events and entities. *state.State is one.
type State interface {
	Event(namespace, entity, check string) (*resource.Event, error)
	Events(namespace, entity, after string, limit int) (events []*resource.Event, next string, err error)
	Select(ctx context.Context, query state.Query) (*state.Page, error)
	EntityState(namespace, name string) (*resource.EntityState, bool)
	History(namespace, entity, check string, before uint64, limit int) (changes []state.StateChange, next uint64, err error)
	Tail(buffer int) *state.Tail
	Cursor() state.Cursor
	ChangedSince(namespace string, c state.Cursor) (changed []state.Update, ok bool)
}

// Intake is the way into the event log. Its methods return when what they did is durable and State shows it.
type Intake interface {
	// Submit takes a valid event.
	Submit(ctx context.Context, ev *resource.Event) error
	// PutEntityState replaces what is known of an entity's host.
	PutEntityState(ctx context.Context, st *resource.EntityState) error
	DeleteEvent(ctx context.Context, namespace, entity, check string) error
	// DeleteEntity forgets an entity's state and its events.
	DeleteEntity(ctx context.Context, namespace, name string) error
	// Resolve takes a good result for each of the events.
	Resolve(ctx context.Context, events []*resource.Event, output string) error
	// Orphans are the events of a namespace, or of all for "", whose entity or check is not defined any more and that have not
	// changed since a time.
	Orphans(ctx context.Context, namespace string, before time.Time) ([]resource.Orphan, error)
}

// Options wires an API. Config, State, Intake and Auth are required. A setting that is 0, and cannot be 0, is taken from
// DefaultOptions.
type Options struct {
	Config *config.Store
	State  State
	Intake Intake
	Auth   *auth.Auth
	// Audit has who changed what. Default: nothing is kept.
	Audit AuditLog
	// Trace has what became of events, and DeadLetters what handlers never took. Default: nothing is known.
	Trace       Traces
	DeadLetters DeadLetters
	// Simulate says what would become of an event with drafts of definitions. Commands are only run if that is asked for.
	// Default: it is refused.
	Simulate func(ctx context.Context, namespace string, draft *Draft, ev *resource.Event, commands bool) []trace.Delivery
	// Evaluate says what an aggregate would find now, of the events that reader selects: nil for all. Default: that it is not known.
	Evaluate func(ctx context.Context, def *resource.Aggregate, reader *selector.Selector) ([]resource.AggregateEvaluation, error)
	// Dependencies says what an event depends on. Default: on nothing.
	Dependencies func(ctx context.Context, ev *resource.Event) (*inhibit.Report, error)
	// AgentAccess gives members of the group system:agents what roles give that group. Default: it counts for agents' sessions only.
	AgentAccess bool
	// HandlerAllowed and MutatorAllowed are why the operator's settings forbid a definition, or nil. Default: all are allowed.
	HandlerAllowed func(*resource.Handler) error
	MutatorAllowed func(*resource.Mutator) error
	// Web gets GET and HEAD requests outside of the API. Default: they are answered 404.
	Web http.Handler
	// Ready says why the backend cannot serve yet. Until it returns nil for the first time all but the public
	// endpoints are answered 503. Default: always ready.
	Ready func() error
	// Impaired says what a backend that serves cannot do; /ready answers 503 with it, and all else goes on. Default: nothing.
	Impaired func() error
	// Execute asks the agents that have one of the subscriptions to run a check now, and returns when the request was
	// issued, in Unix seconds. Default: there are no agents.
	Execute func(check *resource.CheckConfig, subscriptions []string) (issued int64)
	// WithoutAgent returns those of a namespace's subscriptions that no connected agent has. Default: none is said to be so.
	WithoutAgent func(namespace string, subscriptions []string) []string
	// Drain sends agents to other backends. Default: there are no agents.
	Drain Drainer
	// Health is what /health shows. Default: one healthy member.
	Health func(context.Context) Health
	// Version is the backend's, for /version.
	Version string
	// Gatherer has the metrics of /metrics. Default: there are none.
	Gatherer prometheus.Gatherer
	// MetricsAuth has /metrics want a token or an API key with the permission to get metrics. Default: it is public.
	MetricsAuth bool
	// RequestLimit bounds the body of a request, in bytes.
	RequestLimit int64
	// WriteTimeout bounds how long a request that writes may take; it should be shorter than the HTTP server's.
	WriteTimeout time.Duration
	// DefaultSilence is how long a silence lasts that says nothing of its end, and MaxSilence the longest, counted from its
	// making. 0 is no bound: silences last until they are deleted, and may be of any length.
	DefaultSilence, MaxSilence time.Duration
	// Now is the clock. Default time.Now.
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
	rare    *rarelog.Log // for lines that depend on what clients send
	metrics metrics
	mux     *http.ServeMux
	routes  []route
	// definitions are the kinds of definitions that serve has added, by how roles call them. New fills it.
	definitions map[string]definition
	silences    *silences
	recent      *recent
	started     atomic.Bool // Ready has returned nil once
	limits      atomic.Pointer[Limits]

	heartbeat time.Duration // of live streams
	backlog   int           // of live streams
	chunk     int           // eventChunk

	simulating chan struct{} // has room for so many simulations
	mu         sync.Mutex    // guards the fields below
	streams    sync.WaitGroup
	backlogs   map[*backlog]*state.Tail // of the live streams
	stopping   chan struct{}            // closed by Stop
	stopped    bool
	unlisten   func() // ends what fills recent
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
	if opts.Execute == nil {
		opts.Execute = func(*resource.CheckConfig, []string) int64 { return opts.Now().Unix() }
	}
	if opts.WithoutAgent == nil {
		opts.WithoutAgent = func(string, []string) []string { return nil }
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
	a := &API{
		opts:   opts,
		log:    opts.Logger.With("component", "api"),
		mux:    http.NewServeMux(),
		recent: newRecent(),

		definitions: map[string]definition{},

		heartbeat: 15 * time.Second,
		backlog:   500_000,
		chunk:     eventChunk,

		simulating: make(chan struct{}, simulations),
		backlogs:   map[*backlog]*state.Tail{},
		stopping:   make(chan struct{}),
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
	a.serveStatus()
	a.serveAuth()
	a.serveSignIn()
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
	a.serveEntities()
	a.serveEntityConfigs()
	a.serveEvents()
	a.serveStream()
	a.serveHistory()
	a.serveDependencies()
	a.serveTrace()
	a.serveDeadLetters()
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
	a.serveDrain()
	a.serveTessen()
	return a, nil
}

// Stop ends the live streams, which otherwise last as long as their clients want, and waits for them. An http.Server waits
// for them in its Shutdown, so call Stop before it.
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
	// The mux would redirect to a tidied path. A path that needs it is none of ours.
	if p := r.URL.EscapedPath(); p != "" && r.URL.Path != "*" {
		if c := path.Clean(p); c != p && c+"/" != p {
			writeUnknown(w)
			return
		}
	}
	a.mux.ServeHTTP(w, r)
}

// fallback gets the requests that no route takes.
func (a *API) fallback(w http.ResponseWriter, r *http.Request) {
	outside := r.URL.Path != "/api" && !strings.HasPrefix(r.URL.Path, "/api/")
	if a.opts.Web != nil && outside && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		a.opts.Web.ServeHTTP(w, r)
		return
	}
	writeUnknown(w)
}
