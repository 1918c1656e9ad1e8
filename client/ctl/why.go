package ctl

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// account has everything known about the fate of a check's events.
type account struct {
	entity, check string
	event         *event           // the present event; nil if there is none
	missing       error            // the server's answer if there is none
	outcomes      []client.Outcome // newest first
	// simulated is what would happen to the present event now, if it has no trace; why is the reason why not.
	simulated []client.Delivery
	why       string
	undefined []string             // handlers that the event names but that are not defined
	orphaned  bool                 // the event's check was scheduled, and is not defined any more
	silencers map[string]*silencer // by name; nil for one that the user may not see
	// escalations are those of the event that go on. A trace has what was said at the last step or look, and these the present.
	escalations []resource.Escalation
	now         time.Time
	at          time.Time                    // if not zero, the account is of this moment: event is nil, and outcomes has no later event
	command     func(words ...string) string // returns a command to copy
}

// traced reports whether the newest outcome is about the present state.
func (a *account) traced() bool {
	if a.event == nil || len(a.outcomes) == 0 {
		return false
	}
	status := eventCheck(a.event).Status
	return a.outcomes[0].Status == status
}

// incident returns the outcomes since the check began to fail, newest first. For a passing check they are of its last
// incident.
func (a *account) incident() []client.Outcome {
	from, to := a.bounds()
	return a.outcomes[from:to]
}

// bounds returns where the outcomes of incident begin and end.
func (a *account) bounds() (from, to int) {
	for from < len(a.outcomes) && a.outcomes[from].Status == 0 {
		from++
	}
	to = from
	for to < len(a.outcomes) && a.outcomes[to].Status != 0 {
		to++
	}
	return from, to
}

// sentence answers in one or two sentences whether the check alerted, and why not.
func (a *account) sentence() string {
	name := a.entity + "/" + a.check
	switch {
	case !a.at.IsZero():
		return a.sentenceAt(name)
	case a.event == nil && len(a.outcomes) == 0:
		return "There is no event " + name + " and no trace of one."
	case a.event == nil:
		return fmt.Sprintf("There is no event %s now. %s", name, a.past("Its last incident")) + a.earlier(0)
	}
	c := eventCheck(a.event)
	if c.Status == 0 {
		text := name + " passes (status 0), so there is nothing to alert about."
		explained := 0
		if len(a.outcomes) > 0 && a.outcomes[0].Resolution {
			text += fmt.Sprintf(" Its resolution at %s: %s.", a.clock(a.outcomes[0].Received), a.because(a.outcomes[0].Deliveries))
			explained = 1
		}
		return text + after(" ", a.past("The incident before it")) + a.earlier(explained)
	}
	text := fmt.Sprintf("%s fails (status %d", name, c.Status)
	if c.Occurrences > 0 {
		text += fmt.Sprintf(", %s in a row", times(int(c.Occurrences)))
	}
	if c.LastOK > 0 {
		text += ", last OK " + a.clock(c.LastOK*1000)
	}
	text += ")."
	if a.orphaned {
		text += " The check is not defined any more, and its agents send no more results."
	}
	if !a.traced() {
		text += " There is no trace of this"
		routes, held := a.told(a.simulated)
		switch {
		case a.simulated == nil:
			text += after(": ", a.why) + "."
		case routes == nil && held == nil:
			text += ". With the present definitions it would not alert: " + a.because(a.simulated) + "."
		default:
			text += ". With the present definitions it would alert: " + strings.Join(append(routes, held...), "; ") + "."
		}
		return text + a.stillOpen("", a.outcomes)
	}
	return text + a.verdict(a.incident()) + a.undefinedNote() + a.earlier(0)
}

