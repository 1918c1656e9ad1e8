package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
)

const (
	// maxSkew is how far a client's clock may be ahead of ours.
	maxSkew = 10 * time.Minute
	// eventChunk is how many events one search returns while a list of all is written, or a stream starts.
	eventChunk = 5_000
)

func (a *API) serveEvents() {
	const collection = core + "namespaces/{namespace}/events"
	entity := func(r *request) string { return r.PathValue("entity") }
	item := func(r *request) string { return r.PathValue("entity") + "/" + r.PathValue("check") }
	a.route(core+"events", access{resource: "events", labels: true}, methods{http.MethodGet: a.listEvents})
	a.route(collection, access{resource: "events", labels: true}, methods{http.MethodGet: a.listEvents, http.MethodPost: a.putEvent})
	a.route(collection+"/{entity}", access{resource: "events", name: entity, list: true, labels: true},
		methods{http.MethodGet: a.listEvents})
	a.route(collection+"/{entity}/{check}", access{resource: "events", name: item, labels: true, dryRun: true, dryDelete: true}, methods{
		http.MethodGet:    a.getEvent,
		http.MethodPost:   a.putEvent,
		http.MethodPut:    a.putEvent,
		http.MethodDelete: a.deleteEvent,
	})
}

// listEvents lists the newest events of all namespaces, of a namespace or of an entity, if selected. ?changed_since=,
// acknowledged= and order=changed are our own.
func (a *API) listEvents(w *response, r *request) error {
	p := pageOf(r, (*resource.Event)(nil))
	if p.err != nil {
		return p.err
	}
	query := state.Query{
		Namespace: r.PathValue("namespace"), Entity: r.PathValue("entity"), Selector: p.selector, After: p.after, Limit: p.limit,
	}
	order, err := a.eventOrderOf(r.URL.Query())
	if err != nil {
		return err
	}
	if !order.plain() {
		return a.listOrdered(w, r, query, &order)
	}
	if p.limit == 0 {
		query.Limit = a.chunk
	}
	found, err := a.opts.State.Select(r.Context(), query)
	if err != nil {
		return err
	}
	next := ""
	if p.limit > 0 {
		next = found.Next
	}
	list := newArray(w, next)
	for {
		for ev, err := range found.Events() {
			if err != nil {
				return err
			}
			if err := list.add(ev); err != nil {
				return err
			}
		}
		if p.limit > 0 || found.Next == "" {
			return list.finish()
		}
		query.After = found.Next
		if found, err = a.opts.State.Select(r.Context(), query); err != nil {
			return err
		}
	}
}

func (a *API) getEvent(w *response, r *request) error {
	ev, err := a.findEvent(r.act, pathKey(r))
	if err != nil {
		return err
	}
	return w.tagged(r, ev)
}

// pathKey returns the event that a path names.
func pathKey(r *request) state.Key {
	return state.Key{Namespace: r.PathValue("namespace"), Entity: r.PathValue("entity"), Check: r.PathValue("check")}
}

// findEvent returns an event, if the user's roles reach its labels.
func (a *API) findEvent(t *act, key state.Key) (*resource.Event, error) {
	ev, err := a.opts.State.Event(key.Namespace, key.Entity, key.Check)
	if err != nil {
		return nil, err
	}
	if !t.permit.Selector().Match(selector.Event(ev)) {
		return nil, errNotFound
	}
	return ev, nil
}

// mayPutEvent returns an error unless a role that is limited by labels reaches the event, the one it replaces, and its
// entity: the event's own labels are not enough.
func (a *API) mayPutEvent(t *act, ev *resource.Event) error {
	limit := t.permit.Selector()
	if limit == nil {
		return nil
	}
	if fields := selector.Event(ev); !limit.Match(fields) {
		return outOfReach(t, fields)
	}
	if ev.Entity == nil || ev.Check == nil {
		return errDenied
	}
	namespace, name := ev.Entity.Metadata.Namespace, ev.Entity.Metadata.Name
	if ev.Check.ProxyEntityName != "" {
		name = ev.Check.ProxyEntityName
	}
	old, err := a.opts.State.Event(namespace, name, ev.Check.Metadata.Name)
	switch {
	case err == nil:
		if !limit.Match(selector.Event(old)) {
			return taken(t)
		}
		return nil
	case !errors.Is(err, state.ErrNotFound):
		return err
	}
	if cfg, ok := config.Get(a.opts.Config.Snapshot(), config.Entities, namespace, name); ok && !limit.Match(selector.Resource(cfg)) {
		return taken(t)
	}
	return nil
}

