package ctl

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func traceEventCommand(k *kind) *cobra.Command {
	var (
		limit int
		at    string
	)
	cmd := &cobra.Command{
		Use:   "trace ENTITY CHECK",
		Short: "show why an event did or did not alert",
		Long: `Show why an event did or did not alert. The answer comes first, in a sentence. Below it are the newest events of the check:
each workflow with its verdict, its filters with their expressions and the values they saw, and each attempt of its handler
with its time, exit status and output.

Incidents and resolutions are always traced, other events by a sample. Successive events with the same outcome are shown as
one. If there is no trace of the present state, the event is simulated with the present definitions, and the answer says
so. Nothing is sent.

The verdicts: DELIVERED; WAITING (an attempt failed, the next one is due; or it waits for its first turn), HELD,
GROUPED (it waits for its group), FOLDED (it went out with others in one alert), FILTERED, SILENCED, INHIBITED (a
dependency fails), NO HANDLER (no defined handler takes it), DEAD (all attempts failed; see 'lapwing deadletter'),
DROPPED, FAILED (the workflow could not be run).

--at answers for a moment: it leaves out all events that came later. What it says of a delivery includes what became of the
delivery since.

For silences the answer names who made each, why, and when it ends; an acknowledgement is called one. Next steps come last.

The json format is one object: answer, outcomes as the API has them, simulated, and the silences that muted the event.`,
		Example: `  lapwing event trace srv1 check-cpu
  lapwing event trace srv1 check-cpu --at 03:10
  lapwing event trace srv1 check-cpu --limit 20
  lapwing event trace srv1 check-cpu --format json | jq -r .answer`,
		Args: args("ENTITY", "CHECK"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			t := &traced{entity: args[0], check: args[1], now: time.Now()}
			if at != "" {
				var err error
				if t.at, err = moment("at", at, time.Local, t.now); err != nil {
					return err
				}
				if t.at.After(t.now) {
					return fmt.Errorf("--at %s is in the future", at)
				}
			}
			if err := t.fetch(ctx, s); err != nil {
				return err
			}
			if len(t.told.Outcomes) == 0 {
				if err := t.missing(ctx, s, k); err != nil {
					return err
				}
			}
			if s.format != formatTabular {
				silences := []*silenced{}
				for i := range t.told.Silences {
					if one := t.told.Silences[i].Silence; one != nil {
						silences = append(silences, one)
					}
				}
				raw, err := jsonOf(map[string]any{
					"answer": s.worded(t.told.Parts, t.now), "outcomes": t.told.Outcomes, "simulated": t.told.Simulated, "silences": silences,
				})
				if err != nil {
					return err
				}
				return s.printPlain(raw, nil)
			}
			w := bufio.NewWriter(s.out)
			t.printer(s, w).write(limit)
			if err := w.Flush(); err != nil {
				return err
			}
			printNext(s, s.nextSteps(t.entity, t.check, t.at, t.told.Next))
			return nil
		}),
	}
	cmd.Flags().StringVar(&at, "at", "", "answer for this moment: "+timeForms)
	cmd.Flags().IntVar(&limit, "limit", printedOutcomes, "number of events to show; 0 for all")
	completeNames(cmd, k)
	formatFlag(cmd)
	return cmd
}

// traced is what became of the events of a check.
type traced struct {
	entity, check string
	now, at       time.Time // at is the moment in question; zero is now
	told          *client.Explanation
}

// fetch asks for the traces and for what they mean in one request, so that both are of the same moment.
func (t *traced) fetch(ctx context.Context, s *invocation) error {
	var err error
	t.told, err = s.client.Explain(ctx, s.namespace, t.entity, t.check, client.ExplainOptions{At: t.at, Outcomes: true})
	if errors.Is(err, client.ErrNotFound) {
		return hint(err, "Traces need a lapwing backend.")
	}
	return err
}