// sentenceAt is sentence for a moment. There is an outcome.
func (a *account) sentenceAt(name string) string {
	newest := &a.outcomes[0]
	text := fmt.Sprintf("At %s %s ", a.clock(a.at.UnixMilli()), name)
	if newest.Status == 0 {
		text += "passed (status 0)."
		if newest.Resolution {
			text += fmt.Sprintf(" Its resolution at %s: %s.", a.clock(newest.Received), a.because(newest.Deliveries))
		}
		return text + after(" ", a.past("The incident before it"))
	}
	incident := a.incident()
	since := a.clock(incident[len(incident)-1].Received)
	return text + fmt.Sprintf("failed (status %d, failing since %s).", newest.Status, since) + a.verdict(incident)
}

// earlier names the deliveries that still wait, besides those of the last incident and of the first outcomes, which the
// sentence has explained.
func (a *account) earlier(explained int) string {
	from, to := a.bounds()
	return a.stillOpen(" of other events", slices.Concat(a.outcomes[min(explained, from):from], a.outcomes[to:]))
}

// stillOpen names the deliveries of some events that still wait.
func (a *account) stillOpen(of string, outcomes []client.Outcome) string {
	var list []client.Delivery
	for _, f := range fates(outcomes) {
		if open(&f.alert) {
			list = append(list, f.alert)
		}
	}
	if list == nil {
		return ""
	}
	return " Still open" + of + ": " + a.because(list) + "."
}

// open reports whether a delivery waits.
func open(d *client.Delivery) bool {
	return d.Verdict == client.VerdictWaiting || d.Verdict == client.VerdictGrouped || d.Verdict == client.VerdictHeld
}

// verdict reports whether an incident alerted, which routes did not alert, and what happened to its newest event.
func (a *account) verdict(incident []client.Outcome) string {
	alerts, by := a.alerts(incident)
	var not, repeated, later []client.Delivery
	var escalations, held, over []string // that have alerted and go on, wait, or are over
	var unknown []string                 // that have reached no one
	for _, f := range fates(incident) {
		d := f.alert
		_, alerted := alertedAt(&d)
		switch {
		case d.Verdict == client.VerdictDelivered:
		case alerted && !open(&d):
			over = append(over, route(&d)+": "+a.reason(&d))
		case alerted:
			text, waits := a.goesOn(&d)
			text = route(&d) + ": " + text
			switch {
			case waits:
				held = append(held, text)
			case a.tookAllSteps(&d):
				over = append(over, text)
			default:
				escalations = append(escalations, text)
			}
		case by[route(&d)] > 0:
			repeated = append(repeated, d)
		case a.partOf(&d) != nil:
			e := a.partOf(&d)
			text := route(&d) + ": " + escalationText(e, a.clock) + after("; ", triesText(e, a.now))
			switch {
			case len(e.Notified) == 0:
				unknown = append(unknown, text)
			case e.Held != "":
				alerts, held = append(alerts, reachedText(&d, e)), append(held, text)
			case e.Next == 0:
				alerts, over = append(alerts, reachedText(&d, e)), append(over, text)
			default:
				alerts, escalations = append(alerts, reachedText(&d, e)), append(escalations, text)
			}
		default:
			not = append(not, d)
			if f.newest != nil {
				later = append(later, *f.newest)
			}
		}
	}
	if len(alerts) > 0 { // of no route is a result that had no handlers at all, and not another route of the one that alerted
		for i := range not {
			if route(&not[i]) == "" {
				repeated = append(repeated, not[i])
			}
		}
		not = slices.DeleteFunc(not, func(d client.Delivery) bool { return route(&d) == "" })
	}
	waits := slices.ContainsFunc(not, func(d client.Delivery) bool { return open(&d) && !a.reachedNoOne(&d) })
	folded := slices.ContainsFunc(not, func(d client.Delivery) bool { return d.Verdict == client.VerdictFolded })
	text := ""
	switch {
	case len(alerts) > 0:
		text = " It did alert: " + strings.Join(alerts, ", ") + "."
		if !a.at.IsZero() && slices.Min(slices.Collect(maps.Values(by))) > a.at.UnixMilli() {
			text = " It had not alerted by then; it did later: " + strings.Join(alerts, ", ") + "."
		}
		if len(escalations) > 0 {
			text += " Its escalation goes on: " + strings.Join(escalations, "; ") + "."
		}
		if len(held) > 0 {
			text += " Its escalation waits: " + strings.Join(held, "; ") + "."
		}
		if len(over) > 0 {
			text += " Its escalation is over: " + strings.Join(over, "; ") + "."
		}
		if len(not) > 0 {
			text += " It did not alert by other routes: " + a.because(not) + "."
		}
		if len(repeated) > 0 {
			text += " A later result did not: " + a.because(repeated) + "."
		}
	case waits:
		text = " It has not alerted yet: " + a.because(not) + "."
	case folded:
		text = " It did not alert on its own: " + a.because(not) + "."
	default:
		text = " It did not alert: " + a.because(not) + "."
	}
	if len(unknown) > 0 {
		none := " Its escalation has reached no one: " + strings.Join(unknown, "; ") + "."
		if len(alerts)+len(not) == 0 {
			text = " It did not alert." + none
		} else {
			text += none
		}
	}
	if len(later) > 0 {
		text += " Its newest result: " + a.because(later) + "."
	}
	return text
}

