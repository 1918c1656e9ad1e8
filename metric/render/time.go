package render

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

var weekdays = [...]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

var months = [...]string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}

// maxInterval is about what a time.Duration can hold; longer intervals are refused.
const maxInterval = 290 * 365 * 24 * time.Hour

// ParseTime reads a time as at(1) has it: Unix seconds, or a reference (now, noon, monday, 04:00_20110501…) with an
// offset (-1d12h), in loc. A nil loc is UTC.
func ParseTime(s string, now time.Time, loc *time.Location) (time.Time, error) {
	if loc == nil {
		loc = time.UTC
	}
	now = now.In(loc)
	text := strings.NewReplacer("_", "", ",", "", " ", "").Replace(strings.ToLower(strings.TrimSpace(s)))
	fail := func(format string, args ...any) (time.Time, error) {
		return time.Time{}, fmt.Errorf("time %q: %s", shorten(s), fmt.Sprintf(format, args...))
	}
	if len(text) > 200 {
		return fail("it is longer than 200 characters")
	}
	if allDigits(text) {
		if _, ok := compactDate(text, loc); !ok {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n > math.MaxInt32*1000 {
				return fail("the number of seconds is too large")
			}
			return time.Unix(n, 0).In(loc), nil
		}
	}
	reference, offset := text, ""
	if i := strings.IndexAny(text, "+-"); i >= 0 {
		reference, offset = text[:i], text[i:]
	}
	t, err := referenceTime(reference, now)
	if err != nil {
		return fail("%v", err)
	}
	if offset == "" {
		return t, nil
	}
	d, err := ParseInterval(offset)
	if err != nil {
		return fail("%v", err)
	}
	return t.Add(d), nil
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// compactDate reads YYYYMMDD if it is plausible.
func compactDate(s string, loc *time.Location) (time.Time, bool) {
	if len(s) != 8 || !allDigits(s) {
		return time.Time{}, false
	}
	year, _ := strconv.Atoi(s[:4])
	month, _ := strconv.Atoi(s[4:6])
	day, _ := strconv.Atoi(s[6:])
	if year <= 1900 || month < 1 || month > 12 || day < 1 || day > 31 {
		return time.Time{}, false
	}
	return time.Date(year, time.Month(month), day, 0, 0, 0, 0, loc), true
}

// referenceTime reads what is before the offset: a time of day and a day, both optional.
func referenceTime(s string, now time.Time) (time.Time, error) {
	if s == "" || s == "now" {
		return now, nil
	}
	rest, hour, minute, timed, err := timeOfDay(s)
	if err != nil {
		return time.Time{}, err
	}
	if rest == "" && timed {
		return at(now, 0, hour, minute), nil
	}
	day, err := dayReference(rest, now)
	if err != nil {
		return time.Time{}, err
	}
	return at(day, 0, hour, minute), nil
}

// at returns the day of t, moved by some days, at a time of day.
func at(t time.Time, days, hour, minute int) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day()+days, hour, minute, 0, 0, t.Location())
}

// timeOfDay takes a time of day from the front of s.
func timeOfDay(s string) (rest string, hour, minute int, ok bool, err error) {
	for _, named := range [...]struct {
		name string
		hour int
	}{{"noon", 12}, {"midnight", 0}, {"teatime", 16}} {
		if after, found := strings.CutPrefix(s, named.name); found {
			return after, named.hour, 0, true, nil
		}
	}
	digits := 0
	for digits < len(s) && s[digits] >= '0' && s[digits] <= '9' {
		digits++
	}
	if digits == 0 || digits > 2 {
		return s, 0, 0, false, nil
	}
	hour, _ = strconv.Atoi(s[:digits])
	rest = s[digits:]
	switch {
	case strings.HasPrefix(rest, ":"):
		if len(rest) < 3 || !allDigits(rest[1:3]) {
			return s, 0, 0, false, fmt.Errorf("expected two digits of minutes behind %q", s[:digits+1])
		}
		minute, _ = strconv.Atoi(rest[1:3])
		rest = rest[3:]
		// As it always was: am adds nothing, pm adds 12 hours modulo a day.
		if after, found := strings.CutPrefix(rest, "am"); found {
			rest = after
		} else if after, found := strings.CutPrefix(rest, "pm"); found {
			rest, hour = after, (hour+12)%24
		}
	case strings.HasPrefix(rest, "am"):
		rest = rest[2:]
	case strings.HasPrefix(rest, "pm"):
		rest, hour = rest[2:], (hour+12)%24
	default:
		return s, 0, 0, false, nil
	}
	if hour > 23 || minute > 59 {
		return s, 0, 0, false, fmt.Errorf("%q is no time of day", s)
	}
	return rest, hour, minute, true, nil
}

