package main

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/agent"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// check finds options that cannot work, all of them. The agent refuses them too, one by one and by other names.
func (f *agentFlags) check() error {
	var errs []error
	bad := func(flag, format string, args ...any) {
		errs = append(errs, fmt.Errorf("--"+flag+": "+format, args...))
	}
	o := &f.opts
	if o.Name != "" && !resource.ValidName(o.Name) {
		bad("name", "%q holds characters that no name may have", o.Name)
	}
	for _, text := range o.BackendURLs {
		if u, err := url.Parse(text); err != nil || u.Scheme != "ws" && u.Scheme != "wss" || u.Host == "" {
			bad("backend-url", "%q is not like ws://host:8081 or wss://host:8081", redacted(u, text))
		}
	}
	for flag, port := range map[string]int{"api-port": f.apiPort, "socket-port": f.socketPort, "statsd-metrics-port": f.statsdPort} {
		if port < 0 || port > 65535 {
			bad(flag, "%d is not a port: ports are 0, for any free one, to 65535", port)
		}
	}
	for flag, n := range map[string]float64{
		"backend-handshake-timeout": float64(f.handshake), "backend-heartbeat-interval": float64(f.heartbeat), "backend-heartbeat-timeout": float64(f.heartbeatTimeout),
		"keepalive-interval": float64(f.interval), "max-concurrent-checks": float64(o.MaxConcurrency), "buffer-events": float64(o.BufferEvents),
		"buffer-bytes": float64(o.BufferBytes), "events-rate-limit": o.Local.Rate, "statsd-flush-interval": float64(f.statsdFlush),
	} {
		if n < 0 {
			bad(flag, "%v is negative", n)
		}
	}
	for flag, d := range map[string]time.Duration{"retry-min": o.RetryMin, "retry-max": o.RetryMax, "max-session-length": o.MaxSession} {
		if d < 0 {
			bad(flag, "%v is negative", d)
		}
	}
	if o.RetryMultiplier != 0 && o.RetryMultiplier < 1 {
		bad("retry-multiplier", "%v is less than 1", o.RetryMultiplier)
	}
	f.checkKeepalive(bad)
	if _, err := agent.ParseLimits(f.limits); err != nil {
		bad("check-limits", "%w", err)
	}
	if (f.cert == "") != (f.key == "") {
		bad("cert-file", "a certificate and --key-file must come together")
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// checkKeepalive compares the times of keepalives, as Sensu's agent does. 0 stands for the default.
func (f *agentFlags) checkKeepalive(bad func(flag, format string, args ...any)) {
	warning, critical := f.warning, f.critical
	if warning == 0 {
		warning = 120
	}
	if warning < 5 || int(warning) <= f.interval {
		bad("keepalive-warning-timeout", "%d must be at least 5 and more than --keepalive-interval, %d", warning, f.interval)
	}
	if critical != 0 && (critical < 5 || critical < warning) {
		bad("keepalive-critical-timeout", "%d must be at least 5 and not less than --keepalive-warning-timeout, %d; 0 is never", critical, warning)
	}
}

// redacted is a URL without its password.
func redacted(u *url.URL, text string) string {
	if u == nil {
		return text
	}
	return u.Redacted()
}
