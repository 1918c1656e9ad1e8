package ctl

import (
	"fmt"
	"strings"
	"time"
)

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

// span returns a time in its two largest units, as tables show it: 5m45s, 3h7m, 12d4h. From ten of the larger unit on, the
// smaller one says nothing more, and is left out.
func span(d time.Duration) string {
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

// untilOrSince returns how far a time is from now, in Unix seconds: "in 2h", "5m ago"; "" for 0.
func untilOrSince(seconds int64) string {
	if seconds == 0 {
		return ""
	}
	if d := time.Until(time.Unix(seconds, 0)); d > 0 {
		return "in " + span(d+time.Second-1)
	}
	return ageOf(seconds) + " ago"
}
