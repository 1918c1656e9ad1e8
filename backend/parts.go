package backend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lapwing-monitoring/lapwing/aggregate"
	"github.com/lapwing-monitoring/lapwing/api"
	"github.com/lapwing-monitoring/lapwing/asset"
	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/cluster"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/eventfile"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/fleet"
	"github.com/lapwing-monitoring/lapwing/fold"
	"github.com/lapwing-monitoring/lapwing/handler"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/inhibit"
	"github.com/lapwing-monitoring/lapwing/intake"
	"github.com/lapwing-monitoring/lapwing/lateness"
	"github.com/lapwing-monitoring/lapwing/metric/alert"
	"github.com/lapwing-monitoring/lapwing/notification"
	"github.com/lapwing-monitoring/lapwing/oncall"
	"github.com/lapwing-monitoring/lapwing/pipeline"
	"github.com/lapwing-monitoring/lapwing/pipeline/workflow"
	"github.com/lapwing-monitoring/lapwing/postgres"
	"github.com/lapwing-monitoring/lapwing/postgres/journal"
	"github.com/lapwing-monitoring/lapwing/queue"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule"
	"github.com/lapwing-monitoring/lapwing/session"
	"github.com/lapwing-monitoring/lapwing/silence"
	"github.com/lapwing-monitoring/lapwing/state"
	"github.com/lapwing-monitoring/lapwing/trace"
	"github.com/lapwing-monitoring/lapwing/view"
	"github.com/lapwing-monitoring/lapwing/web"
)

// parts are all parts of a backend, in the order in which build makes them.
type parts struct {
	*storage

	journal   *journal.Journal
	matcher   *silence.Matcher
	calendars *calendar.Calendars
	onCall    *oncall.Directory
	links     *oncall.Links
	deadlines *deadlines
	state     *state.State
	loaded    *loadedState // state, for parts that ask before it is live

	expressions *filter.Pool
	assets      *assets
	sender      *send.Sender
	traces      *trace.Store
	sent        *notification.Store
	inhibitor   *inhibit.Inhibitor
	workflows   *workflow.Workflows
	handlers    *handler.Dispatcher
	silences    *silence.Keeper
	router      *pipeline.Router
	queue       *queue.Queue
	runs        *lateness.Runs
	eventFile   *eventfile.Writer   // nil for none
	platform    *eventfile.Platform // nil for none
	fold        *fold.Fold
	lists       *view.Views
	fleet       *fleet.Fleet

	postgres       *postgres.Projection
	postgresReader *postgres.Reader
	metrics        *metricServer
	metricChecks   *alert.Runner
	rules          *alert.Rules // nil for none

	intake      *intake.Intake
	watcher     *silence.Watcher
	housekeeper *intake.Housekeeper
	aggregates  *aggregate.Runner
	reports     *expressionReports

	postgresReports *postgresReports
	handlerReports  *handlerReports

	mirror    *asset.Mirror // nil for none
	sessions  *session.Server
	scheduler *schedule.Scheduler
	lateness  *lateness.Watcher
	view      *clusterView
	api       *api.API
}

// build makes the parts beside the storage. It starts none of them.
func (b *Backend) build(s *storage) (*parts, error) {
	p := &parts{storage: s}
	if err := b.buildJournal(p); err != nil {
		return nil, err
	}
	if err := b.buildState(p); err != nil {
		return nil, err
	}
	if err := b.buildHandlers(p); err != nil {
		return nil, err
	}
	if err := b.buildFold(p); err != nil {
		return nil, err
	}
	if err := b.buildPostgres(p); err != nil {
		return nil, err
	}
	if err := b.buildMetrics(p); err != nil {
		return nil, err
	}
	if err := b.buildIntake(p); err != nil {
		return nil, err
	}
	return p, b.buildServers(p)
}

// buildState makes the state, and the wheel that it arms.
func (b *Backend) buildState(p *parts) (err error) {
	p.calendars = calendar.New(b.log)
	p.onCall = oncall.New(p.config.Snapshot, p.calendars)
	p.links = oncall.NewLinks(b.opts.PublicURL, func(ctx context.Context) ([]byte, error) {
		return p.config.Secret(ctx, "acknowledge", 32)
	})
	p.matcher = silence.NewMatcher(p.calendars, b.log)
	if p.deadlines, err = newDeadlines(b.log, b.opts.Registry); err != nil {
		return err
	}
	o := b.opts.State
	o.Log, o.DB, o.Late, o.Arm = p.log, p.db, p.members.Late, p.deadlines.wheel.Arm
	o.Trim, o.Kept = p.members.Trim, p.journal.Kept
	o.Entity, o.EntityChanges, o.Silences = p.entity, p.entityChanges, p.matcher.Present(p.config)
	o.Logger, o.Registerer = b.log, b.opts.Registry
	if p.state, err = state.New(o); err != nil {
		return err
	}
	p.loaded = &loadedState{p.state, p.state.Live()}
	return nil
}

