package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// text describes one of several backends. The unit is that of the report.
func (b *Backend) text(unit string) string {
	return fmt.Sprintf("%s per %s and %s by %s", maybe(b.CPUMicros, micros), unit, maybe(b.RSSBytes, size), b.Metrics)
}

// Text writes a run's result for a terminal.
func Text(w io.Writer, r *Report) error {
	var b strings.Builder
	s := r.Summary
	fmt.Fprintf(&b, "%s\n%s\n\n", r.Title, subtitle(r))
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("events/s", "%s  (%s sent in the whole run)", count(uint64(s.EventsPerSecond+0.5)), count(s.EventsSent))
	if s.SentPerSecond > 0 {
		row("written/s", "%s by the agents", count(uint64(s.SentPerSecond+0.5)))
	}
	if s.Skipped > 0 {
		row("skipped", "%s runs that the backend did not ask for because it was overloaded", count(s.Skipped))
	}
	if o := r.Overload; o != nil {
		row("overload", "%s with %s events/s, caught up %s after its end, %s taken for silent", span(o.Seconds),
			count(uint64(o.EventsPerSecond+0.5)),
			maybe(o.CaughtUpSeconds, span), maybe(o.FalseDeadlines, func(v float64) string { return count(uint64(v)) }))
	}
	row("lost", "%s  (%s of %s pairs of entity and check verified)", found(r, s.Lost).Text, count(s.PairsVerified), count(s.Pairs))
	row("duplicates", "%s", found(r, s.Duplicates).Text)
	row("order violations", "%s", found(r, s.OrderViolations).Text)
	row("agents", "%s of %s connected, in %s", count(s.Connected), count(s.Agents), span(s.ConnectSeconds))
	if s.Killed > 0 {
		row("killed", "%s agents, without a close frame", count(s.Killed))
	}
	row("errors", "%s, and %s unwanted disconnects", count(s.Errors), count(s.Disconnects))
	if s.Moves > 0 {
		row("moves", "%s of agents to other backends, at the request of one", count(s.Moves))
	}
	row("CPU per "+r.unit(), "%s backend, %s load tool", maybe(s.BackendCPUMicros, micros), maybe(s.LoadCPUMicros, micros))
	row("backend memory", "%s", maybe(s.BackendRSSBytes, size))
	for _, b := range s.Backends {
		row("  of them", "%s", b.text(r.unit()))
	}
	row("bytes per "+r.unit(), "%s in the log, %s written", maybe(s.LogBytesPerEvent, size), maybe(s.DiskBytes, size))
	if r.Turns != nil {
		r.Turns.rows(row)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("format report: %w", err)
	}
	if rows := latencyRows(r); len(rows) > 0 {
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprint(t, "\n\tp50\tp90\tp99\tp99.9\tmax\tmeasured\t\n")
		for _, l := range rows {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", lowerFirst(l.Name), l.P50, l.P90, l.P99, l.P999, l.Max, l.Count)
		}
		if err := t.Flush(); err != nil {
			return fmt.Errorf("format report: %w", err)
		}
	}
	for i, n := range r.Notes {
		if i == 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	for i, e := range r.Expectations {
		if i == 0 {
			b.WriteByte('\n')
		}
		verb := "met"
		if !e.Met {
			verb = "MISSED"
		}
		fmt.Fprintf(&b, "%-6s %s: wanted %s, found %s\n", verb, e.Name, e.Want, e.Got)
	}
	fmt.Fprintf(&b, "\n%s\n", judge(r).Text)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("print report: %w", err)
	}
	return nil
}
