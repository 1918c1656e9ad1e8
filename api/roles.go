package api

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

// serveAccess adds roles and their bindings.
func (a *API) serveAccess() {
	(&kind[resource.ClusterRole]{
		api: a, Kind: config.ClusterRoles, reason: resourceInvalid,
		accept:  func(r *resource.ClusterRole) error { return checkLimits(r.Rules) },
		warning: func(_ *act, r *resource.ClusterRole) string { return a.unknownResources(r.Rules) },
	}).serve()
	(&kind[resource.ClusterRoleBinding]{
		api: a, Kind: config.ClusterRoleBindings, reason: resourceInvalid,
		accept: func(b *resource.ClusterRoleBinding) error {
			// Sensu looks for such a role in the namespace of each request, and fails where it is missing.
			if b.RoleRef.Type != "ClusterRole" {
				return errors.New(`a ClusterRoleBinding can only bind a ClusterRole`)
			}
			return nil
		},
	}).serve()
	(&kind[resource.Role]{
		api: a, Kind: config.Roles, reason: resourceInvalid,
		accept:  func(r *resource.Role) error { return checkLimits(r.Rules) },
		warning: func(_ *act, r *resource.Role) string { return a.unknownResources(r.Rules) },
	}).serve()
	(&kind[resource.RoleBinding]{
		api: a, Kind: config.RoleBindings, reason: resourceInvalid,
	}).serve()
}

// otherResources are known names in roles that no route checks. Other code checks some of them; some belong to Sensu's
// commercial edition, and roles with them may come with a migration.
var otherResources = []string{
	selfResource, "namespaces", "authentication", "extensions", "metrics", "cluster-members", "clusters", "config", "etcd-replicators",
	"license", "providers", "secrets", "searches", "service-components", "rule-templates",
	"sumo-logic-metrics-handlers", "tcp-stream-handlers", "prune",
}

// maxUnknown bounds the unknown names in a warning, and maxUnknownName the length of a name for which a similar one is
// searched.
const (
	maxUnknown     = 5
	maxUnknownName = 64
)

// unknownResources returns a warning about names in rules that are no resource's: such a rule allows nothing, which is
// easy to overlook. The rule is accepted, as in Sensu: a program of the user's may check such names.
func (a *API) unknownResources(rules []resource.Rule) string {
	known := a.knownResources()
	var unknown []string
	for i := range rules {
		for _, name := range rules[i].Resources {
			if name == "*" || slices.Contains(known, name) {
				continue
			}
			if len(unknown) == maxUnknown {
				return strings.Join(unknown, "; ") + "; and others"
			}
			text := fmt.Sprintf("rule %d names the resource %s, which is not known: it allows nothing here", i, resource.Short(name))
			if near := nearestResource(name, known); near != "" {
				text += fmt.Sprintf(" (the nearest known name is %s)", near)
			}
			unknown = append(unknown, text)
		}
	}
	return strings.Join(unknown, "; ")
}

// knownResources returns the names that rules may have.
func (a *API) knownResources() []string {
	known := slices.Clone(otherResources)
	for i := range a.routes {
		if name := a.routes[i].resource; name != "" && !slices.Contains(known, name) {
			known = append(known, name)
		}
	}
	return known
}

// nearestResource returns the known name that is probably meant, or "". It also knows the types in files.
func nearestResource(name string, known []string) string {
	if len(name) > maxUnknownName {
		return ""
	}
	for _, k := range prunables {
		if strings.EqualFold(name, k.Type) {
			return k.Role
		}
	}
	return optionerr.Nearest(name, known)
}

// checkLimits refuses rules with an invalid selector: they would allow nothing.
func checkLimits(rules []resource.Rule) error {
	for i, rule := range rules {
		if rule.LabelSelector == "" {
			continue
		}
		if _, err := selector.Parse(rule.LabelSelector, ""); err != nil {
			return fmt.Errorf("the label selector of rule %d is not valid: %w", i, err)
		}
	}
	return nil
}
