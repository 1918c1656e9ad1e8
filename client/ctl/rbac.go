package ctl

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

type (
	role               = resource.Role
	clusterRole        = resource.ClusterRole
	roleBinding        = resource.RoleBinding
	clusterRoleBinding = resource.ClusterRoleBinding
)

var roleKind = newKind(client.Roles, display[role]{
	namespace: func(r *role) string { return r.Metadata.Namespace },
	columns: []cellOf[role]{
		{column{title: "Name"}, func(r *role) string { return r.Metadata.Name }},
		{column{title: "Namespace"}, func(r *role) string { return r.Metadata.Namespace }},
		{column{title: "Rules", right: true}, func(r *role) string { return number(len(r.Rules)) }},
	},
	addition: roleRules,
	layout:   func(r *role) shown { return ruleTable(&r.Metadata.Namespace, r.Rules) },
	can:      canList | canInfo | canDelete,
	extra:    []func(*kind) *cobra.Command{createRoleCommand},
})

var clusterRoleKind = newKind(client.ClusterRoles, display[clusterRole]{
	columns: []cellOf[clusterRole]{
		{column{title: "Name"}, func(r *clusterRole) string { return r.Metadata.Name }},
		{column{title: "Rules", right: true}, func(r *clusterRole) string { return number(len(r.Rules)) }},
	},
	addition: roleRules,
	layout:   func(r *clusterRole) shown { return ruleTable(nil, r.Rules) },
	can:      canList | canInfo | canDelete,
	extra:    []func(*kind) *cobra.Command{createRoleCommand},
})

var roleBindingKind = newKind(client.RoleBindings, display[roleBinding]{
	namespace: func(b *roleBinding) string { return b.Metadata.Namespace },
	columns: []cellOf[roleBinding]{
		{column{title: "Name"}, func(b *roleBinding) string { return b.Metadata.Name }},
		{column{title: "Namespace"}, func(b *roleBinding) string { return b.Metadata.Namespace }},
		{column{title: "Cluster Role"}, func(b *roleBinding) string { return roleOfType(b.RoleRef, "ClusterRole") }},
		{column{title: "Role"}, func(b *roleBinding) string { return roleOfType(b.RoleRef, "Role") }},
		{column{title: "Subjects", right: true}, func(b *roleBinding) string { return number(len(b.Subjects)) }},
	},
	addition: boundRules,
	layout: func(b *roleBinding) shown {
		m := b.Metadata
		label := "Role"
		if b.RoleRef.Type == "ClusterRole" {
			label = "ClusterRole"
		}
		return bindingInfo(m.Namespace+"/"+m.Name, b.Subjects, infoLine{"Name", m.Name},
			infoLine{"Namespace", m.Namespace}, infoLine{label, b.RoleRef.Name})
	},
	can:   canList | canInfo | canDelete,
	extra: []func(*kind) *cobra.Command{createBindingCommand},
})

var clusterRoleBindingKind = newKind(client.ClusterRoleBindings, display[clusterRoleBinding]{
	columns: []cellOf[clusterRoleBinding]{
		{column{title: "Name"}, func(b *clusterRoleBinding) string { return b.Metadata.Name }},
		{column{title: "Cluster Role"}, func(b *clusterRoleBinding) string { return b.RoleRef.Name }},
		{column{title: "Subjects", right: true}, func(b *clusterRoleBinding) string { return number(len(b.Subjects)) }},
	},
	addition: boundRules,
	layout: func(b *clusterRoleBinding) shown {
		return bindingInfo(b.Metadata.Name, b.Subjects, infoLine{"Name", b.Metadata.Name}, infoLine{"Cluster Role", b.RoleRef.Name})
	},
	can:   canList | canInfo | canDelete,
	extra: []func(*kind) *cobra.Command{createBindingCommand},
})

// ruleTable shows rules, one a row, after the namespace if it is a role.
func ruleTable(namespace *string, rules []resource.Rule) shown {
	t := &table{columns: []column{{title: "Verbs"}, {title: "Resources"}, {title: "Resource Names"}}}
	selectors := false
	for _, rule := range rules {
		selectors = selectors || rule.LabelSelector != ""
	}
	if selectors {
		t.columns = append(t.columns, column{title: "Label Selector"})
	}
	if namespace != nil {
		t.columns = append([]column{{title: "Namespace"}}, t.columns...)
	}
	for _, rule := range rules {
		row := []string{comma(rule.Verbs), comma(rule.Resources), comma(rule.ResourceNames)}
		if selectors {
			row = append(row, rule.LabelSelector)
		}
		if namespace != nil {
			row = append([]string{*namespace}, row...)
		}
		t.rows = append(t.rows, row)
	}
	return t
}

