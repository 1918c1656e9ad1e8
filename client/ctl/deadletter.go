package ctl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

// deadLetterCommand has the commands about deliveries that failed for good.
func deadLetterCommand() *cobra.Command {
	cmd := groupOf("deadletter", "show, send again and delete deliveries that failed for good", "list",
		listDeadLettersCommand(), infoDeadLetterCommand(), redriveCommand(), deleteDeadLettersCommand())
	cmd.Long = `See, send again and delete dead letters: deliveries that their handlers never took, kept with the event, the reason and the
last output.`
	return cmd
}

func listDeadLettersCommand() *cobra.Command {
	var (
		all     bool
		handler string
		fields  string
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list dead letters",
		Example: `  lapwing deadletter list
  lapwing deadletter list --handler pager
  lapwing deadletter list --field-selector 'deadletter.entity == web1'
  lapwing deadletter list --all-namespaces --format json`,
		Args: args(),
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			namespace := s.namespace
			if all {
				namespace = ""
			}
			letters := []*client.DeadLetter{}
			for d, err := range s.client.DeadLetters(ctx, namespace, handler, fields) {
				if err != nil {
					return err
				}
				letters = append(letters, d)
			}
			if s.format == formatJSON {
				raw, err := jsonOf(letters)
				if err != nil {
					return err
				}
				return writeJSONBlock(s.out, raw)
			}
			if len(letters) == 0 {
				s.noItems("dead letters", "deadletter list", namespace, handler+fields != "")
			}
			t := &table{color: s.color, columns: []column{
				{title: "ID"}, {title: "Handler"}, {title: "Entity"}, {title: "Check"}, {title: "State", keep: true, color: wordColor},
				{title: "Attempts", right: true}, {title: "Last"}, {title: "Reason"},
			}}
			if all {
				t.columns = append(t.columns, column{title: "Namespace"})
			}
			for _, d := range letters {
				row := []string{d.ID, d.Handler, d.Entity, d.Check, stateWord(d.Status), fmt.Sprint(d.Attempts),
					millisTime(d.Last), oneLine(d.Reason)}
				if all {
					row = append(row, d.Namespace)
				}
				t.rows = append(t.rows, row)
			}
			w := bufio.NewWriter(s.out)
			s.print(w, t)
			return w.Flush()
		}),
	}
	cmd.Flags().BoolVar(&all, "all-namespaces", false, "list the resources of all namespaces")
	cmd.Flags().StringVar(&handler, "handler", "", "only dead letters of this handler")
	cmd.Flags().StringVar(&fields, "field-selector", "", "only dead letters whose fields match, for example 'deadletter.attempts > 3'")
	formatFlag(cmd)
	return cmd
}

func infoDeadLetterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "info ID",
		Short: "show one dead letter",
		Example: `  lapwing deadletter info 0-1234-0.pager
  lapwing deadletter info 0-1234-0.pager --format json | jq .event`,
		Args: args("ID"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			d, err := s.client.DeadLetter(ctx, s.namespace, args[0])
			if err != nil {
				return hintDeadLetter(err)
			}
			if s.format == formatJSON {
				raw, err := jsonOf(d)
				if err != nil {
					return err
				}
				return writeJSONBlock(s.out, raw)
			}
			block := &infoBlock{title: d.ID, lines: []infoLine{
				{"Entity", d.Entity}, {"Check", d.Check}, {"Status", stateAndStatus(d.Status)}, {"Handler", d.Handler},
			}}
			if d.Pipeline != "" {
				block.lines = append(block.lines, infoLine{"Pipeline", d.Pipeline}, infoLine{"Workflow", d.Workflow})
			}
			block.lines = append(block.lines,
				infoLine{"Reason", d.Reason}, infoLine{"Attempts", fmt.Sprint(d.Attempts)}, infoLine{"First", millisTime(d.First)},
				infoLine{"Last", millisTime(d.Last)}, infoLine{"Output", d.Output})
			return block.show(s)
		}),
	}
	formatFlag(cmd)
	return cmd
}

