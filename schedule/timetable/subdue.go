package timetable

import (
	"errors"
	"fmt"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Subdue is a span of time, perhaps repeated, in which a check does not run.
type Subdue struct {
	begin  time.Time // in the UTC offset by which days are counted
	length time.Duration
	once   bool
	// The days on which a span begins: bit n of weekdays is time.Weekday n.
	daily, monthly, annually bool
	weekdays                 uint8
}

const (
	workdays = 1<<time.Monday | 1<<time.Tuesday | 1<<time.Wednesday | 1<<time.Thursday | 1<<time.Friday
	weekend  = 1<<time.Saturday | 1<<time.Sunday
)

// Subdues parses a check's subdues. Invalid ones are left out, and named in the error.
func Subdues(windows []resource.TimeWindowRepeated) ([]Subdue, error) {
	var subdues []Subdue
	var errs []error
	for i := range windows {
		s, err := readSubdue(&windows[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		subdues = append(subdues, s)
	}
	return subdues, errors.Join(errs...)
}

func readSubdue(w *resource.TimeWindowRepeated) (Subdue, error) {
	begin, err := time.Parse(time.RFC3339, w.Begin)
	if err != nil {
		return Subdue{}, fmt.Errorf("read begin of subdue: %w", err)
	}
	end, err := time.Parse(time.RFC3339, w.End)
	if err != nil {
		return Subdue{}, fmt.Errorf("read end of subdue: %w", err)
	}
	if end.Before(begin) {
		return Subdue{}, fmt.Errorf("subdue ends at %s before it begins at %s", w.End, w.Begin)
	}
	// If the offset happens to be that of the backend's own time zone, Parse returns that zone, and its daylight saving
	// would move the spans.
	_, offset := begin.Zone()
	s := Subdue{
		begin:  begin.In(time.FixedZone("", offset)),
		length: end.Sub(begin) + time.Second, // the second of the end belongs to it
		once:   len(w.Repeat) == 0,
	}
	for _, repeat := range w.Repeat {
		switch repeat {
		case "daily":
			s.daily = true
		case "monthly":
			s.monthly = true
		case "annually":
			s.annually = true
		case "weekly":
			s.weekdays |= 1 << s.begin.Weekday()
		case "weekdays":
			s.weekdays |= workdays
		case "weekends":
			s.weekdays |= weekend
		case "sundays":
			s.weekdays |= 1 << time.Sunday
		case "mondays":
			s.weekdays |= 1 << time.Monday
		case "tuesdays":
			s.weekdays |= 1 << time.Tuesday
		case "wednesdays":
			s.weekdays |= 1 << time.Wednesday
		case "thursdays":
			s.weekdays |= 1 << time.Thursday
		case "fridays":
			s.weekdays |= 1 << time.Friday
		case "saturdays":
			s.weekdays |= 1 << time.Saturday
		default:
			return Subdue{}, fmt.Errorf("read repeat of subdue: unknown word %q", repeat)
		}
	}
	return s, nil
}

// Subdued reports whether any of the subdues is active at t.
func Subdued(subdues []Subdue, t time.Time) bool {
	for i := range subdues {
		if subdues[i].active(t) {
			return true
		}
	}
	return false
}

// active reports whether t is in the span. Repeated spans begin at the clock time of the first. Only spans that began
// today count or, if they are bound to a weekday, in this week, which begins on Sunday. As in Sensu, a span is cut off
// at the end of the day or week.
func (s *Subdue) active(t time.Time) bool {
	t = t.In(s.begin.Location())
	if s.once {
		return s.covers(s.begin, t)
	}
	if t.Before(s.begin) {
		return false
	}
	hour, minute, second := s.begin.Clock()
	today := time.Date(t.Year(), t.Month(), t.Day(), hour, minute, second, s.begin.Nanosecond(), t.Location())
	sameDay := t.Day() == s.begin.Day()
	if s.daily || s.monthly && sameDay || s.annually && sameDay && t.Month() == s.begin.Month() {
		if s.covers(today, t) {
			return true
		}
	}
	for day := time.Sunday; day <= time.Saturday; day++ {
		if s.weekdays&(1<<day) != 0 && s.covers(today.AddDate(0, 0, int(day-t.Weekday())), t) {
			return true
		}
	}
	return false
}

// covers reports whether t is in the span that begins at the given time.
func (s *Subdue) covers(begin, t time.Time) bool {
	return !t.Before(begin) && t.Before(begin.Add(s.length))
}
