package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

const formatHTML = "html"

// reportCommand has the reports over the history of checks' states.
func reportCommand() *cobra.Command {
	cmd := groupOf("report", "report on availability, incidents and noise", "availability --month last --zone Europe/Berlin",
		reportOf("availability", "time in each state and uptime, the lowest first",
			"lapwing report availability --month last --zone Europe/Berlin --by label:service",
			"lapwing report availability --week last --check disk --format html"),
		reportOf("response", "incidents, and the time to acknowledge and to resolve them", "lapwing report response --since 30d --by entity"),
		reportOf("incidents", "each incident, the longest first", "lapwing report incidents --month last --limit 20",
			"lapwing report incidents --since yesterday --entity web1 --format csv"),
		reportOf("noisiest", "the checks that changed their status most often", "lapwing report noisiest --since 7d --limit 20"),
		reportOf("flapping", "the checks that were flapping, and for how long", "lapwing report flapping --since 24h --format csv"))
	cmd.Long = `Report on the history of checks' states. The history reaches back as long as the backend keeps it
(--state-history-age), or, if there is a PostgreSQL, as long as that keeps it (--postgres-changes-retention). A report says
where its figures begin, and which of the two they come from. docs/reports.md explains the figures.`
	return cmd
}

type reportFlags struct {
	week, month, since, until, zone, by string
	entities, checks                    []string
	labelSelector, fieldSelector        string
	skipSilenced                        bool
	limit                               int
}

// fields returns the field selector for all that the flags say about names and fields.
func (f *reportFlags) fields() string {
	var terms []string
	if f.fieldSelector != "" {
		terms = append(terms, "("+f.fieldSelector+")")
	}
	terms = append(terms, nameTerms(f.entities, f.checks)...)
	if len(terms) > 1 {
		return strings.Join(terms, " && ")
	}
	return cmp.Or(f.fieldSelector, strings.Join(terms, ""))
}

// period sets the times that the server takes.
func (f *reportFlags) period(now time.Time) error {
	if f.week == "" {
		return sentMoments(&f.since, &f.until, placeOf(f.zone), now)
	}
	if f.month+f.since+f.until != "" {
		return errors.New("--week goes with neither --month, --since nor --until")
	}
	since, until, err := week(f.week, placeOf(f.zone), now)
	if err != nil {
		return err
	}
	f.since, f.until = since.Format(time.RFC3339), until.Format(time.RFC3339)
	return nil
}

