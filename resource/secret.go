package resource

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// secret is a text of a definition that is shown only to users who may change the definition.
type secret struct {
	name string // of the field, for messages; with what tells several of a field apart
	text *string
	cover
	// to is where the text is sent. A text that is kept must not be sent elsewhere.
	to string
}

// cover is how one sort of text is hidden.
type cover struct {
	// hide returns the text with placeholders for its secrets. It leaves a text alone that it has returned.
	hide func(text string) string
	// parts are the secrets in the text, as servers and commands may repeat them.
	parts func(text string) []string
	// words says that a placeholder may be a word of the text. Then it stands for nothing where no secret would be hidden.
	words bool
}

// The sorts of texts with secrets.
var (
	wholeText       = cover{hideText, headerParts, false}          // a token, the value of a header
	templateText    = cover{hideText, secretsWithin, false}        // a template that may have a secret in it
	wholeVariable   = cover{hideVariable, variableParts, false}    // NAME=value, of which the name is shown
	partsOfVariable = cover{hideInVariable, variableSecrets, true} // NAME=value, of which secrets in the value are hidden
	endpoint        = cover{hideURL, urlParts, false}              // a URL that the backend sends to
	hookURL         = cover{hideURL, hookParts, false}             // one that is known to hold a token
	openPath        = cover{hideLogin, loginsOf, false}            // a URL whose path is no secret
)

// password is the cover of a user's password.
func password(user string) cover {
	return cover{hide: hideText, parts: func(text string) []string { return loginParts(user, text) }}
}

// hidden reports whether the text is only the placeholder.
func (s *secret) hidden() bool {
	return strings.Contains(*s.text, Redacted) && s.hide(*s.text) == *s.text
}

// field is the name without what is shown of a variable.
func (s *secret) field() string {
	name, _, _ := strings.Cut(s.name, "=")
	return name
}

func hideText(string) string { return Redacted }

// hideVariable keeps the name of NAME=value.
func hideVariable(text string) string {
	name, _, _ := strings.Cut(text, "=")
	return name + "=" + Redacted
}

// hideInVariable keeps the name of NAME=value, and of the value what is no secret.
func hideInVariable(text string) string {
	name, value, _ := strings.Cut(text, "=")
	return name + "=" + hideWithin(value)
}

func variableSecrets(text string) []string {
	_, value, _ := strings.Cut(text, "=")
	return secretsWithin(value)
}

// hideURL keeps scheme and host. Incoming webhooks have their tokens in the path, and so have servers behind a gateway.
func hideURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return Redacted
	}
	if strings.Trim(u.Path, "/") != "" {
		u.Path, u.RawPath = "/"+Redacted, ""
	}
	if u.User != nil {
		u.User = url.User(Redacted)
	}
	if u.RawQuery != "" {
		u.RawQuery = Redacted
	}
	u.Fragment, u.RawFragment = "", ""
	return u.String()
}

// secretive is a definition with secrets.
type secretive interface {
	// secrets calls f for each secret that is set, in the same order each time. f may change it.
	secrets(f func(s *secret))
}

