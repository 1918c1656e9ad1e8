package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
)

// Choices for the events of a deleted entity or check.
const (
	eventsKeep    = "keep"
	eventsDelete  = "delete"
	eventsResolve = "resolve" // the failing ones are resolved first, for their handlers, and then deleted
)

// cascade says what else to delete with an object.
type cascade struct {
	events   string
	silences bool
}

// cascadeOf reads events= and silences= of the query of a DELETE; events is the default. To delete more than Sensu
// deletes, the user needs the right to delete that by itself.
func (a *API) cascadeOf(t *act, q url.Values, events string) (cascade, error) {
	c := cascade{events: events}
	if asked := q.Get("events"); asked != "" {
		if !slices.Contains([]string{eventsKeep, eventsDelete, eventsResolve}, asked) {
			return c, invalid("events must be %s, %s or %s, not %q", eventsKeep, eventsDelete, eventsResolve, asked)
		}
		c.events = asked
	}
	switch asked := q.Get("silences"); asked {
	case "", "keep":
	case "delete":
		c.silences = true
	default:
		return c, invalid("silences must be keep or delete, not %q", asked)
	}
	if c.events != eventsKeep && c.events != events && !a.may(t, "delete", "events", t.namespace) {
		return c, lacks("delete", "events")
	}
	if c.silences && !a.may(t, "delete", config.Silences.String(), t.namespace) {
		return c, lacks("delete", config.Silences.String())
	}
	return c, nil
}

// may reports whether a user may do something to all objects of a kind in a namespace.
func (a *API) may(t *act, verb, kind, namespace string) bool {
	return a.opts.Auth.Permit(t.user, auth.Attributes{Verb: verb, Resource: kind, Namespace: namespace}).Whole()
}

// patiently returns a context for work that may take longer than most requests. The work goes on even if the client
// disconnects.
func patiently(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cascadeTimeout)
}

// patient gives the answer as much time as patiently gives the work.
func (w *response) patient() {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(cascadeTimeout))
}

const cascadeTimeout = 5 * time.Minute

// resolve writes a passing result for each failing event.
func (a *API) resolve(ctx context.Context, events []*resource.Event, output string) error {
	failing := slices.DeleteFunc(events, func(ev *resource.Event) bool { return ev.Check == nil || ev.Check.Status == 0 })
	if err := a.opts.Intake.Resolve(ctx, failing, output); err != nil {
		return unavailable(err)
	}
	return nil
}

// deleteSilences deletes silences of a namespace. A silence with selectors belongs to no entity or check.
func (a *API) deleteSilences(ctx context.Context, namespace string, of func(*resource.Silenced) bool) error {
	var errs []error
	for s := range config.List(a.opts.Config.Snapshot(), config.Silences, namespace) {
		if of(s) {
			errs = append(errs, gone(config.Delete(ctx, a.opts.Config, config.Silences, namespace, s.Metadata.Name)))
		}
	}
	return errors.Join(errs...)
}

// ofEntity returns a function that matches the silences of an entity, or of a check on it.
func ofEntity(name string) func(*resource.Silenced) bool {
	return func(s *resource.Silenced) bool { return s.Subscription == resource.EntitySubscription(name) }
}

// ofCheck returns a function that matches the silences of a check, in any subscription.
func ofCheck(name string) func(*resource.Silenced) bool {
	return func(s *resource.Silenced) bool { return s.Check == name }
}

// deleteCheckEvents deletes the events of a check on all entities.
func (a *API) deleteCheckEvents(ctx context.Context, namespace, check string, resolve bool) error {
	sel, err := selector.Parse("", fmt.Sprintf("event.check.name == '%s'", check))
	if err != nil {
		return err
	}
	found, err := a.opts.State.Select(ctx, state.Query{Namespace: namespace, Selector: sel})
	if err != nil {
		return err
	}
	if resolve {
		var events []*resource.Event
		for ev, err := range found.Events() {
			if err != nil {
				return err
			}
			events = append(events, ev)
		}
		if err := a.resolve(ctx, events, "Resolving because the check was deleted"); err != nil {
			return err
		}
	}
	return a.deleteEvents(ctx, slices.Collect(found.Keys()))
}

