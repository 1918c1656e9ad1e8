package selector

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// token is a piece of a selector's text.
type token struct {
	kind tokenKind
	text string // of a word or string: its value
	at   int    // where it begins, in bytes
}

type tokenKind uint8

const (
	tokenEnd tokenKind = iota
	tokenWord
	tokenString
	tokenSymbol
)

// symbols are tried in this order: longer ones come first.
var symbols = []string{"&&", "||", "==", "!=", "=~", "!~", "<=", ">=", "<", ">", "!", "(", ")", "[", "]", ","}

func (t token) String() string {
	if t.kind == tokenEnd {
		return "the end"
	}
	return fmt.Sprintf("%q", t.text)
}

// is reports whether the token is the given symbol.
func (t token) is(symbol string) bool { return t.kind == tokenSymbol && t.text == symbol }

// lex splits text into tokens.
func lex(s string) ([]token, error) {
	var tokens []token
	for i := 0; ; {
		i += len(s[i:]) - len(strings.TrimLeftFunc(s[i:], unicode.IsSpace))
		if i == len(s) {
			return append(tokens, token{kind: tokenEnd, at: i}), nil
		}
		t, n, err := lexOne(s[i:])
		if err != nil {
			return nil, fmt.Errorf("%w at character %d", err, 1+utf8.RuneCountInString(s[:i]))
		}
		t.at = i
		tokens = append(tokens, t)
		i += n
	}
}

// lexOne reads the token at the start of s, and returns its length too.
func lexOne(s string) (token, int, error) {
	if c := s[0]; c == '"' || c == '\'' {
		text, n, ok := unquote(s)
		if !ok {
			return token{}, 0, fmt.Errorf("quote %c is not closed", c)
		}
		return token{kind: tokenString, text: text}, n, nil
	}
	for _, symbol := range symbols {
		if strings.HasPrefix(s, symbol) {
			return token{kind: tokenSymbol, text: symbol}, len(symbol), nil
		}
	}
	n := strings.IndexFunc(s, func(r rune) bool { return !wordRune(r) })
	if n < 0 {
		n = len(s)
	}
	if n == 0 {
		r, _ := utf8.DecodeRuneInString(s)
		switch r {
		case '=':
			return token{}, 0, fmt.Errorf(`unexpected "=" (equality is "==")`)
		case '&', '|':
			return token{}, 0, fmt.Errorf(`unexpected "%c" (it must be doubled)`, r)
		}
		return token{}, 0, fmt.Errorf("unexpected %q", string(r))
	}
	return token{kind: tokenWord, text: s[:n]}, n, nil
}

// wordRune reports whether r may be in a word without quotes. Sensu allows letters, digits and "_./"; the others make
// times, subscriptions and names with dashes words too.
func wordRune(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_./:-+@", r)
}

// unquote reads the string at the start of s. A backslash is literal, except before the quote and before another
// backslash.
func unquote(s string) (text string, n int, ok bool) {
	var b strings.Builder
	quote := s[0]
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == quote:
			return b.String(), i + 1, true
		case c == '\\' && i+1 < len(s) && (s[i+1] == quote || s[i+1] == '\\'):
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", 0, false
}
