package selector

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Value is the value of a field or label. The zero Value is a missing one.
type Value struct {
	kind valueKind
	n    int64 // a number or a time, or the bits of a decimal
	text string
	list []string
}

type valueKind uint8

const (
	missing valueKind = iota
	text
	number
	decimal
	instant
	list
)

// Text is a string.
func Text(s string) Value { return Value{kind: text, text: s} }

// Number is an integer.
func Number(n int64) Value { return Value{kind: number, n: n} }

// Decimal is a number that may have a fraction.
func Decimal(f float64) Value { return Value{kind: decimal, n: int64(math.Float64bits(f))} }

// Time is a time in Unix seconds.
func Time(seconds int64) Value { return Value{kind: instant, n: seconds} }

// List is a list of strings. It is not copied.
func List(l []string) Value { return Value{kind: list, list: l} }

// Bool is "true" or "false".
func Bool(b bool) Value { return Value{kind: text, text: strconv.FormatBool(b)} }

// Missing reports whether there is no such field or label.
func (v Value) Missing() bool { return v.kind == missing }

// String is the value as selectors compare it: numbers in decimal, lists joined by commas.
func (v Value) String() string {
	switch v.kind {
	case number, instant:
		return strconv.FormatInt(v.n, 10)
	case decimal:
		return strconv.FormatFloat(v.float(), 'f', -1, 64)
	case list:
		return strings.Join(v.list, ",")
	}
	return v.text
}

// Parts returns the parts of a list, or else the text. A missing value has none.
func (v Value) Parts() []string {
	switch v.kind {
	case missing:
		return nil
	case list:
		return v.list
	}
	return []string{v.String()}
}

// float is a decimal's number.
func (v Value) float() float64 { return math.Float64frombits(uint64(v.n)) }

// equals reports whether the value's text is the literal's.
func (v Value) equals(l *literal) bool {
	switch v.kind {
	case missing:
		return false
	case text:
		return v.text == l.text
	case number, instant:
		return l.integer && v.n == l.n
	case list:
		if len(v.list) == 1 {
			return v.list[0] == l.text
		}
	}
	return v.String() == l.text
}

// contains says that the literal is one of the value's parts. Text is taken apart at commas, so that a label can be a list.
func (v Value) contains(l *literal) bool {
	switch v.kind {
	case list:
		return slices.Contains(v.list, l.text)
	case text:
		for part := range strings.SplitSeq(strings.Trim(v.text, "[] \t"), ",") {
			if strings.Trim(part, "[] \t") == l.text {
				return true
			}
		}
		return false
	}
	return v.equals(l)
}
