package backend

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/schedule/timetable"
)

// check finds options that cannot work, all of them, before anything is opened. Messages name the flags, which are what
// an operator has set.
func (o *Options) check() error {
	var errs []error
	bad := func(flag, format string, args ...any) {
		errs = append(errs, fmt.Errorf("--"+flag+": "+format, args...))
	}
	if o.StateDir == "" {
		bad("state-dir", "a directory is required")
	}
	for flag, address := range map[string]string{"api-listen-address": o.APIListenAddress, "pprof-listen-address": o.Pprof} {
		if address == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			bad(flag, "%q is not like [::]:8080: %w", address, err)
		}
	}
	if o.AgentPort > 65535 {
		bad("agent-port", "%d is not a port: ports end at 65535", o.AgentPort)
	}
	if o.AgentSpread > time.Minute || o.AgentSpread%(10*time.Millisecond) != 0 && o.AgentSpread > 0 {
		bad("agent-spread", "%v is longer than 1m or not a multiple of 10ms", o.AgentSpread)
	}
	if o.AgentReadDelay > 100*time.Millisecond {
		bad("agent-read-delay", "%v is longer than 100ms", o.AgentReadDelay)
	}
	if _, err := timetable.ParseHash(o.PhaseHash); err != nil {
		bad("phase-hash", "%w", err)
	}
	switch o.PasswordHash {
	case "", auth.Bcrypt, auth.Argon2id:
	default:
		bad("password-hash", "%q is not known: use %s or %s", o.PasswordHash, auth.Bcrypt, auth.Argon2id)
	}
	if o.AdminAPIKey != "" {
		if _, err := uuid.Parse(o.AdminAPIKey); err != nil {
			bad("cluster-admin-api-key", "it is not a UUID: %w", err)
		}
	}
	if o.AccessLifetime != 0 && o.AccessLifetime < time.Second {
		bad("access-token-lifetime", "%v is shorter than 1s", o.AccessLifetime)
	}
	access := cmp.Or(o.AccessLifetime, 5*time.Minute)
	if o.RefreshLifetime != 0 && o.RefreshLifetime < access {
		bad("refresh-token-lifetime", "%v is shorter than --access-token-lifetime, %v", o.RefreshLifetime, access)
	}
	if o.ProviderGroupsAge != 0 && o.ProviderGroupsAge < time.Hour {
		bad("provider-groups-age", "%v is shorter than 1h", o.ProviderGroupsAge)
	}
	if (o.JWTPrivateKeyFile == "") != (o.JWTPublicKeyFile == "") {
		bad("jwt-private-key-file", "it needs --jwt-public-key-file, and that needs it")
	}
	o.checkSizes(bad)
	o.TLS.check(bad)
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// checkSizes refuses negative sizes and times where less than nothing has no meaning.
func (o *Options) checkSizes(bad func(flag, format string, args ...any)) {
	for flag, n := range map[string]int64{
		"api-request-limit": o.APIRequestLimit, "agent-max-message": o.AgentMaxMessage, "agent-queue": int64(o.AgentQueue),
		"event-log-partitions": int64(o.Partitions), "handler-workers": int64(o.HandlerWorkers), "handler-queue": int64(o.HandlerQueue),
		"handler-processes": int64(o.HandlerProcesses), "assets-burst-limit": int64(o.AssetsBurstLimit),
	} {
		if n < 0 {
			bad(flag, "%d is negative", n)
		}
	}
	for flag, d := range map[string]time.Duration{
		"api-write-timeout": o.APIWriteTimeout, "event-log-flush-interval": o.FlushInterval, "state-write-delay": o.WriteDelay,
		"audit-log-age": o.AuditAge, "trace-age": o.TraceAge, "proxy-entity-ttl": o.ProxyTTL, "orphan-ttl": o.OrphanTTL,
		"default-silenced-expiry-time": o.DefaultSilence, "max-silenced-expiry-time-allowed": o.MaxSilence,
		"assets-mirror-age": o.AssetsMirrorAge,
	} {
		if d < 0 {
			bad(flag, "%v is negative", d)
		}
	}
}
