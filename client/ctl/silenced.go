package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/duration"
	"github.com/lapwing-monitoring/lapwing/internal/words"
	"github.com/lapwing-monitoring/lapwing/resource"
)

type silenced = resource.Silenced

var silencedKind = newKind(client.Silences, display[silenced]{
	example:   "linux:disk",
	namespace: func(s *silenced) string { return s.Metadata.Namespace },
	columns: []cellOf[silenced]{
		{column{title: "Name"}, func(s *silenced) string { return s.Metadata.Name }},
		{column{title: "Kind", keep: true}, silenceKind},
		{column{title: "Silences", text: true}, silencesWhat},
		{column{title: "Ends", keep: true}, silenceEnd},
		{column{title: "Creator"}, func(s *silenced) string { return s.Creator }},
		{column{title: "Reason", text: true}, func(s *silenced) string { return s.Reason }},
		{column{title: "Begin", wide: true}, func(s *silenced) string { return rfc3339(s.Begin) }},
		{column{title: "Expiration", wide: true}, expiration},
		{column{title: "ExpireOnResolve", wide: true}, func(s *silenced) string { return yesNo(s.ExpireOnResolve) }},
	},
	title: func(s *silenced) string { return s.Metadata.Name },
	fields: []fieldOf[silenced]{
		{label: "Begin", text: func(s *silenced) string { return rfc3339(s.Begin) },
			unset: func(s *silenced) bool { return s.Begin <= time.Now().Unix() }},
		{label: "Expiration", text: expiration},
		{label: "ExpireOnResolve", text: func(s *silenced) string { return yesNo(s.ExpireOnResolve) }},
		{label: "Creator", text: func(s *silenced) string { return s.Creator }},
		{label: "Check", text: func(s *silenced) string { return s.Check }},
		{label: "Reason", text: func(s *silenced) string { return s.Reason }},
		{label: "Label Selector", text: func(s *silenced) string { return s.LabelSelector },
			unset: func(s *silenced) bool { return s.LabelSelector == "" }},
		{label: "Field Selector", text: func(s *silenced) string { return s.FieldSelector },
			unset: func(s *silenced) bool { return s.FieldSelector == "" }},
		{
			label: "Limited To", text: func(s *silenced) string { return strings.Join(s.LimitedTo, " or ") },
			unset: func(s *silenced) bool { return len(s.LimitedTo) == 0 },
		},
		{label: "Windows", text: windowsText, unset: func(s *silenced) bool { return len(s.Windows) == 0 }},
		{label: "Calendars", text: func(s *silenced) string { return commaSpace(s.Calendars) },
			unset: func(s *silenced) bool { return len(s.Calendars) == 0 }},
		{label: "PassResolve", text: func(s *silenced) string { return yesNo(s.PassResolve) },
			unset: func(s *silenced) bool { return !s.PassResolve }},
		{label: "Acknowledgement", text: func(s *silenced) string { return yesNo(s.Acknowledgement) },
			unset: func(s *silenced) bool { return !s.Acknowledgement }},
		{label: "Remind", text: func(s *silenced) string {
			return (time.Duration(s.Remind) * time.Second).String() +
				" before the end"
		}, unset: func(s *silenced) bool { return s.Remind == 0 }},
		{label: "Subscription", text: func(s *silenced) string { return s.Subscription }},
		{label: "Namespace", text: func(s *silenced) string { return s.Metadata.Namespace }},
	},
	addition: silenceState,
	can:      canList,
	extra: []func(*kind) *cobra.Command{infoSilencedCommand, deleteSilencedCommand, createSilencedCommand,
		updateSilencedCommand, previewSilencedCommand, purgeSilencedCommand},
})

// silenceKind tells acknowledgements apart from silences, and those that do not act yet.
func silenceKind(s *silenced) string {
	switch {
	case s.Acknowledgement:
		return "ack"
	case s.Begin > time.Now().Unix():
		return "planned"
	}
	return "silence"
}

// silencesWhat says which events a silence hits.
func silencesWhat(s *silenced) string {
	var parts []string
	for _, part := range [...]struct{ what, value string }{{"check ", s.Check}, {"subscription ", s.Subscription}} {
		if part.value != "" && part.value != "*" {
			parts = append(parts, part.what+part.value)
		}
	}
	for _, selector := range []string{s.LabelSelector, s.FieldSelector} {
		if selector != "" {
			parts = append(parts, selector)
		}
	}
	text := strings.Join(parts, " && ")
	if entity, ok := strings.CutPrefix(s.Subscription, "entity:"); ok && !s.Selects() {
		text = strings.TrimSuffix(entity+"/"+cmp.Or(s.Check, "*"), "/")
	}
	if len(s.Windows)+len(s.Calendars) > 0 {
		text += ", at times"
	}
	if len(s.LimitedTo) > 0 {
		text += ", limited to " + strings.Join(s.LimitedTo, " or ")
	}
	return text
}