func (p *parts) entity(namespace, name string) (*resource.EntityConfig, bool) {
	return config.Get(p.config.Snapshot(), config.Entities, namespace, name)
}

func (p *parts) entityChanges(changed func(namespace, name string)) (stop func()) {
	return p.config.OnChange(func(c config.Change) {
		if c.Kind == config.Entities.String() {
			changed(c.Namespace, c.Name)
		}
	})
}

// buildHandlers makes what decides what goes out, and sends it.
func (b *Backend) buildHandlers(p *parts) (err error) {
	poolOpts := b.opts.Expressions
	poolOpts.Logger, poolOpts.Registerer = b.log, b.opts.Registry
	if p.expressions, err = filter.NewPool(poolOpts); err != nil {
		return err
	}
	b.opts.Registry.MustRegister(setAsideMetric{p.expressions.SetAside})
	if p.assets, err = b.newAssets(p.dir.path, p.config, p.expressions); err != nil {
		return err
	}
	sendOpts := b.opts.Send
	sendOpts.Assets, sendOpts.MayRun = p.assets.env, p.members.MayAct
	sendOpts.Logger, sendOpts.Registerer = b.log, b.opts.Registry
	if p.sender, err = send.New(sendOpts); err != nil {
		return err
	}
	traceOpts := b.opts.Trace
	traceOpts.DB, traceOpts.Logger, traceOpts.Registerer = p.db, b.log, b.opts.Registry
	if p.traces, err = trace.New(traceOpts); err != nil {
		return err
	}
	notificationOpts := b.opts.Notification
	notificationOpts.DB, notificationOpts.Logger, notificationOpts.Registerer = p.db, b.log, b.opts.Registry
	if p.sent, err = notification.New(notificationOpts); err != nil {
		return err
	}
	p.inhibitor, err = inhibit.New(inhibit.Options{
		Config: p.config.Snapshot, State: p.loaded, Logger: b.log, Registerer: b.opts.Registry,
	})
	if err != nil {
		return err
	}
	p.workflows, err = workflow.New(workflow.Options{
		Config: p.config.Snapshot, Assets: p.assets.set, PassEnv: b.opts.Send.PassEnv,
		NoCommands: p.sender.TypeAllowed("pipe"), Inhibited: p.inhibitor.Inhibited, Present: p.loaded, Events: p.loaded,
		OnCall: p.onCall,
		InCalendar: func(namespace, name string, at time.Time) (bool, string) {
			return p.calendars.Active(p.config.Snapshot(), namespace, name, at)
		},
		Permit: permitLookups(p.auth, b.opts.API.AgentAccess), Expressions: p.expressions,
		Logger: b.log, Registerer: b.opts.Registry,
	})
	if err != nil {
		return err
	}
	o := b.opts.Handler
	o.DB, o.Log, o.Origin, o.MayRun = p.db, p.log, p.id.Cluster, p.members.MayAct
	o.Config, o.Workflows, o.Sender, o.Trace = p.config.Snapshot, p.workflows, p.sender, p.traces.Record
	o.Present = func(namespace, entity, check string) (*resource.Event, error) {
		ev, err := p.state.Event(namespace, entity, check)
		if errors.Is(err, state.ErrNotFound) {
			return nil, nil
		}
		return ev, err
	}
	o.OnCall, o.AcknowledgeURL = p.onCall, p.acknowledgeURL
	o.Notify, o.Logger, o.Registerer = p.sent.Record, b.log, b.opts.Registry
	if p.handlers, err = handler.New(o); err != nil {
		return err
	}
	p.config.OnChange(func(c config.Change) {
		if c.Deleted && c.Kind == config.Handlers.String() {
			p.handlers.HandlerDeleted(c.Namespace, c.Name)
		}
	})
	return nil
}

