package ctl

import (
	"fmt"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/words"
)

// These words are the server's, too.
var (
	plural     = words.Plural
	times      = words.Times
	after      = words.After
	commaSpace = words.Comma
	printable  = words.Printable
	oneLine    = words.OneLine
	clipped    = words.Clipped
	span       = words.Span
)

// untilOrSince returns how far a time is from now, in Unix seconds: "in 2h", "5m ago"; "" for 0.
func untilOrSince(seconds int64) string { return words.UntilOrSince(seconds, time.Now()) }

// stateWord returns a check's status in words, as tables show it: OK, WARNING, CRITICAL, UNKNOWN, or UNKNOWN (127).
func stateWord(status uint32) string {
	switch status {
	case 0:
		return "OK"
	case 1:
		return "WARNING"
	case 2:
		return "CRITICAL"
	case 3:
		return "UNKNOWN"
	}
	return fmt.Sprintf("UNKNOWN (%d)", status)
}

// stateAndStatus returns both, for info blocks: CRITICAL (2).
func stateAndStatus(status uint32) string {
	word, _, _ := strings.Cut(stateWord(status), " ")
	return fmt.Sprintf("%s (%d)", word, status)
}

// wordColor returns the color of a state in words.
func wordColor(state string) string {
	word, _, _ := strings.Cut(state, " ")
	switch word {
	case "OK":
		return green
	case "WARNING":
		return yellow
	case "CRITICAL":
		return red
	case "UNKNOWN":
		return magenta
	}
	return ""
}

// ageOf returns how long ago a time was, given in Unix seconds; "" for 0.
func ageOf(seconds int64) string {
	if seconds == 0 {
		return ""
	}
	return span(time.Since(time.Unix(seconds, 0)))
}

// timeAndAge returns a time in Unix seconds, and how far it is from now; N/A for 0.
func timeAndAge(seconds int64) string {
	if seconds == 0 {
		return unixTime(0)
	}
	return unixTime(seconds) + " (" + untilOrSince(seconds) + ")"
}
