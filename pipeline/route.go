package pipeline

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/handler"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// route is one way of an event to a handler.
type route struct {
	namespace string
	pipeline  *resource.Pipeline         // nil if the event names the handler itself
	workflow  *resource.PipelineWorkflow // nil too, or if the pipeline is not defined
	name      string                     // of the handler
	handler   *resource.Handler          // nil if it is not defined
	filters   []string
	mutator   string
}

// names are those of the pipeline and the workflow, "" if the event names the handler itself.
func (rt *route) names() (pipeline, workflow string) {
	if rt.pipeline != nil {
		pipeline = rt.pipeline.Metadata.Name
	}
	if rt.workflow != nil {
		workflow = rt.workflow.Name
	}
	return pipeline, workflow
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
func (r *Router) routes(defs definitions, namespace string, ev *resource.Event) []route {
	var routes []route
	for _, ref := range ev.Pipelines {
		routes = r.workflows(routes, defs, namespace, ref.Name)
	}
	if ev.Check != nil {
		names := defs.fallbackOf(namespace, ev.Check.Metadata.Name)
		if len(names) > 0 && !slices.ContainsFunc(ev.Pipelines, func(ref resource.ResourceReference) bool { return ref.Name == names[0] }) {
			routes = r.workflows(routes, defs, namespace, names[0])
		}
	}
	for _, h := range r.resolve(defs, namespace, ev) {
		routes = append(routes, handlerRoute(namespace, h))
	}
	return routes
}

func handlerRoute(namespace string, h *resource.Handler) route {
	return route{namespace: namespace, name: h.Metadata.Name, handler: h, filters: h.Filters, mutator: h.Mutator}
}

// workflows adds a pipeline's. One that is not defined has a route that leads nowhere.
func (r *Router) workflows(routes []route, defs definitions, namespace, name string) []route {
	p, ok := defs.pipeline(namespace, name)
	if !ok {
		missing := &resource.Pipeline{Metadata: resource.ObjectMeta{Namespace: namespace, Name: name}}
		return append(routes, route{namespace: namespace, pipeline: missing})
	}
	for i := range p.Workflows {
		if p.Workflows[i].Handler != nil { // refused when it is defined
			routes = append(routes, workflowRoute(defs, namespace, p, &p.Workflows[i]))
		}
	}
	return routes
}

func workflowRoute(defs definitions, namespace string, p *resource.Pipeline, w *resource.PipelineWorkflow) route {
	rt := route{namespace: namespace, pipeline: p, workflow: w, name: w.Handler.Name, filters: slices.Collect(filterNames(w))}
	rt.handler, _ = defs.handler(namespace, w.Handler.Name)
	if w.Mutator != nil {
		rt.mutator = w.Mutator.Name
	}
	return rt
}

// routeOf finds the route of a delivery in the present definitions, which may have changed since it was dispatched.
func (r *Router) routeOf(defs definitions, dl *handler.Delivery) (*route, error) {
	if dl.Pipeline == "" {
		h, ok := defs.handler(dl.Namespace, dl.Handler)
		if !ok {
			return nil, fmt.Errorf("there is no handler %q any more", dl.Handler)
		}
		rt := handlerRoute(dl.Namespace, h)
		return &rt, nil
	}
	p, ok := defs.pipeline(dl.Namespace, dl.Pipeline)
	if !ok {
		return nil, fmt.Errorf("there is no pipeline %q any more", dl.Pipeline)
	}
	for i := range p.Workflows {
		if w := &p.Workflows[i]; w.Name == dl.Workflow && w.Handler != nil && w.Handler.Name == dl.Handler {
			rt := workflowRoute(defs, dl.Namespace, p, w)
			return &rt, nil
		}
	}
	return nil, fmt.Errorf("pipeline %q has no workflow %q to handler %q any more", dl.Pipeline, dl.Workflow, dl.Handler)
}

// handlerNames are those that an event names itself.
func handlerNames(ev *resource.Event) (names []string) {
	if ev.Check != nil {
		names = append(names, ev.Check.Handlers...)
	}
	if ev.Metrics != nil {
		names = append(names, ev.Metrics.Handlers...)
	}
	return names
}

// maxNamed is how many names are told.
const maxNamed = 10

func joinNames(names []string) string {
	if len(names) > maxNamed {
		return strings.Join(names[:maxNamed], ", ") + fmt.Sprintf(" and %d more", len(names)-maxNamed)
	}
	return strings.Join(names, ", ")
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
