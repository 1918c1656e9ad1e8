package calendar

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/teambition/rrule-go"
)

const (
	// Horizon bounds the search for the next time. A rule without one for that long has ended.
	Horizon = 5 * 366 * 24 * time.Hour
	// maxTimes bounds the times of day in a rule, and maxCronTimes those in a cron of a calendar.
	maxTimes, maxCronTimes = 24, 288
	// maxCount bounds COUNT in a rule: such a rule is expanded from its start each time.
	maxCount = 10_000
	// maxInterval bounds INTERVAL, and firstYear and lastYear bound DTSTART.
	maxInterval, firstYear, lastYear = 1000, 1900, 2200
	// A rule names no time if the library finds none in searched years. It gives up only in the year lastSearched, so the
	// search starts late, a multiple of cycle years after the rule: leap years and days of the week are then the same.
	searched, lastSearched, cycle = 292, 9999, 400
)

// Times are the times at which something begins again and again, by a cron expression or an RRULE. They never change.
type Times struct {
	zone   *time.Location
	cron   *cron.SpecSchedule // nil for a rule
	option rrule.ROption
	except []time.Time
	// perYear is how many times a search of a year goes through, about.
	perYear int
	// further are times beside those of the rule, in order.
	further []time.Time
}

// ParseCron parses a cron expression of five fields, or @daily and the like, in a time zone.
func ParseCron(text string, zone *time.Location) (*Times, error) {
	if strings.Contains(text, "TZ=") {
		return nil, errors.New("the time zone of a cron stands in time_zone")
	}
	times, err := cron.ParseStandard(text)
	if err != nil {
		return nil, fmt.Errorf("cron %q: %w", text, err)
	}
	spec, ok := times.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("cron %q names no times of the day", text)
	}
	return &Times{zone: zone, cron: spec, perYear: perDay(spec) * 366}, nil
}

// perDay returns how many times a day a cron names.
func perDay(spec *cron.SpecSchedule) int {
	return bits.OnesCount64(spec.Minute&(1<<60-1)) * bits.OnesCount64(spec.Hour&(1<<24-1))
}

// ParseRule parses an RRULE, perhaps with DTSTART and lines of EXDATE and RDATE. Without DTSTART it starts at begin.
func ParseRule(text string, begin time.Time, zone *time.Location) (*Times, error) {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if !strings.HasPrefix(line, "DTSTART") && !strings.HasPrefix(line, "EXDATE") && !strings.HasPrefix(line, "RDATE") &&
			!strings.HasPrefix(line, "RRULE:") {
			line = "RRULE:" + line
		}
		lines = append(lines, line)
	}
	given, err := rrule.StrSliceToRRuleSetInLoc(lines, zone)
	if err != nil {
		return nil, fmt.Errorf("rrule %q: %w", text, plainRule(err))
	}
	rule := given.GetRRule()
	if rule == nil {
		return nil, fmt.Errorf("rrule %q has no FREQ", text)
	}
	option := rule.OrigOptions
	option.Dtstart = begin.In(zone)
	if strings.Contains(text, "DTSTART") {
		option.Dtstart = given.GetDTStart()
	}
	return newRule(text, option, given.GetExDate(), given.GetRDate(), zone)
}

func newRule(text string, option rrule.ROption, except, further []time.Time, zone *time.Location) (*Times, error) {
	switch perDay := max(len(option.Byhour), 1) * max(len(option.Byminute), 1); {
	case option.Freq > rrule.HOURLY:
		return nil, fmt.Errorf("rrule %q: a window can come every hour, and not more often", text)
	case len(option.Bysecond) > 1, perDay > maxTimes, option.Freq == rrule.HOURLY && len(option.Byminute) > 1:
		return nil, fmt.Errorf("rrule %q names more than %d times a day", text, maxTimes)
	case option.Count > maxCount:
		return nil, fmt.Errorf("rrule %q: COUNT must be %d at most", text, maxCount)
	}
	if err := boundedRule(&option); err != nil {
		return nil, fmt.Errorf("rrule %q: %w", text, err)
	}
	further = slices.Clone(further)
	slices.SortFunc(further, time.Time.Compare)
	t := &Times{zone: zone, option: explicit(option), except: except, further: further}
	endless := t.option
	endless.Until, endless.Count = time.Time{}, 0
	r, err := rrule.NewRRule(endless)
	if err != nil {
		return nil, fmt.Errorf("rrule %q: %w", text, plainRule(err))
	}
	start := t.option.Dtstart
	late := endless
	late.Dtstart = start.AddDate((lastSearched-searched-start.Year())/cycle*cycle, 0, 0)
	if s, err := rrule.NewRRule(late); err != nil || s.After(late.Dtstart, true).IsZero() {
		return nil, fmt.Errorf("rrule %q names no time", text)
	}
	t.perYear = max(len(r.Between(start, start.AddDate(1, 0, 0), true)), option.Count)
	return t, nil
}

