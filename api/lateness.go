package api

import (
	"context"
	"net/http"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// Lateness knows which checks and events are late. *lateness.Watcher implements it.
type Lateness interface {
	// Of returns a function for the lateness of checks now.
	Of() func(*resource.CheckConfig) resource.CheckLateness
	// Events returns the overdue events of a namespace, or of all for "", and Event the lateness of one.
	Events(ctx context.Context, namespace string) (map[state.Key]resource.EventLateness, error)
	Event(key state.Key) resource.EventLateness
}

// neverLate is the Lateness of an API without one.
type neverLate struct{}

func (neverLate) Of() func(*resource.CheckConfig) resource.CheckLateness {
	return func(c *resource.CheckConfig) resource.CheckLateness {
		return resource.CheckLateness{Namespace: c.Metadata.Namespace, Check: c.Metadata.Name, WithoutAgent: []string{}}
	}
}

func (neverLate) Events(context.Context, string) (map[state.Key]resource.EventLateness, error) {
	return nil, nil
}

func (neverLate) Event(key state.Key) resource.EventLateness {
	return resource.EventLateness{Namespace: key.Namespace, Entity: key.Entity, Check: key.Check}
}

// serveLateness adds when checks last ran. Sensu has no such paths, so they are lapwing's own.
func (c *checks) serveLateness() {
	collection := ours + "namespaces/{namespace}/checks"
	c.api.route(collection+"/lateness", access{resource: c.String(), labels: true}, methods{http.MethodGet: c.listLateness})
	c.api.route(collection+"/{name}/lateness", access{resource: c.String(), name: namePath, labels: true},
		methods{http.MethodGet: c.getLateness})
}

// listLateness lists the lateness of the selected checks.
func (c *checks) listLateness(w *response, r *request) error {
	p := pageOf(r, (*resource.CheckConfig)(nil))
	if p.err != nil {
		return p.err
	}
	own := kind[resource.CheckConfig]{api: c.api, Kind: c.Kind, base: ours} // "-" is all namespaces
	items := own.objects(r, p)
	if p.selector != nil {
		items = selected(p.selector, items, c.shown(r.user))
		p.selector = nil // it would select by the lateness
	}
	of := c.api.opts.Lateness.Of()
	return writeList(w, p, items, func(check *resource.CheckConfig) any { return of(check) }, c.token)
}

func (c *checks) getLateness(w *response, r *request) error {
	check, err := c.find(r.act)
	if err != nil {
		return err
	}
	return w.object(c.api.opts.Lateness.Of()(check))
}

// serveEventLateness adds which events are overdue.
func (a *API) serveEventLateness() {
	item := func(r *request) string { return r.PathValue("entity") + "/" + r.PathValue("check") }
	collection := ours + "namespaces/{namespace}/events"
	a.route(collection+"/lateness", access{resource: "events", labels: true}, methods{http.MethodGet: a.listEventLateness})
	a.route(collection+"/{entity}/{check}/lateness", access{resource: "events", name: item, labels: true},
		methods{http.MethodGet: a.getEventLateness})
}

// listEventLateness lists the selected events that are overdue.
func (a *API) listEventLateness(w *response, r *request) error {
	p := pageOf(r, (*resource.Event)(nil))
	if p.err != nil {
		return p.err
	}
	namespace := inNamespace(r)
	late, err := a.opts.Lateness.Events(r.Context(), namespace)
	if err != nil {
		return err
	}
	page := &state.Page{}
	if len(late) > 0 { // else there is nothing to search for
		page, err = a.opts.State.Select(r.Context(), state.Query{
			Namespace: namespace, Selector: p.selector, After: p.after, Limit: p.limit,
			Where: func(s *resource.Silenceable) bool {
				_, yes := late[state.Key{Namespace: s.Namespace, Entity: s.Entity, Check: s.Check}]
				return yes
			},
		})
		if err != nil {
			return err
		}
	}
	list := newArray(w, page.Next)
	for key := range page.Keys() {
		if err := list.add(late[key]); err != nil {
			return err
		}
	}
	return list.finish()
}

func (a *API) getEventLateness(w *response, r *request) error {
	key := pathKey(r)
	if _, err := a.findEvent(r.act, key); err != nil {
		return err
	}
	return w.object(a.opts.Lateness.Event(key))
}
