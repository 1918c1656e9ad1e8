//go:build agentonly

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/internal/flaggroup"
)

// describe makes the root command of a program for hosts that run an agent only: half as large on disk and in memory as
// the whole product.
func describe(root *cobra.Command) {
	root.Short = "Run lapwing's agent"
	root.Long = "This is lapwing without its backend and its client: what a host needs that runs an agent."
	root.AddCommand(agentCommand(), manCommand())
	flaggroup.Install(root)
}

func reportError(w io.Writer, err error) int {
	fmt.Fprintln(w, "Error:", err)
	return 1
}