func roleOfType(ref resource.RoleRef, typ string) string {
	if ref.Type == typ {
		return ref.Name
	}
	return ""
}

// bindingInfo shows a binding, with a line each for its users and groups.
func bindingInfo(title string, subjects []resource.Subject, lines ...infoLine) shown {
	block := &infoBlock{title: title, lines: append(lines, infoLine{"Subjects", ""})}
	for _, typ := range []string{"User", "Group"} {
		var names []string
		for _, s := range subjects {
			if s.Type == typ {
				names = append(names, s.Name)
			}
		}
		if len(names) > 0 {
			block.lines = append(block.lines, infoLine{"  " + typ + "s", commaSpace(names)})
		}
	}
	return block
}

func createRoleCommand(k *kind) *cobra.Command {
	fields := []flagField{
		{flag: "verb", short: "v", field: "verbs", kind: listField, required: true,
			usage: "what is allowed: get, list, create, update, delete or *; comma separated"},
		{flag: "resource", short: "r", field: "resources", kind: listField, required: true,
			usage: "on which resources, such as checks or *; comma separated"},
		{flag: "resource-name", short: "n", field: "resource_names", kind: listField, usage: "only those of these names, comma separated"},
		{flag: "label-selector", field: "label_selector", usage: "only those whose labels match, such as 'region == eu' (not in Sensu)"},
	}
	var flags *fieldFlags
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "create one " + k.word() + " with one rule",
		Example: "  lapwing " + k.Command + " create watcher --verb get,list --resource events,entities\n" +
			"  lapwing " + k.Command + " create silencer -v '*' -r silenced\n" +
			"  lapwing " + k.Command + " create eu-checks --verb '*' --resource checks --label-selector 'region == eu'",
		Args: args("NAME"),
	}
	cmd.RunE = run(func(ctx context.Context, s *invocation, args []string) error {
		if err := flags.missing(); err != nil {
			return hintUsage(cmd, err)
		}
		rule := map[string]any{}
		if _, err := flags.apply(rule); err != nil {
			return err
		}
		return s.create(ctx, k, args[0], map[string]any{"rules": []any{rule}})
	})
	flags = addFieldFlags(cmd.Flags(), fields, true)
	return cmd
}

func createBindingCommand(k *kind) *cobra.Command {
	var clusterRole, role string
	var users, groups []string
	namespaced := k.Namespaced
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "bind users and groups to a role",
		Args:  args("NAME"),
	}
	cmd.RunE = run(func(ctx context.Context, s *invocation, args []string) error {
		ref := resource.RoleRef{Type: "Role", Name: role}
		if clusterRole != "" {
			ref = resource.RoleRef{Type: "ClusterRole", Name: clusterRole}
		}
		if ref.Name == "" {
			text := "--cluster-role"
			if namespaced {
				text = "--role or --cluster-role"
			}
			return hintUsage(cmd, errors.New("a role is needed: set "+text))
		}
		var list []resource.Subject
		for _, name := range trimmed(groups) {
			list = append(list, resource.Subject{Type: "Group", Name: name})
		}
		for _, name := range trimmed(users) {
			list = append(list, resource.Subject{Type: "User", Name: name})
		}
		if len(list) == 0 {
			return hintUsage(cmd, errors.New("at least one user or group is needed: set --user or --group"))
		}
		return s.create(ctx, k, args[0], map[string]any{"role_ref": ref, "subjects": list})
	})
	f := cmd.Flags()
	f.StringVarP(&clusterRole, "cluster-role", "c", "", "name of the cluster role to grant")
	if namespaced {
		f.StringVarP(&role, "role", "r", "", "name of the role in the namespace to grant")
		cmd.Example = "  lapwing role-binding create watchers --role watcher --group ops\n"
	}
	cmd.Example += "  lapwing " + k.Command + " create viewers --cluster-role view --group ops,dev --user alice"
	f.StringSliceVarP(&users, "user", "u", nil, "users to bind, comma separated")
	f.StringSliceVarP(&groups, "group", "g", nil, "groups to bind, comma separated")
	return cmd
}