// reachedNoOne reports whether a delivery is an escalation that is through with its steps and has reached no one.
func (a *account) reachedNoOne(d *client.Delivery) bool {
	return d.Verdict == client.VerdictHeld && slices.ContainsFunc(a.escalations, func(e resource.Escalation) bool {
		return e.Handler == d.Handler && reachesNoOne(&e)
	})
}

// tookAllSteps reports whether a delivery's escalation goes on only in name: no step follows.
func (a *account) tookAllSteps(d *client.Delivery) bool {
	return slices.ContainsFunc(a.escalations, func(e resource.Escalation) bool {
		return e.Handler == d.Handler && e.Next == 0 && e.Held == ""
	})
}

// partOf returns the escalation that a delivery became part of, if it goes on and the trace of its begin is not among those
// that were fetched; otherwise nil.
func (a *account) partOf(d *client.Delivery) *resource.Escalation {
	if d.Verdict != client.VerdictFolded {
		return nil
	}
	i := slices.IndexFunc(a.escalations, func(e resource.Escalation) bool { return e.Handler == d.Handler })
	if i < 0 {
		return nil
	}
	return &a.escalations[i]
}

// reachedText says by which escalation someone was reached.
func reachedText(d *client.Delivery, e *resource.Escalation) string {
	return route(d) + ", which reached " + commaSpace(e.Notified)
}

// escalationText says since when an escalation goes on, and what comes next.
func escalationText(e *resource.Escalation, clock func(int64) string) string {
	text := "it began at " + clock(e.Began) + "; "
	switch {
	case e.Held != "":
		return text + e.Held
	case e.Next == 0:
		return text + "all its " + plural(e.Steps, "step") + " are taken, and nothing more follows"
	}
	return text + "step " + strconv.Itoa(e.Steps+1) + " is due at " + clock(e.Next)
}

// ofStep reports whether a delivery is of a step of an escalation. What became of it is told with the escalation.
func ofStep(d *client.Delivery) bool { return d.Escalation != "" && d.Step > 0 }

// goesOn says where the escalation of a delivery is now, and whether something holds it. An acknowledgement counts at once,
// and the trace has it only when the escalation looks again.
func (a *account) goesOn(d *client.Delivery) (text string, held bool) {
	i := slices.IndexFunc(a.escalations, func(e resource.Escalation) bool { return e.Handler == d.Handler })
	if i < 0 {
		return a.said(d), false
	}
	e := &a.escalations[i]
	stale := strings.HasPrefix(d.Reason, "acknowledged by ") || strings.HasPrefix(d.Reason, "silenced by ")
	switch {
	case e.Held != "":
		return e.Held, true
	case !stale:
		return a.said(d) + after("; ", triesText(e, a.now)), false
	case e.Quiet != "":
		return "the next step is due, but it is quiet: calendar " + e.Quiet, false
	case e.Next > a.now.UnixMilli():
		return "the next step follows at " + a.clock(e.Next) + " unless it is acknowledged", false
	}
	return "what held it is over, and it goes on within a minute", false
}

