package workflow

import (
	"context"
	"fmt"

	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// Replay takes events of the past through a pipeline, whatever pipelines they name. It sends nothing. All events meet the
// definitions that were there when it was opened.
type Replay struct {
	w      *Workflows
	defs   definitions
	routes []Route
}

// Replayed is what one route makes of an event.
type Replayed struct {
	// Delivery has the verdict Delivered if the handler would get the event.
	trace.Delivery
	// Handler is the definition. Input is what it would get, nil if it would get nothing; Mutated says that a mutator other
	// than the default one made it.
	Handler *resource.Handler
	Input   []byte
	Mutated bool
}

// Replay opens a replay through a pipeline, a draft or a defined one; if pipeline is "", through all drafts of pipelines,
// and of handlers that these do not name. Close it.
func (w *Workflows) Replay(namespace, pipeline string, overlay Overlay) (*Replay, error) {
	r := &Replay{w: w, defs: definitions{Snapshot: w.opts.Config(), drafts: &overlay}}
	if pipeline == "" {
		r.routes = w.draftRoutes(nil, r.defs, namespace)
	} else if _, ok := r.defs.pipeline(namespace, pipeline); ok {
		r.routes = w.workflows(nil, r.defs, namespace, pipeline)
	} else {
		return nil, fmt.Errorf("there is no pipeline %q", pipeline)
	}
	return r, nil
}

// Run takes an event through the routes. The facts are those of the event's time. The header names the event; Run adds
// the route to it.
func (r *Replay) Run(ctx context.Context, ev *resource.Event, facts filter.Facts, about trace.Delivery) []Replayed {
	list := make([]Replayed, len(r.routes))
	for i := range r.routes {
		rt, one := &r.routes[i], &list[i]
		one.Delivery, one.Handler = about, rt.def
		one.ID, one.Delivery.Handler = about.EventID+rt.ID(), rt.Handler
		one.Pipeline, one.Workflow = rt.Names()
		one.Input, one.Mutated = r.w.simulate(ctx, r.defs, rt, ev, facts, &one.Delivery)
	}
	return list
}

// Close forgets the drafts.
func (r *Replay) Close() { r.w.filters.Forget(r.defs.drafts.Filters, r.defs.drafts.Mutators) }
