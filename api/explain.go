package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/lapwing-monitoring/lapwing/audit"
	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/explain"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
	"github.com/lapwing-monitoring/lapwing/trace"
)

const (
	// explainedEvents is how many events of a check an answer takes into account: enough to include the beginning of an
	// incident.
	explainedEvents = 100
	// explainedKeys is how many events a request may ask about at once.
	explainedKeys = 100
	// mostUndefined bounds the handlers of an event that are looked up.
	mostUndefined = 10
	// silenceEntries is how many entries of the audit log are read about a silence that has ended.
	silenceEntries = 20
)

// explain answers whether people were told of a check's failure. ?at= leaves out events that came later, and ?outcomes=true
// adds the traces that the answer was made from: traces that are asked for on their own may be of another moment.
func (a *API) explain(w *response, r *request) error {
	key, now := pathKey(r), a.opts.Now()
	at, err := instant(r.URL.Query().Get("at"), now)
	if err != nil {
		return err
	}
	account := explain.Account{Entity: key.Entity, Check: key.Check, Now: now, At: at}
	ev, err := a.findEvent(r.act, key)
	switch missing := errors.Is(err, state.ErrNotFound) || errors.Is(err, errNotFound); {
	case err != nil && (!missing || r.permit.Selector() != nil): // such a user reaches traces only through the event
		return err
	case err == nil && at.IsZero():
		account.Event = ev
	}
	q := trace.Query{Namespace: key.Namespace, Entity: key.Entity, Check: key.Check, Limit: explainedEvents}
	if !at.IsZero() {
		q.Until = max(1, at.UnixMilli())
	}
	if account.Outcomes, err = a.outcomes(w, r, q); err != nil {
		return err
	}
	if err := a.lookAround(r, key, &account); err != nil {
		return err
	}
	account.Silences = map[string]*explain.Silence{}
	for _, name := range account.Muters() {
		if account.Silences[name], err = a.silencer(r, key.Namespace, name); err != nil {
			return err
		}
	}
	answer := account.Explain()
	if r.URL.Query().Get("outcomes") == "true" {
		answer.Outcomes = append([]trace.Outcome{}, account.Outcomes...) // an empty list rather than none
	}
	return w.object(answer)
}

// lookAround adds to an account what is so now, as far as the user may see it.
func (a *API) lookAround(r *request, key state.Key, account *explain.Account) error {
	if account.At.IsZero() && a.opts.Escalations != nil && climbs(account.Outcomes) && a.mayList(r.user, "events", key.Namespace) {
		list, _, err := a.opts.Escalations(key.Namespace, key.Entity, key.Check, maxEscalations)
		if err != nil {
			return err
		}
		account.Escalations = list
	}
	ev := account.Event
	if ev == nil || ev.Check == nil || ev.Check.Status == 0 {
		return nil
	}
	account.Orphaned = a.checkGone(r, key.Namespace, ev.Check)
	if account.Traced() {
		if !slices.ContainsFunc(account.Outcomes[0].Deliveries, func(d trace.Delivery) bool { return d.Verdict == trace.NoHandler }) {
			account.Undefined = a.undefined(r, key.Namespace, ev)
		}
		return nil
	}
	// If the simulation fails, the rest is still told.
	var err error
	if account.Simulated, err = a.wouldBecome(r, &SimulateOptions{Namespace: key.Namespace, Event: ev, Draft: new(Draft)}); err != nil {
		account.Why = err.Error()
	}
	return nil
}

// climbs reports whether a delivery may be that of an escalation, or part of one.
func climbs(events []trace.Outcome) bool {
	return slices.ContainsFunc(events, func(o trace.Outcome) bool {
		return slices.ContainsFunc(o.Deliveries, func(d trace.Delivery) bool { return d.Verdict == trace.Held || d.Verdict == trace.Merged })
	})
}

// mayGet reports whether the user may get an object of a kind that is perhaps not there.
func (a *API) mayGet(r *request, kind, namespace, name string) bool {
	return a.opts.Auth.Permit(r.user, auth.Attributes{Verb: "get", Resource: kind, Namespace: namespace, Name: name}).Whole()
}

