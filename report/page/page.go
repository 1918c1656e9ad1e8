// Package page writes a report for people: as CSV for spreadsheets, and as one HTML page without external resources. The
// API calls it. Names and labels come from many machines: HTML escapes them, and CSV keeps spreadsheets from running them.
package page

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/spreadsheet"
	"github.com/lapwing-monitoring/lapwing/report"
)

// column is a column of a report's table.
type column struct {
	title, name string // for HTML and for CSV
	text        func(r *report.Row) string
	raw         func(r *report.Row) string
}

func duration(title, name string, of func(*report.Row) int64) column {
	return column{title, name + "_ms",
		func(r *report.Row) string { return Duration(of(r)) }, func(r *report.Row) string { return fmt.Sprint(of(r)) }}
}

func mean(title, name string, of func(*report.Row) *int64) column {
	in := func(format func(int64) string) func(*report.Row) string {
		return func(r *report.Row) string {
			if of(r) == nil {
				return ""
			}
			return format(*of(r))
		}
	}
	return column{title, name + "_ms", in(Duration), in(func(n int64) string { return fmt.Sprint(n) })}
}

func count(title, name string, of func(*report.Row) int64) column {
	text := func(r *report.Row) string { return fmt.Sprint(of(r)) }
	return column{title, name, text, text}
}

func same(title, name string, text func(*report.Row) string) column {
	return column{title, name, text, text}
}

var (
	uptime   = same("Uptime %", "uptime_percent", func(r *report.Row) string { return Uptime(r.UptimePPM) })
	flapping = duration("Flapping", "flapping", func(r *report.Row) int64 { return r.Flapping })
	silenced = duration("Silenced", "silenced", func(r *report.Row) int64 { return r.Silenced })
	longest  = duration("Longest", "longest", func(r *report.Row) int64 { return r.Longest })
	changes  = count("Changes", "changes", func(r *report.Row) int64 { return r.Changes })
	incident = count("Incidents", "incidents", func(r *report.Row) int64 { return r.Incidents })
	episodes = count("Episodes", "episodes", func(r *report.Row) int64 { return r.Episodes })
	carried  = count("Carried", "carried", func(r *report.Row) int64 { return r.Carried })
	open     = count("Open", "open", func(r *report.Row) int64 { return r.Open })
)

// figures are the columns of each kind of report behind the names.
var figures = map[report.Kind][]column{
	report.Availability: {
		uptime,
		duration("OK", "ok", func(r *report.Row) int64 { return r.OK }),
		duration("Warning", "warning", func(r *report.Row) int64 { return r.Warning }),
		duration("Critical", "critical", func(r *report.Row) int64 { return r.Critical }),
		duration("Unknown", "unknown", func(r *report.Row) int64 { return r.Unknown }),
		duration("Missing", "missing", func(r *report.Row) int64 { return r.Missing }),
		duration("No data", "no_data", func(r *report.Row) int64 { return r.NoData }),
		silenced,
	},
	report.Response: {
		incident, carried, open,
		count("Acknowledged", "acknowledged", func(r *report.Row) int64 { return r.Acknowledged }),
		mean("Mean to acknowledge", "mtta", func(r *report.Row) *int64 { return r.MTTA }),
		count("Resolved", "resolved", func(r *report.Row) int64 { return r.Resolved }),
		mean("Mean to resolve", "mttr", func(r *report.Row) *int64 { return r.MTTR }),
		longest,
	},
	report.Noisiest: {changes, incident, episodes, flapping, uptime},
	report.Flapping: {episodes, flapping, changes, incident},
	report.Incidents: {
		same("Began", "begin", ofIncident(func(i *report.Incident) string { return i.Begin.Format(csvTime) })),
		same("Ended", "end", ofIncident(func(i *report.Incident) string {
			if i.End == nil {
				return "open"
			}
			return i.End.Format(csvTime)
		})),
		duration("Lasted", "duration", func(r *report.Row) int64 {
			if r.Incident == nil {
				return r.Longest
			}
			return r.Incident.Duration
		}),
		same("Worst status", "status", ofIncident(func(i *report.Incident) string { return fmt.Sprint(i.Status) })),
		same("Missing", "missing", ofIncident(func(i *report.Incident) string { return fmt.Sprint(i.Missing) })),
		same("Carried", "carried", ofIncident(func(i *report.Incident) string { return fmt.Sprint(i.Carried) })),
		mean("To acknowledge", "mtta", func(r *report.Row) *int64 { return r.MTTA }),
		same("Deleted", "deleted", ofIncident(func(i *report.Incident) string { return fmt.Sprint(i.Deleted) })),
	},
}

// csvTime is a time in UTC that spreadsheets read.
const csvTime = "2006-01-02T15:04:05Z"

// ofIncident returns the cell of a row's incident; "" for the total.
func ofIncident(cell func(*report.Incident) string) func(*report.Row) string {
	return func(r *report.Row) string {
		if r.Incident == nil {
			return ""
		}
		return cell(r.Incident)
	}
}

// names are the columns of a row's names.
func names(by string) []column {
	entity := same("Entity", "entity", func(r *report.Row) string { return r.Entity })
	check := same("Check", "check", func(r *report.Row) string { return r.Check })
	pairs := count("Checks", "checks", func(r *report.Row) int64 { return r.Pairs })
	switch by {
	case report.ByPair:
		return []column{entity, check}
	case report.ByEntity:
		return []column{entity, pairs}
	case report.ByCheck:
		pairs.title, pairs.name = "Entities", "entities"
		return []column{check, pairs}
	}
	label := strings.TrimPrefix(by, report.ByLabel)
	return []column{{label, "label", func(r *report.Row) string { return cmp.Or(r.Label, "(none)") },
		func(r *report.Row) string { return r.Label }}, pairs}
}

// Uptime returns an uptime in percent, or "" for none.
func Uptime(ppm *int64) string {
	if ppm == nil {
		return ""
	}
	return fmt.Sprintf("%d.%04d", *ppm/10_000, *ppm%10_000)
}

// Duration returns milliseconds in two units, as in 3d4h.
func Duration(ms int64) string {
	if ms < 1000 {
		return fmt.Sprintf("%dms", ms)
	}
	seconds := ms / 1000
	for _, unit := range []struct {
		long, short int64
		names       string
	}{{86400, 3600, "dh"}, {3600, 60, "hm"}, {60, 1, "ms"}} {
		if seconds < unit.long {
			continue
		}
		text := fmt.Sprintf("%d%c", seconds/unit.long, unit.names[0])
		if rest := seconds % unit.long / unit.short; rest > 0 {
			text += fmt.Sprintf("%d%c", rest, unit.names[1])
		}
		return text
	}
	return fmt.Sprintf("%ds", seconds)
}

// CSV writes a report's rows with a line of titles. Durations are milliseconds.
func CSV(w io.Writer, rep *report.Report) error {
	columns := append(names(rep.By), figures[rep.Kind]...)
	out := csv.NewWriter(w)
	line := make([]string, len(columns))
	for i, c := range columns {
		line[i] = c.name
	}
	if err := out.Write(line); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	for i := range rep.Rows {
		for j, c := range columns {
			line[j] = spreadsheet.Cell(c.raw(&rep.Rows[i]))
		}
		if err := out.Write(line); err != nil {
			return fmt.Errorf("write CSV: %w", err)
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	return nil
}

// moment returns a time as people read it.
func moment(t time.Time, place *time.Location) string {
	return t.In(place).Format("2006-01-02 15:04:05 MST")
}
