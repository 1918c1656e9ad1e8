//go:build !agentonly

package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/backend"
)

func backendVerifyCommand(opts *backend.Options, configure func(*cobra.Command) error) *cobra.Command {
	return &cobra.Command{
		Use:   "verify",
		Short: "Read all of a state directory and say what is damaged",
		Long: `Read all of a state directory that no backend is using. Name the damaged parts, and the data that is lost with them.

A backend that waits because its state directory is damaged does not count as using it.

Exit status: 0 sound, 2 something is lost, 1 any other failure.`,
		Example: `  lapwing backend verify --state-dir /var/lib/lapwing/backend`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := configure(cmd); err != nil {
				return err
			}
			s, err := backend.Verify(*opts)
			if err != nil {
				return err
			}
			if err := s.Unused(); err != nil {
				return err
			}
			if err := printSurvey(cmd.OutOrStdout(), s); err != nil {
				return err
			}
			if len(s.Lost()) > 0 {
				return exitStatus{2, errors.New(
					"the state directory is damaged: restore a backup, or go on with lapwing backend repair")}
			}
			return nil
		},
	}
}

func backendRepairCommand(opts *backend.Options, configure func(*cobra.Command) error) *cobra.Command {
	var do backend.RepairOptions
	cmd := &cobra.Command{
		Use:   "repair",
		Short: "Accept the losses of a damaged state directory, so that the backend starts",
		Long: `Accept the losses of a damaged state directory, so that the backend starts with what is left.

Nothing is deleted: damaged files are moved to the directory "damaged" in the state directory. Their sound parts are kept.
A backend that waits for the repair goes on by itself. Stop any other backend before.

Run lapwing backend verify first: it says what would be lost.`,
		Example: `  lapwing backend repair --state-dir /var/lib/lapwing/backend`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := configure(cmd); err != nil {
				return err
			}
			done, err := backend.Repair(*opts, do)
			if err != nil {
				return err
			}
			printRepaired(cmd.OutOrStdout(), done, do)
			return nil
		},
	}
	cmd.Flags().BoolVar(&do.NewAdministrator, "new-administrator", false,
		"have the next start make the administrator and the built-in definitions again, for definitions without any user")
	return cmd
}

func printSurvey(out io.Writer, s *backend.Survey) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "PART\tMESSAGES\tFIRST\tLAST\tBYTES")
	for _, st := range s.Streams {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\n", st.Part, st.Messages, st.First, st.Last, st.Bytes)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "read in %s\n", s.Took.Round(time.Millisecond))
	if s.Unclean {
		fmt.Fprintln(out, "the last backend did not stop cleanly: the next start recovers by itself")
	}
	for _, f := range s.Findings {
		kind := "made anew by the next start or a repair"
		if f.Lost {
			kind = "LOST"
		}
		fmt.Fprintf(out, "%s: %s\n", kind, f)
	}
	if s.CopiesLeftOut {
		fmt.Fprintln(out, "this member's copies of the streams were not read: members compare them (lapwing cluster status)")
	}
	if len(s.Findings) == 0 {
		fmt.Fprintf(out, "%s is sound\n", s.Dir)
	}
	return nil
}

func printRepaired(out io.Writer, done *backend.Repaired, do backend.RepairOptions) {
	for _, f := range done.Lost {
		fmt.Fprintf(out, "LOST: %s\n", f)
	}
	for _, f := range done.Anew {
		fmt.Fprintf(out, "made anew: %s\n", f)
	}
	switch {
	case len(done.Lost) > 0:
		fmt.Fprintf(out, "repaired; damaged files are in %s\n", done.Aside)
	case len(done.Anew) > 0:
		fmt.Fprintf(out, "repaired, nothing is lost; damaged files are in %s\n", done.Aside)
	case !do.NewAdministrator:
		fmt.Fprintln(out, "there was nothing to repair")
	}
	if do.NewAdministrator {
		fmt.Fprintln(out, "the next start makes the administrator again, if no user is stored")
	}
}
