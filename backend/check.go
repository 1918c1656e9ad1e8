package backend

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/internal/clientaddr"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/metric/rulefile"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Bounds of options. They keep sums and conversions from overflowing, and are far beyond what has a use.
const (
	longest        = 100 * 365 * 24 * time.Hour // of ages
	longestTimeout = 24 * time.Hour
	mostMemory     = 1 << 40 // bytes
	mostDisk       = 1 << 61 // bytes
	mostConns      = 1 << 20
	// mostPartitions is more than any machine has processors for: a partition is one processor's work.
	mostPartitions = 64
	mostGuesses    = 1000 // auth takes no more
)

// The bounds of MemoryLimit, in bytes.
const LeastMemoryLimit, MostMemoryLimit = 64 << 20, mostMemory

// Check finds the options that cannot work, all of them, and opens nothing. New and Reload use it too. Its errors are
// optionerr.Error: they name the flags, which an operator has set.
func (o *Options) Check() error {
	var bad optionerr.List
	if o.StateDir == "" {
		bad.Add("state-dir", "a directory is required")
	}
	o.checkAddresses(&bad)
	o.checkAccess(&bad)
	o.checkAgents(&bad)
	o.checkStorage(&bad)
	o.checkHandlers(&bad)
	o.checkQuotas(&bad)
	o.TLS.check(bad.Add)
	o.Cluster.check(bad.Add)
	o.Metric.Check(&bad)
	o.Postgres.check(&bad)
	if files, err := rulefile.ReadFiles(o.RuleFiles...); err != nil {
		bad.Add("prometheus-rule-files", "%w", err)
	} else if err := rulefile.Check(files); err != nil {
		bad.Add("prometheus-rule-files", "%w", err)
	}
	return bad.Err()
}

func (o *Options) checkAddresses(bad *optionerr.List) {
	for flag, address := range map[string]string{"api-listen-address": o.APIListenAddress, "pprof-listen-address": o.Pprof} {
		if flag == "pprof-listen-address" && address == "" {
			continue
		}
		if _, port, err := net.SplitHostPort(address); err != nil {
			bad.Add(flag, "%q is not like [::]:8080: %w", address, err)
		} else if _, err := net.LookupPort("tcp", port); err != nil {
			bad.Add(flag, "%q is not like [::]:8080: %q is not a port: it must be from 0 to 65535", address, port)
		}
	}
	if host := trimBrackets(o.AgentHost); strings.ContainsAny(host, " /[]") || strings.Contains(host, ":") && net.ParseIP(host) == nil {
		bad.Add("agent-host", "%q is neither a name nor an address: the port is in --agent-port", o.AgentHost)
	}
	optionerr.Port(bad, "agent-port", o.AgentPort)
	if _, err := clientaddr.Parse(o.TrustedProxies); err != nil {
		bad.Add("trusted-proxies", "%w", err)
	}
	if u, err := url.Parse(o.PublicURL); err != nil || o.PublicURL != "" && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
		u.RawQuery != "" || u.Fragment != "" || u.User != nil) {
		bad.Add("public-url", "%q is not a URL such as https://monitoring.example.org", o.PublicURL)
	}
	optionerr.Within(bad, "api-request-limit", o.API.RequestLimit, 1, 1<<30)
	optionerr.Within(bad, "api-write-timeout", o.APIWriteTimeout, time.Millisecond, longestTimeout)
	optionerr.Within(bad, "agent-max-connections", o.Session.MaxConnections, 1, mostConns)
	optionerr.Within(bad, "agent-max-connections-per-address", o.Session.MaxPerAddress, 1, mostConns)
	optionerr.Within(bad, "api-max-connections", o.APIConns.Max, 1, mostConns)
	optionerr.Within(bad, "api-max-connections-per-address", o.APIConns.PerAddress, 1, mostConns)
}

