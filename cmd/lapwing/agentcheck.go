package main

import (
	"cmp"
	"net/url"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/agent"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/telemetry"
)

// agentZeros are the agent's flags for numbers and times that take 0. Their help says what 0 does.
var agentZeros = []string{
	"api-port", "assets-burst-limit", "assets-rate-limit", "backend-handshake-timeout", "backend-heartbeat-interval",
	"backend-heartbeat-timeout", "batch-delay", "buffer-age", "events-burst-limit", "events-rate-limit",
	"keepalive-critical-timeout",
	"keepalive-interval", "keepalive-timeout", "keepalive-warning-timeout", "max-session-length", "retry-max", "retry-min",
	"retry-multiplier",
	"socket-port", "statsd-flush-interval", "statsd-metrics-port",
}

// longestAge bounds ages and times between events, so that no sum of times overflows.
const longestAge = 100 * 365 * 24 * time.Hour

// check is part of options: it finds the values that cannot work, all of them, before anything is opened.
func (f *agentFlags) check() error {
	var bad optionerr.List
	refuseZero(&bad, f.flags, agentZeros)
	mayBeEmpty := []string{}
	if f.cert != "" { // then no password is sent
		mayBeEmpty = append(mayBeEmpty, "user", "password")
	}
	refuseEmpty(&bad, f.flags, mayBeEmpty...)
	o := &f.opts
	for flag, name := range map[string]string{"name": o.Name, "id": f.id} {
		if name != "" && !resource.ValidName(name) {
			bad.Add(flag, "%q is longer than %d bytes or holds characters that no name may have", resource.Short(name),
				resource.MaxName)
		}
	}
	if len(o.Namespace) > resource.MaxName {
		bad.Add("namespace", "it is longer than %d bytes", resource.MaxName)
	}
	for _, text := range o.BackendURLs {
		if u, err := url.Parse(text); err != nil || u.Scheme != "ws" && u.Scheme != "wss" || u.Host == "" {
			bad.Add("backend-url", "%q is not like ws://host:8081 or wss://host:8081", redacted(u, text))
		}
	}
	f.checkListeners(&bad)
	f.checkTimes(&bad)
	f.checkKeepalive(&bad)
	optionerr.Within(&bad, "max-concurrent-checks", o.MaxConcurrency, 1, 100_000)
	optionerr.Within(&bad, "buffer-events", o.BufferEvents, 1, 1_000_000_000)
	optionerr.Within(&bad, "buffer-bytes", o.BufferBytes, 1, 1<<40)
	optionerr.Within(&bad, "assets-rate-limit", o.AssetsRateLimit, 1e-6, 1e6)
	optionerr.Within(&bad, "assets-burst-limit", o.AssetsBurstLimit, 1, 1_000_000)
	if _, err := agent.ParseLimits(f.limits); err != nil {
		bad.Add("check-limits", "%w", err)
	}
	if o.AllowList != "" {
		if err := agent.CheckAllowList(o.AllowList); err != nil {
			bad.Add("allow-list", "%w", err)
		}
	}
	if (f.cert == "") != (f.key == "") {
		bad.Add("cert-file", "a certificate and --key-file must come together")
	}
	if _, err := telemetry.ParseLevel(f.logLevel); err != nil {
		optionerr.OneOf(&bad, "log-level", f.logLevel, logLevels...)
	}
	optionerr.OneOf(&bad, "log-format", f.logFormat, "text", "json")
	return bad.Err()
}

// checkListeners looks at what programs of the host connect to.
func (f *agentFlags) checkListeners(bad *optionerr.List) {
	for flag, host := range map[string]string{"api-host": f.apiHost, "socket-host": f.socketHost,
		"statsd-metrics-host": f.statsdHost} {
		if strings.ContainsAny(host, " /[]") {
			bad.Add(flag, "%q is neither a name nor an address", host)
		}
	}
	for flag, port := range map[string]int{"api-port": f.apiPort, "socket-port": f.socketPort,
		"statsd-metrics-port": f.statsdPort} {
		optionerr.Port(bad, flag, port)
	}
	optionerr.Within(bad, "events-rate-limit", f.opts.Local.Rate, 1e-6, 1e9)
	optionerr.Within(bad, "events-burst-limit", f.opts.Local.Burst, 1, 1_000_000_000)
	optionerr.Within(bad, "statsd-flush-interval", f.statsdFlush, 1, 24*60*60)
}

func (f *agentFlags) checkTimes(bad *optionerr.List) {
	const day = 24 * 60 * 60
	for flag, seconds := range map[string]int{
		"backend-handshake-timeout": f.handshake, "backend-heartbeat-interval": f.heartbeat,
		"backend-heartbeat-timeout": f.heartbeatTimeout,
	} {
		optionerr.Within(bad, flag, seconds, 1, day)
	}
	o := &f.opts
	for flag, d := range map[string]time.Duration{
		"retry-min": o.RetryMin, "retry-max": o.RetryMax, "max-session-length": o.MaxSession, "buffer-age": o.BufferAge,
	} {
		optionerr.Within(bad, flag, d, time.Millisecond, longestAge)
	}
	optionerr.Within(bad, "batch-delay", o.BatchDelay, time.Millisecond, time.Minute)
	optionerr.Within(bad, "retry-multiplier", o.RetryMultiplier, 1, 1000)
}

// checkKeepalive compares the times of keepalives, as Sensu's agent does. 0 stands for the default.
func (f *agentFlags) checkKeepalive(bad *optionerr.List) {
	const most = 365 * 24 * 60 * 60
	interval := cmp.Or(f.interval, 20)
	optionerr.Within(bad, "keepalive-interval", interval, 1, most)
	flag, warning := "keepalive-warning-timeout", cmp.Or(f.warning, 120)
	if f.oldTimeout != 0 {
		flag, warning = "keepalive-timeout", f.oldTimeout
	}
	switch {
	case warning > most:
		optionerr.Within(bad, flag, warning, 5, most)
	case warning < 5, int(warning) <= interval:
		bad.Add(flag, "%d must be at least 5 and more than --keepalive-interval, %d", warning, interval)
	}
	switch critical := f.critical; {
	case critical > most:
		optionerr.Within(bad, "keepalive-critical-timeout", critical, 5, most)
	case critical != 0 && (critical < 5 || critical < warning):
		bad.Add("keepalive-critical-timeout",
			"%d must be at least 5 and not less than --keepalive-warning-timeout, %d; 0 is never",
			critical, warning)
	}
}

// redacted is a URL without its password.
func redacted(u *url.URL, text string) string {
	if u == nil {
		return text
	}
	return u.Redacted()
}
