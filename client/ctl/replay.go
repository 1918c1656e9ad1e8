package ctl

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

// replayedDetails is how many events a replay shows.
const replayedDetails = 20

func replayCommand() *cobra.Command {
	var (
		files inputFiles
		in    client.ReplayRequest
	)
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "take events of the past through a pipeline once more",
		Long: `Take events of the past through a pipeline once more: one that is defined (--pipeline), or drafts in files. By default
nothing is sent: filters and mutators run, and the summary says what each handler would get. --send hands it over to the
handlers, at most --rate deliveries a second, each once. Receivers tell it by the id of the delivery, which begins with
replay-.

The events come from PostgreSQL, which the backend must have. They have the entities and definitions of the present, and the
silences of their time: a new silence keeps nothing back. Their check's history is not stored: it has the event's own result,
and before a resolution one of status 1. Dependencies are looked up in the present.

Drafts need the right to create and update them. --send needs the right to update the pipelines and their handlers too. The
json format is one object: summary, and all events with their deliveries.`,
		Example: `  lapwing pipeline replay --since 2h --pipeline pager
  lapwing pipeline replay --since 2h -f draft.yaml --label-selector 'region == eu' --format json
  lapwing pipeline replay --since 2026-10-01T22:00:00Z --until 2026-10-02T06:00:00Z --pipeline pager --send --rate 10`,
		Args: args(),
	}
	cmd.RunE = run(func(ctx context.Context, s *invocation, _ []string) error {
		if in.Pipeline == "" && len(files.targets) == 0 {
			return hintUsage(cmd, fmt.Errorf("--pipeline or --file is required"))
		}
		if len(files.targets) > 0 {
			objects, err := readObjects(ctx, s, &files)
			if err != nil {
				return err
			}
			var drafts client.Simulation
			for _, o := range objects {
				if err := addDraft(&drafts, o); err != nil {
					return err
				}
			}
			in.Handlers, in.Filters, in.Mutators, in.Pipelines = drafts.Handlers, drafts.Filters, drafts.Mutators, drafts.Pipelines
		}
		if in.Details = replayedDetails; s.format != formatTabular {
			in.Details = -1
		}
		if err := sentMoments(&in.Since, &in.Until, time.Local, time.Now()); err != nil {
			return err
		}
		r := &replay{begin: time.Now(), progress: progressLine{w: rawStream(s.errOut), rewrite: isTerminal(s.errOut)}, events: []*client.ReplayedEvent{}}
		err := s.client.Replay(ctx, s.namespace, &in, r.add)
		r.progress.end()
		if err != nil {
			return err
		}
		raw, err := jsonOf(map[string]any{"summary": r.summary, "events": r.events})
		if err != nil {
			return err
		}
		return s.printPlain(raw, func(json.RawMessage) (shown, error) { return r, nil })
	})
	files.flags(cmd)
	f := cmd.Flags()
	f.Lookup("file").Usage = "file, directory, URL, or - for standard input, with drafts; can be repeated"
	f.StringVar(&in.Pipeline, "pipeline", "", "pipeline to use, a defined one or one of the drafts (default all drafts)")
	f.StringVar(&in.Since, "since", "", "when the first event was received: "+timeForms)
	_ = cmd.MarkFlagRequired("since")
	f.StringVar(&in.Until, "until", "", "when the last event was received, as for --since; a day belongs to it (default now)")
	f.StringVar(&in.Entity, "entity", "", "only events of this entity")
	f.StringVar(&in.Check, "check", "", "only events of this check")
	f.StringVar(&in.LabelSelector, "label-selector", "", "only events whose labels match, for example 'region == eu'")
	f.StringVar(&in.FieldSelector, "field-selector", "", "only events whose fields match, for example 'event.check.status == 2'")
	f.IntVar(&in.Limit, "limit", 0, "number of selected events to take; 0 for all")
	f.BoolVar(&in.Send, "send", false, "hand over to the handlers what comes out of the pipeline")
	f.Float64Var(&in.Rate, "rate", 50, "deliveries a second with --send, at most")
	f.BoolVar(&in.RunCommands, "run-commands", false, "without --send, also run mutators that are commands, on the backend")
	formatFlag(cmd)
	return cmd
}

// replay collects the answer of a replay.
type replay struct {
	begin    time.Time
	progress progressLine
	events   []*client.ReplayedEvent
	summary  *client.ReplaySummary
}

