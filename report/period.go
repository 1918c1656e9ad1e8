package report

import (
	"fmt"
	"time"
)

// Month returns the begin and the end of a month, as in 2026-10, on the clocks of a place.
func Month(text string, place *time.Location) (since, until time.Time, err error) {
	t, err := time.ParseInLocation("2006-01", text, place)
	if err != nil {
		return time.Time{}, time.Time{}, fmt.Errorf("%q is no month: it must be like 2026-10", text)
	}
	return t, time.Date(t.Year(), t.Month()+1, 1, 0, 0, 0, 0, place), nil
}
