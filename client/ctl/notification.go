package ctl

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/spreadsheet"
)

const formatCSV = "csv"

// notificationCommand has the commands about what handlers sent.
func notificationCommand() *cobra.Command {
	cmd := groupOf("notification", "show whom handlers told what, when, and with which result", "list", listNotificationsCommand())
	cmd.Long = `See the history of notifications: each attempt of a handler to deliver an event, or events that were merged.`
	return cmd
}

func listNotificationsCommand() *cobra.Command {
	var (
		opts  client.NotificationOptions
		all   bool
		limit int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list notifications, newest first",
		Long: `List notifications, newest first: each attempt of a handler with its recipients and its result. An attempt that failed and
is made again has FINAL false. What 'lapwing pipeline replay' sent has the replay's id behind the result.

Ages are times before now: -o wide shows the times themselves, too. The csv and json formats have all columns, for example
the error and the beginning of the receiver's answer.`,
		Example: `  lapwing notification list
  lapwing notification list --recipient ops@example.com --since 168h
  lapwing notification list --handler mail --field-selector 'notification.result != ok'
  lapwing notification list --entity web1 --field-selector 'notification.final == true && notification.result != ok'
  lapwing notification list --since 2160h --limit 0 --format csv`,
		Args: args(),
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			namespace := s.namespace
			if all {
				namespace = ""
			}
			sinceText := opts.Since
			if err := sentMoments(&opts.Since, &opts.Until, time.Local, time.Now()); err != nil {
				return err
			}
			list, asked := []*client.Notification{}, limit
			if limit > 0 {
				asked++ // one more tells whether the list is cut
			}
			for n, err := range s.client.Notifications(ctx, namespace, opts, asked) {
				if err != nil {
					return err
				}
				list = append(list, n)
			}
			if limit > 0 && len(list) > limit {
				list = list[:limit]
				fmt.Fprintf(s.errOut, "%d shown, more exist; --limit 0 shows all\n", limit)
			}
			if len(list) == 0 {
				if err := s.unknownInNotifications(ctx, namespace, opts.Handler); err != nil {
					return err
				}
				if err := s.knownNames(ctx, namespace, []string{opts.Entity}, []string{opts.Check}); err != nil {
					return err
				}
				s.tellLeftOut(ctx, namespace, opts)
			}
			if s.format == formatCSV {
				return writeNotifications(s.out, list)
			}
			if len(list) == 0 && s.format == formatTabular {
				what := "notifications since " + cmp.Or(sinceText, "ever")
				s.noItems(ctx, client.Events.Plural, what, "notification list --since 30d", namespace,
					opts.Entity+opts.Check+opts.Handler+opts.Recipient+opts.Result+opts.FieldSelector != "")
			}
			raw, err := jsonOf(list)
			if err != nil {
				return err
			}
			return s.printPlain(raw, func(json.RawMessage) (shown, error) { return notificationTable(list, all), nil })
		}),
	}
	f := cmd.Flags()
	f.StringVar(&opts.Entity, "entity", "", "only notifications about this entity")
	f.StringVar(&opts.Check, "check", "", "only notifications about this check")
	f.StringVar(&opts.Handler, "handler", "", "only notifications of this handler")
	f.StringVar(&opts.Recipient, "recipient", "", "only notifications to a recipient whose name contains this text")
	f.StringVar(&opts.Result, "result", "", "only attempts with this result: ok, failed (the receiver or command said so), "+
		"timeout, or error (it was not reached)")
	f.StringVar(&opts.Since, "since", "24h", "earliest time: "+timeForms+"; empty for all")
	f.StringVar(&opts.Until, "until", "", "latest time, as for --since; a day belongs to it")
	f.StringVar(&opts.FieldSelector, "field-selector", "",
		"only notifications whose fields match, for example 'notification.attempt > 1 && notification.handler =~ \"^page\"'")
	f.IntVarP(&limit, "limit", "n", 100, "number of notifications to list; 0 for all")
	f.BoolVar(&all, "all-namespaces", false, "list the resources of all namespaces")
	formatFlagWith(cmd, formatCSV)
	return cmd
}

