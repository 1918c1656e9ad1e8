package resource

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// handlerSecret is a text of a handler that is shown only to users who may change the handler.
type handlerSecret struct {
	name string // of the field, for messages; with what tells several of a field apart
	text *string
	hide func(string) string
	// to is where the text is sent. A text that is kept must not be sent elsewhere.
	to string
}

// hidden reports whether the text is only the placeholder.
func (s *handlerSecret) hidden() bool {
	return strings.Contains(*s.text, Redacted) && s.hide(*s.text) == *s.text
}

func hideText(string) string { return Redacted }

// hideVariable keeps the name of NAME=value.
func hideVariable(text string) string {
	name, _, _ := strings.Cut(text, "=")
	return name + "=" + Redacted
}

// hideURL keeps scheme and host. Incoming webhooks have their tokens in the path.
func hideURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return Redacted
	}
	if strings.Trim(u.Path, "/") != "" {
		u.Path, u.RawPath = "/"+Redacted, ""
	}
	return hideParts(u)
}

// hideURLSecrets keeps the path too.
func hideURLSecrets(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return Redacted
	}
	return hideParts(u)
}

func hideParts(u *url.URL) string {
	if u.User != nil {
		u.User = url.User(Redacted)
	}
	if u.RawQuery != "" {
		u.RawQuery = Redacted
	}
	u.Fragment, u.RawFragment = "", ""
	return u.String()
}

// secrets calls f for each secret of the handler that is set. URLs come before what is sent to them, so f may change them.
func (h *Handler) secrets(f func(s *handlerSecret)) {
	text := func(name string, value *string, to string) {
		if *value != "" {
			f(&handlerSecret{name: name, text: value, hide: hideText, to: to})
		}
	}
	link := func(name string, value *string, hide func(string) string) {
		if *value != "" {
			f(&handlerSecret{name: name + " " + hide(*value), text: value, hide: hide})
		}
	}
	login := func(name string, a *HandlerAuth, to string) {
		text(name+".password", &a.Password, to)
		text(name+".token", &a.Token, to)
	}
	for i := range h.EnvVars {
		name, _, _ := strings.Cut(h.EnvVars[i], "=")
		f(&handlerSecret{name: "env_vars " + name, text: &h.EnvVars[i], hide: hideVariable})
	}
	if w := h.Webhook; w != nil {
		link("webhook.url", &w.URL, hideURL)
		to := w.URL + w.URLFile + w.TLS.peer()
		for _, name := range slices.Sorted(maps.Keys(w.Headers)) {
			value := w.Headers[name]
			text("webhook.headers."+name, &value, to)
			w.Headers[name] = value
		}
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
	out.secrets(func(s *handlerSecret) { *s.text = s.hide(*s.text) })
	return out
}

// WithSecrets is h, which may have placeholders, with the secrets of old in their place; old is nil for a new handler. It fails for
// a placeholder that stands for nothing, and for one whose secret would be sent elsewhere than before. Secrets that look the same
// without their secret parts are told apart by their order. If their number has changed, that is not possible either.
func (h *Handler) WithSecrets(old *Handler) (*Handler, error) {
	type kept struct{ text, to string }
	before := map[string][]kept{} // in their order
	if old != nil {
		old.withOwnSecrets().secrets(func(s *handlerSecret) { before[s.name] = append(before[s.name], kept{*s.text, s.to}) })
	}
	out := h.withOwnSecrets()
	number := map[string]int{} // of those with a name
	out.secrets(func(s *handlerSecret) { number[s.name]++ })
	seen := map[string]int{}
	var err error
	out.secrets(func(s *handlerSecret) {
		all, at := before[s.name], seen[s.name]
		seen[s.name]++
		if !s.hidden() {
			return
		}
		if len(all) == 1 {
			at = 0
		}
		var was kept
		if len(all) > 0 {
			was = all[min(at, len(all)-1)]
		}
		switch {
		case len(all) > 1 && len(all) != number[s.name]:
			err = firstError(err, fmt.Errorf("%s is the placeholder of one of %d secrets that look the same: give the secrets themselves", s.name, len(all)))
		case len(all) == 0:
			err = firstError(err, fmt.Errorf("%s is the placeholder of a secret that is not known: give the secret itself", s.name))
		case was.to != s.to:
			err = firstError(err, fmt.Errorf("%s would be sent to another server than before: give the secret itself again", s.name))
		default:
			*s.text = was.text
		}
	})
	return out, err
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
