package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lapwing-monitoring/lapwing/agent"
	"github.com/lapwing-monitoring/lapwing/internal/duration"
	"github.com/lapwing-monitoring/lapwing/internal/flaggroup"
	"github.com/lapwing-monitoring/lapwing/internal/tlsfiles"
	"github.com/lapwing-monitoring/lapwing/telemetry"
)

// agentProgram says where the agent's settings are. Sensu's variables work too; sensuctl and plugins have others of
// SENSU_.
func agentProgram() program {
	return program{
		prefixes: []string{"LAPWING_AGENT_", "SENSU_AGENT_", "SENSU_"}, shared: "SENSU_", file: agentFile(),
		sensu: sensuAgentKeys,
	}
}

// agentFlags are the agent's options as flags, with Sensu's names, and what has to be made of them.
type agentFlags struct {
	opts                                   agent.Options
	interval                               int
	warning, critical                      uint32
	handshake, heartbeat, heartbeatTimeout int
	cert, key, ca, logLevel, logFormat     string
	insecure                               bool
	apiHost, socketHost, statsdHost        string
	apiPort, socketPort, statsdPort        int
	noAPI, noSockets, noStatsD, noSpool    bool
	statsdFlush                            int
	id                                     string
	oldTimeout                             uint32
	limits                                 string
	logTo                                  io.Writer // default stderr
	level                                  slog.LevelVar
	flags                                  *pflag.FlagSet
	told                                   map[string]bool // what logNotices has said
}

func agentCommand() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent",
		Long: `Run the agent: it connects to a backend, runs the checks that it is given and reports their results. Of a
lapwing backend it gets its schedule, which it goes on running while no backend can be reached; the results wait for
one, up to the limits of --buffer-events and --buffer-bytes.

Every flag is also a key of the YAML file, and an environment variable such as LAPWING_AGENT_BACKEND_URL. The
command line wins over the environment, and that over the file. An empty variable counts as not set.`,
		Example: `  lapwing agent --backend-url ws://backend:8081 --subscriptions linux,web
  LAPWING_AGENT_PASSWORD=secret lapwing agent --config-file /etc/lapwing/agent.yml`,
		Args: cobra.NoArgs,
	}
	f.register(cmd.PersistentFlags())
	cmd.SetFlagErrorFunc(explainFlags(func() options { return &agentFlags{} }, agentProgram))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		hangup := make(chan os.Signal, 1)
		signal.Notify(hangup, syscall.SIGHUP)
		defer signal.Stop(hangup)
		return runAgent(cmd.Context(), cmd, &f, hangup)
	}
	cmd.AddCommand(flaggroup.Only(collectCommand()), &cobra.Command{Use: "start", Short: "Run the agent (the same as lapwing agent)",
		Example: "  lapwing agent start --config-file /etc/lapwing/agent.yml",
		Args:    cobra.NoArgs, RunE: cmd.RunE})
	addServiceCommand(cmd, &f)
	return cmd
}

// runAgent runs the agent until ctx ends. It reads its options again when it is told to.
func runAgent(ctx context.Context, cmd *cobra.Command, f *agentFlags, reload <-chan os.Signal) error {
	notices, err := settings(cmd.Flags(), agentProgram())
	if err = withSources(errors.Join(err, f.check()), cmd.Flags()); err != nil {
		return err
	}
	opts, err := f.options()
	if err != nil {
		return err
	}
	f.told = logNotices(opts.Logger, notices, nil)
	a, err := agent.New(opts)
	if err != nil {
		return err
	}
	if err := a.Start(ctx); err != nil {
		return err
	}
	keepSmall(ctx)
	for {
		select {
		case <-reload:
			reloadAgent(a, f, opts.Logger)
		case <-ctx.Done():
			return a.Stop()
		}
	}
}

// agentFile is the file with the agent's options: lapwing's, or that of a Sensu agent which was here before.
func agentFile() string {
	if _, err := os.Stat(defaultAgentFile); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(sensuAgentFile); err == nil {
			return sensuAgentFile
		}
	}
	return defaultAgentFile
}

