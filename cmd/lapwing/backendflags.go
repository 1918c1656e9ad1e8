//go:build !agentonly

package main

import (
	"github.com/spf13/pflag"

	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/eventfile"
	"github.com/lapwing-monitoring/lapwing/intake"
	"github.com/lapwing-monitoring/lapwing/internal/duration"
	"github.com/lapwing-monitoring/lapwing/internal/flaggroup"
)

const (
	defaultBackendFile = "/etc/lapwing/backend.yml"
	defaultStateDir    = "/var/lib/lapwing/backend"
)

// backendFlags maps flags onto the options of the backend, which also have the defaults. Names that Sensu has mean what
// they mean there.
func backendFlags(f *pflag.FlagSet, o *backend.Options) (logLevel, logFormat *string) {
	*o = backend.DefaultOptions()
	o.StateDir = defaultStateDir
	f.StringP("config-file", "c", defaultBackendFile, "YAML file with these flags' names as keys")
	f.StringVarP(&o.StateDir, "state-dir", "d", o.StateDir, "directory for everything that the backend keeps")
	f.StringVar(&o.CacheDir, "cache-dir", o.CacheDir, "directory for assets; default a part of --state-dir")
	f.Int64Var(&o.MemoryLimit, "memory-limit", o.MemoryLimit,
		"soft limit of the process's memory, in bytes: near it garbage is collected more often, and the event log writes "+
			"at most a thirtieth of it a second; 0 for three quarters of the memory of the machine or control group")
	f.StringVar(&o.Pprof, "pprof-listen-address", o.Pprof, "address of Go's profiles; none if empty")
	f.StringSliceVar(&o.TrustedProxies, "trusted-proxies", o.TrustedProxies,
		"addresses and networks, such as 10.0.0.0/8, of proxies that tell the client's address in X-Forwarded-For or "+
			"Forwarded")
	flaggroup.Set(f, "General")
	apiFlags(f, o)
	flaggroup.Set(f, "API")
	agentPortFlags(f, o)
	flaggroup.Set(f, "Agents")
	tlsFlags(f, &o.TLS)
	flaggroup.Set(f, "TLS of the API and of agents")
	accessFlags(f, o)
	flaggroup.Set(f, "Users and sign-in")
	storageFlags(f, o)
	flaggroup.Set(f, "Storage")
	eventFileFlags(f, &o.EventFile)
	flaggroup.Set(f, "Event log file")
	platformFlags(f, o)
	flaggroup.Set(f, "Platform metrics")
	handlerFlags(f, o)
	flaggroup.Set(f, "Handlers, mutators and assets")
	quotaFlags(f, &o.Intake.Quotas)
	flaggroup.Set(f, "Quotas")
	clusterFlags(f, &o.Cluster)
	flaggroup.Set(f, "Cluster")
	natsFlags(f, &o.Cluster.NATS)
	flaggroup.Set(f, "NATS servers")
	postgresFlags(f, &o.Postgres)
	flaggroup.Set(f, "PostgreSQL")
	f.BoolVar(&o.EventMetrics, "event-metrics", o.EventMetrics, "store the metric points of events")
	f.StringSliceVar(&o.RuleFiles, "prometheus-rule-files", o.RuleFiles,
		"files of Prometheus' rules: recording rules write series, alerting rules make events; patterns with * work; the same on all backends")
	metricFlags(f, &o.Metric)
	f.IntVar(&o.Metric.Replication, "metric-replication-factor", o.Metric.Replication,
		"members of a cluster that store each series of metrics, from 1 to 3; means nothing without a cluster")
	f.Int64Var(&o.Metric.MemberSpillBytes, "metric-member-spill-bytes", o.Metric.MemberSpillBytes,
		"disk for the points that wait for one other member of the cluster")
	flaggroup.Set(f, "Metrics")
	logLevel = f.String("log-level", "info", "trace, debug, info, warn, error or fatal")
	logFormat = f.String("log-format", "text", "text or json")
	flaggroup.Set(f, "Logging")
	return logLevel, logFormat
}

