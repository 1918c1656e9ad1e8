package api

import (
	"net/http"

	"github.com/lapwing-monitoring/lapwing/aggregate"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/inhibit"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// aggregates serves checks of checks. They are lapwing's own, and so are their paths.
type aggregates struct {
	kind[resource.Aggregate]
}

func (a *API) serveAggregates() {
	g := &aggregates{kind[resource.Aggregate]{
		api: a, Kind: config.Aggregates, base: ours,
		meta:     func(g *resource.Aggregate) *resource.ObjectMeta { return &g.Metadata },
		validate: validAggregate,
		reason:   resourceInvalid,
	}}
	g.serve()
	a.route(g.collection()+"/{name}/evaluation", access{resource: g.String(), name: namePath, labels: true}, methods{http.MethodGet: g.evaluate})
}

func validAggregate(g *resource.Aggregate) error {
	if err := g.Validate(); err != nil {
		return err
	}
	return aggregate.Parse(g)
}

// evaluate says what an aggregate finds now, without making an event of it.
func (g *aggregates) evaluate(w *response, r *request) error {
	def, err := g.find(r)
	if err != nil {
		return err
	}
	if g.api.opts.Evaluate == nil {
		return errNotFound
	}
	results, err := g.api.opts.Evaluate(r.Context(), def)
	if err != nil {
		if r.Context().Err() != nil {
			return err
		}
		return invalid("%v", err)
	}
	return w.object(results)
}

// serveDependencies adds what an event depends on, and whether that keeps handlers from it.
func (a *API) serveDependencies() {
	item := func(r *request) string { return r.PathValue("entity") + "/" + r.PathValue("check") }
	a.route(ours+"namespaces/{namespace}/events/{entity}/{check}/dependencies", access{resource: "events", name: item, labels: true},
		methods{http.MethodGet: a.getDependencies})
}

func (a *API) getDependencies(w *response, r *request) error {
	ev, err := a.findEvent(r)
	if err != nil {
		return err
	}
	report := &inhibit.Report{Dependencies: []inhibit.Relationship{}}
	if a.opts.Dependencies != nil {
		if report, err = a.opts.Dependencies(r.Context(), ev); err != nil {
			return err
		}
	}
	return w.object(report)
}
