//go:build !agentonly

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/telemetry"
)

// backendProgram says where the backend's settings are. Sensu's variables work too.
var backendProgram = program{
	prefixes: []string{"LAPWING_BACKEND_", "SENSU_BACKEND_"}, file: defaultBackendFile, sensu: sensuBackendKeys,
}

// liveBackendFlags are those that SIGHUP changes. All others need a new start.
var liveBackendFlags = []string{
	"agent-auth-cert-file", "agent-auth-key-file", "agent-auth-trusted-ca-file", "api-request-limit", "cert-file",
	"default-silenced-expiry-time", "key-file", "log-level", "max-silenced-expiry-time-allowed", "min-free-disk",
	"trusted-ca-file",
}

// backendStopTimeout is below the minute that the unit for systemd gives the process.
const backendStopTimeout = 50 * time.Second

// backendZeros are the backend's flags for numbers and times that take 0. Their help says what 0 does.
var backendZeros = append([]string{
	"agent-max-connections", "agent-max-connections-per-address", "agent-partial-bytes", "agent-port", "agent-quota-bytes",
	"agent-quota-entities", "agent-quota-events", "agent-read-delay", "agent-spread", "api-max-connections",
	"api-max-connections-per-address", "api-request-limit", "api-write-timeout", "assets-burst-limit",
	"assets-mirror-bytes",
	"assets-rate-limit", "default-silenced-expiry-time", "event-log-flush-interval", "event-log-max-age", "event-log-max-bytes",
	"event-log-partitions", "handler-failing-after", "handler-queue-disk",
	"max-silenced-expiry-time-allowed", "memory-limit", "namespace-quota-bytes", "namespace-quota-entities",
	"namespace-quota-events", "nats-replicas", "orphan-ttl", "postgres-changes-retention", "postgres-events-retention",
	"postgres-notifications-retention", "proxy-entity-ttl", "state-history-age", "trace-sample",
}, metricZeros...)

// backendSettings are the backend's options as flags.
type backendSettings struct {
	opts              backend.Options
	logLevel, logForm *string
	level             slog.LevelVar
	flags             *pflag.FlagSet
	told              map[string]bool // what logNotices has said
}

func (s *backendSettings) register(f *pflag.FlagSet) {
	s.flags = f
	s.logLevel, s.logForm = backendFlags(f, &s.opts)
}

// load fills the options from the flags, the environment and the file.
func (s *backendSettings) load(cmd *cobra.Command) error {
	notices, err := settings(cmd.Flags(), backendProgram)
	if err = withSources(errors.Join(err, s.check()), cmd.Flags()); err != nil {
		return err
	}
	if err := s.finish(os.Stderr, cmd.OutOrStdout()); err != nil {
		return err
	}
	s.told = logNotices(s.opts.Logger, notices, nil)
	return nil
}

// check is part of options: what the flags do not take, and then what the backend does not take.
func (s *backendSettings) check() error {
	var bad optionerr.List
	refuseZero(&bad, s.flags, backendZeros)
	refuseEmpty(&bad, s.flags, "handler-secret-dirs")
	if _, err := telemetry.ParseLevel(*s.logLevel); err != nil {
		optionerr.OneOf(&bad, "log-level", *s.logLevel, logLevels...)
	}
	optionerr.OneOf(&bad, "log-format", *s.logForm, "text", "json")
	bad.Include(s.opts.Check())
	return bad.Err()
}

// finish makes of checked flags what the backend takes.
func (s *backendSettings) finish(logTo, out io.Writer) error {
	level, err := telemetry.ParseLevel(*s.logLevel)
	if err != nil {
		return err
	}
	s.level.Set(level)
	o := &s.opts
	levels := telemetry.NewLevels(&s.level)
	if o.Logger, err = telemetry.LoggerOf(logTo, levels, *s.logForm); err != nil {
		return err
	}
	o.LogLevels = levels
	o.Version = version
	o.Announce = func(username, password string) {
		fmt.Fprintf(out, "The administrator is %q with the password %q. It is not shown again.\n", username, password)
	}
	return nil
}

// runBackend runs the backend until ctx ends or it fails. It reads its settings again when it is told to.
func runBackend(ctx context.Context, flags *pflag.FlagSet, s *backendSettings, reload <-chan os.Signal) error {
	log := s.opts.Logger
	opts := s.opts // a reload compares what the settings say
	opts.MemoryLimit = limitMemory(opts.MemoryLimit)
	b, err := backend.New(opts)
	if err != nil {
		return withSources(err, flags)
	}
	room := int64(headroom)
	if len(opts.Cluster.Peers) > 0 {
		room = memberHeadroom
	}
	defer tuneCollector(room)()
	if err := withSources(startBackend(ctx, b), flags); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			log.Info("backend was stopped while it was starting", "at", b.Starting())
			return nil
		}
		return err
	}
	for running := true; running; {
		select {
		case <-reload:
			reloadBackend(ctx, b, flags, s)
		case <-b.Done():
			log.Error("backend cannot go on and is stopping", "err", b.Err())
			running = false
		case <-ctx.Done():
			log.Info("backend is stopping")
			running = false
		}
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), backendStopTimeout)
	defer cancel()
	return errors.Join(b.Err(), b.Stop(stopping))
}

// startBackend starts the backend, and does not wait for ever for a start that a signal does not end.
func startBackend(ctx context.Context, b *backend.Backend) error {
	started := make(chan error, 1)
	go func() { started <- b.Start(ctx) }()
	select {
	case err := <-started:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-started:
		return err
	case <-time.After(backendStopTimeout):
		return fmt.Errorf("the start did not end within %v of the signal to stop; it was at: %s", backendStopTimeout,
			b.Starting())
	}
}

// reloadBackend reads the settings again and takes over those that can change. It checks all of them as a start does.
// On an error the old ones stay in use, all of them.
func reloadBackend(ctx context.Context, b *backend.Backend, was *pflag.FlagSet, s *backendSettings) {
	log := s.opts.Logger
	var next backendSettings
	flags, notices, err := readArgs(os.Args[1:], &next, backendProgram)
	if err == nil {
		err = next.finish(io.Discard, io.Discard)
	}
	if err == nil {
		err = withSources(b.Reload(ctx, next.opts), flags)
	}
	if err != nil {
		logRefused(log, err)
		return
	}
	s.level.Set(next.level.Level())
	s.told = logNotices(log, notices, s.told)
	args := []any{"log_level", *next.logLevel}
	if keys := needStart(was, flags); len(keys) > 0 {
		args = append(args, "need_a_new_start", keys)
	}
	log.Info("settings reloaded", args...)
}

// needStart names the settings that differ and cannot change while the backend runs.
func needStart(was, now *pflag.FlagSet) (keys []string) {
	now.VisitAll(func(f *pflag.Flag) {
		old := was.Lookup(f.Name)
		if old != nil && old.Value.String() != f.Value.String() && !slices.Contains(liveBackendFlags, f.Name) {
			keys = append(keys, f.Name)
		}
	})
	return keys
}
