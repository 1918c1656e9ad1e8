package calendar

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/teambition/rrule-go"
)

const (
	maxEvents    = 5000
	maxRecurring = 200
	maxExcluded  = 2000
)

// property is a content line of an iCalendar file.
type property struct {
	name, zone, value string
	date              bool // VALUE=DATE
}

// component is a VEVENT or VTIMEZONE.
type component struct {
	line       int
	properties []property
}

func (c *component) get(name string) (property, bool) {
	for _, p := range c.properties {
		if p.name == name {
			return p, true
		}
	}
	return property{}, false
}

// parseICS compiles the events of an iCalendar file (RFC 5545). Times without a zone, and days, are in the given zone. It
// reads what recurs and what calendars of Google, Outlook and Apple write, and skips alarms, tasks and cancelled events.
func parseICS(text string, zone *time.Location) (sources []source, perYear int, err error) {
	events, zones, err := readICS(text)
	if err != nil {
		return nil, 0, err
	}
	f := &icsFile{zone: zone, zones: zones, known: map[string]*time.Location{}, moved: map[string][]time.Time{}}
	// First the events that stand in the place of a repetition: it is taken out of the event that repeats.
	for _, e := range events {
		if at, ok := e.get("RECURRENCE-ID"); ok {
			uid, _ := e.get("UID")
			when, _, err := f.time(at)
			if err != nil {
				return nil, 0, fmt.Errorf("ics line %d: %w", e.line, err)
			}
			f.moved[uid.value] = append(f.moved[uid.value], when)
		}
	}
	for _, e := range events {
		if err := f.event(e); err != nil {
			return nil, 0, fmt.Errorf("ics line %d: event %w", e.line, err)
		}
	}
	if len(f.single)+len(f.sources) == 0 {
		return nil, 0, errors.New("ics: the file has no events")
	}
	single := f.single
	all := append(f.sources, func(from, to int64) (out []span) {
		for _, s := range single {
			if s.begin < to && s.end > from {
				out = append(out, s)
			}
		}
		return out
	})
	return all, f.perYear + len(single), nil
}

// readICS splits a file into events, and into the IANA names that its time zones say they have.
func readICS(text string) (events []*component, zones map[string]string, err error) {
	zones = map[string]string{}
	var path []string
	var current *component
	var unfolded strings.Builder
	begun := 0
	end := func() error {
		line := unfolded.String()
		unfolded.Reset()
		if strings.TrimSpace(line) == "" {
			return nil
		}
		p, err := readProperty(line)
		if err != nil {
			return fmt.Errorf("ics line %d: %w", begun, err)
		}
		switch {
		case p.name == "BEGIN":
			if path = append(path, strings.ToUpper(p.value)); len(path) > 5 {
				return fmt.Errorf("ics line %d: components are nested too deeply", begun)
			}
			if len(path) == 1 && path[0] != "VCALENDAR" {
				return fmt.Errorf("ics line %d: the file does not begin with BEGIN:VCALENDAR", begun)
			}
			if len(path) == 2 && (path[1] == "VEVENT" || path[1] == "VTIMEZONE") {
				current = &component{line: begun}
			}
		case len(path) == 0:
			return fmt.Errorf("ics line %d: the file does not begin with BEGIN:VCALENDAR", begun)
		case p.name == "END":
			last := path[len(path)-1]
			if !strings.EqualFold(p.value, last) {
				return fmt.Errorf("ics line %d: END:%s ends no %s", begun, p.value, last)
			}
			if len(path) == 2 && last == "VEVENT" {
				if events = append(events, current); len(events) > maxEvents {
					return fmt.Errorf("ics: the file has more than %d events", maxEvents)
				}
			}
			if len(path) == 2 && last == "VTIMEZONE" {
				id, _ := current.get("TZID")
				if location, ok := current.get("X-LIC-LOCATION"); ok {
					zones[id.value] = location.value
				}
			}
			if path = path[:len(path)-1]; len(path) < 2 {
				current = nil
			}
		case len(path) == 2 && current != nil:
			current.properties = append(current.properties, p)
		}
		return nil
	}
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		number++
		if line[0] == ' ' || line[0] == '\t' { // it continues the line before
			if rest := strings.TrimRight(line[1:], "\r\n"); unfolded.Len()+len(rest) <= 1<<16 { // longer ones are descriptions
				unfolded.WriteString(rest)
			}
			continue
		}
		if err := end(); err != nil {
			return nil, nil, err
		}
		begun = number
		unfolded.WriteString(strings.TrimRight(line, "\r\n"))
	}
	if err := end(); err != nil {
		return nil, nil, err
	}
	if len(path) > 0 || number == 0 {
		return nil, nil, errors.New("ics: the file does not end with END:VCALENDAR")
	}
	return events, zones, nil
}