// missing explains that nothing is traced, unless there is an event to tell of.
func (t *traced) missing(ctx context.Context, s *invocation, k *kind) error {
	_, err := client.Get(ctx, s.client, client.Events, s.namespace, client.EventName(t.entity, t.check))
	gone := errors.Is(err, client.ErrNotFound)
	then := dayClock(t.at.UnixMilli(), t.now)
	switch {
	case gone && t.at.IsZero():
		return hintMissing(k, reworded(err, "there is no event %s/%s, and no trace of one", t.entity, t.check))
	case t.at.IsZero():
		return err
	case gone:
		return hintMissing(k, reworded(err, "there is no event %s/%s, and no trace of one before %s", t.entity, t.check, then))
	}
	return hint(fmt.Errorf("no event of %s/%s that came before %s is traced", t.entity, t.check, then),
		"Its states since then: %s", s.commandLine("event", "history", t.entity, t.check))
}

func (t *traced) printer(s *invocation, w io.Writer) *tracePrinter {
	p := &tracePrinter{w: w, color: s.color, now: t.now, answer: s.worded(t.told.Parts, t.now), simulated: t.told.Simulated,
		outcomes: t.told.Outcomes, notes: map[string]client.Note{}, silences: map[string]string{}}
	for _, one := range t.told.Notes {
		p.notes[one.ID] = one
	}
	for i := range t.told.Silences {
		if one := &t.told.Silences[i]; one.Silence != nil {
			p.silences[one.Name] = one.Text
		}
	}
	return p
}

func simulateCommand() *cobra.Command {
	var (
		files       inputFiles
		what, at    string
		runCommands bool
	)
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "show what would happen to an event, with drafts of definitions",
		Long: `Show what would happen to an event: its workflows, the values and the result of each filter, and the mutator's output.
Nothing is sent and nothing is stored.

Files may hold pipelines, handlers, filters and mutators. They replace the backend's definitions of the same names. Drafts
that the event does not name are tried too. The event is one that the backend has, or one from a JSON or YAML file.

--at tells what would happen if the event came at a moment: the event gets this timestamp, filters, their hours, calendars and
the steps of escalations see this time, and silences that end before it do not apply. All other silences, definitions and
events are those of now.

Filters and JavaScript mutators run. Mutators that are commands run only with --run-commands, which needs the right to
create mutators. Each draft needs the right to create and update it.`,
		Example: `  lapwing pipeline simulate -f draft.yaml --event srv1/check-cpu
  lapwing pipeline simulate --event srv1/check-cpu
  lapwing pipeline simulate --event srv1/check-cpu --at 23:30
  lapwing pipeline simulate -f pipelines/ --event incident.json --format json`,
		Args: args(),
	}
	cmd.RunE = run(func(ctx context.Context, s *invocation, _ []string) error {
		sim, now := &client.Simulation{RunCommands: runCommands}, time.Now()
		if at != "" {
			then, err := moment("at", at, time.Local, now)
			if err != nil {
				return hintUsage(cmd, err)
			}
			sim.At = then.Unix()
		}
		if len(files.targets) > 0 {
			objects, err := readObjects(ctx, s, &files)
			if err != nil {
				return err
			}
			for _, o := range objects {
				if err := addDraft(sim, o); err != nil {
					return err
				}
			}
		}
		if err := simulatedEvent(sim, what, s.namespace); err != nil {
			return hintUsage(cmd, err)
		}
		would, err := s.client.Simulate(ctx, s.namespace, sim)
		if sim.Entity != "" && errors.Is(err, client.ErrNotFound) {
			// ask for the event itself: the answer tells which of its names is wrong
			name := client.EventName(sim.Entity, sim.Check)
			if _, missing := client.Get(ctx, s.client, client.Events, s.namespace, name); absent(missing) {
				return missingNamed(eventKind, what, missing)
			}
		}
		if err != nil {
			return err
		}
		if s.format != formatTabular {
			raw, err := jsonOf(map[string]any{"deliveries": would.Deliveries})
			if err != nil {
				return err
			}
			return s.printPlain(raw, nil)
		}
		then, rewired := "", ""
		if sim.Entity != "" {
			if ev, err := client.Get(ctx, s.client, client.Events, s.namespace, client.EventName(sim.Entity, sim.Check)); err == nil {
				rewired = s.rewired(ctx, eventCheck(ev))
			}
		}
		if sim.At != 0 {
			then = " This is for " + shiftTimeOfDay(sim.At) + "."
		}
		w := bufio.NewWriter(s.out)
		fmt.Fprintln(w, paint(s.color, bold, printable(s.worded(would.Answer, now))+then+" Nothing was sent."))
		fmt.Fprintln(w)
		(&tracePrinter{now: now, w: w, color: s.color, dry: true}).deliveries(would.Deliveries)
		if rewired != "" {
			fmt.Fprintln(w, "\n"+printable(rewired))
		}
		if sim.At != 0 && sim.Check != "" {
			if why := s.pausedAt(ctx, sim.Check, sim.At); why != "" {
				fmt.Fprintf(w, "\n%s\n", printable("Check "+sim.Check+" does not run then: "+why+"; see: "+
					s.commandLine("check", "next", sim.Check, "--from", time.Unix(sim.At, 0).Format(time.RFC3339))))
			}
		}
		return w.Flush()
	})
	files.flags(cmd)
	cmd.Flags().StringVar(&what, "event", "", "event to simulate: ENTITY/CHECK of one that the backend has, or a file with one")
	_ = cmd.MarkFlagRequired("event")
	cmd.Flags().StringVar(&at, "at", "", "when the event comes: "+timeForms)
	cmd.Flags().BoolVar(&runCommands, "run-commands", false, "also run mutators that are commands, on the backend")
	formatFlag(cmd)
	return cmd
}

