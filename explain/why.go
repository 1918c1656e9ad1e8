package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lapwing-monitoring/lapwing/internal/words"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// Traced reports whether the newest outcome is about the present state.
func (a *Account) Traced() bool {
	if a.Event == nil || len(a.Outcomes) == 0 {
		return false
	}
	status := a.Event.Check.Status
	return a.Outcomes[0].Status == status
}

// incident returns the outcomes since the check began to fail, newest first. For a passing check they are of its last
// incident.
func (a *Account) incident() []trace.Outcome {
	from, to := a.bounds()
	return a.Outcomes[from:to]
}

// bounds returns where the outcomes of incident begin and end.
func (a *Account) bounds() (from, to int) {
	for from < len(a.Outcomes) && a.Outcomes[from].Status == 0 {
		from++
	}
	to = from
	for to < len(a.Outcomes) && a.Outcomes[to].Status != 0 {
		to++
	}
	return from, to
}

// sentence answers in one or two sentences whether the check alerted, and why not.
func (a *Account) sentence() string {
	name := a.Entity + "/" + a.Check
	switch {
	case !a.At.IsZero() && len(a.Outcomes) == 0:
		return "No event of " + name + " that came before " + clock(a.At.UnixMilli()) + " is traced."
	case !a.At.IsZero():
		return a.sentenceAt(name)
	case a.Event == nil && len(a.Outcomes) == 0:
		return "There is no event " + name + " and no trace of one."
	case a.Event == nil:
		return fmt.Sprintf("There is no event %s now. %s", name, a.past("Its last incident")) + a.earlier(0)
	}
	c := a.Event.Check
	if c.Status == 0 {
		text := name + " passes (status 0), so there is nothing to alert about."
		explained := 0
		if len(a.Outcomes) > 0 && a.Outcomes[0].Resolution {
			text += fmt.Sprintf(" Its resolution at %s: %s.", clock(a.Outcomes[0].Received), a.because(a.Outcomes[0].Deliveries))
			explained = 1
		}
		return text + words.After(" ", a.past("The incident before it")) + a.earlier(explained)
	}
	text := fmt.Sprintf("%s fails (status %d", name, c.Status)
	if c.Occurrences > 0 {
		text += fmt.Sprintf(", %s in a row", words.Times(int(c.Occurrences)))
	}
	if c.LastOK > 0 {
		text += ", last OK " + clock(c.LastOK*1000)
	}
	text += ")."
	if a.Orphaned {
		text += " The check is not defined any more, and its agents send no more results."
	}
	if !a.Traced() {
		text += " There is no trace of this"
		routes, held := a.takers(a.Simulated)
		switch {
		case a.Simulated == nil:
			text += words.After(": ", a.Why) + "."
		case routes == nil && held == nil:
			text += ". With the present definitions it would not alert: " + a.because(a.Simulated) + "."
		default:
			text += ". With the present definitions it would alert: " + strings.Join(append(routes, held...), "; ") + "."
		}
		return text + a.stillOpen("", a.Outcomes)
	}
	return text + a.verdict(a.incident()) + a.undefinedNote() + a.earlier(0)
}

// sentenceAt is sentence for a moment. There is an outcome.
func (a *Account) sentenceAt(name string) string {
	newest := &a.Outcomes[0]
	text := fmt.Sprintf("At %s %s ", clock(a.At.UnixMilli()), name)
	if newest.Status == 0 {
		text += "passed (status 0)."
		if newest.Resolution {
			text += fmt.Sprintf(" Its resolution at %s: %s.", clock(newest.Received), a.because(newest.Deliveries))
		}
		return text + words.After(" ", a.past("The incident before it"))
	}
	incident := a.incident()
	since := clock(incident[len(incident)-1].Received)
	return text + fmt.Sprintf("failed (status %d, failing since %s).", newest.Status, since) + a.verdict(incident)
}

// earlier names the deliveries that still wait, besides those of the last incident and of the first outcomes, which the
// sentence has explained.
func (a *Account) earlier(explained int) string {
	from, to := a.bounds()
	return a.stillOpen(" of other events", slices.Concat(a.Outcomes[min(explained, from):from], a.Outcomes[to:]))
}