// undefinedNote names the handlers that are not defined, if the event has others too.
func (a *account) undefinedNote() string {
	switch len(a.undefined) {
	case 0:
		return ""
	case 1:
		return " Handler " + a.undefined[0] + ", which it names, is not defined."
	}
	return " Handlers " + commaSpace(a.undefined) + ", which it names, are not defined."
}

// past reports whether the last incident alerted, or returns "" if none is known.
func (a *account) past(what string) string {
	incident := a.incident()
	if len(incident) == 0 {
		return ""
	}
	open := a.stillOpen("", incident)
	if alerts, _ := a.alerts(incident); len(alerts) > 0 {
		return what + " did alert: " + strings.Join(alerts, ", ") + "." + open
	}
	var list []client.Delivery
	for _, f := range fates(incident) {
		list = append(list, f.alert)
	}
	if open != "" {
		return what + " has not alerted yet: " + a.because(list) + "."
	}
	return what + " did not alert: " + a.because(list) + "."
}

// alerts returns the routes by which any of the events alerted, and the first time; by has the times of the same routes.
func (a *account) alerts(outcomes []client.Outcome) (alerts []string, by map[string]int64) {
	by = map[string]int64{}
	for _, o := range slices.Backward(outcomes) {
		for _, d := range o.Deliveries {
			at, alerted := alertedAt(&d)
			if !alerted || ofStep(&d) || by[route(&d)] > 0 {
				continue
			}
			by[route(&d)] = at
			alerts = append(alerts, route(&d)+" at "+a.clock(at))
		}
	}
	return alerts, by
}

// alertedAt reports whether a delivery alerted, and when. An escalation did when the first delivery of its steps got through.
// Where that is not known, the step was taken at least.
func alertedAt(d *client.Delivery) (at int64, alerted bool) {
	for i := range d.Steps {
		st := &d.Steps[i]
		if reached := cmp.Or(st.Reached, st.At); st.Kind == "escalate" && st.Verdict == "pass" && reached > 0 && (at == 0 || reached < at) {
			at = reached
		}
	}
	if at > 0 {
		return at, true
	}
	if d.Verdict != client.VerdictDelivered {
		return 0, false
	}
	if n := len(d.Attempts); n > 0 {
		return d.Attempts[n-1].At, true
	}
	return d.Updated, true
}

// told returns the routes by which a simulated event would go out, and the handlers that would hold it, each with its
// reason: those are escalations.
func (a *account) told(deliveries []client.Delivery) (routes, held []string) {
	for _, d := range deliveries {
		switch d.Verdict {
		case client.VerdictDelivered, "":
			routes = append(routes, route(&d))
		case client.VerdictHeld:
			if tellsNoOne(&d) {
				continue
			}
			held = append(held, route(&d)+": "+a.said(&d))
		}
	}
	return routes, held
}

// tellsNoOne reports whether a simulated escalation has steps, and finds no one to notify at any of them.
func tellsNoOne(d *client.Delivery) bool {
	steps := 0
	for _, st := range d.Steps {
		if st.Kind != "escalate" {
			continue
		}
		if steps++; st.Verdict != "error" {
			return false
		}
	}
	return steps > 0
}

// would says what a simulation would do with its event.
func (a *account) would(deliveries []client.Delivery) string {
	routes, held := a.told(deliveries)
	if routes == nil && held == nil {
		return "No handler would get it: " + a.because(deliveries) + "."
	}
	var parts []string
	if routes != nil {
		parts = append(parts, "It would be sent to "+strings.Join(routes, ", ")+".")
	}
	for _, one := range held {
		parts = append(parts, "It would be held by "+one+".")
	}
	return strings.Join(parts, " ")
}

