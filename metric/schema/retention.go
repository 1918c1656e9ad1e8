package schema

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// ParseRetentions reads a list such as "10s:6h,60:1440". The first number of each is the step; the second is the number
// of values, or the time that they cover if it has a unit. Units are s, m, h, d, w and y. The archives are returned by
// rising step; CheckArchives tells whether a series can have them.
func ParseRetentions(text string) ([]series.Archive, error) {
	var archives []series.Archive
	for definition := range strings.SplitSeq(text, ",") {
		a, err := parseRetention(strings.TrimSpace(definition))
		if err != nil {
			return nil, err
		}
		archives = append(archives, a)
	}
	slices.SortStableFunc(archives, func(a, b series.Archive) int { return cmp.Compare(a.Step, b.Step) })
	return archives, nil
}

func parseRetention(text string) (series.Archive, error) {
	precision, retention, found := strings.Cut(text, ":")
	if !found || strings.Contains(retention, ":") {
		return series.Archive{}, fmt.Errorf("%q is not precision:retention, for example 10s:1d", text)
	}
	step, _, err := parseTime(precision)
	if err != nil {
		return series.Archive{}, fmt.Errorf("precision of %q: %w", text, err)
	}
	if step == 0 {
		return series.Archive{}, fmt.Errorf("precision of %q: it must be at least a second", text)
	}
	points, isTime, err := parseTime(retention)
	if err != nil {
		return series.Archive{}, fmt.Errorf("retention of %q: %w", text, err)
	}
	if isTime {
		points /= step
	}
	return series.Archive{Step: step, Points: points}, nil
}

// parseTime reads a number that may have a unit.
func parseTime(text string) (n int64, hasUnit bool, err error) {
	digits := 0
	for digits < len(text) && text[digits] >= '0' && text[digits] <= '9' {
		digits++
	}
	if digits == 0 {
		return 0, false, fmt.Errorf("%q does not begin with a digit", text)
	}
	factor := int64(1)
	if unit := text[digits:]; unit != "" {
		switch unit {
		case "s":
		case "m":
			factor = 60
		case "h":
			factor = 3600
		case "d":
			factor = 86400
		case "w":
			factor = 7 * 86400
		case "y":
			factor = 365 * 86400
		default:
			return 0, false, fmt.Errorf("%q is no unit: use s, m, h, d, w or y", unit)
		}
		hasUnit = true
	}
	n, err = strconv.ParseInt(text[:digits], 10, 64)
	if err != nil || n > maxSeconds/factor {
		return 0, false, fmt.Errorf("%q is more than %d", text, int64(maxSeconds))
	}
	return n * factor, hasUnit, nil
}

// CheckArchives tells why a series cannot have archives: the rules of whisper, and that each has values at all. They
// must be sorted by step.
func CheckArchives(archives []series.Archive) error {
	if len(archives) == 0 {
		return errors.New("there is no archive")
	}
	for i, a := range archives {
		if a.Step < 1 || a.Points < 1 {
			return fmt.Errorf("archive %d:%d has no values", a.Step, a.Points)
		}
		if a.Points > maxSeconds/a.Step {
			return fmt.Errorf("archive %d:%d covers more than %d seconds", a.Step, a.Points, int64(maxSeconds))
		}
		if i == 0 {
			continue
		}
		finer := archives[i-1]
		switch {
		case finer.Step == a.Step:
			return fmt.Errorf("two archives have the step %d", a.Step)
		case finer.Step > a.Step:
			return fmt.Errorf("archive %d:%d is not sorted by step", a.Step, a.Points)
		case a.Step%finer.Step != 0:
			return fmt.Errorf("step %d is no multiple of %d", a.Step, finer.Step)
		case a.Retention() <= finer.Retention():
			return fmt.Errorf("archive %d:%d covers no longer time than %d:%d", a.Step, a.Points, finer.Step, finer.Points)
		case finer.Points < a.Step/finer.Step:
			return fmt.Errorf("archive %d:%d has fewer values than one value of %d:%d needs", finer.Step, finer.Points, a.Step,
				a.Points)
		}
	}
	return nil
}