// acknowledgeURL returns the link that a contact gets with an incident.
func (p *parts) acknowledgeURL(dl *delivery.Delivery, ev *resource.Event) (string, error) {
	return p.links.URL(oncall.Link{
		Namespace: dl.Namespace, Entity: dl.Entity, Check: dl.Check, Contact: dl.Contact, LastOK: ev.Check.LastOK,
	}, time.Now())
}

// buildFold makes the loop over the log, and what it hands events in their new state to.
func (b *Backend) buildFold(p *parts) (err error) {
	p.silences, err = silence.New(silence.Options{
		Config: p.config, Matcher: p.matcher, Logger: b.log, Registerer: b.opts.Registry,
	})
	if err != nil {
		return err
	}
	p.router, err = pipeline.New(pipeline.Options{
		Config: p.config.Snapshot, Workflows: p.workflows, Handlers: p.handlers, Trace: p.traces.Record,
		Registerer: b.opts.Registry,
	})
	if err != nil {
		return err
	}
	if p.queue, err = b.newQueue(p); err != nil {
		return err
	}
	p.runs = lateness.NewRuns(p.log.Partitions())
	followers := []fold.Follower{p.queue, p.runs, p.journal}
	if b.opts.EventFile.Path != "" {
		o := b.opts.EventFile
		o.Origin, o.Logger, o.Registerer = p.id.Cluster, b.log, b.opts.Registry
		if p.eventFile, err = eventfile.New(o); err != nil {
			return err
		}
		followers = append(followers, p.eventFile)
	}
	if o := b.opts.Platform; o.Path != "" && !b.opts.NoPlatform {
		o.Logger, o.Registerer, o.Gatherer = b.log, b.opts.Registry, b.opts.Registry
		if p.platform, err = eventfile.NewPlatform(o); err != nil {
			return err
		}
	}
	p.fold, err = fold.New(fold.Options{
		Log: p.log, State: p.state, Cluster: p.members.Cluster, Router: p.router, Handlers: p.handlers,
		Silences: p.silences, Quiet: p.id.Quiet, Followers: followers,
		Logger: b.log, Failed: func(err error) { b.fail("fold", err) }, Registerer: b.opts.Registry,
	})
	if err != nil {
		return err
	}
	if p.lists, err = view.New(view.Options{State: p.state, Logger: b.log, Registerer: b.opts.Registry}); err != nil {
		return err
	}
	p.fleet, err = fleet.New(fleet.Options{
		Config: p.config, State: p.state, Backend: p.backendOf(), Logger: b.log, Registerer: b.opts.Registry,
	})
	return err
}

// backendOf returns the function that names the member that an agent is connected to; nil for a backend that is alone.
func (p *parts) backendOf() func(resource.Name) string {
	if p.members.Alone() {
		return nil
	}
	return func(agent resource.Name) string {
		if id := p.queue.Presence().MemberOf(agent); id != "" {
			return p.members.NameOf(id)
		}
		return ""
	}
}

// buildIntake makes the way into the log, and the parts that make events of their own.
func (b *Backend) buildIntake(p *parts) (err error) {
	o := b.opts.Intake
	o.Config, o.Log, o.State, o.Silences, o.Watches = p.config, p.log, p.state, p.matcher, p.members.Watches
	o.Calendars, o.TurnAt = p.calendars, p.queue.Received
	if b.opts.EventMetrics {
		o.Metrics = p.metrics.Events()
	}
	o.Logger, o.Registerer = b.log, b.opts.Registry
	if p.intake, err = intake.New(o); err != nil {
		return err
	}
	p.deadlines.connect(p.state, p.intake)
	watcherOpts := watcherOptions(p.config, p.matcher, p.state, p.intake, b.log, b.opts.Registry)
	watcherOpts.Acts = p.members.acts(cluster.RemindersLane)
	if p.watcher, err = silence.NewWatcher(watcherOpts); err != nil {
		return err
	}
	housekeeperOpts := b.opts.Housekeeper
	housekeeperOpts.Intake, housekeeperOpts.Acts = p.intake, p.members.acts(cluster.HousekeepingLane)
	housekeeperOpts.Logger, housekeeperOpts.Registerer = b.log, b.opts.Registry
	if p.housekeeper, err = intake.NewHousekeeper(housekeeperOpts); err != nil {
		return err
	}
	p.aggregates, err = aggregate.New(aggregate.Options{
		Config: p.config, State: p.state, Intake: p.intake.Internal(), Limit: memberLimit(p.auth, b.opts.API.AgentAccess),
		Acts:   func(namespace, name string) bool { return p.members.Acts(cluster.AggregateLane(namespace, name)) },
		Logger: b.log, Registerer: b.opts.Registry,
	})
	if err != nil {
		return err
	}
	if err := b.buildMetricChecks(p); err != nil {
		return err
	}
	if err := b.buildRules(p); err != nil {
		return err
	}
	p.reports = newExpressionReports(p.expressions, p.config, p.loaded, p.intake, b.log)
	return nil
}

