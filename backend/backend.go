// Package backend wires the parts of the server together; it is the only package that knows them all.
//
// Start reads as the parts depend on one another: the broker carries config and the event log; state folds the log and
// routes what it folded through the pipeline to the handlers; sessions, the API, the scheduler and the deadlines put
// events into the log. Stop undoes it in reverse.
package backend

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/aggregate"
	"github.com/lapwing-monitoring/lapwing/api"
	"github.com/lapwing-monitoring/lapwing/asset"
	"github.com/lapwing-monitoring/lapwing/audit"
	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/handler"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/inhibit"
	"github.com/lapwing-monitoring/lapwing/intake"
	"github.com/lapwing-monitoring/lapwing/internal/clientaddr"
	"github.com/lapwing-monitoring/lapwing/internal/connlimit"
	"github.com/lapwing-monitoring/lapwing/internal/crl"
	"github.com/lapwing-monitoring/lapwing/internal/tlsfiles"
	"github.com/lapwing-monitoring/lapwing/internal/wheel"
	"github.com/lapwing-monitoring/lapwing/pipeline"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule"
	"github.com/lapwing-monitoring/lapwing/schedule/timetable"
	"github.com/lapwing-monitoring/lapwing/session"
	"github.com/lapwing-monitoring/lapwing/silence"
	"github.com/lapwing-monitoring/lapwing/state"
	"github.com/lapwing-monitoring/lapwing/telemetry"
	"github.com/lapwing-monitoring/lapwing/trace"
	"github.com/lapwing-monitoring/lapwing/web"
)

// Backend is one running server.
type Backend struct {
	opts    Options
	log     *slog.Logger
	phases  timetable.Hash
	proxies clientaddr.Proxies

	starting atomic.Pointer[error] // what Start is at, or waits for
	reserve  atomic.Uint64         // Options.Log.MinFree, which Reload changes
	failed   failure

	mu       sync.Mutex // guards the fields below
	started  bool
	first    []func() // before the steps
	undo     []step
	ports    ports
	sessions *session.Server
	checks   *schedule.Scheduler
	ready    func() error
	// What Reload changes. apiFiles, agentFiles and revoked are nil without TLS or lists; handler is nil until all is started.
	apiFiles, agentFiles *tlsfiles.Files
	revoked              *crl.Lists
	events               *eventlog.Log
	handler              *api.API

	damaged atomic.Pointer[damageNote] // what the database found damaged
}

// New checks the options; Start does the work.
func New(opts Options) (*Backend, error) {
	if err := opts.Check(); err != nil {
		return nil, err
	}
	phases, err := timetable.ParseHash(opts.PhaseHash)
	if err != nil {
		return nil, err
	}
	proxies, err := clientaddr.Parse(opts.TrustedProxies)
	if err != nil {
		return nil, err
	}
	opts.complete()
	b := &Backend{opts: opts, log: opts.Logger, phases: phases, proxies: proxies, failed: failure{done: make(chan struct{})}}
	b.reserve.Store(opts.Log.MinFree)
	b.say("ports")
	return b, nil
}