// silenceEnd says when a silence ends, or begins if it does not act yet.
func silenceEnd(s *silenced) string { return words.SilenceEnd(s, time.Now()) }

// expiration returns the seconds until a silence ends, or -1 if it has no end.
func expiration(s *silenced) string {
	if s.ExpireAt == 0 {
		return "-1"
	}
	return rfc3339(s.ExpireAt)
}

func rfc3339(seconds int64) string { return time.Unix(seconds, 0).Format(time.RFC3339) }

// silencedTarget names a silence by name, or by subscription and check.
type silencedTarget struct{ subscription, check string }

func (t *silencedTarget) flags(cmd *cobra.Command, k *kind) {
	cmd.Flags().StringVarP(&t.subscription, "subscription", "s", "", "subscription that is silenced")
	cmd.Flags().StringVarP(&t.check, "check", "c", "", "check that is silenced")
	cmd.Args = cobra.MaximumNArgs(1)
	completeNames(cmd, k)
}

func (t *silencedTarget) name(cmd *cobra.Command, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	if t.subscription == "" && t.check == "" {
		return "", hintUsage(cmd, errors.New("name a silenced entry, or set --subscription or --check"))
	}
	return resource.SilencedName(t.subscription, t.check), nil
}

func infoSilencedCommand(k *kind) *cobra.Command {
	var target silencedTarget
	cmd := &cobra.Command{
		Use:     "info [NAME]",
		Short:   "show one silenced entry",
		Example: "  lapwing silenced info linux:disk\n  lapwing silenced info --check disk",
	}
	cmd.RunE = run(func(ctx context.Context, s *invocation, args []string) error {
		name, err := target.name(cmd, args)
		if err != nil {
			return err
		}
		raw, err := s.get(ctx, k, name)
		if err != nil {
			return err
		}
		return s.printOne(k, raw)
	})
	target.flags(cmd, k)
	formatFlag(cmd)
	return cmd
}

func deleteSilencedCommand(k *kind) *cobra.Command {
	var target silencedTarget
	var skipConfirm bool
	cmd := &cobra.Command{
		Use:     "delete [NAME]",
		Short:   "end one silenced entry",
		Example: "  lapwing silenced delete linux:disk --skip-confirm\n  lapwing silenced delete --subscription linux --check disk",
	}
	cmd.RunE = run(func(ctx context.Context, s *invocation, args []string) error {
		name, err := target.name(cmd, args)
		if err != nil {
			return err
		}
		dryRun, _ := cmd.Flags().GetBool("dry-run") // of bySelector
		return s.remove(ctx, k, name, skipConfirm, &cascade{dryRun: dryRun})
	})
	target.flags(cmd, k)
	skipConfirmFlag(cmd, &skipConfirm)
	return bySelector(cmd, k, action{name: "delete", verb: "delete", done: "Deleted", alone: []string{"subscription", "check"}})
}

// silencedAnswers are the values for create and update, as the user writes them.
type silencedAnswers struct {
	silencedTarget
	begin, expire, reason string
	onResolve             bool
}

func (a *silencedAnswers) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&a.reason, "reason", "r", "", "reason, for other people to read")
	f.StringVarP(&a.begin, "begin", "b", "0", "begin of the silence: now or 0, or a time like 'Jan 02 2006 3:04PM MST' "+
		"or 2006-01-02T15:04:05Z")
	f.StringVarP(&a.expire, "expire", "e", "-1", "duration of the silence in seconds, or with a unit like 2h; -1 for no end")
	f.BoolVarP(&a.onResolve, "expire-on-resolve", "x", false, "end the silence when a matching event resolves")
}

func (a *silencedAnswers) ask(q *questions) error {
	resolve := yesNo(a.onResolve)
	for _, question := range []struct {
		text  string
		value *string
	}{
		{"Subscription", &a.subscription}, {"Check", &a.check}, {"Begin", &a.begin}, {"Expiry in seconds", &a.expire},
		{"Expire on resolve", &resolve}, {"Reason", &a.reason},
	} {
		if err := q.ask(question.text, question.value); err != nil {
			return err
		}
	}
	var err error
	a.onResolve, err = strconv.ParseBool(resolve)
	return err
}

