package pipeline

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// route is one way of an event to a handler.
type route struct {
	namespace string
	pipeline  *resource.Pipeline         // nil if the event names the handler itself
	workflow  *resource.PipelineWorkflow // nil too, or if the pipeline is not defined
	name      string                     // of the handler
	handler   *resource.Handler          // nil if it is not defined
	filters   iter.Seq[string]
	mutator   string
}

// id ends the delivery's ID.
func (rt *route) id() string {
	switch {
	case rt.pipeline == nil:
		return "/" + rt.name
	case rt.workflow == nil:
		return "/" + rt.pipeline.Metadata.Name
	}
	return "/" + rt.pipeline.Metadata.Name + "/" + rt.workflow.Name + "/" + rt.name
}

// usable says why a route leads nowhere. Sets are for events that name handlers: in a workflow they would bring filters of
// their own.
func (rt *route) usable() error {
	switch {
	case rt.handler == nil && rt.workflow == nil:
		return errors.New("there is no such pipeline")
	case rt.handler == nil:
		return fmt.Errorf("there is no handler %q", rt.name)
	case rt.workflow != nil && rt.handler.Type == "set":
		return fmt.Errorf("handler %q is a set, which a workflow cannot name", rt.name)
	}
	return nil
}

// owner is the definition that names what the route needs, and what the log says of it.
func (rt *route) owner() (any, []any) {
	switch {
	case rt.pipeline == nil:
		return rt.handler, nil
	case rt.workflow == nil:
		return nil, []any{"pipeline", rt.pipeline.Metadata.Name}
	}
	return rt.pipeline, []any{"pipeline", rt.pipeline.Metadata.Name, "workflow", rt.workflow.Name}
}

// routes are an event's ways, in their order. In a workflow its own filters and mutator count, and its handler's do not.
func (r *Router) routes(sn *config.Snapshot, namespace string, ev *resource.Event) []route {
	var routes []route
	for _, ref := range ev.Pipelines {
		p, ok := config.Get(sn, config.Pipelines, namespace, ref.Name)
		if !ok {
			missing := &resource.Pipeline{Metadata: resource.ObjectMeta{Namespace: namespace, Name: ref.Name}}
			routes = append(routes, route{namespace: namespace, pipeline: missing, filters: slices.Values[[]string](nil)})
			continue
		}
		for i := range p.Workflows {
			w := &p.Workflows[i]
			if w.Handler == nil {
				continue // refused when it is defined
			}
			rt := route{namespace: namespace, pipeline: p, workflow: w, name: w.Handler.Name, filters: filterNames(w)}
			rt.handler, _ = config.Get(sn, config.Handlers, namespace, w.Handler.Name)
			if w.Mutator != nil {
				rt.mutator = w.Mutator.Name
			}
			routes = append(routes, rt)
		}
	}
	for _, h := range r.resolve(sn, namespace, ev) {
		routes = append(routes, route{
			namespace: namespace, name: h.Metadata.Name, handler: h, filters: slices.Values(h.Filters), mutator: h.Mutator,
		})
	}
	return routes
}

func filterNames(w *resource.PipelineWorkflow) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, ref := range w.Filters {
			if ref != nil && !yield(ref.Name) {
				return
			}
		}
	}
}

// maxSame is how many deliveries of one event a handler can get.
const maxSame = 64

// places gives the deliveries of one event their positions: a handler's are different, and none comes before one given
// earlier.
type places struct {
	round int
	used  map[string]int // by handler: the first round it has no delivery in
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
