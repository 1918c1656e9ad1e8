// Command lapwing is the whole product in one binary: the backend, the agent and the command-line client. It maps
// flags, environment and settings files onto the Options of the parts and calls them.
//
// A subcommand is in the file of its name: backend.go, agent.go, demo.go, doctor.go, migrate.go, load.go. The wiring of
// `lapwing backend` is in backendrun.go, its flags in backendflags.go, verify and repair in backendstate.go. The
// client's commands are in package client/ctl. whole.go lists the commands of the product, agentonly.go those of the
// build for hosts that run an agent only (-tags agentonly).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // checks name time zones, also on hosts without zone data

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/telemetry"
)

// version is set by the linker: -X main.version=1.2.3. In other builds main finds what the toolchain noted.
var version = "dev"

func main() {
	version = telemetry.Version(version)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// run executes one command line and returns the exit status.
func run(ctx context.Context, args []string) int {
	root := &cobra.Command{Use: "lapwing", SilenceUsage: true, SilenceErrors: true, Version: version}
	describe(root)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var status exitStatus
	if errors.As(err, &status) {
		if status.err != nil {
			fmt.Fprintln(os.Stderr, "Error:", status.err)
		}
		return status.code
	}
	return reportError(os.Stderr, err)
}

// exitStatus is an error that wants its own exit status.
type exitStatus struct {
	code int
	err  error
}

func (e exitStatus) Error() string { return fmt.Sprint(e.err) }
func (e exitStatus) Unwrap() error { return e.err }
