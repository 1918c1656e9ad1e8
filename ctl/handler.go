package ctl

import (
	"fmt"

	"github.com/spf13/cobra"

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
		{"Name", func(h *handler) string { return h.Metadata.Name }},
		{"Type", func(h *handler) string { return h.Type }},
		{"Timeout", func(h *handler) string { return number(h.Timeout) }},
		{"Filters", func(h *handler) string { return commaSpace(h.Filters) }},
		{"Mutator", func(h *handler) string { return h.Mutator }},
		{"Execute", execute},
		{"Environment Variables", func(h *handler) string { return commaSpace(h.EnvVars) }},
		{"Runtime Assets", func(h *handler) string { return commaSpace(h.RuntimeAssets) }},
	},
	extra: []func(*kind) *cobra.Command{createHandlerCommand},
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

func createHandlerCommand(k *kind) *cobra.Command {
	var (
		h      handler
		socket resource.HandlerSocket
		url    string
	)
	cmd := newCreateCommand(k, `  lapwing handler create mail --command 'mail -s alert ops@example.com' --filters is_incident
  lapwing handler create collector --type tcp --socket-host 10.0.0.5 --socket-port 4444
  lapwing handler create chat --type webhook --webhook-url https://chat.example/hook
  lapwing handler create everyone --type set --handlers mail,chat`,
		func(s *session, name string) any {
			h.Metadata = resource.ObjectMeta{Name: name, Namespace: s.namespace}
			for _, list := range []*[]string{&h.EnvVars, &h.Filters, &h.Handlers, &h.RuntimeAssets} {
				*list = trimmed(*list)
			}
			if socket != (resource.HandlerSocket{}) {
				h.Socket = &socket
			}
			if url != "" {
				h.Webhook = &resource.HandlerWebhook{URL: url}
			}
			return &h
		})
	f := cmd.Flags()
	f.StringVarP(&h.Type, "type", "t", "pipe", "pipe, tcp, udp, set or webhook")
	f.StringVar(&h.Command, "command", "", "command of a pipe handler")
	f.StringSliceVar(&h.EnvVars, "env-vars", nil, "environment of the command, as A=b, comma separated")
	f.StringSliceVar(&h.Filters, "filters", nil, "filters an event must pass, comma separated")
	f.StringSliceVar(&h.Handlers, "handlers", nil, "members of a set, comma separated")
	f.StringVarP(&h.Mutator, "mutator", "m", "", "mutator of the events")
	f.StringSliceVarP(&h.RuntimeAssets, "runtime-assets", "r", nil, "assets the command needs, comma separated")
	f.StringVar(&socket.Host, "socket-host", "", "host of a tcp or udp handler")
	f.Uint32Var(&socket.Port, "socket-port", 0, "port of a tcp or udp handler")
	f.Uint32VarP(&h.Timeout, "timeout", "i", 0, "seconds after which the handler is stopped")
	f.SetAnnotation("timeout", shadows, []string{"true"})
	f.StringVar(&url, "webhook-url", "", "where a webhook handler posts events (not in Sensu)")
	return cmd
}