// readProperty reads NAME;PARAMETER=VALUE:VALUE. A parameter may be quoted.
func readProperty(line string) (p property, err error) {
	quoted, at := false, -1
	var cuts []int
scan:
	for i := range len(line) {
		switch c := line[i]; {
		case c == '"':
			quoted = !quoted
		case c == ';' && !quoted:
			cuts = append(cuts, i)
		case c == ':' && !quoted:
			at = i
			break scan
		}
	}
	if at < 1 {
		return p, errors.New("there is no name and colon")
	}
	p.value = line[at+1:]
	cuts = append(cuts, at)
	p.name = strings.ToUpper(line[:cuts[0]])
	for i := range len(cuts) - 1 {
		key, value, _ := strings.Cut(line[cuts[i]+1:cuts[i+1]], "=")
		value = strings.Trim(value, `"`)
		switch strings.ToUpper(key) {
		case "TZID":
			p.zone = value
		case "VALUE":
			p.date = strings.EqualFold(value, "DATE")
		}
	}
	return p, nil
}

// icsFile collects the times of a file.
type icsFile struct {
	zone      *time.Location
	zones     map[string]string
	known     map[string]*time.Location
	moved     map[string][]time.Time // by UID: repetitions with an event of their own
	single    []span
	sources   []source
	recurring int
	perYear   int // of sources
}

func (f *icsFile) event(e *component) error {
	name := ""
	if summary, ok := e.get("SUMMARY"); ok {
		name = shortName(unescape(summary.value))
	}
	if status, _ := e.get("STATUS"); strings.EqualFold(status.value, "CANCELLED") {
		return nil
	}
	given, ok := e.get("DTSTART")
	if !ok {
		return fmt.Errorf("%q has no DTSTART", name)
	}
	start, day, err := f.time(given)
	if err != nil {
		return fmt.Errorf("%q: DTSTART: %w", name, err)
	}
	until, err := f.length(e, start, day)
	if err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	rule, repeats := e.get("RRULE")
	_, replaces := e.get("RECURRENCE-ID")
	further, err := f.times(e, "RDATE", day)
	if err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	if !repeats || replaces {
		for _, at := range append(further, start) {
			f.single = append(f.single, span{at.Unix(), until(at).Unix(), name})
		}
		return nil
	}
	if f.recurring++; f.recurring > maxRecurring {
		return fmt.Errorf("%q: the file has more than %d events that recur", name, maxRecurring)
	}
	except, err := f.times(e, "EXDATE", day)
	if err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	uid, _ := e.get("UID")
	option, err := rrule.StrToROptionInLocation(rule.value, start.Location())
	if err != nil {
		return fmt.Errorf("%q: RRULE: %w", name, plainRule(err))
	}
	if len(rule.value) > 1<<10 {
		return fmt.Errorf("%q: RRULE has more than 1024 bytes", name)
	}
	// Some programs write the last day of an event with times as a date. It belongs to the event.
	if _, last, ok := strings.Cut(strings.ToUpper(rule.value), "UNTIL="); ok && !day && !strings.Contains(strings.Split(last, ";")[0], "T") {
		option.Until = option.Until.AddDate(0, 0, 1).Add(-time.Second)
	}
	option.Dtstart = start
	times, err := newRule(rule.value, *option, append(except, f.moved[uid.value]...), further, start.Location())
	if err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	f.sources = append(f.sources, recurring(times, until, name))
	f.perYear += times.perYear
	return nil
}