// Start brings the parts up in order, and takes them down again if one fails.
func (b *Backend) Start(ctx context.Context) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.started {
		return errors.New("start backend: already started")
	}
	b.started = true
	defer func() {
		if err != nil {
			stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
			defer cancel()
			_ = b.unwind(stopping)
		}
	}()
	begin := time.Now()

	// All that may be wrong with keys, ports and certificates is known before anything is made.
	signer, err := b.opts.signer()
	if err != nil {
		return err
	}
	if err := b.bind(ctx); err != nil {
		return err
	}
	if b.ports.pprof != nil { // from now on: a start that hangs is when profiles are wanted
		b.push("pprof server", b.serve("pprof", b.ports.pprof, nil, telemetry.PprofHandler(), 0))
	}
	apiTLS, agentTLS, err := b.listenerTLS(ctx)
	if err != nil {
		return err
	}
	apiTaken := b.answerStarting(b.ports.api, apiTLS, api.Waiting(b.Starting))
	agentsTaken := b.answerStarting(b.ports.agents, agentTLS, http.HandlerFunc(b.agentsWhileStarting))
	found, err := b.waitForState(ctx)
	if err != nil {
		return err
	}
	dir, db, id := found.dir, found.db, &found.id
	clean := &cleanStop{dir: dir}
	b.push("state directory", clean.close)
	b.push("state database", clean.after(db.Close))
	nats, err := broker.New(broker.Options{Dir: dir.broker(), Logger: b.log, Registerer: b.opts.Registry})
	if err != nil {
		return err
	}
	if err := nats.Start(ctx); err != nil {
		return fmt.Errorf("start broker: %w", err)
	}
	b.push("broker", clean.after(nats.Stop))
	b.watch("broker", nats.Failed())

	auditOpts := b.opts.Audit
	auditOpts.Broker, auditOpts.Logger, auditOpts.Registerer = nats, b.log, b.opts.Registry
	trail, err := audit.New(auditOpts)
	if err != nil {
		return err
	}
	if err := start(ctx, b, "audit log", trail); err != nil {
		return err
	}
	configOpts := b.opts.Config
	configOpts.Broker, configOpts.Written, configOpts.Logger, configOpts.Registerer = nats, trail.Written, b.log, b.opts.Registry
	definitions, err := config.New(configOpts)
	if err != nil {
		return err
	}
	if err := start(ctx, b, "config", definitions); err != nil {
		return err
	}
	authOpts := b.opts.Auth
	authOpts.Config, authOpts.Signer, authOpts.Remember = definitions, signer, dir.signIns()
	authOpts.Logger, authOpts.Registerer = b.log, b.opts.Registry
	users, err := auth.New(authOpts)
	if err != nil {
		return err
	}
	if err := b.seedOnce(ctx, users, definitions, id); err != nil {
		return err
	}

	if users.DefaultAgentPassword() {
		b.log.Warn("agents can sign in with the default password: change it with lapwing user reset-password agent "+
			"--interactive, or --password where there is no terminal, and on the agents", "user", "agent")
	}

	logOpts := b.opts.Log
	logOpts.Broker, logOpts.Dir, logOpts.Origin, logOpts.Partitions = nats, dir.path, id.Cluster, id.Partitions
	logOpts.Logger, logOpts.Registerer = b.log, b.opts.Registry
	events, err := eventlog.New(logOpts)
	if err != nil {
		return err
	}
	if err := start(ctx, b, "event log", events); err != nil {
		return err
	}
	// An append may wait for the log for ever, for example on a full disk, and its caller would not stop.
	b.beforeUndo(events.StopWaiting)
	// From now on a stream that is not there is one that was lost.
	if err := dir.initialised(db, id); err != nil {
		return err
	}

	poolOpts := b.opts.Expressions
	poolOpts.Logger, poolOpts.Registerer = b.log, b.opts.Registry
	expressions, err := filter.NewPool(poolOpts)
	if err != nil {
		return err
	}
	if err := start(ctx, b, "workers for expressions", expressions); err != nil {
		return err
	}
	b.opts.Registry.MustRegister(setAsideMetric{expressions.SetAside})
	plugins, err := b.newAssets(ctx, dir.path, definitions, expressions)
	if err != nil {
		return err
	}
	sendOpts := b.opts.Send
	sendOpts.Assets, sendOpts.Logger, sendOpts.Registerer = plugins.env, b.log, b.opts.Registry
	sender, err := send.New(sendOpts)
	if err != nil {
		return err
	}
	if err := start(ctx, b, "senders", sender); err != nil {
		return err
	}
	traceOpts := b.opts.Trace
	traceOpts.DB, traceOpts.Logger, traceOpts.Registerer = db, b.log, b.opts.Registry
	traces, err := trace.New(traceOpts)
	if err != nil {
		return err
	}
	if err := start(ctx, b, "traces", traces); err != nil {
		return err
	}
	handlerOpts := b.opts.Handler
	handlerOpts.DB, handlerOpts.Config, handlerOpts.Send, handlerOpts.Trace = db, definitions.Snapshot, sender.Run, traces.Record
	handlerOpts.Logger, handlerOpts.Registerer = b.log, b.opts.Registry
	handlers, err := handler.New(handlerOpts)
	if err != nil {
		return err
	}
	present := newLoadedState()
	inhibitor, err := inhibit.New(inhibit.Options{Config: definitions.Snapshot, State: present, Logger: b.log, Registerer: b.opts.Registry})
	if err != nil {
		return err
	}
	router, err := pipeline.New(pipeline.Options{
		Config: definitions.Snapshot, Dispatch: handlers.Dispatch, Assets: plugins.set, PassEnv: b.opts.Send.PassEnv,
		NoCommands: sender.TypeAllowed("pipe"), Trace: traces.Record, Inhibited: inhibitor.Inhibited, Present: present, Events: present,
		Permit: permitLookups(users, b.opts.API.AgentAccess), Expressions: expressions, Logger: b.log, Registerer: b.opts.Registry,
	})
	if err != nil {
		return err
	}
	handlers.SetWorkflow(router)

	matcher := silence.NewMatcher(b.log)
	silences, err := silence.New(silence.Options{Config: definitions, Matcher: matcher, Logger: b.log, Registerer: b.opts.Registry})
	if err != nil {
		return err
	}
	if err := start(ctx, b, "silences", silences); err != nil {
		return err
	}
	route := func(a *state.Applied) {
		if a.Seq <= id.quiet(a.Partition) {
			return
		}
		router.Route(a)
		if len(a.Ended) > 0 {
			silences.Resolved(a.Namespace, a.Ended, time.UnixMilli(a.Received))
		}
	}

	// Deadlines come from the fold and go into the log, which the fold reads: the wheel knows both ends by these two.
	var folded *state.State
	var in *intake.Intake
	var deadlines *wheel.Wheel
	deadlines, err = wheel.New(wheel.Options{
		Due: func(id uint64) (int64, bool) { return folded.Due(id) },
		Fire: func(id uint64) {
			again, err := in.Expire(context.WithoutCancel(ctx), id)
			if err != nil {
				b.log.Error("deadline was not recorded", "err", err)
			}
			if again != 0 {
				deadlines.Arm(id, again)
			}
		},
	})
	if err != nil {
		return err
	}
	b.opts.Registry.MustRegister(deadlineMetrics(deadlines)...)
	stateOpts := b.opts.State
	stateOpts.Log, stateOpts.DB, stateOpts.Origin, stateOpts.Arm, stateOpts.Route = events, db, id.Cluster, deadlines.Arm, route
	stateOpts.Checkpoint, stateOpts.CheckpointDue = handlers.Checkpoint, handlers.Due()
	stateOpts.Entity = func(namespace, name string) (*resource.EntityConfig, bool) {
		return config.Get(definitions.Snapshot(), config.Entities, namespace, name)
	}
	stateOpts.EntityChanges = func(changed func(namespace, name string)) func() {
		return definitions.OnChange(func(c config.Change) {
			if c.Kind == config.Entities.String() {
				changed(c.Namespace, c.Name)
			}
		})
	}
	stateOpts.Silences = matcher.Present(definitions)
	stateOpts.Logger, stateOpts.Registerer = b.log, b.opts.Registry
	folded, err = state.New(stateOpts)
	if err != nil {
		return err
	}
	// What was left unfinished goes to the handlers before the replay adds to it. They stop before the state does, so that
	// what they finish last is stored as finished.
	if err := handlers.Start(ctx); err != nil {
		return fmt.Errorf("start handlers: %w", err)
	}
	progress := func() uint64 { return folded.Loaded() + events.Followed() }
	err = b.patiently(ctx, "reading the state and the event log behind it", progress, func(ctx context.Context) error {
		return startQuietly(ctx, b, "state", folded)
	})
	b.push("handlers", handlers.Stop)
	if err != nil {
		return err
	}
	present.ready(folded)
	intakeOpts := b.opts.Intake
	intakeOpts.Config, intakeOpts.Log, intakeOpts.State, intakeOpts.Silences = definitions, events, folded, matcher
	intakeOpts.Logger, intakeOpts.Registerer = b.log, b.opts.Registry
	in, err = intake.New(intakeOpts)
	if err != nil {
		return err
	}
	watcher, err := silence.NewWatcher(watcherOptions(definitions, matcher, folded, in, b.log, b.opts.Registry))
	if err != nil {
		return err
	}
	if err := start(ctx, b, "silence watcher", watcher); err != nil {
		return err
	}
	b.push("intake", in.Stop)
	if err := start(ctx, b, "deadlines", deadlines); err != nil {
		return err
	}
	housekeeperOpts := b.opts.Housekeeper
	housekeeperOpts.Intake, housekeeperOpts.Logger, housekeeperOpts.Registerer = in, b.log, b.opts.Registry
	housekeeper, err := intake.NewHousekeeper(housekeeperOpts)
	if err != nil {
		return err
	}
	if err := start(ctx, b, "housekeeper", housekeeper); err != nil {
		return err
	}
	aggregates, err := aggregate.New(aggregate.Options{
		Config: definitions, State: folded, Intake: in.Internal(), Limit: memberLimit(users, b.opts.API.AgentAccess),
		Logger: b.log, Registerer: b.opts.Registry,
	})
	if err != nil {
		return err
	}
	if err := start(ctx, b, "aggregates", aggregates); err != nil {
		return err
	}

	if err := start(ctx, b, "reports on expressions", newExpressionReports(expressions, definitions, present, in, b.log)); err != nil {
		return err
	}

	b.ready = func() error { return errors.Join(nats.Err(), events.Err(), b.damage()) }
	apiOpts := b.opts.API
	apiOpts.Config, apiOpts.State, apiOpts.Intake, apiOpts.Auth, apiOpts.Audit, apiOpts.Trace = definitions, folded, in, users, trail, traces
	apiOpts.DeadLetters, apiOpts.Simulate, apiOpts.Evaluate = deadLetters{handlers}, simulator(router), aggregates.Evaluate
	apiOpts.Dependencies, apiOpts.HandlerAllowed, apiOpts.MutatorAllowed = inhibitor.Explain, sender.Allowed, sender.MutatorAllowed
	apiOpts.Execute, apiOpts.WithoutAgent, apiOpts.Drain = b.execute, b.withoutAgent, drainer{b}
	apiOpts.Web, apiOpts.Ready, apiOpts.Impaired, apiOpts.Version = web.Handler(), b.ready, expressions.Err, b.opts.Version
	apiOpts.Logger, apiOpts.Gatherer, apiOpts.Registerer = b.log, b.opts.Registry, b.opts.Registry
	apiHandler, err := api.New(apiOpts)
	if err != nil {
		return err
	}
	mirror, err := b.newMirror(dir.path, definitions)
	if err != nil {
		return err
	}
	sessionOpts := b.opts.Session
	sessionOpts.Listener, sessionOpts.Proxies, sessionOpts.TLS = b.ports.agents, b.proxies, agentTLS
	sessionOpts.CertRequired, sessionOpts.CertNames = b.opts.TLS.AgentCertAuth, b.opts.TLS.AgentNameAuth
	sessionOpts.Failed = func(err error) { b.fail("agents listener", err) }
	sessionOpts.BackendID, sessionOpts.Config, sessionOpts.Auth = hostname(id.Cluster), definitions, users
	sessionOpts.Intake, sessionOpts.Log, sessionOpts.State = in, events, folded
	sessionOpts.Other, sessionOpts.Logger, sessionOpts.Registerer = healthOnly(apiHandler), b.log, b.opts.Registry
	if mirror != nil {
		if err := start(ctx, b, "asset mirror", mirror); err != nil {
			return err
		}
		sessionOpts.Archives, sessionOpts.ForLapwing = mirror.Serve, asset.WithoutHeaders
	}
	if b.sessions, err = session.New(sessionOpts); err != nil {
		return err
	}
	agentsTaken()
	if err := start(ctx, b, "sessions", b.sessions); err != nil {
		return err
	}
	b.checks, err = schedule.New(schedule.Options{
		Config: definitions, Publish: b.sessions.Publish, Assign: b.sessions.Assign, Compile: compileFor(expressions),
		PhaseHash: b.phases, Logger: b.log, Registerer: b.opts.Registry,
	})
	if err != nil {
		return err
	}
	if err := start(ctx, b, "scheduler", b.checks); err != nil {
		return err
	}

	apiTaken()
	connOpts := b.opts.APIConns
	connOpts.Name, connOpts.Shared, connOpts.Logger, connOpts.Registerer = "api", b.proxies.Trusts, b.log, b.opts.Registry
	b.push("api server", b.serve("api", connlimit.New(b.ports.api, connOpts), apiTLS, b.proxies.Handler(notForAgents(apiHandler)), b.opts.APIWriteTimeout))
	b.push("live streams", func() error { apiHandler.Stop(); return nil })
	b.events, b.handler = events, apiHandler
	b.log.Info("backend is ready", "id", id.Cluster, "api", b.APIAddr().String(), "agents", b.AgentAddr().String(),
		"seconds", time.Since(begin).Seconds())
	return nil
}

