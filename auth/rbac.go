package auth

import (
	"iter"
	"slices"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Attributes are what a request wants to do.
type Attributes struct {
	Verb      string // get, list, create, update or delete
	Resource  string // plural, as in roles
	Name      string // decoded; "" for collections
	Namespace string // "" for what is cluster-wide, and for all namespaces at once
}

const (
	roleType        = "Role"
	clusterRoleType = "ClusterRole"
	userType        = "User"
	groupType       = "Group"
)

// Authorize says whether id may do it: when a rule of a role allows it that id is bound to, in the cluster or in the
// request's namespace. There are no rules that forbid. A binding to a role that does not exist grants nothing.
func (a *Auth) Authorize(id *Identity, at Attributes) bool {
	for rules := range a.granted(id, at.Namespace) {
		if slices.ContainsFunc(rules, func(r resource.Rule) bool { return allows(&r, at) }) {
			return true
		}
	}
	return false
}

// granted yields the rules of each role that id is bound to: in the cluster, then, unless it is "", in the namespace.
func (a *Auth) granted(id *Identity, namespace string) iter.Seq[[]resource.Rule] {
	sn := a.opts.Config.Snapshot()
	return func(yield func([]resource.Rule) bool) {
		for rules := range clusterGrants(sn, id) {
			if !yield(rules) {
				return
			}
		}
		if namespace == "" {
			return
		}
		for _, rules := range namespaceGrants(sn, id, namespace) {
			if !yield(rules) {
				return
			}
		}
	}
}

// clusterGrants yields the rules of the cluster roles that id is bound to in the whole cluster. Bindings to a Role, which
// Sensu looks up in the namespace of the request, grant nothing.
func clusterGrants(sn *config.Snapshot, id *Identity) iter.Seq[[]resource.Rule] {
	return func(yield func([]resource.Rule) bool) {
		for b := range config.List(sn, config.ClusterRoleBindings, "") {
			if b.RoleRef.Type != clusterRoleType || !bound(id, b.Subjects) {
				continue
			}
			if role, ok := config.Get(sn, config.ClusterRoles, "", b.RoleRef.Name); ok && !yield(role.Rules) {
				return
			}
		}
	}
}

// namespaceGrants yields the namespace and rules of each role that id is bound to in a namespace, or in any for "".
func namespaceGrants(sn *config.Snapshot, id *Identity, namespace string) iter.Seq2[string, []resource.Rule] {
	return func(yield func(string, []resource.Rule) bool) {
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
			if !yield(b.Metadata.Namespace, rules) {
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

// has says whether list has the entry, or "*". An empty entry, which no rule can mean, is in no list.
func has(list []string, entry string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return s == "*" || s != "" && s == entry })
}

// NamespaceSet is a set of namespaces, existing or not.
type NamespaceSet struct {
	all   bool
	names map[string]bool
}

// Has says whether a namespace is in the set.
func (s NamespaceSet) Has(name string) bool { return s.all || s.names[name] }

// VisibleNamespaces are the namespaces whose existence id may know of. Nobody is granted them as such: they follow from
// what one may get in them.
func (a *Auth) VisibleNamespaces(id *Identity) NamespaceSet {
	sn := a.opts.Config.Snapshot()
	set := NamespaceSet{names: map[string]bool{}}
	for rules := range clusterGrants(sn, id) {
		for _, r := range rules {
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
	for namespace, rules := range namespaceGrants(sn, id, "") {
		if slices.ContainsFunc(rules, func(r resource.Rule) bool { return has(r.Verbs, "get") }) {
			set.names[namespace] = true
		}
	}
	return set
}
