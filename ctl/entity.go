package ctl

import (
	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/api/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

type entity = resource.Entity

var entityKind = newKind(client.Entities, display[entity]{
	singular:  "entity",
	namespace: func(e *entity) string { return e.Metadata.Namespace },
	columns: []cellOf[entity]{
		{column{title: "ID"}, func(e *entity) string { return e.Metadata.Name }},
		{column{title: "Class"}, func(e *entity) string { return e.EntityClass }},
		{column{title: "OS"}, func(e *entity) string { return e.System.OS }},
		{column{title: "Subscriptions"}, func(e *entity) string { return comma(e.Subscriptions) }},
		{column{title: "Last Seen"}, func(e *entity) string { return unixTime(e.LastSeen) }},
	},
	title: func(e *entity) string { return e.Metadata.Name },
	fields: []fieldOf[entity]{
		{"Name", func(e *entity) string { return e.Metadata.Name }},
		{"Entity Class", func(e *entity) string { return e.EntityClass }},
		{"Subscriptions", func(e *entity) string { return commaSpace(e.Subscriptions) }},
		{"Last Seen", func(e *entity) string { return unixTime(e.LastSeen) }},
		{"Hostname", func(e *entity) string { return e.System.Hostname }},
		{"OS", func(e *entity) string { return e.System.OS }},
		{"Platform", func(e *entity) string { return e.System.Platform }},
		{"Platform Family", func(e *entity) string { return e.System.PlatformFamily }},
		{"Platform Version", func(e *entity) string { return e.System.PlatformVersion }},
		{"Auto-Deregistration", func(e *entity) string { return yesNo(e.Deregister) }},
		{"Deregistration Handler", func(e *entity) string { return e.Deregistration.Handler }},
	},
	extra: []func(*kind) *cobra.Command{createEntityCommand},
})

func createEntityCommand(k *kind) *cobra.Command {
	var e entity
	cmd := newCreateCommand(k, `  lapwing entity create router1 --entity-class proxy
  lapwing entity create router2 -c proxy -s network,edge`,
		func(s *session, name string) any {
			e.Metadata = resource.ObjectMeta{Name: name, Namespace: s.namespace}
			e.Subscriptions = trimmed(e.Subscriptions)
			return &e
		})
	cmd.Flags().StringVarP(&e.EntityClass, "entity-class", "c", "", "class, such as proxy")
	cmd.Flags().StringSliceVarP(&e.Subscriptions, "subscriptions", "s", nil, "subscriptions, comma separated")
	cmd.MarkFlagRequired("entity-class")
	return cmd
}
