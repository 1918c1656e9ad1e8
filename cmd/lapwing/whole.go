//go:build !agentonly

package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client/ctl"
)

// describe makes the root command of the whole product.
func describe(root *cobra.Command) {
	root.Short = "Watch a fleet: agents, a backend and a client that speak Sensu Go 6"
	root.Long = `lapwing watches fleets: agents on hosts run checks and report events, a backend keeps their state and
hands incidents to handlers.

  lapwing backend     run the server
  lapwing agent       run the agent on a host
  lapwing demo        run both here, with sample checks
  lapwing carbon      run a Graphite server alone
  lapwing doctor      say what limits a backend now
  lapwing configure   sign in, then: lapwing event list`
	root.AddCommand(backendCommand(), agentCommand(), demoCommand(), doctorCommand(), migrateCommand(), backupCommand(),
		restoreCommand(),
		loadCommand(), loadWorkerCommand(), carbonCommand(), manCommand())
	ctl.Add(root)
}

func reportError(w io.Writer, err error) int { return ctl.Report(w, err) }
