// Package duration reads lengths of time as people write them: Go's form, and days and weeks, as in 1d, 2w or 1d12h.
// Flags of commands have a Value. A day is 24 hours, whatever the calendar says.
package duration

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Value is a duration as a flag. Its type is "duration", and its text Go's, so that programs can read both.
type Value time.Duration

// New returns a flag's value that writes to p, and sets p to the default.
func New(value time.Duration, p *time.Duration) *Value {
	*p = value
	return (*Value)(p)
}

// String returns the duration in Go's form; "0" is the default that help does not show.
func (v *Value) String() string {
	if *v == 0 {
		return "0"
	}
	return time.Duration(*v).String()
}

// Set reads a duration.
func (v *Value) Set(text string) error {
	d, err := Parse(text)
	if err == nil {
		*v = Value(d)
	}
	return err
}

// Type returns the word for the value in help texts.
func (v *Value) Type() string { return "duration" }

// Parse reads a duration: weeks, days, and the rest in Go's form, each of them at most once and in this order.
func Parse(text string) (time.Duration, error) {
	wrong := fmt.Errorf("%q is not a time such as 90s, 12h, 1d12h or 2w", text)
	rest, negative := strings.CutPrefix(text, "-")
	var total time.Duration
	longer := false
	for _, unit := range []struct {
		letter byte
		hours  time.Duration
	}{{'w', 7 * 24}, {'d', 24}} {
		n := len(rest) - len(strings.TrimLeft(rest, "0123456789."))
		if n == 0 || n == len(rest) || rest[n] != unit.letter {
			continue
		}
		d, err := time.ParseDuration(rest[:n] + "h")
		if err != nil || d > (math.MaxInt64-total)/unit.hours {
			return 0, wrong
		}
		total += d * unit.hours
		rest, longer = rest[n+1:], true
	}
	if rest != "" || !longer {
		if strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "+") && (negative || longer) {
			return 0, wrong
		}
		d, err := time.ParseDuration(rest)
		if err != nil || d > math.MaxInt64-total {
			return 0, wrong
		}
		total += d
	}
	if negative {
		total = -total
	}
	return total, nil
}