// because joins the reasons why the deliveries did not alert, or says that they did. Those that wait or failed come first,
// and routes with the same reason are named together.
func (a *account) because(deliveries []client.Delivery) string {
	const most = 4
	sorted := slices.Clone(deliveries)
	slices.SortStableFunc(sorted, func(x, y client.Delivery) int { return cmp.Compare(weight(&y), weight(&x)) })
	var reasons []string
	names := map[string][]string{} // by reason
	for i := range sorted {
		d := &sorted[i]
		reason := a.reason(d)
		if _, known := names[reason]; !known {
			reasons = append(reasons, reason)
			names[reason] = nil
		}
		if name := route(d); name != "" && d.Verdict != client.VerdictNoHandler && !slices.Contains(names[reason], name) {
			names[reason] = append(names[reason], name)
		}
	}
	if len(reasons) == 0 {
		return "it names no handlers and no pipelines"
	}
	for i, reason := range reasons {
		if of := names[reason]; len(of) > 0 {
			reasons[i] = commaSpace(of) + ": " + reason
		}
	}
	if n := len(reasons); n > most {
		reasons = append(reasons[:most], fmt.Sprintf("and %d more", n-most))
	}
	return strings.Join(reasons, "; ")
}

// reason returns in words why a delivery ended as it did.
func (a *account) reason(d *client.Delivery) string {
	switch d.Verdict {
	case client.VerdictDelivered, "":
		return "delivered"
	case client.VerdictWaiting:
		if len(d.Attempts) == 0 && d.Reason != "" {
			return d.Reason
		}
		text := "the last attempt failed" + after(": ", failure(d))
		if n := len(d.Attempts); n > 0 && d.Attempts[n-1].Next > 0 {
			text += ", the next is at " + a.clock(d.Attempts[n-1].Next)
		}
		return text
	case client.VerdictHeld:
		text, _ := a.goesOn(d)
		if a.reachedNoOne(d) {
			return text
		}
		return "it is held" + after(": ", text)
	case client.VerdictGrouped:
		return "it waits for its group to go out" + after(": ", a.said(d))
	case client.VerdictFolded:
		text := "it went out "
		if n := len(d.Attempts); n > 0 {
			text += "at " + a.clock(d.Attempts[n-1].At) + " "
		}
		return text + "with others in one alert" + after(": ", a.said(d))
	case client.VerdictFiltered:
		return a.filtered(d)
	case client.VerdictSilenced:
		return a.tense(d, a.silencedReason(d))
	case client.VerdictInhibited:
		return a.tense(d, "it is inhibited"+after(": ", a.said(d)))
	case client.VerdictNoHandler:
		text := "no handler takes it"
		if d.Updated > 0 { // it is no simulation
			text = "no handler took it"
		}
		return text + after(": ", a.said(d))
	case client.VerdictDead:
		text := "the handler failed"
		if n := len(d.Attempts); n > 0 {
			text += " in " + plural(n, "attempt")
		}
		return text + after(": ", failure(d)) + " (to send it again: " + a.command(sendAgain(d.Handler)...) + ")"
	case client.VerdictDropped:
		return "it was dropped" + after(": ", a.said(d))
	case client.VerdictFailed:
		return "the workflow could not be run" + after(": ", a.said(d))
	}
	return strings.TrimSpace(string(d.Verdict) + " " + a.said(d))
}

// tense returns a text that begins with "it is", or says "it was" of an older event than the newest.
func (a *account) tense(d *client.Delivery, text string) string {
	if rest, is := strings.CutPrefix(text, "it is "); is && len(a.outcomes) > 0 && max(d.Updated, d.Last) < a.outcomes[0].Received {
		return "it was " + rest
	}
	return text
}

func (a *account) filtered(d *client.Delivery) string {
	for _, st := range slices.Backward(d.Steps) {
		if st.Kind != "filter" || st.Verdict != "deny" {
			continue
		}
		text := "filter " + st.Name + " denied it"
		if st.Expression != "" {
			text += ": " + oneLine(st.Expression)
			var saw []string
			for _, v := range st.Saw {
				saw = append(saw, v.Name+" was "+oneLine(v.Value))
			}
			return text + after(", and ", strings.Join(saw, ", "))
		}
		switch st.Name {
		case "is_incident":
			return text + ": it is neither an incident nor a resolution"
		case "has_metrics":
			return text + ": it has no metrics"
		}
		return cmp.Or(a.said(d), text)
	}
	return cmp.Or(a.said(d), "it was filtered")
}

