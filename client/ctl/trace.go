package ctl

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// tracedOutcomes is how many outcomes are fetched: enough to include the beginning of an incident.
const tracedOutcomes = 100

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
			a := &account{entity: args[0], check: args[1], now: time.Now(), command: s.commandLine}
			if at != "" {
				var err error
				if a.at, err = moment("at", at, time.Local, a.now); err != nil {
					return err
				}
				if a.at.After(a.now) {
					return fmt.Errorf("--at %s is in the future", at)
				}
			}
			if err := a.fetch(ctx, s); err != nil {
				return err
			}
			if !a.at.IsZero() && len(a.outcomes) == 0 {
				name := client.EventName(a.entity, a.check)
				if _, missing := client.Get(ctx, s.client, client.Events, s.namespace, name); errors.Is(missing, client.ErrNotFound) {
					return hintMissing(k, reworded(missing, "there is no event %s/%s, and no trace of one before %s",
						a.entity, a.check, a.clock(a.at.UnixMilli())))
				}
				return hint(fmt.Errorf("no event of %s/%s that came before %s is traced", a.entity, a.check, a.clock(a.at.UnixMilli())),
					"Its states since then: %s", s.commandLine("event", "history", a.entity, a.check))
			}
			if a.event == nil && len(a.outcomes) == 0 {
				return hintMissing(k, reworded(a.missing, "there is no event %s/%s, and no trace of one", a.entity, a.check))
			}
			if s.format != formatTabular {
				silences := []*silenced{}
				for _, name := range slices.Sorted(maps.Keys(a.silencers)) {
					if one := a.silencers[name]; one != nil {
						silences = append(silences, one.silenced)
					}
				}
				raw, err := jsonOf(map[string]any{
					"answer": a.sentence(), "outcomes": a.outcomes, "simulated": a.simulated, "silences": silences,
				})
				if err != nil {
					return err
				}
				return s.printPlain(raw, nil)
			}
			w := bufio.NewWriter(s.out)
			(&tracePrinter{account: a, w: w, color: s.color}).write(limit)
			if err := w.Flush(); err != nil {
				return err
			}
			printNext(s, a.next(s))
			return nil
		}),
	}
	cmd.Flags().StringVar(&at, "at", "", "answer for this moment: "+timeForms)
	cmd.Flags().IntVar(&limit, "limit", printedOutcomes, "number of events to show; 0 for all")
	completeNames(cmd, k)
	formatFlag(cmd)
	return cmd
}

// fetch requests everything about the event.
func (a *account) fetch(ctx context.Context, s *invocation) error {
	if err := a.fetchOutcomes(ctx, s); err != nil {
		return err
	}
	if a.at.IsZero() && a.anyHeld() {
		// Without the right, or from an earlier release, the trace says what it knows.
		var list resource.EscalationList
		q := url.Values{"entity": {a.entity}, "check": {a.check}}
		if err := s.client.Do(ctx, http.MethodGet, s.ownPath("escalations")+"?"+q.Encode(), nil, &list); err == nil {
			for _, e := range list.Escalations { // an earlier release does not know the parameters
				if e.Entity == a.entity && e.Check == a.check {
					a.escalations = append(a.escalations, e)
				}
			}
		}
	}
	return a.findSilencers(ctx, s)
}

// anyHeld reports whether a delivery is held, as those are that wait for the steps of an escalation.
func (a *account) anyHeld() bool {
	return slices.ContainsFunc(a.outcomes, func(o client.Outcome) bool {
		return slices.ContainsFunc(o.Deliveries, func(d client.Delivery) bool { return d.Verdict == client.VerdictHeld })
	})
}

func (a *account) fetchOutcomes(ctx context.Context, s *invocation) error {
	var err error
	if a.outcomes, err = s.client.Trace(ctx, s.namespace, a.entity, a.check, a.at, tracedOutcomes); err != nil {
		if errors.Is(err, client.ErrDenied) {
			return err
		}
		return hint(err, "Traces need a lapwing backend.")
	}
	if !a.at.IsZero() {
		return nil
	}
	a.event, err = client.Get(ctx, s.client, client.Events, s.namespace, client.EventName(a.entity, a.check))
	if err != nil && !errors.Is(err, client.ErrNotFound) {
		return err
	}
	a.missing = err
	if a.event == nil || eventCheck(a.event).Status == 0 {
		return nil
	}
	a.orphaned = s.checkGone(ctx, a.event)
	if a.traced() {
		if !slices.ContainsFunc(a.outcomes[0].Deliveries, func(d client.Delivery) bool { return d.Verdict == client.VerdictNoHandler }) {
			a.undefined = undefinedHandlers(ctx, s, eventCheck(a.event).Handlers)
		}
		return nil
	}
	// If the simulation fails, the rest is still shown.
	if a.simulated, err = s.client.Simulate(ctx, s.namespace, &client.Simulation{Entity: a.entity, Check: a.check}); err != nil {
		a.simulated, a.why = nil, err.Error()
	}
	return nil
}

// undefinedHandlers returns the handlers among the names that are not defined. A user without the right to see handlers
// gets none.
func undefinedHandlers(ctx context.Context, s *invocation, names []string) (undefined []string) {
	const most = 10
	for _, name := range names[:min(len(names), most)] {
		if _, err := client.Get(ctx, s.client, client.Handlers, s.namespace, name); errors.Is(err, client.ErrNotFound) {
			undefined = append(undefined, name)
		}
	}
	return undefined
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
		deliveries, err := s.client.Simulate(ctx, s.namespace, sim)
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
			raw, err := jsonOf(map[string]any{"deliveries": deliveries})
			if err != nil {
				return err
			}
			return s.printPlain(raw, nil)
		}
		a, then := &account{now: now, command: s.commandLine}, ""
		rewired := ""
		if sim.Entity != "" {
			if ev, err := client.Get(ctx, s.client, client.Events, s.namespace, client.EventName(sim.Entity, sim.Check)); err == nil {
				rewired = s.rewired(ctx, eventCheck(ev))
				if len(files.targets) == 0 { // drafts may define what is missing
					a.undefined = undefinedHandlers(ctx, s, eventCheck(ev).Handlers)
				}
			}
		}
		if sim.At != 0 {
			then = " This is for " + shiftTimeOfDay(sim.At) + "."
		}
		w := bufio.NewWriter(s.out)
		fmt.Fprintln(w, paint(s.color, bold, printable(a.would(deliveries))+printable(a.undefinedNote())+then+" Nothing was sent."))
		fmt.Fprintln(w)
		(&tracePrinter{account: a, w: w, color: s.color, dry: true}).deliveries(deliveries)
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
