package resource

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// secrets calls f for each secret of the handler that is set. URLs come before what is sent to them, so f may change them.
func (h *Handler) secrets(f func(s *secret)) {
	text := func(name string, value *string, to string) {
		if *value != "" {
			f(&secret{name: name, text: value, hide: hideText, to: to})
		}
	}
	link := func(name string, value *string, hide func(string) string) {
		if *value != "" {
			f(&secret{name: name + " " + hide(*value), text: value, hide: hide})
		}
	}
	login := func(name string, a *HandlerAuth, to string) {
		text(name+".password", &a.Password, to)
		text(name+".token", &a.Token, to)
	}
	variables(h.EnvVars, func(string) bool { return true }, f)
	if w := h.Webhook; w != nil {
		link("webhook.url", &w.URL, hideURL)
		to := w.URL + w.URLFile + w.TLS.peer()
		for _, name := range slices.Sorted(maps.Keys(w.Headers)) {
			value := w.Headers[name]
			text("webhook.headers."+name, &value, to)
			w.Headers[name] = value
		}
		text("webhook.body", &w.Body, "") // users who change the URL see it as well
		login("webhook", &w.HandlerAuth, to)
	}
	if s := h.Slack; s != nil {
		link("slack.url", &s.URL, hideURL)
		text("slack.token", &s.Token, s.APIURL+s.TLS.peer())
	}
	if p := h.PagerDuty; p != nil {
		text("pagerduty.routing_key", &p.RoutingKey, p.URL+p.TLS.peer())
	}
	if m := h.Email; m != nil {
		text("email.password", &m.Password, fmt.Sprint(m.Host, m.Port, m.Security, m.Auth, m.Username)+m.TLS.peer())
	}
	if a := h.Alertmanager; a != nil {
		for i := range a.URLs {
			link("alertmanager.urls", &a.URLs[i], hideURLSecrets)
		}
		login("alertmanager", &a.HandlerAuth, strings.Join(a.URLs, " ")+a.TLS.peer())
	}
	if i := h.Influx; i != nil {
		link("influx.url", &i.URL, hideURLSecrets)
		login("influx", &i.HandlerAuth, i.URL+i.TLS.peer())
	}
}

// peer is all that decides which server is taken for the right one.
func (t *HandlerTLS) peer() string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf(" %q %q %t", t.CAFile, t.ServerName, t.InsecureSkipVerify)
}

// withOwnSecrets is a copy of h whose secrets can be changed.
func (h *Handler) withOwnSecrets() *Handler {
	out := *h
	out.EnvVars = slices.Clone(h.EnvVars)
	if h.Webhook != nil {
		w := *h.Webhook
		w.Headers = maps.Clone(w.Headers)
		out.Webhook = &w
	}
	if h.Slack != nil {
		out.Slack = new(*h.Slack)
	}
	if h.PagerDuty != nil {
		out.PagerDuty = new(*h.PagerDuty)
	}
	if h.Email != nil {
		out.Email = new(*h.Email)
	}
	if h.Alertmanager != nil {
		a := *h.Alertmanager
		a.URLs = slices.Clone(a.URLs)
		out.Alertmanager = &a
	}
	if h.Influx != nil {
		out.Influx = new(*h.Influx)
	}
	return &out
}

// Redacted is h as it is shown to users who may read but not change it: placeholders stand for its secrets.
func (h *Handler) Redacted() *Handler {
	out := h.withOwnSecrets()
	out.secrets(func(s *secret) { *s.text = s.hide(*s.text) })
	return out
}

// WithSecrets is h, which may have placeholders, with the secrets of old in their place; old is nil for a new handler. It fails for
// a placeholder that stands for nothing, and for one whose secret would be sent elsewhere than before.
func (h *Handler) WithSecrets(old *Handler) (*Handler, error) {
	out := h.withOwnSecrets()
	var before secretive
	if old != nil {
		before = old.withOwnSecrets()
	}
	return out, keepSecrets(out, before)
}

// SecretFiles are the files with secrets that the handler names.
func (h *Handler) SecretFiles() []string {
	var out []string
	add := func(names ...string) {
		for _, name := range names {
			if name != "" {
				out = append(out, name)
			}
		}
	}
	keys := func(t *HandlerTLS) {
		if t != nil {
			add(t.CertFile, t.KeyFile)
		}
	}
	login := func(a *HandlerAuth) { add(a.PasswordFile, a.TokenFile) }
	if w := h.Webhook; w != nil {
		add(w.URLFile)
		login(&w.HandlerAuth)
		keys(w.TLS)
	}
	if s := h.Slack; s != nil {
		add(s.URLFile, s.TokenFile)
		keys(s.TLS)
	}
	if p := h.PagerDuty; p != nil {
		add(p.RoutingKeyFile)
		keys(p.TLS)
	}
	if m := h.Email; m != nil {
		add(m.PasswordFile)
		keys(m.TLS)
	}
	if a := h.Alertmanager; a != nil {
		login(&a.HandlerAuth)
		keys(a.TLS)
	}
	if i := h.Influx; i != nil {
		login(&i.HandlerAuth)
		keys(i.TLS)
	}
	if g := h.Graphite; g != nil {
		keys(g.TLS)
	}
	if s := h.Stream; s != nil {
		keys(s.TLS)
	}
	return out
}
