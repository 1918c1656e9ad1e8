package ctl

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/duration"
)

// timeForms says what --since and --until take.
const timeForms = "today, yesterday, a day (2026-11-28), a time ('2026-11-28 00:30' or 00:30), how long ago (30d or 2h), or RFC 3339"

// clockLayouts are the layouts of a time of today, and dayLayouts those of a time with its day.
var (
	clockLayouts = []string{"15:04", "15:04:05"}
	dayLayouts   = []string{"2006-01-02 15:04", "2006-01-02T15:04", time.DateTime, "2006-01-02T15:04:05"}
)

// calendarTime reads a day or a time without a zone, on the clocks of a place. A day is its beginning; for an end it is the
// beginning of the next day, so that the day belongs to the range.
func calendarTime(text string, end bool, place *time.Location, now time.Time) (time.Time, bool) {
	now = now.In(place)
	year, month, day := now.Date()
	whole := true
	switch text {
	case "today":
	case "yesterday":
		day--
	default:
		if t, err := time.Parse(time.DateOnly, text); err == nil {
			year, month, day = t.Date()
			break
		}
		for _, layout := range dayLayouts {
			if t, err := time.ParseInLocation(layout, text, place); err == nil {
				return t, true
			}
		}
		whole = false
		for _, layout := range clockLayouts {
			if t, err := time.Parse(layout, text); err == nil {
				return time.Date(year, month, day, t.Hour(), t.Minute(), t.Second(), 0, place), true
			}
		}
	}
	if whole && end {
		day++
	}
	return time.Date(year, month, day, 0, 0, 0, 0, place), whole
}

// leastUnix is the first time in Unix seconds that is taken as one: a smaller number is a mistake. Below leastSpan it lacks its
// unit.
const leastSpan, leastUnix = 10_000, 100_000_000

// moment reads the value of --since or --until.
func moment(flag, text string, place *time.Location, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if t, ok := calendarTime(text, flag == "until", place, now); ok {
		return t, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 && n < 1<<40 {
		switch {
		case n == 0: // all that there is
		case n < leastSpan:
			return time.Time{}, fmt.Errorf("--%s: %s lacks a unit, as in %sd or %sh", flag, text, text, text)
		case n < leastUnix:
			return time.Time{}, fmt.Errorf("--%s: %s would be a time of %d: it must be %s", flag, text, time.Unix(n, 0).UTC().Year(), timeForms)
		}
		return time.Unix(n, 0), nil
	}
	if d, err := duration.Parse(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, fmt.Errorf("--%s: %q is no time: it must be %s", flag, text, timeForms)
}

// week returns the begin and the end of a week from Monday on: one such as 2026-W47, or this or last, the week of the time now
// and the one before it.
func week(text string, place *time.Location, now time.Time) (since, until time.Time, err error) {
	year, month, day := now.In(place).Date()
	switch text {
	case "this":
	case "last":
		day -= 7
	default:
		var n int
		if _, err := fmt.Sscanf(text, "%4d-W%2d", &year, &n); err != nil || text != fmt.Sprintf("%04d-W%02d", year, n) {
			return since, until, fmt.Errorf("--week: %q is no week: it must be like 2026-W47, last or this", text)
		}
		month, day = time.January, 4+7*(n-1) // 4 January is always in the first week
		if y, w := time.Date(year, month, day, 0, 0, 0, 0, place).ISOWeek(); y != year || w != n {
			return since, until, fmt.Errorf("--week: %d has no week %d", year, n)
		}
	}
	day -= (int(time.Date(year, month, day, 0, 0, 0, 0, place).Weekday()) + 6) % 7
	return time.Date(year, month, day, 0, 0, 0, 0, place), time.Date(year, month, day+7, 0, 0, 0, 0, place), nil
}

// sentMoments replaces days and times without a zone in the values of --since and --until by times that the server takes. It
// leaves how long ago to the server, whose clock decides.
func sentMoments(since, until *string, place *time.Location, now time.Time) error {
	var times []time.Time
	for _, one := range []struct {
		flag string
		text *string
	}{{"since", since}, {"until", until}} {
		if *one.text == "" {
			continue
		}
		t, err := moment(one.flag, *one.text, place, now)
		if err != nil {
			return err
		}
		if times = append(times, t); len(times) == 2 && !times[0].Before(t) {
			return errors.New("--since must be before --until")
		}
		if _, ok := calendarTime(*one.text, false, place, now); ok {
			*one.text = t.Format(time.RFC3339)
		}
	}
	return nil
}