// rewired says that the definition of an event's check names other handlers or pipelines than the event, which keeps those
// that the check had when it ran; "" if they are the same.
func (s *invocation) rewired(ctx context.Context, of *resource.Check) string {
	def, err := client.Get(ctx, s.client, client.Checks, s.namespace, of.Metadata.Name)
	if err != nil {
		return "" // it is not defined, or you may not read it
	}
	routes := func(handlers []string, pipelines []resource.ResourceReference) string {
		var parts []string
		for _, name := range handlers {
			parts = append(parts, "handler "+name)
		}
		for _, p := range pipelines {
			parts = append(parts, "pipeline "+p.Name)
		}
		slices.Sort(parts)
		return cmp.Or(strings.Join(parts, ", "), "no handler and no pipeline")
	}
	before, now := routes(of.Handlers, of.Pipelines), routes(def.Handlers, def.Pipelines)
	if before == now {
		return ""
	}
	return fmt.Sprintf("The event has %s. Its check has %s now, which counts from the next result on.", before, now)
}

func addDraft(sim *client.Simulation, o *object) error {
	raw, err := json.Marshal(o.body)
	if err != nil {
		return fmt.Errorf("encode %s %s: %w", o.kind.Type, o.name, err)
	}
	switch o.kind.Type {
	case client.Handlers.Type:
		sim.Handlers = append(sim.Handlers, raw)
	case client.Filters.Type:
		sim.Filters = append(sim.Filters, raw)
	case client.Mutators.Type:
		sim.Mutators = append(sim.Mutators, raw)
	case client.Pipelines.Type:
		sim.Pipelines = append(sim.Pipelines, raw)
	default:
		return fmt.Errorf("%s %s cannot be a draft: only pipelines, handlers, filters and mutators can", o.kind.Type, o.name)
	}
	return nil
}

// simulatedEvent sets the event to simulate: one from a file, or one that the backend has.
func simulatedEvent(sim *client.Simulation, what, namespace string) error {
	text, err := os.ReadFile(what)
	if errors.Is(err, os.ErrNotExist) {
		entity, check, ok := strings.Cut(what, "/")
		if !ok || entity == "" || check == "" {
			return fmt.Errorf("--event %s is neither ENTITY/CHECK nor a file", what)
		}
		sim.Entity, sim.Check = entity, check
		return nil
	}
	if err != nil {
		return err
	}
	documents, wrong := splitDocuments(what, text)
	if err := asError(wrong); err != nil {
		return err
	}
	if len(documents) != 1 {
		return fmt.Errorf("%s must hold one event, and has %d resources", what, len(documents))
	}
	var wrapped struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(documents[0].JSON, &wrapped); err != nil || wrapped.Type == "" {
		sim.Event = documents[0].JSON // as the API has it
		return nil
	}
	o := parseObject(documents[0], namespace, asWritten, true)
	if err := asError(o.wrong); err != nil {
		return err
	}
	if o.kind.Type != client.Events.Type {
		return fmt.Errorf("%s holds a %s and not an event", what, o.kind.Type)
	}
	if sim.Event, err = json.Marshal(o.body); err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	return nil
}
