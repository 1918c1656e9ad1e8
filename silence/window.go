package silence

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/teambition/rrule-go"

	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	// horizon bounds the search for the next window. A rule without one for that long has ended.
	horizon = 5 * 366 * 24 * time.Hour
	// oldest bounds how long before the silence a rule may begin: it is expanded from there each time.
	oldest = 10 * 366 * 24 * time.Hour
	// maxTimes bounds the times of day in a rule.
	maxTimes = 24
	// maxJoined bounds the adjoining windows that are joined.
	maxJoined = 1000
)

// window is a parsed resource.SilenceWindow.
type window struct {
	next     func(time.Time) time.Time // the first begin after a time; the zero time if there is none
	duration time.Duration
}

// newWindow parses a window of a silence that begins at a time.
func newWindow(w *resource.SilenceWindow, begin time.Time) (window, error) {
	zone := time.UTC
	if w.TimeZone != "" {
		var err error
		if zone, err = time.LoadLocation(w.TimeZone); err != nil || w.TimeZone == "Local" {
			return window{}, fmt.Errorf("there is no time zone %q", w.TimeZone)
		}
	}
	out := window{duration: time.Duration(w.Duration) * time.Second}
	var err error
	if w.Cron != "" {
		out.next, err = cronTimes(w.Cron, zone)
	} else {
		out.next, err = ruleTimes(w.RRule, begin, zone)
	}
	return out, err
}

func cronTimes(text string, zone *time.Location) (func(time.Time) time.Time, error) {
	if strings.Contains(text, "TZ=") {
		return nil, errors.New("the time zone of a cron stands in time_zone")
	}
	times, err := cron.ParseStandard(text)
	if err != nil {
		return nil, fmt.Errorf("cron %q: %w", text, err)
	}
	if _, ok := times.(*cron.SpecSchedule); !ok {
		return nil, fmt.Errorf("cron %q names no times of the day", text)
	}
	return func(t time.Time) time.Time { return times.Next(t.In(zone)) }, nil
}

// ruleTimes parses an RRULE, perhaps with DTSTART and lines of EXDATE and RDATE.
func ruleTimes(text string, begin time.Time, zone *time.Location) (func(time.Time) time.Time, error) {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if !strings.HasPrefix(line, "DTSTART") && !strings.HasPrefix(line, "EXDATE") && !strings.HasPrefix(line, "RDATE") && !strings.HasPrefix(line, "RRULE:") {
			line = "RRULE:" + line
		}
		lines = append(lines, line)
	}
	given, err := rrule.StrSliceToRRuleSetInLoc(lines, zone)
	if err != nil {
		return nil, fmt.Errorf("rrule %q: %w", text, err)
	}
	rule := given.GetRRule()
	if rule == nil {
		return nil, fmt.Errorf("rrule %q has no FREQ", text)
	}
	option := rule.OrigOptions
	start := given.GetDTStart()
	if !strings.Contains(text, "DTSTART") {
		start = begin.In(zone)
	}
	option.Dtstart = start
	switch perDay := max(len(option.Byhour), 1) * max(len(option.Byminute), 1); {
	case option.Freq > rrule.HOURLY:
		return nil, fmt.Errorf("rrule %q: a window can come every hour, and not more often", text)
	case len(option.Bysecond) > 1, perDay > maxTimes, option.Freq == rrule.HOURLY && len(option.Byminute) > 1:
		return nil, fmt.Errorf("rrule %q names more than %d times a day", text, maxTimes)
	case begin.Sub(start) > oldest:
		return nil, fmt.Errorf("rrule %q begins more than ten years before the silence", text)
	}
	until := option.Until
	except, further := given.GetExDate(), given.GetRDate()
	next := func(t time.Time) time.Time {
		// The search for a rule that never holds again must end.
		bounded := option
		if end := t.Add(horizon); until.IsZero() || until.After(end) {
			bounded.Until = end
		}
		r, err := rrule.NewRRule(bounded)
		if err != nil {
			return time.Time{}
		}
		var set rrule.Set
		set.RRule(r)
		set.SetExDates(except)
		set.SetRDates(further)
		return set.After(t, false)
	}
	if _, err := rrule.NewRRule(option); err != nil {
		return nil, fmt.Errorf("rrule %q: %w", text, err)
	}
	return next, nil
}

// at reports whether a time is in one of the windows, and when to ask again.
func at(windows []window, t time.Time) (open bool, until time.Time) {
	until = t.Add(horizon)
	for i := range windows {
		w := &windows[i]
		start := w.next(t.Add(-w.duration))
		switch {
		case start.IsZero():
			continue
		case !start.After(t):
			open = true
			start = start.Add(w.duration)
		}
		if start.Before(until) {
			until = start
		}
	}
	return open, until
}

// end returns when the adjoining windows around a time end; the zero time if they go on for long.
func end(windows []window, t time.Time) time.Time {
	for range maxJoined {
		open, until := at(windows, t)
		if !open {
			return t
		}
		t = until
	}
	return time.Time{}
}
