package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// silencedExtras are the values for create and preview that Sensu does not have.
type silencedExtras struct {
	name, labelSelector, fieldSelector       string
	cron, rrule, timeZone, duration, reminds string
	remindHandlers, calendars                []string
	passResolve                              bool
	labels                                   map[string]string
}

func (e *silencedExtras) flags(cmd *cobra.Command) {
	labelsFlag(cmd, &e.labels)
	f := cmd.Flags()
	f.StringVar(&e.name, "name", "", "name of a silence with selectors, which needs one")
	f.StringVar(&e.labelSelector, "label-selector", "", "silence events whose labels match, for example 'region == eu'")
	f.StringVar(&e.fieldSelector, "field-selector", "", "silence events whose fields match, for example 'event.check.status == 1'")
	f.StringVar(&e.cron, "cron", "", "silence only at recurring times: a cron schedule like '0 22 * * 6' (needs --duration)")
	f.StringVar(&e.rrule, "rrule", "", "silence only at recurring times: a rule like 'FREQ=MONTHLY;BYDAY=1SA', "+
		"starting at --begin (needs --duration)")
	f.StringVar(&e.timeZone, "time-zone", "", "time zone of --cron and --rrule, for example Europe/Berlin (default UTC)")
	f.StringVar(&e.duration, "duration", "", "duration of each time of --cron or --rrule, for example 2h")
	f.StringSliceVar(&e.calendars, "calendars", nil, "silence only while one of these calendars is active, comma separated")
	f.BoolVar(&e.passResolve, "pass-resolve", false, "let resolutions through to handlers")
	f.StringVar(&e.reminds, "remind", "", "time before the end at which an event announces it, for example 10m")
	f.StringSliceVar(&e.remindHandlers, "remind-handlers", nil, "handlers of the event of --remind (default "+resource.DefaultRemindHandler+")")
}

// selects reports whether there are selectors.
func (e *silencedExtras) selects() bool { return e.labelSelector != "" || e.fieldSelector != "" }

// write sets the fields for the flags that were set.
func (e *silencedExtras) write(body map[string]any) error {
	if e.selects() {
		meta, err := subMap(body, "metadata")
		if err != nil {
			return err
		}
		if e.name != "" {
			meta["name"] = e.name
		}
	}
	if err := setLabels(body, e.labels); err != nil {
		return err
	}
	for name, value := range map[string]string{"label_selector": e.labelSelector, "field_selector": e.fieldSelector} {
		if value != "" {
			body[name] = value
		}
	}
	if e.cron != "" || e.rrule != "" {
		window := resource.SilenceWindow{Cron: e.cron, RRule: e.rrule, TimeZone: e.timeZone}
		if e.duration == "" {
			return errors.New("--cron and --rrule need --duration")
		}
		var err error
		if window.Duration, err = parseLength("duration", e.duration); err != nil {
			return err
		}
		body["windows"] = []resource.SilenceWindow{window}
	}
	if e.reminds != "" {
		seconds, err := parseLength("remind", e.reminds)
		if err != nil {
			return err
		}
		body["remind"] = seconds
	}
	if len(e.remindHandlers) > 0 {
		body["remind_handlers"] = e.remindHandlers
	}
	if len(e.calendars) > 0 {
		body["calendars"] = e.calendars
	}
	if e.passResolve {
		body["pass_resolve"] = true
	}
	return nil
}

func parseLength(what, text string) (int64, error) {
	n, err := parseExpire(text)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%s %q is neither a number of seconds nor a time such as 2h or 1d12h", what, text)
	}
	return n, nil
}

// ownPath returns a path of lapwing's API in the command's namespace.
func (s *invocation) ownPath(segments ...string) string {
	path := "/api/lapwing/v1/namespaces/" + url.PathEscape(s.namespace)
	for _, one := range segments {
		path += "/" + url.PathEscape(one)
	}
	return path
}

func (s *invocation) previewSilenced(ctx context.Context, body any) error {
	var raw json.RawMessage
	if err := s.client.Do(ctx, http.MethodPost, s.ownPath("silenced", "preview"), body, &raw); err != nil {
		if refused := new(client.Error); errors.As(err, &refused) {
			err = refused // without the path
		}
		return fmt.Errorf("preview the silence: %w", err)
	}
	return s.printPlain(raw, s.showPreview)
}