// postgresFlags are about the copy of events in PostgreSQL.
func postgresFlags(f *pflag.FlagSet, o *backend.Postgres) {
	f.StringVar(&o.DSN, "postgres-dsn", o.DSN,
		"PostgreSQL database that gets a copy of events for history and reports: a URL, or keywords with values; without it "+
			"the definition PostgresConfig names one, if there is one")
	f.Var(duration.New(o.Events, &o.Events), "postgres-events-retention", "how long PostgreSQL keeps events; 0 for ever")
	f.Var(duration.New(o.Changes, &o.Changes), "postgres-changes-retention", "how long PostgreSQL keeps changes of state; 0 for ever")
	f.Var(duration.New(o.Notifications, &o.Notifications), "postgres-notifications-retention",
		"how long PostgreSQL keeps notifications; 0 for ever")
	f.IntVar(&o.PoolSize, "postgres-pool-size", o.PoolSize,
		"connections to PostgreSQL for reports, at most; pool_size of a definition PostgresConfig has priority unless it is 0")
	f.Int64Var(&o.Journal.MaxBytes, "postgres-journal-bytes", o.Journal.MaxBytes,
		"disk for changes that PostgreSQL does not have yet, in bytes; above it the oldest are given up")
	f.Var(duration.New(o.Journal.Keep, &o.Journal.Keep), "postgres-journal-keep",
		"how long changes stay on disk that PostgreSQL has: after a fail-over to a standby it may have less")
	f.Var(duration.New(o.Writer.Interval, &o.Writer.Interval), "postgres-write-interval", "least time between two transactions in PostgreSQL")
	f.IntVar(&o.Writer.Share, "postgres-catch-up-share", o.Writer.Share,
		"part of its time that the writer of PostgreSQL works while it catches up, in percent")
}

func clusterFlags(f *pflag.FlagSet, c *backend.Cluster) {
	f.StringVar(&c.Name, "name", c.Name, "name of this backend in a cluster; default the host's name")
	f.StringVar(&c.ListenAddress, "cluster-listen-address", c.ListenAddress,
		"address for the other members of the cluster, HOST:PORT")
	f.StringSliceVar(&c.Peers, "peers", c.Peers,
		"addresses (--cluster-listen-address) of the cluster's members, HOST:PORT; this backend may be among them; a DNS "+
			"name may have several addresses; without it and --nats-url the backend is alone")
	f.IntVar(&c.Size, "cluster-size", c.Size,
		"number of members; 0 counts --peers, and this backend if it is not among them")
	f.StringVar(&c.AdvertiseHost, "cluster-advertise-host", c.AdvertiseHost,
		"name or address by which agents and clients reach this backend; default the host of --cluster-listen-address, and "+
			"with --nats-url this host's name")
	f.StringVar(&c.CertFile, "cluster-cert-file", c.CertFile,
		"TLS certificate that this backend shows to the other members (PEM); without it all of them must be on this host")
	f.StringVar(&c.KeyFile, "cluster-key-file", c.KeyFile, "private key for --cluster-cert-file (PEM)")
	f.StringVar(&c.TrustedCAFile, "cluster-trusted-ca-file", c.TrustedCAFile,
		"authorities that must have signed the certificates of all members (PEM)")
}

// natsFlags are about NATS servers that are run beside lapwing.
func natsFlags(f *pflag.FlagSet, n *backend.NATS) {
	f.StringSliceVar(&n.URLs, "nats-url", n.URLs,
		"URLs of NATS servers with JetStream, nats://HOST:PORT or tls://HOST:PORT, for a system that has its log there; "+
			"backends with the same servers and --nats-prefix are one cluster; without it the backend has a server of its own")
	f.StringVar(&n.CredentialsFile, "nats-credentials-file", n.CredentialsFile,
		"credentials for the NATS servers: a .creds file, or lines with \"user: NAME\" and \"password: SECRET\"")
	f.StringVar(&n.CertFile, "nats-cert-file", n.CertFile, "TLS certificate that the NATS servers are shown (PEM)")
	f.StringVar(&n.KeyFile, "nats-key-file", n.KeyFile, "private key for --nats-cert-file (PEM)")
	f.StringVar(&n.TrustedCAFile, "nats-trusted-ca-file", n.TrustedCAFile,
		"authorities that must have signed the certificates of the NATS servers (PEM); the system's if empty")
	f.StringVar(&n.Prefix, "nats-prefix", n.Prefix,
		"beginning of the names of all streams and subjects on the NATS servers; two systems on the same servers need "+
			"different ones")
	f.IntVar(&n.Replicas, "nats-replicas", n.Replicas,
		"copies of each stream on the NATS servers, 1 to 5; 0 for as many as there are servers, and 3 at most")
}