// reloadAgent reads the options again, from the same command line, and has the agent take over those that can change.
// It checks all of them as a start does. On an error the old ones stay in use, all of them.
func reloadAgent(a *agent.Agent, was *agentFlags, log *slog.Logger) {
	var f agentFlags
	_, notices, err := readArgs(os.Args[1:], &f, agentProgram())
	var opts agent.Options
	if err == nil {
		opts, err = f.options()
	}
	var needStart []string
	if err == nil {
		needStart, err = a.Reload(opts)
	}
	if err != nil {
		logRefused(log, err)
		return
	}
	was.level.Set(f.level.Level())
	was.told = logNotices(log, notices, was.told)
	if f.cert != was.cert || f.key != was.key || f.ca != was.ca || f.insecure != was.insecure {
		needStart = append(needStart, "TLS files")
	}
	log.Info("options reloaded", "need_a_new_start", needStart)
}

func (f *agentFlags) register(p *pflag.FlagSet) {
	f.opts = agent.DefaultOptions()
	o := &f.opts
	seconds := func(d time.Duration) int { return int(d / time.Second) }
	f.flags = p
	p.StringP("config-file", "c", defaultAgentFile, "YAML file with these flags' names as keys")
	p.StringVar(&o.Name, "name", "", "name of the entity (default the host's name)")
	p.StringVar(&o.Namespace, "namespace", o.Namespace, "namespace of the entity")
	p.StringSliceVar(&o.Subscriptions, "subscriptions", nil, "subscriptions, separated by commas")
	p.StringSliceVar(&o.BackendURLs, "backend-url", o.BackendURLs, "backends to connect to; may be repeated")
	p.StringVar(&o.User, "user", o.User, "user name for signing in to the backend")
	p.StringVar(&o.Password, "password", o.Password, "password of --user")
	p.StringToStringVar(&o.Labels, "labels", nil, "labels of the entity")
	p.StringToStringVar(&o.Annotations, "annotations", nil, "annotations of the entity")
	p.StringSliceVar(&o.Redact, "redact", nil, "labels and annotations whose values are not shown")
	p.BoolVar(&o.Deregister, "deregister", false, "remove the entity when its agent is gone")
	p.StringVar(&o.DeregistrationHandler, "deregistration-handler", "",
		"handler of the event that says that the entity was removed")
	p.StringSliceVar(&o.KeepaliveHandlers, "keepalive-handlers", nil, "handlers of keepalive events")
	p.StringSliceVar(&o.KeepalivePipelines, "keepalive-pipelines", nil,
		"pipelines of keepalive events, such as core/v2.Pipeline.name")
	p.IntVar(&f.interval, "keepalive-interval", seconds(o.KeepaliveInterval),
		"seconds between keepalives; 0 for the default")
	p.Uint32Var(&f.warning, "keepalive-warning-timeout", uint32(seconds(o.KeepaliveWarningTimeout)),
		"seconds without a keepalive until the backend warns, 5 or more and longer than --keepalive-interval; 0 for the default")
	p.Uint32Var(&f.critical, "keepalive-critical-timeout", 0,
		"seconds without a keepalive until it is critical; 0 for never")
	p.IntVar(&f.handshake, "backend-handshake-timeout", seconds(o.HandshakeTimeout),
		"seconds a handshake may take; 0 for the default")
	p.IntVar(&f.heartbeat, "backend-heartbeat-interval", seconds(o.HeartbeatInterval),
		"seconds between pings of the backend; 0 for the default")
	p.IntVar(&f.heartbeatTimeout, "backend-heartbeat-timeout", seconds(o.HeartbeatTimeout),
		"seconds without an answer until the connection is given up; 0 for the default")
	p.Var(duration.New(o.RetryMin, &o.RetryMin), "retry-min", "first pause before connecting again; 0 for the default")
	p.Var(duration.New(o.RetryMax, &o.RetryMax), "retry-max", "longest pause before connecting again; 0 for the default")
	p.Float64Var(&o.RetryMultiplier, "retry-multiplier", o.RetryMultiplier,
		"factor by which the pause before connecting again grows, 1 or more; 0 for the default")
	p.IntVar(&o.MaxConcurrency, "max-concurrent-checks", o.MaxConcurrency, "checks running at the same time; more wait")
	p.IntVar(&o.BufferEvents, "buffer-events", 100_000,
		"events kept while no backend acknowledges them; then the oldest of the same check go first")
	p.IntVar(&o.BufferBytes, "buffer-bytes", 256<<20,
		"bytes of events kept while no backend acknowledges them; in memory alone 64 MiB at most")
	p.Var(duration.New(24*time.Hour, &o.BufferAge), "buffer-age",
		"how old events may become that no backend acknowledges; 0 for no bound")
	p.BoolVar(&f.noSpool, "disable-spool", false,
		"keep events that wait for a backend, and the schedule, in memory only instead of --cache-dir")
	p.Var(duration.New(o.BatchDelay, &o.BatchDelay), "batch-delay", "how long the result of a check that stays OK may wait "+
		"for others to travel with; 0 for not at all")
	p.StringVar(&o.CacheDir, "cache-dir", defaultAgentCache, "directory for assets and what built-in collectors remember")
	p.BoolVar(&o.DisableAssets, "disable-assets", false, "refuse checks that need runtime assets")
	p.Float64Var(&o.AssetsRateLimit, "assets-rate-limit", o.AssetsRateLimit,
		"assets fetched in a second in the long run; more wait; 0 for the default")
	p.IntVar(&o.AssetsBurstLimit, "assets-burst-limit", o.AssetsBurstLimit,
		"assets fetched at once before --assets-rate-limit counts; 0 for the default")
	p.StringVar(&f.apiHost, "api-host", "127.0.0.1", "where the API for programs of this host listens")
	p.IntVar(&f.apiPort, "api-port", 3031, "port of the API for programs of this host; 0 for any free port")
	p.StringSliceVar(&o.Local.APIHosts, "api-allowed-hosts", nil,
		"names under which programs may call the API for programs of this host, beside addresses, localhost, --api-host, and "+
			"the names of the agent and its host")
	p.BoolVar(&f.noAPI, "disable-api", false, "do not serve the API for programs of this host")
	p.Float64Var(&o.Local.Rate, "events-rate-limit", 0,
		"events a second that the API for programs of this host takes on average; 0 for no limit")
	p.IntVar(&o.Local.Burst, "events-burst-limit", 10,
		"events that the API for programs of this host takes at once before --events-rate-limit counts; 0 for as many as that takes in a second")
	p.StringVar(&f.socketHost, "socket-host", "127.0.0.1", "where the TCP and UDP sockets for results listen")
	p.IntVar(&f.socketPort, "socket-port", 3030, "port of the TCP and UDP sockets for results; 0 for any free port")
	p.BoolVar(&f.noSockets, "disable-sockets", false, "do not open the TCP and UDP sockets for results")
	p.StringVar(&f.statsdHost, "statsd-metrics-host", "127.0.0.1", "where StatsD listens")
	p.IntVar(&f.statsdPort, "statsd-metrics-port", 8125, "UDP port of StatsD; 0 for any free port")
	p.BoolVar(&f.noStatsD, "statsd-disable", false, "do not listen for StatsD")
	p.IntVar(&f.statsdFlush, "statsd-flush-interval", 10,
		"seconds between events with StatsD's metrics; 0 for the default")
	p.StringSliceVar(&o.Local.StatsDHandlers, "statsd-event-handlers", nil,
		"handlers of the events with metrics of StatsD")
	p.StringVar(&o.AllowList, "allow-list", "", "file with the commands that may be run (YAML or JSON); default all")
	p.BoolVar(&o.Managed, "agent-managed-entity", false,
		"these options define the entity, and the backend refuses changes of it")
	p.StringToStringVar(&o.KeepaliveLabels, "keepalive-check-labels", nil, "labels of keepalive events")
	p.StringToStringVar(&o.KeepaliveAnnotations, "keepalive-check-annotations", nil, "annotations of keepalive events")
	p.BoolVar(&o.DetectCloud, "detect-cloud-provider", false,
		"report the cloud provider this host is in (EC2, GCP or Azure)")
	p.BoolVar(&o.DiscoverProcesses, "discover-processes", false, "report the processes of this host with keepalives (Linux)")
	p.Var(duration.New(0, &o.MaxSession), "max-session-length", "connect anew after half to the whole of this time; 0 for never")
	p.BoolVar(&o.InOrder, "backend-in-order", false, "prefer the backends named first, instead of spreading over all")
	p.StringVar(&f.id, "id", "", "old name of --name")
	p.Uint32Var(&f.oldTimeout, "keepalive-timeout", 0, "old name of --keepalive-warning-timeout; 0 for that")
	for _, old := range []string{"id", "keepalive-timeout"} {
		_ = p.MarkHidden(old) // it is there
	}
	p.BoolVar(&o.Cgroups, "check-cgroups", false,
		"run each check in a control group of its own (Linux, as root or with systemd's Delegate=yes)")
	p.StringVar(&f.limits, "check-limits", "",
		"what a check's commands may use with --check-cgroups, such as cpu=0.5 memory=256M processes=50")
	p.BoolVar(&o.RecordUsage, "record-usage", false, "tell on events what CPU time and memory their commands used")
	p.BoolVar(&o.StripNetworks, "strip-networks", false, "do not report network interfaces")
	p.StringVar(&f.cert, "cert-file", "", "TLS client certificate (PEM); no password is sent then")
	p.StringVar(&f.key, "key-file", "", "private key for --cert-file (PEM)")
	p.StringVar(&f.ca, "trusted-ca-file", "", "certificate authorities to trust instead of the system's (PEM)")
	p.BoolVar(&f.insecure, "insecure-skip-tls-verify", false, "do not verify the backend's certificate (dangerous)")
	p.StringVar(&f.logLevel, "log-level", "info", "trace, debug, info, warn, error or fatal")
	p.StringVar(&f.logFormat, "log-format", "text", "text or json")
	groupAgentFlags(p)
}

