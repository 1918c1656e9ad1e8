//go:build !agentonly

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client/load/report"
)

func loadCompareCommand() *cobra.Command {
	var output, title string
	cmd := &cobra.Command{
		Use:   "compare RUN...",
		Short: "Put several runs of load on one page",
		Long: `Put several runs on one page, each given by its directory or its report.json: what an event costs against the number of
events and of agents, and all figures in a table, for each kind of backend and protocol.`,
		Example: `  lapwing load --count 1000 --checks 20 --duration 1m --output runs/20
  lapwing load --count 1000 --checks 80 --duration 1m --output runs/80
  lapwing load compare runs/20 runs/80 --output runs`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var reports []*report.Report
			for _, path := range args {
				if st, err := os.Stat(path); err == nil && st.IsDir() {
					path = filepath.Join(path, report.JSONFile)
				}
				r, err := report.Read(path)
				if err != nil {
					return err
				}
				reports = append(reports, r)
			}
			if err := report.Compare(output, title, reports); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), filepath.Join(output, report.ComparisonFile))
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", ".", "directory for the page")
	cmd.Flags().StringVar(&title, "title", "Runs compared", "title of the page")
	return cmd
}
