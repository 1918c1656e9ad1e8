package selector

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Term is a condition on one label or field.
type Term struct {
	// Name is the field's full name, or the label's key.
	Name string
	// Label says that it is about a label.
	Label bool

	op       operator
	negated  bool // the opposite of op, and so true for a missing value
	literals []literal
	regex    *regexp.Regexp
	limit    limit
}

type operator uint8

const (
	opEquals   operator = iota // the value is one of the literals
	opContains                 // the literal is one of the value's parts
	opMatches                  // the literal is part of the value's text
	opRegex
	opLess
	opLessEqual
	opGreater
	opGreaterEqual
)

// literal is text on the right of an operator, and its number.
type literal struct {
	text    string
	n       int64
	integer bool
}

func newLiteral(s string) literal {
	l := literal{text: s}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && strconv.FormatInt(n, 10) == s {
		l.n, l.integer = n, true
	}
	return l
}

// Test evaluates the term for a value. now is in Unix seconds.
func (t *Term) Test(v Value, now int64) bool {
	if v.kind == missing {
		return t.negated
	}
	return t.holds(v, now) != t.negated
}

// Slow reports whether the test takes long compared with other terms: it has a regular expression.
func (t *Term) Slow() bool { return t.op == opRegex }

// Timed reports whether the answer for the same value may change over time: the term compares with the present time.
func (t *Term) Timed() bool { return t.limit.fromNow || t.limit.kind == limitDuration }

// Match evaluates the term for a resource.
func (t *Term) Match(f Fields, now int64) bool { return t.Test(t.Value(f), now) }

// Value returns the value of a resource that the term is about.
func (t *Term) Value(f Fields) Value {
	if t.Label {
		return f.Label(t.Name)
	}
	return f.Field(t.Name)
}

// Wanted returns the values one of which the term wants exactly, or as a part. It is nothing for other terms.
func (t *Term) Wanted() (values []string) {
	if t.negated || t.op != opEquals && t.op != opContains {
		return nil
	}
	for _, l := range t.literals {
		values = append(values, l.text)
	}
	return values
}

func (t *Term) holds(v Value, now int64) bool {
	switch t.op {
	case opEquals:
		for i := range t.literals {
			if v.equals(&t.literals[i]) {
				return true
			}
		}
		return false
	case opContains:
		return v.contains(&t.literals[0])
	case opMatches:
		return strings.Contains(v.String(), t.literals[0].text)
	case opRegex:
		return t.regex.MatchString(v.String())
	}
	c, ok := t.limit.compare(v, now)
	if !ok {
		return false
	}
	switch t.op {
	case opLess:
		return c < 0
	case opLessEqual:
		return c <= 0
	case opGreater:
		return c > 0
	default:
		return c >= 0
	}
}

// limit is the right side of a comparison.
type limit struct {
	kind    limitKind
	n       float64 // a number, a length of time in seconds, or a time in Unix seconds
	fromNow bool    // n is added to the present time
}

type limitKind uint8

const (
	limitNumber limitKind = iota
	limitDuration
	limitTime
)

// parseLimit parses a number, a duration such as 1h30m or 7d, a date, an RFC 3339 time, or now with a duration added or
// subtracted.
func parseLimit(s string) (limit, bool) {
	if f, err := strconv.ParseFloat(s, 64); err == nil && f-f == 0 { // neither infinite nor NaN
		return limit{kind: limitNumber, n: f}, true
	}
	if d, ok := parseDuration(s); ok {
		return limit{kind: limitDuration, n: d}, true
	}
	if at, ok := parseTime(s); ok {
		return limit{kind: limitTime, n: at}, true
	}
	offset, ok := strings.CutPrefix(s, "now")
	if !ok {
		return limit{}, false
	}
	if offset == "" {
		return limit{kind: limitTime, fromNow: true}, true
	}
	d, ok := parseDuration(offset[1:])
	switch {
	case !ok, offset[0] != '-' && offset[0] != '+':
		return limit{}, false
	case offset[0] == '-':
		d = -d
	}
	return limit{kind: limitTime, n: d, fromNow: true}, true
}

func parseTime(s string) (float64, bool) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, s); err == nil {
			return float64(at.UnixNano()) / 1e9, true
		}
	}
	return 0, false
}

var durationUnits = map[string]float64{"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

// parseDuration parses numbers with units, such as 1h30m, into seconds.
func parseDuration(s string) (seconds float64, ok bool) {
	for s != "" {
		digits := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
		if digits <= 0 {
			return 0, false
		}
		n, err := strconv.ParseFloat(s[:digits], 64)
		if err != nil {
			return 0, false
		}
		s = s[digits:]
		end := strings.IndexAny(s, "0123456789.")
		if end < 0 {
			end = len(s)
		}
		unit, known := durationUnits[s[:end]]
		if !known {
			return 0, false
		}
		seconds += n * unit
		s, ok = s[end:], true
	}
	return seconds, ok
}

// compare is negative for a value below the limit and positive for one above it; false if they cannot be compared.
func (l *limit) compare(v Value, now int64) (int, bool) {
	n := l.n
	if l.fromNow {
		n += float64(now)
	}
	var at float64
	switch v.kind {
	case number:
		at = float64(v.n)
	case decimal:
		at = v.float()
	case instant:
		at = float64(v.n)
		if l.kind == limitDuration {
			at = float64(now) - at // how long ago it was
		}
	case text:
		var ok bool
		if at, ok = l.read(v.text); !ok {
			return 0, false
		}
	default:
		return 0, false
	}
	return cmp.Compare(at, n), true
}

// read converts text to the limit's kind: a label may hold a number, a duration, or a time.
func (l *limit) read(s string) (float64, bool) {
	s = strings.TrimSpace(s)
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		return f, f == f
	}
	switch l.kind {
	case limitDuration:
		return parseDuration(s)
	case limitTime:
		return parseTime(s)
	}
	return 0, false
}