func apiFlags(f *pflag.FlagSet, o *backend.Options) {
	f.StringVar(&o.APIListenAddress, "api-listen-address", o.APIListenAddress,
		"address of the HTTP API and the web page")
	f.StringVar(&o.PublicURL, "public-url", o.PublicURL,
		"URL under which people reach the HTTP API, as https://monitoring.example.org; links in notifications that acknowledge "+
			"an incident begin with it, and without it there are none")
	f.Int64Var(&o.API.RequestLimit, "api-request-limit", o.API.RequestLimit,
		"largest body of an API request, in bytes; 0 for the default")
	f.Var(duration.New(o.APIWriteTimeout, &o.APIWriteTimeout), "api-write-timeout",
		"longest time to answer an API request; 0 for the default")
	f.IntVar(&o.APIConns.Max, "api-max-connections", o.APIConns.Max,
		"connections to the HTTP API; 0 for what the limit of open files allows")
	f.IntVar(&o.APIConns.PerAddress, "api-max-connections-per-address", o.APIConns.PerAddress,
		"connections to the HTTP API from one address; 0 for half of --api-max-connections")
	f.BoolVar(&o.API.MetricsAuth, "metrics-auth", o.API.MetricsAuth,
		"refuse /metrics without a token or API key that may get the resource metrics")
	f.Var(duration.New(o.API.DefaultSilence, &o.API.DefaultSilence), "default-silenced-expiry-time",
		"how long a silence without an end lasts; 0 for until it is deleted")
	f.Var(duration.New(o.API.MaxSilence, &o.API.MaxSilence), "max-silenced-expiry-time-allowed",
		"longest time from a silence's making to its end; 0 for any")
	f.StringVar(&o.Audit.File, "audit-log-file", o.Audit.File,
		"file for a line of JSON for each change that a user makes through the API; none if empty")
	f.Var(duration.New(o.Audit.MaxAge, &o.Audit.MaxAge), "audit-log-age", "how long the audit log keeps entries")
}

// agentPortFlags are about agents' connections and what agents may do.
func agentPortFlags(f *pflag.FlagSet, o *backend.Options) {
	s := &o.Session
	f.StringVar(&o.AgentHost, "agent-host", o.AgentHost, "address for agents")
	f.IntVar(&o.AgentPort, "agent-port", o.AgentPort, "port for agents; 0 for any free port")
	f.IntVar(&s.MaxConnections, "agent-max-connections", s.MaxConnections,
		"connections of agents; 0 for what the limit of open files allows")
	f.IntVar(&s.MaxPerAddress, "agent-max-connections-per-address", s.MaxPerAddress,
		"connections of agents from one address; 0 for seven eighths of --agent-max-connections: a fleet may be behind "+
			"one address")
	f.Var(duration.New(s.IdleTimeout, &s.IdleTimeout), "agent-idle-timeout",
		"time without a byte from an agent after which its connection is closed; the agent is pinged after half of this "+
			"time")
	f.Var(duration.New(s.MessageTimeout, &s.MessageTimeout), "agent-message-timeout",
		"longest time for a message of an agent to arrive")
	f.Int64Var(&s.PartialBytes, "agent-partial-bytes", s.PartialBytes,
		"bytes of agents' messages that have not arrived in whole or have to wait; at this bound the backend reads no "+
			"more of messages of 64 KiB and more until there is room; 0 for 256 MiB, or an eighth of --memory-limit if "+
			"that is less")
	f.Int64Var(&s.MaxMessage, "agent-max-message", s.MaxMessage, "largest message of an agent, in bytes")
	f.Var(duration.New(s.Spread, &s.Spread), "agent-spread",
		"time over which requests and acknowledgements to all agents are spread, up to 1m: longer costs less CPU and more "+
			"latency; 0 for all at once")
	f.Var(duration.New(s.ReadDelay, &s.ReadDelay), "agent-read-delay",
		"how long bytes of agents may wait in their sockets so that many sockets are read together, up to 100ms: longer "+
			"costs less CPU and more latency; 0 for no delay")
	f.IntVar(&s.SendQueue, "agent-queue", s.SendQueue,
		"messages that wait for an agent that does not read; more are dropped")
	f.StringVar(&o.PhaseHash, "phase-hash", o.PhaseHash,
		"hash of checks' names that spreads checks over their intervals: md5, as Sensu does, or sha256; the same on all "+
			"backends")
	f.BoolVar(&o.Intake.ProxyLabels, "agent-proxy-labels", o.Intake.ProxyLabels,
		"give proxy entities that agents' events make the labels and annotations in the event, as Sensu does")
	f.BoolVar(&o.Intake.AnyEntity, "agent-any-entity", o.Intake.AnyEntity,
		"accept events of agents about the entities of other agents, as Sensu does")
	f.BoolVar(&o.Intake.AnySubscription, "agent-any-subscription", o.Intake.AnySubscription,
		"let agents have the subscriptions of other entities (entity:NAME), and *, as Sensu does")
	f.BoolVar(&o.API.AgentAccess, "agent-api-access", o.API.AgentAccess,
		"let users of the group system:agents use the API as the group's roles say, as Sensu does")
	f.Var(duration.New(o.Intake.ProxyTTL, &o.Intake.ProxyTTL), "proxy-entity-ttl",
		"time without a result after which entities without an agent are removed, with their events, unless they have a "+
			"ttl of their own; 0 for never")
	f.Var(duration.New(o.Housekeeper.OrphanTTL, &o.Housekeeper.OrphanTTL), "orphan-ttl",
		"time without a result after which events are removed whose entity or check is no longer defined; 0 for never")
}