// execute has a check run that is not due. The API is served when the scheduler is there.
func (b *Backend) execute(check *resource.CheckConfig, subscriptions []string) (issued int64) {
	return b.checks.Execute(check, subscriptions)
}

func (b *Backend) withoutAgent(namespace string, subscriptions []string) []string {
	return b.sessions.WithoutAgent(namespace, subscriptions)
}

// drainer are the sessions, which are made later than the API. It is served when they are there.
type drainer struct{ b *Backend }

func (d drainer) Drain(over time.Duration)                  { d.b.sessions.Drain(over) }
func (d drainer) Undrain()                                  { d.b.sessions.Undrain() }
func (d drainer) Draining() (time.Time, time.Duration, int) { return d.b.sessions.Draining() }

// APIAddr is where a started backend serves the API.
func (b *Backend) APIAddr() net.Addr { return b.ports.api.Addr() }

// AgentAddr is where agents connect.
func (b *Backend) AgentAddr() net.Addr { return b.ports.agents.Addr() }

// Initialize makes the administrator and the built-in definitions in a state directory that no backend uses, and nothing
// else; auth.ErrInitialized if they are there.
func Initialize(ctx context.Context, opts Options) error {
	b, err := New(opts)
	if err != nil {
		return err
	}
	defer func() { _ = b.Stop() }()
	if err := b.space(initialSpace); err != nil {
		return fmt.Errorf("%w; make room there and try again", err)
	}
	found, err := b.openState()
	if err != nil {
		return err
	}
	clean := &cleanStop{dir: found.dir}
	b.push("state directory", clean.close)
	b.push("state database", clean.after(found.db.Close))
	nats, err := broker.New(broker.Options{Dir: found.dir.broker(), Logger: b.log})
	if err != nil {
		return err
	}
	if err := nats.Start(ctx); err != nil {
		return fmt.Errorf("start broker: %w", err)
	}
	b.push("broker", clean.after(nats.Stop))
	definitions, err := config.New(config.Options{Broker: nats, Logger: b.log})
	if err != nil {
		return err
	}
	if err := start(ctx, b, "config", definitions); err != nil {
		return err
	}
	authOpts := b.opts.Auth
	authOpts.Config, authOpts.Logger = definitions, b.log
	users, err := auth.New(authOpts)
	if err != nil {
		return err
	}
	if (!found.id.Initialised.IsZero() || !found.id.Seeded.IsZero()) && !found.id.Reseed {
		return auth.ErrInitialized
	}
	if err := b.seed(ctx, users); err != nil {
		return err
	}
	found.id.Seeded = time.Now().UTC()
	return found.dir.store(found.db, &found.id)
}

