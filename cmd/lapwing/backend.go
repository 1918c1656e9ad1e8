//go:build !agentonly

package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/intake"
)

const defaultBackendFile = "/etc/lapwing/backend.yml"

// backendFlags maps flags onto the backend's options. Names that Sensu has mean what they mean there.
func backendFlags(f *pflag.FlagSet, o *backend.Options) (logLevel, logFormat *string) {
	f.StringP("config-file", "c", defaultBackendFile, "YAML file with these flags' names as keys")
	f.StringVarP(&o.StateDir, "state-dir", "d", "/var/lib/lapwing/backend", "directory of all that the backend keeps")
	f.StringVar(&o.APIListenAddress, "api-listen-address", "[::]:8080", "address of the HTTP API and the web page")
	f.Int64Var(&o.APIRequestLimit, "api-request-limit", 512000, "largest body of an API request, in bytes; 0 for the default")
	f.DurationVar(&o.APIWriteTimeout, "api-write-timeout", 15*time.Second, "longest time to answer an API request; 0 for the default")
	f.StringVar(&o.AgentHost, "agent-host", "[::]", "address for agents")
	f.IntVar(&o.AgentPort, "agent-port", 8081, "port for agents; 0 for any free port")
	f.StringSliceVar(&o.TrustedProxies, "trusted-proxies", nil,
		"addresses and networks, such as 10.0.0.0/8, of proxies that tell the client's address in X-Forwarded-For or Forwarded")
	f.IntVar(&o.AgentMaxConnections, "agent-max-connections", 0,
		"connections at the port for agents; 0 for what the limit of open files allows")
	f.IntVar(&o.AgentMaxPerAddress, "agent-max-connections-per-address", 0,
		"connections at the port for agents from one address; 0 for seven eighths of all, because a fleet may be behind one address")
	f.IntVar(&o.APIMaxConnections, "api-max-connections", 0, "connections at the HTTP API; 0 for what the limit of open files allows")
	f.IntVar(&o.APIMaxPerAddress, "api-max-connections-per-address", 0, "connections at the HTTP API from one address; 0 for half of all")
	f.DurationVar(&o.AgentIdleTimeout, "agent-idle-timeout", 5*time.Minute,
		"after how long without a byte from an agent its connection is closed; it is pinged after half of that")
	f.DurationVar(&o.AgentMessageTimeout, "agent-message-timeout", time.Minute, "longest time for a message of an agent to arrive")
	f.Int64Var(&o.AgentPartialBytes, "agent-partial-bytes", 0,
		"bytes of agents' messages that have not arrived in whole or have to wait; beyond that no more is read of messages of 64 KiB "+
			"and more until there is room; 0 for 256 MiB, or an eighth of the memory limit if that is less")
	f.Int64Var(&o.AgentMaxMessage, "agent-max-message", 4<<20, "largest message of an agent, in bytes")
	f.DurationVar(&o.AgentSpread, "agent-spread", time.Second, "time over which requests and acknowledgements to all agents are spread, up to 1m: longer costs less CPU and more latency; 0 for all at once")
	f.DurationVar(&o.AgentReadDelay, "agent-read-delay", 5*time.Millisecond, "how long what agents send may lie in their sockets, to be read together: longer costs less CPU and more latency; 0 for none")
	f.StringVar(&o.PhaseHash, "phase-hash", "md5", "hash that spreads checks over their intervals by their names, the same on all backends: md5, as Sensu does, or sha256")
	f.IntVar(&o.AgentQueue, "agent-queue", 1000, "messages that wait for an agent that does not read; more are dropped")
	f.BoolVar(&o.AgentProxyLabels, "agent-proxy-labels", false,
		"give proxy entities that agents' events make the labels and annotations in the event, as Sensu does")
	f.BoolVar(&o.AgentAnyEntity, "agent-any-entity", false, "take events of agents about the entities of other agents, as Sensu does")
	f.BoolVar(&o.AgentAnySubscription, "agent-any-subscription", false,
		"let agents have the subscriptions of other entities (entity:NAME), and *, as Sensu does")
	f.BoolVar(&o.AgentAPIAccess, "agent-api-access", false,
		"let users of the group system:agents use the API as the group's roles say, as Sensu does")
	tlsFlags(f, &o.TLS)
	f.StringVar(&o.AdminUsername, "cluster-admin-username", "admin", "administrator to make at the first start")
	f.StringVar(&o.AdminPassword, "cluster-admin-password", "",
		"password of the administrator to make at the first start; if empty, one is generated and printed once")
	f.StringVar(&o.AdminAPIKey, "cluster-admin-api-key", "", "API key of the administrator to make at the first start, a UUID; none if empty")
	f.DurationVar(&o.AccessLifetime, "access-token-lifetime", 5*time.Minute, "how long an access token is good")
	f.DurationVar(&o.RefreshLifetime, "refresh-token-lifetime", 12*time.Hour, "how long a session lasts that is not used")
	f.StringVar(&o.JWTPrivateKeyFile, "jwt-private-key-file", "", "elliptic curve key (PEM) to sign access tokens with; the cluster's secret if empty")
	f.StringVar(&o.JWTPublicKeyFile, "jwt-public-key-file", "", "public key for --jwt-private-key-file (PEM)")
	f.IntVar(&o.DirectoryGuesses, "directory-max-wrong-passwords", 8,
		"wrong passwords of one user, 1 to 1000, that a directory (LDAP, AD) is asked in half an hour; keep it below the number "+
			"that locks accounts there")
	f.DurationVar(&o.ProviderGroupsAge, "provider-groups-age", 30*24*time.Hour,
		"how long groups that a directory or OpenID Connect provider named count for the definitions of a user who does not sign in "+
			"any more; at least 1h")
	f.BoolVar(&o.MetricsAuth, "metrics-auth", false, "refuse /metrics without a token or API key that may get the resource metrics")
	f.StringVar(&o.PasswordHash, "password-hash", auth.Bcrypt, "algorithm for new passwords: bcrypt or argon2id; both are understood")
	f.DurationVar(&o.ProxyTTL, "proxy-entity-ttl", 0, "after how long without a result entities without an agent are removed, with their events, unless they have a ttl of their own; 0 for never")
	f.DurationVar(&o.OrphanTTL, "orphan-ttl", 0, "after how long without a result events are removed whose entity or check is not defined any more; 0 for never")
	f.DurationVar(&o.DefaultSilence, "default-silenced-expiry-time", 0, "how long a silence lasts that says nothing of its end; 0 for until it is deleted")
	f.DurationVar(&o.MaxSilence, "max-silenced-expiry-time-allowed", 0, "longest silence that is taken, counted from its making; 0 for any")
	f.IntVar(&o.Partitions, "event-log-partitions", 0,
		"partitions of the event log, 1 to 64, decided at the first start; 0 for one for two processors, 8 at most")
	f.DurationVar(&o.FlushInterval, "event-log-flush-interval", 20*time.Millisecond, "how long events gather before a commit: longer costs less CPU and more latency")
	f.Uint64Var(&o.KeepLog, "event-log-keep-bytes", 1<<30, "how much of the event log to keep behind what is stored")
	f.Int64Var(&o.MemoryLimit, "memory-limit", 0,
		"soft limit of the process's memory, in bytes: near it garbage is collected more often, and the event log writes a "+
			"thirtieth of it a second at most; 0 for three quarters of the memory of the machine or control group")
	f.Uint64Var(&o.MinFreeDisk, "min-free-disk", 256<<20, "free bytes on the disk below which no events are taken")
	f.DurationVar(&o.WriteDelay, "state-write-delay", time.Minute, "how long a check's state waits for more results before it is written")
	f.Uint64Var(&o.MaxDirty, "state-dirty-bytes", 512<<20,
		"largest size of the events that wait to be written, in bytes; then the oldest are written")
	f.DurationVar(&o.HistoryAge, "state-history-age", 90*24*time.Hour,
		"how long to keep the changes of each check's state; 0 or negative for none")
	f.StringVar(&o.AuditFile, "audit-log-file", "", "file for a line of JSON for each change that somebody makes through the API")
	f.DurationVar(&o.AuditAge, "audit-log-age", 400*24*time.Hour, "how long the audit log keeps entries")
	f.Uint64Var(&o.MaxReplay, "state-replay-bytes", 1<<30, "bytes of the event log that a restart has to replay at most, because of what waits")
	f.IntVar(&o.HandlerWorkers, "handler-workers", 8, "runs of one handler at a time")
	f.IntVar(&o.HandlerProcesses, "handler-processes", 64, "commands of handlers that run at a time, over all handlers")
	f.Int64Var(&o.ExpressionMemory, "expression-memory", 256<<20,
		"bytes of memory that a process may take which runs filters and mutators of users")
	f.StringSliceVar(&o.HandlerEnv, "handler-env", nil, "variables of this process's environment that commands of handlers and mutators get beside PATH and the like")
	f.StringSliceVar(&o.HandlerTypes, "allowed-handler-types", nil,
		"types of handlers that may be used; without pipe, mutators run no commands either; all types if it is empty")
	f.StringSliceVar(&o.HandlerSecretDirs, "handler-secret-dirs", []string{"/etc/lapwing/secrets"},
		"directories below which handlers may name files with secrets (password_file and the like); none if it is empty")
	f.IntVar(&o.HandlerQueue, "handler-queue", 1000, "deliveries to one handler that wait in memory; more wait on disk")
	f.DurationVar(&o.TraceAge, "trace-age", 7*24*time.Hour, "how long to keep traces, which say what became of events")
	f.Uint64Var(&o.TraceBytes, "trace-bytes", 256<<20, "largest size of traces, in bytes before compression; then the oldest are removed")
	f.IntVar(&o.TraceSample, "trace-sample", 100,
		"one of so many events that are neither incident nor resolution is traced; 0 or negative for none")
	quotaFlags(f, &o.Quotas)
	f.StringVar(&o.CacheDir, "cache-dir", "", "directory for assets; default a part of --state-dir")
	f.Float64Var(&o.AssetsRateLimit, "assets-rate-limit", 1.39, "assets fetched in a second in the long run; more wait; 0 for the default")
	f.IntVar(&o.AssetsBurstLimit, "assets-burst-limit", 100, "assets fetched at once before --assets-rate-limit counts; 0 for the default")
	f.Int64Var(&o.AssetsMirrorBytes, "assets-mirror-bytes", 10<<30,
		"bytes of archives kept for agents at most; 0 or negative for none: agents fetch all from the origin")
	f.DurationVar(&o.AssetsMirrorAge, "assets-mirror-age", 7*24*time.Hour, "how long an archive of an asset is kept that no agent wants")
	f.StringVar(&o.Pprof, "pprof-listen-address", "", "address of Go's profiles; none if empty")
	logLevel = f.String("log-level", "info", "trace, debug, info, warn, error or fatal")
	logFormat = f.String("log-format", "text", "text or json")
	return logLevel, logFormat
}

