// Package references finds what definitions name, and which of these names name nothing. The API warns of them when a
// definition is written, lists them over all that is stored (Lint), and tells what names a definition (Referrers).
//
// A reference to something that is missing is never an error: definitions arrive in any order, and handlers may come later
// than the checks that name them. All answers are computed from a snapshot of definitions; agents, events and the rights of
// users are left to the callers.
package references

import (
	"fmt"
	"maps"
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
	// subscription or group.
	What string
	// Resource is the kind's name in roles' rules. Of a group it is rolebindings, which stands for cluster role bindings, too.
	Resource string
	Name     string
}

func referenceTo(u resource.Use) Reference { return Reference{u.Kind.Word(), u.Kind.Role, u.Name} }

// Missing is a reference that names nothing.
type Missing struct {
	Reference
	Nearest string // a name that may be meant, or ""
}

// String returns the text of a warning: handler "slcak" does not exist (slack?).
func (m Missing) String() string {
	text := fmt.Sprintf("%s %q does not exist", m.What, m.Name)
	switch m.What {
	case subscription:
		text = fmt.Sprintf("%s %q: no entity has it", m.What, m.Name)
	case group:
		text = fmt.Sprintf("%s %q: no role binding and no cluster role binding names it", m.What, m.Name)
	}
	if m.Nearest != "" {
		text += " (" + m.Nearest + "?)"
	}
	return text
}

// What is named and is no kind.
const (
	subscription = "subscription" // of a check, which entities have
	group        = "group"        // of a user, which bindings name
)

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
	has func(in, string) bool
	all func(in) []string

	builtin []string // names that are always there
}

