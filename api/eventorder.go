package api

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/report"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// eventOrder is what a list of events can ask for that no selector can: the last change of state, an acknowledgement,
// and the newest changes first.
type eventOrder struct {
	changedSince time.Time
	acknowledged *bool
	changed      bool // the order: the newest change first
	given        bool // an order is named: the list is one page
}

func (a *API) eventOrderOf(q url.Values) (o eventOrder, err error) {
	if o.changedSince, err = instant(q.Get("changed_since"), a.opts.Now()); err != nil {
		return o, err
	}
	o.given = q.Has("order")
	switch q.Get("order") {
	case "", "name":
	case "changed":
		o.changed = true
	default:
		return o, invalid("order must be name or changed, not %q", resource.Short(q.Get("order")))
	}
	if text := q.Get("acknowledged"); text != "" {
		yes, err := strconv.ParseBool(text)
		if err != nil {
			return o, invalid("acknowledged must be true or false, not %q", resource.Short(text))
		}
		o.acknowledged = &yes
	}
	return o, nil
}

func (o *eventOrder) plain() bool {
	return o.changedSince.IsZero() && o.acknowledged == nil && !o.given
}

// listOrdered answers a list that needs more than a selector. It is one page: limit cuts it.
func (a *API) listOrdered(w *response, r *request, query state.Query, o *eventOrder) error {
	limit := query.Limit
	query.After, query.Limit = "", 0
	found, err := a.opts.State.Select(r.Context(), query)
	if err != nil {
		return err
	}
	type dated struct {
		state.Key
		at time.Time
	}
	var some []dated
	for key := range found.Keys() {
		if o.acknowledged == nil || *o.acknowledged == a.acknowledged(key) {
			some = append(some, dated{Key: key})
		}
	}
	if o.changed || !o.changedSince.IsZero() {
		at := map[state.Key]time.Time{}
		for _, d := range some {
			at[d.Key] = time.Time{}
		}
		if err := a.lastChanges(r.Context(), at, o.changedSince); err != nil {
			return err
		}
		for i := range some {
			some[i].at = at[some[i].Key]
		}
		some = slices.DeleteFunc(some, func(d dated) bool { return d.at.Before(o.changedSince) })
	}
	if o.changed {
		slices.SortStableFunc(some, func(x, y dated) int { return y.at.Compare(x.at) })
	}
	if limit > 0 && len(some) > limit {
		some = some[:limit]
	}
	list := newArray(w, "")
	for _, d := range some {
		ev, err := a.opts.State.Event(d.Namespace, d.Entity, d.Check)
		if errors.Is(err, state.ErrNotFound) {
			continue // deleted since
		}
		if err != nil {
			return err
		}
		if err := list.add(ev); err != nil {
			return err
		}
	}
	return list.finish()
}

// lastChanges sets when the state of each event last changed, as far as the history since then says.
func (a *API) lastChanges(ctx context.Context, at map[state.Key]time.Time, since time.Time) error {
	if a.opts.Reports == nil || len(at) == 0 {
		return nil
	}
	namespaces := map[string]bool{}
	for key := range at {
		namespaces[key.Namespace] = true
	}
	for namespace := range namespaces {
		in := report.Range{Namespace: namespace, Since: since, Until: a.opts.Now().Add(24 * time.Hour)} // clocks differ
		keep := func(namespace, entity, check string) bool {
			_, ok := at[state.Key{Namespace: namespace, Entity: entity, Check: check}]
			return ok
		}
		for h, err := range a.opts.Reports.Changes(ctx, in, keep) {
			if err != nil {
				return fmt.Errorf("read last changes: %w", err)
			}
			if n := len(h.Changes); n > 0 {
				at[state.Key{Namespace: namespace, Entity: h.Entity, Check: h.Check}] = h.Changes[n-1].Time
			}
		}
	}
	return nil
}

// acknowledged reports whether a user is at work on an event.
func (a *API) acknowledged(key state.Key) bool {
	one, ok := config.Get(a.opts.Config.Snapshot(), config.Silences, key.Namespace, ackName(key))
	return ok && one.Acknowledgement && !one.Expired(a.opts.Now())
}
