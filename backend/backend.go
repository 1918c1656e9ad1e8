// Package backend wires the parts of the server together; it is the only package that knows them all.
//
// Start reads as the parts depend on one another: the broker carries config and the event log; state folds the log and
// routes what it folded through the pipeline to the handlers; sessions, the API, the scheduler and the deadlines put
// events into the log. Stop undoes it in reverse.
package backend

import (
	"cmp"
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
	"github.com/prometheus/client_golang/prometheus"

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
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
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

// Options are a backend's settings.
type Options struct {
	// StateDir holds all that the backend keeps. Required.
	StateDir string
	// APIListenAddress is where the HTTP API and the web page are. Default "[::]:8080".
	APIListenAddress string
	// APIRequestLimit bounds the body of an API request, in bytes. Default 512000.
	APIRequestLimit int64
	// APIWriteTimeout bounds the answer to an API request. Default 15 s.
	APIWriteTimeout time.Duration
	// AgentHost and AgentPort are where agents connect. Default "[::]" and 8081. A negative port means any free one.
	AgentHost string
	AgentPort int
	// TrustedProxies are addresses and networks of proxies in front of either listener. They are trusted to tell the client's
	// address in X-Forwarded-For or Forwarded. Default none.
	TrustedProxies []string
	// AgentMaxConnections and APIMaxConnections bound the connections of the listeners, and the other two those from one
	// address. 0 is what the limit of open files allows: see connectionLimits.
	AgentMaxConnections, AgentMaxPerAddress int
	APIMaxConnections, APIMaxPerAddress     int
	// AgentIdleTimeout, AgentMessageTimeout and AgentPartialBytes are as in session.Options. AgentPartialBytes is by default no more than
	// an eighth of MemoryLimit.
	AgentIdleTimeout, AgentMessageTimeout time.Duration
	AgentPartialBytes                     int64
	// AgentMaxMessage bounds a message of an agent, in bytes. Default 4 MiB.
	AgentMaxMessage int64
	// AgentSpread is the time over which what falls due for all agents together leaves; each has its moment in it. Default
	// 1 s; negative for none: all leaves at once.
	AgentSpread time.Duration
	// AgentReadDelay is how long what agents send may lie in their sockets, to be read together. Default 5 ms; negative for
	// none.
	AgentReadDelay time.Duration
	// PhaseHash makes the phases of checks from their names: md5, as Sensu does, or sha256. Default md5.
	PhaseHash string
	// AgentQueue is how many frames wait for an agent that does not read; further ones are dropped. Default 1000.
	AgentQueue int
	// TLS is for both listeners. Default: none.
	TLS TLS
	// AdminUsername and AdminPassword are the administrator made at the first start. Default "admin" and a random
	// password, which is passed to Announce.
	AdminUsername, AdminPassword string
	// AdminAPIKey, if not "", is a UUID that is to be the administrator's API key.
	AdminAPIKey string
	// Announce is told, once, the administrator that was made with a random password.
	Announce func(username, password string)
	// Partitions is the number of partitions of the event log; it cannot change once there is data. Default what it is, and
	// at first one for two processors, 8 at most.
	Partitions int
	// FlushInterval is how long events gather before a commit of the event log. Default 20 ms.
	FlushInterval time.Duration
	// MemoryLimit is what the process's memory is to stay below, in bytes: the event log takes a thirtieth of it a second in the long
	// run, so that a flood does not fill it. The collector's limit is the process's to set. Default no bound.
	MemoryLimit int64
	// MinFreeDisk is the free space below which no events are taken, in bytes. Default 256 MiB.
	MinFreeDisk uint64
	// KeepLog is how much of the event log is kept behind what is stored, in bytes over all partitions. Default 1 GiB.
	KeepLog uint64
	// WriteDelay is how long a check's state waits for more results before it is written. Default 1 min.
	WriteDelay time.Duration
	// MaxDirty bounds the events that wait for that, and MaxReplay the event log that a restart has to replay because of
	// them, in bytes over all partitions. Default 512 MiB and 1 GiB.
	MaxDirty, MaxReplay uint64
	// HistoryAge is how long changes of a check's state are kept. Default 90 days; negative for none.
	HistoryAge time.Duration
	// TombstoneGrace is how long the mark of a deleted definition is kept. Default 30 min.
	TombstoneGrace time.Duration
	// AuditFile gets a line of JSON for each change that somebody makes through this backend's API; "" for none. AuditAge
	// is how long the audit log keeps entries. Default 400 days.
	AuditFile string
	AuditAge  time.Duration
	// HandlerWorkers and HandlerQueue are, per handler, how many run at a time and how many wait in memory. Default 8 and
	// 1000.
	HandlerWorkers, HandlerQueue int
	// HandlerProcesses is how many commands of handlers run at a time, over all of them. Default 64. HandlerEnv names variables
	// of this process's environment that commands of handlers and mutators get beside the usual ones.
	HandlerProcesses int
	HandlerEnv       []string
	// HandlerTypes are the types of handlers that may be used; without pipe, mutators run no commands either. Default all.
	HandlerTypes []string
	// HandlerSecretDirs are the directories below which handlers may name files with secrets. Default /etc/lapwing/secrets.
	HandlerSecretDirs []string
	// TraceAge and TraceBytes bound what is kept of what became of events, and TraceSample is of how many events that are
	// neither incident nor resolution one is traced; negative for none. Default 7 days, 256 MiB and 100.
	TraceAge    time.Duration
	TraceBytes  uint64
	TraceSample int
	// AccessLifetime is how long an access token is good, and RefreshLifetime how long a session lasts that is not used.
	// Default 5 min and 12 h.
	AccessLifetime, RefreshLifetime time.Duration
	// JWTPrivateKeyFile and JWTPublicKeyFile, together, are an elliptic curve key (PEM) that signs access tokens.
	JWTPrivateKeyFile, JWTPublicKeyFile string
	// DirectoryGuesses is how many wrong passwords of one entry a directory is asked in half an hour. Default 8.
	DirectoryGuesses int
	// MetricsAuth has /metrics want a token or an API key. Default: it is public, as Sensu's.
	MetricsAuth bool
	// PasswordHash is the algorithm for new passwords: auth.Bcrypt, the default, or auth.Argon2id.
	PasswordHash string
	// HashCost is the cost of new passwords' bcrypt hashes, as in auth.Options. Default 10; tests make it cheap.
	HashCost int
	// DefaultSilence is how long a silence lasts that says nothing of its end, and MaxSilence the longest. Default: no bound.
	DefaultSilence, MaxSilence time.Duration
	// ProxyTTL is after how long without a result entities without an agent are removed with their events, unless they have a
	// TTL of their own, and OrphanTTL after how long events are whose entity or check is not defined any more. Default: never.
	ProxyTTL, OrphanTTL time.Duration
	// Quotas bound what events may make and store.
	Quotas intake.Quotas
	// ExpressionMemory is how much memory a process may take that runs expressions and mutators of users, in bytes. Default
	// 256 MiB.
	ExpressionMemory int64
	// AgentProxyLabels has the labels and annotations of proxy entities that agents' events make, and AgentAnyEntity lets agents
	// report for the entities of other agents. Default: neither.
	AgentProxyLabels, AgentAnyEntity bool
	// AgentAnySubscription lets agents have the subscriptions of other entities. Default: they are left out.
	AgentAnySubscription bool
	// ProviderGroupsAge is how long the groups that a directory or OpenID Connect provider named count for the definitions of a user who
	// does not sign in any more. Default 30 days.
	ProviderGroupsAge time.Duration
	// AgentAPIAccess gives members of the group system:agents in the API what roles give the group. Default: nothing.
	AgentAPIAccess bool
	// CacheDir is for assets. Default a part of the state directory. AssetsRateLimit and AssetsBurstLimit are as in
	// asset.Options.
	CacheDir         string
	AssetsRateLimit  float64
	AssetsBurstLimit int
	// AssetsMirrorBytes and AssetsMirrorAge bound the archives of assets that are kept for agents, and how long one is kept
	// that no agent wants. Default 10 GiB and 7 days; negative bytes leave it to agents to fetch what they need.
	AssetsMirrorBytes int64
	AssetsMirrorAge   time.Duration
	// Pprof is an address for Go's profiles; "" for none.
	Pprof   string
	Version string
	Logger  *slog.Logger
	// Registry takes the metrics. Default a new one.
	Registry *prometheus.Registry
}

// Backend is one running server.
type Backend struct {
	opts    Options
	log     *slog.Logger
	phases  timetable.Hash
	proxies clientaddr.Proxies

	starting atomic.Pointer[error] // what Start is at, or waits for
	reserve  atomic.Uint64         // Options.MinFreeDisk, which Reload changes
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
	b.reserve.Store(opts.MinFreeDisk)
	b.say("ports")
	return b, nil
}

// complete fills in the defaults.
func (o *Options) complete() {
	o.connectionLimits(connlimit.Files())
	o.APIListenAddress = cmp.Or(o.APIListenAddress, "[::]:8080")
	o.APIWriteTimeout = cmp.Or(o.APIWriteTimeout, 15*time.Second)
	o.AgentHost = cmp.Or(o.AgentHost, "[::]")
	if o.AgentPort = cmp.Or(o.AgentPort, 8081); o.AgentPort < 0 {
		o.AgentPort = 0
	}
	o.AdminUsername = cmp.Or(o.AdminUsername, "admin")
	if o.HandlerSecretDirs == nil {
		o.HandlerSecretDirs = []string{"/etc/lapwing/secrets"}
	}
	o.MinFreeDisk = cmp.Or(o.MinFreeDisk, 256<<20)
	if o.AgentPartialBytes == 0 && o.MemoryLimit > 0 {
		o.AgentPartialBytes = min(256<<20, o.MemoryLimit/8)
	}
	o.KeepLog = cmp.Or(o.KeepLog, 1<<30)
	o.MaxDirty = cmp.Or(o.MaxDirty, 512<<20)
	o.MaxReplay = cmp.Or(o.MaxReplay, 1<<30)
	if o.Announce == nil {
		o.Announce = func(string, string) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = telemetry.RegistryFor(o.Version)
	}
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
	dir, db, id, parts := found.dir, found.db, &found.id, found.id.Partitions
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

	trail, err := audit.New(audit.Options{
		Broker: nats, File: b.opts.AuditFile, MaxAge: b.opts.AuditAge, Logger: b.log, Registerer: b.opts.Registry,
	})
	if err != nil {
		return err
	}
	if err := start(ctx, b, "audit log", trail); err != nil {
		return err
	}
	definitions, err := config.New(config.Options{
		Broker: nats, Written: trail.Written, TombstoneGrace: b.opts.TombstoneGrace, Logger: b.log, Registerer: b.opts.Registry,
	})
	if err != nil {
		return err
	}
	if err := start(ctx, b, "config", definitions); err != nil {
		return err
	}
	users, err := auth.New(auth.Options{
		Config: definitions, Hash: b.opts.PasswordHash, HashCost: b.opts.HashCost, Signer: signer,
		AccessLifetime: b.opts.AccessLifetime, RefreshLifetime: b.opts.RefreshLifetime,
		Remember: dir.signIns(), DirectoryGuesses: b.opts.DirectoryGuesses, GroupsAge: b.opts.ProviderGroupsAge,
		Logger: b.log, Registerer: b.opts.Registry,
	})
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

	events, err := eventlog.New(eventlog.Options{
		Broker: nats, Dir: dir.path, Origin: id.Cluster, Partitions: parts, FlushInterval: b.opts.FlushInterval,
		MinFree: b.opts.MinFreeDisk, MaxRate: b.opts.MemoryLimit / 30, Logger: b.log, Registerer: b.opts.Registry,
	})
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

	expressions, err := filter.NewPool(filter.PoolOptions{Memory: b.opts.ExpressionMemory, Logger: b.log, Registerer: b.opts.Registry})
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
	sender, err := send.New(send.Options{
		Assets: plugins.env, PassEnv: b.opts.HandlerEnv, MaxProcesses: b.opts.HandlerProcesses, Types: b.opts.HandlerTypes,
		SecretDirs: b.opts.HandlerSecretDirs, Logger: b.log, Registerer: b.opts.Registry,
	})
	if err != nil {
		return err
	}
	if err := start(ctx, b, "senders", sender); err != nil {
		return err
	}
	traces, err := trace.New(trace.Options{
		DB: db, MaxAge: b.opts.TraceAge, MaxBytes: int64(b.opts.TraceBytes), Sample: b.opts.TraceSample,
		Logger: b.log, Registerer: b.opts.Registry,
	})
	if err != nil {
		return err
	}
	if err := start(ctx, b, "traces", traces); err != nil {
		return err
	}
	handlers, err := handler.New(handler.Options{
		DB: db, Config: definitions.Snapshot, Send: sender.Run, Trace: traces.Record,
		QueueSize: b.opts.HandlerQueue, Workers: b.opts.HandlerWorkers, Logger: b.log, Registerer: b.opts.Registry,
	})
	if err != nil {
		return err
	}
	present := newLoadedState()
	inhibitor, err := inhibit.New(inhibit.Options{Config: definitions.Snapshot, State: present, Logger: b.log, Registerer: b.opts.Registry})
	if err != nil {
		return err
	}
	router, err := pipeline.New(pipeline.Options{
		Config: definitions.Snapshot, Dispatch: handlers.Dispatch, Assets: plugins.set, PassEnv: b.opts.HandlerEnv,
		NoCommands: sender.TypeAllowed("pipe"), Trace: traces.Record, Inhibited: inhibitor.Inhibited, Present: present, Events: present,
		Permit: permitLookups(users, b.opts.AgentAPIAccess), Expressions: expressions, Logger: b.log, Registerer: b.opts.Registry,
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
	folded, err = state.New(state.Options{
		Log: events, DB: db, Origin: id.Cluster, Arm: deadlines.Arm, Route: route, Checkpoint: handlers.Checkpoint, CheckpointDue: handlers.Due(),
		Entity: func(namespace, name string) (*resource.EntityConfig, bool) {
			return config.Get(definitions.Snapshot(), config.Entities, namespace, name)
		},
		EntityChanges: func(changed func(namespace, name string)) func() {
			return definitions.OnChange(func(c config.Change) {
				if c.Kind == config.Entities.String() {
					changed(c.Namespace, c.Name)
				}
			})
		},
		Silences:   matcher.Present(definitions),
		WriteDelay: b.opts.WriteDelay, MaxDirty: int(b.opts.MaxDirty) / parts, MaxReplay: b.opts.MaxReplay / uint64(parts),
		KeepLog: b.opts.KeepLog / uint64(parts), HistoryAge: b.opts.HistoryAge, Logger: b.log, Registerer: b.opts.Registry,
	})
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
	in, err = intake.New(intake.Options{
		ProxyTTL: b.opts.ProxyTTL, ProxyLabels: b.opts.AgentProxyLabels, AnyEntity: b.opts.AgentAnyEntity,
		AnySubscription: b.opts.AgentAnySubscription, Quotas: b.opts.Quotas,
		Config: definitions, Log: events, State: folded, Silences: matcher, Logger: b.log, Registerer: b.opts.Registry,
	})
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
	housekeeper, err := intake.NewHousekeeper(intake.HousekeeperOptions{
		Intake: in, OrphanTTL: b.opts.OrphanTTL, Logger: b.log, Registerer: b.opts.Registry,
	})
	if err != nil {
		return err
	}
	if err := start(ctx, b, "housekeeper", housekeeper); err != nil {
		return err
	}
	aggregates, err := aggregate.New(aggregate.Options{
		Config: definitions, State: folded, Intake: in.Internal(), Limit: memberLimit(users, b.opts.AgentAPIAccess),
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
	apiHandler, err := api.New(api.Options{
		Config: definitions, State: folded, Intake: in, Auth: users, Audit: trail, Trace: traces,
		DeadLetters: deadLetters{handlers}, Simulate: simulator(router), Evaluate: aggregates.Evaluate, Dependencies: inhibitor.Explain,
		Web: web.Handler(), Ready: b.ready, Impaired: expressions.Err, Version: b.opts.Version,
		Gatherer: b.opts.Registry, Registerer: b.opts.Registry, RequestLimit: b.opts.APIRequestLimit, DefaultSilence: b.opts.DefaultSilence,
		MaxSilence: b.opts.MaxSilence, Execute: b.execute, WithoutAgent: b.withoutAgent, Drain: drainer{b}, AgentAccess: b.opts.AgentAPIAccess,
		HandlerAllowed: sender.Allowed, MutatorAllowed: sender.MutatorAllowed, MetricsAuth: b.opts.MetricsAuth, Logger: b.log,
	})
	if err != nil {
		return err
	}
	mirror, err := b.newMirror(dir.path, definitions)
	if err != nil {
		return err
	}
	sessionOpts := session.Options{
		Listener: b.ports.agents, TLS: agentTLS, Failed: func(err error) { b.fail("agents listener", err) },
		CertRequired: b.opts.TLS.AgentCertAuth, CertNames: b.opts.TLS.AgentNameAuth,
		BackendID: hostname(id.Cluster), Config: definitions, Auth: users, Intake: in, Log: events, State: folded, Other: healthOnly(apiHandler),
		Proxies: b.proxies, MaxConnections: b.opts.AgentMaxConnections, MaxPerAddress: b.opts.AgentMaxPerAddress,
		IdleTimeout: b.opts.AgentIdleTimeout, MessageTimeout: b.opts.AgentMessageTimeout, PartialBytes: b.opts.AgentPartialBytes,
		MaxMessage: b.opts.AgentMaxMessage, Spread: b.opts.AgentSpread, ReadDelay: b.opts.AgentReadDelay, SendQueue: b.opts.AgentQueue,
		Logger: b.log, Registerer: b.opts.Registry,
	}
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
	limited := connlimit.New(b.ports.api, connlimit.Options{
		Name: "api", Max: b.opts.APIMaxConnections, PerAddress: b.opts.APIMaxPerAddress, Shared: b.proxies.Trusts,
		Logger: b.log, Registerer: b.opts.Registry,
	})
	b.push("api server", b.serve("api", limited, apiTLS, b.proxies.Handler(notForAgents(apiHandler)), b.opts.APIWriteTimeout))
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
	users, err := auth.New(auth.Options{Config: definitions, Hash: b.opts.PasswordHash, HashCost: b.opts.HashCost, Logger: b.log})
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

// signer is the key of access tokens, nil if none is given.
func (o *Options) signer() (*auth.Signer, error) {
	if o.JWTPrivateKeyFile == "" {
		return nil, nil
	}
	var bad optionerr.List
	private, err := os.ReadFile(o.JWTPrivateKeyFile)
	if err != nil {
		bad.Add("jwt-private-key-file", "%w", err)
	}
	public, err := os.ReadFile(o.JWTPublicKeyFile)
	if err != nil {
		bad.Add("jwt-public-key-file", "%w", err)
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	signer, err := auth.ParseSigner(private, public)
	if err != nil {
		bad.Add("jwt-private-key-file", "with --jwt-public-key-file: %w", err)
	}
	return signer, bad.Err()
}

// seed makes the administrator, with a random password if none was given.
func (b *Backend) seed(ctx context.Context, users *auth.Auth) error {
	password := b.opts.AdminPassword
	if password == "" {
		var random [18]byte
		_, _ = rand.Read(random[:]) // never fails
		password = base64.RawURLEncoding.EncodeToString(random[:])
	}
	if err := users.Seed(ctx, auth.SeedOptions{Username: b.opts.AdminUsername, Password: password, APIKey: b.opts.AdminAPIKey}); err != nil {
		return err
	}
	if b.opts.AdminPassword == "" {
		b.opts.Announce(b.opts.AdminUsername, password)
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
