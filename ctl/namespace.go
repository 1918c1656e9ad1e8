package ctl

import (
	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/api/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

var namespaceKind = newKind(client.Namespaces, display[resource.Namespace]{
	singular:  "namespace",
	nameField: "name",
	columns:   []cellOf[resource.Namespace]{{column{title: "Name"}, namespaceName}},
	title:     namespaceName,
	fields:    []fieldOf[resource.Namespace]{{"Name", namespaceName}},
	extra:     []func(*kind) *cobra.Command{createNamespaceCommand},
})

func namespaceName(n *resource.Namespace) string { return n.Name }

func createNamespaceCommand(k *kind) *cobra.Command {
	return newCreateCommand(k, `  lapwing namespace create staging`, func(_ *session, name string) any {
		return &resource.Namespace{Name: name}
	})
}