// groupAgentFlags puts each flag of the agent under a heading of its help.
func groupAgentFlags(p *pflag.FlagSet) {
	for _, g := range []struct{ heading, begins string }{
		{"Entity", "name namespace subscriptions labels annotations redact deregister deregistration-handler agent-managed-entity " +
			"detect-cloud-provider discover-processes strip-networks id"},
		{"Connection to the backend", "backend- user password retry- max-session-length batch-delay"},
		{"TLS", "cert-file key-file trusted-ca-file insecure-"},
		{"Keepalives", "keepalive-"},
		{"Checks and assets", "max-concurrent-checks allow-list check- record-usage disable-assets assets-"},
		{"Events that wait for a backend", "buffer- disable-spool"},
		{"Programs of this host", "api- disable-api events- socket- disable-sockets statsd-"},
		{"General", "config-file cache-dir log-"},
	} {
		var names []string
		p.VisitAll(func(f *pflag.Flag) {
			for begin := range strings.FieldsSeq(g.begins) {
				if f.Name == begin || strings.HasSuffix(begin, "-") && strings.HasPrefix(f.Name, begin) {
					names = append(names, f.Name)
				}
			}
		})
		flaggroup.Set(p, g.heading, names...)
	}
}

// options makes of the flags what the agent takes.
func (f *agentFlags) options() (agent.Options, error) {
	o := f.opts
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	o.Name = cmp.Or(o.Name, f.id)
	if err := f.check(); err != nil {
		return o, err
	}
	warning := cmp.Or(f.oldTimeout, f.warning)
	o.KeepaliveInterval = seconds(f.interval)
	o.KeepaliveWarningTimeout, o.KeepaliveCriticalTimeout = seconds(int(warning)), seconds(int(f.critical))
	o.HandshakeTimeout, o.HeartbeatInterval, o.HeartbeatTimeout = seconds(f.handshake), seconds(f.heartbeat),
		seconds(f.heartbeatTimeout)
	address := func(host string, port int, off bool) string {
		if off {
			return ""
		}
		return net.JoinHostPort(host, strconv.Itoa(port))
	}
	if !f.noSpool {
		o.SpoolDir = filepath.Join(o.CacheDir, "spool")
	}
	o.Local.APIAddress = address(f.apiHost, f.apiPort, f.noAPI)
	o.Local.SocketAddress = address(f.socketHost, f.socketPort, f.noSockets)
	o.Local.StatsDAddress = address(f.statsdHost, f.statsdPort, f.noStatsD)
	o.Local.StatsDFlush = seconds(f.statsdFlush)
	o.Version = version
	var err error
	if o.CheckLimits, err = agent.ParseLimits(f.limits); err != nil {
		return o, err
	}
	if f.logTo == nil {
		f.logTo = os.Stderr
	}
	level, err := telemetry.ParseLevel(f.logLevel)
	if err != nil {
		return o, err
	}
	f.level.Set(level)
	if o.Logger, err = telemetry.LoggerAt(f.logTo, &f.level, f.logFormat); err != nil {
		return o, err
	}
	registry := telemetry.RegistryFor(version)
	o.Registerer, o.Local.Gatherer = registry, registry
	files, err := tlsfiles.New(tlsfiles.Options{
		Cert: f.cert, Key: f.key, CA: f.ca, Insecure: f.insecure, Name: "agent", Logger: o.Logger, Registerer: o.Registerer,
	})
	if err != nil {
		return o, err
	}
	o.TLS = files.Client
	return o, nil
}
