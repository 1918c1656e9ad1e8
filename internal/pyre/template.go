package pyre

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Template is a replacement of re.sub.
type Template struct {
	parts []part
}

// part is a text, or a group if its number is not negative.
type part struct {
	text  string
	group int
}

// Template reads a replacement for the matches of r as Python reads it: \1, \g<1> and \g<name> are groups, \n and the
// like are characters, \012 is an octal character, and other letters behind a backslash are errors.
func (r *Regexp) Template(replacement string) (*Template, error) {
	t := &Template{}
	var text strings.Builder
	group := func(n int) error {
		if n >= len(r.groups) {
			return fmt.Errorf("replacement %q: the pattern has no group %d", replacement, n)
		}
		if text.Len() > 0 {
			t.parts = append(t.parts, part{text.String(), -1})
			text.Reset()
		}
		t.parts = append(t.parts, part{"", n})
		return nil
	}
	for i := 0; i < len(replacement); i++ {
		c := replacement[i]
		if c != '\\' {
			text.WriteByte(c)
			continue
		}
		if i++; i == len(replacement) {
			return nil, fmt.Errorf("replacement %q: there is nothing behind the last backslash", replacement)
		}
		rest := replacement[i:]
		switch c = rest[0]; {
		case c == 'g':
			name, _, closed := strings.Cut(rest[1:], ">")
			if !strings.HasPrefix(name, "<") || !closed || len(name) == 1 {
				return nil, fmt.Errorf("replacement %q: \\g needs a group, as \\g<1> or \\g<name>", replacement)
			}
			name = name[1:]
			n, err := strconv.Atoi(name)
			switch {
			case err != nil || name[0] == '+' || name[0] == '-':
				if n = slices.Index(r.groups, name); n < 1 {
					return nil, fmt.Errorf("replacement %q: the pattern has no group %q", replacement, name)
				}
			}
			if err := group(n); err != nil {
				return nil, err
			}
			i += len(name) + 2
		case c == '0':
			n := 1
			for n < 3 && n < len(rest) && octal(rest[n]) {
				n++
			}
			code, _ := strconv.ParseUint(rest[:n], 8, 32) // octal digits only
			text.WriteRune(rune(code & 0xff))
			i += n - 1
		case c >= '1' && c <= '9':
			n := 1
			if len(rest) > 1 && rest[1] >= '0' && rest[1] <= '9' {
				n = 2
				if len(rest) > 2 && octal(c) && octal(rest[1]) && octal(rest[2]) {
					code, _ := strconv.ParseUint(rest[:3], 8, 32) // octal digits only
					if code > 0o377 {
						return nil, fmt.Errorf("replacement %q: \\%s is no octal character", replacement, rest[:3])
					}
					text.WriteRune(rune(code))
					i += 2
					continue
				}
			}
			number, _ := strconv.Atoi(rest[:n]) // digits only
			if err := group(number); err != nil {
				return nil, err
			}
			i += n - 1
		default:
			if at := strings.IndexByte(`abfnrtv\`, c); at >= 0 {
				text.WriteByte("\a\b\f\n\r\t\v\\"[at])
			} else if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
				return nil, fmt.Errorf("replacement %q: \\%c is no escape", replacement, c)
			} else {
				text.WriteByte('\\')
				text.WriteByte(c)
			}
		}
	}
	if text.Len() > 0 {
		t.parts = append(t.parts, part{text.String(), -1})
	}
	return t, nil
}

func octal(c byte) bool { return c >= '0' && c <= '7' }

// Substitute replaces all matches in text by t, as Python's re.sub does. t must be of r. most bounds the result in
// bytes; ok is false, and the result is text, if the result would be longer.
func (r *Regexp) Substitute(text string, t *Template, most int) (result string, ok bool) {
	found := r.matches(text)
	if len(found) == 0 {
		return text, true
	}
	var b strings.Builder
	last := 0
	for _, at := range found {
		b.WriteString(text[last:at[0]])
		for _, p := range t.parts {
			if p.group < 0 {
				b.WriteString(p.text)
			} else if at[2*p.group] >= 0 {
				b.WriteString(text[at[2*p.group]:at[2*p.group+1]])
			}
			if b.Len() > most {
				return text, false
			}
		}
		last = at[1]
	}
	b.WriteString(text[last:])
	if b.Len() > most {
		return text, false
	}
	return b.String(), true
}