// dayReference reads a day: today, a date, a month and day, or a day of the week.
func dayReference(s string, now time.Time) (time.Time, error) {
	loc := now.Location()
	switch s {
	case "", "today":
		return now, nil
	case "yesterday":
		return at(now, -1, 0, 0), nil
	case "tomorrow":
		return at(now, 1, 0, 0), nil
	}
	if strings.Count(s, "/") == 2 {
		parts := strings.Split(s, "/")
		for _, p := range parts {
			if !allDigits(p) || len(p) > 4 {
				return time.Time{}, fmt.Errorf("%q is no date: use MM/DD/YY or MM/DD/YYYY", s)
			}
		}
		month, _ := strconv.Atoi(parts[0])
		day, _ := strconv.Atoi(parts[1])
		year, _ := strconv.Atoi(parts[2])
		if year < 1900 {
			year += 1900
		}
		if year < 1970 {
			year += 100
		}
		return dateOf(year, month, day, s, loc)
	}
	if t, ok := compactDate(s, loc); ok {
		return dateOf(t.Year(), monthNumber(s[4:6]), dayNumber(s[6:]), s, loc)
	}
	if len(s) >= 3 {
		for i, m := range months {
			if !strings.HasPrefix(s, m) {
				continue
			}
			digits := len(s)
			for digits > 0 && s[digits-1] >= '0' && s[digits-1] <= '9' {
				digits--
			}
			if n := len(s) - digits; n < 1 || n > 2 {
				return time.Time{}, fmt.Errorf("%q has no day of the month", s)
			}
			return dateOf(now.Year(), i+1, dayNumber(s[digits:]), s, loc)
		}
		for i, d := range weekdays {
			if strings.HasPrefix(s, d) {
				back := (int(now.Weekday()) - i + 7) % 7
				return at(now, -back, 0, 0), nil
			}
		}
	}
	return time.Time{}, fmt.Errorf("%q is no day: use today, yesterday, tomorrow, MM/DD/YY, YYYYMMDD, a month and day, "+
		"or a day of the week", s)
}

func monthNumber(s string) int { n, _ := strconv.Atoi(s); return n }

func dayNumber(s string) int { n, _ := strconv.Atoi(s); return n }

func dateOf(year, month, day int, text string, loc *time.Location) (time.Time, error) {
	t := time.Date(year, time.Month(month), day, 0, 0, 0, 0, loc)
	if month < 1 || month > 12 || t.Day() != day {
		return time.Time{}, fmt.Errorf("%q is no day of the calendar", text)
	}
	return t, nil
}

// ParseInterval reads a duration such as 5min, 1d or -1d12h. Without a sign it is positive.
func ParseInterval(s string) (time.Duration, error) {
	text := strings.TrimSpace(s)
	fail := func(format string, args ...any) (time.Duration, error) {
		return 0, fmt.Errorf("interval %q: %s", shorten(s), fmt.Sprintf(format, args...))
	}
	sign := time.Duration(1)
	switch {
	case strings.HasPrefix(text, "-"):
		sign, text = -1, text[1:]
	case strings.HasPrefix(text, "+"):
		text = text[1:]
	}
	if text == "" {
		return fail("it is empty")
	}
	var total time.Duration
	for text != "" {
		i := 0
		for i < len(text) && text[i] >= '0' && text[i] <= '9' {
			i++
		}
		j := i
		for j < len(text) && (text[j] >= 'a' && text[j] <= 'z' || text[j] >= 'A' && text[j] <= 'Z') {
			j++
		}
		if i == 0 {
			return fail("expected a number at %q", shorten(text))
		}
		n, err := strconv.ParseInt(text[:i], 10, 64)
		if err != nil {
			return fail("the number is too large")
		}
		unit, ok := intervalUnit(text[i:j])
		if !ok {
			return fail("unknown unit %q: use s, min, h, d, w, mon or y", shorten(text[i:j]))
		}
		if n > int64(maxInterval/unit) || total > maxInterval-time.Duration(n)*unit {
			return fail("it is longer than 290 years")
		}
		total += time.Duration(n) * unit
		text = text[j:]
	}
	return sign * total, nil
}

// intervalUnit returns the length of a unit, which is known by its first letters.
func intervalUnit(s string) (time.Duration, bool) {
	s = strings.ToLower(s)
	const day = 24 * time.Hour
	for _, u := range [...]struct {
		prefix string
		length time.Duration
	}{{"s", time.Second}, {"min", time.Minute}, {"h", time.Hour}, {"d", day}, {"w", 7 * day}, {"mon", 30 * day},
		{"y", 365 * day}} {
		if strings.HasPrefix(s, u.prefix) {
			return u.length, true
		}
	}
	return 0, false
}
