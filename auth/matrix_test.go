package auth

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// The universe of the matrix. It includes words that look alike, empty words, and words that roles do not use.
var (
	matrixVerbs      = []string{"get", "list", "create", "update", "delete"}
	matrixResources  = []string{"checks", "events", "entities", "namespaces", "users", "localselfuser", "tessen", "pipelines"}
	matrixNames      = []string{"", "cpu", "CPU", "web1", "web1/cpu", "sensu/x", "*"}
	matrixNamespaces = []string{"", "default", "dev", "prod", "nowhere"}
	// not every role exists in every namespace
	matrixRoles  = []string{"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7"}
	matrixUsers  = []string{"ann", "bob", "ops"} // ops is also a group
	matrixGroups = []string{"ops", "dev", "Dev", "ann", "system:users"}
)

// line is one grant of the model. There is one for each subject, verb, resource and name of each binding, so that a
// decision is a look-up.
type line struct{ subject, verb, resource, name, namespace string }

const anything = "\x00any"

// model is a second implementation of roles: it lists all grants in advance instead of evaluating them per request.
type model struct{ lines map[line]bool }

// grant lists what a binding grants. Types of subjects may be in lower case. namespace is where the grant applies;
// anything for everywhere.
func (m *model) grant(subjects []resource.Subject, rules []resource.Rule, namespace string) {
	for _, s := range subjects {
		for _, r := range rules {
			names := r.ResourceNames
			if len(names) == 0 {
				names = []string{anything}
			}
			for _, verb := range r.Verbs {
				for _, res := range r.Resources {
					for _, name := range names {
						if name == "" {
							continue // no object has that name
						}
						m.lines[line{strings.Replace(s.Type, "user", "User", 1) + ":" + s.Name, wild(verb), wild(res), name, namespace}] = true
					}
				}
			}
		}
	}
}

func wild(word string) string {
	if word == "*" {
		return anything
	}
	return word
}

// allowed looks for a line, in every form that applies to the request.
func (m *model) allowed(id *Identity, at Attributes) bool {
	subjects := []string{"User:" + id.User}
	for _, g := range id.Groups {
		subjects = append(subjects, "Group:"+g)
	}
	for _, s := range subjects {
		for _, verb := range []string{at.Verb, anything} {
			for _, res := range []string{at.Resource, anything} {
				for _, name := range []string{at.Name, anything} {
					if m.lines[line{s, verb, res, name, anything}] {
						return true
					}
					if at.Namespace != "" && m.lines[line{s, verb, res, name, at.Namespace}] {
						return true
					}
				}
			}
		}
	}
	return false
}

// TestMatrix compares Authorize with the model, in clusters of random roles and bindings.
func TestMatrix(t *testing.T) {
	const worlds, questions = 20, 5000
	a, _ := seeded(t)
	rng := rand.New(rand.NewPCG(1, 2))
	allowed := 0
	for world := range worlds {
		m := newMatrix(t, a, rng)
		for range questions {
			id := &Identity{User: pick(rng, matrixUsers), Groups: some(rng, matrixGroups)}
			at := Attributes{Verb: pick(rng, matrixVerbs), Resource: pick(rng, matrixResources), Name: pick(rng, matrixNames), Namespace: pick(rng, matrixNamespaces)}
			got, want := a.Authorize(id, at), m.allowed(id, at)
			if got != want {
				t.Fatalf("world %d: user %s of %v: %+v: Authorize says %v, the model %v", world, id.User, id.Groups, at, got, want)
			}
			if got {
				allowed++
			}
		}
	}
	t.Logf("%d questions, %d allowed", worlds*questions, allowed)
	if allowed < worlds*questions/20 || allowed > worlds*questions*19/20 {
		t.Errorf("%d of %d were allowed: the matrix is too much of one thing to tell anything", allowed, worlds*questions)
	}
}