func (f *reportFlags) query(format string) url.Values {
	q := url.Values{}
	for name, value := range map[string]string{
		"month": f.month, "since": f.since, "until": f.until, "zone": f.zone, "by": f.by, "format": format,
		"labelSelector": f.labelSelector, "fieldSelector": f.fields(),
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.skipSilenced {
		q.Set("skip_silenced", "true")
	}
	if f.limit > 0 {
		q.Set("limit", strconv.Itoa(f.limit))
	}
	return q
}

func reportOf(kind, short string, examples ...string) *cobra.Command {
	var f reportFlags
	cmd := &cobra.Command{
		Use:     kind,
		Short:   short,
		Example: "  " + strings.Join(examples, "\n  "),
		Args:    args(),
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			if err := f.period(time.Now()); err != nil {
				return err
			}
			if s.format == formatCSV || s.format == formatHTML {
				return s.reportText(ctx, kind, &f)
			}
			rep, err := s.client.Report(ctx, s.namespace, kind, f.query(""))
			if err != nil {
				return s.hintReport(ctx, err)
			}
			if rep.Total.Pairs == 0 {
				if err := s.emptyReport(ctx, kind, &f); err != nil {
					return err
				}
			} else {
				s.warnOfNames(ctx, s.namespace, f.entities, f.checks, s.reported(ctx, kind, &f))
			}
			raw, err := jsonOf(rep)
			if err != nil {
				return err
			}
			return s.printPlain(raw, func(json.RawMessage) (shown, error) { return &shownReport{rep, placeOf(f.zone)}, nil })
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.week, "week", "", "week of the report from Monday on, as in 2026-W47, last or this, in place of --since and --until")
	flags.StringVar(&f.month, "month", "", "month of the report, as in 2026-10, last or this, in place of --since and --until")
	flags.StringVar(&f.since, "since", "", "begin of the report: "+timeForms+" (default 30d)")
	flags.StringVar(&f.until, "until", "", "end of the report, as for --since; a day belongs to it (default now)")
	flags.StringVar(&f.zone, "zone", "",
		"time zone of days, weeks, months and the times shown, for example Europe/Berlin (default the local one, for --month UTC)")
	flags.StringVar(&f.by, "by", "", `what a row is of: pair (a check of an entity), entity, check or label:NAME (default "pair")`)
	flags.StringSliceVar(&f.entities, "entity", nil, "only checks of these entities, comma separated")
	flags.StringSliceVar(&f.checks, "check", nil, "only these checks, comma separated")
	flags.StringVar(&f.labelSelector, "label-selector", "", "only events whose labels match, for example 'region == eu'")
	flags.StringVar(&f.fieldSelector, "field-selector", "", "only events whose fields match, for example 'event.check.name == disk'")
	flags.BoolVar(&f.skipSilenced, "skip-silenced", false, "leave silenced time out of the uptime, and out of the duration of incidents")
	flags.IntVar(&f.limit, "limit", 0, "number of rows to show; 0 for all")
	formatFlagWith(cmd, formatCSV, formatHTML)
	return cmd
}

// reportText prints a report in a format of the server, and says on standard error what a table would say of it.
func (s *invocation) reportText(ctx context.Context, kind string, f *reportFlags) error {
	rep, err := s.client.ReportAs(ctx, s.namespace, kind, f.query(s.format))
	if err != nil {
		return s.hintReport(ctx, err)
	}
	if rep.Empty {
		if err := s.emptyReport(ctx, kind, f); err != nil {
			return err
		}
	} else {
		s.warnOfNames(ctx, s.namespace, f.entities, f.checks, s.reported(ctx, kind, f))
	}
	if rep.More > 0 {
		fmt.Fprintln(s.errOut, moreRows(rep.More))
	}
	_, err = s.out.Write(rep.Text)
	return err
}

// hintReport returns the error of a report, with the names of namespaces if there is none of that name.
func (s *invocation) hintReport(ctx context.Context, err error) error {
	if errors.Is(err, client.ErrNotFound) {
		return cmp.Or(s.knownNamespace(ctx, s.namespace), err)
	}
	return err
}

// emptyReport says why a report is of no check. It is an error if what the flags name does not exist.
func (s *invocation) emptyReport(ctx context.Context, kind string, f *reportFlags) error {
	if s.tellFirstState(ctx, kind, f) {
		return nil
	}
	if err := s.knownNames(ctx, s.namespace, f.entities, f.checks); err != nil {
		return err
	}
	return s.nothing(ctx, eventKind, s.namespace, f.labelSelector+f.fields() != "")
}

// reported returns a function that reports whether a report has anything of an entity or a check: it may have been deleted.
func (s *invocation) reported(ctx context.Context, kind string, f *reportFlags) func(entity, check string) bool {
	return func(entity, check string) bool {
		one := *f
		if one.limit = 1; entity != "" {
			one.entities = []string{entity}
		} else {
			one.checks = []string{check}
		}
		rep, err := s.client.Report(ctx, s.namespace, kind, one.query(""))
		return err != nil || rep.Total.Pairs > 0
	}
}

func moreRows(n int) string {
	if n == 1 {
		return "1 more row is not shown"
	}
	return fmt.Sprintf("%d more rows are not shown", n)
}

// tellFirstState says of an empty report that there is history of other times only, and since when. It returns false if there
// is none at all.
func (s *invocation) tellFirstState(ctx context.Context, kind string, f *reportFlags) bool {
	whole := *f
	whole.month, whole.since, whole.until, whole.limit = "", "1970-01-01T00:00:00Z", "", 1
	rep, err := s.client.Report(ctx, s.namespace, kind, whole.query(""))
	if err != nil || rep.FirstData == nil {
		return false
	}
	text := "no history of states for that time; the first known state is of " +
		rep.FirstData.In(placeOf(f.zone)).Format(time.DateTime+" MST")
	if s.labelLimits(ctx, "list", client.Events.Plural, s.namespace) != nil {
		text += ". There may be more than you may see: " + byLabels
	}
	fmt.Fprintln(s.errOut, text)
	return true
}

// placeOf returns the time zone of a name; "" is the local one, as is a zone that only the server knows.
func placeOf(zone string) *time.Location {
	if place, err := time.LoadLocation(zone); err == nil && zone != "" {
		return place
	}
	return time.Local
}

// shownReport is a report as a table with lines below.
type shownReport struct {
	*client.StateReport
	place *time.Location // of the times
}

func (r *shownReport) show(s *invocation) error {
	columns, cells := r.layout()
	t := &table{columns: columns}
	for i := range r.Rows {
		t.rows = append(t.rows, cells(&r.Rows[i]))
	}
	if err := t.show(s); err != nil {
		return err
	}
	text := fmt.Sprintf("%d checks of entities", r.Total.Pairs)
	if up := r.Total.Percent(); up != "" {
		text += ", " + up + " % up"
	}
	clock := func(t time.Time) string { return t.In(r.place).Format(time.DateTime + " MST") }
	text += fmt.Sprintf(", from %s to %s", clock(r.Begin), clock(r.Until))
	if r.Begin.After(r.Since) {
		text += ". There is no history before"
	}
	if r.FirstData != nil && r.FirstData.After(r.Begin) {
		text += ". The first known state is of " + clock(*r.FirstData)
	}
	if r.More > 0 {
		text += ". " + moreRows(r.More)
	}
	source := map[string]string{"embedded": "the backend's own history", "postgresql": "PostgreSQL"}[r.Source]
	if source != "" {
		text += "\nSource: " + source
		if r.SourceNote != "" {
			text += ". " + printable(r.SourceNote)
		}
	}
	_, err := fmt.Fprintln(s.out, text)
	return err
}

// layout returns the columns of the table, and a function that returns a row's cells.
func (r *shownReport) layout() (columns []column, cells func(*client.StateReportRow) []string) {
	type row = client.StateReportRow
	var of []func(*row) string
	add := func(title string, right bool, cell func(*row) string) {
		columns, of = append(columns, column{title: title, right: right}), append(of, cell)
	}
	count := func(title string, n func(*row) int64) {
		add(title, true, func(r *row) string { return fmt.Sprint(n(r)) })
	}
	duration := func(title string, n func(*row) int64) {
		add(title, true, func(r *row) string { return millis(n(r)) })
	}
	mean := func(title string, n func(*row) *int64) {
		add(title, true, func(r *row) string {
			if n(r) == nil {
				return ""
			}
			return millis(*n(r))
		})
	}
	entity, check := func(r *row) string { return r.Entity }, func(r *row) string { return r.Check }
	switch r.By {
	case "pair":
		add("Entity", false, entity)
		add("Check", false, check)
	case "entity":
		add("Entity", false, entity)
	case "check":
		add("Check", false, check)
	default:
		add(strings.TrimPrefix(r.By, "label:"), false, func(r *row) string { return cmp.Or(r.Label, "(none)") })
	}
	uptime := func() { add("Uptime %", true, (*row).Percent) }
	incidents := func() { count("Incidents", func(r *row) int64 { return r.Incidents }) }
	flapping := func() { duration("Flapping", func(r *row) int64 { return r.FlappingMs }) }
	switch r.Kind {
	case client.StateReportKindResponse:
		incidents()
		count("Open", func(r *row) int64 { return r.Open })
		count("Acknowledged", func(r *row) int64 { return r.Acknowledged })
		mean("To acknowledge", func(r *row) *int64 { return r.MttaMs })
		count("Resolved", func(r *row) int64 { return r.Resolved })
		mean("To resolve", func(r *row) *int64 { return r.MttrMs })
		duration("Longest", func(r *row) int64 { return r.LongestMs })
	case client.StateReportKindIncidents:
		clock := func(t time.Time) string { return t.In(r.place).Format(time.DateTime) }
		of := func(title string, right bool, cell func(*client.StateReportIncident) string) {
			add(title, right, func(r *row) string {
				if r.Incident == nil {
					return ""
				}
				return cell(r.Incident)
			})
		}
		of("Began", false, func(i *client.StateReportIncident) string {
			if i.Carried {
				return "before " + clock(i.Begin)
			}
			return clock(i.Begin)
		})
		of("Ended", false, func(i *client.StateReportIncident) string {
			if i.End == nil {
				return "open"
			}
			if i.Deleted {
				return clock(*i.End) + " deleted"
			}
			return clock(*i.End)
		})
		of("Lasted", true, func(i *client.StateReportIncident) string { return millis(i.DurationMs) })
		of("Worst", false, func(i *client.StateReportIncident) string {
			if i.Missing {
				return "missing"
			}
			return stateWord(i.Status)
		})
		mean("To acknowledge", func(r *row) *int64 { return r.MttaMs })
	case client.StateReportKindNoisiest:
		count("Changes", func(r *row) int64 { return r.Changes })
		incidents()
		flapping()
		uptime()
	case client.StateReportKindFlapping:
		count("Episodes", func(r *row) int64 { return r.Episodes })
		flapping()
		count("Changes", func(r *row) int64 { return r.Changes })
	default:
		uptime()
		duration("OK", func(r *row) int64 { return r.OkMs })
		duration("Warning", func(r *row) int64 { return r.WarningMs })
		duration("Critical", func(r *row) int64 { return r.CriticalMs })
		duration("Unknown", func(r *row) int64 { return r.UnknownMs })
		duration("Missing", func(r *row) int64 { return r.MissingMs })
		duration("No data", func(r *row) int64 { return r.NoDataMs })
		duration("Silenced", func(r *row) int64 { return r.SilencedMs })
	}
	return columns, func(r *row) []string {
		var out []string
		for _, cell := range of {
			out = append(out, cell(r))
		}
		return out
	}
}

// millis returns a time in milliseconds as the tables show it.
func millis(n int64) string { return lasted(time.Duration(n) * time.Millisecond) }

// lasted returns a duration in two units, as in 2d23h.
func lasted(d time.Duration) string {
	if 0 < d && d < time.Second {
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
	for _, unit := range []struct {
		long, short time.Duration
		names       string
	}{{24 * time.Hour, time.Hour, "dh"}, {time.Hour, time.Minute, "hm"}, {time.Minute, time.Second, "ms"}} {
		if d < unit.long {
			continue
		}
		text := fmt.Sprintf("%d%c", d/unit.long, unit.names[0])
		if rest := d % unit.long / unit.short; rest > 0 {
			text += fmt.Sprintf("%d%c", rest, unit.names[1])
		}
		return text
	}
	return fmt.Sprintf("%ds", max(d, 0)/time.Second)
}

// bandWidth is how many equal parts the band of a history has.
const bandWidth = 60

func historyEventCommand(k *kind) *cobra.Command {
	var since, until string
	cmd := &cobra.Command{
		Use:   "history ENTITY [CHECK]",
		Short: "show the states of a check over days, or of all checks of an entity",
		Long: `Show the states of a check over days: a band over the time, and the changes, newest first. Each part of the band is the
worst state in it: o OK, w warning, u unknown, m missing (no result came in time), c critical, - no data. The line below
marks with s where the check was silenced or acknowledged. Between the changes are the notifications: the handler, the
recipients and the result; and who silenced or acknowledged the check. For silences that are over it takes the right to list
the audit log.

Without CHECK, there is a band for each check of the entity that has an event, and the changes of all of them.

The history outlives the event. It reaches back as long as the backend keeps it (--state-history-age), or, if there is a
PostgreSQL, as long as that keeps it (--postgres-changes-retention). The json format is the list of changes as the API has
it; without CHECK, each has the field check, too.`,
		Example: `  lapwing event history srv1 check-cpu --since 30d
  lapwing event history srv1 --since 1d
  lapwing event history srv1 check-cpu --since 2026-10-01T00:00:00Z --until 2026-11-01T00:00:00Z --format json`,
		Args: func(cmd *cobra.Command, words []string) error {
			if len(words) == 1 {
				return nil
			}
			return args("ENTITY", "[CHECK]")(cmd, words)
		},
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			now := time.Now()
			h := &history{begin: now.AddDate(0, 0, -7), end: now}
			for _, t := range []struct {
				flag, text string
				to         *time.Time
			}{{"since", since, &h.begin}, {"until", until, &h.end}} {
				if t.text == "" {
					continue
				}
				at, err := moment(t.flag, t.text, time.Local, now)
				if err != nil {
					return err
				}
				*t.to = at
			}
			if h.end.After(now) { // the end of today
				h.end = now
			}
			switch {
			case h.begin.After(now):
				return fmt.Errorf("--since %s is in the future", since)
			case !h.begin.Before(h.end):
				return fmt.Errorf("--since must be before --until")
			}
			if len(args) == 1 {
				return s.showEntityHistory(ctx, args[0], h.begin, h.end)
			}
			var err error
			if h.changes, h.before, err = s.client.StateHistory(ctx, s.namespace, args[0], args[1], h.begin, h.end); err != nil {
				return err
			}
			if len(h.changes) == 0 && h.before == nil {
				if err := known(ctx, s, args[0], args[1]); err != nil {
					return err
				}
				if err := s.tellFirstChange(ctx, args[0], args[1]); err != nil {
					return err
				}
			}
			raw, err := jsonOf(h.changes)
			if err != nil {
				return err
			}
			return s.printPlain(raw, func(json.RawMessage) (shown, error) {
				h.notes, err = historyNotes(ctx, s, args[0], args[1], h.begin, h.end)
				return h, err
			})
		}),
	}
	cmd.Flags().StringVar(&since, "since", "", "begin: "+timeForms+" (default 7d)")
	cmd.Flags().StringVar(&until, "until", "", "end, as for --since; a day belongs to it (default now)")
	completeNames(cmd, k)
	formatFlag(cmd)
	return cmd
}

