// Package inifile reads INI files as Python's configparser does, which Graphite's storage-schemas.conf,
// storage-aggregation.conf and relay-rules.conf are written for.
//
// Sections keep their order. Keys are lower-cased and end at the first "=" or ":". A line that is indented deeper than
// its key continues the value, also behind empty lines. Comments are whole lines that begin with "#" or ";". A second
// section or key of the same name is an error, and %% in a value is one %, while %(key)s is the value of another key.
package inifile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// MaxSections and MaxLine bound a file; MaxLine is in bytes.
const (
	MaxSections = 20_000
	MaxLine     = 64 << 10
	maxDepth    = 10
	maxSteps    = 1000 // of %(key)s in one value
	maxValue    = 256 << 10
)

// defaultSection has the values of keys that a section does not have itself.
const defaultSection = "DEFAULT"

// Section is one section of a file.
type Section struct {
	Name string
	Line int // the line of its name, counted from 1
	keys map[string]Value
}

// Value is a key's value.
type Value struct {
	Text string
	Line int // the line of its key
}

// Get returns the value of a key, which is in lower case.
func (s *Section) Get(key string) (v Value, ok bool) {
	v, ok = s.keys[key]
	return v, ok
}

// Keys returns the keys in alphabetic order.
func (s *Section) Keys() []string { return slices.Sorted(maps.Keys(s.keys)) }

// Parse reads a file. Errors name the line as "line 3".
func Parse(text string) ([]Section, error) {
	var p parser
	p.sections = map[string]bool{}
	p.defaults = map[string]*raw{}
	// Python opens the file with universal newlines.
	text = strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\r\n", "\n")
	for i, line := range strings.Split(strings.ReplaceAll(text, "\r", "\n"), "\n") {
		if len(line) > MaxLine {
			return nil, fmt.Errorf("line %d has %d bytes, at most %d are allowed", i+1, len(line), MaxLine)
		}
		if err := p.line(i+1, line); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	for i := range p.found {
		s := &p.found[i]
		keys := map[string]*raw{}
		maps.Copy(keys, p.defaults)
		maps.Copy(keys, p.keys[i])
		s.keys = make(map[string]Value, len(keys))
		for k, v := range keys {
			steps := 0
			text, err := interpolate(keys, v.text(), 0, &steps)
			if err != nil {
				return nil, fmt.Errorf("line %d: section %q, key %q: %w", v.line, s.Name, k, err)
			}
			s.keys[k] = Value{text, v.line}
		}
	}
	return p.found, nil
}

// raw is a value as it stands in the file.
type raw struct {
	lines []string
	line  int
}

func (r *raw) text() string { return strings.TrimRight(strings.Join(r.lines, "\n"), " \t\n\v\f\r") }

type parser struct {
	found    []Section
	keys     []map[string]*raw // of found
	sections map[string]bool
	defaults map[string]*raw

	current map[string]*raw // of the section that the lines are in; nil before the first
	value   *raw            // the value that an indented line continues
	indent  int             // of the line of value's key
}

func (p *parser) line(number int, line string) error {
	text := strings.TrimSpace(line)
	if strings.HasPrefix(text, "#") || strings.HasPrefix(text, ";") {
		return nil
	}
	if text == "" {
		if p.value != nil {
			p.value.lines = append(p.value.lines, "")
		}
		return nil
	}
	indent := len(line) - len(strings.TrimLeft(line, " \t\v\f"))
	if p.value != nil && indent > p.indent {
		p.value.lines = append(p.value.lines, text)
		return nil
	}
	p.indent = indent
	if end := strings.LastIndexByte(text, ']'); text[0] == '[' && end > 1 {
		return p.section(number, text[1:end])
	}
	if p.current == nil {
		return fmt.Errorf("%q stands before the first section", short(text))
	}
	at := strings.IndexAny(text, "=:")
	if at < 0 {
		return fmt.Errorf("%q is neither [section] nor key = value", short(text))
	}
	key := strings.ToLower(strings.TrimSpace(text[:at]))
	if key == "" {
		return fmt.Errorf("%q has no key", short(text))
	}
	if old := p.current[key]; old != nil {
		return fmt.Errorf("the section has the key %q already, in line %d", key, old.line)
	}
	p.value = &raw{[]string{strings.TrimSpace(text[at+1:])}, number}
	p.current[key] = p.value
	return nil
}

func (p *parser) section(number int, name string) error {
	p.value = nil
	if name == defaultSection {
		p.current = p.defaults
		return nil
	}
	if p.sections[name] {
		return fmt.Errorf("there is a section %q already", name)
	}
	if len(p.found) == MaxSections {
		return fmt.Errorf("there are more than %d sections", MaxSections)
	}
	p.sections[name] = true
	p.current = map[string]*raw{}
	p.found = append(p.found, Section{Name: name, Line: number})
	p.keys = append(p.keys, p.current)
	return nil
}

// interpolate replaces %% and %(key)s.
func interpolate(keys map[string]*raw, text string, depth int, steps *int) (string, error) {
	if !strings.Contains(text, "%") {
		return text, nil
	}
	if depth > maxDepth {
		return "", fmt.Errorf("%%(key)s is nested deeper than %d", maxDepth)
	}
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "%")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		if strings.HasPrefix(after, "%") {
			b.WriteByte('%')
			text = after[1:]
			continue
		}
		name, rest, closed := strings.Cut(after, ")s")
		if !strings.HasPrefix(name, "(") || !closed || strings.Contains(name, ")") {
			return "", fmt.Errorf("%% must be followed by %% or (key)s, but %q follows", short(after))
		}
		other := keys[strings.ToLower(name[1:])]
		if other == nil {
			return "", fmt.Errorf("%%(%s)s: there is no such key", short(name[1:]))
		}
		if *steps++; *steps > maxSteps {
			return "", fmt.Errorf("%%(key)s stands there more than %d times", maxSteps)
		}
		value, err := interpolate(keys, other.text(), depth+1, steps)
		if err != nil {
			return "", err
		}
		if b.WriteString(value); b.Len() > maxValue {
			return "", fmt.Errorf("the value has more than %d bytes", maxValue)
		}
		text = rest
	}
}

func short(text string) string {
	if len(text) > 80 {
		return strings.ToValidUTF8(text[:80], "") + "…"
	}
	return text
}
