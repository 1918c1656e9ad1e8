package resource

import (
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// span is a part of a text.
type span struct{ from, to int }

// hideWithin hides the secrets in a text that people wrote, for example the value of an environment variable: in URLs
// the login, the query and paths with a token; the login of a data source name; the value after the name of a secret.
func hideWithin(text string) string { return hideSpans(text, secretSpans) }

// secretsWithin returns the secrets that hideWithin hides.
func secretsWithin(text string) []string { return textsOf(text, secretSpans(text)) }

// anySecret is a text that hideWithin hides in every place where it hides a placeholder, and leaves elsewhere.
const anySecret = "!:a1a1a1a1a1a1a1a1a1a1a1a1"

// placeholderOfSecret reports whether hideWithin would have put the placeholder where it is in a text. In a strange URL
// that may be the place of the host.
func placeholderOfSecret(text string) bool {
	if strings.Contains(text, "://"+Redacted) {
		return true
	}
	text = strings.ReplaceAll(text, Redacted, anySecret)
	return strings.Count(hideWithin(text), anySecret) < strings.Count(text, anySecret)
}

// hideLogin hides the login and the query of a text that is one URL, possibly made by a template. It shows the path: an
// asset's path has its version.
func hideLogin(link string) string { return hideSpans(link, loginSpans) }

// loginSpans takes the whole text as the URL, with white space. A text without a scheme may be the rest of a URL.
func loginSpans(link string) []span {
	if !strings.Contains(link, "://") {
		return spansOfURL(link, 0, len(link), false)
	}
	return urlSpans(link, false, toTheEnd)
}

func toTheEnd(text string, from int) int { return len(text) - from }

// loginsOf returns the secrets that hideLogin hides.
func loginsOf(link string) []string { return textsOf(link, loginSpans(link)) }

// ShownURL returns a URL for log lines and results: without its login and its query.
func ShownURL(link string) string { return hideLogin(link) }

// secretSpans returns the secrets in a text, in order and without overlaps. Most texts have none of the characters that
// it looks for.
func secretSpans(text string) []span {
	if !strings.ContainsAny(text, "=:") {
		return nil
	}
	spans := append(urlSpans(text, true, lengthOfURL), namedSpans(text)...)
	if at, ok := dataSourceLogin(text); ok {
		spans = append(spans, at)
	}
	slices.SortFunc(spans, func(a, b span) int { return a.from - b.from })
	return merge(spans)
}

// merge joins spans that touch. They must be sorted by their beginnings.
func merge(spans []span) []span {
	var out []span
	for _, s := range spans {
		if last := len(out) - 1; last >= 0 && s.from <= out[last].to {
			out[last].to = max(out[last].to, s.to)
			continue
		}
		out = append(out, s)
	}
	return out
}

// hideSpans puts placeholders in place of the spans that find returns, until find returns no others. So hiding the
// result again does not change it: this is how a placeholder is recognised.
func hideSpans(text string, find func(string) []span) string {
	for range 4 {
		spans := find(text)
		if len(spans) == 0 {
			return text
		}
		shown := replaceSpans(text, spans)
		if shown == text {
			return text
		}
		text = shown
	}
	return Redacted
}

func replaceSpans(text string, spans []span) string {
	var b strings.Builder
	at := 0
	for _, s := range spans {
		b.WriteString(text[at:s.from])
		b.WriteString(Redacted)
		at = s.to
	}
	b.WriteString(text[at:])
	return b.String()
}

// textsOf returns the texts of spans, and for a login also the password.
func textsOf(text string, spans []span) []string {
	var out []string
	for _, s := range spans {
		out = append(out, loginTexts(text[s.from:s.to])...)
	}
	return out
}

// loginTexts returns a text that may be a login, NAME:PASSWORD, and its password, both as they are and unescaped.
func loginTexts(text string) []string {
	out := []string{text}
	if _, password, ok := strings.Cut(text, ":"); ok {
		out = append(out, password)
	}
	for _, s := range out {
		if plain, err := url.PathUnescape(s); err == nil && plain != s {
			out = append(out, plain)
		}
	}
	return out
}

// maxURLs is how many URLs of a text are searched; the text after them is hidden. It bounds the work for texts of
// agents.
const maxURLs = 16

// urlSpans returns the secrets in the URLs of a text. paths says whether to include tokens in paths. length returns the
// length of the URL that continues at from.
func urlSpans(text string, paths bool, length func(text string, from int) int) []span {
	var out []span
	for at, n := 0, 0; ; n++ {
		i := strings.Index(text[at:], "://")
		if i < 0 {
			break
		}
		at += i + 3
		if n == maxURLs {
			out = append(out, span{at, len(text)})
			break
		}
		out = append(out, spansOfURL(text, at, at+length(text, at), paths)...)
	}
	slices.SortFunc(out, func(a, b span) int { return a.from - b.from })
	return merge(out)
}

// lengthOfURL returns the length of a URL, after its scheme, in a text that people wrote. It ends at white space, or at
// the closing quote.
func lengthOfURL(text string, from int) int {
	rest := text[from:]
	end := strings.IndexFunc(rest, unicode.IsSpace)
	if end < 0 {
		end = len(rest)
	}
	scheme := strings.TrimRightFunc(text[:from-3], isSchemeRune)
	if scheme == "" {
		return end
	}
	if quote := scheme[len(scheme)-1]; quote == '"' || quote == '\'' || quote == '`' {
		if i := strings.IndexByte(rest[:end], quote); i >= 0 {
			return i
		}
	}
	return end
}

func isSchemeRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("+-.:", r)
}

