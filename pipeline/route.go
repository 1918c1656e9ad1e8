package pipeline

import (
	"fmt"
	"strconv"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/pipeline/workflow"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// MayPass reports whether Route may make deliveries of an event. It costs little, and traces and counts nothing.
func (r *Router) MayPass(a *state.Applied) bool {
	g := r.gate(r.config())
	if !a.HasHandlers && !a.HasMetrics && !g.routed(a.Namespace, a.Check) {
		return false
	}
	passes, _ := g.passes(a.Namespace, factsOf(a))
	return passes
}

// Route passes an event to the handlers that may take it, and reports whether there may be any. It does not block, and
// does not keep the Applied.
func (r *Router) Route(a *state.Applied) bool {
	sn := r.config()
	if !r.passes(sn, a) {
		return false
	}
	begin := time.Now()
	var room [4]*delivery.Delivery // most events have fewer
	for _, dl := range r.deliveries(room[:0], sn, a) {
		r.handlers.Dispatch(dl)
	}
	r.metrics.seconds.Observe(time.Since(begin).Seconds())
	return true
}

// passes is the cheap test: it reports whether any handler of the event's namespace may take it. It traces an incident
// or resolution that ends here.
func (r *Router) passes(sn *config.Snapshot, a *state.Applied) bool {
	g := r.gate(sn)
	if !a.HasHandlers && !a.HasMetrics && !g.routed(a.Namespace, a.Check) {
		r.metrics.unhandled.Inc()
		if a.Incident { // only incidents: for a resolution the trace would add nothing to the event, and half the traces cost half
			r.end(a, trace.NoHandler, "the event names no handler and no pipeline")
		}
		return false
	}
	facts := factsOf(a)
	passes, defined := g.passes(a.Namespace, facts)
	switch {
	case passes:
		return true
	case defined:
		r.metrics.denied.Inc()
		facts.Silenced = false
		if passes, _ := g.passes(a.Namespace, facts); passes && a.Silenced {
			r.endSilenced(a)
		} else {
			r.end(a, trace.Filtered, "the built-in filters of all handlers in its namespace deny it")
		}
	default:
		r.metrics.unhandled.Inc()
		r.end(a, trace.NoHandler, "there were no handlers in its namespace")
	}
	return false
}

func factsOf(a *state.Applied) filter.Facts {
	return filter.Facts{Incident: a.Incident, Resolution: a.Resolution, Silenced: a.Silenced, HasMetrics: a.HasMetrics}
}

// deliveries decodes an event, appends its deliveries, and traces the routes that deny it.
func (r *Router) deliveries(list []*delivery.Delivery, sn *config.Snapshot, a *state.Applied) []*delivery.Delivery {
	ev, err := a.Event()
	if err != nil {
		r.metrics.failed.Inc()
		r.workflows.Undecodable(a.Namespace, a.Entity, a.Check, err)
		r.end(a, trace.Failed, "the event cannot be read")
		return list
	}
	routes := r.workflows.Routes(sn, a.Namespace, ev)
	if len(routes) == 0 {
		r.metrics.unhandled.Inc()
		r.end(a, trace.NoHandler, workflow.NotDefined(ev, "was"))
		return list
	}
	var body []byte
	var places places
	failed := 0
	fail := func(rt *workflow.Route, step string, err error) {
		failed++
		r.workflows.Failed(rt, step, err)
		r.endRoute(a, rt, workflow.Decision{Verdict: trace.Failed, Reason: err.Error()})
	}
	for i := range routes {
		rt := &routes[i]
		denied, err := r.workflows.AskFirst(sn, rt, ev, factsOf(a), r.trace != nil)
		if err != nil {
			fail(rt, "filter", err)
			continue
		}
		if denied.Verdict != "" {
			r.endRoute(a, rt, denied)
			continue
		}
		if err := rt.Usable(); err != nil {
			fail(rt, "resolve", err)
			continue
		}
		sub, err := places.next(a.Sub, rt.Handler)
		if err != nil {
			fail(rt, "dispatch", err)
			continue
		}
		if body == nil {
			body = ev.AppendProto(nil)
		}
		list = append(list, &delivery.Delivery{
			Header: header(a, rt), Partition: a.Partition, Seq: a.Seq, Sub: sub, Event: body,
			Repeats: a.Repeats(),
		})
	}
	switch {
	case len(list) > 0:
		r.metrics.dispatched.Inc()
	case failed > 0:
		r.metrics.failed.Inc()
	default:
		r.metrics.denied.Inc()
	}
	return list
}

// header returns the header of an event's delivery by a route; nil stands for an event without one.
func header(a *state.Applied, rt *workflow.Route) delivery.Header {
	h := delivery.Header{
		EventID: eventID(a), Namespace: a.Namespace, Entity: a.Entity, Check: a.Check, Status: a.Status,
		Incident: a.Incident, Resolution: a.Resolution, Received: a.Received,
	}
	if h.ID = h.EventID; rt != nil {
		h.ID, h.Handler = h.EventID+rt.ID(), rt.Handler
		h.Pipeline, h.Workflow = rt.Names()
	}
	return h
}

// eventID returns the same as Applied.ID, with one allocation.
func eventID(a *state.Applied) string {
	var room [48]byte
	b := append(strconv.AppendInt(room[:0], int64(a.Partition), 10), '-')
	b = append(strconv.AppendUint(b, a.Seq, 10), '-')
	return string(strconv.AppendInt(b, int64(a.Sub), 10))
}

// end traces an event without a delivery, if it is an incident or resolution.
func (r *Router) end(a *state.Applied, verdict trace.Verdict, reason string) {
	if r.trace != nil && (a.Incident || a.Resolution) {
		r.trace(&trace.Delivery{Header: header(a, nil), Verdict: verdict, Reason: reason})
	}
}

// endSilenced traces an event that no handler takes because it is silenced, with the names of the silences: later they may
// be deleted. It does not decode the event, because all events of a silenced fleet may end here.
func (r *Router) endSilenced(a *state.Applied) {
	if r.trace == nil || !a.Incident && !a.Resolution {
		return
	}
	d := workflow.DeniedBySilences(resource.PeekSilenced(a.Body()))
	r.trace(&trace.Delivery{
		Header: header(a, nil), Verdict: d.Verdict, Steps: d.Steps,
		Reason: d.Reason + ", and no handler in its namespace takes silenced events",
	})
}

// endRoute traces one route that ends before a delivery.
func (r *Router) endRoute(a *state.Applied, rt *workflow.Route, d workflow.Decision) {
	if r.trace != nil && (a.Incident || a.Resolution) {
		r.trace(&trace.Delivery{Header: header(a, rt), Verdict: d.Verdict, Reason: d.Reason, Steps: d.Steps})
	}
}

// maxSame is how many deliveries of one event a handler may get.
const maxSame = 64

// places assigns positions to the deliveries of one event. Positions of one handler differ, and they never decrease.
type places struct {
	round int
	used  map[string]int // by handler: the first round without a delivery of it
}

func (p *places) next(sub int, handler string) (int, error) {
	if p.used == nil {
		p.used = map[string]int{}
	}
	round := max(p.round, p.used[handler])
	if round == maxSame {
		return 0, fmt.Errorf("the event has too many deliveries to one handler: more than %d", maxSame)
	}
	p.round, p.used[handler] = round, round+1
	return sub*maxSame + round, nil
}
