package backend

import (
	"cmp"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/api"
	"github.com/lapwing-monitoring/lapwing/asset"
	"github.com/lapwing-monitoring/lapwing/audit"
	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventfile"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/handler"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/intake"
	"github.com/lapwing-monitoring/lapwing/internal/connlimit"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/lateness"
	"github.com/lapwing-monitoring/lapwing/metric"
	"github.com/lapwing-monitoring/lapwing/notification"
	"github.com/lapwing-monitoring/lapwing/session"
	"github.com/lapwing-monitoring/lapwing/state"
	"github.com/lapwing-monitoring/lapwing/telemetry"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// Options are a backend's settings. Callers begin with DefaultOptions: 0 means none or no bound, as the field says.
// If the comment of a field does not say what 0 means, 0 is replaced by the value of DefaultOptions.
//
// The parts' settings are the parts' own options. Callers set what an operator may set in them. The backend sets the rest,
// which is what the parts are made of: other parts, directories, the logger and the registerer.
type Options struct {
	// StateDir holds all that the backend keeps. Required.
	StateDir string
	// CacheDir is for assets. "" is a part of StateDir.
	CacheDir string
	// APIListenAddress is where the HTTP API and the web page are. Required.
	APIListenAddress string
	// LogLevels are the levels of Logger, which users change while the backend runs. Default: they cannot.
	LogLevels api.LogLevels
	// PublicURL is the URL under which people reach the API, as https://monitoring.example.org. The links in notifications
	// with which contacts acknowledge begin with it. Default: there are no such links.
	PublicURL string
	// APIWriteTimeout bounds the answer to an API request.
	APIWriteTimeout time.Duration
	// AgentHost and AgentPort are where agents connect. Port 0 is any free port.
	AgentHost string
	AgentPort int
	// Pprof is an address for Go's profiles; "" for none.
	Pprof string
	// TrustedProxies are addresses and networks of proxies in front of either listener. They are trusted to tell the
	// client's address in X-Forwarded-For or Forwarded.
	TrustedProxies []string
	// TLS is for both listeners.
	TLS TLS
	// PhaseHash makes the phases of checks from their names: md5, as Sensu does, or sha256.
	PhaseHash string
	// Admin is the administrator that the first start makes. Without a password it draws one and passes it to Announce, once.
	Admin    auth.SeedOptions
	Announce func(username, password string)
	// JWTPrivateKeyFile and JWTPublicKeyFile, together, are an elliptic curve key (PEM) that signs access tokens. Without
	// them the cluster's secret does.
	JWTPrivateKeyFile, JWTPublicKeyFile string
	// MemoryLimit is what the process's memory is to stay below, in bytes: Log.MaxRate and Session.PartialBytes follow from
	// it. The collector's limit is the process's to set. 0 is no bound.
	MemoryLimit int64

	Cluster   Cluster
	Log       eventlog.Options          // Partitions 0 is what the log has, and eventlog.SuitablePartitions for a new one
	EventFile eventfile.Options         // Path "" for none
	Platform  eventfile.PlatformOptions // Path "" for none
	// NoPlatform switches Platform off, even if it has a path.
	NoPlatform  bool
	State       state.Options
	Config      config.Options
	Audit       audit.Options
	Auth        auth.Options
	Expressions filter.PoolOptions
	Assets      asset.Options // Rate and Burst are the mirror's too
	Mirror      asset.MirrorOptions
	Send        send.Options // PassEnv is the mutators' too
	Handler     handler.Options
	// HandlerFailingAfter is how long nothing must get through a handler before an event of the backend reports it; 0 for
	// no events.
	HandlerFailingAfter time.Duration
	Trace               trace.Options
	// Notification bounds the notification history.
	Notification notification.Options
	Intake       intake.Options
	Housekeeper  intake.HousekeeperOptions
	Lateness     lateness.Options
	Metric       metric.Options
	Session      session.Options // PartialBytes 0 follows from MemoryLimit, for the connections' bounds see connectionLimits
	API          api.Options
	Postgres     Postgres
	APIConns     connlimit.Options // 0: see connectionLimits

	// RuleFiles are files of Prometheus' rules; patterns with * work.
	RuleFiles []string
	// EventMetrics stores the metric points of events.
	EventMetrics bool

	Version string
	// Logger defaults to none.
	Logger *slog.Logger
	// Registry takes the metrics. Default a new one.
	Registry *prometheus.Registry
}

// DefaultOptions returns the default settings. StateDir has none.
func DefaultOptions() Options {
	o := Options{
		APIListenAddress: "[::]:8080", APIWriteTimeout: 15 * time.Second, AgentHost: "[::]", AgentPort: 8081,
		PhaseHash: "md5", Admin: auth.SeedOptions{Username: "admin"},
		Log: eventlog.DefaultOptions(), EventFile: eventfile.DefaultOptions(), Platform: eventfile.DefaultPlatformOptions(), State: state.DefaultOptions(),
		Config: config.DefaultOptions(), Audit: audit.DefaultOptions(),
		Auth: auth.DefaultOptions(), Expressions: filter.DefaultPoolOptions(), Assets: asset.DefaultOptions(),
		Mirror: asset.DefaultMirrorOptions(), Send: send.DefaultOptions(), Handler: handler.DefaultOptions(), HandlerFailingAfter: 5 * time.Minute,
		Trace: trace.DefaultOptions(), Notification: notification.DefaultOptions(), Intake: intake.DefaultOptions(),
		Housekeeper: intake.DefaultHousekeeperOptions(), Lateness: lateness.DefaultOptions(), Postgres: defaultPostgres(),
		Metric: metric.DefaultOptions(), EventMetrics: true, Session: session.DefaultOptions(), API: api.DefaultOptions(),
	}
	o.Session.PartialBytes = 0
	o.Cluster.NATS.Prefix = broker.DefaultPrefix
	return o
}

// complete fills in the settings that follow from others or from the machine, and what is needed of the process.
func (o *Options) complete() {
	o.APIWriteTimeout = cmp.Or(o.APIWriteTimeout, DefaultOptions().APIWriteTimeout)
	o.Cluster.complete()
	o.connectionLimits(connlimit.Files())
	if o.MemoryLimit > 0 {
		o.Log.MaxRate = o.MemoryLimit / 30 // so that a flood does not fill the memory
	}
	if o.Metric.Store.MemoryLimit == 0 && o.MemoryLimit > 0 {
		o.Metric.Store.MemoryLimit = o.MemoryLimit / 3
	}
	if o.Session.PartialBytes == 0 {
		o.Session.PartialBytes = session.DefaultOptions().PartialBytes
		if o.MemoryLimit > 0 {
			o.Session.PartialBytes = min(o.Session.PartialBytes, o.MemoryLimit/8)
		}
	}
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
