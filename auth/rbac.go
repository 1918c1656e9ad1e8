package auth

import (
	"iter"
	"slices"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

// Attributes describe a request.
type Attributes struct {
	Verb      string // get, list, create, update or delete
	Resource  string // plural, as in roles
	Name      string // decoded; "" for collections
	Namespace string // "" for cluster-wide resources, and for all namespaces at once
}

const (
	roleType        = "Role"
	clusterRoleType = "ClusterRole"
	userType        = "User"
	groupType       = "Group"
)

// Authorize reports whether id may do it to every object that the attributes match: a rule must allow it, of a role
// that is bound to id in the cluster or in the request's namespace. There are no rules that forbid. A binding to a
// missing role grants nothing. Rules that are limited by labels do not count here; Permit handles those.
func (a *Auth) Authorize(id *Identity, at Attributes) bool { return a.Permit(id, at).Whole() }

// Permit is Authorize with rules that are limited by labels: the request may be allowed for some objects only.
func (a *Auth) Permit(id *Identity, at Attributes) Permission {
	var p Permission
	var some []*selector.Selector
	for g := range a.granted(id, at.Namespace) {
		for i := range g.rules {
			r := &g.rules[i]
			if !allows(r, at) {
				continue
			}
			if r.LabelSelector == "" {
				return Permission{whole: true, by: g.source}
			}
			if s := a.limits.selector(r.LabelSelector); s != nil {
				p.by = g.source
				p.texts = append(p.texts, r.LabelSelector)
				some = append(some, s)
			}
		}
	}
	if len(some) > 0 {
		p.limit = selector.Any(some...)
	}
	return p
}

// Login returns the identity for the tokens of a user who signs in now; false if no such user may sign in.
func (a *Auth) Login(user string) (*Identity, bool) {
	u, ok := a.user(user)
	if !ok {
		return nil, false
	}
	return &Identity{User: u.Username, Groups: withGroup(u.Groups, usersGroup)}, true
}

// WithoutAgents returns the identity without its rights as an agent. The agents' password is on every monitored host.
func (id *Identity) WithoutAgents() *Identity {
	if !slices.Contains(id.Groups, systemAgents) {
		return id
	}
	out := *id
	out.Groups = slices.DeleteFunc(slices.Clone(id.Groups), func(group string) bool { return group == systemAgents })
	return &out
}

// grant is a role's rules and their source.
type grant struct {
	rules  []resource.Rule
	source Source
}

// Source is the binding and role that grant a right.
type Source struct {
	Namespace string // of the binding; "" for a cluster binding
	Binding   string
	Role      resource.RoleRef
}

// granted yields the grants of id: in the cluster, then, unless it is "", in the namespace.
func (a *Auth) granted(id *Identity, namespace string) iter.Seq[grant] {
	sn := a.opts.Config.Snapshot()
	return func(yield func(grant) bool) {
		for g := range clusterGrants(sn, id) {
			if !yield(g) {
				return
			}
		}
		if namespace == "" {
			return
		}
		for g := range namespaceGrants(sn, id, namespace) {
			if !yield(g) {
				return
			}
		}
	}
}

// clusterGrants yields the grants of id in the whole cluster. Bindings to a Role, which Sensu looks up in the namespace
// of the request, grant nothing.
func clusterGrants(sn *config.Snapshot, id *Identity) iter.Seq[grant] {
	return func(yield func(grant) bool) {
		for b := range config.List(sn, config.ClusterRoleBindings, "") {
			if b.RoleRef.Type != clusterRoleType || !bound(id, b.Subjects) {
				continue
			}
			role, ok := config.Get(sn, config.ClusterRoles, "", b.RoleRef.Name)
			if ok && !yield(grant{role.Rules, Source{"", b.Metadata.Name, b.RoleRef}}) {
				return
			}
		}
	}
}

// namespaceGrants yields the grants of id in a namespace, or in any for "".
func namespaceGrants(sn *config.Snapshot, id *Identity, namespace string) iter.Seq[grant] {
	return func(yield func(grant) bool) {
		for b := range config.List(sn, config.RoleBindings, namespace) {
			if !bound(id, b.Subjects) {
				continue
			}
			var rules []resource.Rule
			switch b.RoleRef.Type {
			case clusterRoleType:
				if role, ok := config.Get(sn, config.ClusterRoles, "", b.RoleRef.Name); ok {
					rules = role.Rules
				}
			case roleType:
				if role, ok := config.Get(sn, config.Roles, b.Metadata.Namespace, b.RoleRef.Name); ok {
					rules = role.Rules
				}
			}
			if !yield(grant{rules, Source{b.Metadata.Namespace, b.Metadata.Name, b.RoleRef}}) {
				return
			}
		}
	}
}

func bound(id *Identity, subjects []resource.Subject) bool {
	return slices.ContainsFunc(subjects, func(s resource.Subject) bool {
		switch s.Type {
		case userType:
			return s.Name == id.User
		case groupType:
			return slices.Contains(id.Groups, s.Name)
		}
		return false
	})
}

func allows(r *resource.Rule, at Attributes) bool {
	return has(r.Verbs, at.Verb) && has(r.Resources, at.Resource) &&
		(len(r.ResourceNames) == 0 || at.Name != "" && slices.Contains(r.ResourceNames, at.Name))
}

// has reports whether list has the entry, or "*". An empty entry matches no list.
func has(list []string, entry string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return s == "*" || s != "" && s == entry })
}

// NamespaceSet is a set of namespaces, existing or not.
type NamespaceSet struct {
	all   bool
	names map[string]bool
}

// Has reports whether a namespace is in the set.
func (s NamespaceSet) Has(name string) bool { return s.all || s.names[name] }

// VisibleNamespaces are the namespaces whose existence id may see. They follow from the rights to get objects in them.
func (a *Auth) VisibleNamespaces(id *Identity) NamespaceSet {
	sn := a.opts.Config.Snapshot()
	set := NamespaceSet{names: map[string]bool{}}
	for g := range clusterGrants(sn, id) {
		for _, r := range g.rules {
			if !has(r.Verbs, "get") {
				continue
			}
			if has(r.Resources, "namespaces") {
				if len(r.ResourceNames) == 0 {
					set.all = true
				}
				for _, name := range r.ResourceNames {
					set.names[name] = true
				}
			}
			if slices.ContainsFunc(r.Resources, func(s string) bool { return slices.Contains(commonResources, s) }) {
				set.all = true
			}
		}
	}
	for g := range namespaceGrants(sn, id, "") {
		if slices.ContainsFunc(g.rules, func(r resource.Rule) bool { return has(r.Verbs, "get") }) {
			set.names[g.source.Namespace] = true
		}
	}
	return set
}

// Granted is a rule that counts for an identity, and its source.
type Granted struct {
	resource.Rule
	Source Source
}

// Rules returns all rules that count for id in a namespace, or for "" in all namespaces at once.
func (a *Auth) Rules(id *Identity, namespace string) []Granted {
	var out []Granted
	for g := range a.granted(id, namespace) {
		for _, r := range g.rules {
			out = append(out, Granted{r, g.source})
		}
	}
	return out
}
