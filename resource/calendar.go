package resource

import (
	"errors"
	"fmt"
	"time"
)

// Calendar is a set of times with a name. Checks run in it, silences act in it, and filters ask for it. Package calendar
// compiles it.
type Calendar struct {
	Metadata    ObjectMeta `json:"metadata"`
	Description string     `json:"description,omitempty"` // for people
	// TimeZone is where days and times of day are, for example Europe/Berlin. Default UTC.
	TimeZone string `json:"time_zone,omitempty"`
	// Windows are the calendar's own times, and Include names calendars of the namespace whose times belong to it too.
	Windows []CalendarWindow `json:"windows,omitempty"`
	Include []string         `json:"include,omitempty"`
	// Except are times that do not belong to the calendar, whatever Windows and Include say.
	Except []CalendarWindow `json:"except,omitempty"`
}

// CalendarWindow describes times with exactly one of RRule, Cron, Dates, ICS and, in Except only, Calendar.
type CalendarWindow struct {
	RRule string `json:"rrule,omitempty"` // RFC 5545
	Cron  string `json:"cron,omitempty"`  // five fields, or @daily and the like
	// Dates are days: 2026-12-25, ranges: 2026-12-24/2026-12-26, or days of every year: 12-25. A name may follow after a
	// space.
	Dates []string `json:"dates,omitempty"`
	ICS   string   `json:"ics,omitempty"` // the text of an iCalendar file
	// Calendar names a calendar of the namespace.
	Calendar string `json:"calendar,omitempty"`
	// Begin and End are times of day, as 08:00. Dates without them cover whole days. For an RRule, Begin may also be the
	// first begin of all, as 2026-11-02T08:00.
	Begin string `json:"begin,omitempty"`
	End   string `json:"end,omitempty"`
	// Duration is the length of a window of an RRule or Cron, in seconds.
	Duration int64 `json:"duration,omitempty"`
}

// CalendarPreview is what a calendar says about a range of time.
type CalendarPreview struct {
	// Active says that the calendar is active at From, and Next when that changes, in Unix seconds; 0 for not in the next
	// five years.
	Active bool  `json:"active"`
	From   int64 `json:"from"`
	To     int64 `json:"to"`
	Next   int64 `json:"next,omitempty"`
	// Problem says why the calendar counts as missing. It then has no windows.
	Problem string `json:"problem,omitempty"`
	// TimeZone is where the days of the calendar are.
	TimeZone string               `json:"time_zone"`
	Windows  []CalendarActiveTime `json:"windows"`
	// More says that there are further windows before To.
	More bool `json:"more,omitempty"`
	// Excepted are the times with a name because of which the calendar is not active although it would be.
	Excepted []CalendarActiveTime `json:"excepted,omitempty"`
}

// CalendarActiveTime is a time in which a calendar is active, in Unix seconds. Begin belongs to it, End does not.
type CalendarActiveTime struct {
	Begin int64  `json:"begin"`
	End   int64  `json:"end"`
	Name  string `json:"name,omitempty"`
}

// CheckCalendars says when a check runs.
type CheckCalendars struct {
	// RunWithin names calendars: the check runs only while one of them is active.
	RunWithin []string `json:"run_within,omitempty"`
	// NotWithin names calendars: the check does not run while one of them is active.
	NotWithin []string `json:"not_within,omitempty"`
}

// Bounds of a calendar.
const (
	maxCalendarWindows = 100
	maxCalendarNames   = 20
	maxCalendarDates   = 1000
	maxCalendarText    = 4 << 10
	// MaxCalendarICS bounds the text of all iCalendar files of a calendar, in bytes.
	MaxCalendarICS = 256 << 10
)

