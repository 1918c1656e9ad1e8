// Package optionerr collects errors in a program's options. Each error names its flag, so the program can show all
// errors at once, and where each value was set. The parts' checks of their options and the commands that map flags onto
// options use it.
package optionerr

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// Error says why an option's value cannot be used.
type Error struct {
	// Flag is the name of the option's flag, without dashes. It is also the key in a settings file.
	Flag string
	// From is where the value was set, for example "key agent-port of /etc/x.yml, line 3". It is empty for the command
	// line.
	From string
	Err  error
}

func (e *Error) Error() string {
	if e.From != "" {
		return fmt.Sprintf("--%s (%s): %v", e.Flag, e.From, e.Err)
	}
	return fmt.Sprintf("--%s: %v", e.Flag, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Listen returns the error of a port that could not be bound, for example "--api-listen-address 127.0.0.1:8080: address
// already in use". flags are those of the address, with dashes. The system's error alone does not name them.
func Listen(flags, address string, err error) error {
	var network *net.OpError
	if errors.As(err, &network) {
		err = network.Err // without the address
	}
	var call *os.SyscallError
	if errors.As(err, &call) {
		err = call.Err
	}
	return fmt.Errorf("%s %s: %w", flags, address, err)
}

// List collects errors. The zero value is empty.
type List struct{ errs []error }

// Add adds an error with a text as for fmt.Errorf.
func (l *List) Add(flag, format string, args ...any) {
	l.errs = append(l.errs, &Error{Flag: flag, Err: fmt.Errorf(format, args...)})
}

// Include adds the errors of another check, except for options that have an error already: one cause is enough for each.
func (l *List) Include(err error) {
	has := map[string]bool{}
	for _, e := range All(errors.Join(l.errs...)) {
		has[e.Flag] = true
	}
	found := All(err)
	for _, e := range found {
		if !has[e.Flag] {
			l.errs = append(l.errs, e)
		}
	}
	if len(found) == 0 && err != nil {
		l.errs = append(l.errs, err)
	}
}

// Err joins the errors, sorted by their texts. It is nil if there are none.
func (l *List) Err() error {
	slices.SortFunc(l.errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(l.errs...)
}

// number is the type of an option with bounds.
type number interface {
	~int | ~int64 | ~uint32 | ~uint64 | ~float64
}

// Within adds an error with the bounds unless a value is within them. 0 is always valid.
func Within[T number](l *List, flag string, value, least, most T) {
	within(l, flag, value, least, most, "")
}

// WithinOrZero is Within for options of which 0 has a meaning, such as "none". The error names the meaning.
func WithinOrZero[T number](l *List, flag string, value, least, most T, meaning string) {
	within(l, flag, value, least, most, ", or 0 for "+meaning)
}

func within[T number](l *List, flag string, value, least, most T, orZero string) {
	what := "is out of range"
	switch {
	case value == 0, value >= least && value <= most: // NaN fails both comparisons
		return
	case value < 0:
		what = "is negative"
	}
	l.Add(flag, "%s %s: it must be from %s to %s%s", Text(value), what, Text(least), Text(most), orZero)
}

// Text formats a number for people: without an exponent, and a duration without zero parts.
func Text[T number](value T) string {
	switch v := any(value).(type) {
	case time.Duration:
		text := v.String()
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		if strings.HasSuffix(text, "h0m") {
			text = strings.TrimSuffix(text, "0m")
		}
		return text
	case float64:
		if v == float64(int64(v)) {
			return fmt.Sprint(int64(v))
		}
	}
	return fmt.Sprint(value)
}

// OneOf adds an error unless a value is one of the words.
func OneOf(l *List, flag, value string, words ...string) {
	if slices.Contains(words, value) {
		return
	}
	text := "it must be " + words[0]
	if n := len(words); n > 1 {
		text = "it must be " + strings.Join(words[:n-1], ", ") + " or " + words[n-1]
	}
	if near := Nearest(value, words); near != "" {
		text += fmt.Sprintf("; the nearest is %q", near)
	}
	l.Add(flag, "%q is not known: %s", value, text)
}

// All lists the errors of options in an error, which may be joined and wrapped.
func All(err error) (all []*Error) {
	switch e := err.(type) {
	case *Error:
		return []*Error{e}
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			all = append(all, All(one)...)
		}
	case interface{ Unwrap() error }:
		return All(e.Unwrap())
	}
	return all
}

// Others joins the errors in an error that All does not list. Errors that wrap such ones are kept whole.
func Others(err error) error {
	switch e := err.(type) {
	case nil, *Error:
		return nil
	case interface{ Unwrap() []error }:
		var others []error
		for _, one := range e.Unwrap() {
			others = append(others, Others(one))
		}
		return errors.Join(others...)
	case interface{ Unwrap() error }:
		if len(All(err)) > 0 && Others(e.Unwrap()) == nil {
			return nil
		}
	}
	return err
}

// Nearest returns the known name with the fewest edits to the given one, "" if none is close. Case does not count.
func Nearest(name string, known []string) string {
	plain := func(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "-")) }
	name = plain(name)
	best, fewest := "", 1+len(name)/4
	for _, k := range known {
		if max(len(k)-len(name), len(name)-len(k)) > fewest {
			continue // each byte too many is an edit
		}
		if d := edits(name, plain(k)); d <= fewest && (best == "" || d < fewest) {
			best, fewest = k, d
		}
	}
	return best
}

// edits counts the insertions, removals and replacements of bytes, and the swaps of neighbours, between a and b.
func edits(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}

// Port adds an error unless a value is a port.
func Port(l *List, flag string, port int) {
	if port < 0 || port > 65535 {
		l.Add(flag, "%d is not a port: it must be from 0, for any free port, to 65535", port)
	}
}