// keepSecrets puts the secrets of old in the place of the placeholders in obj; old is nil for a new definition. It fails for a
// placeholder that stands for nothing, for one beside a change, and for one whose secret would be sent elsewhere than before. Secrets
// that look the same without their secret parts are told apart by their order. If their number has changed, that is not possible either.
// A placeholder that is only a word, as in MASK=REDACTED, stays.
func keepSecrets(obj, old secretive) error {
	type kept struct{ text, to string }
	before := map[string][]kept{} // in their order
	type known struct{ name, text string }
	stored := map[known]bool{}
	held := map[string]bool{} // the fields with secrets
	if old != nil {
		old.secrets(func(s *secret) {
			before[s.name] = append(before[s.name], kept{*s.text, s.to})
			stored[known{s.name, *s.text}] = true
			if !s.hidden() {
				held[s.field()] = true
			}
		})
	}
	isWord := func(s *secret) bool { return s.words && !held[s.field()] && !placeholderOfSecret(*s.text) }
	number := map[string]int{} // of those with a name
	obj.secrets(func(s *secret) { number[s.name]++ })
	seen := map[string]int{}
	var err error
	obj.secrets(func(s *secret) {
		all, at := before[s.name], seen[s.name]
		seen[s.name]++
		if !s.hidden() {
			if strings.Contains(*s.text, Redacted) && !stored[known{s.name, *s.text}] && !isWord(s) {
				err = firstError(err, fmt.Errorf("%s has a placeholder beside what is new: give all of it", Short(s.name)))
			}
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
			err = firstError(err, fmt.Errorf("%s is the placeholder of one of %d secrets that look the same: give the secrets themselves",
				Short(s.name), len(all)))
		case len(all) == 0 && isWord(s):
		case len(all) == 0:
			err = firstError(err, fmt.Errorf("%s is the placeholder of a secret that is not known: give the secret itself", Short(s.name)))
		case was.to != s.to:
			err = firstError(err, fmt.Errorf("%s would be sent to another server than before: give the secret itself again", Short(s.name)))
		default:
			*s.text = was.text
		}
	})
	return err
}

// variables calls f for the environment variables of the form NAME=value that hold secrets.
func variables(vars []string, all bool, f func(s *secret)) {
	for i := range vars {
		if c, secretive := coverOf(vars[i], all); secretive {
			f(&secret{name: "env_vars " + c.hide(vars[i]), text: &vars[i], cover: c})
		}
	}
}

// coverOf is how a variable is hidden, false if nothing of it is: all of its value if that is asked for or the name looks secret, else
// what is secret in the value. A value with a placeholder is one that was hidden.
func coverOf(v string, all bool) (cover, bool) {
	name, value, ok := strings.Cut(v, "=")
	switch {
	case !ok:
		return cover{}, false
	case all || SecretName(name) || strings.Contains(value, "PRIVATE KEY-----"):
		return wholeVariable, true
	}
	return partsOfVariable, strings.Contains(value, Redacted) || len(secretSpans(value)) > 0
}

// headers calls f for the headers that hold secrets: all but a few that are known to hold none. Services choose the names of
// theirs, so a list of secret ones would never be whole.
func headers(at, to string, values map[string]string, f func(s *secret)) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		// A placeholder under a harmless name is one that was hidden by another release.
		if value := values[name]; value != "" && (!harmlessHeader(name) || value == Redacted) {
			f(&secret{name: at + "headers." + name, text: &value, cover: wholeText, to: to})
			values[name] = value
		}
	}
}

// harmlessHeaders are the headers that readers see, in lower case.
var harmlessHeaders = []string{
	"accept", "accept-charset", "accept-encoding", "accept-language", "cache-control", "content-encoding", "content-language", "content-type",
	"pragma", "user-agent", "x-requested-with",
}

func harmlessHeader(name string) bool { return slices.Contains(harmlessHeaders, strings.ToLower(name)) }

// Secret names: parts of names, as redactKey returns names, and whole words of them.
var (
	secretParts = []string{
		"password", "passwd", "passphrase", "passcode", "apikey", "apitoken", "accesskey", "secretkey", "privatekey", "secret", "token",
		"credential", "webhook", "sshpass", "dbpass", "rootpass", "userpass", "userpwd", "authkey", "masterkey", "encryptionkey", "signingkey",
	}
	secretWords = []string{"pass", "pwd", "pw", "psk", "auth", "authorization", "bearer", "cookie", "key", "jwt", "dsn", "otp", "community"}
)

// SecretName reports whether an environment variable or a header with this name is taken for a secret: DB_PASSWORD, GITHUB_TOKEN,
// Authorization, SLACK_WEBHOOK_URL.
func SecretName(name string) bool {
	plain := redactKey(name)
	if slices.ContainsFunc(secretParts, func(part string) bool { return strings.Contains(plain, part) }) {
		return true
	}
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	return slices.ContainsFunc(words, func(word string) bool {
		return slices.Contains(secretWords, strings.TrimRight(word, "0123456789")) // KEY1
	})
}