func createSilencedCommand(k *kind) *cobra.Command {
	var a silencedAnswers
	var extras silencedExtras
	var interactive, preview bool
	cmd := &cobra.Command{
		Use:   "create",
		Short: "silence a subscription, a check, a check in a subscription, or events by selectors",
		Example: `  lapwing silenced create --subscription linux --check disk --reason 'new disks' --expire 3600
  lapwing silenced create -c backup -r 'is being moved' --expire-on-resolve
  lapwing silenced create -s entity:srv1 -r maintenance --begin '2026-12-01 22:00:00 +01:00' --expire 2h
  lapwing silenced create --name eu-db --label-selector 'region == eu' --field-selector 'event.check.name == db' -r move --preview
  lapwing silenced create -s backup -r nightly --cron '0 2 * * *' --time-zone Europe/Berlin --duration 90m --pass-resolve
  lapwing silenced create -c disk -r 'new disks' --expire 2h --remind 15m --remind-handlers slack`,
		Args: args(),
	}
	cmd.RunE = run(func(ctx context.Context, s *invocation, _ []string) error {
		if interactive {
			if err := a.ask(s.questions()); err != nil {
				return err
			}
		} else if a.reason == "" {
			return hintUsage(cmd, errors.New(`required flag(s) "reason" not set`))
		}
		body, err := a.body(cmd, s, &extras)
		if err != nil {
			return err
		}
		begin, _ := body["begin"].(int64)
		if length, _ := body["expire"].(int64); length > 0 && begin+length <= time.Now().Unix() {
			return hint(fmt.Errorf("the silence would have ended %s ago", ageOf(begin+length)),
				"Set a later --begin or a longer --expire, which counts from the begin.")
		}
		if preview {
			err := s.previewSilenced(ctx, body)
			if err == nil && extras.selects() && extras.name == "" {
				fmt.Fprintln(s.errOut, "To create it, add --name: a silence with selectors needs a name of its own.")
			}
			return err
		}
		if extras.selects() && extras.name == "" {
			return hint(errors.New("--name is missing: a silence with selectors needs a name of its own"),
				"Add one, such as --name maintenance. Only without selectors, subscription and check make the name.")
		}
		return s.create(ctx, k, "", body)
	})
	a.flags(cmd)
	extras.flags(cmd)
	targetFlags(cmd, &a)
	cmd.Flags().BoolVar(&interactive, "interactive", false, "ask for each field")
	cmd.Flags().BoolVar(&preview, "preview", false, "only show which events the silence would match, and when; create nothing")
	return cmd
}

// write sets the fields of a new silence.
func (a *silencedAnswers) write(body map[string]any, now time.Time) error {
	begin, err := parseBegin(a.begin, now)
	if err != nil {
		return err
	}
	expire, err := parseExpire(a.expire)
	if err != nil {
		return err
	}
	body["begin"], body["expire"] = begin, expire
	body["expire_on_resolve"], body["reason"] = a.onResolve, a.reason
	if a.check != "" {
		body["check"] = a.check
	}
	if a.subscription != "" {
		body["subscription"] = a.subscription
	}
	return nil
}

func updateSilencedCommand(k *kind) *cobra.Command {
	var a silencedAnswers
	cmd := &cobra.Command{
		Use:   "update [NAME]",
		Short: "change one silenced entry",
		Long: `Change one silenced entry. Flags set new values; without flags, the command asks for each value.

--expire extends or shortens it: it then ends that long from now. If it begins later, --expire counts from its beginning, as in
"create". A change that would end it at once is refused: "delete" does that.`,
		Example: `  lapwing silenced update linux:disk --expire 3h
  lapwing silenced update linux:disk --expire -1 --expire-on-resolve
  lapwing silenced update linux:disk`,
	}
	cmd.RunE = run(func(ctx context.Context, s *invocation, args []string) error {
		name, err := a.name(cmd, args)
		if err != nil {
			return err
		}
		return s.modify(ctx, k, name, func(body map[string]any) error { return a.change(cmd, s, body) }, "Updated")
	})
	a.silencedTarget.flags(cmd, k)
	a.flags(cmd)
	cmd.Flags().Lookup("expire").Usage = "time from now, or from a later begin, until the silence ends: in seconds, or with a unit like 2h; " +
		"-1 for no end"
	return cmd
}

