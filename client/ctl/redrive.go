package ctl

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

func redriveCommand() *cobra.Command {
	var (
		which       deadLetterFlags
		failingOnly bool
		skipConfirm bool
	)
	cmd := &cobra.Command{
		Use:   "redrive [ID]...",
		Short: "send dead letters to their handlers once more",
		Long: `Queue dead letters for their handlers once more, with the present definitions and all attempts of the handlers. A delivery
that fails again becomes a dead letter again. An alert keeps its idempotency key.

Those of one check go out in the order in which their events came, but behind what its handler has got since. A receiver
takes an incident that has passed since for open, and its resolution may have gone out before. So the command says how
many there are and asks; --failing-only leaves them out. Dead letters of a handler that is not defined stay.`,
		Example: `  lapwing deadletter redrive 0-1234-0.pager
  lapwing deadletter redrive --handler pager --failing-only
  lapwing deadletter redrive --all --skip-confirm`,
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			choice := which.choice(args)
			choice.FailingOnly = failingOnly
			if !failingOnly {
				if err := s.warnOfPast(ctx, choice, skipConfirm); err != nil {
					return err
				}
			}
			done, err := s.client.RedriveDeadLetters(ctx, s.namespace, choice)
			if err != nil {
				return err
			}
			left := 0
			if failingOnly {
				left = done.Passed
			}
			s.tellRedriven(ctx, done, left, which.handler)
			if done.NoHandler > 0 {
				return hintNoHandler(done, s.namespace)
			}
			if known := done.Count + left; known < len(args) {
				return hint(fmt.Errorf("%d of %d dead letters do not exist", len(args)-known, len(args)),
					"See 'lapwing deadletter list' for the dead letters.")
			}
			return nil
		}),
	}
	which.add(cmd, "send")
	cmd.Flags().BoolVar(&failingOnly, "failing-only", false, "leave out incidents of checks that do not fail any more")
	skipConfirmFlag(cmd, &skipConfirm)
	return cmd
}

// warnOfPast says how many dead letters are of incidents that have passed since, and asks if there are any.
func (s *invocation) warnOfPast(ctx context.Context, choice client.DeadLetterChoice, skipConfirm bool) error {
	would, err := s.client.RedriveDeadLetters(client.WithDryRun(ctx), s.namespace, choice)
	if err != nil || would.Passed == 0 {
		return err
	}
	text := "%d of %s are of incidents that have passed since: a receiver would take them for open. --failing-only leaves them out.\n"
	if would.Passed == 1 {
		text = "%d of %s is of an incident that has passed since: a receiver would take it for open. --failing-only leaves it out.\n"
	}
	fmt.Fprintf(s.errOut, text, would.Passed, count(would.Count, "dead letter"))
	if skipConfirm {
		return nil
	}
	return s.confirm("Are you sure you would like to send " + count(would.Count, "dead letter") + "?")
}

// tellRedriven says how many dead letters were queued, and how many were left out.
func (s *invocation) tellRedriven(ctx context.Context, done *client.Redriven, left int, handler string) {
	if done.Count > 0 || done.NoHandler == 0 {
		text, see := "Queued "+count(done.Count, "dead letter"), "lapwing handler waiting"
		if handler != "" {
			text, see = text+" for handler "+handler, see+" "+handler
		}
		if done.Count > 0 {
			text += "; see: " + see
		}
		fmt.Fprintln(s.out, text)
	}
	if left > 0 {
		fmt.Fprintf(s.errOut, "Left out %s: the incidents have passed since\n", count(left, "dead letter"))
	}
	if done.Count+left+done.NoHandler == 0 {
		s.tellWaiting(ctx, s.namespace, handler)
	}
}

// hintNoHandler is the error of a redrive that has left dead letters because their handlers are not defined.
func hintNoHandler(done *client.Redriven, namespace string) error {
	names, is, remove := done.MissingHandlers, "handler %s is", "NAME"
	if len(names) > 1 {
		is = "handlers %s are"
	} else {
		remove = names[0]
	}
	stay := " stay: "
	if done.NoHandler == 1 {
		stay = " stays: "
	}
	return hint(fmt.Errorf("%s"+stay+is+" not defined in namespace %s", count(done.NoHandler, "dead letter"),
		strings.Join(names, ", "), namespace),
		"Define the handler again and repeat the command, or delete them: lapwing deadletter delete --handler %s", remove)
}
