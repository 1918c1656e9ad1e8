package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/agent/collect"
)

// collectCommand runs a built-in collector once, as the agent does for a check.
func collectCommand() *cobra.Command {
	var graphite bool
	cmd := &cobra.Command{
		Use:   "collect [NAME [FLAGS]]",
		Short: "Run a built-in collector once, or list them",
		Long: `Run a built-in collector once and print what a check with the command "builtin:NAME FLAGS" would: a line of text
with performance data, and the metrics. The exit status is that of the check.`,
		Example: `  lapwing agent collect
  lapwing agent collect disk --warning 80
  lapwing agent collect --graphite cpu --percent`,
		SilenceUsage: true,
	}
	cmd.Flags().BoolVar(&graphite, "graphite", false, "print the metrics only, as lines of Graphite's protocol")
	cmd.Flags().SetInterspersed(false) // what comes after the name is the collector's
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		out := cmd.OutOrStdout()
		if len(args) == 0 {
			w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
			for _, name := range collect.Names() {
				fmt.Fprintf(w, "%s\t%s\n", name, collect.About(name))
			}
			return w.Flush()
		}
		host, err := os.Hostname()
		if err != nil {
			host = "localhost"
		}
		quoted := make([]string, len(args))
		for i, a := range args {
			quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		result := collect.New(collect.Options{Host: host}).Run(cmd.Context(), "", strings.Join(quoted, " "))
		if !graphite {
			fmt.Fprint(out, result.Output)
		}
		fmt.Fprint(out, result.Graphite())
		if result.Status != collect.OK {
			return exitStatus{code: result.Status}
		}
		return nil
	}
	return cmd
}
