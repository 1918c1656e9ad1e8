//go:build !agentonly

package main

import (
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client/load/queries"
	"github.com/lapwing-monitoring/lapwing/internal/duration"
	"github.com/lapwing-monitoring/lapwing/internal/plainfile"
)

// loadQueriesCommand asks Graphite queries as dashboards do.
func loadQueriesCommand() *cobra.Command {
	var o queries.Options
	var file string
	cmd := &cobra.Command{
		Use:   "queries",
		Short: "Ask Graphite queries as dashboards do, and print how long the answers take",
		Long: `Open the dashboards of a file: each viewer loads one dashboard after the other, all its variables and graphs.
bench/dashboards/fleet.yaml, in the source, fits what lapwing load points --aggregates 5 sends with its default --hosts and
--metrics. For fewer hosts change hosts in the file. With --heavy that many queries of the file's heavy ones run all
the time beside them. The exit status is 1 if a request has no good answer.`,
		Example: `  lapwing load queries --file bench/dashboards/fleet.yaml --url http://127.0.0.1:8888 --heavy 20`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			text, err := plainfile.Read(file, 1<<20)
			if err != nil {
				return fmt.Errorf("--file: %w", err)
			}
			if o.File, err = queries.Parse(text); err != nil {
				return fmt.Errorf("--file %s: %w", file, err)
			}
			r, err := queries.Run(ctx, o)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			for _, kind := range []string{"find", "render", "heavy"} {
				if t := r.Times[kind]; len(t) > 0 {
					at := func(q float64) time.Duration { return queries.Quantile(t, q).Round(100 * time.Microsecond) }
					fmt.Fprintf(out, "%-6s %6d answers: p50 %v, p95 %v, p99 %v, longest %v\n", kind, len(t), at(.5), at(.95), at(.99),
						at(1))
				}
			}
			if r.Refused > 0 {
				fmt.Fprintf(out, "%d heavy queries refused\n", r.Refused)
			}
			if r.Failed > 0 {
				return fmt.Errorf("%d requests have failed, the first: %w", r.Failed, r.Err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "file", "bench/dashboards/fleet.yaml", "file with the dashboards")
	f.StringVar(&o.URL, "url", "http://127.0.0.1:8888", "URL of the server's Graphite API")
	f.IntVar(&o.Viewers, "viewers", 10, "dashboards that are open")
	f.Var(duration.New(5*time.Second, &o.Every), "every", "time between two loads of a dashboard")
	f.IntVar(&o.Heavy, "heavy", 0, "heavy queries that run at a time")
	f.Var(duration.New(time.Minute, &o.Duration), "duration", "how long to ask")
	return cmd
}
