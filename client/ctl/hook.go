package ctl

import (
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

type hook = resource.HookConfig

var hookKind = newKind(client.Hooks, display[hook]{
	namespace: func(h *hook) string { return h.Metadata.Namespace },
	columns: []cellOf[hook]{
		{column{title: "Name"}, func(h *hook) string { return h.Metadata.Name }},
		{column{title: "Command", text: true}, func(h *hook) string { return h.Command }},
		{column{title: "Timeout", right: true}, func(h *hook) string { return number(h.Timeout) }},
		{column{title: "Stdin?"}, func(h *hook) string { return yesNo(h.Stdin) }},
	},
	title: func(h *hook) string { return h.Metadata.Name },
	fields: []fieldOf[hook]{
		{label: "Name", text: func(h *hook) string { return h.Metadata.Name }},
		{label: "Command", text: func(h *hook) string { return h.Command }},
		{label: "Timeout", text: func(h *hook) string { return number(h.Timeout) }},
		{label: "Stdin?", text: func(h *hook) string { return yesNo(h.Stdin) }},
		{label: "Namespace", text: func(h *hook) string { return h.Metadata.Namespace }},
	},
	create: []flagField{
		{flag: "command", short: "c", field: "command", required: true, usage: "command that the agent runs"},
		{flag: "stdin", short: "s", field: "stdin", kind: yesNoField, usage: "write the event's JSON to the command's standard input"},
		{flag: "timeout", short: "t", field: "timeout", kind: numberField, initial: "60",
			usage: "seconds after which the command is stopped"},
	},
	createExamples: `  lapwing hook create processes --command 'ps aux --sort -pcpu' --timeout 10`,
	can:            canList | canInfo | canDelete | canCreate | canUpdate,
})
