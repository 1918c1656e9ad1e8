// Package references finds what definitions name, and which of these names name nothing. The API warns of them when a
// definition is written, lists them over all that is stored (Lint), and tells what names a definition (Referrers).
//
// A reference to something that is missing is never an error: definitions arrive in any order, and handlers may come later
// than the checks that name them. All answers are computed from a snapshot of definitions; agents, events and the rights of
// users are left to the callers.
package references

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Reference is a name in a definition.
type Reference struct {
	// What is the word for what is named: handler, filter, asset, …; it is the kind's command with a blank for a dash, or
	// subscription.
	What string
	// Resource is the kind's name in roles' rules.
	Resource string
	Name     string
}

// Missing is a reference that names nothing.
type Missing struct {
	Reference
	Nearest string // a name that may be meant, or ""
}

// String returns the text of a warning: handler "slcak" does not exist (slack?).
func (m Missing) String() string {
	text := fmt.Sprintf("%s %q does not exist", m.What, m.Name)
	if m.What == subscription {
		text = fmt.Sprintf("%s %q: no entity has it", m.What, m.Name)
	}
	if m.Nearest != "" {
		text += " (" + m.Nearest + "?)"
	}
	return text
}

const subscription = "subscription"

// in is what a reference is looked up in.
type in struct {
	sn        *config.Snapshot
	namespace string
}

// names returns the names of a kind's objects in a namespace.
func names[T any](of in, k config.Kind[T], meta func(*T) string) (list []string) {
	for one := range config.List(of.sn, k, of.namespace) {
		list = append(list, meta(one))
	}
	return list
}

// target is a kind that definitions name.
type target struct {
	what, resource string
	has            func(in, string) bool
	all            func(in) []string
}

func targetOf[T any](what string, k config.Kind[T], name func(*T) string) target {
	return target{what, k.String(),
		func(of in, n string) bool { _, ok := config.Get(of.sn, k, of.namespace, n); return ok },
		func(of in) []string { return names(of, k, name) },
	}
}

// cluster makes a target whose objects belong to no namespace.
func cluster(t target) target {
	has, all := t.has, t.all
	t.has = func(of in, n string) bool { return has(in{of.sn, ""}, n) }
	t.all = func(of in) []string { return all(in{of.sn, ""}) }
	return t
}

// builtin adds names that are always there.
func builtin(t target, list []string) target {
	has, all := t.has, t.all
	t.has = func(of in, n string) bool { return slices.Contains(list, n) || has(of, n) }
	t.all = func(of in) []string { return append(all(of), list...) }
	return t
}

var (
	handlers  = targetOf("handler", config.Handlers, func(h *resource.Handler) string { return h.Metadata.Name })
	assets    = targetOf("asset", config.Assets, func(a *resource.Asset) string { return a.Metadata.Name })
	hooks     = targetOf("hook", config.Hooks, func(h *resource.HookConfig) string { return h.Metadata.Name })
	pipelines = targetOf("pipeline", config.Pipelines, func(p *resource.Pipeline) string { return p.Metadata.Name })
	calendars = targetOf("calendar", config.Calendars, func(c *resource.Calendar) string { return c.Metadata.Name })
	contacts  = targetOf("contact", config.Contacts, func(c *resource.Contact) string { return c.Metadata.Name })
	rotas     = targetOf("rota", config.Rotas, func(r *resource.Rota) string { return r.Metadata.Name })
	roles     = targetOf("role", config.Roles, func(r *resource.Role) string { return r.Metadata.Name })

	filters = builtin(targetOf("filter", config.Filters, func(f *resource.EventFilter) string { return f.Metadata.Name }),
		filter.Names)
	mutators = builtin(targetOf("mutator", config.Mutators, func(m *resource.Mutator) string { return m.Metadata.Name }),
		[]string{"json", "only_check_output"})

	clusterRoles = cluster(targetOf("cluster role", config.ClusterRoles, func(r *resource.ClusterRole) string { return r.Metadata.Name }))
	users        = cluster(targetOf("user", config.Users, func(u *resource.User) string { return u.Username }))
)

// use is a target with the names of it in a definition.
type use struct {
	target
	names []string
}

