package resource

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// secret is a text of a definition that only users who may change the definition see.
type secret struct {
	name string // of the field, for messages; with more where a field has several secrets
	text *string
	cover
	// to is where the text is sent. A stored secret must not be sent elsewhere.
	to string
}

// cover hides one sort of text.
type cover struct {
	// hide returns the text with placeholders for its secrets. It leaves its own output unchanged.
	hide func(text string) string
	// parts returns the secrets in the text, as servers and commands may repeat them.
	parts func(text string) []string
	// words says that a placeholder may be a word of the text. Where no secret would be hidden, it is no placeholder
	// then.
	words bool
}

// The sorts of texts with secrets.
var (
	wholeText       = cover{hideText, headerParts, false}          // a token, the value of a header
	templateText    = cover{hideText, secretsWithin, false}        // a template that may contain a secret
	wholeVariable   = cover{hideVariable, variableParts, false}    // NAME=value; the name is shown
	partsOfVariable = cover{hideInVariable, variableSecrets, true} // NAME=value; only secrets in the value are hidden
	endpoint        = cover{hideURL, urlParts, false}              // a URL that the backend sends to
	hookURL         = cover{hideURL, hookParts, false}             // one that is known to hold a token
	openPath        = cover{hideLogin, loginsOf, false}            // a URL whose path is no secret
)

// password returns the cover of a user's password.
func password(user string) cover {
	return cover{hide: hideText, parts: func(text string) []string { return loginParts(user, text) }}
}

// hidden reports whether the text is only the placeholder.
func (s *secret) hidden() bool {
	return strings.Contains(*s.text, Redacted) && s.hide(*s.text) == *s.text
}

// field returns the name without the shown part of a variable.
func (s *secret) field() string {
	name, _, _ := strings.Cut(s.name, "=")
	return name
}

func hideText(string) string { return Redacted }

// hideVariable hides the value of NAME=value.
func hideVariable(text string) string {
	name, _, _ := strings.Cut(text, "=")
	return name + "=" + Redacted
}

// hideInVariable hides only the secrets in the value of NAME=value.
func hideInVariable(text string) string {
	name, value, _ := strings.Cut(text, "=")
	return name + "=" + hideWithin(value)
}

func variableSecrets(text string) []string {
	_, value, _ := strings.Cut(text, "=")
	return secretsWithin(value)
}

// hideURL keeps scheme and host. The tokens of incoming webhooks are in the path, and so are servers behind a gateway.
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
	// secrets calls f for each secret that is set, always in the same order. f may change it.
	secrets(f func(s *secret))
}

// keepSecrets replaces the placeholders in obj with the secrets of old; old is nil for a new definition. It fails if a
// placeholder has no secret, if the text around it has changed, or if its secret would be sent elsewhere than before.
// Secrets that look the same without their secret parts are matched by their order; that fails if their number has
// changed. A placeholder that is only a word, as in MASK=REDACTED, stays.
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

// coverOf returns how to hide a variable, and false if it has nothing to hide. It hides the whole value if all is set
// or the name looks secret, else only the secrets in the value. A value with a placeholder counts as hidden before.
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

// headers calls f for the headers that hold secrets: all except those in harmlessHeaders. Services choose their own
// names, so a list of secret headers would never be complete.
func headers(at, to string, values map[string]string, f func(s *secret)) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		// A placeholder under a harmless name was hidden by another release.
		if value := values[name]; value != "" && (!harmlessHeader(name) || value == Redacted) {
			f(&secret{name: at + "headers." + name, text: &value, cover: wholeText, to: to})
			values[name] = value
		}
	}
}

// harmlessHeaders are the headers that readers see, in lower case.
var harmlessHeaders = []string{
	"accept", "accept-charset", "accept-encoding", "accept-language", "cache-control", "content-encoding",
	"content-language", "content-type",
	"pragma", "user-agent", "x-requested-with",
}

func harmlessHeader(name string) bool { return slices.Contains(harmlessHeaders, strings.ToLower(name)) }

// Secret names: parts of names, as redactKey returns names, and whole words of them.
var (
	secretParts = []string{
		"password", "passwd", "passphrase", "passcode", "apikey", "apitoken", "accesskey", "secretkey", "privatekey", "secret", "token",
		"credential", "webhook", "sshpass", "dbpass", "rootpass", "userpass", "userpwd", "authkey", "masterkey",
		"encryptionkey", "signingkey",
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

// RedactVariables returns vars, or a changed copy if vars has secrets.
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

// server returns the part of a URL that says which server answers.
func server(link string) string {
	u, err := url.Parse(link)
	if err != nil {
		return link
	}
	return u.Scheme + "://" + u.Host
}

// redacted returns a definition with placeholders for its secrets. It changes the copy that own returns; without
// secrets it returns obj.
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

// Redacted returns c as users see it who may read but not change it.
func (c *CheckConfig) Redacted() *CheckConfig { return redacted(c, c.withOwnSecrets()) }

// WithSecrets works like Handler.WithSecrets.
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

// Redacted returns m as users see it who may read but not change it.
func (m *Mutator) Redacted() *Mutator { return redacted(m, m.withOwnSecrets()) }

// WithSecrets works like Handler.WithSecrets.
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
		// A build is identified by its URL as readers see it. By its index, it would get another build's headers after
		// one was removed.
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

// Redacted returns a as users see it who may read but not change it.
func (a *Asset) Redacted() *Asset { return redacted(a, a.withOwnSecrets()) }

// WithSecrets works like Handler.WithSecrets.
func (a *Asset) WithSecrets(old *Asset) (*Asset, error) {
	out := a.withOwnSecrets()
	if old == nil {
		return out, keepSecrets(out, nil)
	}
	return out, keepSecrets(out, old.withOwnSecrets())
}