func (o *Options) checkAccess(bad *optionerr.List) {
	optionerr.OneOf(bad, "password-hash", o.Auth.Hash, auth.Bcrypt, auth.Argon2id)
	if o.Admin.Username == "" {
		bad.Add("cluster-admin-username", "a name is required")
	}
	if o.Admin.APIKey != "" {
		if _, err := uuid.Parse(o.Admin.APIKey); err != nil {
			bad.Add("cluster-admin-api-key", "it is not a UUID: %w", err)
		}
	}
	access, refresh := o.Auth.AccessLifetime, o.Auth.RefreshLifetime
	optionerr.Within(bad, "access-token-lifetime", access, time.Second, longest)
	optionerr.Within(bad, "refresh-token-lifetime", refresh, time.Second, longest)
	if refresh > 0 && refresh < access {
		bad.Add("refresh-token-lifetime", "%v is shorter than --access-token-lifetime, %v", refresh, access)
	}
	optionerr.Within(bad, "provider-groups-age", o.Auth.GroupsAge, time.Hour, longest)
	optionerr.Within(bad, "directory-max-wrong-passwords", o.Auth.DirectoryGuesses, 1, mostGuesses)
	if (o.JWTPrivateKeyFile == "") != (o.JWTPublicKeyFile == "") {
		bad.Add("jwt-private-key-file", "it needs --jwt-public-key-file, and that needs it")
	}
	if o.Audit.File != "" {
		if err := checkFile(o.Audit.File); err != nil {
			bad.Add("audit-log-file", "%w", err)
		}
	}
}

// checkFile says why a file cannot be written where it is to be. The file itself is opened later.
func checkFile(name string) error {
	switch info, err := os.Stat(filepath.Dir(name)); {
	case err != nil:
		return fmt.Errorf("the directory for it: %w", err)
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", filepath.Dir(name))
	}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory", name)
	}
	return nil
}

func (o *Options) checkAgents(bad *optionerr.List) {
	s := &o.Session
	optionerr.Within(bad, "agent-idle-timeout", s.IdleTimeout, time.Millisecond, 30*24*time.Hour)
	optionerr.Within(bad, "agent-message-timeout", s.MessageTimeout, time.Millisecond, longestTimeout)
	optionerr.Within(bad, "agent-partial-bytes", s.PartialBytes, 1, mostMemory)
	optionerr.Within(bad, "agent-max-message", s.MaxMessage, 1, 1<<30)
	optionerr.Within(bad, "agent-queue", s.SendQueue, 1, 1_000_000)
	if s.Spread > 0 && (s.Spread > time.Minute || s.Spread%(10*time.Millisecond) != 0) {
		bad.Add("agent-spread", "%v is longer than 1m or not a multiple of 10ms", s.Spread)
	}
	optionerr.WithinOrZero(bad, "agent-spread", min(0, s.Spread), 10*time.Millisecond, time.Minute, "all at once")
	optionerr.WithinOrZero(bad, "agent-read-delay", s.ReadDelay, 1, 100*time.Millisecond, "none")
	optionerr.OneOf(bad, "phase-hash", o.PhaseHash, "md5", "sha256")
	optionerr.Within(bad, "assets-rate-limit", o.Assets.Rate, 1e-6, 1e6)
	optionerr.Within(bad, "assets-burst-limit", o.Assets.Burst, 1, 1_000_000)
	optionerr.WithinOrZero(bad, "assets-mirror-bytes", o.Mirror.MaxBytes, 1, mostDisk, "none")
	optionerr.Within(bad, "assets-mirror-age", o.Mirror.MaxAge, time.Millisecond, longest)
	optionerr.WithinOrZero(bad, "proxy-entity-ttl", o.Intake.ProxyTTL, time.Second, longest, "never")
	optionerr.WithinOrZero(bad, "orphan-ttl", o.Housekeeper.OrphanTTL, time.Second, longest, "never")
	optionerr.WithinOrZero(bad, "default-silenced-expiry-time", o.API.DefaultSilence, time.Second, longest, "until it is deleted")
	optionerr.WithinOrZero(bad, "max-silenced-expiry-time-allowed", o.API.MaxSilence, time.Second, longest, "any")
}

