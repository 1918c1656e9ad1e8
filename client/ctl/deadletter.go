package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
		all      bool
		handlers []string
		fields   string
		limit    int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list dead letters, those that failed last first",
		Example: `  lapwing deadletter list
  lapwing deadletter list --handler pager
  lapwing deadletter list --field-selector 'deadletter.entity == web1'
  lapwing deadletter list -n 20
  lapwing deadletter list --all-namespaces --format json`,
		Args: args(),
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			namespace := s.namespace
			if all {
				namespace = ""
			}
			if len(handlers) > 1 { // the letters of the others would hide a wrong name
				if err := s.unknownInDeadLetters(ctx, namespace, handlers); err != nil {
					return err
				}
			}
			letters := []*client.DeadLetter{}
			for _, handler := range orAll(handlers) {
				for d, err := range s.client.DeadLetters(ctx, namespace, handler, fields) {
					if err != nil {
						return err
					}
					letters = append(letters, d)
				}
			}
			if len(letters) == 0 {
				if err := s.unknownInDeadLetters(ctx, namespace, handlers); err != nil {
					return err
				}
			}
			slices.SortStableFunc(letters, func(a, b *client.DeadLetter) int { return cmp.Compare(b.Last, a.Last) })
			if limit > 0 {
				letters = letters[:min(limit, len(letters))]
			}
			if len(letters) == 0 && s.format == formatTabular {
				s.noLetters(ctx, namespace, handlers, fields)
				s.tellWaiting(ctx, namespace, handlers)
			}
			raw, err := jsonOf(letters)
			if err != nil {
				return err
			}
			return s.printPlain(raw, func(json.RawMessage) (shown, error) { return deadLetterTable(letters, all), nil })
		}),
	}
	cmd.Flags().BoolVar(&all, "all-namespaces", false, "list the resources of all namespaces")
	cmd.Flags().StringSliceVar(&handlers, "handler", nil, "only dead letters of these handlers, comma separated")
	cmd.Flags().StringVar(&fields, "field-selector", "", "only dead letters whose fields match, for example 'deadletter.attempts > 3'")
	cmd.Flags().IntVarP(&limit, "limit", "n", 0, "show this number of dead letters at most, those that failed last; 0 for all")
	formatFlag(cmd)
	return cmd
}

// noLetters says that a list of dead letters is empty, and from how many its selector chose.
func (s *invocation) noLetters(ctx context.Context, namespace string, handlers []string, fields string) {
	n := 0
	if fields != "" {
		for _, handler := range orAll(handlers) {
			n += s.countDeadLetters(ctx, namespace, handler, mostLetters)
		}
	}
	if n == 0 {
		s.noItems(ctx, "deadletters", "dead letters", "deadletter list", namespace, len(handlers) > 0 || fields != "")
		return
	}
	text := "none of " + plural(n, "dead letter")
	if n >= mostLetters {
		text = "none of the first " + plural(n, "dead letter")
	}
	switch len(handlers) {
	case 0:
	case 1:
		text += " of handler " + handlers[0]
	default:
		text += " of the handlers " + commaSpace(handlers)
	}
	s.tellWhere(text+" matches", "deadletter list", namespace)
}

func deadLetterTable(letters []*client.DeadLetter, namespaces bool) *table {
	t := &table{columns: []column{
		{title: "ID"}, {title: "Handler"}, {title: "Entity"}, {title: "Check"}, {title: "State", keep: true, color: wordColor},
		{title: "Reason", text: true, keep: true}, {title: "Last", right: true}, {title: "Attempts", right: true},
	}}
	if namespaces {
		t.columns = append(t.columns, column{title: "Namespace"})
	}
	for _, d := range letters {
		reason, _, _ := strings.Cut(oneLine(d.Reason), " (attempt ") // a column has the number
		row := []string{d.ID, d.Handler, d.Entity, d.Check, stateWord(d.Status), reason, ageOf(d.Last / 1000),
			fmt.Sprint(d.Attempts)}
		if namespaces {
			row = append(row, d.Namespace)
		}
		t.rows = append(t.rows, row)
	}
	return t
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
			raw, err := jsonOf(d)
			if err != nil {
				return err
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
			if ev := d.Event; ev != nil {
				block.lines = append(block.lines, infoLine{"Event Time", millisTime(ev.Timestamp * 1000)})
				if ev.Check != nil {
					block.lines = append(block.lines, infoLine{"Event Output", strings.TrimSpace(ev.Check.Output)})
				}
			}
			return s.printPlain(raw, func(json.RawMessage) (shown, error) { return block, nil })
		}),
	}
	formatFlag(cmd)
	return cmd
}

// orAll returns names, or one that stands for all if there are none.
func orAll(names []string) []string {
	if len(names) == 0 {
		return []string{""}
	}
	return names
}

// deadLetterFlags select dead letters, in addition to arguments.
type deadLetterFlags struct {
	handlers   []string
	all        bool
	everywhere bool
}

func (f *deadLetterFlags) add(cmd *cobra.Command, what string) {
	cmd.Flags().StringSliceVar(&f.handlers, "handler", nil, what+" all dead letters of these handlers, comma separated")
	cmd.Flags().BoolVar(&f.all, "all", false, what+" all dead letters of the namespace")
	cmd.Flags().BoolVar(&f.everywhere, "all-namespaces", false, "with --handler or --all: "+what+" those of all namespaces")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		given := 0
		for _, is := range [...]bool{len(args) > 0, len(f.handlers) > 0, f.all} {
			if is {
				given++
			}
		}
		if given != 1 {
			return hintUsage(cmd, errors.New("name dead letters, or set one of --handler and --all"))
		}
		if f.everywhere && len(args) > 0 {
			return hintUsage(cmd, errors.New("--all-namespaces needs --handler or --all: an ID is of one namespace"))
		}
		if slices.Contains(f.handlers, "") {
			return hintUsage(cmd, errors.New("--handler needs a name"))
		}
		return nil
	}
}