func tlsFlags(f *pflag.FlagSet, t *backend.TLS) {
	f.StringVar(&t.CertFile, "cert-file", t.CertFile,
		"TLS certificate of both listeners (PEM); the backend reads all TLS files again when they change")
	f.StringVar(&t.KeyFile, "key-file", t.KeyFile, "private key for --cert-file (PEM)")
	f.StringVar(&t.TrustedCAFile, "trusted-ca-file", t.TrustedCAFile,
		"authorities of API clients' certificates (PEM), for --client-cert-auth")
	f.BoolVar(&t.ClientCertAuth, "client-cert-auth", t.ClientCertAuth, "refuse API clients without a certificate")
	f.Bool("insecure-skip-tls-verify", false, "has no effect: it is there for Sensu's configuration files")
	f.StringVar(&t.AgentCertFile, "agent-auth-cert-file", t.AgentCertFile,
		"TLS certificate of the listener for agents (PEM); --cert-file if empty")
	f.StringVar(&t.AgentKeyFile, "agent-auth-key-file", t.AgentKeyFile, "private key for --agent-auth-cert-file (PEM)")
	f.StringVar(&t.AgentTrustedCAFile, "agent-auth-trusted-ca-file", t.AgentTrustedCAFile,
		"authorities of agents' certificates (PEM); with a certificate an agent needs no password")
	f.StringSliceVar(&t.AgentCRLs, "agent-auth-crl-urls", t.AgentCRLs,
		"URLs or files of lists of revoked certificates of agents")
	f.BoolVar(&t.AgentCertAuth, "agent-auth-required", t.AgentCertAuth, "refuse agents without a certificate")
	f.BoolVar(&t.AgentNameAuth, "agent-auth-match-name", t.AgentNameAuth,
		"refuse agents without a certificate, and agents whose name is not in their certificate")
}

// accessFlags are about users, their passwords and tokens.
func accessFlags(f *pflag.FlagSet, o *backend.Options) {
	f.StringVar(&o.Admin.Username, "cluster-admin-username", o.Admin.Username,
		"administrator to make at the first start")
	f.StringVar(&o.Admin.Password, "cluster-admin-password", o.Admin.Password,
		"password of the administrator to make at the first start; if empty, one is generated and printed once")
	f.StringVar(&o.Admin.APIKey, "cluster-admin-api-key", o.Admin.APIKey,
		"API key of the administrator to make at the first start, a UUID; none if empty")
	f.Var(duration.New(o.Auth.AccessLifetime, &o.Auth.AccessLifetime), "access-token-lifetime",
		"how long an access token is valid")
	f.Var(duration.New(o.Auth.RefreshLifetime, &o.Auth.RefreshLifetime), "refresh-token-lifetime",
		"how long an unused sign-in lasts")
	f.StringVar(&o.JWTPrivateKeyFile, "jwt-private-key-file", o.JWTPrivateKeyFile,
		"elliptic curve key (PEM) to sign access tokens with; the cluster's secret if empty")
	f.StringVar(&o.JWTPublicKeyFile, "jwt-public-key-file", o.JWTPublicKeyFile,
		"public key for --jwt-private-key-file (PEM)")
	f.IntVar(&o.Auth.DirectoryGuesses, "directory-max-wrong-passwords", o.Auth.DirectoryGuesses,
		"wrong passwords of one user in half an hour, 1 to 1000, that a directory (LDAP, AD) is asked about; keep it "+
			"below the number that locks accounts there")
	f.Var(duration.New(o.Auth.GroupsAge, &o.Auth.GroupsAge), "provider-groups-age",
		"how long groups from a directory or OpenID Connect provider count for the definitions of a user who does not "+
			"sign in; at least 1h")
	f.StringVar(&o.Auth.Hash, "password-hash", o.Auth.Hash,
		"algorithm for new passwords: bcrypt or argon2id; the backend understands stored passwords of both")
}