func (s *invocation) showPreview(raw json.RawMessage) (shown, error) {
	p, err := decode[client.SilencePreview](raw)
	if err != nil {
		return nil, err
	}
	var times []string
	for _, span := range p.Spans {
		if span.Ends == 0 {
			times = append(times, "from "+rfc3339(span.Begins)+" on")
			continue
		}
		times = append(times, rfc3339(span.Begins)+" to "+rfc3339(span.Ends))
	}
	if len(times) == 0 {
		times = []string{"never"}
	}
	info := &infoBlock{title: "Preview", lines: []infoLine{
		{"Events", number(p.Events)}, {"Failing", number(p.Failing)}, {"Entities", number(p.Entities)},
		{"Counts Now", yesNo(p.Holds)}, {"Times", strings.Join(times, ", ")},
	}}
	t := &table{color: s.color, columns: []column{{title: "Entity"}, {title: "Check"},
		{title: "State", keep: true, color: wordColor}, {title: "Silenced By"}}}
	for _, ev := range p.Listed {
		t.rows = append(t.rows, []string{ev.Entity, ev.Check, stateWord(ev.Status), comma(ev.Silenced)})
	}
	return both{info, t}, nil
}

func previewSilencedCommand(k *kind) *cobra.Command {
	var a silencedAnswers
	var extras silencedExtras
	cmd := &cobra.Command{
		Use:   "preview [NAME]",
		Short: "show which events a silence matches, and when it applies",
		Long: `Show which events a silence matches now, at most 100 of them by name and failing ones first, and the next times at which it
applies. The silence is an existing one, or one that 'create' would make from the same flags. Nothing is changed.`,
		Example: `  lapwing silenced preview linux:disk
  lapwing silenced preview --subscription linux --check disk
  lapwing silenced preview --label-selector 'region == eu' --cron '0 22 * * 6' --duration 2h --time-zone Europe/Berlin`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.RunE = run(func(ctx context.Context, s *invocation, args []string) error {
		if len(args) == 1 {
			raw, err := s.get(ctx, k, args[0])
			if err != nil {
				return err
			}
			return s.previewSilenced(ctx, raw)
		}
		body, err := a.body(cmd, s, &extras)
		if err != nil {
			return err
		}
		return s.previewSilenced(ctx, body)
	})
	a.flags(cmd)
	extras.flags(cmd)
	targetFlags(cmd, &a)
	completeNames(cmd, k)
	formatFlag(cmd)
	return cmd
}

func targetFlags(cmd *cobra.Command, a *silencedAnswers) {
	cmd.Flags().StringVarP(&a.subscription, "subscription", "s", "", "subscription to silence")
	cmd.Flags().StringVarP(&a.check, "check", "c", "", "check to silence")
}

// body returns the silence that the flags describe.
func (a *silencedAnswers) body(cmd *cobra.Command, s *invocation, extras *silencedExtras) (map[string]any, error) {
	if a.subscription == "" && a.check == "" && !extras.selects() {
		return nil, hintUsage(cmd, errors.New("must specify --check or --subscription"))
	}
	if everything := resource.SilencedName("", ""); resource.SilencedName(a.subscription, a.check) == everything && !extras.selects() {
		return nil, hint(errors.New("must specify --check or --subscription: * stands for any, and a silence of any check with any subscription is refused"),
			"Name one of the two, such as --check disk, --subscription linux or --subscription entity:srv1. For all events of the namespace: "+
				`--name all --field-selector 'event.check.name =~ "."'`)
	}
	body := map[string]any{"metadata": map[string]any{"namespace": s.namespace}, "expire_at": 0}
	if err := a.write(body, time.Now()); err != nil {
		return nil, err
	}
	return body, extras.write(body)
}

func purgeSilencedCommand(*kind) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "delete silences of entities that are gone",
		Long: `Delete the silences of single entities that do not exist. This includes silences made in advance for a new entity:
check first with --dry-run. Silences of checks that do not exist stay: lapwing lint silenced --notes lists them.`,
		Example: "  lapwing silenced purge --dry-run\n  lapwing silenced purge",
		Args:    args(),
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			var out client.PurgeReport
			in := client.PurgeRequest{DryRun: dryRun}
			if err := s.client.Do(ctx, http.MethodPost, s.ownPath("silenced", "purge"), in, &out); err != nil {
				return err
			}
			word := "Deleted"
			if dryRun {
				word = "Would delete"
			}
			if len(out.Silences) == 0 && out.Denied == 0 {
				if err := s.knownNamespace(ctx, s.namespace); err != nil {
					return err
				}
				fmt.Fprintln(s.errOut, "no silence is of an entity that is gone")
			}
			for _, one := range out.Silences {
				fmt.Fprintln(s.out, word, printable(one.Name))
			}
			if out.Denied > 0 {
				fmt.Fprintf(s.errOut, "%d more are not yours to delete\n", out.Denied)
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only list the silences; delete nothing")
	return cmd
}

func ackEventCommand(k *kind) *cobra.Command {
	var comment, expire string
	var labels map[string]string
	cmd := &cobra.Command{
		Use:   "ack ENTITY CHECK",
		Short: "acknowledge a failing event: silence it until it resolves",
		Long: `Acknowledge a failing event: silence this check of this entity, and record who works on it and why. The silence ends when
the check passes, and that result reaches the handlers. A second acknowledgement replaces the comment.`,
		Example: `  lapwing event ack srv1 check-cpu --comment 'restarting it, see ticket 4711'
  lapwing event ack srv1 check-cpu --comment 'back after lunch' --expire 1h`,
		Args: args("ENTITY", "CHECK"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			body := client.Acknowledgement{Comment: comment, Labels: labels}
			if expire != "" {
				var err error
				if body.Expire, err = parseLength("expire", expire); err != nil {
					return err
				}
			}
			if err := s.client.Do(ctx, http.MethodPost, s.ownPath("events", args[0], args[1], "ack"), body, nil); err != nil {
				if lacking := lacksLabels(err); lacking != err {
					return lacking
				}
				return missingNamed(k, strings.Join(args, "/"), err)
			}
			s.did("Acknowledged", k, strings.Join(args, "/"), s.undo("event", "unack", args[0], args[1]))
			return nil
		}),
	}
	cmd.Flags().StringVarP(&comment, "comment", "m", "", "who works on the event, and how (required)")
	cmd.Flags().StringVarP(&expire, "expire", "e", "",
		"end the acknowledgement after this time, for example 1h, even if the event has not resolved")
	_ = cmd.MarkFlagRequired("comment")
	labelsFlag(cmd, &labels)
	completeNames(cmd, k)
	return bySelector(cmd, k, action{
		name: "acknowledge", verb: "acknowledge", done: "Acknowledged", alone: []string{"labels"},
		example: " --comment 'on it'", undo: "unack",
		fill: func(in *client.BulkRequest) (err error) {
			in.Reason = comment
			if expire != "" {
				in.Expire, err = parseLength("expire", expire)
			}
			return err
		},
	})
}