// spansOfURL returns the secrets in text[from:to], a URL without its scheme.
func spansOfURL(text string, from, to int, paths bool) (out []span) {
	add := func(from, to int) {
		if from < to {
			out = append(out, span{from, to})
		}
	}
	rest := text[from:to]
	host := indexOr(rest, "/?#", len(rest))
	login := strings.LastIndexByte(rest[:host], '@')
	if login < 0 && !endsInPort(rest[:host]) {
		login = strings.LastIndexByte(rest, '@') // a password that should have been escaped
	}
	if login >= 0 {
		add(from, from+login)
		host = login + indexOr(rest[login:], "/?#", len(rest)-login)
	}
	path := host + indexOr(rest[host:], "?#", len(rest)-host)
	add(from+path+1, to)
	if paths {
		for _, s := range tokenSpans(rest[login+1:host], rest[host:path]) {
			add(from+host+s.from, from+host+s.to)
		}
	}
	return out
}

// indexOr is strings.IndexAny with a value for none.
func indexOr(s, chars string, none int) int {
	if i := strings.IndexAny(s, chars); i >= 0 {
		return i
	}
	return none
}

// endsInPort reports whether a host has a number after its last colon, or no colon.
func endsInPort(host string) bool {
	host = host[strings.LastIndexByte(host, ']')+1:]
	_, port, ok := strings.Cut(host, ":")
	if i := strings.LastIndexByte(port, ':'); i >= 0 {
		port = port[i+1:]
	}
	return !ok || strings.Trim(port, "0123456789") == ""
}

// tokenSpans returns the parts of a URL's path that give access: the whole path at hosts of incoming webhooks,
// everything after a part called webhooks or hooks, and parts that look like tokens.
func tokenSpans(host, path string) (out []span) {
	if strings.Trim(path, "/") == "" {
		return nil
	}
	for label := range strings.SplitSeq(host, ".") {
		if isHook(label) {
			return []span{{1, len(path)}}
		}
	}
	at := 0
	for part := range strings.SplitSeq(path, "/") {
		end := at + len(part)
		switch {
		case isHook(part) && strings.Trim(path[end:], "/") != "":
			return append(out, span{end + 1, len(path)})
		case isToken(part):
			out = append(out, span{at, end})
		}
		at = end + 1
	}
	return out
}

// isHook reports whether a part of a URL's host or path announces an incoming webhook.
func isHook(part string) bool {
	part = strings.ToLower(part)
	return part == "hook" || part == "hooks" || strings.HasPrefix(part, "webhook") && !strings.Contains(part, "-") && len(part) < 12
}

// leastToken is the shortest part of a path, with letters and digits, that is taken for a token.
const leastToken = 20

func isToken(part string) bool {
	return len(part) >= leastToken && !strings.Contains(part, ".") && strings.ContainsAny(part, "0123456789") &&
		strings.ContainsFunc(part, unicode.IsLetter)
}

// dataSourceLogin returns the login at the beginning of a data source name without a scheme:
// USER:PASSWORD@tcp(HOST)/NAME.
func dataSourceLogin(text string) (span, bool) {
	at := strings.LastIndexByte(text, '@')
	if at < 0 || strings.Contains(text, "://") || !strings.Contains(text[:at], ":") {
		return span{}, false
	}
	behind := strings.TrimLeft(text[at+1:], "abcdefghijklmnopqrstuvwxyz0123456789")
	if !strings.HasPrefix(behind, "(") && !strings.HasPrefix(behind, "/") {
		return span{}, false
	}
	return span{0, at}, true
}

// namedSpans returns the values after names of secrets: password=x, "token": "x", Authorization: Bearer x.
func namedSpans(text string) (out []span) {
	for i := 0; i < len(text); i++ {
		if text[i] != '=' && (text[i] != ':' || strings.HasPrefix(text[i:], "://")) {
			continue
		}
		name := nameBefore(text[:i])
		if name == "" || !SecretName(name) {
			continue
		}
		from := i + 1
		for from < len(text) && (text[from] == ' ' || text[from] == '\t') {
			from++
		}
		s := valueAt(text, from)
		if header := strings.ToLower(name); strings.HasSuffix(header, "authorization") || strings.HasSuffix(header, "cookie") {
			s = span{from, from + indexOr(text[from:], "\r\n\"'", len(text)-from)} // a scheme and the rest of the line
		}
		if s.from < s.to {
			out = append(out, s)
			i = s.to - 1
		}
	}
	return out
}

// nameBefore returns the name at the end of a text, without quotes.
func nameBefore(text string) string {
	text = strings.TrimRight(strings.TrimRight(text, " \t"), `"'\`)
	return text[len(strings.TrimRightFunc(text, func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-' || r == '.'
	})):]
}

// valueAt returns the value that begins at from. It ends at the closing quote, or at white space, a semicolon or an
// ampersand.
func valueAt(text string, from int) span {
	rest := text[from:]
	if rest != "" && (rest[0] == '"' || rest[0] == '\'') {
		for i := 1; i < len(rest); i++ {
			switch rest[i] {
			case '\\':
				i++
			case rest[0]:
				return span{from + 1, from + i}
			}
		}
		return span{from + 1, len(text)}
	}
	end := indexOr(rest, " \t\r\n;&", len(rest))
	switch strings.ToLower(rest[:end]) {
	case "bearer", "basic", "token", "digest", "apikey": // the scheme of a header, and the secret after it
		if behind := strings.TrimLeft(rest[end:], " \t"); behind != "" {
			end = len(rest) - len(behind) + indexOr(behind, " \t\r\n;&", len(behind))
		}
	}
	return span{from, from + end}
}
