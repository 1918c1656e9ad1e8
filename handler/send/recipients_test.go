package send

import (
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestReceivers(t *testing.T) {
	for _, tc := range []struct {
		name string
		h    resource.Handler
		want []string
	}{
		{"command", resource.Handler{Type: "pipe", Command: "/usr/bin/page --token hush ops"}, []string{"/usr/bin/page"}},
		{"variable before a command", resource.Handler{Type: "pipe", Command: "TOKEN=hush page"}, nil},
		{"quoted variable", resource.Handler{Type: "pipe", Command: "TOKEN='hush hush' page"}, nil},
		{"no command", resource.Handler{Type: "pipe"}, nil},
		{"socket", resource.Handler{Type: "tcp", Socket: &resource.HandlerSocket{Host: "logs", Port: 514}}, []string{"logs:514"}},
		{"webhook", resource.Handler{Type: "webhook",
			Webhook: &resource.HandlerWebhook{URL: "https://me:hush@hooks.example.com:8443/hush?key=hush#hush"}},
			[]string{"hooks.example.com:8443"}},
		{"slack webhook", resource.Handler{Type: "slack", Slack: &resource.HandlerSlack{URL: "https://hooks.slack.com/services/hush"}},
			[]string{"hooks.slack.com"}},
		{"slack channel", resource.Handler{Type: "slack", Slack: &resource.HandlerSlack{Token: "hush", Channel: "#ops"}}, []string{"#ops"}},
		{"slack template", resource.Handler{Type: "slack",
			Slack: &resource.HandlerSlack{URL: "https://hooks.slack.com/services/hush", Channel: "#{{.Namespace}}"}}, []string{"hooks.slack.com"}},
		{"pagerduty", resource.Handler{Type: "pagerduty", PagerDuty: &resource.HandlerPagerDuty{RoutingKey: "hush"}},
			[]string{"events.pagerduty.com"}},
		{"email", resource.Handler{Type: "email", Email: &resource.HandlerEmail{Password: "hush",
			To: []string{"a@example.com", "{{.Namespace}}@example.com"}, Cc: []string{"b@example.com"}}},
			[]string{"a@example.com", "b@example.com"}},
		{"alertmanager", resource.Handler{Type: "alertmanager",
			Alertmanager: &resource.HandlerAlertmanager{URLs: []string{"http://a:9093/hush", "http://b:9093"}}}, []string{"a:9093", "b:9093"}},
		{"graphite", resource.Handler{Type: "graphite", Graphite: &resource.HandlerGraphite{Host: "g"}}, []string{"g:2003"}},
	} {
		got := receivers(&tc.h)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
		if strings.Contains(strings.Join(got, " "), "hush") {
			t.Errorf("%s: %q has a secret", tc.name, got)
		}
	}
}
