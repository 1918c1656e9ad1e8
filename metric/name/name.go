// Package name knows the names of series: dotted paths, perhaps with tags, as senders spell them and as the store has
// them. The receivers, the store and the tag index call it.
//
// A tagged name has one canonical form, metric;tag=value;tag=value, in which the segments are sorted as bytes.
// Canonical makes it of the two spellings that senders use, this one and OpenMetrics' metric{tag="value"}. A canonical
// name stays as it is. Names are bytes: the package does not ask for UTF-8. Functions that change nothing return their
// argument and allocate nothing.
package name

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxTags bounds the tags of one name.
const MaxTags = 256

// Tag is one tag of a series.
type Tag struct{ Name, Value string }

// HasTags reports whether the name is spelt with tags, right or wrong. It looks for a semicolon, or "} at the end.
func HasTags[T string | []byte](name T) bool {
	if openMetrics(name) {
		return true
	}
	return index(name, ';') >= 0
}

func index[T string | []byte](name T, c byte) int {
	switch n := any(name).(type) {
	case string:
		return strings.IndexByte(n, c)
	case []byte:
		return bytes.IndexByte(n, c)
	}
	return -1
}

// openMetrics reports whether the name ends as a name in OpenMetrics' spelling does.
func openMetrics[T string | []byte](name T) bool {
	n := len(name)
	return n >= 2 && name[n-1] == '}' && name[n-2] == '"'
}

// braces reports whether the name is in OpenMetrics' spelling. A name with a semicolon is not, so that a canonical name
// whose last value ends in "} is not read a second time in another way.
func braces(name string) bool {
	return openMetrics(name) && strings.IndexByte(name, '{') >= 0 && strings.IndexByte(name, ';') < 0
}

// Canonical returns the canonical form of a name. It returns name itself, or a part of it, if that has no tags, and
// name itself if it is canonical already. An error says why the name cannot be read; carbon stores such a name as it
// is.
func Canonical(name []byte) ([]byte, error) {
	if !HasTags(name) {
		return plain(name)
	}
	metric, tags, err := Parse(string(name))
	if err != nil {
		return nil, err
	}
	formed := Append(make([]byte, 0, len(name)), metric, tags)
	if bytes.Equal(formed, name) {
		return name, nil
	}
	return formed, nil
}

func plain(name []byte) ([]byte, error) {
	for i, c := range name {
		if c != '~' {
			return name[i:], nil
		}
	}
	return nil, errNoMetric(string(name))
}

// Append appends the canonical form of a metric and its tags, which are sorted as Parse returns them.
func Append(dst []byte, metric string, tags []Tag) []byte {
	dst = append(dst, metric...)
	for _, t := range tags {
		dst = append(dst, ';')
		dst = append(dst, t.Name...)
		dst = append(dst, '=')
		dst = append(dst, t.Value...)
	}
	return dst
}

// Parse splits a name into its metric and its tags. The tags are in canonical order, each name once; of equal names the
// last one counts. The metric has no leading ~. It is also the series' tag "name", which is not among the tags: one
// that the sender gave is left out.
func Parse(name string) (metric string, tags []Tag, err error) {
	if braces(name) {
		metric, tags, err = parseBraces(name)
	} else {
		metric, tags, err = parseSegments(name)
	}
	if err != nil {
		return "", nil, err
	}
	metric = strings.TrimLeft(metric, "~")
	if metric == "" {
		return "", nil, errNoMetric(name)
	}
	return metric, sorted(tags), nil
}

// sorted brings the tags in canonical order, and leaves out "name" and all but the last of equal names.
func sorted(tags []Tag) []Tag {
	kept := tags[:0]
	for i, t := range tags {
		again := func(other Tag) bool { return other.Name == t.Name }
		if t.Name != "name" && !slices.ContainsFunc(tags[i+1:], again) {
			kept = append(kept, t)
		}
	}
	slices.SortFunc(kept, compare)
	return kept
}

// compare orders tags as byte strings of "tag=value". The names differ, but one may be the beginning of the other: then
// the "=" behind the shorter one is compared with a byte of the longer one.
func compare(a, b Tag) int {
	n := min(len(a.Name), len(b.Name))
	if c := strings.Compare(a.Name[:n], b.Name[:n]); c != 0 {
		return c
	}
	if len(a.Name) == len(b.Name) {
		return strings.Compare(a.Value, b.Value)
	}
	if len(a.Name) > n {
		return int(a.Name[n]) - '='
	}
	return '=' - int(b.Name[n])
}

