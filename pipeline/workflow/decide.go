package workflow

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// AskFirst evaluates a route's cheap filters: the built-in ones, unless a user has defined a filter of that name. The
// decision has a verdict if one denies; explain adds the reason. A filter that is not defined is an error.
func (w *Workflows) AskFirst(
	sn *config.Snapshot, rt *Route, ev *resource.Event, facts filter.Facts, explain bool,
) (Decision, error) {
	defs := definitions{Snapshot: sn}
	for _, name := range rt.filters {
		if builtin, ok := filter.Builtin(name); ok {
			if builtin(facts) {
				continue
			}
			w.metrics.filtered.WithLabelValues(name).Inc()
			if !explain {
				return Decision{Verdict: trace.Filtered}, nil
			}
			return deniedBuiltin(name, ev), nil
		}
		if _, ok := defs.filter(rt.namespace, name); ok {
			continue // Decide evaluates it later
		}
		native, ok := filter.NativeFilter(name)
		if !ok {
			return Decision{}, fmt.Errorf("there is no filter %q", name)
		}
		if !native.Passes(ev, rt.Handler) {
			w.metrics.filtered.WithLabelValues(name).Inc()
			return Decision{
				Verdict: trace.Filtered, Reason: "filter " + name + " denies it",
				Steps: []trace.Step{{
					Kind: trace.StepFilter, Name: name, Verdict: trace.Deny, Saw: values(native.Saw(ev, rt.Handler)),
				}},
			}, nil
		}
	}
	return Decision{}, nil
}

// deniedBuiltin returns the decision of a built-in filter that denies.
func deniedBuiltin(name string, ev *resource.Event) Decision {
	if name == notSilenced {
		var by []string
		if ev.Check != nil {
			by = ev.Check.Silenced
		}
		return DeniedBySilences(by)
	}
	step := trace.Step{Kind: trace.StepFilter, Name: name, Verdict: trace.Deny, Saw: builtinSaw(name, ev)}
	return Decision{Verdict: trace.Filtered, Reason: "filter " + name + " denies it", Steps: []trace.Step{step}}
}

const notSilenced = "not_silenced"

// DeniedBySilences returns the decision of the filter not_silenced for an event with these silences.
func DeniedBySilences(names []string) Decision {
	reason := "it is silenced"
	if len(names) > 0 {
		reason += " by " + joinNames(names)
	}
	return Decision{Verdict: trace.Silenced, Reason: reason, Steps: []trace.Step{{
		Kind: trace.StepSilence, Name: notSilenced, Verdict: trace.Deny, Saw: silencedSaw(names),
	}}}
}

func silencedSaw(names []string) []trace.Value {
	return []trace.Value{{Name: "event.check.silenced", Value: "[" + joinNames(names) + "]"}}
}

// builtinSaw returns the values that a built-in filter reads.
func builtinSaw(name string, ev *resource.Event) []trace.Value {
	switch name {
	case "is_incident":
		return []trace.Value{
			{Name: "event.is_incident", Value: fmt.Sprint(ev.IsIncident())},
			{Name: "event.is_resolution", Value: fmt.Sprint(ev.IsResolution())},
		}
	case notSilenced:
		if ev.Check != nil {
			return silencedSaw(ev.Check.Silenced)
		}
	case "has_metrics":
		return []trace.Value{{Name: "event.has_metrics", Value: fmt.Sprint(ev.HasMetrics())}}
	}
	return nil
}

// Decide decides whether a delivery goes out: by all filters of its route as defined now, and by the event's
// dependencies. Silences were decided when the event happened: the fold has removed from a resolution those that let
// it through.
func (w *Workflows) Decide(ctx context.Context, dl *delivery.Delivery, ev *resource.Event) Decision {
	defs := definitions{Snapshot: w.opts.Config()}
	rt, err := w.routeOf(defs, dl)
	if err != nil {
		return Decision{Verdict: trace.Dropped, Reason: err.Error()}
	}
	facts := filter.Facts{
		Incident: dl.Incident, Resolution: dl.Resolution, HasMetrics: ev.HasMetrics(), Silenced: ev.IsSilenced(),
	}
	return w.decide(ctx, defs, rt, ev, facts)
}

func (w *Workflows) decide(ctx context.Context, defs definitions, rt *Route, ev *resource.Event, facts filter.Facts) Decision {
	steps := make([]trace.Step, 0, len(rt.filters)+1)
	for _, name := range rt.filters {
		if builtin, ok := filter.Builtin(name); ok {
			if !builtin(facts) {
				w.count(defs, w.metrics.filtered, name)
				d := deniedBuiltin(name, ev)
				d.Steps = append(steps, d.Steps...)
				return d
			}
			steps = append(steps, trace.Step{Kind: trace.StepFilter, Name: name, Verdict: trace.Pass, Saw: builtinSaw(name, ev)})
			continue
		}
		if def, ok := defs.filter(rt.namespace, name); ok {
			answer := w.ask(ctx, defs, def, ev)
			steps = append(steps, stepsOf(name, &answer)...)
			if !answer.Passes {
				w.count(defs, w.metrics.filtered, "defined")
				return Decision{Verdict: trace.Filtered, Reason: reasonOf(name, &answer), Steps: steps}
			}
			continue
		}
		native, ok := filter.NativeFilter(name)
		if !ok {
			err := fmt.Errorf("there is no filter %q", name)
			w.failed(defs, rt, "filter", err)
			return Decision{Verdict: trace.Failed, Reason: err.Error(), Steps: steps}
		}
		step := trace.Step{Kind: trace.StepFilter, Name: name, Verdict: trace.Pass, Saw: values(native.Saw(ev, rt.Handler))}
		if !native.Passes(ev, rt.Handler) {
			w.count(defs, w.metrics.filtered, name)
			step.Verdict = trace.Deny
			return Decision{Verdict: trace.Filtered, Reason: "filter " + name + " denies it", Steps: append(steps, step)}
		}
		steps = append(steps, step)
	}
	if w.opts.Inhibited != nil && facts.Incident {
		begin := time.Now()
		if by, inhibited := w.opts.Inhibited(ctx, ev); inhibited {
			w.count(defs, w.metrics.filtered, "inhibited")
			way := strings.Join(by, " depends on ")
			steps = append(steps, trace.Step{
				Kind: trace.StepInhibit, Verdict: trace.Deny, Micros: time.Since(begin).Microseconds(),
				Saw: []trace.Value{{Name: "depends on", Value: way}},
			})
			return Decision{Verdict: trace.Inhibited, Reason: "it depends on " + way + ", which fails", Steps: steps}
		}
	}
	return Decision{GroupKey: groupKey(rt.def, ev), Steps: steps}
}

