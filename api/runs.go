package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Schedule knows when checks run. *schedule.Scheduler implements it.
type Schedule interface {
	Upcoming(c *resource.CheckConfig, agent string, from time.Time, n int) resource.CheckRuns
	ClosedNow(c *resource.CheckConfig, at time.Time) string
	ProxyNames(ctx context.Context, c *resource.CheckConfig) (names []string, known bool)
}

// Agents knows which agents are connected to any member. *queue.Presence implements it.
type Agents interface {
	AgentsOf(namespace string, subscriptions []string) []string
	IsConnected(agent resource.Name) bool
	Counts(namespace string) map[string]int
}

const (
	// usualRuns is how many runs an answer has if the request does not say, and mostRuns the bound.
	usualRuns, mostRuns = 5, 100
)

// serveRuns adds when checks run, and at which agents. Sensu has no such paths, so they are lapwing's own.
func (c *checks) serveRuns() {
	item := access{resource: c.String(), name: namePath, labels: true}
	collection := ours + "namespaces/{namespace}/checks/{name}"
	if c.api.opts.Schedule == nil || c.api.opts.Agents == nil {
		return
	}
	c.api.route(collection+"/next", item, methods{http.MethodGet: c.next})
	c.api.route(collection+"/targets", item, methods{http.MethodGet: c.targets})
	entities := access{resource: "entities", list: true}
	c.api.route(ours+"namespaces/{namespace}/subscriptions", entities, methods{http.MethodGet: c.api.listSubscriptions})
	c.api.route(ours+"namespaces/{namespace}/subscriptions/{name}", entities, methods{http.MethodGet: c.api.getSubscription})
}

func (c *checks) next(w *response, r *request) error {
	check, err := c.find(r.act)
	if err != nil {
		return err
	}
	n := usualRuns
	if text := r.URL.Query().Get("count"); text != "" {
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > mostRuns {
			return invalid("count must be a number from 1 to %d", mostRuns)
		}
	}
	now := c.api.opts.Now()
	from, err := instant(r.URL.Query().Get("since"), now)
	switch {
	case err != nil:
		return err
	case from.IsZero():
		from = now
	case from.Before(now.Add(-mostPreviewed)) || from.After(now.Add(mostPreviewed)):
		return invalid("since must be within five years of now")
	}
	agents := c.api.opts.Agents.AgentsOf(check.Metadata.Namespace, check.Subscriptions)
	entity, agent, err := c.nextAt(r, check, agents)
	if err != nil {
		return err
	}
	out := c.api.opts.Schedule.Upcoming(check, agent, from, n)
	if out.Entity = entity; entity != nil && !entity.Runs {
		out.Runs, out.Pauses, out.Searched = []int64{}, nil, 0
	}
	if why := noAgent(check, agents); why != "" {
		out.Now = append(out.Now, why)
	}
	out.Missing = c.api.missingOf(r.user, check)
	if cal := check.Calendars; !cal.Empty() && c.api.mayList(r.user, config.Calendars.String(), check.Metadata.Namespace) {
		out.TimeZones = map[string]string{}
		for _, name := range slices.Concat(cal.RunWithin, cal.NotWithin) {
			if def, ok := config.Get(c.api.opts.Config.Snapshot(), config.Calendars, check.Metadata.Namespace, name); ok {
				out.TimeZones[name] = cmp.Or(def.TimeZone, "UTC")
			}
		}
	}
	return w.object(out)
}

// nextAt returns the answer about the entity that a request for the next runs names, nil for none, and the agent whose own
// moments the runs are: the entity's, or the only one that runs the check. The agent is "" if the runs are those that the
// backend asks for.
func (c *checks) nextAt(r *request, check *resource.CheckConfig, agents []string) (entity *resource.CheckTarget, agent string, err error) {
	a, name := c.api, r.URL.Query().Get("entity")
	if !a.mayList(r.user, config.Entities.String(), check.Metadata.Namespace) {
		if name != "" {
			return nil, "", lacks("list", config.Entities.String())
		}
		return nil, "", nil // whose moments they are is a name
	}
	if len(agents) == 1 {
		agent = agents[0]
	}
	if name != "" {
		var proxies []string
		if check.ProxyRequests != nil {
			proxies, _ = a.opts.Schedule.ProxyNames(r.Context(), check)
		}
		if entity, err = a.target(check, name, agents, proxies, true); err != nil || !entity.Runs {
			return entity, "", err
		}
		if slices.Contains(agents, name) {
			agent = name
		}
	}
	if agent == "" || a.opts.OwnSchedule == nil {
		return entity, "", nil
	}
	switch own, err := a.opts.OwnSchedule(r.Context(), resource.Name{Namespace: check.Metadata.Namespace, Name: agent}); {
	case err != nil && name != "":
		return nil, "", &apiError{status: http.StatusServiceUnavailable, code: codeInternal,
			message: fmt.Sprintf("when %s runs it is not known: %s", agent, err)}
	case err != nil || !own:
		return entity, "", nil
	}
	return entity, agent, nil
}

