package ctl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

func redriveCommand() *cobra.Command {
	var (
		which       deadLetterFlags
		failingOnly bool
		newest      bool
		dryRun      bool
		skipConfirm bool
	)
	cmd := &cobra.Command{
		Use:   "redrive [ID]...",
		Short: "send dead letters to their handlers once more",
		Long: `Queue dead letters for their handlers once more, with the present definitions and all attempts of the handlers. A delivery
that fails again becomes a dead letter again. An alert keeps its idempotency key.

Those of one check go out in the order in which their events came, but behind what its handler has got since. A receiver
takes an incident that has passed since for open, and closes an open one at the resolution of an earlier one. So the
command says how many dead letters say what is no longer so and asks; --failing-only leaves them out. Resolutions of
checks that still pass are always sent: a receiver that got one alert of an incident would keep it open without. A handler
with resolve.only_after_alert drops those for which it sent no alert. Dead letters of a handler that is not defined stay.

After a long outage, --newest sends one dead letter for each entity, check and handler: that of the newest event. If an
escalation notified several contacts, each gets one. Older ones stay dead letters, and the command says how many.`,
		Example: `  lapwing deadletter redrive 0-1234-0.pager
  lapwing deadletter redrive --handler pager --failing-only
  lapwing deadletter redrive --handler pager,mail --dry-run
  lapwing deadletter redrive --handler pager --newest --failing-only
  lapwing deadletter redrive --all --all-namespaces --skip-confirm`,
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			if err := s.knownLetters(ctx, &which); err != nil {
				return err
			}
			namespace, choices := which.namespace(s), which.choices(args)
			for i := range choices {
				choices[i].Newest = newest
			}
			if dryRun {
				ctx = client.WithDryRun(ctx)
			} else if !failingOnly {
				if err := s.warnOfPast(ctx, namespace, choices, skipConfirm); err != nil {
					return err
				}
			}
			for i := range choices {
				choices[i].FailingOnly = failingOnly
			}
			done, err := s.redrive(ctx, namespace, choices)
			if err != nil {
				return err
			}
			left := 0
			if failingOnly {
				left = done.Passed
			}
			s.tellRedriven(ctx, done, left, &which, dryRun)
			if dryRun {
				if err := s.showLetters(done.Letters, done.Count, &which); err != nil {
					return err
				}
				if left == 0 {
					s.tellPassed(done)
				}
			}
			s.tellLeft(done, left, dryRun)
			s.tellOlder(done.Older, &which, dryRun)
			if newest && done.Count > 0 {
				fmt.Fprintln(s.errOut,
					"--newest compares dead letters with each other: whether a newer alert of the same incident was delivered is not looked at")
			}
			if done.NoHandler > 0 {
				return s.hintNoHandler(done, namespace)
			}
			if known := done.Count + left + done.Older + done.NoHandler; known < len(args) {
				return errLettersMissing(len(args)-known, len(args))
			}
			return nil
		}),
	}
	which.add(cmd, "send")
	cmd.Flags().BoolVar(&failingOnly, "failing-only", false, "leave out incidents that have passed, and resolutions of checks that fail again")
	cmd.Flags().BoolVar(&newest, "newest", false,
		"of each entity, check and handler, send only the newest dead letter; a second run sends the next older ones")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show which dead letters would be sent, and send none")
	skipConfirmFlag(cmd, &skipConfirm)
	return cmd
}

// sendAgain returns the words of the command for what a handler gave up, without what is of no use any more.
func sendAgain(handler string) []string {
	return []string{"deadletter", "redrive", "--handler", handler, "--newest", "--failing-only"}
}

// redrive sends the choices, and adds up what became of them.
func (s *invocation) redrive(ctx context.Context, namespace string, choices []client.DeadLetterChoice) (*client.Redriven, error) {
	sum := new(client.Redriven)
	for _, choice := range choices {
		done, err := s.client.RedriveDeadLetters(ctx, namespace, choice)
		if err != nil {
			return nil, err
		}
		sum.Count += done.Count
		sum.Resolutions += done.Resolutions
		sum.Passed += done.Passed
		sum.Older += done.Older
		sum.NoHandler += done.NoHandler
		sum.MissingHandlers = append(sum.MissingHandlers, done.MissingHandlers...)
		sum.Letters = append(sum.Letters, done.Letters...)
	}
	return sum, nil
}

// warnOfPast says how many dead letters say what is no longer so, and asks if there are any.
func (s *invocation) warnOfPast(ctx context.Context, namespace string, choices []client.DeadLetterChoice, skipConfirm bool) error {
	would, err := s.redrive(client.WithDryRun(ctx), namespace, choices)
	if err != nil || would.Passed == 0 {
		return err
	}
	s.tellPassed(would)
	if skipConfirm {
		return nil
	}
	return s.confirm("Are you sure you would like to send " + plural(would.Count, "dead letter") + "?")
}