// parseSegments reads metric;tag=value;tag=value.
func parseSegments(name string) (metric string, tags []Tag, err error) {
	metric, rest, more := strings.Cut(name, ";")
	if !more {
		return metric, nil, nil
	}
	if openMetrics(metric) && strings.IndexByte(metric, '{') >= 0 {
		return "", nil, fmt.Errorf("series name %q: its tags are spelt in two ways", short(name))
	}
	n := strings.Count(rest, ";") + 1
	if n > MaxTags {
		return "", nil, errTooMany(name)
	}
	tags = make([]Tag, 0, n)
	for more {
		var segment string
		segment, rest, more = strings.Cut(rest, ";")
		tag, value, ok := strings.Cut(segment, "=")
		if !ok {
			return "", nil, fmt.Errorf("series name %q: segment %q has no =", short(name), short(segment))
		}
		if err := Check(tag, value); err != nil {
			return "", nil, fmt.Errorf("series name %q: %w", short(name), err)
		}
		tags = append(tags, Tag{tag, value})
	}
	return metric, tags, nil
}

// parseBraces reads metric{tag="value",tag="value"}. A value has \" for a quotation mark and \\ for a backslash.
func parseBraces(name string) (metric string, tags []Tag, err error) {
	metric, rest, _ := strings.Cut(name, "{")
	rest = rest[:len(rest)-1] // the brace at the end
	for {
		tag, after, ok := strings.Cut(rest, `="`)
		if !ok {
			return "", nil, fmt.Errorf("series name %q: no tag=\"value\" at %q", short(name), short(rest))
		}
		value, after, ok := quoted(after)
		if !ok {
			return "", nil, fmt.Errorf("series name %q: the value of tag %q has no end", short(name), short(tag))
		}
		if err := Check(tag, value); err != nil {
			return "", nil, fmt.Errorf("series name %q: %w", short(name), err)
		}
		if len(tags) == MaxTags {
			return "", nil, errTooMany(name)
		}
		tags = append(tags, Tag{tag, value})
		if after == "" {
			return metric, tags, nil
		}
		if after[0] != ',' {
			return "", nil, fmt.Errorf("series name %q: no comma behind the value of tag %q", short(name), short(tag))
		}
		if rest = after[1:]; rest == "" {
			return metric, tags, nil // a comma at the end, as OpenMetrics allows it
		}
	}
}

// quoted reads a value up to its closing quotation mark.
func quoted(s string) (value, rest string, ok bool) {
	end := strings.IndexAny(s, `"\`)
	if end >= 0 && s[end] == '"' {
		return s[:end], s[end+1:], true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '"' {
			return b.String(), s[i+1:], true
		}
		if c == '\\' && i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\\') {
			i++
			c = s[i]
		}
		b.WriteByte(c)
	}
	return "", "", false
}

// Check says why a tag cannot have this name or this value.
func Check(tag, value string) error {
	if tag == "" {
		return errors.New("a tag has no name")
	}
	if strings.ContainsAny(tag, ";!^= \t") {
		return fmt.Errorf("tag %q: its name has one of ; ! ^ = or a blank", short(tag))
	}
	if value == "" {
		return fmt.Errorf("tag %q has no value", short(tag))
	}
	if strings.IndexByte(value, ';') >= 0 {
		return fmt.Errorf("tag %q: its value has a semicolon", short(tag))
	}
	if value[0] == '~' {
		return fmt.Errorf("tag %q: its value begins with ~", short(tag))
	}
	return nil
}

func errNoMetric(name string) error { return fmt.Errorf("series name %q: no metric", short(name)) }

func errTooMany(name string) error {
	return fmt.Errorf("series name %q: more than %d tags", short(name), MaxTags)
}

// short bounds a name in an error.
func short(name string) string {
	if len(name) > 100 {
		return name[:100] + "…"
	}
	return name
}

// Clean makes a usable path of the part of a name before its tags: it removes dots at the beginning, at the end and
// behind dots, and replaces blanks and control characters with _. Senders write such names by mistake; a store of paths
// would have empty nodes for them. The tags stay as they are. It returns name itself if that is clean, otherwise a
// copy. The result may be empty.
func Clean(name []byte) []byte {
	path := name
	if i := bytes.IndexByte(name, ';'); i >= 0 {
		path = name[:i]
	}
	dot := true // the last byte was a dot
	for i, c := range path {
		if c == '.' && !dot {
			dot = true
			continue
		}
		if c == '.' || !printable(c) {
			return cleaned(path[:i], path[i:], name[len(path):])
		}
		dot = false
	}
	if dot && len(path) > 0 {
		return cleaned(path, nil, name[len(path):])
	}
	return name
}

// printable reports whether Clean keeps c.
func printable(c byte) bool { return c > ' ' && c != 0x7f }

// cleaned makes the clean name of a part that is clean but for a dot at its end, the rest of the path, and the tags.
func cleaned(begin, rest, tags []byte) []byte {
	out := make([]byte, 0, len(begin)+len(rest)+len(tags))
	out = append(out, begin...)
	for _, c := range rest {
		switch {
		case c == '.' && (len(out) == 0 || out[len(out)-1] == '.'):
		case c == '.' || printable(c):
			out = append(out, c)
		default:
			out = append(out, '_')
		}
	}
	if n := len(out); n > 0 && out[n-1] == '.' {
		out = out[:n-1]
	}
	return append(out, tags...)
}
