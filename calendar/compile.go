package calendar

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/teambition/rrule-go"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// definition is a calendar without the calendars that it names.
type definition struct {
	own, except []source
	perYear     int // times that a search of a year goes through, about
}

const (
	// maxPerYear bounds the times of one calendar, and maxPerYearInAll those of one with all that it names: a search goes
	// through all of them.
	maxPerYear, maxPerYearInAll = 110_000, 220_000
)

// maxBad bounds the wrong windows of a calendar that are read: to read one may cost a thousand times what a client sends.
const maxBad = 20

var errNotRead = fmt.Errorf("%d windows are wrong so far: correct them first, the others are not read", maxBad)

// Check returns what is wrong with the windows of a calendar, or nil. Its errors are for the author of the calendar.
func Check(def *resource.Calendar) error {
	_, err := compile(def)
	return err
}

func compile(def *resource.Calendar) (*definition, error) {
	zone := time.UTC
	if def.TimeZone != "" {
		var err error
		if zone, err = time.LoadLocation(def.TimeZone); err != nil {
			return nil, resource.InField("time_zone", fmt.Errorf("there is no time zone %q", def.TimeZone))
		}
	}
	d := new(definition)
	var wrong error
	bad := 0
	for _, list := range []struct {
		name    string
		windows []resource.CalendarWindow
		to      *[]source
	}{{"windows", def.Windows, &d.own}, {"except", def.Except, &d.except}} {
		for i := range list.windows {
			s, perYear, err := compileWindow(&list.windows[i], zone)
			if err != nil {
				wrong = resource.JoinMistakes(wrong, resource.InItem(list.name, i, err))
				if bad++; bad == maxBad {
					return nil, resource.JoinMistakes(wrong, errNotRead)
				}
				continue
			}
			*list.to = append(*list.to, s...)
			if d.perYear += perYear; d.perYear > maxPerYear {
				err = fmt.Errorf("with it the calendar names more than %d times a year: write longer windows", maxPerYear)
				return nil, resource.JoinMistakes(wrong, resource.InItem(list.name, i, err))
			}
		}
	}
	if wrong != nil {
		return nil, wrong
	}
	return d, nil
}

// compileWindow returns the sources of a window, and how many times a search of a year goes through, about.
func compileWindow(w *resource.CalendarWindow, zone *time.Location) (sources []source, perYear int, err error) {
	var one source
	switch {
	case w.ICS != "":
		sources, perYear, err = parseICS(w.ICS, zone)
		return sources, perYear, resource.InField("ics", err)
	case w.Calendar != "":
		return nil, 0, nil
	case w.Cron != "":
		one, perYear, err = cronWindow(w, zone)
	case w.RRule != "":
		one, perYear, err = ruleWindow(w, zone)
	default:
		one, err = dateWindow(w, zone)
		perYear = 1
	}
	return []source{one}, perYear, err
}

func cronWindow(w *resource.CalendarWindow, zone *time.Location) (one source, perYear int, err error) {
	times, err := ParseCron(w.Cron, zone)
	if err != nil {
		return nil, 0, resource.InField("cron", err)
	}
	if n := perDay(times.cron); n > maxCronTimes {
		err = fmt.Errorf("cron %q names %d times a day, more than %d: write one longer window", w.Cron, n, maxCronTimes)
		return nil, 0, resource.InField("cron", err)
	}
	return recurring(times, lasting(w.Duration), ""), times.perYear, nil
}

// recurring makes the source of times; until returns the end for a begin.
func recurring(times *Times, until func(begin time.Time) time.Time, name string) source {
	// Ends by the clock may be an hour further away than they seem.
	longest := until(time.Unix(0, 0).In(times.zone)).Unix() + 2*3600
	return func(from, to int64) (out []span) {
		for _, begin := range times.between(time.Unix(from-longest, 0), time.Unix(to, 0)) {
			out = append(out, span{begin.Unix(), until(begin).Unix(), name})
		}
		return out
	}
}