// putEvent takes an event, with any method: it is one more result of a check. It answers 201 when the event is durable
// and folded, and 503 when the log refused it.
func (a *API) putEvent(w *response, r *request) error {
	ev := new(resource.Event)
	if err := a.decode(w, r, ev); err != nil {
		return err
	}
	if err := a.submit(r.Context(), r.act, pathKey(r), ev); err != nil {
		return err
	}
	return w.empty(http.StatusCreated)
}

// submit takes an event of a client. Its entity and check in key are "" where the path names none.
func (a *API) submit(ctx context.Context, t *act, key state.Key, ev *resource.Event) error {
	if err := address(ev, key.Namespace, key.Entity, key.Check); err != nil {
		return err
	}
	now := a.opts.Now()
	if err := checkTimestamp(ev.Timestamp, now); err != nil {
		return err
	}
	if ev.Timestamp == 0 {
		ev.Timestamp = now.Unix()
	}
	if len(ev.ID) == 0 {
		ev.ID = resource.NewEventID()
	}
	ev.Metadata.CreatedBy = t.user.User
	if ev.Entity != nil {
		ev.Entity.Metadata.CreatedBy = t.user.User
	}
	if ev.Check != nil {
		ev.Check.Metadata.CreatedBy = t.user.User
	}
	if err := ev.Validate(); err != nil {
		return invalid("%v", err)
	}
	if ev.Check != nil {
		if err := checkProxyExpressions(ev.Check.ProxyRequests); err != nil {
			return invalid("check is invalid: %v", err)
		}
	}
	if err := a.needNamespace(key.Namespace); err != nil {
		return err
	}
	if err := a.mayPutEvent(t, ev); err != nil {
		return err
	}
	if ev.AboutBackend() && !a.mayReportForBackend(t) {
		return errForBackend
	}
	if config.IsDryRun(ctx) {
		return nil
	}
	err := a.opts.Intake.Submit(ctx, ev)
	var rejected interface{ Rejected() bool }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &rejected) && refusal(err) == nil:
		return invalid("%v", err)
	}
	return unavailable(err)
}

// mayReportForBackend reports whether a user may send events about the backend itself, for example to resolve its
// alarms. That needs a right in the whole cluster, and not an agent's.
func (a *API) mayReportForBackend(t *act) bool {
	return a.opts.Auth.Permit(t.user.WithoutAgents(), auth.Attributes{Verb: "update", Resource: "events"}).Whole()
}

// address fills in an event's missing names from its URL, and refuses other names. entity and check are "" for a
// collection.
func address(ev *resource.Event, namespace, entity, check string) error {
	if ev.Entity == nil && entity != "" {
		ev.Entity = new(resource.Entity)
	}
	if ns := ev.Metadata.Namespace; ns != "" && ns != namespace {
		return namespaceMismatch(ns, namespace)
	}
	if ev.Entity != nil {
		if err := fill(&ev.Entity.Metadata, namespace, entity); err != nil {
			return err
		}
		if ev.Entity.EntityClass == "" {
			ev.Entity.EntityClass = resource.EntityProxyClass
		}
	}
	if ev.Check != nil {
		return fill(&ev.Check.Metadata, namespace, check)
	}
	return nil
}

func fill(m *resource.ObjectMeta, namespace, name string) error {
	if m.Namespace == "" {
		m.Namespace = namespace
	}
	if m.Namespace != namespace {
		return namespaceMismatch(m.Namespace, namespace)
	}
	if m.Name == "" {
		m.Name = name
	}
	if name != "" && m.Name != name {
		return nameMismatch(m.Name, name)
	}
	return nil
}

// checkTimestamp refuses a time in the future: it would stay the newest until then. Most such times are in another unit
// than seconds.
func checkTimestamp(timestamp int64, now time.Time) error {
	if timestamp <= now.Add(maxSkew).Unix() {
		return nil
	}
	return invalid("timestamp %d is more than 10 minutes in the future: it must be in Unix seconds, and the server's is %d", timestamp, now.Unix())
}

func (a *API) deleteEvent(w *response, r *request) error {
	if err := a.eraseEvent(r.Context(), r.act, pathKey(r)); err != nil {
		return err
	}
	return w.empty(http.StatusNoContent)
}

func (a *API) eraseEvent(ctx context.Context, t *act, key state.Key) error {
	if _, err := a.findEvent(t, key); err != nil || config.IsDryRun(ctx) {
		return err
	}
	if err := a.opts.Intake.DeleteEvent(ctx, key.Namespace, key.Entity, key.Check); err != nil {
		return unavailable(err)
	}
	a.audited(ctx, t, "delete", "events", key.Namespace, key.Entity+"/"+key.Check)
	return nil
}
