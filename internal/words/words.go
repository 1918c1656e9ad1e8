// Package words writes what people read: numbers with their nouns, spans of time, single lines of foreign text, and what
// silences and escalations say of themselves. The server's answers and the command line use the same words.
//
// It knows no terminal and no language of markup. Times of day are left to a clock of the caller's.
package words

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Plural returns a number with its noun: 1 step, 2 steps.
func Plural(n int, word string) string {
	if n != 1 {
		if stem, ok := strings.CutSuffix(word, "ty"); ok { // entity
			word = stem + "tie"
		}
		word += "s"
	}
	return fmt.Sprint(n, " ", word)
}

// Times returns how often: once, 2 times.
func Times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprint(n, " times")
}

// After puts mark before a text that is not empty.
func After(mark, text string) string {
	if text == "" {
		return ""
	}
	return mark + text
}

// Comma joins names.
func Comma(list []string) string { return strings.Join(list, ", ") }

// Printable makes one line of text safe for a terminal: the output of checks comes from many machines, and must not
// move the cursor or change colors.
func Printable(line string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r == '\r':
			return -1
		case unicode.IsControl(r), r == utf8.RuneError, unicode.Is(unicode.Bidi_Control, r):
			return '?'
		}
		return r
	}, line)
}

// OneLine returns the first line of a text that is not empty.
func OneLine(text string) string {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			return Clipped(Printable(line))
		}
	}
	return ""
}

// Clipped shortens a line that would fill the screen.
func Clipped(line string) string { return Shortened(line, 160) }

// Shortened cuts off what a text has beyond a number of characters.
func Shortened(line string, most int) string {
	if r := []rune(line); len(r) > most {
		return string(r[:most]) + "…"
	}
	return line
}

// Ended returns a name for the end of an attempt, by its result and its exit or HTTP status.
func Ended(result string, status int) string {
	if status != 0 {
		return fmt.Sprintf("%s (status %d)", result, status)
	}
	return result
}

// Span returns a time in its two largest units, as tables show it: 5m45s, 3h7m, 12d4h. From ten of the larger unit on, the
// smaller one says nothing more, and is left out.
func Span(d time.Duration) string {
	d = max(0, d)
	units := []struct {
		name string
		d    time.Duration
	}{{"y", 365 * 24 * time.Hour}, {"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}
	for i, u := range units {
		n := d / u.d
		if n == 0 && i < len(units)-1 {
			continue
		}
		text := fmt.Sprintf("%d%s", n, u.name)
		if i+1 < len(units) && n < 10 {
			if rest := d % u.d / units[i+1].d; rest > 0 {
				text += fmt.Sprintf("%d%s", rest, units[i+1].name)
			}
		}
		return text
	}
	return ""
}

// UntilOrSince returns how far a time is from now, in Unix seconds: "in 2h", "5m ago"; "" for 0.
func UntilOrSince(seconds int64, now time.Time) string {
	if seconds == 0 {
		return ""
	}
	at := time.Unix(seconds, 0)
	if d := at.Sub(now); d > 0 {
		return "in " + Span(d+time.Second-1)
	}
	return Span(now.Sub(at)) + " ago"
}

// Silence names a silence, its author, its reason and its end in a line.
func Silence(s *resource.Silenced, now time.Time) string {
	return SilenceTitle(s) + After(": ", OneLine(s.Reason)) + SilenceEnds(s, now)
}

// SilenceTitle names a silence and its author.
func SilenceTitle(s *resource.Silenced) string {
	text := "silence "
	if s.Acknowledgement {
		text = "acknowledgement "
	}
	return text + s.Metadata.Name + After(" by ", s.Creator)
}

// SilenceEnds says in brackets when a silence ends.
func SilenceEnds(s *resource.Silenced, now time.Time) string {
	switch end := SilenceEnd(s, now); {
	case end == "never":
		return " (without end)"
	case s.Begin > now.Unix():
		return " (" + end + ")"
	default:
		return " (ends " + end + ")"
	}
}

// SilenceEnd says when a silence ends, or begins if it does not act yet.
func SilenceEnd(s *resource.Silenced, now time.Time) string {
	text := "never"
	switch {
	case s.Begin > now.Unix():
		return "begins " + UntilOrSince(s.Begin, now)
	case s.ExpireAt > 0:
		text = UntilOrSince(s.ExpireAt, now)
		if s.ExpireOnResolve {
			text += ", or when it resolves"
		}
	case s.ExpireOnResolve:
		text = "when it resolves"
	}
	return text
}

// mostOfError bounds the error of an attempt in a row of a list.
const mostOfError = 100

// Try says by which handler a delivery of an escalation is tried again, how often it has failed and why, and when the next
// attempt is due. The clock gets Unix milliseconds.
func Try(t *resource.EscalationTry, now time.Time, clock func(millis int64) string) string {
	text := ""
	if t.Contact != "" {
		text = " by " + t.Handler
	}
	text += ": " + Plural(t.Attempts, "attempt") + " failed"
	switch {
	case t.Error != "" && t.Attempts > 1:
		text += ", the last: " + Shortened(OneLine(t.Error), mostOfError)
	case t.Error != "":
		text += ": " + Shortened(OneLine(t.Error), mostOfError)
	}
	if t.Next <= now.UnixMilli() {
		return text + "; the next is due"
	}
	return text + "; next " + clock(t.Next)
}

// Tries says of each delivery of an escalation that is tried again to whom it is under way.
func Tries(e *resource.Escalation, now time.Time, clock func(millis int64) string) string {
	var parts []string
	for i := range e.Tries {
		t := &e.Tries[i]
		parts = append(parts, "under way to "+cmp.Or(t.Contact, t.Handler)+Try(t, now, clock))
	}
	return strings.Join(parts, "; ")
}