func lasting(seconds int64) func(time.Time) time.Time {
	return func(begin time.Time) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
}

// firstBegin is the layout of a Begin with a day.
const firstBegin = "2006-01-02T15:04"

// ruleWindow compiles an RRULE with its begin and its end or duration.
func ruleWindow(w *resource.CalendarWindow, zone *time.Location) (one source, perYear int, err error) {
	// A rule without a first day must not depend on one: it starts at the first day of a week, a month and a year.
	start, day := time.Date(1990, 1, 1, 0, 0, 0, 0, zone), strings.Contains(w.RRule, "DTSTART")
	if w.Begin != "" {
		if day {
			return nil, 0, resource.InField("begin", errors.New("the rule has a DTSTART: leave begin away"))
		}
		if at, err := time.ParseInLocation(firstBegin, w.Begin, zone); err == nil {
			start, day = at, true
		} else {
			clock, err := timeOfDay("begin", w.Begin)
			if err != nil {
				return nil, 0, err
			}
			if clock == dayLength {
				return nil, 0, resource.InField("begin", errors.New("begin must be before 24:00"))
			}
			start = on(start, clock)
		}
	}
	times, err := ParseRule(w.RRule, start, zone)
	if err == nil && !day {
		err = needsNoDay(w.RRule)
	}
	if err != nil {
		return nil, 0, resource.InField("rrule", err)
	}
	until := lasting(w.Duration)
	if w.End != "" {
		end, err := timeOfDay("end", w.End)
		if err != nil {
			return nil, 0, err
		}
		until = func(begin time.Time) time.Time {
			if at := on(begin, end); at.After(begin) {
				return at
			}
			return on(begin.AddDate(0, 0, 1), end)
		}
	}
	return recurring(times, until, ""), times.perYear, nil
}

// needsNoDay refuses rules that count from their first day, or take parts from it.
func needsNoDay(text string) error {
	o, err := rrule.StrToROption(strings.TrimPrefix(strings.TrimSpace(text), "RRULE:"))
	if err != nil {
		return fmt.Errorf("rrule %q: %w", text, plainRule(err))
	}
	what := ""
	switch none := len(o.Byweekday)+len(o.Bymonthday)+len(o.Byyearday)+len(o.Byweekno)+len(o.Byeaster) == 0; {
	case o.Interval > 1:
		what = "INTERVAL"
	case o.Count > 0:
		what = "COUNT"
	case none && o.Freq == rrule.WEEKLY:
		what = "WEEKLY without BYDAY"
	case none && o.Freq == rrule.MONTHLY:
		what = "MONTHLY without BYDAY or BYMONTHDAY"
	case none && o.Freq == rrule.YEARLY:
		what = "YEARLY without BYDAY, BYMONTHDAY or BYYEARDAY"
	}
	if what != "" {
		return fmt.Errorf("rrule %q: %s counts from the first day: set begin to it, as 2026-11-02T08:00", text, what)
	}
	return nil
}

const dayLength = 24 * 60 // minutes

// timeOfDay parses HH:MM, up to 24:00, to minutes.
func timeOfDay(field, text string) (int, error) {
	hour, minute, ok := strings.Cut(text, ":")
	h, err1 := strconv.ParseUint(hour, 10, 8)
	m, err2 := strconv.ParseUint(minute, 10, 8)
	if !ok || err1 != nil || err2 != nil || len(minute) != 2 || m > 59 || h*60+m > dayLength {
		return 0, resource.InField(field, fmt.Errorf("%s %q is no time of day: write one such as 08:00", field, text))
	}
	return int(h*60 + m), nil
}

// on returns a time of a day by the clock. A time that clocks skip is moved by as much as they skip.
func on(day time.Time, clock int) time.Time {
	y, m, d := day.Date()
	return time.Date(y, m, d, 0, clock, 0, 0, day.Location())
}