// change writes the values of set flags into a silence. Without flags it asks for the values.
func (a *silencedAnswers) change(cmd *cobra.Command, s *invocation, body map[string]any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	old, err := decode[silenced](data)
	if err != nil {
		return err
	}
	changed := cmd.Flags().Changed
	begin, expire := changed("begin"), changed("expire")
	reason, onResolve := changed("reason"), changed("expire-on-resolve")
	if !begin && !expire && !reason && !onResolve {
		q := s.questions()
		a.begin, a.expire, a.reason, a.onResolve = rfc3339(old.Begin), timeLeft(old, time.Now()), old.Reason, old.ExpireOnResolve
		before := *a
		resolve := yesNo(a.onResolve)
		for _, question := range []struct {
			text  string
			value *string
		}{{"Begin", &a.begin}, {"Ends after (seconds, or a time such as 2h; -1 for no end)", &a.expire},
			{"Expire on resolve", &resolve}, {"Reason", &a.reason}} {
			if err := q.ask(question.text, question.value); err != nil {
				return err
			}
		}
		if a.onResolve, err = strconv.ParseBool(resolve); err != nil {
			return fmt.Errorf("expire on resolve: %q is neither true nor false", resolve)
		}
		begin = a.begin != before.begin
		// The end that was shown counts from now. With another begin it would move, unless it is set too.
		expire = a.expire != before.expire || begin && old.ExpireAt != 0
		reason, onResolve = true, true
	}
	if begin || expire {
		if err := a.moveEnd(old, begin, expire, time.Now()); err != nil {
			return err
		}
		body["begin"], body["expire"], body["expire_at"] = old.Begin, old.Expire, 0 // the server computes the end anew
	}
	if reason {
		body["reason"] = a.reason
	}
	if onResolve {
		body["expire_on_resolve"] = a.onResolve
	}
	return nil
}

// moveEnd sets a silence's begin, and how long it lasts. On the wire that counts from the begin; the user means from now.
func (a *silencedAnswers) moveEnd(one *silenced, begin, expire bool, now time.Time) (err error) {
	if begin {
		if one.Begin, err = parseBegin(a.begin, now); err != nil {
			return err
		}
	}
	if !expire {
		if end := one.Begin + one.Expire; one.Expire > 0 && end <= now.Unix() {
			return hint(fmt.Errorf("with this begin it would have ended %s ago", ageOf(end)), "Set --expire as well, which counts from now.")
		}
		return nil
	}
	if one.Expire, err = parseExpire(a.expire); err != nil {
		return err
	}
	switch {
	case one.Expire > 0:
		one.Expire += max(0, now.Unix()-one.Begin)
	case one.Expire != -1:
		return hint(fmt.Errorf("expire %q would end it at once", a.expire), "End it with 'lapwing silenced delete'; -1 means no end.")
	}
	return nil
}

// timeLeft returns how many seconds a silence still lasts, or -1 if it has no end; before its begin, how long it will last.
func timeLeft(one *silenced, now time.Time) string {
	end := one.ExpireAt
	if end == 0 {
		return number(one.Expire)
	}
	return number(end - max(one.Begin, now.Unix()))
}

// beginLayouts are the formats of the time when a silence begins.
var beginLayouts = []string{time.RFC3339, "2006-01-02 15:04:05 -07:00", "Jan 02 2006 3:04PM MST", "Jan 2 2006 3:04PM MST"}

func parseBegin(text string, now time.Time) (int64, error) {
	text = strings.TrimSpace(text)
	if text == "" || text == "0" || strings.EqualFold(text, "now") {
		return now.Unix(), nil
	}
	for _, layout := range beginLayouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t.Unix(), nil
		}
	}
	return 0, fmt.Errorf("begin %q is not a time such as %q or %q", text, beginLayouts[2], beginLayouts[0])
}

// parseExpire reads the length of a silence, in seconds. -1 is without end, and 0, which stock clients send, too.
func parseExpire(text string) (int64, error) {
	text = strings.TrimSpace(text)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		d, err := duration.Parse(text)
		if err != nil {
			return 0, fmt.Errorf("expire %q is neither a number of seconds nor a time such as 2h or 1d12h", text)
		}
		n = int64(d / time.Second)
	}
	if n < 0 && text != "-1" {
		return 0, fmt.Errorf("expire %q is negative: write -1 for no end, and %q for that time from now", text, strings.TrimPrefix(text, "-"))
	}
	return n, nil
}
