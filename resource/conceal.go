package resource

import (
	"encoding/base64"
	"encoding/json"
	"html"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// leastSecret is the shortest secret, in bytes, that is searched for in texts. Shorter ones would match everywhere.
	leastSecret = 4
	// leastPlain is the same for values that may not be secrets, for example of MODE=fast.
	leastPlain = 6
)

// Conceal replaces secrets in a text of a server or a command with placeholders. It finds secrets written as they are,
// escaped for URLs, HTML or JSON, and in base64, as logins are sent.
func Conceal(text string, secrets []string) string {
	found := spellingsIn(text, secrets)
	if found == nil {
		return text
	}
	var pairs []string
	for _, spelling := range found {
		pairs = append(pairs, spelling, Redacted)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// ConcealCut is Conceal for a text whose end was cut off. It also drops the beginning of a secret at the end.
func ConcealCut(text string, secrets []string) string {
	return Conceal(text[:wholeUntil(text, secrets)], secrets)
}

// maxOverlaps is how often wholeUntil steps back over a secret before it drops the whole text.
const maxOverlaps = 16

// wholeUntil returns where the longest beginning of a secret at the end of a text starts. It steps back over a whole
// secret that overlaps it: a cut there would show the beginning of that secret.
func wholeUntil(text string, secrets []string) int {
	at := len(text)
	for _, s := range secrets {
		for _, spelling := range spellings(s) {
			at = min(at, len(text)-overlap(text, spelling))
		}
	}
	if at == len(text) {
		return at
	}
	found := spellingsIn(text, secrets)
	for range maxOverlaps {
		next := at
		for _, spelling := range found {
			from, to := max(0, at-len(spelling)+1), min(len(text), at+len(spelling)-1)
			if i := strings.Index(text[from:to], spelling); i >= 0 {
				next = min(next, from+i)
			}
		}
		if next == at {
			return at
		}
		at = next
	}
	return 0
}

// overlap returns the length of the longest end of a text that is a proper prefix of a spelling. It is the search of
// Knuth, Morris and Pratt, because the text is not trusted: no text may make the search slow.
func overlap(text, spelling string) int {
	text = text[max(0, len(text)-len(spelling)+1):]
	spelling = spelling[:len(text)]
	back := make([]int, len(spelling)) // the longest prefix that also ends here
	n := 0
	for i := 1; i < len(spelling); i++ {
		for n > 0 && spelling[i] != spelling[n] {
			n = back[n-1]
		}
		if spelling[i] == spelling[n] {
			n++
		}
		back[i] = n
	}
	n = 0
	for i := range len(text) {
		for n > 0 && text[i] != spelling[n] {
			n = back[n-1]
		}
		if text[i] == spelling[n] {
			n++
		}
	}
	return n
}

// maxErrorText is the longest error text, in bytes, that ConcealError returns. Part of the text may not be ours.
const maxErrorText = 4 << 10

// ConcealError is Conceal for the text of an error. errors.Is and errors.As still work.
func ConcealError(err error, secrets []string) error {
	if err == nil {
		return nil
	}
	whole := err.Error()
	text := Conceal(whole, secrets)
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "…"
	}
	if text == whole {
		return err
	}
	return &concealedError{text, err}
}

type concealedError struct {
	text string
	err  error
}

func (e *concealedError) Error() string { return e.text }
func (e *concealedError) Unwrap() error { return e.err }

// spellings returns the ways to write a secret; none if the secret is too short to search for.
func spellings(s string) []string {
	if len(s) < leastSecret {
		return nil
	}
	return append(escaped(s), inBase64(s)...)
}

// escaped returns the spellings that keep letters and digits as they are.
func escaped(s string) []string {
	out := []string{s, url.QueryEscape(s), url.PathEscape(s), html.EscapeString(s), strings.ReplaceAll(s, "/", `\/`)}
	if quoted, err := json.Marshal(s); err == nil && utf8.ValidString(s) {
		out = append(out, string(quoted[1:len(quoted)-1]))
	}
	return out
}

func inBase64(s string) []string {
	var out []string
	for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
		out = append(out, e.EncodeToString([]byte(s)))
	}
	return out
}

// spellingsIn returns the spellings of secrets that occur in a text, the longest first. There may be thousands of
// secrets, the lines of a variable, and most do not occur. So it first searches for a part that several spellings
// share.
func spellingsIn(text string, secrets []string) []string {
	var out []string
	add := func(spellings []string) {
		for _, spelling := range spellings {
			if strings.Contains(text, spelling) {
				out = append(out, spelling)
			}
		}
	}
	var buf []byte
	for _, s := range secrets {
		if len(s) < leastSecret || len(s) > len(text) {
			continue // no spelling is shorter than the secret
		}
		if strings.Contains(text, longestWord(s)) {
			add(escaped(s))
		}
		// The variants of base64 differ in two characters, which no word has, and in the padding.
		buf = base64.RawStdEncoding.AppendEncode(buf[:0], []byte(s))
		if strings.Contains(text, longestWord(string(buf))) {
			add(inBase64(s))
		}
	}
	slices.SortFunc(out, func(a, b string) int { return len(b) - len(a) })
	return out
}