// dates are the days of a window: a single day, a range, or the same days every year.
type dates struct {
	first, last time.Time // the years are 2000 if yearly
	yearly      bool
	name        string
}

// dateWindow compiles single dates, whole or with times of day.
func dateWindow(w *resource.CalendarWindow, zone *time.Location) (source, error) {
	begin, end := 0, dayLength
	if w.Begin != "" {
		var err error
		if begin, err = timeOfDay("begin", w.Begin); err != nil {
			return nil, err
		}
		if end, err = timeOfDay("end", w.End); err != nil {
			return nil, err
		}
		if end <= begin {
			end += dayLength // the next morning
		}
	}
	var all []dates
	for i, text := range w.Dates {
		d, err := parseDates(text, zone)
		if err != nil {
			return nil, resource.InField(fmt.Sprintf("dates[%d]", i), err)
		}
		all = append(all, d)
	}
	return func(from, to int64) (out []span) {
		early, late := time.Unix(from, 0).In(zone), time.Unix(to, 0).In(zone)
		for i := range all {
			d := &all[i]
			if !d.yearly {
				out = d.add(out, d.first, d.last, early, late, begin, end)
				continue
			}
			for year := early.Year() - 1; year <= late.Year(); year++ {
				first := time.Date(year, d.first.Month(), d.first.Day(), 0, 0, 0, 0, zone)
				if first.Day() != d.first.Day() {
					continue // 29 February
				}
				last := time.Date(year+d.last.Year()-d.first.Year(), d.last.Month(), d.last.Day(), 0, 0, 0, 0, zone)
				if last.Day() != d.last.Day() {
					last = last.AddDate(0, 0, -1) // 28 February
				}
				out = d.add(out, first, last, early, late, begin, end)
			}
		}
		return out
	}, nil
}

// add adds the spans of the days from first to last near a range.
func (d *dates) add(out []span, first, last, early, late time.Time, begin, end int) []span {
	if begin == 0 && end == dayLength {
		if s := (span{first.Unix(), last.AddDate(0, 0, 1).Unix(), d.name}); s.end > early.Unix() && s.begin < late.Unix() {
			out = append(out, s)
		}
		return out
	}
	if soon := early.AddDate(0, 0, -2); first.Before(soon) {
		y, m, day := soon.Date()
		first = time.Date(y, m, day, 0, 0, 0, 0, first.Location())
	}
	for ; !first.After(last) && first.Before(late); first = first.AddDate(0, 0, 1) {
		out = append(out, span{on(first, begin).Unix(), on(first, end).Unix(), d.name})
	}
	return out
}

func parseDates(text string, zone *time.Location) (dates, error) {
	days, name, _ := strings.Cut(strings.TrimSpace(text), " ")
	d := dates{name: shortName(name)}
	first, last, isRange := strings.Cut(days, "/")
	layout := time.DateOnly
	prefix := ""
	if len(first) == len("12-25") {
		d.yearly, prefix = true, "2000-" // a leap year
	}
	var err error
	if d.first, err = time.ParseInLocation(layout, prefix+first, zone); err == nil {
		d.last = d.first
		if isRange {
			d.last, err = time.ParseInLocation(layout, prefix+last, zone)
		}
	}
	switch {
	case err != nil:
		return d, fmt.Errorf("date %q: write 2026-12-25, 2026-12-24/2026-12-26, or 12-25 for every year", text)
	case d.yearly && d.last.Before(d.first):
		d.last = d.last.AddDate(1, 0, 0) // over the year's end
	case d.last.Before(d.first):
		return d, fmt.Errorf("date %q ends before it begins", text)
	case d.last.Sub(d.first) > maxLength*time.Second:
		return d, fmt.Errorf("date %q covers more than 400 days", text)
	}
	return d, nil
}

func shortName(name string) string {
	name = strings.TrimSpace(name)
	if len(name) > maxName {
		name = strings.ToValidUTF8(name[:maxName], "")
	}
	return name
}