// known returns an error for a check of an entity that has neither an event nor a history: its name may be misspelled.
func known(ctx context.Context, s *invocation, entity, check string) error {
	_, err := client.Get(ctx, s.client, client.Events, s.namespace, client.EventName(entity, check))
	if !errors.Is(err, client.ErrNotFound) {
		return err
	}
	if any, failed := s.client.HasStateHistory(ctx, s.namespace, entity, check); any || failed != nil {
		return failed
	}
	err = reworded(err, "entity %s has no check %s in namespace %s: there is neither an event nor a history", entity, check, s.namespace)
	return hint(err, "'lapwing event list' has the names of both.")
}

// tellFirstChange says of a time without history since when the states of a check are known.
func (s *invocation) tellFirstChange(ctx context.Context, entity, check string) error {
	text := "no state of that time is known"
	changes, _, err := s.client.StateHistory(ctx, s.namespace, entity, check, time.Unix(0, 0), time.Now())
	if n := len(changes); n > 0 {
		text += "; the first known one is of " + changes[n-1].Time.Local().Format(time.DateTime)
	}
	if err == nil {
		fmt.Fprintln(s.errOut, text)
	}
	return err
}

// history is the states of a check from begin to end.
type history struct {
	begin, end time.Time
	changes    []client.StateChange // newest first
	before     *client.StateChange  // in force at begin, or nil
	notes      []note               // newest first
}

