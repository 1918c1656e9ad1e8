package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

var calendarKind = newKind(client.Calendars, display[resource.Calendar]{
	namespace: func(c *resource.Calendar) string { return c.Metadata.Namespace },
	columns: []cellOf[resource.Calendar]{
		{column{title: "Name"}, func(c *resource.Calendar) string { return c.Metadata.Name }},
		{column{title: "Time Zone"}, calendarZone},
		{column{title: "Windows", right: true}, func(c *resource.Calendar) string { return number(len(c.Windows)) }},
		{column{title: "Include"}, func(c *resource.Calendar) string { return commaSpace(c.Include) }},
		{column{title: "Except", right: true}, func(c *resource.Calendar) string { return number(len(c.Except)) }},
		{column{title: "Description", text: true}, func(c *resource.Calendar) string { return c.Description }},
	},
	title: func(c *resource.Calendar) string { return c.Metadata.Name },
	fields: []fieldOf[resource.Calendar]{
		{label: "Name", text: func(c *resource.Calendar) string { return c.Metadata.Name }},
		{label: "Description", text: func(c *resource.Calendar) string { return c.Description }},
		{label: "Time Zone", text: calendarZone},
		{label: "Windows", text: func(c *resource.Calendar) string { return describeWindows(c.Windows) }},
		{label: "Include", text: func(c *resource.Calendar) string { return commaSpace(c.Include) }},
		{label: "Except", text: func(c *resource.Calendar) string { return describeWindows(c.Except) }},
		{label: "Namespace", text: func(c *resource.Calendar) string { return c.Metadata.Namespace }},
	},
	can:   canList | canInfo | canDelete,
	extra: []func(*kind) *cobra.Command{showCalendarCommand, importCalendarCommand},
})

func calendarZone(c *resource.Calendar) string {
	if c.TimeZone == "" {
		return "UTC"
	}
	return c.TimeZone
}

// describeWindows says in a few words what kinds of windows there are.
func describeWindows(windows []resource.CalendarWindow) string {
	var parts []string
	for i := range windows {
		w := &windows[i]
		switch {
		case w.RRule != "":
			parts = append(parts, w.RRule)
		case w.Cron != "":
			parts = append(parts, "cron "+w.Cron)
		case w.Calendar != "":
			parts = append(parts, "calendar "+w.Calendar)
		case w.ICS != "":
			parts = append(parts, fmt.Sprintf("iCalendar file of %d bytes", len(w.ICS)))
		default:
			parts = append(parts, fmt.Sprintf("%d dates", len(w.Dates)))
		}
	}
	return commaSpace(parts)
}

// showCalendarCommand shows the next times of a calendar.
func showCalendarCommand(k *kind) *cobra.Command {
	when := timeRange{days: 5 * 366}
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "show when one calendar is active",
		Long: `Show when a calendar is active, in the time zone of this computer. The first line says whether it is active at --from,
and when that changes. If the calendar counts as missing, the reason is shown.`,
		Example: "  lapwing calendar show holidays --to 2027-12-31\n  lapwing calendar show working-hours --from 2026-12-20 --to 2027-01-05",
		Args:    args("NAME"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			query, err := when.query()
			if err != nil {
				return err
			}
			var raw json.RawMessage
			if err := s.client.Do(ctx, http.MethodGet, k.Path(s.namespace, args[0])+"/preview"+query, nil, &raw); err != nil {
				return missingNamed(k, args[0], err)
			}
			return s.printPlain(raw, s.showCalendar)
		}),
	}
	when.flags(cmd, "30 days")
	completeNames(cmd, k)
	formatFlag(cmd)
	return cmd
}

// dayOrTime reads a day or a time in the local time zone.
func dayOrTime(text string) (time.Time, error) { return dayOrTimeIn(text, time.Local) }