func (o *Options) checkStorage(bad *optionerr.List) {
	optionerr.Within(bad, "event-log-partitions", o.Log.Partitions, 1, mostPartitions)
	optionerr.WithinOrZero(bad, "event-log-flush-interval", o.Log.FlushInterval, time.Microsecond, time.Minute, "the default")
	optionerr.Within(bad, "state-write-delay", o.State.WriteDelay, time.Millisecond, longest)
	for flag, n := range map[string]uint64{
		"event-log-keep-bytes": o.State.KeepLog, "min-free-disk": o.Log.MinFree, "state-dirty-bytes": o.State.MaxDirty,
		"state-replay-bytes": o.State.MaxReplay,
	} {
		optionerr.Within(bad, flag, n, 1, mostDisk)
	}
	f := &o.EventFile
	if f.Path != "" {
		if err := checkFile(f.Path); err != nil {
			bad.Add("event-log-file", "%w", err)
		}
	}
	optionerr.Within(bad, "event-log-buffer-size", f.Queue, 1, 10_000_000)
	optionerr.WithinOrZero(bad, "event-log-max-bytes", f.MaxBytes, 1<<20, mostDisk, "any size")
	optionerr.WithinOrZero(bad, "event-log-max-age", f.MaxAge, time.Minute, longest, "any age")
	optionerr.Within(bad, "event-log-keep", f.Keep, 1, 10_000)
	optionerr.Within(bad, "memory-limit", o.MemoryLimit, LeastMemoryLimit, MostMemoryLimit)
	optionerr.WithinOrZero(bad, "state-history-age", o.State.HistoryAge, time.Second, longest, "none")
	optionerr.Within(bad, "audit-log-age", o.Audit.MaxAge, time.Second, longest)
	optionerr.Within(bad, "trace-age", o.Trace.MaxAge, time.Second, longest)
	optionerr.Within(bad, "trace-bytes", o.Trace.MaxBytes, 1, mostDisk)
	optionerr.Within(bad, "platform-metrics-logging-interval", o.Platform.Interval, time.Second, longest)
	optionerr.Within(bad, "notification-age", o.Notification.MaxAge, time.Second, longest)
	optionerr.Within(bad, "notification-bytes", o.Notification.MaxBytes, 1, mostDisk)
	optionerr.WithinOrZero(bad, "trace-sample", o.Trace.Sample, 1, 1<<30, "none")
}

func (o *Options) checkHandlers(bad *optionerr.List) {
	optionerr.Within(bad, "handler-workers", o.Handler.Workers, 1, 10_000)
	optionerr.Within(bad, "handler-queue", o.Handler.QueueSize, 1, 10_000_000)
	optionerr.WithinOrZero(bad, "handler-queue-disk", o.Handler.QueueDisk, 1000, 1_000_000_000, "any number")
	optionerr.WithinOrZero(bad, "handler-failing-after", o.HandlerFailingAfter, time.Second, 30*24*time.Hour, "no events")
	optionerr.Within(bad, "handler-processes", o.Send.MaxProcesses, 1, 10_000)
	optionerr.Within(bad, "expression-memory", o.Expressions.Memory, 16<<20, mostMemory)
	for _, name := range o.Send.PassEnv {
		if name == "" || strings.ContainsAny(name, "= ") {
			bad.Add("handler-env", "%q is not the name of a variable", name)
		}
	}
	for _, typ := range o.Send.Types {
		optionerr.OneOf(bad, "allowed-handler-types", typ, resource.HandlerTypes...)
	}
	for _, dir := range o.Send.SecretDirs {
		if !filepath.IsAbs(dir) {
			bad.Add("handler-secret-dirs", "%q is not an absolute path", dir)
		}
	}
}

func (o *Options) checkQuotas(bad *optionerr.List) {
	q := &o.Intake.Quotas
	for flag, n := range map[string]int64{
		"agent-quota-entities": q.AgentEntities, "agent-quota-bytes": q.AgentBytes, "agent-quota-events": q.AgentEvents,
		"namespace-quota-entities": q.NamespaceEntities, "namespace-quota-bytes": q.NamespaceBytes, "namespace-quota-events": q.NamespaceEvents,
	} {
		optionerr.WithinOrZero(bad, flag, n, 1, mostDisk, "no bound")
	}
}