// deleteEvents deletes events, many at a time: they share the commits of the log.
func (a *API) deleteEvents(ctx context.Context, keys []state.Key) error {
	todo := make(chan state.Key)
	errs := make([]error, bulkWorkers)
	var working sync.WaitGroup
	for n := range errs {
		working.Go(func() {
			for k := range todo {
				if errs[n] != nil {
					continue
				}
				if err := a.opts.Intake.DeleteEvent(ctx, k.Namespace, k.Entity, k.Check); err != nil && !errors.Is(err, state.ErrNotFound) {
					errs[n] = err
				}
			}
		})
	}
	for _, k := range keys {
		todo <- k
	}
	close(todo)
	working.Wait()
	if err := errors.Join(errs...); err != nil {
		return unavailable(err)
	}
	return nil
}

// contents has the kinds of definitions in a namespace, in the order in which a namespace is emptied.
var contents = placed(func(k *resource.Kind) int { return k.Clear })

// accessories returns the other kinds in namespaces. Their objects do not prevent the deletion of a namespace, and are
// deleted with it, bindings before roles.
func accessories() (out []*resource.Kind) {
	for _, k := range slices.Backward(resource.Kinds) {
		if k.Namespaced && k.Prune > 0 && k.Clear == 0 {
			out = append(out, k)
		}
	}
	return out
}

// clearNamespace deletes everything in a namespace except for its accessories, if the user may delete all of it, and no agent
// of it is connected: that would register its entity again, and the namespace would stay.
func (n *namespaces) clearNamespace(ctx context.Context, t *act, name string) error {
	sn := n.api.opts.Config.Snapshot()
	var denied []string
	for _, k := range contents {
		if !n.api.may(t, "delete", k.Role, name) {
			denied = append(denied, k.Role)
		}
	}
	if !n.api.may(t, "delete", "events", name) {
		denied = append(denied, "events")
	}
	if len(denied) > 0 {
		return forbidden("you may not delete all %s of the namespace", strings.Join(denied, ", "))
	}
	if err := n.idle(name); err != nil {
		return err
	}
	for _, k := range contents {
		if err := n.api.deleteAll(ctx, sn, k, name); err != nil {
			return fmt.Errorf("delete all %s of namespace %s: %w", k.Role, name, err)
		}
	}
	found, err := n.api.opts.State.Select(ctx, state.Query{Namespace: name})
	if err != nil {
		return err
	}
	entities := map[string]bool{}
	for k := range found.Keys() {
		entities[k.Entity] = true
	}
	for entity := range entities {
		if err := n.api.opts.Intake.DeleteEntity(ctx, name, entity); err != nil && !errors.Is(err, state.ErrNotFound) {
			return unavailable(err)
		}
	}
	return nil
}

// mostAgentsNamed is how many connected agents a refusal names.
const mostAgentsNamed = 5

// idle returns an error if agents of a namespace are connected.
func (n *namespaces) idle(name string) error {
	var names []string
	for e := range config.List(n.api.opts.Config.Snapshot(), config.Entities, name) {
		if agents := n.api.opts.Agents; agents != nil && agents.IsConnected(resource.NameOf(&e.Metadata)) {
			names = append(names, e.Metadata.Name)
		}
	}
	who := "the agent %s is connected and would register its entity again: stop it first"
	more := ""
	switch {
	case len(names) == 0:
		return nil
	case len(names) > mostAgentsNamed:
		more = fmt.Sprintf(" and %d more", len(names)-mostAgentsNamed)
		fallthrough
	case len(names) > 1:
		who = "the agents %s are connected and would register their entities again: stop them first"
	}
	return invalid(resourceInvalid+who+"; nothing was deleted", strings.Join(names[:min(len(names), mostAgentsNamed)], ", ")+more)
}

// deleteAll deletes a snapshot's definitions of a kind in a namespace.
func (a *API) deleteAll(ctx context.Context, sn *config.Snapshot, k *resource.Kind, namespace string) error {
	var errs []error
	for obj := range config.ListAny(sn, k, namespace) {
		errs = append(errs, gone(config.DeleteAny(ctx, a.opts.Config, k, namespace, resource.MetaOf(obj).Name)))
	}
	return errors.Join(errs...)
}
