package backend

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/internal/clientaddr"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
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
// optionerr.Error: they name the flags, which an operator has set. 0 stands for the default and is never an error.
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
	return bad.Err()
}

func (o *Options) checkAddresses(bad *optionerr.List) {
	for flag, address := range map[string]string{"api-listen-address": o.APIListenAddress, "pprof-listen-address": o.Pprof} {
		if address == "" {
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
	if o.AgentPort > 0 { // a negative one means any free port
		optionerr.Port(bad, "agent-port", o.AgentPort)
	}
	if _, err := clientaddr.Parse(o.TrustedProxies); err != nil {
		bad.Add("trusted-proxies", "%w", err)
	}
	optionerr.Within(bad, "api-request-limit", o.APIRequestLimit, 1, 1<<30)
	optionerr.Within(bad, "api-write-timeout", o.APIWriteTimeout, time.Millisecond, longestTimeout)
	optionerr.Within(bad, "agent-max-connections", o.AgentMaxConnections, 1, mostConns)
	optionerr.Within(bad, "agent-max-connections-per-address", o.AgentMaxPerAddress, 1, mostConns)
	optionerr.Within(bad, "api-max-connections", o.APIMaxConnections, 1, mostConns)
	optionerr.Within(bad, "api-max-connections-per-address", o.APIMaxPerAddress, 1, mostConns)
}

func (o *Options) checkAccess(bad *optionerr.List) {
	optionerr.OneOf(bad, "password-hash", cmp.Or(o.PasswordHash, auth.Bcrypt), auth.Bcrypt, auth.Argon2id)
	if o.AdminAPIKey != "" {
		if _, err := uuid.Parse(o.AdminAPIKey); err != nil {
			bad.Add("cluster-admin-api-key", "it is not a UUID: %w", err)
		}
	}
	optionerr.Within(bad, "access-token-lifetime", o.AccessLifetime, time.Second, longest)
	optionerr.Within(bad, "refresh-token-lifetime", o.RefreshLifetime, time.Second, longest)
	access := cmp.Or(o.AccessLifetime, 5*time.Minute)
	if o.RefreshLifetime > 0 && o.RefreshLifetime < access {
		bad.Add("refresh-token-lifetime", "%v is shorter than --access-token-lifetime, %v", o.RefreshLifetime, access)
	}
	optionerr.Within(bad, "provider-groups-age", o.ProviderGroupsAge, time.Hour, longest)
	optionerr.Within(bad, "directory-max-wrong-passwords", o.DirectoryGuesses, 1, mostGuesses)
	if (o.JWTPrivateKeyFile == "") != (o.JWTPublicKeyFile == "") {
		bad.Add("jwt-private-key-file", "it needs --jwt-public-key-file, and that needs it")
	}
	if o.AuditFile != "" {
		if err := checkFile(o.AuditFile); err != nil {
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
	optionerr.Within(bad, "agent-idle-timeout", o.AgentIdleTimeout, time.Millisecond, 30*24*time.Hour)
	optionerr.Within(bad, "agent-message-timeout", o.AgentMessageTimeout, time.Millisecond, longestTimeout)
	optionerr.Within(bad, "agent-partial-bytes", o.AgentPartialBytes, 1, mostMemory)
	optionerr.Within(bad, "agent-max-message", o.AgentMaxMessage, 1, 1<<30)
	optionerr.Within(bad, "agent-queue", o.AgentQueue, 1, 1_000_000)
	if o.AgentSpread > time.Minute || o.AgentSpread%(10*time.Millisecond) != 0 && o.AgentSpread > 0 {
		bad.Add("agent-spread", "%v is longer than 1m or not a multiple of 10ms", o.AgentSpread)
	}
	if o.AgentReadDelay > 100*time.Millisecond {
		bad.Add("agent-read-delay", "%v is longer than 100ms", o.AgentReadDelay)
	}
	optionerr.OneOf(bad, "phase-hash", cmp.Or(o.PhaseHash, "md5"), "md5", "sha256")
	optionerr.Within(bad, "assets-rate-limit", o.AssetsRateLimit, 1e-6, 1e6)
	optionerr.Within(bad, "assets-burst-limit", o.AssetsBurstLimit, 1, 1_000_000)
	if o.AssetsMirrorBytes > 0 {
		optionerr.Within(bad, "assets-mirror-bytes", o.AssetsMirrorBytes, 1, mostDisk)
	}
	optionerr.Within(bad, "assets-mirror-age", o.AssetsMirrorAge, time.Millisecond, longest)
	for flag, d := range map[string]time.Duration{
		"proxy-entity-ttl": o.ProxyTTL, "orphan-ttl": o.OrphanTTL, "default-silenced-expiry-time": o.DefaultSilence,
		"max-silenced-expiry-time-allowed": o.MaxSilence,
	} {
		optionerr.Within(bad, flag, d, time.Second, longest)
	}
}

func (o *Options) checkStorage(bad *optionerr.List) {
	optionerr.Within(bad, "event-log-partitions", o.Partitions, 1, mostPartitions)
	optionerr.Within(bad, "event-log-flush-interval", o.FlushInterval, time.Microsecond, time.Minute)
	optionerr.Within(bad, "state-write-delay", o.WriteDelay, time.Millisecond, longest)
	for flag, n := range map[string]uint64{
		"event-log-keep-bytes": o.KeepLog, "min-free-disk": o.MinFreeDisk, "state-dirty-bytes": o.MaxDirty, "state-replay-bytes": o.MaxReplay,
		"trace-bytes": o.TraceBytes,
	} {
		optionerr.Within(bad, flag, n, 1, mostDisk)
	}
	optionerr.Within(bad, "memory-limit", o.MemoryLimit, LeastMemoryLimit, MostMemoryLimit)
	if o.HistoryAge > 0 {
		optionerr.Within(bad, "state-history-age", o.HistoryAge, time.Second, longest)
	}
	optionerr.Within(bad, "audit-log-age", o.AuditAge, time.Second, longest)
	optionerr.Within(bad, "trace-age", o.TraceAge, time.Second, longest)
	if o.TraceSample > 0 {
		optionerr.Within(bad, "trace-sample", o.TraceSample, 1, 1<<30)
	}
}

func (o *Options) checkHandlers(bad *optionerr.List) {
	optionerr.Within(bad, "handler-workers", o.HandlerWorkers, 1, 10_000)
	optionerr.Within(bad, "handler-queue", o.HandlerQueue, 1, 10_000_000)
	optionerr.Within(bad, "handler-processes", o.HandlerProcesses, 1, 10_000)
	optionerr.Within(bad, "expression-memory", o.ExpressionMemory, 16<<20, mostMemory)
	for _, name := range o.HandlerEnv {
		if name == "" || strings.ContainsAny(name, "= ") {
			bad.Add("handler-env", "%q is not the name of a variable", name)
		}
	}
	for _, typ := range o.HandlerTypes {
		optionerr.OneOf(bad, "allowed-handler-types", typ, resource.HandlerTypes...)
	}
	for _, dir := range o.HandlerSecretDirs {
		if !filepath.IsAbs(dir) {
			bad.Add("handler-secret-dirs", "%q is not an absolute path", dir)
		}
	}
}

func (o *Options) checkQuotas(bad *optionerr.List) {
	q := &o.Quotas
	for flag, n := range map[string]int64{
		"agent-quota-entities": q.AgentEntities, "agent-quota-bytes": q.AgentBytes, "agent-quota-events": q.AgentEvents,
		"namespace-quota-entities": q.NamespaceEntities, "namespace-quota-bytes": q.NamespaceBytes, "namespace-quota-events": q.NamespaceEvents,
	} {
		if n > 0 { // a negative one means no bound
			optionerr.Within(bad, flag, n, 1, mostDisk)
		}
	}
}
