package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/substitute"
)

// checks serves definitions of checks, their hooks, and runs of a check on request.
type checks struct {
	kind[resource.CheckConfig]
}

func (a *API) serveChecks() {
	c := &checks{kind[resource.CheckConfig]{
		api: a, Kind: config.Checks,
		reason: resourceInvalid, warning: a.checkWarning,
		hide: (*resource.CheckConfig).Redacted,
	}}
	c.finish = c.finishCheck
	c.accept, c.alone = func(check *resource.CheckConfig) error { return checkProxyExpressions(check.ProxyRequests) }, true
	a.definitions[c.String()] = definition{new(resource.CheckConfig), c.erase, c.amend}
	c.serveRoutes(
		methods{http.MethodGet: c.list, http.MethodPost: c.create},
		methods{http.MethodGet: c.get, http.MethodPut: c.put, http.MethodPatch: c.patch, http.MethodDelete: c.delete},
	)
	who := access{resource: c.String(), name: namePath, labels: true}
	item := c.collection() + "/{name}"
	a.route(item+"/hooks/{type}", who, methods{http.MethodPut: c.addHooks})
	a.route(item+"/hooks/{type}/hook/{hook}", who, methods{http.MethodDelete: c.removeHook})
	a.route(item+"/execute", who, methods{http.MethodPost: c.execute})
	c.serveLateness()
	c.serveRuns()
	c.serveQueue()
}

// checkWarning warns the author of a check about its tokens, and about calendars that are missing.
func (a *API) checkWarning(t *act, check *resource.CheckConfig) string {
	text := substitute.Warning(check)
	if missing := a.missingOf(t.user, check); len(missing) > 0 {
		text = strings.TrimPrefix(text+"; "+strings.Join(missing, "; "), "; ")
	}
	return text
}

// missingOf says which calendars of a check count as missing, and what that means, to a user who may list calendars.
func (a *API) missingOf(user *auth.Identity, check *resource.CheckConfig) []string {
	c := check.Calendars
	if c.Empty() {
		return nil
	}
	const means = "the check runs without regard to it"
	within := means
	if len(c.RunWithin) > 1 {
		within += ", nor to the others of run_within"
	}
	namespace := check.Metadata.Namespace
	return append(a.missingCalendars(user, namespace, within, c.RunWithin...),
		a.missingCalendars(user, namespace, means, c.NotWithin...)...)
}

// delete deletes a check. Its events stay, as in Sensu, unless the query says otherwise. They are deleted last: by then
// no agent is asked to run the check.
func (c *checks) delete(w *response, r *request) error {
	w.patient()
	if err := c.erase(r.Context(), r.act, r.URL.Query()); err != nil {
		return err
	}
	return w.empty(http.StatusNoContent)
}

func (c *checks) erase(ctx context.Context, t *act, query url.Values) error {
	along, err := c.api.cascadeOf(t, query, eventsKeep)
	if err != nil {
		return err
	}
	if err := c.kind.erase(ctx, t, nil); err != nil || config.IsDryRun(ctx) {
		return err
	}
	ctx, cancel := patiently(ctx)
	defer cancel()
	if along.silences {
		if err := c.api.deleteSilences(ctx, t.namespace, ofCheck(t.name)); err != nil {
			return err
		}
	}
	if along.events != eventsKeep {
		return c.api.deleteCheckEvents(ctx, t.namespace, t.name, along.events == eventsResolve)
	}
	return nil
}

// finishCheck replaces a check's placeholders with its secrets, and keeps a role that is limited by labels to its
// entities.
func (c *checks) finishCheck(t *act, check, old *resource.CheckConfig) (*resource.CheckConfig, error) {
	if err := c.mayTarget(t, check, old); err != nil {
		return nil, err
	}
	return check.WithSecrets(old)
}

// mayTarget refuses a check for one entity by name, as its subscription or its proxy entity, if the sender's role is
// limited by labels and does not reach the entity. Names that old already has stay. Other ways to select entities are
// not checked here.
func (c *checks) mayTarget(t *act, check, old *resource.CheckConfig) error {
	limit := t.permit.Selector()
	if limit == nil {
		return nil
	}
	reached := func(name string, undefined bool) bool {
		cfg, ok := config.Get(c.api.opts.Config.Snapshot(), config.Entities, check.Metadata.Namespace, name)
		return !ok && undefined || ok && limit.Match(selector.Resource(cfg))
	}
	for _, subscription := range check.Subscriptions {
		name, ok := strings.CutPrefix(subscription, resource.EntitySubscription(""))
		if ok && (old == nil || !slices.Contains(old.Subscriptions, subscription)) && !reached(name, false) {
			return forbidden("the subscription %s is of an entity that your role does not reach: its rule is limited to %s",
				resource.Short(subscription), strings.Join(t.permit.Labels(), " or "))
		}
	}
	// A check makes its proxy entity. An entity without a definition belongs to no other team.
	if name := check.ProxyEntityName; name != "" && (old == nil || name != old.ProxyEntityName) && !reached(name, true) {
		return forbidden("the proxy entity %s is one that your role does not reach: its rule is limited to %s",
			resource.Short(name), strings.Join(t.permit.Labels(), " or "))
	}
	return nil
}

