package report

import (
	"fmt"
	"time"
)

// Month returns the begin and the end of a month on the clocks of a place: one such as 2026-10, or this or last, the
// month of the time now and the one before it.
func Month(text string, place *time.Location, now time.Time) (since, until time.Time, err error) {
	now = now.In(place)
	year, month := now.Year(), now.Month()
	switch text {
	case "this":
	case "last":
		month-- // 0 is December of the year before
	default:
		t, err := time.ParseInLocation("2006-01", text, place)
		if err != nil {
			return time.Time{}, time.Time{}, fmt.Errorf("%q is no month: it must be like 2026-10, last or this", text)
		}
		year, month = t.Year(), t.Month()
	}
	return time.Date(year, month, 1, 0, 0, 0, 0, place), time.Date(year, month+1, 1, 0, 0, 0, 0, place), nil
}