// usesOf returns what a definition names, except for calendars of checks and silences, which package calendar checks, and
// the subscriptions of checks. Nothing is returned for kinds that name nothing.
func usesOf(sn *config.Snapshot, obj any) (namespace string, uses []use) {
	add := func(t target, names ...string) {
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "" })
		if len(names) > 0 {
			uses = append(uses, use{t, names})
		}
	}
	of := func(refs []resource.ResourceReference) (list []string) {
		for _, r := range refs {
			if r.Type == "Pipeline" || r.Type == "" {
				list = append(list, r.Name)
			}
		}
		return list
	}
	switch o := obj.(type) {
	case *resource.CheckConfig:
		namespace = o.Metadata.Namespace
		add(handlers, o.Handlers...)
		add(handlers, o.OutputMetricHandlers...)
		add(assets, o.RuntimeAssets...)
		add(pipelines, of(o.Pipelines)...)
		for _, list := range o.CheckHooks {
			add(hooks, list.Hooks...)
		}
		if c := o.Calendars; c != nil {
			add(calendars, slices.Concat(c.RunWithin, c.NotWithin)...)
		}
	case *resource.Handler:
		namespace = o.Metadata.Namespace
		add(filters, o.Filters...)
		add(mutators, o.Mutator)
		add(handlers, o.Handlers...)
		add(assets, o.RuntimeAssets...)
		if e := o.Escalation; e != nil {
			for i := range e.Steps {
				for _, t := range e.Steps[i].Notify {
					add(contacts, t.Contact)
					add(rotas, t.Rota)
					add(handlers, t.Handler)
				}
			}
			for _, q := range e.Quiet {
				add(calendars, q.Calendars...)
			}
		}
	case *resource.Pipeline:
		namespace = o.Metadata.Namespace
		for _, w := range o.Workflows {
			for _, f := range w.Filters {
				if f != nil {
					add(filters, f.Name)
				}
			}
			if w.Mutator != nil {
				add(mutators, w.Mutator.Name)
			}
			if w.Handler != nil && (w.Handler.Type == "Handler" || w.Handler.Type == "") {
				add(handlers, w.Handler.Name)
			}
		}
	case *resource.FallbackPipeline:
		namespace = o.Metadata.Namespace
		for _, r := range o.Pipelines {
			if r != nil {
				add(pipelines, r.Name)
			}
		}
	case *resource.EventFilter:
		namespace = o.Metadata.Namespace
		add(assets, o.RuntimeAssets...)
	case *resource.Mutator:
		namespace = o.Metadata.Namespace
		add(assets, o.RuntimeAssets...)
	case *resource.HookConfig:
		namespace = o.Metadata.Namespace
		add(assets, o.RuntimeAssets...)
	case *resource.Contact:
		namespace = o.Metadata.Namespace
		add(handlers, o.Handlers...)
		add(users, knownUsers(sn, o.User)...)
	case *resource.Rota:
		namespace = o.Metadata.Namespace
		add(contacts, o.Contacts...)
		for _, override := range o.Overrides {
			add(contacts, override.Contact)
		}
		add(calendars, o.Within...)
	case *resource.Silenced:
		namespace = o.Metadata.Namespace
		add(calendars, o.Calendars...)
	case *resource.Aggregate:
		namespace = o.Metadata.Namespace
		add(handlers, o.Result.Handlers...)
		add(pipelines, of(o.Result.Pipelines)...)
	case *resource.MetricCheck:
		namespace = o.Metadata.Namespace
		add(handlers, o.Result.Handlers...)
		add(pipelines, of(o.Result.Pipelines)...)
	case *resource.RoleBinding:
		namespace = o.Metadata.Namespace
		if o.RoleRef.Type == "ClusterRole" {
			add(clusterRoles, o.RoleRef.Name)
		} else {
			add(roles, o.RoleRef.Name)
		}
		add(users, subjects(sn, o.Subjects)...)
	case *resource.ClusterRoleBinding:
		add(clusterRoles, o.RoleRef.Name)
		add(users, subjects(sn, o.Subjects)...)
	}
	return namespace, uses
}

// subjects returns the users that a binding names.
func subjects(sn *config.Snapshot, list []resource.Subject) (names []string) {
	for _, s := range list {
		if s.Type == "User" {
			names = append(names, s.Name)
		}
	}
	return knownUsers(sn, names...)
}

// knownUsers returns names of users that must be stored: with a sign-in provider, users may come from there.
func knownUsers(sn *config.Snapshot, names ...string) []string {
	if config.Len(sn, config.AuthProviders) > 0 {
		return nil
	}
	return names
}

// Find returns the references of a definition that name nothing, each once.
func Find(sn *config.Snapshot, obj any) []Missing {
	return (&finder{sn: sn, known: map[string]map[string]int{}}).find(obj)
}

// finder finds the missing references of definitions of a snapshot.
type finder struct {
	sn    *config.Snapshot
	known map[string]map[string]int // subscriptionsOf, by namespace, as far as it was needed
}

// unknown returns those of a check's subscriptions that no entity has. Mostly the first entities have all of them.
func (f *finder) unknown(where in, subscriptions []string) []string {
	left := slices.Clone(subscriptions)
	if known := f.known[where.namespace]; known != nil {
		return slices.DeleteFunc(left, func(name string) bool { return known[name] > 0 })
	}
	for e := range config.List(where.sn, config.Entities, where.namespace) {
		left = slices.DeleteFunc(left, func(name string) bool { return slices.Contains(e.Subscriptions, name) })
		if len(left) == 0 {
			break
		}
	}
	return left
}

func (f *finder) find(obj any) (missing []Missing) {
	namespace, uses := usesOf(f.sn, obj)
	where := in{f.sn, namespace}
	add := func(m Missing) {
		if !slices.ContainsFunc(missing, func(o Missing) bool { return o.Reference == m.Reference }) {
			missing = append(missing, m)
		}
	}
	for _, u := range uses {
		for _, name := range u.names {
			if !u.has(where, name) {
				add(Missing{Reference{u.what, u.resource, name}, optionerr.Nearest(name, u.all(where))})
			}
		}
	}
	c, ok := obj.(*resource.CheckConfig)
	if !ok {
		return missing
	}
	unknown := f.unknown(where, c.Subscriptions)
	if len(unknown) == 0 {
		return missing
	}
	if f.known[namespace] == nil {
		f.known[namespace] = subscriptionsOf(where)
	}
	if len(f.known[namespace]) == 0 {
		return missing // definitions often come before the first agent
	}
	var all []string
	for one := range f.known[namespace] {
		if !strings.HasPrefix(one, resource.EntitySubscription("")) {
			all = append(all, one)
		}
	}
	slices.Sort(all)
	for _, name := range unknown {
		add(Missing{Reference{subscription, config.Entities.String(), name}, optionerr.Nearest(name, all)})
	}
	return missing
}

// subscriptionsOf returns the subscriptions of a namespace's entities, with how many have each.
func subscriptionsOf(where in) map[string]int {
	known := map[string]int{}
	for e := range config.List(where.sn, config.Entities, where.namespace) {
		for _, name := range e.Subscriptions {
			known[name]++
		}
	}
	return known
}
