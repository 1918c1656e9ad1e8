package workflow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/oncall"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// Overlay has drafts for a simulation. They replace definitions of the same names, or are added to them. A draft
// without a namespace belongs to the simulation's namespace.
type Overlay struct {
	Handlers  []*resource.Handler
	Filters   []*resource.EventFilter
	Mutators  []*resource.Mutator
	Pipelines []*resource.Pipeline
	// RunCommands runs the commands of mutators. Scripts always run.
	RunCommands bool
	// At is when the event comes: it has this timestamp, filters and escalations see this time, and silences that end before
	// it do not apply. Mutators see the present time. Zero is now, and leaves the event as it is.
	At time.Time
}

// maxShownData bounds how many bytes of the handler's input are shown.
const maxShownData = 4096

// Simulate returns the traces that an event would have, through all that it names and through drafts that it does not
// name. Filters and scripts run, but nothing is sent or stored. A delivery that would be sent has the verdict
// Delivered, with a reason that says it was not sent.
func (w *Workflows) Simulate(ctx context.Context, overlay Overlay, ev *resource.Event, namespace string) []trace.Delivery {
	defs := definitions{Snapshot: w.opts.Config(), drafts: &overlay}
	if !overlay.At.IsZero() {
		ev = moved(defs.Snapshot, namespace, ev, overlay.At)
	}
	defer w.filters.Forget(overlay.Filters, overlay.Mutators)
	about := trace.Delivery{Header: delivery.Header{
		Namespace: namespace, Incident: ev.IsIncident(), Resolution: ev.IsResolution(), Received: ev.Timestamp * 1000,
		EventID: "simulation",
	}}
	if ev.Entity != nil {
		about.Entity = ev.Entity.Metadata.Name
	}
	if ev.Check != nil {
		about.Check, about.Status = ev.Check.Metadata.Name, ev.Check.Status
	}
	facts := filter.Facts{Incident: about.Incident, Resolution: about.Resolution, HasMetrics: ev.HasMetrics(), Silenced: ev.IsSilenced()}
	if facts.Resolution && letThrough(defs.Snapshot, namespace, ev) {
		facts.Silenced = false
	}
	routes := w.routes(defs, namespace, ev)
	named := len(routes)
	routes = w.draftRoutes(routes, defs, namespace)
	if len(routes) == 0 {
		about.ID, about.Verdict, about.Reason = about.EventID, trace.NoHandler, NotDefined(ev, "is")
		if len(handlerNames(ev)) == 0 {
			about.Reason = "the event names no handler and no pipeline"
		}
		return []trace.Delivery{about}
	}
	list := make([]trace.Delivery, len(routes))
	for i := range routes {
		rt, d := &routes[i], &list[i]
		*d = about
		d.ID, d.Handler = about.EventID+rt.ID(), rt.Handler
		d.Pipeline, d.Workflow = rt.Names()
		w.simulate(ctx, defs, rt, ev, facts, d)
		if i >= named {
			d.Reason = strings.TrimPrefix(d.Reason+"; the event does not name this draft", "; ")
		}
	}
	return list
}

// moved returns a copy of an event that comes at a time.
func moved(sn *config.Snapshot, namespace string, ev *resource.Event, at time.Time) *resource.Event {
	later := *ev
	later.Timestamp = at.Unix()
	if later.Check != nil {
		check := *later.Check
		check.Silenced = slices.DeleteFunc(slices.Clone(check.Silenced), func(name string) bool {
			s, ok := config.Get(sn, config.Silences, namespace, name)
			return ok && s.Expired(at)
		})
		later.Check = &check
	}
	return &later
}

// letThrough reports whether all silences of a resolution let it through. The fold removes such silences from a
// resolution; a stored event has all that apply now.
func letThrough(sn *config.Snapshot, namespace string, ev *resource.Event) bool {
	if ev.Check == nil || len(ev.Check.Silenced) == 0 {
		return false
	}
	for _, name := range ev.Check.Silenced {
		s, ok := config.Get(sn, config.Silences, namespace, name)
		if !ok || !s.PassResolve {
			return false
		}
	}
	return true
}

// draftRoutes appends routes for drafts of pipelines and handlers that the event does not name.
func (w *Workflows) draftRoutes(routes []Route, defs definitions, namespace string) []Route {
	known := slices.Clone(routes)
	for _, p := range defs.drafts.Pipelines {
		if !slices.ContainsFunc(known, func(rt Route) bool { return rt.pipeline == p }) {
			routes = w.workflows(routes, defs, namespace, p.Metadata.Name)
		}
	}
	used := slices.Clone(routes)
	for _, h := range defs.drafts.Handlers {
		if h.Type != "set" && !slices.ContainsFunc(used, func(rt Route) bool { return rt.def == h }) {
			routes = append(routes, handlerRoute(namespace, h))
		}
	}
	return routes
}