func targetOf[T any](k config.Kind[T], name func(*T) string) target {
	return target{
		has: func(of in, n string) bool { _, ok := config.Get(of.sn, k, of.namespace, n); return ok },
		all: func(of in) []string { return names(of, k, name) },
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
	t.builtin = list
	return t
}

// targets are all kinds that definitions name (usesOf).
var targets = map[*resource.Kind]target{
	resource.KindFor[resource.Handler](): targetOf(config.Handlers,
		func(h *resource.Handler) string { return h.Metadata.Name }),
	resource.KindFor[resource.Asset](): targetOf(config.Assets,
		func(a *resource.Asset) string { return a.Metadata.Name }),
	resource.KindFor[resource.Pipeline](): targetOf(config.Pipelines,
		func(p *resource.Pipeline) string { return p.Metadata.Name }),
	resource.KindFor[resource.Calendar](): targetOf(config.Calendars,
		func(c *resource.Calendar) string { return c.Metadata.Name }),
	resource.KindFor[resource.Contact](): targetOf(config.Contacts,
		func(c *resource.Contact) string { return c.Metadata.Name }),
	resource.KindFor[resource.Rota](): targetOf(config.Rotas,
		func(r *resource.Rota) string { return r.Metadata.Name }),
	resource.KindFor[resource.Role](): targetOf(config.Roles,
		func(r *resource.Role) string { return r.Metadata.Name }),
	resource.KindFor[resource.HookConfig](): targetOf(config.Hooks,
		func(h *resource.HookConfig) string { return h.Metadata.Name }),
	resource.KindFor[resource.FallbackPipeline](): targetOf(config.FallbackPipelines,
		func(f *resource.FallbackPipeline) string { return f.Metadata.Name }),

	resource.KindFor[resource.EventFilter](): builtin(targetOf(config.Filters,
		func(f *resource.EventFilter) string { return f.Metadata.Name }), filter.Names),
	resource.KindFor[resource.Mutator](): builtin(targetOf(config.Mutators,
		func(m *resource.Mutator) string { return m.Metadata.Name }), []string{"json", "only_check_output"}),

	resource.KindFor[resource.ClusterRole](): cluster(targetOf(config.ClusterRoles,
		func(r *resource.ClusterRole) string { return r.Metadata.Name })),
	users: cluster(targetOf(config.Users, func(u *resource.User) string { return u.Username })),
}

// users need not be stored: with a sign-in provider, they may come from there.
var users = resource.KindFor[resource.User]()

// Find returns the references of a definition that name nothing, each once.
func Find(sn *config.Snapshot, obj any) []Missing {
	return newFinder(sn).find(obj)
}

// Named returns what a definition names, whether it exists or not, without what is always there.
func Named(obj any) (named []Reference) {
	_, uses := usesOf(obj)
	for _, u := range uses {
		if !slices.Contains(targets[u.Kind].builtin, u.Name) {
			named = append(named, referenceTo(u))
		}
	}
	if c, ok := obj.(*resource.CheckConfig); ok {
		for _, name := range c.Subscriptions {
			named = append(named, Reference{subscription, config.Entities.String(), name})
		}
	}
	for _, name := range groupsOf(obj) {
		named = append(named, groupReference(name))
	}
	return named
}

func newFinder(sn *config.Snapshot) *finder {
	return &finder{sn: sn, known: map[string]map[string]int{}, all: map[kindIn][]string{}, labels: map[string][]string{}}
}

// maxNearest bounds the missing names of a definition for which a similar one is searched: that looks at all there are.
const maxNearest = 20

// manySubscriptions is from how many subscriptions of a check on all entities' are collected, to look each up once.
const manySubscriptions = 20

// finder finds the missing references of definitions of a snapshot.
type finder struct {
	sn     *config.Snapshot
	known  map[string]map[string]int // subscriptionsOf, by namespace, as far as it was needed
	all    map[kindIn][]string       // the names that there are, as far as they were needed
	labels map[string][]string       // labelsOf, by namespace, as far as they were needed
	bound  []string                  // boundGroups, once they were needed

	searches int // for labels
}

// kindIn is a kind in a namespace.
type kindIn struct {
	kind      *resource.Kind
	namespace string
}

// names returns the names of a kind that there are.
func (f *finder) names(k *resource.Kind, where in) []string {
	key := kindIn{k, where.namespace}
	list, known := f.all[key]
	if !known {
		list = targets[k].all(where)
		f.all[key] = list
	}
	return list
}

// unknown returns those of a check's subscriptions that no entity has. Mostly the first entities have all of them.
func (f *finder) unknown(where in, subscriptions []string) []string {
	left := slices.Clone(subscriptions)
	if len(left) > manySubscriptions && f.known[where.namespace] == nil {
		f.known[where.namespace] = subscriptionsOf(where)
	}
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
	namespace, uses := usesOf(obj)
	where := in{f.sn, namespace}
	found := map[Reference]bool{}
	add := func(r Reference, known func() []string) {
		if found[r] {
			return
		}
		found[r] = true
		m := Missing{Reference: r}
		if len(missing) < maxNearest {
			m.Nearest = optionerr.Nearest(r.Name, known())
		}
		missing = append(missing, m)
	}
	for _, u := range uses {
		if u.Kind == users && config.Len(f.sn, config.AuthProviders) > 0 {
			continue
		}
		if t := targets[u.Kind]; !t.has(where, u.Name) {
			add(referenceTo(u), func() []string { return f.names(u.Kind, where) })
		}
	}
	if groups := groupsOf(obj); len(groups) > 0 {
		bound := f.boundGroups()
		for _, name := range groups {
			if _, found := slices.BinarySearch(bound, name); !found {
				add(groupReference(name), func() []string { return bound })
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
	if f.deserted(namespace) {
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
		add(Reference{subscription, config.Entities.String(), name}, func() []string { return all })
	}
	return missing
}

func groupReference(name string) Reference {
	return Reference{group, config.RoleBindings.String(), name}
}

// groupsOf returns the groups of a user who may sign in.
func groupsOf(obj any) []string {
	if u, ok := obj.(*resource.User); ok && !u.Disabled {
		return u.Groups
	}
	return nil
}

// boundGroups returns the groups that bindings of any namespace and of the cluster name, sorted.
func (f *finder) boundGroups() []string {
	if f.bound != nil {
		return f.bound
	}
	names := map[string]bool{}
	note := func(subjects []resource.Subject) {
		for _, s := range subjects {
			if s.Type == "Group" {
				names[s.Name] = true
			}
		}
	}
	for b := range config.List(f.sn, config.RoleBindings, "") {
		note(b.Subjects)
	}
	for b := range config.List(f.sn, config.ClusterRoleBindings, "") {
		note(b.Subjects)
	}
	f.bound = slices.AppendSeq([]string{}, maps.Keys(names))
	slices.Sort(f.bound)
	return f.bound
}

// deserted reports whether no entity of a namespace has a subscription: then find misses those of its checks on purpose.
func (f *finder) deserted(namespace string) bool {
	if f.known[namespace] == nil {
		f.known[namespace] = subscriptionsOf(in{f.sn, namespace})
	}
	return len(f.known[namespace]) == 0
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