// longestWord returns the longest part of s that has only letters and digits, or "".
func longestWord(s string) string {
	from, to := 0, 0
	for begin, i := 0, 0; i <= len(s); i++ {
		if i < len(s) && ('a' <= s[i] && s[i] <= 'z' || 'A' <= s[i] && s[i] <= 'Z' || '0' <= s[i] && s[i] <= '9') {
			continue
		}
		if i-begin > to-from {
			from, to = begin, i
		}
		begin = i + 1
	}
	return s[from:to]
}

// SecretTexts returns the secrets of the handler's definition, as servers and commands may repeat them.
func (h *Handler) SecretTexts() []string { return secretTexts(h.withOwnSecrets()) }

// SecretTexts returns the secrets of the mutator's definition, as commands and scripts may repeat them.
func (m *Mutator) SecretTexts() []string { return secretTexts(m.withOwnSecrets()) }

func secretTexts(own secretive) (out []string) {
	own.secrets(func(s *secret) { out = append(out, s.parts(*s.text)...) })
	return out
}

// SecretFile is a file with a secret that a handler sends. User is the login name if the secret is a password.
type SecretFile struct{ Name, User string }

// Texts returns the secrets in the file's content, as servers may repeat them.
func (f SecretFile) Texts(content string) []string {
	if webURL(content) {
		return hookParts(content)
	}
	return loginParts(f.User, content)
}

// urlParts returns the secrets of a URL: the login, the path, and the parts of path and query that may be tokens.
func urlParts(link string) (out []string) {
	u, err := url.Parse(link)
	if err != nil {
		return []string{link}
	}
	if u.User != nil {
		password, _ := u.User.Password()
		out = append(out, loginTexts(u.User.String())...)
		out = append(out, loginParts(u.User.Username(), password)...)
	}
	// With its slash: without it, the path could be any word of the answer.
	if whole := strings.TrimRight(u.EscapedPath(), "/"); len(whole) > leastPlain {
		out = append(out, whole)
	}
	for part := range strings.SplitSeq(u.Path, "/") {
		if len(part) >= leastPlain && strings.ContainsAny(part, "0123456789") || len(part) >= leastToken {
			out = append(out, part)
		}
	}
	if len(u.RawQuery) >= leastPlain {
		out = append(out, u.RawQuery)
	}
	for name, values := range u.Query() {
		for _, value := range values {
			if len(value) >= leastPlain || SecretName(name) {
				out = append(out, value)
			}
		}
	}
	return out
}

// leastHook is the shortest last part of an incoming webhook's path that is taken for a token even without digits.
const leastHook = 8

// hookParts returns urlParts and the end of the path: services repeat it when they do not know the webhook.
func hookParts(link string) []string {
	out := urlParts(link)
	if u, err := url.Parse(link); err == nil {
		if last := path.Base(u.Path); len(last) >= leastHook {
			out = append(out, last)
		}
	}
	return out
}

// loginParts returns a password, or a token if there is no user, and the login in base64, as HTTP and SMTP send it.
func loginParts(user, password string) []string {
	if user == "" || password == "" {
		return []string{password}
	}
	return []string{password, user + ":" + password, "\x00" + user + "\x00" + password}
}

// headerParts returns the value of a header, the part after its scheme, and the login that this part may be.
func headerParts(value string) []string {
	out := []string{value}
	scheme, rest, ok := strings.Cut(value, " ")
	if !ok {
		return out
	}
	out = append(out, rest)
	if login, err := base64.StdEncoding.DecodeString(rest); err == nil && strings.EqualFold(scheme, "basic") {
		out = append(out, loginTexts(string(login))...)
	}
	return out
}

// usualVariables are no secrets. Their values occur in many texts.
var usualVariables = []string{"PATH", "LD_LIBRARY_PATH", "CPATH", "HOME", "LANG", "LC_ALL", "TZ"}

// variableParts returns the value of NAME=value and the secrets in it. A short value is left out unless its name is a
// secret's: it could be any word.
func variableParts(text string) []string {
	name, value, _ := strings.Cut(text, "=")
	if slices.Contains(usualVariables, name) || len(value) < leastPlain && !SecretName(name) {
		return nil
	}
	out := append(secretsWithin(value), value)
	if strings.Contains(value, "\n") { // a key; a command may print one of its lines
		for line := range strings.Lines(value) {
			if line = strings.TrimSpace(line); len(line) >= leastToken {
				out = append(out, line)
			}
		}
	}
	return out
}