// simulate reports on one route in d. It returns the handler's input if that was made, and whether a mutator other than the
// default one made it.
func (w *Workflows) simulate(
	ctx context.Context, defs definitions, rt *Route, ev *resource.Event, facts filter.Facts, d *trace.Delivery,
) (input []byte, mutated bool) {
	if err := rt.Usable(); err != nil {
		d.Verdict, d.Reason = trace.Failed, err.Error()
		return nil, false
	}
	decision := w.decide(ctx, defs, rt, ev, facts)
	d.Verdict, d.Reason, d.Steps = decision.Verdict, decision.Reason, decision.Steps
	if d.Verdict != "" {
		return nil, false
	}
	if rt.def != nil && rt.def.Type == resource.EscalationType && w.opts.OnCall != nil {
		now := defs.drafts.At
		if now.IsZero() {
			now = time.Now()
		}
		w.simulateEscalation(rt, ev, facts, d, now)
		return nil, false
	}
	data, steps, err := w.shape(ctx, defs, rt, ev)
	d.Steps = append(d.Steps, steps...)
	d.Verdict, d.Reason = trace.Delivered, "nothing was sent: this was a simulation"
	switch {
	case errors.Is(err, errNotRun):
		d.Reason += ", and the command of mutator " + rt.mutator + " was not run"
		d.Steps[len(d.Steps)-1].Verdict = ""
	case err != nil:
		d.Verdict, d.Reason = trace.Failed, err.Error()
	default:
		input, mutated = data, len(steps) > 0
		shown := strings.ToValidUTF8(string(data[:min(len(data), maxShownData)]), "")
		d.Steps = append(d.Steps, trace.Step{Kind: trace.StepMutator, Name: mutatorName(rt), Verdict: trace.Pass, Saw: []trace.Value{
			{Name: "bytes", Value: fmt.Sprint(len(data))}, {Name: "data", Value: shown},
		}})
		if len(steps) > 0 { // one step for the mutator is enough
			last := len(d.Steps) - 1
			d.Steps[last].Micros = d.Steps[last-1].Micros
			d.Steps = slices.Delete(d.Steps, last-1, last)
		}
	}
	if decision.GroupKey != "" && d.Verdict == trace.Delivered {
		d.Steps = append(d.Steps,
			trace.Step{Kind: trace.StepGroup, Verdict: trace.Pass, Saw: []trace.Value{{Name: "group", Value: decision.GroupKey}}})
	}
	return input, mutated
}

// simulateEscalation reports what each step of an escalation would do that begins at a time.
func (w *Workflows) simulateEscalation(rt *Route, ev *resource.Event, facts filter.Facts, d *trace.Delivery, now time.Time) {
	switch {
	case facts.Resolution:
		d.Verdict, d.Reason = trace.Delivered, "a resolution goes to all who were notified; nothing was sent: this was a simulation"
		return
	case !facts.Incident:
		d.Verdict, d.Reason = trace.Filtered, "only incidents escalate"
		return
	}
	e := rt.def.Escalation
	d.Verdict = trace.Held
	at := now
	for i := range e.Steps {
		at = at.Add(time.Duration(e.Steps[i].After) * time.Second)
		recipients, problems := w.opts.OnCall.Recipients(rt.namespace, &e.Steps[i], ev, at)
		names := make([]string, len(recipients))
		for k, r := range recipients {
			names[k] = r.String()
		}
		step := trace.Step{Kind: trace.StepEscalate, Name: trace.StepName(i + 1), Verdict: trace.Pass, Error: strings.Join(problems, "; "),
			Saw: []trace.Value{{Name: "after", Value: at.Sub(now).String()}, {Name: "notifies", Value: strings.Join(names, ", ")}}}
		first := "step 1 notifies " + strings.Join(names, ", ")
		if len(names) == 0 {
			step.Verdict = trace.Error
			first = "step 1 finds no one to notify"
		}
		if d.Steps = append(d.Steps, step); i == 0 {
			d.Reason = "it begins an escalation, and " + first + w.firstStepTime(rt, ev, at.Sub(now), now)
		}
	}
}

// firstStepTime says in words when the first step of an escalation that begins now is taken.
func (w *Workflows) firstStepTime(rt *Route, ev *resource.Event, after time.Duration, now time.Time) string {
	if name, until, quiet := w.opts.OnCall.Quiet(rt.namespace, rt.def.Escalation, ev.Check.Status, now.Add(after)); quiet {
		return " when the quiet time is over: " + oncall.QuietText(ev.Check.Status, name, until)
	}
	if after > 0 {
		return " after " + after.String()
	}
	return " now"
}

func mutatorName(rt *Route) string {
	if rt.mutator == "" {
		return "json"
	}
	return rt.mutator
}
