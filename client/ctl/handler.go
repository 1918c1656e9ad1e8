package ctl

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

type handler = resource.Handler

var handlerKind = newKind(client.Handlers, display[handler]{
	namespace: func(h *handler) string { return h.Metadata.Namespace },
	columns: []cellOf[handler]{
		{column{title: "Name"}, func(h *handler) string { return h.Metadata.Name }},
		{column{title: "Type"}, func(h *handler) string { return h.Type }},
		{column{title: "Timeout", right: true}, func(h *handler) string { return number(h.Timeout) }},
		{column{title: "Filters"}, func(h *handler) string { return comma(h.Filters) }},
		{column{title: "Mutator"}, func(h *handler) string { return h.Mutator }},
		{column{title: "Execute", text: true}, execute},
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
		{label: "Execute", text: func(h *handler) string {
			if h.Escalation != nil {
				return "NOTIFY: " + stepsText(h.Escalation)
			}
			return execute(h)
		}},
		{label: "Environment Variables", text: func(h *handler) string { return commaSpace(h.EnvVars) }},
		{label: "Runtime Assets", text: func(h *handler) string { return commaSpace(h.RuntimeAssets) }},
	},
	create: []flagField{
		{flag: "type", short: "t", field: "type", initial: "pipe",
			usage: "type of the handler: " + strings.Join(resource.HandlerTypes, ", ") + "; " + stepsOfFile},
		{flag: "command", field: "command", usage: "command of a pipe handler"},
		{flag: "env-vars", field: "env_vars", kind: listField, usage: "environment of the command, as A=b, comma separated"},
		{flag: "filters", field: "filters", kind: listField, usage: "filters that an event must pass, comma separated"},
		{flag: "handlers", field: "handlers", kind: listField, usage: "handlers in a handler of type set, comma separated"},
		{flag: "mutator", short: "m", field: "mutator", usage: "mutator that prepares the events"},
		{flag: "runtime-assets", short: "r", field: "runtime_assets", kind: listField,
			usage: "assets that the command needs, comma separated"},
		{flag: "socket-host", field: "socket.host", usage: "host of a tcp, udp or tcp_stream handler"},
		{flag: "socket-port", field: "socket.port", kind: numberField, usage: "port of a tcp, udp or tcp_stream handler"},
		{flag: "timeout", short: "i", field: "timeout", kind: numberField, usage: "seconds after which the handler is stopped"},
		{flag: "webhook-url", field: "webhook.url", usage: "URL to which a webhook handler posts events (not in Sensu)"},
		{flag: "webhook-body", field: "webhook.body", unasked: true,
			usage: "template of the body that a webhook handler posts (default the event's JSON)"},
		{flag: "slack-url-file", field: "slack.url_file", unasked: true,
			usage: "file on the backends with the URL of Slack's incoming webhook"},
		{flag: "slack-token-file", field: "slack.token_file", unasked: true, usage: "file on the backends with a token for Slack"},
		{flag: "slack-channel", field: "slack.channel", unasked: true, usage: "Slack channel"},
		{flag: "pagerduty-routing-key-file", field: "pagerduty.routing_key_file", unasked: true,
			usage: "file on the backends with the key of PagerDuty's integration"},
		{flag: "email-host", field: "email.host", unasked: true, usage: "host of the mail server"},
		{flag: "email-port", field: "email.port", kind: numberField, unasked: true,
			usage: "port of the mail server (default by --email-security)"},
		{flag: "email-security", field: "email.security", unasked: true,
			usage: "security of the connection to the mail server: starttls (default), tls, opportunistic or none"},
		{flag: "email-from", field: "email.from", unasked: true, usage: "sender of mails"},
		{flag: "email-to", field: "email.to", kind: listField, unasked: true, usage: "recipients of mails, comma separated"},
		{flag: "alertmanager-urls", field: "alertmanager.urls", kind: listField, unasked: true,
			usage: "Alertmanagers of one cluster, comma separated"},
		{flag: "graphite-host", field: "graphite.host", unasked: true, usage: "host of the Graphite server"},
		{flag: "graphite-port", field: "graphite.port", kind: numberField, unasked: true,
			usage: "port of the Graphite server (default 2003)"},
		{flag: "influx-url", field: "influx.url", unasked: true, usage: "URL of InfluxDB: http, https or udp"},
		{flag: "influx-database", field: "influx.database", unasked: true, usage: "database of InfluxDB 1"},
		{flag: "influx-org", field: "influx.org", unasked: true, usage: "organisation of InfluxDB 2"},
		{flag: "influx-bucket", field: "influx.bucket", unasked: true, usage: "bucket of InfluxDB 2"},
		{flag: "influx-token-file", field: "influx.token_file", unasked: true, usage: "file on the backends with a token for InfluxDB 2"},
		{flag: "retry-attempts", field: "retry.max_attempts", kind: numberField, unasked: true,
			usage: "number of tries after temporary failures"},
		{flag: "concurrency", field: "concurrency", kind: numberField, unasked: true, usage: "number of concurrent deliveries"},
	},
	createExamples: `  lapwing handler create mail --command 'mail -s alert ops@example.com' --filters is_incident
  lapwing handler create collector --type tcp --socket-host 10.0.0.5 --socket-port 4444
  lapwing handler create chat --type webhook --webhook-url https://chat.example/hook
  lapwing handler create page --type pagerduty --pagerduty-routing-key-file /etc/lapwing/pagerduty
  lapwing handler create team --type email --email-host mail.example.com --email-from lapwing@example.com --email-to ops@example.com
  lapwing handler create everyone --type set --handlers mail,chat`,
	can:   canList | canInfo | canDelete | canCreate | canUpdate,
	extra: []func(*kind) *cobra.Command{waitingCommand, retryCommand},
})

// stepsOfFile says how to make a handler of type escalation.
const stepsOfFile = "the steps of an escalation have no flags: write it to a file for 'lapwing create -f FILE', as docs/oncall.md shows"

// execute returns what a handler does with an event, for tables.
func execute(h *handler) string {
	switch {
	case h.Type == "pipe":
		return "RUN:  " + h.Command
	case (h.Type == "tcp" || h.Type == "udp" || h.Type == "tcp_stream") && h.Socket != nil:
		return fmt.Sprintf("PUSH: %s://%s:%d", h.Type, h.Socket.Host, h.Socket.Port)
	case h.Type == resource.EscalationType && h.Escalation != nil:
		return fmt.Sprintf("NOTIFY: %d steps", len(h.Escalation.Steps))
	case h.Type == "set":
		return "CALL: " + comma(h.Handlers)
	case h.Type == "slack" && h.Slack != nil:
		return "POST: Slack " + h.Slack.Channel
	case h.Type == "pagerduty" && h.PagerDuty != nil:
		return "POST: " + cmp.Or(h.PagerDuty.URL, "PagerDuty")
	case h.Type == "email" && h.Email != nil:
		return "MAIL: " + comma(h.Email.To)
	case h.Type == "alertmanager" && h.Alertmanager != nil:
		return "POST: " + comma(h.Alertmanager.URLs)
	case h.Type == "graphite" && h.Graphite != nil:
		return fmt.Sprintf("PUSH: graphite://%s:%d", h.Graphite.Host, cmp.Or(h.Graphite.Port, 2003))
	case h.Type == "influx" && h.Influx != nil:
		return "PUSH: " + h.Influx.URL
	case h.Webhook != nil:
		return "POST: " + cmp.Or(h.Webhook.URL, h.Webhook.URLFile)
	}
	return "UNKNOWN"
}
