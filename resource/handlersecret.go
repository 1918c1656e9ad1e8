package resource

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// secrets calls f for each secret of the handler that is set. URLs come before the secrets sent to them, so f may
// change a URL first.
func (h *Handler) secrets(f func(s *secret)) {
	text := func(name string, value *string, c cover, to string) {
		if *value != "" {
			f(&secret{name: name, text: value, cover: c, to: to})
		}
	}
	// A link is named by the URL that readers see. So a placeholder in a link to another server matches no secret.
	link := func(name string, value *string, c cover, to string) {
		if hidden := c.hide(*value); hidden != *value || strings.Contains(*value, Redacted) {
			f(&secret{name: name + " " + hidden, text: value, cover: c, to: to})
		}
	}
	login := func(name string, a *HandlerAuth, to string) {
		text(name+".password", &a.Password, password(a.Username), to)
		text(name+".token", &a.Token, wholeText, to)
	}
	variables(h.EnvVars, true, f)
	if w := h.Webhook; w != nil {
		link("webhook.url", &w.URL, hookURL, w.TLS.peer())
		to := w.URL + w.URLFile + w.TLS.peer()
		headers("webhook.", to, w.Headers, f)
		text("webhook.body", &w.Body, templateText, "") // users who change the URL see it too
		login("webhook", &w.HandlerAuth, to)
	}
	if s := h.Slack; s != nil {
		link("slack.url", &s.URL, hookURL, s.TLS.peer())
		link("slack.api_url", &s.APIURL, endpoint, s.TLS.peer())
		link("slack.icon_url", &s.IconURL, openPath, "")
		text("slack.token", &s.Token, wholeText, s.APIURL+s.TLS.peer())
	}
	if p := h.PagerDuty; p != nil {
		link("pagerduty.url", &p.URL, endpoint, p.TLS.peer())
		link("pagerduty.link", &p.Link, openPath, "")
		text("pagerduty.routing_key", &p.RoutingKey, wholeText, p.URL+p.TLS.peer())
	}
	if m := h.Email; m != nil {
		to := fmt.Sprint(m.Host, m.Port, m.Security, m.Auth, m.Username) + m.TLS.peer()
		text("email.password", &m.Password, password(m.Username), to)
		for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
			if value := m.Headers[name]; SecretName(name) {
				text("email.headers."+name, &value, wholeText, to)
				m.Headers[name] = value
			}
		}
	}
	if a := h.Alertmanager; a != nil {
		for i := range a.URLs {
			link("alertmanager.urls", &a.URLs[i], endpoint, a.TLS.peer())
		}
		link("alertmanager.link", &a.Link, openPath, "")
		login("alertmanager", &a.HandlerAuth, strings.Join(a.URLs, " ")+a.TLS.peer())
	}
	if i := h.Influx; i != nil {
		link("influx.url", &i.URL, endpoint, i.TLS.peer())
		login("influx", &i.HandlerAuth, i.URL+i.TLS.peer())
	}
}

// peer returns every setting that decides which server is accepted.
func (t *HandlerTLS) peer() string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf(" %q %q %t", t.CAFile, t.ServerName, t.InsecureSkipVerify)
}

// withOwnSecrets returns a copy of h whose secrets can be changed.
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
		m := *h.Email
		m.Headers = maps.Clone(m.Headers)
		out.Email = &m
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

// Redacted returns h as users see it who may read but not change it: with placeholders for its secrets.
func (h *Handler) Redacted() *Handler {
	out := h.withOwnSecrets()
	out.secrets(func(s *secret) { *s.text = s.hide(*s.text) })
	return out
}

// WithSecrets returns h with the secrets of old in place of h's placeholders; old is nil for a new handler. It fails if
// a placeholder has no secret, or if its secret would be sent elsewhere than before.
func (h *Handler) WithSecrets(old *Handler) (*Handler, error) {
	out := h.withOwnSecrets()
	var before secretive
	if old != nil {
		before = old.withOwnSecrets()
	}
	return out, keepSecrets(out, before)
}

// SecretFiles returns the files with secrets that the handler names.
func (h *Handler) SecretFiles() []string {
	var out []string
	h.files(func(f SecretFile) { out = append(out, f.Name) }, func(t *HandlerTLS) {
		for _, name := range []string{t.CertFile, t.KeyFile} {
			if name != "" {
				out = append(out, name)
			}
		}
	})
	return out
}

// SecretTextFiles returns the SecretFiles whose text the handler sends.
func (h *Handler) SecretTextFiles() []SecretFile {
	var out []SecretFile
	h.files(func(f SecretFile) { out = append(out, f) }, func(*HandlerTLS) {})
	return out
}

// files calls text for each file whose text is sent, and keys for each TLS setting.
func (h *Handler) files(text func(SecretFile), keys func(*HandlerTLS)) {
	add := func(t *HandlerTLS, files ...SecretFile) {
		for _, f := range files {
			if f.Name != "" {
				text(f)
			}
		}
		if t != nil {
			keys(t)
		}
	}
	login := func(a *HandlerAuth) (password, token SecretFile) {
		return SecretFile{a.PasswordFile, a.Username}, SecretFile{Name: a.TokenFile}
	}
	if w := h.Webhook; w != nil {
		password, token := login(&w.HandlerAuth)
		add(w.TLS, SecretFile{Name: w.URLFile}, password, token)
	}
	if s := h.Slack; s != nil {
		add(s.TLS, SecretFile{Name: s.URLFile}, SecretFile{Name: s.TokenFile})
	}
	if p := h.PagerDuty; p != nil {
		add(p.TLS, SecretFile{Name: p.RoutingKeyFile})
	}
	if m := h.Email; m != nil {
		add(m.TLS, SecretFile{m.PasswordFile, m.Username})
	}
	if a := h.Alertmanager; a != nil {
		password, token := login(&a.HandlerAuth)
		add(a.TLS, password, token)
	}
	if i := h.Influx; i != nil {
		password, token := login(&i.HandlerAuth)
		add(i.TLS, password, token)
	}
	if g := h.Graphite; g != nil {
		add(g.TLS)
	}
	if s := h.Stream; s != nil {
		add(s.TLS)
	}
}