// length returns the function that gives the end for a begin of an event.
func (f *icsFile) length(e *component, start time.Time, day bool) (func(time.Time) time.Time, error) {
	if given, ok := e.get("DURATION"); ok {
		days, seconds, err := parseDuration(given.value)
		if err != nil {
			return nil, fmt.Errorf("DURATION: %w", err)
		}
		return func(at time.Time) time.Time { return at.AddDate(0, 0, days).Add(time.Duration(seconds) * time.Second) }, nil
	}
	end, endDay := start, day
	if given, ok := e.get("DTEND"); ok {
		var err error
		if end, endDay, err = f.time(given); err != nil {
			return nil, fmt.Errorf("DTEND: %w", err)
		}
		if end.Before(start) {
			return nil, errors.New("it ends before it begins")
		}
		if end.Sub(start) > maxLength*time.Second {
			return nil, errors.New("it lasts longer than 400 days")
		}
	}
	if day && endDay {
		days := max(1, int((end.Sub(start)+12*time.Hour)/(24*time.Hour))) // days may have 23 or 25 hours
		return func(at time.Time) time.Time { return at.AddDate(0, 0, days) }, nil
	}
	return lasting(int64(end.Sub(start) / time.Second)), nil
}

// times returns the times of all properties of a name.
func (f *icsFile) times(e *component, name string, day bool) (out []time.Time, err error) {
	for _, p := range e.properties {
		if p.name != name {
			continue
		}
		for one := range strings.SplitSeq(p.value, ",") {
			one, _, _ = strings.Cut(one, "/") // a period counts by its begin
			at, _, err := f.time(property{zone: p.zone, value: one, date: p.date})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if out = append(out, at); len(out) > maxExcluded {
				return nil, fmt.Errorf("%s has more than %d times", name, maxExcluded)
			}
		}
	}
	return out, nil
}

// time reads a date or a date with a time.
func (f *icsFile) time(p property) (at time.Time, day bool, err error) {
	zone := f.zone
	if p.zone != "" {
		if zone, err = f.location(p.zone); err != nil {
			return at, false, err
		}
	}
	value := strings.TrimSpace(p.value)
	switch {
	case len(value) == len("20061225"):
		at, err = time.ParseInLocation("20060102", value, f.zone)
		day = true
	case strings.HasSuffix(value, "Z"):
		at, err = time.Parse("20060102T150405Z", value)
	default:
		at, err = time.ParseInLocation("20060102T150405", value, zone)
	}
	switch {
	case err != nil:
		return at, day, fmt.Errorf("time %q: write one such as 20261130T090000Z, or a day such as 20261130", p.value)
	case at.Year() < 1900 || at.Year() > 2200:
		return at, day, fmt.Errorf("time %q: the year is not between 1900 and 2200", p.value)
	}
	return at, day, nil
}

// location finds a time zone by the names that programs give it.
func (f *icsFile) location(id string) (*time.Location, error) {
	if zone := f.known[id]; zone != nil {
		return zone, nil
	}
	names := []string{id, f.zones[id], windowsZones[id]}
	if parts := strings.Split(id, "/"); len(parts) > 2 { // "/freeassociation.sourceforge.net/Europe/Berlin"
		names = append(names, strings.Join(parts[len(parts)-2:], "/"), strings.Join(parts[len(parts)-3:], "/"))
	}
	for _, name := range names {
		if name == "" || name == "Local" {
			continue
		}
		if zone, err := time.LoadLocation(name); err == nil {
			f.known[id] = zone
			return zone, nil
		}
	}
	return nil, fmt.Errorf("the time zone %q is not known: write an IANA name such as Europe/Berlin", id)
}

var durationParts = regexp.MustCompile(`^\+?P(?:(\d{1,4})W)?(?:(\d{1,4})D)?(?:T(?:(\d{1,5})H)?(?:(\d{1,6})M)?(?:(\d{1,8})S)?)?$`)

// parseDuration reads a duration of RFC 5545: days by the calendar, and seconds.
func parseDuration(text string) (days, seconds int, err error) {
	m := durationParts.FindStringSubmatch(strings.ToUpper(strings.TrimSpace(text)))
	if m == nil {
		return 0, 0, fmt.Errorf("%q is no duration", text)
	}
	var n [6]int
	for i := 1; i < len(m); i++ {
		n[i], _ = strconv.Atoi(m[i]) // "" is 0
	}
	days, seconds = 7*n[1]+n[2], 3600*n[3]+60*n[4]+n[5]
	if days*24*3600+seconds > maxLength {
		return 0, 0, fmt.Errorf("%q is longer than 400 days", text)
	}
	return days, seconds, nil
}

var escapes = strings.NewReplacer(`\n`, " ", `\N`, " ", `\,`, ",", `\;`, ";", `\\`, `\`)

func unescape(text string) string { return escapes.Replace(text) }