// addHooks adds hooks to those of a check for one type of result. Adding existing hooks again changes nothing.
func (c *checks) addHooks(w *response, r *request) error {
	var more resource.HookList
	if err := c.api.decode(w, r, &more); err != nil {
		return err
	}
	if typ := r.PathValue("type"); more.Type != typ {
		return invalid("the hook type (%s) does not match the hook type of the URI (%s)", more.Type, typ)
	}
	if err := more.Validate(); err != nil {
		return invalid("%v", err)
	}
	err := c.change(r, func(check *resource.CheckConfig) error {
		at := slices.IndexFunc(check.CheckHooks, func(l resource.HookList) bool { return l.Type == more.Type })
		if at < 0 {
			at = len(check.CheckHooks)
			check.CheckHooks = append(check.CheckHooks, resource.HookList{Type: more.Type})
		}
		for _, name := range more.Hooks {
			if list := &check.CheckHooks[at]; !slices.Contains(list.Hooks, name) {
				list.Hooks = append(list.Hooks, name)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return w.empty(http.StatusCreated)
}

// removeHook removes a hook from a type of result, and the type too if it has no other hook.
func (c *checks) removeHook(w *response, r *request) error {
	typ, hook := r.PathValue("type"), r.PathValue("hook")
	err := c.change(r, func(check *resource.CheckConfig) error {
		found := false
		for i := range check.CheckHooks {
			if l := &check.CheckHooks[i]; l.Type == typ {
				n := len(l.Hooks)
				l.Hooks = slices.DeleteFunc(l.Hooks, func(name string) bool { return name == hook })
				found = found || len(l.Hooks) < n
			}
		}
		if !found {
			return errNotFound
		}
		check.CheckHooks = slices.DeleteFunc(check.CheckHooks, func(l resource.HookList) bool { return l.Type == typ && len(l.Hooks) == 0 })
		if len(check.CheckHooks) == 0 {
			check.CheckHooks = nil
		}
		return nil
	})
	if err != nil {
		return err
	}
	return w.empty(http.StatusNoContent)
}

// change changes a check in place.
func (c *checks) change(r *request, edit func(*resource.CheckConfig) error) error {
	store, namespace, name := c.api.opts.Config, r.PathValue("namespace"), r.PathValue("name")
	_, err := config.Update(r.Context(), store, c.Kind, namespace, name, func(check *resource.CheckConfig) (*resource.CheckConfig, error) {
		if !c.mine(r.act, check) {
			return nil, errNotFound
		}
		if err := r.precondition(c.shown(r.user)(check)); err != nil {
			return nil, err
		}
		return check, edit(check)
	})
	return err
}

// Execution is what became of a request to run a check.
type Execution struct {
	// Issued is the time of the request on all backends, in Unix seconds.
	Issued int64
	// WithoutAgent are the subscriptions that no connected agent has, of the backends that answered.
	WithoutAgent []string
	// Silent are the backends that did not answer.
	Silent []string
}

// executeRequest is the body of a request to run a check. Sensu's fields check, creator and reason are not used: the path
// names the check, and the audit log has the user.
type executeRequest struct {
	// Subscriptions whose agents run the check; default those of the check.
	Subscriptions []string `json:"subscriptions"`
	// Metadata may name the check, as in the path.
	Metadata resource.ObjectMeta `json:"metadata"`
	// All makes all agents run a round-robin check, not one of each subscription.
	All bool `json:"all"`
}

// executeAnswer says when a check was asked to run.
type executeAnswer struct {
	Issued int64 `json:"issued"` // Unix seconds, on all backends
}

// execute makes every agent with one of the given subscriptions, or of the check's, run a check once, now. A round-robin
// check runs on one agent of each subscription, unless the request says all. The check runs even if it is not published.
// With proxy requests it runs for every matching entity.
func (c *checks) execute(w *response, r *request) error {
	check, err := c.find(r.act)
	if err != nil {
		return err
	}
	var asked executeRequest
	if err := json.NewDecoder(c.api.body(w, r)).Decode(&asked); err != nil && !errors.Is(err, io.EOF) {
		return invalid("%v", err)
	}
	if m := asked.Metadata; m.Name != "" && m.Name != check.Metadata.Name {
		return nameMismatch(m.Name, check.Metadata.Name)
	}
	if slices.Contains(asked.Subscriptions, "") {
		return invalid("subscriptions cannot be empty strings")
	}
	if len(asked.Subscriptions) > 0 {
		elsewhere := *check
		elsewhere.Subscriptions = asked.Subscriptions
		if err := c.mayTarget(r.act, &elsewhere, check); err != nil {
			return err
		}
		check = &elsewhere
	}
	done := c.api.opts.Execute(r.Context(), check, check.Subscriptions, asked.All)
	if len(done.Silent) == 0 { // otherwise their agents may have the subscriptions
		for _, name := range done.WithoutAgent {
			w.advise("no connected agent has the subscription " + resource.Short(name))
		}
	}
	for _, member := range done.Silent {
		w.advise("the backend " + member + " did not answer: its agents may not run the check")
	}
	c.api.audited(r.Context(), r.act, "execute", c.String(), check.Metadata.Namespace, check.Metadata.Name)
	body, err := encode(executeAnswer{done.Issued})
	if err != nil {
		return err
	}
	w.text(http.StatusAccepted, string(body))
	return nil
}
