//go:build !windows

package main

import "github.com/spf13/cobra"

// addServiceCommand adds nothing: elsewhere an init system starts the agent as it is, see packaging.
func addServiceCommand(*cobra.Command, *agentFlags) {}