// tellPassed says how many of the dead letters that would be sent say what is no longer so.
func (s *invocation) tellPassed(would *client.Redriven) {
	text := "%d of %s say what is no longer so (the incident has passed since, or it is a resolution and the check fails again): " +
		"a receiver would believe them. --failing-only leaves them out.\n"
	switch would.Passed {
	case 0:
		return
	case 1:
		text = "%d of %s says what is no longer so (the incident has passed since, or it is a resolution and the check fails again): " +
			"a receiver would believe it. --failing-only leaves it out.\n"
	}
	fmt.Fprintf(s.errOut, text, would.Passed, plural(would.Count, "dead letter"))
}

// tellRedriven says how many dead letters were queued, or would be.
func (s *invocation) tellRedriven(ctx context.Context, done *client.Redriven, left int, which *deadLetterFlags, dryRun bool) {
	namespace, handlers := which.namespace(s), which.handlers
	if done.Count > 0 || done.NoHandler == 0 {
		text, see := "Queued ", []string{"handler", "waiting"}
		if dryRun {
			text = "Would queue "
		}
		text += plural(done.Count, "dead letter")
		switch len(handlers) {
		case 0:
		case 1:
			text, see = text+" for handler "+handlers[0], append(see, handlers[0])
		default:
			text += " for the handlers " + commaSpace(handlers)
		}
		if n := done.Resolutions; n > 0 {
			text += ", with " + plural(n, "resolution")
		}
		if namespace == "" {
			see = append(see, "--all-namespaces")
		}
		if done.Count > 0 && !dryRun {
			text += "; see: " + s.commandLine(see...)
		}
		fmt.Fprintln(s.out, text)
	}
	if done.Count+left+done.NoHandler == 0 {
		s.tellWaiting(ctx, namespace, handlers)
	}
}

// tellLeft says how many dead letters are left out because they say what is no longer so.
func (s *invocation) tellLeft(done *client.Redriven, left int, dryRun bool) {
	if left == 0 {
		return
	}
	text, why := "Left out ", ": the incidents have passed since, or they are resolutions and the checks fail again"
	if dryRun {
		text = "Would leave out "
	}
	if left == 1 {
		why = ": the incident has passed since, or it is a resolution and the check fails again"
	}
	fmt.Fprintln(s.errOut, text+plural(left, "dead letter")+why)
	if done.Resolutions > 0 {
		fmt.Fprintln(s.errOut, "Resolutions of checks that pass are sent, also if the alerts before them are left out: "+
			"the receiver may have got another alert of the incident")
	}
}

// tellOlder says how many dead letters stay because newer ones of their checks were sent, and how to delete what is left.
// It names no IDs: there may be many.
func (s *invocation) tellOlder(n int, which *deadLetterFlags, dryRun bool) {
	switch {
	case n == 0:
		return
	case dryRun:
		fmt.Fprintf(s.errOut, "%s of the same checks would stay\n", plural(n, "older dead letter"))
		return
	}
	text := "%d older ones of the same checks stay; "
	if n == 1 {
		text = "%d older one of the same checks stays; "
	}
	words := []string{"deadletter"}
	switch {
	case len(which.handlers) > 0:
		text, words = text+"to delete all that are left: ", append(words, "delete", "--handler", strings.Join(which.handlers, ","))
	case which.all:
		text, words = text+"to delete all that are left: ", append(words, "delete", "--all")
	default:
		text, words = text+"see: ", append(words, "list")
	}
	if which.everywhere {
		words = append(words, "--all-namespaces")
	}
	fmt.Fprintf(s.errOut, text+"%s\n", n, s.commandLine(words...))
	fmt.Fprintln(s.errOut, "Warning: a second run with --newest would send the next older ones, behind the newer ones that were sent")
}

// hintNoHandler is the error of a redrive that has left dead letters because their handlers are not defined.
func (s *invocation) hintNoHandler(done *client.Redriven, namespace string) error {
	names, are, remove := done.MissingHandlers, "their handlers are", "NAME"
	switch len(names) {
	case 0:
	case 1:
		are, remove = "handler "+names[0]+" is", names[0]
	default:
		are = "handlers " + strings.Join(names, ", ") + " are"
	}
	stay := " stay: "
	if done.NoHandler == 1 {
		stay = " stays: "
	}
	err := errors.New(plural(done.NoHandler, "dead letter") + stay + are + " not defined in ")
	if namespace == "" {
		return hint(fmt.Errorf("%wtheir namespaces", err),
			"See 'lapwing deadletter list --all-namespaces'. In each namespace, define the handler again and repeat the command, "+
				"or delete them: lapwing deadletter delete --handler %s --namespace NAMESPACE", remove)
	}
	return hint(fmt.Errorf("%wnamespace %s", err, namespace),
		"Define the handler again and repeat the command, or delete them: %s",
		s.commandLine("deadletter", "delete", "--handler", remove))
}
