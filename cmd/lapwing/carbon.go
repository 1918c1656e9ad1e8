//go:build !agentonly

package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lapwing-monitoring/lapwing/internal/flaggroup"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/metric"
	"github.com/lapwing-monitoring/lapwing/telemetry"
)

const defaultCarbonFile = "/etc/lapwing/carbon.yml"

// carbonProgram says where the settings of `lapwing carbon` are.
var carbonProgram = program{prefixes: []string{"LAPWING_CARBON_"}, file: defaultCarbonFile}

// carbonSettings are the settings of `lapwing carbon`.
type carbonSettings struct {
	metric.Options
	metrics             string // address of its own metrics; "" for none
	logLevel, logFormat string
	memory              int64
}

// register maps flags onto the settings, which also have the defaults.
func (c *carbonSettings) register(f *pflag.FlagSet) {
	c.Options = metric.DefaultOptions()
	c.LineAddress, c.PickleAddress, c.QueryAddress = "127.0.0.1:2003", "127.0.0.1:2004", "127.0.0.1:8888"
	f.StringP("config-file", "c", carbonProgram.file, "YAML file with these flags' names as keys")
	f.StringVarP(&c.Dir, "state-dir", "d", "/var/lib/lapwing/carbon", "directory for everything that the server keeps")
	f.Int64Var(&c.memory, "memory-limit", 0,
		"soft limit of the process's memory, in bytes; 0 for three quarters of the memory of the machine or control group")
	f.StringVar(&c.metrics, "metrics-listen-address", "",
		"address of the server's own metrics for Prometheus, and of Go's profiles; none if empty")
	flaggroup.Set(f, "General")
	metricFlags(f, &c.Options)
	f.StringVar(&c.logLevel, "log-level", "info", "trace, debug, info, warn, error or fatal")
	f.StringVar(&c.logFormat, "log-format", "text", "text or json")
	flaggroup.Set(f, "Logging")
}

// carbonCommand runs the metrics half alone.
func carbonCommand() *cobra.Command {
	var o carbonSettings
	cmd := &cobra.Command{
		Use:   "carbon",
		Short: "Run a Graphite server alone: carbon in, Graphite and Prometheus queries out",
		Long: `Take points by carbon's protocols, store them, and answer queries of Graphite and Prometheus clients such as Grafana. It is
the metrics half of "lapwing backend" without agents and sign-in. With --relay-destinations it is a relay, too, and with
--relay-only nothing else.`,
		Example: `  lapwing carbon --state-dir /var/lib/lapwing/carbon
  lapwing carbon --storage-schemas-file /etc/carbon/storage-schemas.conf --carbon-listen-address 0.0.0.0:2003
  lapwing carbon --relay-only --relay-destinations 10.0.0.1:2004:a,10.0.0.2:2004:a`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			notices, err := settings(cmd.Flags(), carbonProgram)
			var bad optionerr.List
			refuseZero(&bad, cmd.Flags(), slices.Concat(metricZeros, []string{"memory-limit"}))
			if _, err := telemetry.ParseLevel(o.logLevel); err != nil {
				optionerr.OneOf(&bad, "log-level", o.logLevel, logLevels...)
			}
			optionerr.OneOf(&bad, "log-format", o.logFormat, "text", "json")
			o.Check(&bad)
			if err := withSources(errors.Join(err, bad.Err()), cmd.Flags()); err != nil {
				return err
			}
			level, err := telemetry.ParseLevel(o.logLevel)
			if err != nil {
				return err
			}
			var at slog.LevelVar
			at.Set(level)
			if o.Logger, err = telemetry.LoggerAt(os.Stderr, &at, o.logFormat); err != nil {
				return err
			}
			logNotices(o.Logger, notices, nil)
			limit := limitMemory(o.memory)
			if o.Store.MemoryLimit == 0 {
				o.Store.MemoryLimit = limit * 2 / 3
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return runCarbon(ctx, o.Options, o.metrics)
		},
	}
	cmd.AddCommand(importWhisperCommand(), exportWhisperCommand())
	o.register(cmd.Flags())
	return cmd
}

// runCarbon runs the metrics half until ctx ends.
func runCarbon(ctx context.Context, o metric.Options, metrics string) (err error) {
	registry := telemetry.RegistryFor(version)
	o.Registerer, o.Version = registry, version
	if name, err := os.Hostname(); err == nil {
		o.SelfHost = name
	}
	s, err := metric.New(o)
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), backendStopTimeout)
		defer cancel()
		err = errors.Join(err, s.Stop(end))
	}()
	if metrics != "" {
		stop, err := serveMetrics(metrics, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
		if err != nil {
			return err
		}
		defer stop()
	}
	if err := s.Start(ctx); err != nil {
		return err
	}
	o.Logger.Info("the carbon server is ready", s.Ports()...)
	<-ctx.Done()
	o.Logger.Info("the carbon server is stopping")
	return nil
}

// serveMetrics answers /metrics, and Go's profiles, until stop.
func serveMetrics(address string, h http.Handler) (stop func(), err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, optionerr.Listen("--metrics-listen-address", address, err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", h)
	mux.Handle("/debug/pprof/", telemetry.PprofHandler())
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // it ends by Close
	}()
	return func() {
		_ = srv.Close()
		<-done
	}, nil
}