func unackEventCommand(k *kind) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "unack ENTITY CHECK",
		Short:   "end an acknowledgement",
		Example: `  lapwing event unack srv1 check-cpu`,
		Args:    args("ENTITY", "CHECK"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			if err := s.client.Do(ctx, http.MethodDelete, s.ownPath("events", args[0], args[1], "ack"), nil, nil); err != nil {
				if !absent(err) {
					return err
				}
				name := client.EventName(args[0], args[1])
				switch _, gone := client.Get(ctx, s.client, client.Events, s.namespace, name); {
				case gone == nil:
					return fmt.Errorf("event %s is not acknowledged", name)
				case errors.Is(gone, client.ErrDenied):
					return fmt.Errorf("there is no acknowledgement of %s; your roles do not let you see whether there is an event", name)
				case absent(gone):
					return missingNamed(k, name, err)
				}
				return err
			}
			s.did("Unacknowledged", k, strings.Join(args, "/"))
			return nil
		}),
	}
	completeNames(cmd, k)
	return bySelector(cmd, k, action{name: "unacknowledge", verb: "end the acknowledgements of", done: "Unacknowledged"})
}

// windowsText returns a silence's windows for people.
func windowsText(s *silenced) string {
	var out []string
	for _, w := range s.Windows {
		zone := w.TimeZone
		if zone == "" {
			zone = "UTC"
		}
		out = append(out, fmt.Sprintf("%s%s (%s) for %s", w.Cron, w.RRule, zone, time.Duration(w.Duration)*time.Second))
	}
	return strings.Join(out, "; ")
}