// seed makes the administrator, with a random password if none was given.
func (b *Backend) seed(ctx context.Context, users *auth.Auth) error {
	admin := b.opts.Admin
	if admin.Password == "" {
		var random [18]byte
		_, _ = rand.Read(random[:]) // never fails
		admin.Password = base64.RawURLEncoding.EncodeToString(random[:])
	}
	if err := users.Seed(ctx, admin); err != nil {
		return err
	}
	if b.opts.Admin.Password == "" {
		b.opts.Announce(admin.Username, admin.Password)
	}
	return nil
}

// listen binds a port until Stop. The error names the flags of the address.
func (b *Backend) listen(ctx context.Context, flags, address string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flags, err)
	}
	b.push("port of "+flags, ignoreClosed(l.Close))
	return l, nil
}

// maxHeaderBytes bounds the header of a request.
const maxHeaderBytes = 64 << 10

// serve runs an HTTP server until stop, which may be called more than once. If it ends by itself, so does the backend.
func (b *Backend) serve(name string, l net.Listener, tlsConfig *tls.Config, h http.Handler,
	writeTimeout time.Duration) (stop func() error) {
	srv := &http.Server{
		Handler: h, ReadTimeout: 15 * time.Second, WriteTimeout: writeTimeout, MaxHeaderBytes: maxHeaderBytes, ConnContext: connlimit.Context,
		ErrorLog: slog.NewLogLogger(b.log.Handler(), slog.LevelDebug),
	}
	if tlsConfig != nil {
		l = tls.NewListener(l, tlsConfig)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			b.fail(name+" listener", err)
		}
	}()
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			_ = srv.Close()
		}
		<-done
		return nil
	}
}

