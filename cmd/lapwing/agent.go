package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/agent"
	"github.com/lapwing-monitoring/lapwing/internal/tlsfiles"
	"github.com/lapwing-monitoring/lapwing/telemetry"
)

const defaultAgentFile = "/etc/lapwing/agent.yml"

// agentPrefixes are those of the environment variables; Sensu's work too.
var agentPrefixes = []string{"LAPWING_AGENT_", "SENSU_AGENT_", "SENSU_"}

// agentFlags are the agent's options as flags, with Sensu's names, and what has to be made of them.
type agentFlags struct {
	opts                                   agent.Options
	interval                               int
	warning, critical                      uint32
	handshake, heartbeat, heartbeatTimeout int
	batchDelay                             time.Duration
	cert, key, ca, logLevel, logFormat     string
	insecure                               bool
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
command line wins over the environment, and that over the file.`,
		Example: `  lapwing agent --backend-url ws://backend:8081 --subscriptions linux,web
  LAPWING_AGENT_PASSWORD=secret lapwing agent --config-file /etc/lapwing/agent.yml`,
		Args: cobra.NoArgs,
	}
	f.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := settings(cmd.Flags(), agentPrefixes, defaultAgentFile); err != nil {
			return err
		}
		opts, err := f.options()
		if err != nil {
			return err
		}
		a, err := agent.New(opts)
		if err != nil {
			return err
		}
		if err := a.Start(cmd.Context()); err != nil {
			return err
		}
		<-cmd.Context().Done()
		return a.Stop()
	}
	cmd.AddCommand(&cobra.Command{Use: "start", Short: "Run the agent (the same as lapwing agent)", Args: cobra.NoArgs, RunE: cmd.RunE})
	return cmd
}

func (f *agentFlags) register(cmd *cobra.Command) {
	p, o := cmd.PersistentFlags(), &f.opts
	p.StringP("config-file", "c", defaultAgentFile, "YAML file with these flags' names as keys")
	p.StringVar(&o.Name, "name", "", "name of the entity (default the host's name)")
	p.StringVar(&o.Namespace, "namespace", "default", "namespace of the entity")
	p.StringSliceVar(&o.Subscriptions, "subscriptions", nil, "subscriptions, separated by commas")
	p.StringSliceVar(&o.BackendURLs, "backend-url", []string{"ws://127.0.0.1:8081"}, "backends to connect to; may be repeated")
	p.StringVar(&o.User, "user", "agent", "user name")
	p.StringVar(&o.Password, "password", "P@ssw0rd!", "password")
	p.StringToStringVar(&o.Labels, "labels", nil, "labels of the entity")
	p.StringToStringVar(&o.Annotations, "annotations", nil, "annotations of the entity")
	p.StringSliceVar(&o.Redact, "redact", nil, "labels and annotations whose values are not shown")
	p.BoolVar(&o.Deregister, "deregister", false, "remove the entity when its agent is gone")
	p.StringVar(&o.DeregistrationHandler, "deregistration-handler", "", "handler to tell when it is removed")
	p.StringSliceVar(&o.KeepaliveHandlers, "keepalive-handlers", nil, "handlers of keepalive events")
	p.StringSliceVar(&o.KeepalivePipelines, "keepalive-pipelines", nil, "pipelines of keepalive events, such as core/v2.Pipeline.name")
	p.IntVar(&f.interval, "keepalive-interval", 20, "seconds between keepalives")
	p.Uint32Var(&f.warning, "keepalive-warning-timeout", 120, "seconds without one until the backend warns")
	p.Uint32Var(&f.critical, "keepalive-critical-timeout", 0, "seconds without one until that is critical; 0 for never")
	p.IntVar(&f.handshake, "backend-handshake-timeout", 15, "seconds a handshake may take")
	p.IntVar(&f.heartbeat, "backend-heartbeat-interval", 30, "seconds between pings")
	p.IntVar(&f.heartbeatTimeout, "backend-heartbeat-timeout", 45, "seconds without an answer until the connection is given up")
	p.DurationVar(&o.RetryMin, "retry-min", time.Second, "first pause before connecting again")
	p.DurationVar(&o.RetryMax, "retry-max", 120*time.Second, "longest pause before connecting again")
	p.Float64Var(&o.RetryMultiplier, "retry-multiplier", 2, "growth of that pause")
	p.IntVar(&o.MaxConcurrency, "max-concurrent-checks", 50, "checks running at the same time; more wait")
	p.IntVar(&o.BufferEvents, "buffer-events", 10000, "events kept while no backend acknowledges them; then the oldest of the same check go first")
	p.IntVar(&o.BufferBytes, "buffer-bytes", 64<<20, "bytes of such events")
	p.DurationVar(&f.batchDelay, "batch-delay", time.Second, "how long the result of a check that stays OK may wait for others to travel with; 0 for not at all")
	p.BoolVar(&o.StripNetworks, "strip-networks", false, "do not report network interfaces")
	p.StringVar(&f.cert, "cert-file", "", "TLS client certificate (PEM); no password is sent then")
	p.StringVar(&f.key, "key-file", "", "its key (PEM)")
	p.StringVar(&f.ca, "trusted-ca-file", "", "certificate authorities to trust instead of the system's (PEM)")
	p.BoolVar(&f.insecure, "insecure-skip-tls-verify", false, "do not verify the backend's certificate (dangerous)")
	p.StringVar(&f.logLevel, "log-level", "info", "trace, debug, info, warn, error or fatal")
	p.StringVar(&f.logFormat, "log-format", "text", "text or json")
}

func (f *agentFlags) options() (agent.Options, error) {
	o := f.opts
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	o.KeepaliveInterval = seconds(f.interval)
	o.KeepaliveWarningTimeout, o.KeepaliveCriticalTimeout = seconds(int(f.warning)), seconds(int(f.critical))
	o.HandshakeTimeout, o.HeartbeatInterval, o.HeartbeatTimeout = seconds(f.handshake), seconds(f.heartbeat), seconds(f.heartbeatTimeout)
	if o.BatchDelay = f.batchDelay; o.BatchDelay <= 0 {
		o.BatchDelay = -1 // none; 0 would be the default
	}
	o.Version = version
	var err error
	if o.Logger, err = telemetry.Logger(os.Stderr, f.logLevel, f.logFormat); err != nil {
		return o, err
	}
	o.Registerer = telemetry.Registry()
	files, err := tlsfiles.New(tlsfiles.Options{
		Cert: f.cert, Key: f.key, CA: f.ca, Insecure: f.insecure, Name: "agent", Logger: o.Logger, Registerer: o.Registerer,
	})
	if err != nil {
		return o, err
	}
	o.TLS = files.Client
	return o, nil
}