// unknownInNotifications is unknownNames of an empty list of notifications. A deleted handler may have some at another time.
func (s *invocation) unknownInNotifications(ctx context.Context, namespace, handler string) error {
	if handler == "" {
		return s.knownNamespace(ctx, namespace)
	}
	has := func(handler string) bool {
		for _, err := range s.client.Notifications(ctx, namespace, client.NotificationOptions{Handler: handler}, 1) {
			return err == nil
		}
		return false
	}
	return s.unknownNames(ctx, namespace, []string{handler}, has, nil)
}

// tellLeftOut says what the newest notifications have where --recipient or --result left out all of them: whom they went to, and
// their results.
func (s *invocation) tellLeftOut(ctx context.Context, namespace string, opts client.NotificationOptions) {
	const (
		looked = 200
		named  = 10
	)
	tell := func(opts client.NotificationOptions, text string, words func(n *client.Notification) []string) {
		var all []string
		for n, err := range s.client.Notifications(ctx, namespace, opts, looked) {
			if err != nil {
				break
			}
			all = append(all, words(n)...)
		}
		slices.Sort(all)
		if all = slices.Compact(all); len(all) == 0 {
			return
		}
		more := ""
		if n := len(all) - named; n > 0 {
			all, more = all[:named], fmt.Sprintf(" and %d more", n)
		}
		fmt.Fprintln(s.errOut, printable(text+" "+commaSpace(all)+more))
	}
	if opts.Recipient != "" {
		any := opts
		any.Recipient = ""
		tell(any, "without --recipient, notifications went to", func(n *client.Notification) []string { return n.Recipients })
	}
	if opts.Result != "" {
		any := opts
		any.Result = ""
		tell(any, "without --result, notifications have the results", func(n *client.Notification) []string { return []string{n.Result} })
	}
}

func notificationTable(list []*client.Notification, namespaces bool) *table {
	t := &table{columns: []column{
		{title: "Age", right: true}, {title: "Handler"}, {title: "Recipients"}, {title: "Entity"}, {title: "Check"},
		{title: "State", keep: true, color: wordColor}, {title: "Result", keep: true}, {title: "Error", text: true, keep: true},
		{title: "Attempt", right: true}, {title: "Final"}, {title: "Events", right: true}, {title: "Time", wide: true},
	}}
	if namespaces {
		t.columns = append(t.columns, column{title: "Namespace"})
	}
	for _, n := range list {
		row := []string{ageOf(n.At / 1000), n.Handler, comma(n.Recipients), n.Entity, n.Check, stateWord(n.Status), n.Result + replayOf(n),
			oneLine(n.Error), fmt.Sprint(n.Attempt), strconv.FormatBool(n.Final), fmt.Sprint(n.Events), millisTime(n.At)}
		if namespaces {
			row = append(row, n.Namespace)
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// replayOf says which replay sent a notification, "" for none. The id of its delivery begins with it.
func replayOf(n *client.Notification) string {
	rest, ok := strings.CutPrefix(n.ID, "replay-")
	if !ok {
		return ""
	}
	id, _, _ := strings.Cut(rest, "-")
	return " (replay " + id + ")"
}

// writeNotifications writes CSV with the columns of the API's.
func writeNotifications(w io.Writer, list []*client.Notification) error {
	out := csv.NewWriter(w)
	rows := [][]string{{
		"time", "namespace", "entity", "check", "status", "incident", "resolution", "handler", "type", "recipients", "result",
		"attempt", "final", "milliseconds", "events", "error", "output", "pipeline", "workflow", "delivery", "event", "member",
		"number",
	}}
	for _, n := range list {
		rows = append(rows, spreadsheet.Row([]string{
			time.UnixMilli(n.At).UTC().Format("2006-01-02T15:04:05.000Z07:00"), n.Namespace, n.Entity, n.Check, number(n.Status),
			strconv.FormatBool(n.Incident), strconv.FormatBool(n.Resolution), n.Handler, n.Type, strings.Join(n.Recipients, " "),
			n.Result, fmt.Sprint(n.Attempt), strconv.FormatBool(n.Final), fmt.Sprint(n.Millis), fmt.Sprint(n.Events), n.Error,
			n.Output, n.Pipeline, n.Workflow, n.ID, n.Event, n.Member, fmt.Sprint(n.Number),
		}))
	}
	if err := out.WriteAll(rows); err != nil {
		return fmt.Errorf("write notifications: %w", err)
	}
	return nil
}