// checkGone reports whether the check of an event was scheduled and is not defined, and the user may know.
func (a *API) checkGone(r *request, namespace string, check *resource.Check) bool {
	name := check.Metadata.Name
	if !check.Publish || name == "keepalive" {
		return false
	}
	_, defined := config.Get(a.opts.Config.Snapshot(), config.Checks, namespace, name)
	return !defined && a.mayGet(r, config.Checks.String(), namespace, name)
}

// undefined returns the handlers that an event names, that are not defined and of which the user may know that.
func (a *API) undefined(r *request, namespace string, ev *resource.Event) (names []string) {
	if ev.Check == nil {
		return nil
	}
	sn := a.opts.Config.Snapshot()
	for _, name := range ev.Check.Handlers[:min(len(ev.Check.Handlers), mostUndefined)] {
		if _, defined := config.Get(sn, config.Handlers, namespace, name); !defined && a.mayGet(r, config.Handlers.String(), namespace, name) {
			names = append(names, name)
		}
	}
	return names
}

// silencer returns a silence that muted an event: the present one or, if it has ended, what the audit log says. It returns nil
// if the user may see neither.
func (a *API) silencer(r *request, namespace, name string) (*explain.Silence, error) {
	permit := a.opts.Auth.Permit(r.user, auth.Attributes{Verb: "get", Resource: config.Silences.String(), Namespace: namespace, Name: name})
	one, ok := config.Get(a.opts.Config.Snapshot(), config.Silences, namespace, name)
	switch there := ok && !one.Expired(a.opts.Now()); {
	case permit.Denied():
		return nil, nil
	case there && permit.Allows(selector.Resource(one)):
		return &explain.Silence{Silence: one}, nil
	case there, !permit.Whole(): // it may be there
		return nil, nil
	}
	gone := &explain.Silence{Ended: "it is deleted or has expired", Silence: &resource.Silenced{Metadata: resource.ObjectMeta{Name: name}}}
	if a.opts.Audit == nil || !a.mayList(r.user, "audit", namespace) {
		return gone, nil
	}
	entries, _, err := a.opts.Audit.Read(r.Context(), audit.Query{Resource: config.Silences.String(), Namespace: namespace, Name: name, Limit: silenceEntries})
	if err != nil {
		return nil, err
	}
	for i, e := range entries {
		if i == 0 && e.Action == "delete" {
			gone.Ended = "deleted by " + cmp.Or(e.User, "lapwing") + " at " + e.Time.UTC().Format(time.RFC3339)
		}
		for _, c := range e.Changes {
			was := c.New
			if e.Action == "delete" {
				was = c.Old
			}
			if c.Path == "" && json.Unmarshal(was, gone.Silence) == nil {
				return gone, nil
			}
		}
	}
	return gone, nil
}

// eventNames name an event.
type eventNames struct {
	// Namespace may be left out if the path has it.
	Namespace string `json:"namespace"`
	Entity    string `json:"entity"`
	Check     string `json:"check"`
}

// toExplain is a question about several events.
type toExplain struct {
	Keys []eventNames `json:"keys"`
}

// explained is the answer for one of several events.
type explained struct {
	eventNames
	explain.Brief
}

// explainMany answers in brief for several events. Events that are not there or that the user may not see are left out.
func (a *API) explainMany(w *response, r *request) error {
	var req toExplain
	if err := a.decode(w, r, &req); err != nil {
		return err
	}
	if len(req.Keys) > explainedKeys {
		return invalid("keys may name %d events at most, and names %d", explainedKeys, len(req.Keys))
	}
	var keys []state.Key
	var events []*resource.Event
	within := roleNamespace(r.PathValue("namespace"))
	for _, one := range req.Keys {
		key := state.Key{Namespace: cmp.Or(one.Namespace, within), Entity: one.Entity, Check: one.Check}
		if key.Namespace == "" || key.Entity == "" || key.Check == "" {
			return invalid("each of keys must have a namespace, an entity and a check")
		}
		if within != "" && key.Namespace != within {
			return namespaceMismatch(key.Namespace, within)
		}
		ev, err := a.explainable(r, key)
		if err != nil {
			return err
		}
		if ev != nil {
			keys, events = append(keys, key), append(events, ev)
		}
	}
	briefs, missing, err := a.briefs(r, keys, events)
	if err != nil {
		return err
	}
	w.lackTraces(missing)
	list := newArray(w, "")
	for i, key := range keys {
		if err := list.add(&explained{eventNames{key.Namespace, key.Entity, key.Check}, briefs[i]}); err != nil {
			return err
		}
	}
	return list.finish()
}