// stillOpen names the deliveries of some events that still wait.
func (a *Account) stillOpen(of string, outcomes []trace.Outcome) string {
	var list []trace.Delivery
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
func open(d *trace.Delivery) bool {
	return d.Verdict != "" && !d.Verdict.Final()
}

// judgement is what became of an incident by all its routes.
type judgement struct {
	alerts []string         // the routes that alerted, each with the first time
	by     map[string]int64 // these times
	not    []trace.Delivery // of the routes that did not
	// repeated are of later results by routes that alerted before, and later those of the newest result by the others.
	repeated, later []trace.Delivery
	// escalations have alerted and go on, held ones wait, and over ones have ended; unknown ones have reached no one.
	escalations, held, over, unknown []string
	reached                          []*trace.Delivery // the deliveries in alerts that became part of an escalation
}

// judge sorts what became of an incident.
func (a *Account) judge(incident []trace.Outcome) *judgement {
	j := new(judgement)
	j.alerts, j.by = a.alerts(incident)
	for _, f := range fates(incident) {
		d := f.alert
		_, alerted := alertedAt(&d)
		switch {
		case d.Verdict == trace.Delivered:
		case alerted && !open(&d):
			j.over = append(j.over, route(&d)+": "+a.reason(&d))
		case alerted:
			text, waits := a.goesOn(&d)
			text = route(&d) + ": " + text
			switch {
			case waits:
				j.held = append(j.held, text)
			case a.tookAllSteps(&d):
				j.over = append(j.over, text)
			default:
				j.escalations = append(j.escalations, text)
			}
		case j.by[route(&d)] > 0:
			j.repeated = append(j.repeated, d)
		case a.partOf(&d) != nil:
			e := a.partOf(&d)
			text := route(&d) + ": " + escalationText(e) + words.After("; ", words.Tries(e, a.Now, clock))
			if len(e.Notified) == 0 {
				j.unknown = append(j.unknown, text)
				break
			}
			j.alerts, j.reached = append(j.alerts, reachedText(&d, e)), append(j.reached, &d)
			switch {
			case e.Held != "":
				j.held = append(j.held, text)
			case e.Next == 0:
				j.over = append(j.over, text)
			default:
				j.escalations = append(j.escalations, text)
			}
		default:
			j.not = append(j.not, d)
			if f.newest != nil {
				j.later = append(j.later, *f.newest)
			}
		}
	}
	if len(j.alerts) > 0 { // of no route is a result that had no handlers at all, and not another route of the one that alerted
		for i := range j.not {
			if route(&j.not[i]) == "" {
				j.repeated = append(j.repeated, j.not[i])
			}
		}
		j.not = slices.DeleteFunc(j.not, func(d trace.Delivery) bool { return route(&d) == "" })
	}
	return j
}

// waits reports whether a delivery of a route that did not alert may still do so.
func (a *Account) waits(j *judgement) bool {
	return slices.ContainsFunc(j.not, func(d trace.Delivery) bool { return open(&d) && !a.reachedNoOne(&d) })
}

// withOthers reports whether a delivery went out as part of another one.
func (j *judgement) withOthers() bool {
	return slices.ContainsFunc(j.not, func(d trace.Delivery) bool { return d.Verdict == trace.Merged })
}

// late reports whether the incident alerted only after the moment of the account.
func (a *Account) late(j *judgement) bool {
	return !a.At.IsZero() && len(j.by) > 0 && slices.Min(slices.Collect(maps.Values(j.by))) > a.At.UnixMilli()
}

// verdict says whether an incident alerted, which routes did not alert, and what happened to its newest event.
func (a *Account) verdict(incident []trace.Outcome) string {
	j := a.judge(incident)
	text := ""
	switch {
	case len(j.alerts) > 0:
		text = " It did alert: " + strings.Join(j.alerts, ", ") + "."
		if a.late(j) {
			text = " It had not alerted by then; it did later: " + strings.Join(j.alerts, ", ") + "."
		}
		if len(j.escalations) > 0 {
			text += " Its escalation goes on: " + strings.Join(j.escalations, "; ") + "."
		}
		if len(j.held) > 0 {
			text += " Its escalation waits: " + strings.Join(j.held, "; ") + "."
		}
		if len(j.over) > 0 {
			text += " Its escalation is over: " + strings.Join(j.over, "; ") + "."
		}
		if len(j.not) > 0 {
			text += " It did not alert by other routes: " + a.because(j.not) + "."
		}
		if len(j.repeated) > 0 {
			text += " A later result did not: " + a.because(j.repeated) + "."
		}
	case a.waits(j):
		text = " It has not alerted yet: " + a.because(j.not) + "."
	case j.withOthers():
		text = " It did not alert on its own: " + a.because(j.not) + "."
	default:
		text = " It did not alert: " + a.because(j.not) + "."
	}
	if len(j.unknown) > 0 {
		none := " Its escalation has reached no one: " + strings.Join(j.unknown, "; ") + "."
		if len(j.alerts)+len(j.not) == 0 {
			text = " It did not alert." + none
		} else {
			text += none
		}
	}
	if len(j.later) > 0 {
		text += " Its newest result: " + a.because(j.later) + "."
	}
	return text
}

// reachedNoOne reports whether a delivery is an escalation that is through with its steps and has reached no one.
func (a *Account) reachedNoOne(d *trace.Delivery) bool {
	return d.Verdict == trace.Held && slices.ContainsFunc(a.Escalations, func(e resource.Escalation) bool {
		return e.Handler == d.Handler && e.ReachesNoOne()
	})
}

// tookAllSteps reports whether a delivery's escalation goes on only in name: no step follows.
func (a *Account) tookAllSteps(d *trace.Delivery) bool {
	return slices.ContainsFunc(a.Escalations, func(e resource.Escalation) bool {
		return e.Handler == d.Handler && e.Next == 0 && e.Held == ""
	})
}

// partOf returns the escalation that a delivery became part of, if it goes on and the trace of its begin is not among those
// that were fetched; otherwise nil.
func (a *Account) partOf(d *trace.Delivery) *resource.Escalation {
	if d.Verdict != trace.Merged {
		return nil
	}
	i := slices.IndexFunc(a.Escalations, func(e resource.Escalation) bool { return e.Handler == d.Handler })
	if i < 0 {
		return nil
	}
	return &a.Escalations[i]
}

// reachedText says by which escalation someone was reached.
func reachedText(d *trace.Delivery, e *resource.Escalation) string {
	return route(d) + ", which reached " + words.Comma(e.Notified)
}

// escalationText says since when an escalation goes on, and what comes next.
func escalationText(e *resource.Escalation) string {
	text := "it began at " + clock(e.Began) + "; "
	switch {
	case e.Held != "":
		return text + unmarked(e.Held)
	case e.Next == 0:
		return text + "all its " + words.Plural(e.Steps, "step") + " are taken, and nothing more follows"
	}
	return text + "step " + strconv.Itoa(e.Steps+1) + " is due at " + clock(e.Next)
}

// ofStep reports whether a delivery is of a step of an escalation. What became of it is told with the escalation.
func ofStep(d *trace.Delivery) bool { return d.Escalation != "" && d.Step > 0 }

// goesOn says where the escalation of a delivery is now, and whether something holds it. An acknowledgement counts at once,
// and the trace has it only when the escalation looks again.
func (a *Account) goesOn(d *trace.Delivery) (text string, held bool) {
	i := slices.IndexFunc(a.Escalations, func(e resource.Escalation) bool { return e.Handler == d.Handler })
	if i < 0 {
		return said(d), false
	}
	e := &a.Escalations[i]
	stale := strings.HasPrefix(d.Reason, "acknowledged by ") || strings.HasPrefix(d.Reason, "silenced by ")
	switch {
	case e.Held != "":
		return unmarked(e.Held), true
	case !stale:
		return said(d) + words.After("; ", words.Tries(e, a.Now, clock)), false
	case e.Quiet != "":
		return "the next step is due, but it is quiet: calendar " + e.Quiet, false
	case e.Next > a.Now.UnixMilli():
		return "the next step follows at " + clock(e.Next) + " unless it is acknowledged", false
	}
	return "what held it is over, and it goes on within a minute", false
}

// undefinedNote names the handlers that are not defined, if the event has others too.
func (a *Account) undefinedNote() string {
	switch len(a.Undefined) {
	case 0:
		return ""
	case 1:
		return " Handler " + a.Undefined[0] + ", which it names, is not defined."
	}
	return " Handlers " + words.Comma(a.Undefined) + ", which it names, are not defined."
}

// past reports whether the last incident alerted, or returns "" if none is known.
func (a *Account) past(what string) string {
	incident := a.incident()
	if len(incident) == 0 {
		return ""
	}
	open := a.stillOpen("", incident)
	if alerts, _ := a.alerts(incident); len(alerts) > 0 {
		return what + " did alert: " + strings.Join(alerts, ", ") + "." + open
	}
	var list []trace.Delivery
	for _, f := range fates(incident) {
		list = append(list, f.alert)
	}
	if open != "" {
		return what + " has not alerted yet: " + a.because(list) + "."
	}
	return what + " did not alert: " + a.because(list) + "."
}

// alerts returns the routes by which any of the events alerted, and the first time; by has the times of the same routes.
func (a *Account) alerts(outcomes []trace.Outcome) (alerts []string, by map[string]int64) {
	by = map[string]int64{}
	for _, o := range slices.Backward(outcomes) {
		for _, d := range o.Deliveries {
			at, alerted := alertedAt(&d)
			if !alerted || ofStep(&d) || by[route(&d)] > 0 {
				continue
			}
			by[route(&d)] = at
			alerts = append(alerts, route(&d)+" at "+clock(at))
		}
	}
	return alerts, by
}

// alertedAt reports whether a delivery alerted, and when. An escalation did when the first delivery of its steps got through.
// Where that is not known, the step was taken at least.
func alertedAt(d *trace.Delivery) (at int64, alerted bool) {
	for i := range d.Steps {
		st := &d.Steps[i]
		if reached := cmp.Or(st.Reached, st.At); st.Kind == "escalate" && st.Verdict == "pass" && reached > 0 && (at == 0 || reached < at) {
			at = reached
		}
	}
	if at > 0 {
		return at, true
	}
	if d.Verdict != trace.Delivered {
		return 0, false
	}
	if n := len(d.Attempts); n > 0 {
		return d.Attempts[n-1].At, true
	}
	return d.Updated, true
}

// takers returns the routes by which a simulated event would go out, and the handlers that would hold it, each with its
// reason: those are escalations.
func (a *Account) takers(deliveries []trace.Delivery) (routes, held []string) {
	for _, d := range deliveries {
		switch d.Verdict {
		case trace.Delivered, "":
			routes = append(routes, route(&d))
		case trace.Held:
			if tellsNoOne(&d) {
				continue
			}
			held = append(held, route(&d)+": "+said(&d))
		}
	}
	return routes, held
}

// tellsNoOne reports whether a simulated escalation has steps, and finds no one to notify at any of them.
func tellsNoOne(d *trace.Delivery) bool {
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
func (a *Account) would(deliveries []trace.Delivery) string {
	routes, held := a.takers(deliveries)
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
func (a *Account) because(deliveries []trace.Delivery) string {
	const most = 4
	sorted := slices.Clone(deliveries)
	slices.SortStableFunc(sorted, func(x, y trace.Delivery) int { return cmp.Compare(weight(&y), weight(&x)) })
	var reasons []string
	names := map[string][]string{} // by reason
	for i := range sorted {
		d := &sorted[i]
		reason := a.reason(d)
		if _, known := names[reason]; !known {
			reasons = append(reasons, reason)
			names[reason] = nil
		}
		if name := route(d); name != "" && d.Verdict != trace.NoHandler && !slices.Contains(names[reason], name) {
			names[reason] = append(names[reason], name)
		}
	}
	if len(reasons) == 0 {
		return "it names no handlers and no pipelines"
	}
	for i, reason := range reasons {
		if of := names[reason]; len(of) > 0 {
			reasons[i] = words.Comma(of) + ": " + reason
		}
	}
	if n := len(reasons); n > most {
		reasons = append(reasons[:most], fmt.Sprintf("and %d more", n-most))
	}
	return strings.Join(reasons, "; ")
}

// reason returns in words why a delivery ended as it did.
func (a *Account) reason(d *trace.Delivery) string {
	switch d.Verdict {
	case trace.Delivered, "":
		return "delivered"
	case trace.Waiting:
		if len(d.Attempts) == 0 && d.Reason != "" {
			return said(d)
		}
		text := "the last attempt failed" + words.After(": ", failure(d))
		if n := len(d.Attempts); n > 0 && d.Attempts[n-1].Next > 0 {
			text += ", the next is at " + clock(d.Attempts[n-1].Next)
		}
		return text
	case trace.Held:
		text, _ := a.goesOn(d)
		if a.reachedNoOne(d) {
			return text
		}
		return "it is held" + words.After(": ", text)
	case trace.Grouped:
		return "it waits for its group to go out" + words.After(": ", said(d))
	case trace.Merged:
		text := "it went out "
		if n := len(d.Attempts); n > 0 {
			text += "at " + clock(d.Attempts[n-1].At) + " "
		}
		return text + "with others in one alert" + words.After(": ", said(d))
	case trace.Filtered:
		return a.filtered(d)
	case trace.Silenced:
		return a.tense(d, a.silencedReason(d))
	case trace.Inhibited:
		return a.tense(d, "it is inhibited"+words.After(": ", said(d)))
	case trace.NoHandler:
		text := "no handler takes it"
		if d.Updated > 0 { // it is no simulation
			text = "no handler took it"
		}
		return text + words.After(": ", said(d))
	case trace.Dead:
		text := "the handler failed"
		if n := len(d.Attempts); n > 0 {
			text += " in " + words.Plural(n, "attempt")
		}
		return text + words.After(": ", failure(d)) + mark + d.Handler + mark
	case trace.Dropped:
		return "it was dropped" + words.After(": ", said(d))
	case trace.Failed:
		return "the workflow could not be run" + words.After(": ", said(d))
	}
	return strings.TrimSpace(string(d.Verdict) + " " + said(d))
}

// tense returns a text that begins with "it is", or says "it was" of an older event than the newest.
func (a *Account) tense(d *trace.Delivery, text string) string {
	if rest, is := strings.CutPrefix(text, "it is "); is && len(a.Outcomes) > 0 && max(d.Updated, d.Last) < a.Outcomes[0].Received {
		return "it was " + rest
	}
	return text
}

func (a *Account) filtered(d *trace.Delivery) string {
	for _, st := range slices.Backward(d.Steps) {
		if st.Kind != "filter" || st.Verdict != "deny" {
			continue
		}
		text := "filter " + st.Name + " denied it"
		if st.Expression != "" {
			text += ": " + words.OneLine(st.Expression)
			var saw []string
			for _, v := range st.Saw {
				saw = append(saw, v.Name+" was "+words.OneLine(v.Value))
			}
			return text + words.After(", and ", strings.Join(saw, ", "))
		}
		switch st.Name {
		case "is_incident":
			return text + ": it is neither an incident nor a resolution"
		case "has_metrics":
			return text + ": it has no metrics"
		}
		return cmp.Or(said(d), text)
	}
	return cmp.Or(said(d), "it was filtered")
}

// failure returns the error of the last attempt, or the first line of its output.
func failure(d *trace.Delivery) string {
	if len(d.Attempts) == 0 {
		return said(d)
	}
	last := d.Attempts[len(d.Attempts)-1]
	text := unmarked(last.Error)
	if text == "" {
		text = words.Ended(last.Result, last.Status)
	}
	if line := words.OneLine(last.Output); line != "" && !strings.Contains(text, line) {
		text += ": " + line
	}
	return text
}

// route returns the name of a workflow for people.
func route(d *trace.Delivery) string {
	if d.Handler != "" {
		return d.Handler
	}
	return strings.Trim(d.Pipeline+"/"+d.Workflow, "/")
}
