package ctl

import (
	"fmt"

	"github.com/lapwing-monitoring/lapwing/api/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

type handler = resource.Handler

var handlerKind = newKind(client.Handlers, display[handler]{
	singular:  "handler",
	namespace: func(h *handler) string { return h.Metadata.Namespace },
	columns: []cellOf[handler]{
		{column{title: "Name"}, func(h *handler) string { return h.Metadata.Name }},
		{column{title: "Type"}, func(h *handler) string { return h.Type }},
		{column{title: "Timeout", right: true}, func(h *handler) string { return number(h.Timeout) }},
		{column{title: "Filters"}, func(h *handler) string { return comma(h.Filters) }},
		{column{title: "Mutator"}, func(h *handler) string { return h.Mutator }},
		{column{title: "Execute"}, execute},
		{column{title: "Environment Variables"}, func(h *handler) string { return comma(h.EnvVars) }},
		{column{title: "Assets"}, func(h *handler) string { return comma(h.RuntimeAssets) }},
	},
	title: func(h *handler) string { return h.Metadata.Name },
	fields: []fieldOf[handler]{
		{label: "Name", text: func(h *handler) string { return h.Metadata.Name }},
		{label: "Type", text: func(h *handler) string { return h.Type }},
		{label: "Timeout", text: func(h *handler) string { return number(h.Timeout) }},
		{label: "Filters", text: func(h *handler) string { return commaSpace(h.Filters) }},
		{label: "Mutator", text: func(h *handler) string { return h.Mutator }},
		{label: "Execute", text: execute},
		{label: "Environment Variables", text: func(h *handler) string { return commaSpace(h.EnvVars) }},
		{label: "Runtime Assets", text: func(h *handler) string { return commaSpace(h.RuntimeAssets) }},
	},
	create: []flagField{
		{flag: "type", short: "t", field: "type", initial: "pipe", usage: "pipe, tcp, udp, set or webhook"},
		{flag: "command", field: "command", usage: "command of a pipe handler"},
		{flag: "env-vars", field: "env_vars", kind: listField, usage: "environment of the command, as A=b, comma separated"},
		{flag: "filters", field: "filters", kind: listField, usage: "filters an event must pass, comma separated"},
		{flag: "handlers", field: "handlers", kind: listField, usage: "members of a set, comma separated"},
		{flag: "mutator", short: "m", field: "mutator", usage: "mutator of the events"},
		{flag: "runtime-assets", short: "r", field: "runtime_assets", kind: listField, usage: "assets the command needs, comma separated"},
		{flag: "socket-host", field: "socket.host", usage: "host of a tcp or udp handler"},
		{flag: "socket-port", field: "socket.port", kind: numberField, usage: "port of a tcp or udp handler"},
		{flag: "timeout", short: "i", field: "timeout", kind: numberField, usage: "seconds after which the handler is stopped"},
		{flag: "webhook-url", field: "webhook.url", usage: "where a webhook handler posts events (not in Sensu)"},
	},
	createExamples: `  lapwing handler create mail --command 'mail -s alert ops@example.com' --filters is_incident
  lapwing handler create collector --type tcp --socket-host 10.0.0.5 --socket-port 4444
  lapwing handler create chat --type webhook --webhook-url https://chat.example/hook
  lapwing handler create everyone --type set --handlers mail,chat`,
	can: canList | canInfo | canDelete | canCreate | canUpdate,
})

// execute shows what a handler does with an event.
func execute(h *handler) string {
	switch {
	case h.Type == "pipe":
		return "RUN:  " + h.Command
	case (h.Type == "tcp" || h.Type == "udp") && h.Socket != nil:
		return fmt.Sprintf("PUSH: %s://%s:%d", h.Type, h.Socket.Host, h.Socket.Port)
	case h.Type == "set":
		return "CALL: " + comma(h.Handlers)
	case h.Webhook != nil:
		return "POST: " + h.Webhook.URL
	}
	return "UNKNOWN"
}