// dayOrTimeIn reads a day or a time in a time zone, unless the text has another one.
func dayOrTimeIn(text string, zone *time.Location) (time.Time, error) {
	for _, layout := range append([]string{time.DateOnly, time.RFC3339}, dayLayouts...) {
		if at, err := time.ParseInLocation(layout, text, zone); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no day or time: write one such as 2026-12-24 or 2026-12-24T08:00", text)
}

// shownExcepted is how many excepted times are shown.
const shownExcepted = 10

// zoneLine says that something has its days in another time zone than the times that are shown; "" if they are the same.
func zoneLine(what, name, zone string) string {
	there, err := time.LoadLocation(zone)
	if err != nil || zone == "" { // an earlier release does not tell
		return ""
	}
	for now, month := time.Now(), 0; month < 12; month++ {
		at := now.AddDate(0, month, 0)
		_, here := at.Local().Zone()
		if _, offset := at.In(there).Zone(); offset != here {
			return fmt.Sprintf("times of this computer; the %s is in %s\n", strings.TrimSpace(what+" "+name), zone)
		}
	}
	return ""
}

func (s *invocation) showCalendar(raw json.RawMessage) (shown, error) {
	p, err := decode[resource.CalendarPreview](raw)
	if err != nil {
		return nil, err
	}
	fmt.Fprint(s.out, zoneLine("calendar", "", p.TimeZone))
	state := "not active"
	if p.Active {
		state = "active"
	}
	switch {
	case p.Problem != "":
		fmt.Fprintf(s.out, "counts as missing: %s\n", p.Problem)
	case p.Next == 0:
		fmt.Fprintf(s.out, "%s at %s, and for the next five years\n", state, shiftTime(p.From))
	default:
		fmt.Fprintf(s.out, "%s at %s, until %s\n", state, shiftTime(p.From), shiftTime(p.Next))
	}
	for i, w := range p.Excepted {
		if i == shownExcepted {
			fmt.Fprintf(s.out, "… %d more are excepted\n", len(p.Excepted)-i)
			break
		}
		fmt.Fprintf(s.out, "excepted from %s to %s: %s\n", shiftTime(w.Begin), shiftTime(w.End), printable(w.Name))
	}
	t := &table{color: s.color, columns: []column{{title: "Begin"}, {title: "End"}, {title: "Name"}}}
	for _, w := range p.Windows {
		t.rows = append(t.rows, []string{shiftTime(w.Begin), shiftTime(w.End), w.Name})
	}
	if p.More {
		t.rows = append(t.rows, []string{"… more", "", ""})
	}
	return t, nil
}

// icsEvent matches the line with which an event begins in an iCalendar file.
var icsEvent = regexp.MustCompile(`(?mi)^BEGIN:VEVENT\s*$`)

// imported says how many events a file has, and when the calendar is active next. If the calendar has only the file, these
// times are those of its events.
func (s *invocation) imported(ctx context.Context, k *kind, def *resource.Calendar, file []byte) string {
	n := len(icsEvent.FindAll(file, -1))
	text := plural(n, "event")
	now := time.Now()
	query := url.Values{"since": {number(now.Unix())}, "until": {number(now.AddDate(5, 0, 0).Unix())}}
	var p resource.CalendarPreview
	err := s.client.Do(ctx, http.MethodGet, k.Path(s.namespace, def.Metadata.Name)+"/preview?"+query.Encode(), nil, &p)
	switch {
	case err != nil:
		return text // the user may not read it
	case p.Problem != "":
		return text + "; the calendar counts as missing: " + p.Problem
	}
	only := len(def.Windows) == 1 && len(def.Include) == 0 && len(def.Except) == 0
	switch {
	case len(p.Windows) == 0 && only:
		return text + ", all of them are past"
	case len(p.Windows) == 0:
		return text + "; the calendar is not active in the next 5 years"
	}
	next := p.Windows[0]
	switch {
	case !only && next.Begin <= now.Unix():
		return text + "; the calendar is active now until " + shiftTime(next.End) + after(" ", next.Name)
	case !only:
		return text + "; the calendar is active next from " + shiftTime(next.Begin) + after(" ", next.Name)
	case next.Begin <= now.Unix():
		return text + ", active now until " + shiftTime(next.End) + after(" ", next.Name)
	}
	return text + ", the next begins " + shiftTime(next.Begin) + after(" ", next.Name)
}

// importCalendarCommand stores an iCalendar file in a calendar.
func importCalendarCommand(k *kind) *cobra.Command {
	var zone string
	cmd := &cobra.Command{
		Use:   "import FILE NAME",
		Short: "store the events of an iCalendar file in a calendar",
		Long: `Store the events of an iCalendar file (.ics) in a calendar. A new calendar is made if there is none of the name. In an
existing one the file replaces the files of before, and everything else stays.`,
		Example: "  lapwing calendar import holidays-de.ics holidays --time-zone Europe/Berlin",
		Args:    args("FILE", "NAME"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			if len(text) > resource.MaxCalendarICS {
				return fmt.Errorf("%s has %d bytes: a calendar takes %d at most; remove events of the past", args[0], len(text),
					resource.MaxCalendarICS)
			}
			def, tag, err := client.GetTagged(ctx, s.client, client.Calendars, s.namespace, args[1])
			made := errors.Is(err, client.ErrNotFound)
			switch {
			case made:
				def = &resource.Calendar{Metadata: resource.ObjectMeta{Namespace: s.namespace, Name: args[1]}}
			case err != nil:
				return err
			}
			def.Windows = slices.DeleteFunc(def.Windows, func(w resource.CalendarWindow) bool { return w.ICS != "" })
			def.Windows = append(def.Windows, resource.CalendarWindow{ICS: string(text)})
			if zone != "" {
				def.TimeZone = zone
			}
			if err := client.PutIf(ctx, s.client, client.Calendars, s.namespace, args[1], tag, def); err != nil {
				return err
			}
			fmt.Fprintf(s.out, "imported %s into calendar %s: %s\n", args[0], args[1], s.imported(ctx, k, def, text))
			fmt.Fprintf(s.out, "its days, and times without a zone, are in %s", calendarZone(def))
			if made && zone == "" {
				fmt.Fprint(s.out, ", as --time-zone is not set")
			}
			fmt.Fprintf(s.out, "\nshow its times with: lapwing calendar show %s\n", args[1])
			return nil
		}),
	}
	cmd.Flags().StringVar(&zone, "time-zone", "", "time zone of the calendar, for whole days and times without a zone (default as before, or UTC)")
	return cmd
}
