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

// AskFirst asks those of a route's filters that cost next to nothing: the built-in ones, and those of ours that no user
// has defined anew. The decision has a verdict if one denies; explain adds why. A filter that is not defined is an
// error.
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
			continue // asked later
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

// deniedBuiltin is the verdict of a built-in filter that denies.
func deniedBuiltin(name string, ev *resource.Event) Decision {
	step := trace.Step{Kind: trace.StepFilter, Name: name, Verdict: trace.Deny, Saw: builtinSaw(name, ev)}
	if name != "not_silenced" {
		return Decision{Verdict: trace.Filtered, Reason: "filter " + name + " denies it", Steps: []trace.Step{step}}
	}
	step.Kind = trace.StepSilence
	reason := "it is silenced"
	if ev.Check != nil && len(ev.Check.Silenced) > 0 {
		reason = "it is silenced by " + joinNames(ev.Check.Silenced)
	}
	return Decision{Verdict: trace.Silenced, Reason: reason, Steps: []trace.Step{step}}
}

// builtinSaw is the values that a built-in filter looks at.
func builtinSaw(name string, ev *resource.Event) []trace.Value {
	switch name {
	case "is_incident":
		return []trace.Value{
			{Name: "event.is_incident", Value: fmt.Sprint(ev.IsIncident())},
			{Name: "event.is_resolution", Value: fmt.Sprint(ev.IsResolution())},
		}
	case "not_silenced":
		if ev.Check != nil {
			return []trace.Value{{Name: "event.check.silenced", Value: "[" + joinNames(ev.Check.Silenced) + "]"}}
		}
	case "has_metrics":
		return []trace.Value{{Name: "event.has_metrics", Value: fmt.Sprint(ev.HasMetrics())}}
	}
	return nil
}

// Decide says whether a delivery goes out: by all filters of its route as it is defined now, and by what the event depends on.
// Whether it is silenced was decided when it happened: the fold has taken out of a resolution the silences that let it through.
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
			answer := w.filters.Ask(ctx, def, ev)
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

// count counts, but not in a simulation.
func (w *Workflows) count(defs definitions, of *prometheus.CounterVec, label string) {
	if defs.drafts == nil {
		of.WithLabelValues(label).Inc()
	}
}

// failed counts and logs why a delivery comes to nothing.
func (w *Workflows) failed(defs definitions, rt *Route, step string, err error) {
	w.count(defs, w.metrics.errors, step)
	if defs.drafts == nil {
		w.logOnce(rt, err)
	}
}

// groupKey is what the members of a handler's group have in common.
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

// stepsOf is a filter's answer, an expression a step.
func stepsOf(name string, answer *filter.Answer) []trace.Step {
	if len(answer.Asked) == 0 { // its hours decided
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

// Fallback is the deliveries that replace one which became a dead letter: when it came by a pipeline of the check's
// fallback pipeline, those of the pipeline that comes after. Package handler gives them their partition and position.
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
		// A pipeline that leads nowhere is as good as one that failed.
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
