package auth

import (
	"testing"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

func rule(verbs, resources []string, names ...string) resource.Rule {
	return resource.Rule{Verbs: verbs, Resources: resources, ResourceNames: names}
}

func strs(s ...string) []string { return s }

func group(name string) []resource.Subject { return []resource.Subject{{Type: "Group", Name: name}} }

func clusterRole(t testing.TB, a *Auth, name string, rules ...resource.Rule) {
	put(t, a, config.ClusterRoles, &resource.ClusterRole{Metadata: resource.ObjectMeta{Name: name}, Rules: rules})
}

func role(t testing.TB, a *Auth, namespace, name string, rules ...resource.Rule) {
	put(t, a, config.Roles, &resource.Role{Metadata: resource.ObjectMeta{Namespace: namespace, Name: name}, Rules: rules})
}

func bindCluster(t testing.TB, a *Auth, name, typ, role string, subjects []resource.Subject) {
	put(t, a, config.ClusterRoleBindings, &resource.ClusterRoleBinding{
		Metadata: resource.ObjectMeta{Name: name}, RoleRef: resource.RoleRef{Type: typ, Name: role}, Subjects: subjects})
}

func bind(t testing.TB, a *Auth, namespace, name, typ, role string, subjects []resource.Subject) {
	put(t, a, config.RoleBindings, &resource.RoleBinding{
		Metadata: resource.ObjectMeta{Namespace: namespace, Name: name}, RoleRef: resource.RoleRef{Type: typ, Name: role}, Subjects: subjects})
}

// world is a cluster with one group for each case.
func world(t testing.TB) *Auth {
	a, _ := seeded(t)
	// Dangling bindings come first in the order of names: they must not end the evaluation.
	bindCluster(t, a, "a-dangling", "ClusterRole", "missing", group("cluster-readers"))
	clusterRole(t, a, "reader", rule(strs("get", "list"), strs("checks")))
	bindCluster(t, a, "readers", "ClusterRole", "reader", group("cluster-readers"))
	bindCluster(t, a, "bob", "ClusterRole", "reader", []resource.Subject{{Type: "User", Name: "bob"}})
	role(t, a, "dev", "writer", rule(strs("*"), strs("checks", "users", "namespaces")))
	bind(t, a, "dev", "a-dangling", "Role", "missing", group("dev-writers"))
	bind(t, a, "dev", "writers", "Role", "writer", group("dev-writers"))
	bind(t, a, "dev", "admins", "ClusterRole", "cluster-admin", group("dev-admins"))
	bind(t, a, "prod", "elsewhere", "Role", "writer", group("dev-writers")) // prod has no such role
	role(t, a, "dev", "reader", rule(strs("get"), strs("checks")))
	bindCluster(t, a, "namespaced", "Role", "reader", group("confused"))
	clusterRole(t, a, "nameless", rule(strs("*"), strs("checks"), ""))
	bindCluster(t, a, "nameless", "ClusterRole", "nameless", group("nameless"))
	clusterRole(t, a, "named", rule(strs("*"), strs("checks", "events"), "cpu", "web1", "web1/cpu"))
	bindCluster(t, a, "named", "ClusterRole", "named", group("named"))
	clusterRole(t, a, "lister", rule(strs("list"), strs("checks")))
	bindCluster(t, a, "lister", "ClusterRole", "lister", group("listers"))
	clusterRole(t, a, "some-namespaces", rule(strs("get"), strs("namespaces"), "dev", "prod"))
	bindCluster(t, a, "some-namespaces", "ClusterRole", "some-namespaces", group("visitors"))
	clusterRole(t, a, "pipelines", rule(strs("get"), strs("pipelines")))
	bindCluster(t, a, "pipelines", "ClusterRole", "pipelines", group("plumbers"))
	return a
}

func TestAuthorize(t *testing.T) {
	a := world(t)
	for _, tc := range []struct {
		user, group, verb, resource, name, namespace string
		want                                         bool
	}{
		// cluster-wide grants
		{"x", "cluster-admins", "delete", "users", "bob", "", true},
		{"x", "cluster-admins", "create", "tessen", "", "", true},
		{"x", "cluster-readers", "get", "checks", "cpu", "dev", true},
		{"x", "cluster-readers", "list", "checks", "", "", true},
		{"x", "cluster-readers", "create", "checks", "", "dev", false},
		{"x", "cluster-readers", "get", "handlers", "h", "dev", false},
		{"x", "Cluster-Readers", "get", "checks", "cpu", "dev", false},
		{"bob", "", "get", "checks", "cpu", "dev", true},
		{"alice", "", "get", "checks", "cpu", "dev", false},
		{"readers", "bob", "get", "checks", "cpu", "dev", false}, // a group is no user
		// grants in a namespace
		{"x", "dev-writers", "create", "checks", "", "dev", true},
		{"x", "dev-writers", "create", "checks", "", "prod", false},
		{"x", "dev-writers", "list", "checks", "", "", false},
		{"x", "dev-writers", "get", "users", "bob", "", false},
		{"x", "dev-admins", "create", "roles", "", "dev", true},
		{"x", "dev-admins", "delete", "namespaces", "dev", "", false},
		{"x", "dev-admins", "update", "namespaces", "prod", "", false},
		{"x", "confused", "get", "checks", "cpu", "dev", false}, // a cluster binding to a Role
		// named objects
		{"x", "named", "get", "checks", "cpu", "dev", true},
		{"x", "named", "update", "checks", "cpu", "dev", true},
		{"x", "named", "get", "checks", "disk", "dev", false},
		{"x", "named", "list", "checks", "", "dev", false},
		{"x", "named", "create", "checks", "", "dev", false},
		{"x", "named", "create", "events", "web1/cpu", "dev", true},
		{"x", "named", "list", "events", "web1", "dev", true},
		{"x", "named", "create", "events", "web1/disk", "dev", false},
		{"x", "nameless", "create", "checks", "", "dev", false},
		// built-in roles
		{"x", "system:agents", "create", "events", "web1", "dev", true},
		{"x", "system:agents", "get", "checks", "cpu", "dev", false},
		{"x", "system:users", "get", "localselfuser", "x", "", true},
		{"x", "system:users", "get", "users", "x", "", false},
		{"x", "", "get", "", "", "", false},
	} {
		id := &Identity{User: tc.user, Groups: []string{"nothing", tc.group}}
		at := Attributes{Verb: tc.verb, Resource: tc.resource, Name: tc.name, Namespace: tc.namespace}
		if got := a.Authorize(id, at); got != tc.want {
			t.Errorf("user %q of %q: %+v = %v, want %v", tc.user, tc.group, at, got, tc.want)
		}
	}
}

func TestChangesOfRolesCountAtOnce(t *testing.T) {
	a := world(t)
	id, at := &Identity{User: "x", Groups: strs("dev-writers")}, Attributes{Verb: "get", Resource: "handlers", Namespace: "dev"}
	if a.Authorize(id, at) {
		t.Fatal("allowed too early")
	}
	role(t, a, "dev", "writer", rule(strs("get"), strs("handlers")))
	if !a.Authorize(id, at) {
		t.Error("denied after the role was given it")
	}
}

func TestVisibleNamespaces(t *testing.T) {
	a := world(t)
	for _, tc := range []struct {
		group             string
		dev, prod, absent bool
	}{
		{"cluster-admins", true, true, true},
		{"cluster-readers", true, true, true}, // may get checks everywhere
		{"listers", false, false, false},
		{"visitors", true, true, false},
		{"plumbers", false, false, false}, // pipelines do not make a namespace visible
		{"dev-writers", true, false, false},
		{"dev-admins", true, false, false},
		{"confused", false, false, false},
		{"nobody", false, false, false},
	} {
		set := a.VisibleNamespaces(&Identity{User: "x", Groups: strs(tc.group)})
		if set.Has("dev") != tc.dev || set.Has("prod") != tc.prod || set.Has("absent") != tc.absent {
			t.Errorf("%s sees dev %v, prod %v, absent %v", tc.group, set.Has("dev"), set.Has("prod"), set.Has("absent"))
		}
	}
}

func BenchmarkAuthorize(b *testing.B) {
	a := world(b)
	id := &Identity{User: "x", Groups: strs("dev-writers", "system:users")}
	at := Attributes{Verb: "create", Resource: "checks", Namespace: "dev"}
	b.ReportAllocs()
	for b.Loop() {
		if !a.Authorize(id, at) {
			b.Fatal("denied")
		}
	}
}

func TestPermit(t *testing.T) {
	a := world(t)
	labelled := func(selector string, verbs ...string) resource.Rule {
		return resource.Rule{Verbs: verbs, Resources: strs("checks"), LabelSelector: selector}
	}
	clusterRole(t, a, "limited", labelled("team == red", "get", "list"), labelled("team == blue", "get"), labelled("==", "delete"))
	bindCluster(t, a, "limited", "ClusterRole", "limited", group("limited"))
	check := func(team string) *resource.CheckConfig {
		return &resource.CheckConfig{Metadata: resource.ObjectMeta{Labels: map[string]string{"team": team}}}
	}
	for _, tc := range []struct {
		groups                         []string
		verb                           string
		whole, denied, red, blue, grey bool
	}{
		{strs("limited"), "get", false, false, true, true, false},
		{strs("limited"), "list", false, false, true, false, false},
		{strs("limited"), "create", false, true, false, false, false},
		{strs("limited"), "delete", false, true, false, false, false},
		{strs("limited", "cluster-readers"), "get", true, false, true, true, true},
		{strs("nobody"), "get", false, true, false, false, false},
	} {
		id, at := &Identity{User: "x", Groups: tc.groups}, Attributes{Verb: tc.verb, Resource: "checks", Name: "cpu", Namespace: "dev"}
		p := a.Permit(id, at)
		if p.Whole() != tc.whole || p.Denied() != tc.denied || a.Authorize(id, at) != tc.whole {
			t.Errorf("%v %s: whole %v, denied %v", tc.groups, tc.verb, p.Whole(), p.Denied())
		}
		for team, want := range map[string]bool{"red": tc.red, "blue": tc.blue, "grey": tc.grey} {
			if got := p.Allows(selector.Resource(check(team))); got != want {
				t.Errorf("%v %s of team %s: %v, want %v", tc.groups, tc.verb, team, got, want)
			}
		}
		if (p.By() == Source{}) != tc.denied {
			t.Errorf("%v %s: by %+v", tc.groups, tc.verb, p.By())
		}
	}
}