// namespace returns the namespace of the letters, "" for all.
func (f *deadLetterFlags) namespace(s *invocation) string {
	if f.everywhere {
		return ""
	}
	return s.namespace
}

// choices returns the requests for the letters: one for each handler.
func (f *deadLetterFlags) choices(args []string) (list []client.DeadLetterChoice) {
	for _, handler := range orAll(slices.Compact(slices.Sorted(slices.Values(f.handlers)))) {
		list = append(list, client.DeadLetterChoice{IDs: args, Handler: handler, All: f.all})
	}
	return list
}

// which describes the selected dead letters, for a question.
func (f *deadLetterFlags) which(args []string) string {
	where := ""
	if f.everywhere {
		where = " in all namespaces"
	}
	switch {
	case len(f.handlers) == 1:
		return "all dead letters of handler '" + f.handlers[0] + "'" + where
	case len(f.handlers) > 1:
		return "all dead letters of the handlers '" + strings.Join(f.handlers, "', '") + "'" + where
	case f.everywhere:
		return "all dead letters of all namespaces"
	case f.all:
		return "all dead letters of the namespace"
	}
	return "dead letter '" + strings.Join(args, "', '") + "'"
}

// dryRunLetters is how many dead letters a dry run shows.
const dryRunLetters = 10

// showLetters shows the first dead letters of a dry run that counted all of them.
func (s *invocation) showLetters(letters []client.DeadLetter, count int, which *deadLetterFlags) error {
	if len(letters) == 0 { // the user may not list them, or the backend is an older release
		return nil
	}
	var shown []*client.DeadLetter
	for i := range letters[:min(len(letters), dryRunLetters)] {
		shown = append(shown, &letters[i])
	}
	if err := deadLetterTable(shown, which.everywhere).show(s); err != nil {
		return err
	}
	if more := count - len(shown); more > 0 {
		fmt.Fprintf(s.out, "and %d more\n", more)
	}
	return nil
}

// knownLetters returns an error if the namespace or a handler of the letters does not exist. It is asked before anything
// is done: one of several handlers may be misspelt.
func (s *invocation) knownLetters(ctx context.Context, which *deadLetterFlags) error {
	return s.unknownInDeadLetters(ctx, which.namespace(s), which.handlers)
}

func deleteDeadLettersCommand() *cobra.Command {
	var (
		which       deadLetterFlags
		dryRun      bool
		skipConfirm bool
	)
	cmd := &cobra.Command{
		Use:   "delete [ID]...",
		Short: "delete dead letters, with the events in them",
		Example: `  lapwing deadletter delete 0-1234-0.pager
  lapwing deadletter delete --handler pager --dry-run
  lapwing deadletter delete --handler pager --skip-confirm
  lapwing deadletter delete --all
  lapwing deadletter delete --all --all-namespaces`,
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			if err := s.knownLetters(ctx, &which); err != nil {
				return err
			}
			if dryRun {
				return s.tellDeletable(ctx, &which, args)
			}
			if !skipConfirm {
				for _, id := range orAll(args) { // a refusal is told before the question
					if err := s.mayDelete(ctx, "deadletters", which.namespace(s), id); err != nil {
						return err
					}
				}
				for _, id := range args { // an unknown one is told before the question
					if _, err := s.client.DeadLetter(ctx, s.namespace, id); errors.Is(err, client.ErrNotFound) {
						return hint(fmt.Errorf("there is no dead letter %s", id), "See 'lapwing deadletter list' for the dead letters.")
					}
				}
				if err := s.confirm("Are you sure you would like to delete " + which.which(args) + "?"); err != nil {
					return err
				}
			}
			n := 0
			for _, choice := range which.choices(args) {
				deleted, err := s.client.DeleteDeadLetters(ctx, which.namespace(s), choice)
				if n += deleted; err != nil {
					return err
				}
			}
			if n < len(args) {
				return hint(fmt.Errorf("%d of %d dead letters were deleted; the others do not exist", n, len(args)),
					"See 'lapwing deadletter list' for the dead letters.")
			}
			fmt.Fprintf(s.out, "Deleted %s\n", plural(n, "dead letter"))
			if n == 0 {
				s.tellWaiting(ctx, which.namespace(s), which.handlers)
			}
			return nil
		}),
	}
	which.add(cmd, "delete")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show which dead letters would be deleted, and delete none")
	skipConfirmFlag(cmd, &skipConfirm)
	return cmd
}

// tellDeletable says which dead letters would be deleted.
func (s *invocation) tellDeletable(ctx context.Context, which *deadLetterFlags, args []string) error {
	n := 0
	var letters []client.DeadLetter
	for _, choice := range which.choices(args) {
		would, err := s.client.CountDeadLetters(ctx, which.namespace(s), choice)
		if err != nil {
			return err
		}
		n += would.Count
		letters = append(letters, would.Letters...)
	}
	fmt.Fprintf(s.out, "Would delete %s\n", plural(n, "dead letter"))
	if err := s.showLetters(letters, n, which); err != nil {
		return err
	}
	if n < len(args) {
		return errLettersMissing(len(args)-n, len(args))
	}
	if n == 0 {
		s.tellWaiting(ctx, which.namespace(s), which.handlers)
	}
	return nil
}

// errLettersMissing says how many of the named dead letters do not exist.
func errLettersMissing(missing, named int) error {
	return hint(fmt.Errorf("%d of %d dead letters do not exist", missing, named),
		"See 'lapwing deadletter list' for the dead letters.")
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
