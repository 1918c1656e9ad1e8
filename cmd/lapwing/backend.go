//go:build !agentonly

package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/internal/flaggroup"
)

func backendCommand() *cobra.Command {
	var s backendSettings
	cmd := &cobra.Command{
		Use:   "backend",
		Short: "Run the backend",
		Long: `Run the backend: the HTTP API and web page, the listener for agents, and everything behind them.

Every flag is also a key of the YAML file, and an environment variable such as LAPWING_BACKEND_STATE_DIR. The
command line wins over the environment, and that over the file. An empty variable counts as not set. SIGHUP reads the
settings again.`,
		Example: `  lapwing backend --state-dir ./data
  LAPWING_BACKEND_CLUSTER_ADMIN_PASSWORD=secret123 lapwing backend`,
		Args: cobra.NoArgs,
	}
	s.register(cmd.PersistentFlags())
	cmd.SetFlagErrorFunc(explainFlags(func() options { return &backendSettings{} },
		func() program { return backendProgram }))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		hangup := make(chan os.Signal, 1)
		signal.Notify(hangup, syscall.SIGHUP)
		defer signal.Stop(hangup)
		if err := s.load(cmd); err != nil {
			return err
		}
		return runBackend(cmd.Context(), cmd.Flags(), &s, hangup)
	}
	cmd.AddCommand(
		flaggroup.Only(backendInitCommand(&s.opts, s.load), "config-file", "state-dir", "cluster-admin-username",
			"cluster-admin-password", "cluster-admin-api-key", "password-hash"),
		flaggroup.Only(backendVerifyCommand(&s.opts, s.load), "config-file", "state-dir"),
		flaggroup.Only(backendRepairCommand(&s.opts, s.load), "config-file", "state-dir"),
	)
	// Sensu's "sensu-backend start" is habit and stands in scripts.
	cmd.AddCommand(&cobra.Command{Use: "start", Short: "Run the backend (the same as lapwing backend)", Example: "  lapwing backend start --config-file /etc/lapwing/backend.yml", Args: cobra.NoArgs,
		RunE: cmd.RunE})
	return cmd
}

func backendInitCommand(opts *backend.Options, configure func(*cobra.Command) error) *cobra.Command {
	var ignore bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the administrator in a new state directory",
		Long: `Make the administrator and the built-in roles in a state directory that no backend is using.

The members of a new cluster make them themselves, from the same flags: init refuses --peers. Without --peers, init
prepares the directory of one member, which brings the administrator into the cluster.

Exit status: 0 done, 3 it was done before (0 with --ignore-already-initialized), 1 any other failure.`,
		Example: `  lapwing backend init --state-dir ./data --cluster-admin-username admin --cluster-admin-password 'P@ssw0rd!'`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := configure(cmd); err != nil {
				return err
			}
			err := backend.Initialize(cmd.Context(), *opts)
			if errors.Is(err, auth.ErrInitialized) {
				if ignore {
					return nil
				}
				return exitStatus{3, errors.New("this state directory has been initialized before")}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&ignore, "ignore-already-initialized", false, "exit with status 0 if it was done before")
	return cmd
}
