package send

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// receivers returns the names by which people know a handler's receivers, as far as the definition has them. They are
// in lists that more people read than the definition. So of a URL it has the host only: the path may be a token.
func receivers(h *resource.Handler) []string {
	var out []string
	add := func(name string) {
		if name != "" && !strings.Contains(name, "{{") {
			out = append(out, name)
		}
	}
	switch {
	case h.Type == "pipe":
		add(firstWord(h.Command))
	case h.Type == "webhook" && h.Webhook != nil:
		add(hostOf(h.Webhook.URL))
	case h.Type == "slack" && h.Slack != nil:
		if add(h.Slack.Channel); out == nil {
			add(hostOf(h.Slack.URL))
		}
	case h.Type == "pagerduty" && h.PagerDuty != nil:
		add(hostOf(cmp.Or(h.PagerDuty.URL, pagerDutyURL)))
	case h.Type == "email" && h.Email != nil:
		for _, address := range slices.Concat(h.Email.To, h.Email.Cc) {
			add(address)
		}
	case h.Type == "alertmanager" && h.Alertmanager != nil:
		for _, link := range h.Alertmanager.URLs {
			add(hostOf(link))
		}
	case h.Type == "graphite" && h.Graphite != nil:
		add(address(h.Graphite.Host, cmp.Or(h.Graphite.Port, graphitePort)))
	case h.Type == "influx" && h.Influx != nil:
		add(hostOf(h.Influx.URL))
	case h.Socket != nil:
		add(address(h.Socket.Host, h.Socket.Port))
	}
	return out
}

// firstWord returns the first word of a command, or "" if that is not plainly a program: a shell takes NAME=SECRET and
// much else there.
func firstWord(command string) string {
	words := strings.Fields(command)
	if len(words) == 0 {
		return ""
	}
	for _, c := range words[0] {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune(`./\:_-+`, c)) {
			return ""
		}
	}
	return words[0]
}

// hostOf returns the host and the port of a URL, or "".
func hostOf(link string) string {
	u, err := url.Parse(link)
	if err != nil {
		return ""
	}
	return u.Host
}

// to adds who the receiver is, unless the name is "".
func (res Result) to(name string) Result {
	if name != "" {
		res.Recipients = []string{name}
	}
	return res
}