// letter returns a state as bands show it, and its severity.
func letter(c *client.StateChange) (letter byte, severity int) {
	const letters = "-owumc"
	switch {
	case c == nil || c.State == "deleted":
	case c.Missing:
		severity = 4
	case c.Status == 0:
		severity = 1
	case c.Status == 1:
		severity = 2
	case c.Status == 2:
		severity = 5
	default:
		severity = 3
	}
	return letters[severity], severity
}

var letterColors = map[byte]string{'o': green, 'w': yellow, 'c': red, 'u': magenta, 'm': magenta}

// bands returns the worst state in each part of the time, and where the check was silenced.
func (h *history) bands() (states, silenced []byte) {
	states, silenced = slices.Repeat([]byte{'-'}, bandWidth), slices.Repeat([]byte{' '}, bandWidth)
	worst := make([]int, bandWidth)
	total := h.end.Sub(h.begin)
	part := func(t time.Time) int { return int(float64(t.Sub(h.begin)) / float64(total) * bandWidth) }
	mark := func(c *client.StateChange, from, to time.Time) {
		if !from.Before(to) {
			return
		}
		is, severity := letter(c)
		for i := part(from); i <= min(part(to.Add(-1)), bandWidth-1); i++ {
			if severity > worst[i] {
				states[i], worst[i] = is, severity
			}
			if c != nil && c.Silenced {
				silenced[i] = 's'
			}
		}
	}
	now, from := h.before, h.begin
	for i := range slices.Backward(h.changes) {
		next := &h.changes[i]
		to := next.Time
		if to.Before(from) { // backends' clocks differ
			to = from
		}
		mark(now, from, to)
		now, from = next, to
	}
	mark(now, from, h.end)
	return states, silenced
}

