package render

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dlclark/regexp2/v2"
)

// maxMatch bounds one match of an expression that backtracks.
const maxMatch = 200 * time.Millisecond

// maxPattern bounds the length of a regular expression.
const maxPattern = 4 << 10

// maxName bounds a name that a regular expression makes: a replacement can double it each time.
const maxName = 4 << 10

// regex is a regular expression as Python reads it. Go's own engine, whose time is linear, does most; an expression
// that it cannot read, or of which the results would differ, goes to one that backtracks.
type regex struct {
	linear    *regexp.Regexp
	backtrack *regexp2.Regexp
}

func (c *call) regex(i int) (*regex, error) {
	re, err := compileRegex(c.text(i))
	if err != nil {
		return nil, c.fail(c.paramName(i), "%v", err)
	}
	return re, nil
}

func compileRegex(pattern string) (*regex, error) {
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("the regular expression has %d bytes, at most %d are read", len(pattern), maxPattern)
	}
	linear, linearErr := regexp.Compile(pattern)
	if linearErr == nil && (!linear.MatchString("") || startsAnchored(pattern)) {
		return &regex{linear: linear}, nil
	}
	// Python finds an empty match directly behind another match too, Go does not: the other engine agrees with Python.
	python := strings.NewReplacer("(?P<", "(?<", `\Z`, `\z`).Replace(pattern)
	python = namedReference.ReplaceAllString(python, `\k<$1>`)
	backtrack, err := regexp2.Compile(python, regexp2.OptionMaintainCaptureOrder())
	if err != nil {
		if linearErr == nil {
			return &regex{linear: linear}, nil
		}
		return nil, fmt.Errorf("cannot read the regular expression %q: %w", shorten(pattern), err)
	}
	backtrack.MatchTimeout = maxMatch
	return &regex{backtrack: backtrack}, nil
}

var namedReference = regexp.MustCompile(`\(\?P=(\w+)\)`)

// startsAnchored reports whether the expression can only match at the beginning of a text.
func startsAnchored(pattern string) bool {
	return strings.HasPrefix(strings.TrimLeft(pattern, "("), "^") && !strings.Contains(pattern, "|") &&
		!strings.Contains(pattern, "(?")
}

func (r *regex) match(s string) (bool, error) {
	if r.linear != nil {
		return r.linear.MatchString(s), nil
	}
	return r.backtrack.MatchString(s)
}

// groups is the number of groups, without the whole match.
func (r *regex) groups() int {
	if r.linear != nil {
		return r.linear.NumSubexp()
	}
	return len(r.backtrack.GetGroupNumbers()) - 1
}

func (r *regex) groupNumber(name string) int {
	if r.linear != nil {
		return r.linear.SubexpIndex(name)
	}
	return r.backtrack.GroupNumberFromName(name)
}

// replace replaces all matches in s by the replacement, in which \1, \g<1> and \g<name> are groups.
func (r *regex) replace(s, replacement string) (string, error) {
	parts, err := r.template(replacement)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	write := func(group func(i int) string) error {
		for _, p := range parts {
			if p.group < 0 {
				b.WriteString(p.text)
			} else {
				b.WriteString(group(p.group))
			}
		}
		if b.Len() > maxName {
			return fmt.Errorf("the new name is longer than %d bytes", maxName)
		}
		return nil
	}
	if r.linear != nil {
		at := 0
		for _, m := range r.linear.FindAllStringSubmatchIndex(s, -1) {
			b.WriteString(s[at:m[0]])
			at = m[1]
			err := write(func(i int) string {
				if m[2*i] < 0 {
					return ""
				}
				return s[m[2*i]:m[2*i+1]]
			})
			if err != nil {
				return "", err
			}
		}
		b.WriteString(s[at:])
		return b.String(), nil
	}
	letters := []rune(s)
	at := 0
	m, err := r.backtrack.FindRunesMatch(letters)
	for ; m != nil && err == nil; m, err = r.backtrack.FindNextMatch(m) {
		b.WriteString(string(letters[at:m.RuneIndex]))
		at = m.RuneIndex + m.RuneLength
		groups := m.Groups()
		err := write(func(i int) string {
			if len(groups[i].Captures) == 0 {
				return ""
			}
			return groups[i].String()
		})
		if err != nil {
			return "", err
		}
	}
	if err != nil {
		return "", fmt.Errorf("match %q: %w", shorten(s), err)
	}
	b.WriteString(string(letters[at:]))
	return b.String(), nil
}

// replacementPart is text, or a group if its number is not negative.
type replacementPart struct {
	text  string
	group int
}

// template reads a replacement.
func (r *regex) template(s string) ([]replacementPart, error) {
	var parts []replacementPart
	var text strings.Builder
	group := func(n int, name string) error {
		if n < 0 || n > r.groups() {
			return fmt.Errorf("the regular expression has no group %s", shorten(name))
		}
		if text.Len() > 0 {
			parts = append(parts, replacementPart{text: text.String(), group: -1})
			text.Reset()
		}
		parts = append(parts, replacementPart{group: n})
		return nil
	}
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			text.WriteByte(s[i])
			continue
		}
		if i++; i == len(s) {
			return nil, fmt.Errorf("the replacement %q ends with a backslash", shorten(s))
		}
		switch ch := s[i]; {
		case ch == 'g':
			end := strings.IndexByte(s[i:], '>')
			if i+1 >= len(s) || s[i+1] != '<' || end < 0 {
				return nil, fmt.Errorf("the replacement %q has \\g without <name>", shorten(s))
			}
			name := s[i+2 : i+end]
			n, err := strconv.Atoi(name)
			if err != nil {
				if n = r.groupNumber(name); name == "" {
					n = -1
				}
			}
			if err := group(n, name); err != nil {
				return nil, err
			}
			i += end
		case ch >= '0' && ch <= '9':
			digits := 1
			octal := ch == '0'
			for digits < 3 && i+digits < len(s) && s[i+digits] >= '0' && s[i+digits] <= '9' {
				if octal && s[i+digits] > '7' {
					break
				}
				digits++
			}
			if !octal && digits == 3 {
				if octal = ch <= '3' && s[i+1] <= '7' && s[i+2] <= '7'; !octal {
					digits = 2
				}
			}
			word := s[i : i+digits]
			i += digits - 1
			if octal {
				n, _ := strconv.ParseUint(word, 8, 16)
				text.WriteRune(rune(n))
				continue
			}
			n, _ := strconv.Atoi(word)
			if err := group(n, word); err != nil {
				return nil, err
			}
		case strings.IndexByte("abfnrtv", ch) >= 0:
			text.WriteByte("\a\b\f\n\r\t\v"[strings.IndexByte("abfnrtv", ch)])
		case ch == '\\':
			text.WriteByte('\\')
		case ch >= 'a' && ch <= 'z' || ch >= 'A' && ch <= 'Z':
			return nil, fmt.Errorf("the replacement %q has the unknown escape \\%c", shorten(s), ch)
		default:
			text.WriteByte('\\')
			text.WriteByte(ch)
		}
	}
	if text.Len() > 0 {
		parts = append(parts, replacementPart{text: text.String(), group: -1})
	}
	return parts, nil
}
