package api

import (
	"errors"
	"fmt"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

// serveAccess adds roles and what binds them to users and groups.
func (a *API) serveAccess() {
	(&kind[resource.ClusterRole]{
		api: a, Kind: config.ClusterRoles, reason: resourceInvalid,
		meta: func(r *resource.ClusterRole) *resource.ObjectMeta { return &r.Metadata },
		validate: func(r *resource.ClusterRole) error {
			if err := r.Validate(); err != nil {
				return err
			}
			return checkLimits(r.Rules)
		},
	}).serve()
	(&kind[resource.ClusterRoleBinding]{
		api: a, Kind: config.ClusterRoleBindings, reason: resourceInvalid,
		meta: func(b *resource.ClusterRoleBinding) *resource.ObjectMeta { return &b.Metadata },
		validate: func(b *resource.ClusterRoleBinding) error {
			if err := b.Validate(); err != nil {
				return err
			}
			// Sensu looks for such a role in the namespace of each request, and fails where it is not.
			if b.RoleRef.Type != "ClusterRole" {
				return errors.New(`a ClusterRoleBinding can only bind a ClusterRole`)
			}
			return nil
		},
	}).serve()
	(&kind[resource.Role]{
		api: a, Kind: config.Roles, reason: resourceInvalid,
		meta: func(r *resource.Role) *resource.ObjectMeta { return &r.Metadata },
		validate: func(r *resource.Role) error {
			if err := r.Validate(); err != nil {
				return err
			}
			return checkLimits(r.Rules)
		},
	}).serve()
	(&kind[resource.RoleBinding]{
		api: a, Kind: config.RoleBindings, reason: resourceInvalid,
		meta:     func(b *resource.RoleBinding) *resource.ObjectMeta { return &b.Metadata },
		validate: (*resource.RoleBinding).Validate,
	}).serve()
}

// checkLimits refuses rules whose selector cannot be read: they would allow nothing.
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
