package schedule

import (
	"fmt"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// period is a subdue that was read: a span of time that may come back.
type period struct {
	begin  time.Time // in the UTC offset in which days are counted
	length time.Duration
	once   bool
	// Which days begin a span: bit n of weekdays is time.Weekday n.
	daily, monthly, annually bool
	weekdays                 uint8
}

const (
	workdays = 1<<time.Monday | 1<<time.Tuesday | 1<<time.Wednesday | 1<<time.Thursday | 1<<time.Friday
	weekend  = 1<<time.Saturday | 1<<time.Sunday
)

func newPeriod(w *resource.TimeWindowRepeated) (period, error) {
	begin, err := time.Parse(time.RFC3339, w.Begin)
	if err != nil {
		return period{}, fmt.Errorf("read begin of subdue: %w", err)
	}
	end, err := time.Parse(time.RFC3339, w.End)
	if err != nil {
		return period{}, fmt.Errorf("read end of subdue: %w", err)
	}
	if end.Before(begin) {
		return period{}, fmt.Errorf("subdue ends at %s before it begins at %s", w.End, w.Begin)
	}
	// Where the offset happens to be that of the backend's own time zone, Parse returns that zone, and its daylight
	// saving would move the spans.
	_, offset := begin.Zone()
	p := period{
		begin:  begin.In(time.FixedZone("", offset)),
		length: end.Sub(begin) + time.Second, // the second of the end belongs to it
		once:   len(w.Repeat) == 0,
	}
	for _, repeat := range w.Repeat {
		switch repeat {
		case "daily":
			p.daily = true
		case "monthly":
			p.monthly = true
		case "annually":
			p.annually = true
		case "weekly":
			p.weekdays |= 1 << p.begin.Weekday()
		case "weekdays":
			p.weekdays |= workdays
		case "weekends":
			p.weekdays |= weekend
		case "sundays":
			p.weekdays |= 1 << time.Sunday
		case "mondays":
			p.weekdays |= 1 << time.Monday
		case "tuesdays":
			p.weekdays |= 1 << time.Tuesday
		case "wednesdays":
			p.weekdays |= 1 << time.Wednesday
		case "thursdays":
			p.weekdays |= 1 << time.Thursday
		case "fridays":
			p.weekdays |= 1 << time.Friday
		case "saturdays":
			p.weekdays |= 1 << time.Saturday
		default:
			return period{}, fmt.Errorf("read repeat of subdue: unknown word %q", repeat)
		}
	}
	return p, nil
}

// subdued says whether any of the periods is active at t.
func subdued(periods []period, t time.Time) bool {
	for i := range periods {
		if periods[i].active(t) {
			return true
		}
	}
	return false
}

// active says whether t falls into the period. Spans that return begin at the clock time of the first. Only those are
// looked at that began today or, if they are bound to a weekday, in this week, which begins on Sunday: what reaches over
// the end of the day or week is cut off there, as it is in Sensu.
func (p *period) active(t time.Time) bool {
	t = t.In(p.begin.Location())
	if p.once {
		return p.covers(p.begin, t)
	}
	if t.Before(p.begin) {
		return false
	}
	h, m, s := p.begin.Clock()
	today := time.Date(t.Year(), t.Month(), t.Day(), h, m, s, p.begin.Nanosecond(), t.Location())
	sameDay := t.Day() == p.begin.Day()
	if p.daily || p.monthly && sameDay || p.annually && sameDay && t.Month() == p.begin.Month() {
		if p.covers(today, t) {
			return true
		}
	}
	for day := time.Sunday; day <= time.Saturday; day++ {
		if p.weekdays&(1<<day) != 0 && p.covers(today.AddDate(0, 0, int(day-t.Weekday())), t) {
			return true
		}
	}
	return false
}

// covers says whether t falls into the span that begins at the given time.
func (p *period) covers(begin, t time.Time) bool {
	return !t.Before(begin) && t.Before(begin.Add(p.length))
}
