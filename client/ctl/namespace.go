package ctl

import (
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

var namespaceKind = newKind(client.Namespaces, display[resource.Namespace]{
	example: "staging",
	columns: []cellOf[resource.Namespace]{{column{title: "Name"}, namespaceName}},
	title:   namespaceName,
	fields:  []fieldOf[resource.Namespace]{{label: "Name", text: namespaceName}},
	can:     canList | canInfo | canDelete | canCreate,

	createExamples: `  lapwing namespace create staging`,
})

func namespaceName(n *resource.Namespace) string { return n.Name }
