package ctl

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/words"
)

// tracePrinter writes what became of events for people.
type tracePrinter struct {
	w     io.Writer
	color bool
	now   time.Time
	dry   bool // nothing was sent
	// answer comes first, then the simulation, if there is one, and the outcomes.
	answer    string
	simulated []client.Delivery
	outcomes  []client.Outcome
	notes     map[string]client.Note // by the ID of the delivery
	silences  map[string]string      // what is said of those that the user may see, by name
}

// printedOutcomes is the default number of events shown.
const printedOutcomes = 3

func (p *tracePrinter) write(limit int) {
	fmt.Fprintln(p.w, paint(p.color, bold, printable(p.answer)))
	if p.simulated != nil {
		fmt.Fprintf(p.w, "\nSimulation with the present definitions (nothing was sent):\n")
		p.deliveries(p.simulated)
	}
	left := 0
	for i := range p.outcomes {
		o := &p.outcomes[i]
		waits := slices.ContainsFunc(o.Deliveries, func(d client.Delivery) bool { return p.notes[d.ID].Open })
		beyond := limit > 0 && i >= limit
		if beyond && !waits {
			left++
			continue
		}
		kind := ""
		switch {
		case o.Resolution:
			kind = ", a resolution"
		case o.Incident:
			kind = ", an incident"
		}
		if beyond {
			kind += "; shown beyond --limit because a delivery of it still waits"
		}
		fmt.Fprintf(p.w, "\n%s (%s ago): status %d%s\n", time.UnixMilli(o.Received).Local().Format(time.DateTime),
			p.ago(o.Received), o.Status, kind)
		p.deliveries(o.Deliveries)
	}
	if left > 0 {
		is := "traces are"
		if left == 1 {
			is = "trace is"
		}
		fmt.Fprintf(p.w, "\n%d older %s not shown; see --limit.\n", left, is)
	}
}

func (p *tracePrinter) ago(millis int64) string { return span(p.now.Sub(time.UnixMilli(millis))) }

func (p *tracePrinter) deliveries(deliveries []client.Delivery) {
	for i := range deliveries {
		d := &deliveries[i]
		where := "handler " + d.Handler
		if d.Pipeline != "" {
			where = "pipeline " + d.Pipeline + ", workflow " + d.Workflow
			if d.Handler != "" {
				where += ", handler " + d.Handler
			}
		} else if d.Handler == "" {
			where = "no handler"
		}
		verdict := strings.ReplaceAll(string(d.Verdict), "_", " ")
		switch {
		case p.dry && d.Verdict == client.VerdictDelivered:
			verdict = wouldBeSent
		case verdict == "":
			verdict = "delivered"
		}
		fmt.Fprintf(p.w, "  %s: %s", printable(where), paint(p.color, verdictColor(d.Verdict), strings.ToUpper(verdict)))
		if d.Reason != "" {
			fmt.Fprint(p.w, ", ", printable(p.said(d)))
		}
		fmt.Fprintln(p.w)
		note := p.notes[d.ID]
		if note.Now != "" {
			fmt.Fprintf(p.w, "    now: %s\n", printable(localTimes(note.Now, p.clock)))
		}
		for _, name := range note.Silences {
			if text := p.silences[name]; text != "" {
				fmt.Fprintf(p.w, "    %s\n", printable(localTimes(text, p.clock)))
			}
		}
		for j := range d.Steps {
			p.step(&d.Steps[j])
		}
		for j := range d.Attempts {
			p.attempt(&d.Attempts[j], j+1)
		}
		if d.Into != "" {
			fmt.Fprintf(p.w, "    went out as %s\n", printable(d.Into))
		}
		if d.Repeats > 0 {
			fmt.Fprintf(p.w, "    the same %s more, last at %s\n", times(d.Repeats), p.clock(d.Last))
		}
	}
}

func (p *tracePrinter) step(st *client.Step) {
	verdict := st.Verdict
	if verdict == "" {
		verdict = "-"
	}
	shade := ""
	switch verdict {
	case "deny":
		shade = yellow
	case "error":
		shade = red
	}
	line := st.Kind + after(" ", st.Name)
	fmt.Fprintf(p.w, "    %s %s", paint(p.color, shade, pad(verdict, 5, false)), printable(line))
	if st.Expression != "" {
		fmt.Fprint(p.w, ": ", oneLine(st.Expression))
	}
	if st.At > 0 {
		fmt.Fprint(p.w, " at ", p.clock(st.At))
	}
	if st.Reached > 0 && p.clock(st.Reached) != p.clock(st.At) {
		fmt.Fprint(p.w, ", reached someone at ", p.clock(st.Reached))
	}
	if st.Micros >= 1000 {
		fmt.Fprintf(p.w, " (%d ms)", st.Micros/1000)
	}
	fmt.Fprintln(p.w)
	if st.Kind != "filter" || st.Expression != "" || st.Verdict != "pass" { // a built-in filter passed
		for _, v := range st.Saw {
			fmt.Fprintf(p.w, "            %s = %s\n", printable(v.Name), oneLine(v.Value))
		}
	}
	if st.Error != "" {
		fmt.Fprintf(p.w, "            %s\n", paint(p.color, red, oneLine(st.Error)))
	}
}

// outputLines is how many lines of an attempt's output are shown.
const outputLines = 8

func (p *tracePrinter) attempt(at *client.Attempt, n int) {
	shade := green
	if at.Result != "ok" {
		shade = red
	}
	fmt.Fprintf(p.w, "    attempt %d at %s: %s after %d ms", n, p.clock(at.At), paint(p.color, shade, words.Ended(at.Result, at.Status)), at.Millis)
	if at.Next > 0 {
		fmt.Fprintf(p.w, ", next at %s", p.clock(at.Next))
	}
	fmt.Fprintln(p.w)
	if at.Error != "" && !strings.Contains(words.Ended(at.Result, at.Status), at.Error) {
		fmt.Fprintf(p.w, "            %s\n", oneLine(at.Error))
	}
	shown := 0
	for line := range strings.Lines(strings.TrimSpace(at.Output)) {
		if shown++; shown > outputLines {
			fmt.Fprintln(p.w, "            …")
			break
		}
		fmt.Fprintf(p.w, "            | %s\n", clipped(printable(strings.TrimRight(line, "\r\n"))))
	}
}

func verdictColor(v client.Verdict) string {
	switch v {
	case client.VerdictDelivered, "":
		return green
	case client.VerdictDead, client.VerdictFailed, client.VerdictDropped:
		return red
	}
	return yellow
}

// clock returns a time of day, with its date unless that is today.
func (p *tracePrinter) clock(millis int64) string { return dayClock(millis, p.now) }

// dayClock writes a time in Unix milliseconds, without its day if that is today.
func dayClock(millis int64, now time.Time) string {
	t := time.UnixMilli(millis).Local()
	if t.Format(time.DateOnly) == now.Local().Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// said returns the server's reason of a delivery, with its times like the others.
func (p *tracePrinter) said(d *client.Delivery) string { return localTimes(d.Reason, p.clock) }

// utcTime matches the times in texts of the server.
var utcTime = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// localTimes writes the UTC times in a text of the server as clock does, which gets Unix milliseconds.
func localTimes(text string, clock func(millis int64) string) string {
	return utcTime.ReplaceAllStringFunc(text, func(one string) string {
		at, err := time.Parse(time.RFC3339, one)
		if err != nil {
			return one
		}
		return clock(at.UnixMilli())
	})
}
