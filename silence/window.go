package silence

import (
	"fmt"
	"time"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	// horizon bounds the search for the next window. A rule without one for that long has ended.
	horizon = calendar.Horizon
	// oldest bounds how long before the silence a rule may begin.
	oldest = 10 * 366 * 24 * time.Hour
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
	var times *calendar.Times
	var err error
	if w.Cron != "" {
		times, err = calendar.ParseCron(w.Cron, zone)
	} else if times, err = calendar.ParseRule(w.RRule, begin, zone); err == nil && begin.Sub(times.Start()) > oldest {
		err = fmt.Errorf("rrule %q begins more than ten years before the silence", w.RRule)
	}
	if err != nil {
		return window{}, err
	}
	return window{next: times.Next, duration: time.Duration(w.Duration) * time.Second}, nil
}

// at reports whether a time is in one of the windows or calendars, and when to ask again.
func (r *Rule) at(t time.Time) (open bool, until time.Time) {
	until = t.Add(horizon)
	for _, c := range r.calendars {
		open = open || c.Active(t)
		if next := c.Next(t); !next.IsZero() && next.Before(until) {
			until = next
		}
	}
	for i := range r.windows {
		w := &r.windows[i]
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
func (r *Rule) end(t time.Time) time.Time {
	for range maxJoined {
		open, until := r.at(t)
		if !open {
			return t
		}
		t = until
	}
	return time.Time{}
}