// ask asks a filter, in a simulation at its time.
func (w *Workflows) ask(ctx context.Context, defs definitions, def *resource.EventFilter, ev *resource.Event) filter.Answer {
	if defs.drafts == nil || defs.drafts.At.IsZero() {
		return w.filters.Ask(ctx, def, ev)
	}
	return w.filters.AskAt(ctx, def, ev, defs.drafts.At)
}

// count increments a counter, except in a simulation.
func (w *Workflows) count(defs definitions, of *prometheus.CounterVec, label string) {
	if defs.drafts == nil {
		of.WithLabelValues(label).Inc()
	}
}

// failed counts and logs why a delivery fails, except in a simulation.
func (w *Workflows) failed(defs definitions, rt *Route, step string, err error) {
	w.count(defs, w.metrics.errors, step)
	if defs.drafts == nil {
		w.logOnce(rt, err)
	}
}

// groupKey returns the key of the event's group at a handler; "" if the handler does not group.
func groupKey(h *resource.Handler, ev *resource.Event) string {
	if h == nil || h.Group == nil || ev.Check == nil {
		return ""
	}
	if len(h.Group.By) == 0 {
		return "all"
	}
	parts := GroupValues(h.Group.By, ev)
	for i := range parts {
		parts[i] = h.Group.By[i] + "=" + parts[i]
	}
	return strings.Join(parts, ", ")
}

// stepsOf returns a filter's answer as trace steps, one for each expression.
func stepsOf(name string, answer *filter.Answer) []trace.Step {
	if len(answer.Asked) == 0 { // decided by its hours
		step := trace.Step{Kind: trace.StepFilter, Name: name, Verdict: trace.Pass}
		if !answer.Passes {
			step.Verdict = trace.Deny
		}
		return []trace.Step{step}
	}
	steps := make([]trace.Step, len(answer.Asked))
	for i, asked := range answer.Asked {
		steps[i] = trace.Step{
			Kind: trace.StepFilter, Name: name, Expression: asked.Expression, Verdict: trace.Pass,
			Saw: values(asked.Saw), Micros: asked.Took.Microseconds(),
		}
		switch {
		case asked.Err != nil:
			steps[i].Verdict, steps[i].Error = trace.Error, asked.Err.Error()
		case asked.Denies:
			steps[i].Verdict = trace.Deny
		}
	}
	return steps
}

func reasonOf(name string, answer *filter.Answer) string {
	if answer.Reason != "" {
		return "filter " + name + " denies it: " + answer.Reason
	}
	return "filter " + name + " denies it"
}

func values(saw []filter.Value) []trace.Value {
	if len(saw) == 0 {
		return nil
	}
	list := make([]trace.Value, len(saw))
	for i, v := range saw {
		list[i] = trace.Value{Name: v.Name, Value: v.Value}
	}
	return list
}

// Fallback returns the deliveries that replace a dead letter: if it came through a pipeline of the check's fallback
// pipeline, those of the next pipeline. Package handler assigns their partition and position.
func (w *Workflows) Fallback(dl *delivery.Delivery, ev *resource.Event) []*delivery.Delivery {
	if dl.Pipeline == "" || ev.Check == nil {
		return nil
	}
	defs := definitions{Snapshot: w.opts.Config()}
	names := defs.fallbackOf(dl.Namespace, dl.Check)
	facts := filter.Facts{
		Incident: dl.Incident, Resolution: dl.Resolution, HasMetrics: ev.HasMetrics(), Silenced: ev.IsSilenced(),
	}
	event := dl.EventID
	for at, name := range names {
		if name != dl.Pipeline {
			continue
		}
		// A pipeline without a usable route counts as failed.
		for _, next := range names[at+1:] {
			var list []*delivery.Delivery
			for _, rt := range w.workflows(nil, defs, dl.Namespace, next) {
				if err := rt.Usable(); err != nil {
					w.Failed(&rt, "resolve", err)
					continue
				}
				if denied, err := w.AskFirst(defs.Snapshot, &rt, ev, facts, false); err != nil || denied.Verdict != "" {
					continue
				}
				to := *dl
				to.ID, to.Handler, to.Pipeline, to.Workflow = event+rt.ID(), rt.Handler, next, rt.workflow.Name
				list = append(list, &to)
			}
			if len(list) > 0 {
				return list
			}
		}
	}
	return nil
}
