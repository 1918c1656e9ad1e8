package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/aggregate"
	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/inhibit"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// aggregates serves aggregates. They are lapwing's own, and so are their paths.
type aggregates struct {
	kind[resource.Aggregate]
}

func (a *API) serveAggregates() {
	g := &aggregates{kind[resource.Aggregate]{
		api: a, Kind: config.Aggregates, base: ours,
		accept: aggregate.Parse,
		reason: resourceInvalid,
	}}
	g.finish = withAuthor(a, func(g *resource.Aggregate) **resource.Author { return &g.Author }, g.Meta)
	g.serve()
	a.route(g.collection()+"/{name}/evaluation", access{resource: g.String(), name: namePath, labels: true},
		methods{http.MethodGet: g.evaluate})
}

// evaluate answers with an aggregate's present result, without making an event.
func (g *aggregates) evaluate(w *response, r *request) error {
	def, err := g.find(r.act)
	if err != nil {
		return err
	}
	if g.api.opts.Evaluate == nil {
		return errNotFound
	}
	reader := g.api.opts.Auth.Permit(r.user, auth.Attributes{Verb: "list", Resource: "events", Namespace: def.Metadata.Namespace})
	if reader.Denied() {
		return lacks("list", "events")
	}
	results, err := g.api.opts.Evaluate(r.Context(), def, reader.Selector())
	if err != nil {
		if r.Context().Err() != nil {
			return err
		}
		return invalid("%v", err)
	}
	return w.object(results)
}

// serveDependencies adds the path with an event's dependencies and whether they inhibit it.
func (a *API) serveDependencies() {
	item := func(r *request) string { return r.PathValue("entity") + "/" + r.PathValue("check") }
	a.route(ours+"namespaces/{namespace}/events/{entity}/{check}/dependencies", access{resource: "events", name: item, labels: true},
		methods{http.MethodGet: a.getDependencies})
}

func (a *API) getDependencies(w *response, r *request) error {
	ev, err := a.findEvent(r.act, pathKey(r))
	if err != nil {
		return err
	}
	report := &inhibit.Report{Dependencies: []inhibit.Relationship{}}
	if a.opts.Dependencies != nil {
		if report, err = a.opts.Dependencies(r.Context(), ev); err != nil {
			return err
		}
	}
	return w.object(a.seenDependencies(r, ev.Entity.Metadata.Namespace, report))
}

// seenDependencies returns a report without the events that the user may not see.
func (a *API) seenDependencies(r *request, namespace string, report *inhibit.Report) *inhibit.Report {
	if a.seesAllEvents(r, namespace) {
		return report
	}
	seen := func(name string) bool { return a.seesDependency(r, namespace, name) }
	out := *report
	out.Dependencies = []inhibit.Relationship{}
	for _, d := range report.Dependencies {
		if seen(d.Name) {
			d.Through = slices.DeleteFunc(slices.Clone(d.Through), func(name string) bool { return !seen(name) })
			out.Dependencies = append(out.Dependencies, d)
		}
	}
	out.By = slices.DeleteFunc(slices.Clone(report.By), func(name string) bool { return !seen(name) })
	return &out
}

// seesAllEvents reports whether the user may list all events of a namespace.
func (a *API) seesAllEvents(r *request, namespace string) bool {
	return a.opts.Auth.Authorize(r.user, auth.Attributes{Verb: "list", Resource: "events", Namespace: namespace})
}

// seesDependency reports whether the user may see the event entity/check, or, for entity/, the events of the entity.
func (a *API) seesDependency(r *request, namespace, name string) bool {
	entity, check, _ := strings.Cut(name, "/")
	at := auth.Attributes{Verb: "get", Resource: "events", Namespace: namespace, Name: name}
	if check == "" {
		at.Verb, at.Name = "list", entity
	}
	permit := a.opts.Auth.Permit(r.user, at)
	if permit.Whole() || permit.Denied() {
		return permit.Whole()
	}
	if check != "" {
		if ev, err := a.opts.State.Event(namespace, entity, check); err == nil {
			return permit.Allows(selector.Event(ev))
		}
	}
	cfg, ok := config.Get(a.opts.Config.Snapshot(), config.Entities, namespace, entity)
	return ok && permit.Allows(selector.Of("event.entity", cfg))
}

// hideOthers removes from deliveries what the user may not list: names of inhibiting events, and of exceptions of calendars.
func (a *API) hideOthers(r *request, namespace string, deliveries []trace.Delivery) {
	if !a.mayList(r.user, config.Calendars.String(), namespace) {
		for i := range deliveries {
			for _, st := range deliveries[i].Steps {
				for j, saw := range st.Saw {
					if strings.HasPrefix(saw.Name, "in_calendar(") {
						st.Saw[j].Value, _, _ = strings.Cut(saw.Value, " (")
					}
				}
			}
		}
	}
	if a.seesAllEvents(r, namespace) {
		return
	}
	for i := range deliveries {
		d := &deliveries[i]
		if d.Verdict == trace.Inhibited {
			d.Reason = "it depends on something that fails"
		}
		d.Steps = slices.DeleteFunc(d.Steps, func(s trace.Step) bool { return s.Kind == trace.StepInhibit })
	}
}