// explainable returns an event that can be explained; nil if it is not there, or if the user may not see it.
func (a *API) explainable(r *request, key state.Key) (*resource.Event, error) {
	permit := a.opts.Auth.Permit(r.user, auth.Attributes{
		Verb: "get", Resource: "events", Namespace: key.Namespace, Name: key.Entity + "/" + key.Check,
	})
	if permit.Denied() {
		return nil, nil
	}
	ev, err := a.opts.State.Event(key.Namespace, key.Entity, key.Check)
	if errors.Is(err, state.ErrNotFound) {
		return nil, nil
	}
	if err != nil || ev.Check == nil || !permit.Selector().Match(selector.Event(ev)) {
		return nil, err
	}
	return ev, nil
}

// briefs answers in brief for several events that the user may see. Nothing is simulated, and silences are told by their names.
func (a *API) briefs(r *request, keys []state.Key, events []*resource.Event) (briefs []explain.Brief, missing []string, err error) {
	found, missing, err := a.newest(r.Context(), keys, events)
	if err != nil {
		return nil, nil, err
	}
	climbing, err := a.climbing(r, keys, found)
	if err != nil {
		return nil, nil, err
	}
	briefs = make([]explain.Brief, len(keys))
	for i, key := range keys {
		a.complete(r, key.Namespace, found[i].Outcomes)
		account := explain.Account{Entity: key.Entity, Check: key.Check, Event: events[i], Outcomes: found[i].Outcomes,
			Escalations: climbing[key], Now: a.opts.Now()}
		briefs[i] = account.Brief()
		if found[i].Cut && briefs[i].Told == explain.No && !account.Whole() { // a person may have been told before
			briefs[i].Told = explain.Unknown
		}
	}
	return briefs, missing, nil
}

// newest reads the traces of those events that fail.
func (a *API) newest(ctx context.Context, keys []state.Key, events []*resource.Event) ([]trace.Newest, []string, error) {
	all := make([]trace.Newest, len(keys))
	var queries []trace.Query
	var at []int
	for i, key := range keys {
		if events[i].Check.Status != 0 {
			queries = append(queries, trace.Query{Namespace: key.Namespace, Entity: key.Entity, Check: key.Check})
			at = append(at, i)
		}
	}
	if len(queries) == 0 || a.opts.Trace == nil {
		return all, nil, nil
	}
	found, missing, err := a.opts.Trace.Newest(ctx, queries)
	if err != nil {
		return nil, nil, err
	}
	for i, one := range found {
		all[at[i]] = one
	}
	return all, missing, nil
}

// climbing returns the escalations of those events whose traces may have some. To look for one costs as much as for all.
func (a *API) climbing(r *request, keys []state.Key, found []trace.Newest) (map[state.Key][]resource.Escalation, error) {
	namespaces := map[string]bool{}
	for i, key := range keys {
		if climbs(found[i].Outcomes) {
			namespaces[key.Namespace] = true
		}
	}
	all := map[state.Key][]resource.Escalation{}
	if a.opts.Escalations == nil {
		return all, nil
	}
	for namespace := range namespaces {
		if !a.mayList(r.user, "events", namespace) {
			continue
		}
		list, _, err := a.opts.Escalations(namespace, "", "", maxEscalations)
		if err != nil {
			return nil, err
		}
		for _, e := range list {
			key := state.Key{Namespace: e.Namespace, Entity: e.Entity, Check: e.Check}
			all[key] = append(all[key], e)
		}
	}
	return all, nil
}