func (h *history) show(s *invocation) error {
	states, silenced := h.bands()
	fmt.Fprintln(s.out, bandText(states, s.color))
	if marks := strings.TrimRight(string(silenced), " "); marks != "" {
		fmt.Fprintln(s.out, marks)
	}
	fmt.Fprintf(s.out, "%s\n\n", bandTimes(h.begin, h.end))
	t := &table{columns: []column{
		{title: "Time"}, {title: "Lasted", right: true}, {title: "State"}, {title: "Status", keep: true, color: wordColor},
		{title: "Silenced"}, {title: "Output", text: true},
	}}
	until, notes := h.end, h.notes
	for i := range h.changes {
		for ; len(notes) > 0 && !notes[0].at.Before(h.changes[i].Time); notes = notes[1:] {
			t.rows = append(t.rows, notes[0].row())
		}
		t.rows = append(t.rows, changeRow(&h.changes[i], h.changes[i].Time.Local().Format(time.DateTime), until.Sub(h.changes[i].Time)))
		until = h.changes[i].Time
	}
	for i := range notes {
		t.rows = append(t.rows, notes[i].row())
	}
	if h.before != nil {
		t.rows = append(t.rows, changeRow(h.before, "before", until.Sub(h.begin)))
	}
	return t.show(s)
}

func changeRow(c *client.StateChange, at string, took time.Duration) []string {
	state, status := c.State, stateWord(c.Status)
	switch {
	case c.State == "deleted":
		status = ""
	case c.Missing:
		state = "missing"
	}
	output, _, _ := strings.Cut(strings.TrimSpace(c.Output), "\n")
	return []string{at, lasted(took.Truncate(time.Second)), state, status, yesNo(c.Silenced), output}
}