func ignoreClosed(f func() error) func() error {
	return func() error {
		if err := f(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	}
}

// hostname is what agents are told of this backend, as Sensu does.
func hostname(fallback string) string {
	if name, err := os.Hostname(); err == nil {
		return name
	}
	return fallback
}

func trimBrackets(host string) string {
	if n := len(host); n > 1 && host[0] == '[' && host[n-1] == ']' {
		return host[1 : n-1]
	}
	return host
}

// dbLog hands the database's log lines to slog.
type dbLog struct{ log *slog.Logger }

var _ pebble.Logger = dbLog{}

func (l dbLog) Infof(f string, v ...any) {
	l.log.Debug("database notice", "text", fmt.Sprintf(f, v...))
}
func (l dbLog) Errorf(f string, v ...any) {
	l.log.Error("database error", "text", fmt.Sprintf(f, v...))
}

// Fatalf must not return: the database calls it when to go on would lose data.
func (l dbLog) Fatalf(f string, v ...any) {
	l.log.Error(fatalMessage(v), "text", fmt.Sprintf(f, v...))
	os.Exit(1)
}

func fatalMessage(about []any) string {
	for _, v := range about {
		if err, ok := v.(error); ok && errors.Is(err, syscall.ENOSPC) {
			return "the disk is full: the state database cannot write, and the process must end; " + nothingLost
		}
	}
	return "database failed, the process must end"
}