// buildServers makes what agents and people connect to, and the scheduler, which asks agents.
func (b *Backend) buildServers(p *parts) (err error) {
	if p.mirror, err = b.newMirror(p.dir.path, p.config); err != nil {
		return err
	}
	health := new(healthOnly)
	if p.sessions, err = session.New(b.sessionOptions(p, health)); err != nil {
		return err
	}
	p.scheduler, err = schedule.New(schedule.Options{
		Config: p.config, Calendars: p.calendars, Publish: p.publish, Assign: p.sessions.Assign, Compile: compileFor(p.expressions),
		Recall: queue.Deadline, Spread: b.opts.Session.Spread, PhaseHash: b.phases, Logger: b.log, Registerer: b.opts.Registry,
	})
	if err != nil {
		return err
	}
	if p.lateness, err = b.newLateness(p); err != nil {
		return err
	}
	p.view = b.newClusterView(p)
	p.postgresReports = newPostgresReports(p, b.log)
	p.handlerReports = newHandlerReports(p, b.opts.HandlerFailingAfter, b.log)
	if p.api, err = api.New(b.apiOptions(p)); err != nil {
		return err
	}
	health.api = p.api
	p.members.parts.Store(p)
	return nil
}

func (b *Backend) sessionOptions(p *parts, health *healthOnly) session.Options {
	o := b.opts.Session
	o.Listener, o.Proxies, o.TLS = b.ports.agents, b.proxies, b.tls.agents
	o.CertRequired, o.CertNames = b.opts.TLS.AgentCertAuth, b.opts.TLS.AgentNameAuth
	o.Failed = func(err error) { b.fail("agents listener", err) }
	o.BackendID, o.Other = hostname(p.id.Cluster), health
	o.Agents, o.Receipt = p.queue.Presence(), p.receipt
	o.Config, o.Auth, o.Intake, o.Log, o.State = p.config, p.auth, p.intake, p.log, p.state
	if !p.members.Alone() {
		o.Members = p.members.sessionMembers
	}
	if p.mirror != nil {
		o.Archives, o.ForLapwing = p.mirror.Serve, asset.WithoutHeaders
	}
	o.Logger, o.Registerer = b.log, b.opts.Registry
	return o
}

func (b *Backend) apiOptions(p *parts) api.Options {
	o := b.opts.API
	o.Config, o.State, o.Intake, o.Auth, o.Audit, o.Trace = p.config, p.state, p.intake, p.auth, p.audit, p.view
	o.Notifications, o.Views, o.EntityViews = p.view, p.lists, p.fleet
	o.DeadLetters, o.Simulate, o.Evaluate = p.handlers, simulator(p.workflows), p.aggregates.Evaluate
	o.Dependencies, o.HandlerAllowed, o.MutatorAllowed = p.inhibitor.Explain, p.sender.Allowed, p.sender.MutatorAllowed
	o.Replay = (&replayer{p.postgres, p.state, p.workflows, p.sender, p.sent.Record}).run
	o.Waiting, o.RetryWaiting = p.view.Waiting, p.view.RetryWaiting
	o.Queue, o.Reports, o.Postgres = p.view, p.state.Histories(), p.view.Postgres
	o.LongHistory = p.postgresReader
	o.Execute, o.Drain, o.Cluster, o.Health = p.view.Execute, p.sessions, p.view, p.view.health
	o.Ready, o.Serves = func() error { return b.ready(p) }, func() error { return b.serves(p) }
	o.Schedule, o.Agents, o.OwnSchedule = p.scheduler, p.queue.Presence(), p.ownSchedule
	o.LogLevel = p.view.LogLevel
	o.OnCall, o.Links, o.Escalations = p.onCall, p.links, p.handlers.Escalations
	o.Calendars, o.Lateness, o.Backup = p.calendars, p.lateness, newBackups(b, p).Write
	o.Metrics, o.ParseMetricCheck, o.PreviewMetricCheck = storedMetrics{p.metrics.Server}, parseMetricCheck, p.metricChecks.Preview
	o.Impaired, o.Web, o.Version = p.expressions.Err, web.Handler(b.url("ws", "", b.ports.agents)), b.opts.Version
	o.Logger, o.Gatherer, o.Registerer = b.log, b.opts.Registry, b.opts.Registry
	return o
}