func (c *checks) targets(w *response, r *request) error {
	check, err := c.find(r.act)
	if err != nil {
		return err
	}
	a, namespace := c.api, check.Metadata.Namespace
	out := resource.CheckTargets{Namespace: namespace, Check: check.Metadata.Name, RoundRobin: check.RoundRobin,
		Subscriptions: []resource.SubscriptionCount{}, Now: []string{}, Missing: a.missingOf(r.user, check)}
	for _, name := range check.Subscriptions {
		out.Subscriptions = append(out.Subscriptions, resource.SubscriptionCount{
			Name: name, Agents: len(a.opts.Agents.AgentsOf(namespace, []string{name})), Entities: len(a.entitiesWith(namespace, name)),
			Checks: len(a.checksWith(namespace, name)),
		})
	}
	agents := a.opts.Agents.AgentsOf(namespace, check.Subscriptions)
	out.Agents = len(agents)
	away := a.notConnected(check, agents)
	out.NotConnected = len(away)
	if a.mayList(r.user, config.Entities.String(), namespace) {
		out.Names = agents[:min(len(agents), resource.MaxSubscriptionNames)]
		out.NotConnectedNames = away[:min(len(away), resource.MaxSubscriptionNames)]
	}
	proxies, known := []string(nil), true
	if check.ProxyRequests != nil {
		if proxies, known = a.opts.Schedule.ProxyNames(r.Context(), check); known {
			n := len(proxies)
			out.Proxies = &n
		}
	}
	if !check.Publish {
		out.Now = append(out.Now, "publish is false: it runs only when it is asked to")
	}
	if check.Interval == 0 && check.Cron == "" {
		out.Now = append(out.Now, "it has neither an interval nor a cron")
	}
	if closed := a.opts.Schedule.ClosedNow(check, a.opts.Now()); closed != "" {
		out.Now = append(out.Now, closed)
	}
	if why := noAgent(check, agents); why != "" {
		out.Now = append(out.Now, why)
	}
	if check.ProxyRequests != nil && known && len(proxies) == 0 {
		out.Now = append(out.Now, "no entity matches its proxy requests")
	}
	if name := r.URL.Query().Get("entity"); name != "" {
		if out.Names == nil {
			return lacks("list", config.Entities.String())
		}
		if out.Entity, err = a.target(check, name, agents, proxies, len(out.Now) == 0); err != nil {
			return err
		}
	}
	return w.object(&out)
}

// noAgent says that none of the connected agents has a subscription of a check; "" if one has.
func noAgent(check *resource.CheckConfig, agents []string) string {
	switch {
	case len(agents) > 0:
		return ""
	case len(check.Subscriptions) == 0:
		return "it has no subscription"
	}
	return "no connected agent has one of its subscriptions: " + strings.Join(check.Subscriptions, ", ")
}