// boundedRule refuses rules whose search for a time could last: the rules of short periods must find one soon.
func boundedRule(o *rrule.ROption) error {
	days := len(o.Bymonthday) + len(o.Byyearday) + len(o.Byweekno) + len(o.Byeaster)
	switch year := o.Dtstart.Year(); {
	case year < firstYear || year > lastYear:
		return fmt.Errorf("its first day must be in the years %d to %d", firstYear, lastYear)
	case o.Interval > maxInterval:
		return fmt.Errorf("INTERVAL must be %d at most", maxInterval)
	case o.Freq >= rrule.WEEKLY && days > 0:
		return errors.New("days of the month or the year need FREQ=MONTHLY or FREQ=YEARLY")
	case o.Freq >= rrule.WEEKLY && len(o.Bysetpos) > 0:
		return errors.New("BYSETPOS needs FREQ=MONTHLY or FREQ=YEARLY")
	case o.Freq == rrule.DAILY && o.Interval > 1 && len(o.Byweekday)+len(o.Bymonth) > 0:
		return errors.New("FREQ=DAILY has either INTERVAL, or BYDAY and BYMONTH")
	case o.Freq == rrule.HOURLY && (len(o.Byhour) > 0 || o.Interval > 1 && 24%o.Interval != 0):
		return errors.New("FREQ=HOURLY has an INTERVAL that divides 24, and no BYHOUR: list hours with FREQ=DAILY")
	}
	return nil
}

// explicit sets the parts of a rule that come from its start, so that the start can be moved.
func explicit(o rrule.ROption) rrule.ROption {
	start := o.Dtstart
	if o.Interval < 1 {
		o.Interval = 1
	}
	if len(o.Byweekno)+len(o.Byyearday)+len(o.Bymonthday)+len(o.Byweekday)+len(o.Byeaster) == 0 {
		switch o.Freq {
		case rrule.YEARLY:
			if len(o.Bymonth) == 0 {
				o.Bymonth = []int{int(start.Month())}
			}
			o.Bymonthday = []int{start.Day()}
		case rrule.MONTHLY:
			o.Bymonthday = []int{start.Day()}
		case rrule.WEEKLY:
			weekdays := []rrule.Weekday{rrule.SU, rrule.MO, rrule.TU, rrule.WE, rrule.TH, rrule.FR, rrule.SA}
			o.Byweekday = []rrule.Weekday{weekdays[start.Weekday()]}
		}
	}
	if len(o.Byhour) == 0 && o.Freq < rrule.HOURLY {
		o.Byhour = []int{start.Hour()}
	}
	if len(o.Byminute) == 0 {
		o.Byminute = []int{start.Minute()}
	}
	if len(o.Bysecond) == 0 {
		o.Bysecond = []int{start.Second()}
	}
	return o
}

// startNear returns a start of the rule with the same times from a time on, two periods before it at the latest. Without it
// a rule would be expanded from its first time each time.
func startNear(o *rrule.ROption, from time.Time) time.Time {
	start := o.Dtstart
	n := o.Interval
	from = from.In(start.Location())
	if o.Count > 0 || !start.Before(from) {
		return start
	}
	days := int(from.Sub(start) / (24 * time.Hour))
	moved := start
	switch o.Freq {
	case rrule.YEARLY:
		if k := (from.Year()-start.Year())/n - 2; k > 0 {
			moved = time.Date(start.Year()+k*n, 1, 1, 0, 0, 0, 0, start.Location())
		}
	case rrule.MONTHLY:
		if k := ((from.Year()-start.Year())*12+int(from.Month()-start.Month()))/n - 2; k > 0 {
			moved = time.Date(start.Year(), start.Month()+time.Month(k*n), 1, 0, 0, 0, 0, start.Location())
		}
	case rrule.WEEKLY:
		if k := days/7/n - 2; k > 0 {
			moved = start.AddDate(0, 0, k*n*7)
		}
	case rrule.DAILY:
		if k := days/n - 2; k > 0 {
			moved = start.AddDate(0, 0, k*n)
		}
	case rrule.HOURLY:
		if k := int(from.Sub(start)/time.Hour)/n/24 - 2; k > 0 { // whole days, so that BYHOUR keeps its steps
			moved = start.Add(time.Duration(k*n*24) * time.Hour)
		}
	}
	return moved
}

// set returns the times of a rule until a time; those a while before from may be left out.
func (t *Times) set(from, to time.Time) (*rrule.Set, error) {
	bounded := t.option
	if bounded.Until.IsZero() || bounded.Until.After(to) {
		bounded.Until = to // the search for a rule that never holds again must end
	}
	bounded.Dtstart = startNear(&t.option, from)
	r, err := rrule.NewRRule(bounded)
	if err != nil {
		return nil, err
	}
	set := new(rrule.Set)
	set.RRule(r)
	set.SetExDates(t.except)
	set.SetRDates(t.further)
	return set, nil
}

// Start returns the first time of all of a rule.
func (t *Times) Start() time.Time { return t.option.Dtstart }

// Next returns the first time after a time; the zero time if there is none until Horizon.
func (t *Times) Next(after time.Time) time.Time {
	if t.cron != nil {
		return t.cron.Next(after.In(t.zone))
	}
	set, err := t.set(after, after.Add(Horizon))
	if err != nil {
		return time.Time{}
	}
	return set.After(after, false)
}

// between returns the times from one to another, the last not included.
func (t *Times) between(from, to time.Time) (out []time.Time) {
	if t.cron != nil {
		for at := t.cron.Next(from.In(t.zone).Add(-1)); !at.IsZero() && at.Before(to); at = t.cron.Next(at) {
			out = append(out, at)
		}
		return out
	}
	set, err := t.set(from, to)
	if err != nil {
		return nil
	}
	for _, at := range set.Between(from, to, true) {
		if at.Before(to) {
			out = append(out, at)
		}
	}
	return out
}