// storageFlags are about the event log and the state of checks.
func storageFlags(f *pflag.FlagSet, o *backend.Options) {
	f.IntVar(&o.Log.Partitions, "event-log-partitions", o.Log.Partitions,
		"partitions of the event log, 1 to 64, decided at the first start; 0 for one per two processors, at most 8")
	f.Var(duration.New(o.Log.FlushInterval, &o.Log.FlushInterval), "event-log-flush-interval",
		"how long events gather before a commit: longer costs less CPU and more latency; 0 for 20ms, in a cluster or on NATS servers 50ms")
	f.Uint64Var(&o.State.KeepLog, "event-log-keep-bytes", o.State.KeepLog,
		"bytes of the event log to keep after their state is stored")
	f.Uint64Var(&o.Log.MinFree, "min-free-disk", o.Log.MinFree,
		"free bytes on the disk below which the backend takes no events")
	f.Var(duration.New(o.State.WriteDelay, &o.State.WriteDelay), "state-write-delay",
		"how long a check's state waits for more results before it is written")
	f.Uint64Var(&o.State.MaxDirty, "state-dirty-bytes", o.State.MaxDirty,
		"bytes of events that may wait to be written; at this bound the oldest are written")
	f.Uint64Var(&o.State.MaxReplay, "state-replay-bytes", o.State.MaxReplay,
		"bytes of the event log that a restart may have to replay; at this bound the oldest waiting events are written")
	f.Var(duration.New(o.State.HistoryAge, &o.State.HistoryAge), "state-history-age",
		"how long to keep the changes of each check's state; 0 for none")
	f.Var(duration.New(o.Trace.MaxAge, &o.Trace.MaxAge), "trace-age",
		"how long to keep traces, which say what happened to events")
	f.Int64Var(&o.Trace.MaxBytes, "trace-bytes", o.Trace.MaxBytes,
		"largest size of traces, in bytes before compression; at this bound the oldest are removed")
	f.IntVar(&o.Trace.Sample, "trace-sample", o.Trace.Sample,
		"trace one of this many events that are neither incident nor resolution; 0 for none of them")
	f.Var(duration.New(o.Notification.MaxAge, &o.Notification.MaxAge), "notification-age",
		"how long to keep the history of notifications: whom handlers told what, and with which result")
	f.Int64Var(&o.Notification.MaxBytes, "notification-bytes", o.Notification.MaxBytes,
		"largest size of the history of notifications, in bytes before compression; at this bound the oldest are removed")
}

// platformFlags are about the file that has the backend's own metrics.
func platformFlags(f *pflag.FlagSet, o *backend.Options) {
	f.StringVar(&o.Platform.Path, "platform-metrics-log-file", o.Platform.Path,
		"file for the backend's own metrics as lines of InfluxDB's protocol; SIGHUP opens it again; none if empty")
	f.Var(duration.New(o.Platform.Interval, &o.Platform.Interval), "platform-metrics-logging-interval",
		"time between two samples in --platform-metrics-log-file")
	f.BoolVar(&o.NoPlatform, "disable-platform-metrics", o.NoPlatform, "do not write --platform-metrics-log-file")
}

