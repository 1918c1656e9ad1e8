package workflow

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Route is one way from an event to a handler.
type Route struct {
	Handler string // name

	namespace string
	pipeline  *resource.Pipeline         // nil if the event names the handler directly
	workflow  *resource.PipelineWorkflow // nil without a pipeline, and if the pipeline is not defined
	def       *resource.Handler          // nil if not defined
	filters   []string
	mutator   string
}

// Names returns the names of the pipeline and the workflow, "" if the event names the handler directly.
func (rt *Route) Names() (pipeline, workflow string) {
	if rt.pipeline != nil {
		pipeline = rt.pipeline.Metadata.Name
	}
	if rt.workflow != nil {
		workflow = rt.workflow.Name
	}
	return pipeline, workflow
}

// ID returns the end of the delivery's ID.
func (rt *Route) ID() string {
	switch {
	case rt.pipeline == nil:
		return "/" + rt.Handler
	case rt.workflow == nil:
		return "/" + rt.pipeline.Metadata.Name
	}
	return "/" + rt.pipeline.Metadata.Name + "/" + rt.workflow.Name + "/" + rt.Handler
}

// Usable returns why a route cannot be used, or nil. Sets are only for events that name handlers: in a workflow they
// would add filters of their own.
func (rt *Route) Usable() error {
	switch {
	case rt.def == nil && rt.workflow == nil:
		return errors.New("there is no such pipeline")
	case rt.def == nil:
		return fmt.Errorf("there is no handler %q", rt.Handler)
	case rt.workflow != nil && rt.def.Type == "set":
		return fmt.Errorf("handler %q is a set, which a workflow cannot name", rt.Handler)
	}
	return nil
}

// owner returns the definition that names the route's parts, and its attributes for the log.
func (rt *Route) owner() (any, []any) {
	switch {
	case rt.pipeline == nil:
		return rt.def, nil
	case rt.workflow == nil:
		return nil, []any{"pipeline", rt.pipeline.Metadata.Name}
	}
	return rt.pipeline, []any{"pipeline", rt.pipeline.Metadata.Name, "workflow", rt.workflow.Name}
}

// Routes returns an event's routes by the definitions of a snapshot. A workflow uses its own filters and mutator and
// ignores those of its handler.
func (w *Workflows) Routes(sn *config.Snapshot, namespace string, ev *resource.Event) []Route {
	return w.routes(definitions{Snapshot: sn}, namespace, ev)
}

// routes returns an event's routes, in order.
func (w *Workflows) routes(defs definitions, namespace string, ev *resource.Event) []Route {
	var routes []Route
	for _, ref := range ev.Pipelines {
		routes = w.workflows(routes, defs, namespace, ref.Name)
	}
	if ev.Check != nil {
		names := defs.fallbackOf(namespace, ev.Check.Metadata.Name)
		if len(names) > 0 && !slices.ContainsFunc(ev.Pipelines, func(ref resource.ResourceReference) bool { return ref.Name == names[0] }) {
			routes = w.workflows(routes, defs, namespace, names[0])
		}
	}
	for _, h := range w.resolve(defs, namespace, ev) {
		routes = append(routes, handlerRoute(namespace, h))
	}
	return routes
}

func handlerRoute(namespace string, h *resource.Handler) Route {
	return Route{namespace: namespace, Handler: h.Metadata.Name, def: h, filters: h.Filters, mutator: h.Mutator}
}

// workflows appends the routes of a pipeline. An undefined pipeline has one unusable route.
func (w *Workflows) workflows(routes []Route, defs definitions, namespace, name string) []Route {
	p, ok := defs.pipeline(namespace, name)
	if !ok {
		missing := &resource.Pipeline{Metadata: resource.ObjectMeta{Namespace: namespace, Name: name}}
		return append(routes, Route{namespace: namespace, pipeline: missing})
	}
	for i := range p.Workflows {
		if p.Workflows[i].Handler != nil { // validation refuses a workflow without a handler
			routes = append(routes, workflowRoute(defs, namespace, p, &p.Workflows[i]))
		}
	}
	return routes
}

func workflowRoute(defs definitions, namespace string, p *resource.Pipeline, w *resource.PipelineWorkflow) Route {
	rt := Route{namespace: namespace, pipeline: p, workflow: w, Handler: w.Handler.Name, filters: slices.Collect(FilterNames(w))}
	rt.def, _ = defs.handler(namespace, w.Handler.Name)
	if w.Mutator != nil {
		rt.mutator = w.Mutator.Name
	}
	return rt
}

// routeOf finds the route of a delivery in the present definitions, which may have changed since the dispatch.
func (w *Workflows) routeOf(defs definitions, dl *delivery.Delivery) (*Route, error) {
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

// handlerNames returns the handlers that an event names directly.
func handlerNames(ev *resource.Event) (names []string) {
	if ev.Check != nil {
		names = append(names, ev.Check.Handlers...)
	}
	if ev.Metrics != nil {
		names = append(names, ev.Metrics.Handlers...)
	}
	return names
}

// maxNamed is how many names a reason lists.
const maxNamed = 10

func joinNames(names []string) string {
	if len(names) > maxNamed {
		return strings.Join(names[:maxNamed], ", ") + fmt.Sprintf(" and %d more", len(names)-maxNamed)
	}
	return strings.Join(names, ", ")
}

// FilterNames yields the names of a workflow's filters.
func FilterNames(w *resource.PipelineWorkflow) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, ref := range w.Filters {
			if ref != nil && !yield(ref.Name) {
				return
			}
		}
	}
}

// resolve returns the handlers that an event's check and metrics name, each once, in the order of their names. Members
// replace sets at any depth. Undefined names are left out: agents name "keepalive" and "registration" by default.
func (w *Workflows) resolve(defs definitions, namespace string, ev *resource.Event) []*resource.Handler {
	names := handlerNames(ev)
	var found []*resource.Handler
	seen := map[string]struct{}{}
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		if _, again := seen[name]; again {
			continue
		}
		seen[name] = struct{}{}
		h, ok := defs.handler(namespace, name)
		switch {
		case !ok:
			w.log.Debug("handler is not defined", "namespace", namespace, "handler", name)
		case h.Type == "set":
			names = append(names, h.Handlers...)
		default:
			found = append(found, h)
		}
	}
	slices.SortFunc(found, func(a, b *resource.Handler) int { return cmp.Compare(a.Metadata.Name, b.Metadata.Name) })
	return found
}

// NotDefined says which handlers an event names that are not defined. The verb is "is" or "was": a trace is read later, when
// they may be defined.
func NotDefined(ev *resource.Event, verb string) string {
	names := handlerNames(ev)
	if len(names) == 0 {
		return "what the event names leads to no handler"
	}
	return "no handler " + verb + " defined of those that the event names: " + joinNames(names)
}
