//go:build !agentonly

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client/load"
	"github.com/lapwing-monitoring/lapwing/client/load/points"
	"github.com/lapwing-monitoring/lapwing/internal/duration"
)

// loadPointsCommand sends Graphite points as a fleet does.
func loadPointsCommand() *cobra.Command {
	var o points.Options
	var verify, metrics, rules string
	var settle time.Duration
	cmd := &cobra.Command{
		Use:   "points",
		Short: "Send Graphite points as a fleet of hosts does, and check that the server has all of them",
		Long: `Connect one TCP connection for each host to a carbon listener, lapwing's or another server's, and send the hosts'
metrics in plaintext: each host all its metrics in each interval, or with --unpaced as fast as the server takes them.

With --verify all values are read back through Graphite's /render and compared; the exit status is 1 if one is missing or
different. The server must store the series with a step of --interval. With --aggregates the sums over all hosts are compared,
too; --write-aggregation-rules writes the rules that the server needs for them, and sends nothing. A server computes a sum
after the end of its interval, and with --aggregate-like-carbon once more an interval later: so --settle is longer then.
With --metrics-url the server's CPU time and memory are read from its Prometheus metrics before and after.`,
		Example: `  lapwing load points --address 127.0.0.1:2003 --duration 5m --verify http://127.0.0.1:8888
  lapwing load points --aggregates 5 --write-aggregation-rules aggregation-rules.conf
  lapwing load points --aggregates 5 --verify http://127.0.0.1:8888
  lapwing load points --unpaced --duration 30s --metrics-url http://127.0.0.1:8080/metrics`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			if rules != "" {
				lines, err := o.AggregationRules()
				if err != nil {
					return err
				}
				return os.WriteFile(rules, []byte(lines), 0o644)
			}
			o.Progress = cmd.ErrOrStderr()
			before, err := readUse(ctx, metrics)
			if err != nil {
				return err
			}
			mine := load.ProcessCPU()
			r, err := points.Run(ctx, o)
			if err != nil {
				return err
			}
			mine = load.ProcessCPU() - mine
			after, err := readUse(context.WithoutCancel(ctx), metrics)
			if err != nil {
				return err
			}
			printPoints(cmd.OutOrStdout(), r, mine, before, after)
			if verify == "" {
				return nil
			}
			if o.Aggregates > 0 && !cmd.Flags().Changed("settle") {
				settle = 2*o.Interval + 5*time.Second
			}
			time.Sleep(settle)
			check, err := points.Verify(cmd.Context(), verify, r)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), check)
			if !check.OK() {
				return errors.New("the server does not have what was sent")
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Address, "address", "127.0.0.1:2003", "carbon's plaintext listener, HOST:PORT")
	f.IntVar(&o.Hosts, "hosts", 1000, "number of hosts, each with one connection")
	f.IntVar(&o.Metrics, "metrics", 250, "metrics of each host")
	f.Var(duration.New(10*time.Second, &o.Interval), "interval", "time between two values of a metric")
	f.Var(duration.New(time.Minute, &o.Duration), "duration", "how long to send")
	f.BoolVar(&o.Unpaced, "unpaced", false, "send as fast as the server takes points; timestamps begin --ago and stay --interval apart, until they reach the present")
	f.Var(duration.New(time.Hour, &o.Ago), "ago", "how long before now the timestamps of an --unpaced run begin")
	f.IntVar(&o.Senders, "senders", 8, "goroutines that send with --unpaced")
	f.StringVar(&o.Prefix, "prefix", "load", "first node of the names")
	f.IntVar(&o.Aggregates, "aggregates", 0, "sums over all hosts that the server computes, of the first metrics")
	f.StringVar(&rules, "write-aggregation-rules", "",
		"write the aggregation rules for --aggregates to this file, and end")
	f.StringVar(&verify, "verify", "", "URL of the server's Graphite API: read all values back and compare them")
	f.Var(duration.New(time.Second, &settle), "settle",
		"time between the last point and --verify; with --aggregates two intervals and 5s by default")
	f.StringVar(&metrics, "metrics-url", "", "URL of the server's Prometheus metrics, for its CPU and memory")
	return cmd
}

// use is a process's CPU seconds and resident bytes.
type use struct{ cpu, rss float64 }

// readUse reads them from a server's metrics; without a URL they are 0.
func readUse(ctx context.Context, url string) (use, error) {
	if url == "" {
		return use{}, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return use{}, fmt.Errorf("--metrics-url: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return use{}, fmt.Errorf("read %s: %w", url, err)
	}
	defer res.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(res.Body, 32<<20))
	if err != nil {
		return use{}, fmt.Errorf("read %s: %w", url, err)
	}
	var u use
	for _, m := range families["process_cpu_seconds_total"].GetMetric() {
		u.cpu = m.GetCounter().GetValue()
	}
	for _, m := range families["process_resident_memory_bytes"].GetMetric() {
		u.rss = m.GetGauge().GetValue()
	}
	return u, nil
}

func printPoints(w io.Writer, r *points.Result, mine time.Duration, before, after use) {
	seconds := r.Elapsed.Seconds()
	fmt.Fprintf(w, "%d points in %.1f s: %.0f points/s, %.1f MB/s; load tool %.2f µs of CPU a point", r.Points, seconds,
		float64(r.Points)/seconds, float64(r.Bytes)/seconds/1e6, mine.Seconds()*1e6/float64(max(r.Points, 1)))
	if after.cpu > 0 {
		fmt.Fprintf(w, "; server %.2f µs of CPU a point, %.2f cores, %.0f MiB",
			(after.cpu-before.cpu)*1e6/float64(max(r.Points, 1)),
			(after.cpu-before.cpu)/seconds, after.rss/(1<<20))
	}
	if !r.Options.Unpaced {
		fmt.Fprintf(w, "; latest round %v behind", r.Late.Round(time.Millisecond))
	}
	fmt.Fprintln(w)
	if r.Failed > 0 {
		fmt.Fprintf(w, "%d connections ended early; the first: %v\n", r.Failed, r.Err)
	}
}