// Validate returns the reasons why c is not acceptable, or nil. It does not parse the windows: package calendar does.
func (c *Calendar) Validate() error {
	var wrong mistakes
	if err := checkName(c.Metadata.Name); err != nil {
		wrong.add("metadata.name", fmt.Errorf("calendar name %w", err))
	}
	if c.Metadata.Namespace == "" {
		wrong.add("metadata.namespace", errNoNamespace)
	}
	if len(c.Description) > maxCalendarText {
		wrong.add("description", fmt.Errorf("description has more than %d bytes", maxCalendarText))
	}
	if c.TimeZone != "" {
		if _, err := time.LoadLocation(c.TimeZone); err != nil || c.TimeZone == "Local" {
			wrong.add("time_zone", fmt.Errorf("there is no time zone %q: write one such as Europe/Berlin", c.TimeZone))
		}
	}
	wrong.add("include", checkCalendarNames("include", c.Include))
	if len(c.Windows)+len(c.Include) == 0 {
		wrong.add("", errors.New("windows or include must be set"))
	}
	size := 0
	for _, list := range []struct {
		name    string
		windows []CalendarWindow
		names   bool
	}{{"windows", c.Windows, false}, {"except", c.Except, true}} {
		if len(list.windows) > maxCalendarWindows {
			wrong.add(list.name, fmt.Errorf("%s has %d entries, it must have %d at most", list.name, len(list.windows), maxCalendarWindows))
		}
		for i := range list.windows {
			w := &list.windows[i]
			size += len(w.ICS)
			err := w.validate()
			if err == nil && w.Calendar != "" && !list.names {
				err = InField("calendar", errors.New("calendar is only for except: name other calendars in include"))
			}
			wrong.add("", InItem(list.name, i, err))
		}
	}
	if size > MaxCalendarICS {
		wrong.add("", fmt.Errorf("the iCalendar files have %d bytes, they must have %d at most", size, MaxCalendarICS))
	}
	return wrong.asError()
}

func (w *CalendarWindow) validate() error {
	given := 0
	for _, yes := range []bool{w.RRule != "", w.Cron != "", len(w.Dates) > 0, w.ICS != "", w.Calendar != ""} {
		if yes {
			given++
		}
	}
	rule := w.RRule != "" || w.Cron != ""
	switch {
	case given != 1:
		return errors.New("exactly one of rrule, cron, dates, ics and calendar must be set")
	case len(w.RRule)+len(w.Cron) > maxRuleText:
		return fmt.Errorf("the rule has more than %d bytes", maxRuleText)
	case len(w.Dates) > maxCalendarDates:
		return InField("dates", fmt.Errorf("dates has %d entries, it must have %d at most", len(w.Dates), maxCalendarDates))
	case rule && w.End == "" && (w.Duration < 1 || w.Duration > maxDuration):
		return InField("duration", fmt.Errorf("duration must be between 1 and %d seconds", maxDuration))
	case w.Duration != 0 && (w.End != "" || !rule):
		return InField("duration", errors.New("duration is only for rrule and cron, and not together with end"))
	case w.Cron != "" && (w.Begin != "" || w.End != ""):
		return InField("cron", errors.New("a cron has its begin in itself: set duration, and neither begin nor end"))
	case w.RRule != "" && w.End != "" && w.Begin == "":
		return InField("end", errors.New("end needs begin"))
	case len(w.Dates) > 0 && (w.Begin == "") != (w.End == ""):
		return InField("dates", errors.New("begin and end must be set together, or neither for whole days"))
	case (w.ICS != "" || w.Calendar != "") && (w.Begin != "" || w.End != ""):
		return errors.New("begin and end are only for rrule and dates")
	}
	if w.Calendar != "" {
		return InField("calendar", checkCalendarNames("calendar", []string{w.Calendar}))
	}
	return nil
}

func checkCalendarNames(field string, names []string) error {
	return checkNameList(field, names, maxCalendarNames)
}

func (c *CheckCalendars) validate() error {
	if c == nil {
		return nil
	}
	if err := checkCalendarNames("calendars run_within", c.RunWithin); err != nil {
		return err
	}
	return checkCalendarNames("calendars not_within", c.NotWithin)
}

// Empty reports whether c names no calendar.
func (c *CheckCalendars) Empty() bool { return c == nil || len(c.RunWithin)+len(c.NotWithin) == 0 }