// deadLetterFlags select dead letters, in addition to arguments.
type deadLetterFlags struct {
	handler string
	all     bool
}

func (f *deadLetterFlags) add(cmd *cobra.Command, what string) {
	cmd.Flags().StringVar(&f.handler, "handler", "", what+" all dead letters of this handler")
	cmd.Flags().BoolVar(&f.all, "all", false, what+" all dead letters of the namespace")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		given := 0
		for _, is := range [...]bool{len(args) > 0, f.handler != "", f.all} {
			if is {
				given++
			}
		}
		if given != 1 {
			return hintUsage(cmd, errors.New("name dead letters, or set one of --handler and --all"))
		}
		return nil
	}
}

func (f *deadLetterFlags) choice(args []string) client.DeadLetterChoice {
	return client.DeadLetterChoice{IDs: args, Handler: f.handler, All: f.all}
}

// which describes the selected dead letters, for a question.
func (f *deadLetterFlags) which(args []string) string {
	switch {
	case f.handler != "":
		return "all dead letters of handler '" + f.handler + "'"
	case f.all:
		return "all dead letters of the namespace"
	}
	return "dead letter '" + strings.Join(args, "', '") + "'"
}

func redriveCommand() *cobra.Command {
	var which deadLetterFlags
	cmd := &cobra.Command{
		Use:   "redrive [ID]...",
		Short: "send dead letters to their handlers once more",
		Long: `Send dead letters to their handlers once more, with the present definitions and all attempts of the handlers. A delivery
that fails again becomes a dead letter again. An alert keeps its idempotency key.`,
		Example: `  lapwing deadletter redrive 0-1234-0.pager
  lapwing deadletter redrive --handler pager
  lapwing deadletter redrive --all`,
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			n, err := s.client.RedriveDeadLetters(ctx, s.namespace, which.choice(args))
			if err != nil {
				return err
			}
			if n < len(args) {
				return hint(fmt.Errorf("%d of %d dead letters were sent; the others do not exist", n, len(args)),
					"See 'lapwing deadletter list' for the dead letters.")
			}
			fmt.Fprintf(s.out, "Sent %s\n", count(n, "dead letter"))
			return nil
		}),
	}
	which.add(cmd, "hand over")
	return cmd
}

func deleteDeadLettersCommand() *cobra.Command {
	var (
		which       deadLetterFlags
		skipConfirm bool
	)
	cmd := &cobra.Command{
		Use:   "delete [ID]...",
		Short: "delete dead letters, with the events in them",
		Example: `  lapwing deadletter delete 0-1234-0.pager
  lapwing deadletter delete --handler pager --skip-confirm
  lapwing deadletter delete --all`,
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			if !skipConfirm {
				if err := s.confirm("Are you sure you would like to delete " + which.which(args) + "?"); err != nil {
					return err
				}
			}
			n, err := s.client.DeleteDeadLetters(ctx, s.namespace, which.choice(args))
			if err != nil {
				return err
			}
			if n < len(args) {
				return hint(fmt.Errorf("%d of %d dead letters were deleted; the others do not exist", n, len(args)),
					"See 'lapwing deadletter list' for the dead letters.")
			}
			fmt.Fprintf(s.out, "Deleted %s\n", count(n, "dead letter"))
			return nil
		}),
	}
	which.add(cmd, "delete")
	skipConfirmFlag(cmd, &skipConfirm)
	return cmd
}

func hintDeadLetter(err error) error {
	if errors.Is(err, client.ErrNotFound) {
		return hint(err, "See 'lapwing deadletter list' for the dead letters.")
	}
	return err
}

// millisTime returns Unix milliseconds as a time for people.
func millisTime(millis int64) string {
	if millis == 0 {
		return "N/A"
	}
	return time.UnixMilli(millis).Format(time.RFC3339)
}
