package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// orphanAge is the default time for which an orphan must not have changed: agents may run a check shortly after its
// deletion.
const orphanAge = time.Minute

// orphanReport says how many orphans were deleted.
type orphanReport struct {
	Removed int `json:"removed"`
}

// serveOrphans adds the events whose entity or check is gone.
func (a *API) serveOrphans() {
	a.route(ours+"namespaces/{namespace}/orphans", access{resource: "events"}, methods{
		http.MethodGet:    a.listOrphans,
		http.MethodDelete: a.deleteOrphans,
	})
}

// orphans returns the orphans of a request: ?missing= entity or check, and ?older_than= seconds.
func (a *API) orphans(r *request) ([]resource.Orphan, error) {
	q := r.URL.Query()
	age := orphanAge
	if asked := q.Get("older_than"); asked != "" {
		n, err := strconv.ParseUint(asked, 10, 31)
		if err != nil {
			return nil, invalid("older_than must be a number of seconds, not %q", asked)
		}
		age = time.Duration(n) * time.Second
	}
	missing := q.Get("missing")
	if missing != "" && missing != resource.OrphanOfEntity && missing != resource.OrphanOfCheck {
		return nil, invalid("missing must be %s or %s, not %q", resource.OrphanOfEntity, resource.OrphanOfCheck, missing)
	}
	namespace := r.PathValue("namespace")
	if namespace == allNamespaces {
		namespace = ""
	}
	found, err := a.opts.Intake.Orphans(r.Context(), namespace, a.opts.Now().Add(-age))
	if err != nil {
		return nil, err
	}
	out := []resource.Orphan{}
	for _, o := range found {
		if missing == "" || o.Missing == missing {
			out = append(out, o)
		}
	}
	return out, nil
}

func (a *API) listOrphans(w *response, r *request) error {
	found, err := a.orphans(r)
	if err != nil {
		return err
	}
	return w.object(found)
}

// deleteOrphans deletes orphans. With ?events=resolve, failing ones are resolved first.
func (a *API) deleteOrphans(w *response, r *request) error {
	resolve := false
	switch asked := r.URL.Query().Get("events"); asked {
	case "", eventsDelete:
	case eventsResolve:
		resolve = true
	default:
		return invalid("events must be %s or %s, not %q", eventsDelete, eventsResolve, asked)
	}
	found, err := a.orphans(r)
	if err != nil {
		return err
	}
	w.patient()
	ctx, cancel := patiently(r.Context())
	defer cancel()
	keys := make([]state.Key, len(found))
	var events []*resource.Event
	for i, o := range found {
		keys[i] = state.Key{Namespace: o.Namespace, Entity: o.Entity, Check: o.Check}
		if resolve {
			if ev, err := a.opts.State.Event(o.Namespace, o.Entity, o.Check); err == nil {
				events = append(events, ev)
			}
		}
	}
	if err := a.resolve(ctx, events, "Resolving because nothing reports on it any more"); err != nil {
		return err
	}
	if err := a.deleteEvents(ctx, keys); err != nil {
		return err
	}
	for _, k := range keys {
		a.audited(r.Context(), r.act, "delete", "events", k.Namespace, k.Entity+"/"+k.Check)
	}
	return w.object(orphanReport{len(keys)})
}