func quotaFlags(f *pflag.FlagSet, q *intake.Quotas) {
	f.Int64Var(&q.AgentEntities, "agent-quota-entities", 10_000, "proxy entities that the events of one agent may make; negative for no bound")
	f.Int64Var(&q.AgentBytes, "agent-quota-bytes", 128<<20,
		"bytes of the newest events that one agent reports for other entities; negative for no bound")
	f.Int64Var(&q.AgentEvents, "agent-quota-events", -1, "events of one agent taken in a second; more are held up; negative for no bound")
	f.Int64Var(&q.NamespaceEntities, "namespace-quota-entities", 500_000,
		"entities of a namespace from which events and keepalives make no more; negative for no bound")
	f.Int64Var(&q.NamespaceBytes, "namespace-quota-bytes", 4<<30,
		"bytes of the newest events that a namespace's agents report for other entities, and its users for any; and again, of the definitions "+
			"and facts of its entities; negative for no bound")
	f.Int64Var(&q.NamespaceEvents, "namespace-quota-events", -1,
		"events of one namespace taken in a second; more of agents are held up, more of users refused; negative for no bound")
}

func tlsFlags(f *pflag.FlagSet, t *backend.TLS) {
	f.StringVar(&t.CertFile, "cert-file", "", "TLS certificate of both listeners (PEM); all TLS files are read again when they change")
	f.StringVar(&t.KeyFile, "key-file", "", "private key for --cert-file (PEM)")
	f.StringVar(&t.TrustedCAFile, "trusted-ca-file", "", "authorities of API clients' certificates (PEM), for --client-cert-auth")
	f.BoolVar(&t.ClientCertAuth, "client-cert-auth", false, "refuse API clients without a certificate")
	f.Bool("insecure-skip-tls-verify", false, "has no effect: it is there for Sensu's configuration files")
	f.StringVar(&t.AgentCertFile, "agent-auth-cert-file", "", "TLS certificate of the listener for agents, if not the same (PEM)")
	f.StringVar(&t.AgentKeyFile, "agent-auth-key-file", "", "private key for --agent-auth-cert-file (PEM)")
	f.StringVar(&t.AgentTrustedCAFile, "agent-auth-trusted-ca-file", "", "authorities of agents' certificates (PEM); with a certificate an agent needs no password")
	f.StringSliceVar(&t.AgentCRLs, "agent-auth-crl-urls", nil, "URLs or files of lists of revoked certificates of agents")
	f.BoolVar(&t.AgentCertAuth, "agent-auth-required", false, "refuse agents without a certificate")
	f.BoolVar(&t.AgentNameAuth, "agent-auth-match-name", false, "refuse agents without a certificate, and those whose name is not in theirs")
}

