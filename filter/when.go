package filter

import (
	"fmt"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// window is a range of times of day. If begin is later than end, it is the two ends of the day.
type window struct{ begin, end time.Duration }

// windows are a filter's hours for each weekday, including those for all days.
type windows [7][]window

// parseWindows returns nil for no windows.
func parseWindows(when *resource.TimeWindowWhen) (*windows, error) {
	if when == nil {
		return nil, nil
	}
	d := when.Days
	var all windows
	for day, ranges := range [7][]resource.TimeWindowTimeRange{d.Sunday, d.Monday, d.Tuesday, d.Wednesday, d.Thursday, d.Friday, d.Saturday} {
		for _, list := range [2][]resource.TimeWindowTimeRange{d.All, ranges} {
			for _, r := range list {
				begin, err := timeOfDay(r.Begin)
				if err != nil {
					return nil, err
				}
				end, err := timeOfDay(r.End)
				if err != nil {
					return nil, err
				}
				all[day] = append(all[day], window{begin, end})
			}
		}
	}
	return &all, nil
}

// timeOfDay parses a time on a 12-hour clock, for example "3:04PM" or "3:04 pm".
func timeOfDay(s string) (time.Duration, error) {
	t, err := time.Parse(time.Kitchen, strings.ToUpper(strings.ReplaceAll(s, " ", "")))
	if err != nil {
		return 0, fmt.Errorf("read time of day %q: %w", s, err)
	}
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute, nil
}

// contain reports whether a time is in one of its day's windows. Both ends belong to a window, and seconds count.
func (w *windows) contain(t time.Time) bool {
	t = t.UTC()
	at := t.Sub(time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC))
	for _, r := range w[t.Weekday()] {
		if r.begin <= r.end && r.begin <= at && at <= r.end || r.begin > r.end && (at <= r.end || at >= r.begin) {
			return true
		}
	}
	return false
}