// target says whether one entity's agent would run a check now, or the check would run for the entity. on says that the
// check runs now at all.
func (a *API) target(check *resource.CheckConfig, name string, agents, proxies []string, on bool) (*resource.CheckTarget, error) {
	namespace := check.Metadata.Namespace
	e, ok := config.Get(a.opts.Config.Snapshot(), config.Entities, namespace, name)
	if !ok {
		return nil, &apiError{status: http.StatusNotFound, code: codeNotFound, message: fmt.Sprintf("there is no entity %s", name)}
	}
	t := &resource.CheckTarget{Name: name, Why: []string{}}
	says := func(format string, args ...any) { t.Why = append(t.Why, fmt.Sprintf(format, args...)) }
	isAgent := slices.Contains(agents, name)
	switch {
	case check.ProxyEntityName == name:
		says("the results of the check are those of this entity: an agent with its subscriptions runs it")
		t.Runs = on
		return t, nil
	case slices.Contains(proxies, name):
		says("its proxy requests match the entity: an agent with its subscriptions runs it for the entity")
		t.Runs = on
		return t, nil
	case isAgent && check.RoundRobin:
		says("it is one of %d agents that take turns", len(agents))
		t.Runs = on
		return t, nil
	case isAgent:
		t.Runs = on
		return t, nil
	}
	if check.ProxyRequests != nil {
		says("the proxy requests of the check do not match it: %s", strings.Join(check.ProxyRequests.EntityAttributes, " && "))
	}
	if e.EntityClass != resource.EntityAgentClass {
		says("it is a %s entity: it has no agent that could run the check", e.EntityClass)
		return t, nil
	}
	common := slices.ContainsFunc(e.Subscriptions, func(s string) bool { return slices.Contains(check.Subscriptions, s) })
	if !common {
		says("it has none of the check's subscriptions: it has %s, the check %s", orNone(e.Subscriptions), orNone(check.Subscriptions))
	}
	if !a.opts.Agents.IsConnected(resource.Name{Namespace: namespace, Name: name}) {
		says("its agent is not connected")
	}
	return t, nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// notConnected returns the agent entities that have a subscription of a check and are not among the connected agents, which
// are sorted.
func (a *API) notConnected(check *resource.CheckConfig, agents []string) (names []string) {
	for e := range config.List(a.opts.Config.Snapshot(), config.Entities, check.Metadata.Namespace) {
		_, connected := slices.BinarySearch(agents, e.Metadata.Name)
		subscribed := func(name string) bool { return slices.Contains(check.Subscriptions, name) }
		if !connected && e.EntityClass == resource.EntityAgentClass && slices.ContainsFunc(e.Subscriptions, subscribed) {
			names = append(names, e.Metadata.Name)
		}
	}
	return names
}

func (a *API) entitiesWith(namespace, subscription string) (names []string) {
	for e := range config.List(a.opts.Config.Snapshot(), config.Entities, namespace) {
		if slices.Contains(e.Subscriptions, subscription) {
			names = append(names, e.Metadata.Name)
		}
	}
	return names
}

func (a *API) checksWith(namespace, subscription string) (names []string) {
	for c := range config.List(a.opts.Config.Snapshot(), config.Checks, namespace) {
		if slices.Contains(c.Subscriptions, subscription) {
			names = append(names, c.Metadata.Name)
		}
	}
	return names
}

// listSubscriptions lists the subscriptions of a namespace, but for those of one entity that no check names.
func (a *API) listSubscriptions(w *response, r *request) error {
	namespace, sn := r.PathValue("namespace"), a.opts.Config.Snapshot()
	all := map[string]*resource.SubscriptionCount{}
	of := func(name string) *resource.SubscriptionCount {
		if all[name] == nil {
			all[name] = &resource.SubscriptionCount{Name: name}
		}
		return all[name]
	}
	for c := range config.List(sn, config.Checks, namespace) {
		for _, name := range c.Subscriptions {
			of(name).Checks++
		}
	}
	for e := range config.List(sn, config.Entities, namespace) {
		for _, name := range e.Subscriptions {
			if all[name] != nil || name != resource.EntitySubscription(e.Metadata.Name) {
				of(name).Entities++
			}
		}
	}
	for name, n := range a.opts.Agents.Counts(namespace) {
		if all[name] != nil || !strings.HasPrefix(name, resource.EntitySubscription("")) {
			of(name).Agents = n
		}
	}
	list := make([]resource.SubscriptionCount, 0, len(all))
	for _, one := range all {
		if strings.HasPrefix(one.Name, resource.EntitySubscription("")) {
			one.Agents = len(a.opts.Agents.AgentsOf(namespace, []string{one.Name}))
		}
		list = append(list, *one)
	}
	slices.SortFunc(list, func(a, b resource.SubscriptionCount) int { return strings.Compare(a.Name, b.Name) })
	return w.object(list)
}

func (a *API) getSubscription(w *response, r *request) error {
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	checks, entities := a.checksWith(namespace, name), a.entitiesWith(namespace, name)
	agents := a.opts.Agents.AgentsOf(namespace, []string{name})
	if len(checks)+len(entities)+len(agents) == 0 {
		return errNotFound
	}
	out := resource.Subscription{SubscriptionCount: resource.SubscriptionCount{
		Name: name, Agents: len(agents), Entities: len(entities), Checks: len(checks),
	}}
	entities = slices.DeleteFunc(entities, func(e string) bool {
		_, connected := slices.BinarySearch(agents, e)
		return connected
	})
	first := func(names []string) []string {
		return append([]string{}, names[:min(len(names), resource.MaxSubscriptionNames)]...)
	}
	out.CheckNames, out.AgentNames, out.EntityNames = first(checks), first(agents), first(entities)
	return w.object(&out)
}