func backendCommand() *cobra.Command {
	var s backendSettings
	cmd := &cobra.Command{
		Use:   "backend",
		Short: "Run the backend",
		Long: `Run the backend: the HTTP API and web page, the listener for agents, and all that is behind them.

Every flag is also a key of the YAML file, and an environment variable such as LAPWING_BACKEND_STATE_DIR. The
command line wins over the environment, and that over the file. An empty variable counts as not set. SIGHUP reads the
settings again.`,
		Example: `  lapwing backend --state-dir ./data
  LAPWING_BACKEND_CLUSTER_ADMIN_PASSWORD=secret123 lapwing backend`,
		Args: cobra.NoArgs,
	}
	s.register(cmd.PersistentFlags())
	cmd.SetFlagErrorFunc(explainFlags(func() options { return &backendSettings{} }, func() program { return backendProgram }))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		hangup := make(chan os.Signal, 1)
		signal.Notify(hangup, syscall.SIGHUP)
		defer signal.Stop(hangup)
		if err := s.load(cmd); err != nil {
			return err
		}
		return runBackend(cmd.Context(), cmd.Flags(), &s, hangup)
	}
	cmd.AddCommand(backendInitCommand(&s.opts, s.load), backendVerifyCommand(&s.opts, s.load), backendRepairCommand(&s.opts, s.load))
	// Sensu's "sensu-backend start" is habit and stands in scripts.
	cmd.AddCommand(&cobra.Command{Use: "start", Short: "Run the backend (the same as lapwing backend)", Args: cobra.NoArgs, RunE: cmd.RunE})
	return cmd
}

func backendInitCommand(opts *backend.Options, configure func(*cobra.Command) error) *cobra.Command {
	var ignore bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the administrator in a new state directory",
		Long: `Make the administrator and the built-in roles in a state directory that no backend is using.

Exit status: 0 done, 3 it was done before (0 with --ignore-already-initialized), 1 any other failure.`,
		Example: `  lapwing backend init --state-dir ./data --cluster-admin-username admin --cluster-admin-password 'P@ssw0rd!'`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := configure(cmd); err != nil {
				return err
			}
			err := backend.Initialize(cmd.Context(), *opts)
			if errors.Is(err, auth.ErrInitialized) {
				if ignore {
					return nil
				}
				return exitStatus{3, errors.New("this state directory has been initialized before")}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&ignore, "ignore-already-initialized", false, "exit with status 0 if it was done before")
	return cmd
}
