package ctl

import (
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

type mutator = resource.Mutator

var mutatorKind = newKind(client.Mutators, display[mutator]{
	namespace: func(m *mutator) string { return m.Metadata.Namespace },
	columns: []cellOf[mutator]{
		{column{title: "Name"}, func(m *mutator) string { return m.Metadata.Name }},
		{column{title: "Command", text: true}, func(m *mutator) string { return m.Command }},
		{column{title: "Environment Variables"}, func(m *mutator) string { return comma(m.EnvVars) }},
		{column{title: "Timeout"}, func(m *mutator) string { return number(m.Timeout) }},
		{column{title: "Assets"}, func(m *mutator) string { return comma(m.RuntimeAssets) }},
	},
	title: func(m *mutator) string { return m.Metadata.Name },
	fields: []fieldOf[mutator]{
		{label: "Name", text: func(m *mutator) string { return m.Metadata.Name }},
		{label: "Command", text: func(m *mutator) string { return m.Command }},
		{label: "Timeout", text: func(m *mutator) string { return number(m.Timeout) }},
		{label: "Namespace", text: func(m *mutator) string { return m.Metadata.Namespace }},
		{label: "Runtime Assets", text: func(m *mutator) string { return commaSpace(m.RuntimeAssets) }},
	},
	create: []flagField{
		{flag: "command", short: "c", field: "command",
			usage: "command that reads an event on standard input and writes the changed event to standard output"},
		{flag: "env-vars", field: "env_vars", kind: listField, usage: "environment of the command, as A=b, comma separated"},
		{flag: "eval", field: "eval", usage: "JavaScript code of a mutator of type javascript"},
		{flag: "runtime-assets", short: "r", field: "runtime_assets", kind: listField,
			usage: "assets that the command needs, comma separated"},
		{flag: "timeout", short: "t", field: "timeout", kind: numberField, usage: "seconds after which the command is stopped"},
		{flag: "type", field: "type", initial: "pipe", usage: "type of the mutator: pipe or javascript"},
	},
	createExamples: `  lapwing mutator create add-runbook --command add-runbook --timeout 10
  lapwing mutator create quiet --type javascript --eval 'event.check.output = ""; return JSON.stringify(event)'`,
	can: canList | canInfo | canDelete | canCreate | canUpdate,
})