// failure returns the error of the last attempt, or the first line of its output.
func failure(d *client.Delivery) string {
	if len(d.Attempts) == 0 {
		return d.Reason
	}
	last := d.Attempts[len(d.Attempts)-1]
	text := last.Error
	if text == "" {
		text = result(&last)
	}
	if line := oneLine(last.Output); line != "" && !strings.Contains(text, line) {
		text += ": " + line
	}
	return text
}

// result returns a name for the end of an attempt.
func result(at *client.Attempt) string {
	if at.Status != 0 {
		return fmt.Sprintf("%s (status %d)", at.Result, at.Status)
	}
	return at.Result
}

// route returns the name of a workflow for people.
func route(d *client.Delivery) string {
	if d.Handler != "" {
		return d.Handler
	}
	return strings.Trim(d.Pipeline+"/"+d.Workflow, "/")
}

// oneLine returns the first line of a text that is not empty.
func oneLine(text string) string {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			return clipped(printable(line))
		}
	}
	return ""
}

// clipped shortens a line that would fill the screen.
func clipped(line string) string { return shortened(line, 160) }

// shortened cuts off what a text has beyond a number of characters.
func shortened(line string, most int) string {
	if r := []rune(line); len(r) > most {
		return string(r[:most]) + "…"
	}
	return line
}

// after puts mark before a text that is not empty.
func after(mark, text string) string {
	if text == "" {
		return ""
	}
	return mark + text
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprint(n, " times")
}

// clock returns a time of day, with its date unless that is today.
func (a *account) clock(millis int64) string { return dayClock(millis, a.now) }

// dayClock writes a time in Unix milliseconds, without its day if that is today.
func dayClock(millis int64, now time.Time) string {
	t := time.UnixMilli(millis).Local()
	if t.Format(time.DateOnly) == now.Local().Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// said returns the server's reason of a delivery, with its times like the others of the answer.
func (a *account) said(d *client.Delivery) string { return localTimes(d.Reason, a.clock) }

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

// tracePrinter writes an account for people.
type tracePrinter struct {
	*account
	w     io.Writer
	color bool
	dry   bool // nothing was sent
}

// printedOutcomes is the default number of events shown.
const printedOutcomes = 3

func (p *tracePrinter) write(limit int) {
	fmt.Fprintln(p.w, paint(p.color, bold, printable(p.sentence())))
	if p.event != nil && !p.traced() && p.simulated != nil {
		fmt.Fprintf(p.w, "\nSimulation with the present definitions (nothing was sent):\n")
		p.deliveries(p.simulated)
	}
	left := 0
	for i := range p.outcomes {
		o := &p.outcomes[i]
		waits := slices.ContainsFunc(o.Deliveries, func(d client.Delivery) bool { return open(&d) })
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
		if text, _ := p.goesOn(d); d.Verdict == client.VerdictHeld && text != p.said(d) {
			fmt.Fprintf(p.w, "    now: %s\n", printable(strings.TrimPrefix(text, p.said(d)+"; ")))
		}
		names, _ := p.mutedBy(d)
		for _, name := range names {
			if one := p.silencers[name]; one != nil {
				fmt.Fprintf(p.w, "    %s\n", printable(one.text()))
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
	fmt.Fprintf(p.w, "    attempt %d at %s: %s after %d ms", n, p.clock(at.At), paint(p.color, shade, result(at)), at.Millis)
	if at.Next > 0 {
		fmt.Fprintf(p.w, ", next at %s", p.clock(at.Next))
	}
	fmt.Fprintln(p.w)
	if at.Error != "" && !strings.Contains(result(at), at.Error) {
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