// newMatrix replaces all roles and bindings with random ones, and builds their model.
func newMatrix(t *testing.T, a *Auth, rng *rand.Rand) *model {
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	sn := a.opts.Config.Snapshot()
	for x := range config.List(sn, config.ClusterRoleBindings, "") {
		must(config.Delete(t.Context(), a.opts.Config, config.ClusterRoleBindings, "", x.Metadata.Name))
	}
	for x := range config.List(sn, config.ClusterRoles, "") {
		must(config.Delete(t.Context(), a.opts.Config, config.ClusterRoles, "", x.Metadata.Name))
	}
	for x := range config.List(sn, config.RoleBindings, "") {
		must(config.Delete(t.Context(), a.opts.Config, config.RoleBindings, x.Metadata.Namespace, x.Metadata.Name))
	}
	for x := range config.List(sn, config.Roles, "") {
		must(config.Delete(t.Context(), a.opts.Config, config.Roles, x.Metadata.Namespace, x.Metadata.Name))
	}

	clusterRoles := map[string][]resource.Rule{}
	roles := map[string][]resource.Rule{} // by namespace/name
	for _, name := range matrixRoles {
		if rng.IntN(4) > 0 {
			clusterRoles[name] = randomRules(rng)
			clusterRole(t, a, name, clusterRoles[name]...)
		}
	}
	for _, namespace := range matrixNamespaces[1:] {
		for _, name := range some(rng, matrixRoles) {
			roles[namespace+"/"+name] = randomRules(rng)
			role(t, a, namespace, name, roles[namespace+"/"+name]...)
		}
	}
	m := &model{lines: map[line]bool{}}
	for i := range 3 {
		subjects, typ, name := randomSubjects(rng), pick(rng, []string{"ClusterRole", "ClusterRole", "Role", "role"}), pick(rng, matrixRoles)
		bindCluster(t, a, fmt.Sprint("b", i), typ, name, subjects)
		if typ == "ClusterRole" {
			m.grant(subjects, clusterRoles[name], anything)
		}
	}
	for _, namespace := range matrixNamespaces[1:] {
		for i := range 2 {
			subjects, typ, name := randomSubjects(rng), pick(rng, []string{"ClusterRole", "Role", "role", ""}), pick(rng, matrixRoles)
			bind(t, a, namespace, fmt.Sprint("b", i), typ, name, subjects)
			switch typ {
			case "ClusterRole":
				m.grant(subjects, clusterRoles[name], namespace)
			case "Role", "role":
				m.grant(subjects, roles[namespace+"/"+name], namespace)
			}
		}
	}
	return m
}

func randomRules(rng *rand.Rand) []resource.Rule {
	rules := make([]resource.Rule, 1+rng.IntN(2))
	for i := range rules {
		r := &rules[i]
		r.Verbs, r.Resources = some(rng, matrixVerbs), some(rng, matrixResources)
		if rng.IntN(6) == 0 {
			r.Verbs = append(r.Verbs, "*")
		}
		if rng.IntN(6) == 0 {
			r.Resources = append(r.Resources, "*")
		}
		if rng.IntN(10) == 0 { // neither globs nor other capitals have a meaning
			r.Verbs, r.Resources = []string{"ge*", "GET", ""}, []string{"check*", "Checks", ""}
		}
		switch rng.IntN(4) {
		case 0:
			r.ResourceNames = some(rng, matrixNames)
		case 1:
			r.ResourceNames = []string{}
		}
	}
	return rules
}

func randomSubjects(rng *rand.Rand) []resource.Subject {
	subjects := make([]resource.Subject, 1+rng.IntN(2))
	for i := range subjects {
		switch rng.IntN(5) {
		case 0, 1:
			subjects[i] = resource.Subject{Type: "User", Name: pick(rng, matrixUsers)}
		case 2:
			subjects[i] = resource.Subject{Type: pick(rng, []string{"user", "Robot"}), Name: pick(rng, matrixUsers)}
		default:
			subjects[i] = resource.Subject{Type: "Group", Name: pick(rng, matrixGroups)}
		}
	}
	return subjects
}

func pick(rng *rand.Rand, of []string) string { return of[rng.IntN(len(of))] }

// some returns a few of the words, in their order.
func some(rng *rand.Rand, of []string) []string {
	var out []string
	for _, s := range of {
		if rng.IntN(3) == 0 {
			out = append(out, s)
		}
	}
	return out
}

// TestModelIsIndependent checks the model against facts from the specification, so that model and code are not wrong
// together.
func TestModelIsIndependent(t *testing.T) {
	m := &model{lines: map[line]bool{}}
	ann := []resource.Subject{{Type: "User", Name: "ann"}}
	m.grant(ann, []resource.Rule{rule(strs("get", "create"), strs("checks", "events"), "cpu", "web1/cpu")}, "dev")
	m.grant(group("admins"), []resource.Rule{rule(strs("*"), strs("*"))}, anything)
	var got []string
	for _, q := range []struct {
		user, group string
		at          Attributes
	}{
		{"ann", "", Attributes{"get", "checks", "cpu", "dev"}},
		{"ann", "", Attributes{"get", "checks", "cpu", "prod"}},
		{"ann", "", Attributes{"create", "checks", "", "dev"}},
		{"ann", "", Attributes{"create", "events", "web1/cpu", "dev"}},
		{"ann", "", Attributes{"list", "checks", "", "dev"}},
		{"ann", "", Attributes{"get", "checks", "cpu", ""}},
		{"bob", "admins", Attributes{"delete", "users", "ann", ""}},
		{"admins", "bob", Attributes{"delete", "users", "ann", ""}},
	} {
		got = append(got, fmt.Sprint(m.allowed(&Identity{User: q.user, Groups: strs(q.group)}, q.at)))
	}
	if want := "true false false true false false true false"; strings.Join(got, " ") != want || !slices.Contains(got, "true") {
		t.Errorf("the model says %v, want %s", got, want)
	}
}