// eventFileFlags are about the file that has all events, for other programs.
func eventFileFlags(f *pflag.FlagSet, o *eventfile.Options) {
	f.StringVar(&o.Path, "event-log-file", o.Path,
		"file for a line of JSON for each event that this backend takes; SIGHUP opens it again; none if empty")
	f.IntVar(&o.Queue, "event-log-buffer-size", o.Queue,
		"events that may wait to be written to --event-log-file; more are left out of it and counted")
	f.BoolVar(&o.Parallel, "event-log-parallel-encoders", o.Parallel,
		"encode the events for --event-log-file on half of the processors, and on two at least, instead of one")
	f.Int64Var(&o.MaxBytes, "event-log-max-bytes", o.MaxBytes,
		"size of --event-log-file, in bytes, at which it is renamed and another one begun; 0 for any size")
	f.Var(duration.New(o.MaxAge, &o.MaxAge), "event-log-max-age",
		"age of --event-log-file at which it is renamed and another one begun; 0 for any age")
	f.IntVar(&o.Keep, "event-log-keep", o.Keep, "renamed files of --event-log-file to keep")
}

// handlerFlags are about handlers, and what they and agents need to run.
func handlerFlags(f *pflag.FlagSet, o *backend.Options) {
	f.IntVar(&o.Handler.Workers, "handler-workers", o.Handler.Workers, "runs of one handler at a time")
	f.IntVar(&o.Handler.QueueSize, "handler-queue", o.Handler.QueueSize,
		"deliveries to one handler that wait in memory; more wait on disk")
	f.IntVar(&o.Handler.QueueDisk, "handler-queue-disk", o.Handler.QueueDisk,
		"deliveries to one handler that wait on disk before others than state changes are shed, at least 1000; 0 for any number")
	f.Var(duration.New(o.HandlerFailingAfter, &o.HandlerFailingAfter), "handler-failing-after",
		"time without a successful delivery to a failing handler after which an event handler-failing-NAME of the entity "+
			"lapwing-backend reports it; 0 for no events")
	f.IntVar(&o.Send.MaxProcesses, "handler-processes", o.Send.MaxProcesses,
		"commands of handlers that run at a time, over all handlers")
	f.StringSliceVar(&o.Send.PassEnv, "handler-env", o.Send.PassEnv,
		"variables of this process's environment that commands of handlers and mutators get beside PATH and the like")
	f.StringSliceVar(&o.Send.Types, "allowed-handler-types", o.Send.Types,
		"types of handlers that may be used; without pipe, mutators run no commands either; all types if it is empty")
	f.StringSliceVar(&o.Send.SecretDirs, "handler-secret-dirs", o.Send.SecretDirs,
		"directories below which handlers may name files with secrets (password_file and the like); none if it is empty")
	f.Int64Var(&o.Expressions.Memory, "expression-memory", o.Expressions.Memory,
		"bytes of memory that a process which runs users' filters and mutators may take")
	f.Float64Var(&o.Assets.Rate, "assets-rate-limit", o.Assets.Rate,
		"assets fetched in a second on average; more wait; 0 for the default")
	f.IntVar(&o.Assets.Burst, "assets-burst-limit", o.Assets.Burst,
		"assets fetched at once before --assets-rate-limit counts; 0 for the default")
	f.Int64Var(&o.Mirror.MaxBytes, "assets-mirror-bytes", o.Mirror.MaxBytes,
		"bytes of archives to keep for agents at most; 0 for none: agents fetch all from the origin")
	f.Var(duration.New(o.Mirror.MaxAge, &o.Mirror.MaxAge), "assets-mirror-age",
		"how long to keep an archive that no agent asks for")
}

func quotaFlags(f *pflag.FlagSet, q *intake.Quotas) {
	f.Int64Var(&q.AgentEntities, "agent-quota-entities", q.AgentEntities,
		"proxy entities that the events of one agent may make; 0 for no bound")
	f.Int64Var(&q.AgentBytes, "agent-quota-bytes", q.AgentBytes,
		"bytes of the newest events that one agent reports for other entities; 0 for no bound")
	f.Int64Var(&q.AgentEvents, "agent-quota-events", q.AgentEvents,
		"events of one agent taken in a second; more are delayed; 0 for no bound")
	f.Int64Var(&q.NamespaceEntities, "namespace-quota-entities", q.NamespaceEntities,
		"entities of a namespace from which events and keepalives make no more; 0 for no bound")
	f.Int64Var(&q.NamespaceBytes, "namespace-quota-bytes", q.NamespaceBytes,
		"bytes of the newest events that a namespace's agents report for other entities, and its users for any; and "+
			"again, of the definitions and facts of its entities; 0 for no bound")
	f.Int64Var(&q.NamespaceEvents, "namespace-quota-events", q.NamespaceEvents,
		"events of one namespace taken in a second; more of agents are delayed, more of users refused; 0 for no bound")
}