// RedactVariables returns vars, or a changed copy if there are secrets among them.
func RedactVariables(vars []string) []string {
	var out []string
	for i, v := range vars {
		if c, secretive := coverOf(v, false); secretive {
			if out == nil {
				out = slices.Clone(vars)
			}
			out[i] = c.hide(v)
		}
	}
	if out == nil {
		return vars
	}
	return out
}

// server is the part of a URL that says who answers.
func server(link string) string {
	u, err := url.Parse(link)
	if err != nil {
		return link
	}
	return u.Scheme + "://" + u.Host
}

// redacted is a definition with placeholders for its secrets, given a copy of it that owns them; obj itself if it has none.
func redacted[T any, P interface {
	*T
	secretive
}](obj, own P) P {
	found := false
	own.secrets(func(s *secret) { *s.text, found = s.hide(*s.text), true })
	if !found {
		return obj
	}
	return own
}

func (c *CheckConfig) secrets(f func(s *secret)) { variables(c.EnvVars, false, f) }

func (c *CheckConfig) withOwnSecrets() *CheckConfig {
	out := *c
	out.EnvVars = slices.Clone(c.EnvVars)
	return &out
}

// Redacted is c as it is shown to users who may read but not change it.
func (c *CheckConfig) Redacted() *CheckConfig { return redacted(c, c.withOwnSecrets()) }

// WithSecrets is as Handler.WithSecrets.
func (c *CheckConfig) WithSecrets(old *CheckConfig) (*CheckConfig, error) {
	out := c.withOwnSecrets()
	if old == nil {
		return out, keepSecrets(out, nil)
	}
	return out, keepSecrets(out, old.withOwnSecrets())
}

func (m *Mutator) secrets(f func(s *secret)) { variables(m.EnvVars, false, f) }

func (m *Mutator) withOwnSecrets() *Mutator {
	out := *m
	out.EnvVars = slices.Clone(m.EnvVars)
	return &out
}

// Redacted is m as it is shown to users who may read but not change it.
func (m *Mutator) Redacted() *Mutator { return redacted(m, m.withOwnSecrets()) }

// WithSecrets is as Handler.WithSecrets.
func (m *Mutator) WithSecrets(old *Mutator) (*Mutator, error) {
	out := m.withOwnSecrets()
	if old == nil {
		return out, keepSecrets(out, nil)
	}
	return out, keepSecrets(out, old.withOwnSecrets())
}

func (a *Asset) secrets(f func(s *secret)) {
	link := func(name, hidden string, text *string) {
		if hidden != *text || strings.Contains(*text, Redacted) {
			f(&secret{name: name + " " + hidden, text: text, cover: openPath})
		}
	}
	link("url", hideLogin(a.URL), &a.URL)
	headers("", server(a.URL), a.Headers, f)
	for _, b := range a.Builds {
		if b == nil {
			continue
		}
		// A build goes by its URL, as readers see it. By its place it would get the headers of another when one is taken out.
		shown := hideLogin(b.URL)
		link("builds.url", shown, &b.URL)
		headers("builds["+shown+"].", server(b.URL), b.Headers, f)
	}
}

func (a *Asset) withOwnSecrets() *Asset {
	out := *a
	out.Headers, out.Builds = maps.Clone(a.Headers), slices.Clone(a.Builds)
	for i, b := range out.Builds {
		if b != nil {
			own := *b
			own.Headers = maps.Clone(b.Headers)
			out.Builds[i] = &own
		}
	}
	return &out
}

// Redacted is a as it is shown to users who may read but not change it.
func (a *Asset) Redacted() *Asset { return redacted(a, a.withOwnSecrets()) }

// WithSecrets is as Handler.WithSecrets.
func (a *Asset) WithSecrets(old *Asset) (*Asset, error) {
	out := a.withOwnSecrets()
	if old == nil {
		return out, keepSecrets(out, nil)
	}
	return out, keepSecrets(out, old.withOwnSecrets())
}