func (r *replay) add(l *client.ReplayLine) error {
	switch {
	case l.Event != nil:
		r.events = append(r.events, l.Event)
	case l.Progress != nil:
		r.progress.show(replayText(l.Progress, time.Since(r.begin)))
	case l.Summary != nil:
		r.summary = l.Summary
	}
	return nil
}

// replayText says how far a replay is, and how long it will take if the rest is like what was read.
func replayText(p *client.ReplayProgress, took time.Duration) string {
	text := fmt.Sprintf("%d events read (%.0f/s), %d selected, %d deliveries", p.Read, float64(p.Read)/took.Seconds(), p.Selected, p.Delivered)
	if done := float64(p.At.Sub(p.Since)) / float64(p.Until.Sub(p.Since)); done > 0 {
		text += fmt.Sprintf(", %.0f %% of the time, about %s left", 100*done, span(time.Duration(float64(took)*(1-done)/done)))
	}
	return text
}

// progressLine shows progress: in one line of a terminal, and elsewhere in a line every 10 seconds.
type progressLine struct {
	w       io.Writer
	rewrite bool
	shown   time.Time
	wide    int
}

func (p *progressLine) show(text string) {
	switch {
	case p.rewrite:
		text = printable(text)
		fmt.Fprintf(p.w, "\r%-*s", p.wide, text)
		p.wide = len(text)
	case time.Since(p.shown) >= 10*time.Second:
		fmt.Fprintln(p.w, printable(text))
		p.shown = time.Now()
	}
}

func (p *progressLine) end() {
	if p.wide > 0 {
		fmt.Fprintln(p.w)
	}
}

func (r *replay) show(s *invocation) error {
	sum, w := r.summary, bufio.NewWriter(s.out)
	fate := "would be sent. Nothing was sent."
	if sum.Sent {
		fate = fmt.Sprintf("were sent, %d failed.", sum.Failed)
	} else if sum.Failed > 0 {
		fate = fmt.Sprintf("would be sent, %d would fail. Nothing was sent.", sum.Failed)
	}
	line := fmt.Sprintf("%d of %d events from %s to %s", sum.Selected, sum.Read,
		sum.Since.Local().Format(time.DateTime), sum.Until.Local().Format(time.DateTime))
	if sum.First != nil {
		line += ", the first of " + sum.First.Local().Format(time.DateTime)
	}
	line += fmt.Sprintf(": %d deliveries %s", sum.Delivered, fate)
	if sum.Unreadable > 0 {
		line += fmt.Sprintf(" %d events cannot be read.", sum.Unreadable)
	}
	fmt.Fprintln(w, paint(s.color, bold, line))
	if len(sum.Verdicts) > 0 {
		fmt.Fprintln(w, "Events: "+counts(sum.Verdicts, sum.Sent))
	}
	if sum.Selected == 0 {
		fmt.Fprintln(w, "No event matched. 'lapwing event list' has the names of entities and checks.")
		return w.Flush()
	}
	fmt.Fprintln(w)
	t := &table{columns: []column{{title: "Pipeline"}, {title: "Workflow"}, {title: "Handler"}, {title: "Deliveries"}}, color: s.color}
	for _, rt := range sum.Routes {
		t.rows = append(t.rows, []string{rt.Pipeline, rt.Workflow, rt.Handler, counts(rt.Verdicts, sum.Sent)})
	}
	s.print(w, t)
	for _, e := range r.events {
		fmt.Fprintf(w, "\n%s  %s  %s  status %d\n", millisTime(e.Received), e.ID, printable(strings.Trim(e.Entity+"/"+e.Check, "/")), e.Status)
		(&tracePrinter{now: time.Now(), w: w, color: s.color, dry: !sum.Sent}).deliveries(e.Deliveries)
	}
	if more := sum.Selected - len(r.events); more > 0 && len(r.events) > 0 {
		fmt.Fprintf(w, "\n%d more events are not shown. The json format has all.\n", more)
	}
	return w.Flush()
}

// wouldBeSent is the verdict delivered if nothing was sent.
const wouldBeSent = "would be sent"

// counts returns how often each verdict was, the most frequent first.
func counts(of map[string]int, sent bool) string {
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int { return cmp.Or(of[b]-of[a], strings.Compare(a, b)) })
	for i, name := range names {
		text := strings.ReplaceAll(name, "_", " ")
		if name == string(client.VerdictDelivered) && !sent {
			text = wouldBeSent
		}
		names[i] = fmt.Sprintf("%d %s", of[name], text)
	}
	return strings.Join(names, ", ")
}