// serves returns why the backend cannot serve, or nil.
func (b *Backend) serves(p *parts) error {
	return errors.Join(p.broker.Err(), p.log.Err(), b.damage())
}

// ready returns why the backend cannot serve agents and people, or nil.
func (b *Backend) ready(p *parts) error {
	err := b.serves(p)
	if reason, suspended := p.sessions.Suspended(); suspended {
		err = errors.Join(err, errors.New(reason)) // load balancers send agents to other members
	}
	return err
}

// startHandlers starts what deliveries need, and then the handlers, which go on with what an earlier process left.
func (b *Backend) startHandlers(ctx context.Context, p *parts) error {
	err := b.startAll(ctx,
		named{"workers for expressions", p.expressions},
		named{"senders", p.sender},
		named{"traces", p.traces},
		named{"notifications", p.sent},
		named{"silences", p.silences},
	)
	if err != nil {
		return err
	}
	// The handlers get what was left unfinished before the replay of the log adds to it. startEvents has them stop.
	if err := p.handlers.Start(ctx); err != nil {
		return fmt.Errorf("start handlers: %w", err)
	}
	return nil
}

// startEvents starts the fold, and then what puts events into the log.
func (b *Backend) startEvents(ctx context.Context, p *parts) error {
	b.push("state", p.state.Stop) // the fold starts it
	if err := b.start(ctx, "journal for PostgreSQL", p.journal); err != nil {
		return err
	}
	if p.eventFile != nil {
		if err := b.start(ctx, "event log file", p.eventFile); err != nil {
			return err
		}
	}
	if p.platform != nil {
		if err := b.start(ctx, "platform metrics", p.platform); err != nil {
			return err
		}
	}
	progress := func() uint64 { return p.state.Loaded() + p.log.ReadSum() }
	err := b.patiently(ctx, "reading the state and the event log behind it", progress, func(ctx context.Context) error {
		return b.startQuietly(ctx, "fold", p.fold)
	})
	// The handlers stop first: the fold passes on their last reports. Then the other members act, and the fold may stop.
	b.push("place in the cluster", func() error { return b.leave(p.members) })
	b.push("handlers", p.handlers.Stop)
	if err != nil {
		return err
	}
	p.intake.LookAtClock(time.Now()) // deadlines count from now on, by this clock
	p.members.Ready()
	b.say("metrics")
	if err := p.metrics.Start(ctx); err != nil { // buildMetrics has it stopped
		return err
	}
	if err := b.start(ctx, "silence watcher", p.watcher); err != nil {
		return err
	}
	b.push("intake", p.intake.Stop)
	if p.rules != nil {
		if err := b.start(ctx, "Prometheus rules", p.rules); err != nil {
			return err
		}
	}
	return b.startAll(ctx,
		named{"deadlines", p.deadlines.wheel},
		named{"housekeeper", p.housekeeper},
		named{"aggregates", p.aggregates},
		named{"metric checks", p.metricChecks},
		named{"PostgreSQL", p.postgres},
		named{"reports on expressions", p.reports},
		named{"live lists", p.lists},
		named{"live lists of entities", p.fleet},
	)
}

// startAgents lets agents in, and has them run checks.
func (b *Backend) startAgents(ctx context.Context, p *parts) error {
	if p.mirror != nil {
		if err := b.start(ctx, "asset mirror", p.mirror); err != nil {
			return err
		}
	}
	p.recall()
	err := b.startAll(ctx,
		named{"queue", p.queue},
		named{"sessions", p.sessions},
		named{"watch of the lease", b.newLeaseWatch(p)},
		named{"scheduler", p.scheduler},
		named{"watch of late checks", p.lateness},
		named{"reports on PostgreSQL", p.postgresReports},
		named{"reports on failing handlers", p.handlerReports},
	)
	if err != nil || !b.opts.Cluster.on() {
		return err
	}
	if err := p.view.answer(); err != nil {
		return err
	}
	return b.start(ctx, "watch of the cluster", newClusterWatch(p.view, b.opts.Registry))
}
