// Package explain answers whether people were told of a check's failure, and why, or why not.
//
// It gets what others know of the event: the traces of its newest results, the escalations that go on, the silences that
// muted it, and perhaps a simulation. From that it makes a sentence for people, and the same in parts for programs. It
// reads nothing by itself, so that the caller decides what its user may see, and it knows neither how it is asked nor how
// the answer is shown.
//
// Times in texts are in UTC and RFC 3339, as in the reasons of traces: a client writes them in the time of its user.
package explain

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// Account has everything known about the fate of a check's events.
type Account struct {
	Entity, Check string
	// Event is the present event; nil if there is none.
	Event *resource.Event
	// Outcomes are those of the newest events, the newest first, completed by trace.Escalated.
	Outcomes []trace.Outcome
	// Simulated is what would happen to the present event now, if it has no trace; Why is the reason why that is not known.
	Simulated []trace.Delivery
	Why       string
	// Undefined are the handlers that the event names but that are not defined.
	Undefined []string
	// Orphaned says that the event's check was scheduled, and is not defined any more.
	Orphaned bool
	// Silences are those of Muters, by name; nil for one that the user may not see.
	Silences map[string]*Silence
	// Escalations are those of the event that go on. A trace has what was said at the last step or look, and these the present.
	Escalations []resource.Escalation
	Now         time.Time
	// At, if not zero, is the moment that the account is of: Event is nil, and Outcomes has no later event.
	At time.Time
}

// Told says whether people were told.
type Told string

// The values of Told.
const (
	Yes     Told = "yes"     // people were told
	Waiting Told = "waiting" // no one yet, and a delivery is still under way
	No      Told = "no"      // no one
	Nothing Told = "nothing" // the check passes
	Unknown Told = "unknown" // there is no trace of the present state
)

// Explanation is the answer.
type Explanation struct {
	// Sentence is the answer for people. Its times are in UTC and RFC 3339.
	Sentence string `json:"sentence"`
	// Parts is the same, with the places where a client may put what to do about a failure.
	Parts []Part `json:"parts"`
	Brief
	// Routes has what became of the incident, or of the newest result of a passing check, by each route.
	Routes []Route `json:"routes"`
	// Next is what to go on with.
	Next []Next `json:"next"`
	// Silences are those that muted the events in the trace.
	Silences []Silence `json:"silences"`
	// Notes are remarks to single deliveries in the trace and in simulated.
	Notes []Note `json:"notes"`
	// Simulated is what would happen to the event now, if there is no trace of its present state.
	Simulated []trace.Delivery `json:"simulated,omitempty"`
	// Outcomes are the events that the answer is about, newest first, with what had become of them when it was given. It is
	// absent unless a request asks for it.
	Outcomes []trace.Outcome `json:"outcomes,omitzero"`
}

// Brief says whether people were told.
type Brief struct {
	Told Told `json:"told"`
	// FirstTold is when the first one was told, Unix milliseconds; 0 if no one was or if the time is not known. It may be later
	// than the moment that was asked for.
	FirstTold int64 `json:"first_told,omitempty"`
	// By has the handlers that told people.
	By []By `json:"by"`
	// Reason says why no one was told, or not yet.
	Reason string `json:"reason,omitempty"`
}

// By is a handler that told people.
type By struct {
	Handler string `json:"handler"` // or pipeline/workflow
	// At is when it first did, Unix milliseconds; 0 if that is not known.
	At int64 `json:"at,omitempty"`
	// Contacts are those whom the steps of an escalation reached, as "alice by mail".
	Contacts []string `json:"contacts,omitempty"`
}

// Part is a piece of the sentence: a text, or a place for something to do.
type Part struct {
	Text string `json:"text,omitempty"`
	Next *Next  `json:"next,omitempty"`
}

// Route is what became of an incident by one route.
type Route struct {
	Pipeline string        `json:"pipeline,omitempty"`
	Workflow string        `json:"workflow,omitempty"`
	Handler  string        `json:"handler,omitempty"`
	Verdict  trace.Verdict `json:"verdict"`
	// Time is when it alerted or, if it did not, when the verdict fell, Unix milliseconds; 0 for a simulation.
	Time int64 `json:"time,omitempty"`
	// Alerted says that people were told by this route, also if its escalation goes on.
	Alerted bool   `json:"alerted"`
	Reason  string `json:"reason"`
}

// Note has remarks to one delivery of a trace.
type Note struct {
	ID string `json:"id"` // of the delivery
	// Open says that it waits.
	Open bool `json:"open,omitempty"`
	// Now says where its escalation is now, if the trace does not.
	Now string `json:"now,omitempty"`
	// Silences are the names of those that muted it.
	Silences []string `json:"silences,omitempty"`
}

// Explain answers.
func (a *Account) Explain() *Explanation {
	text := a.sentence()
	e := &Explanation{Sentence: plain(text), Parts: parts(text), Brief: a.Brief(), Routes: a.routes(), Next: a.next(), Notes: a.notes(),
		Simulated: a.Simulated, Silences: []Silence{}}
	for _, name := range slices.Sorted(maps.Keys(a.Silences)) {
		one := Silence{Name: name, Text: "silence " + name}
		if known := a.Silences[name]; known != nil {
			one = *known
			one.Name, one.Text = name, a.text(known)
		}
		e.Silences = append(e.Silences, one)
	}
	return e
}

// Would says in parts what a simulation would do with its event.
func (a *Account) Would() []Part { return parts(a.would(a.Simulated) + a.undefinedNote()) }

// Brief answers in brief.
func (a *Account) Brief() Brief {
	v := Brief{By: []By{}}
	switch {
	case len(a.Outcomes) == 0 && (a.Event == nil || a.Event.Check == nil || a.Event.Check.Status != 0):
		v.Told = Unknown
		return v
	case a.Event != nil && a.Event.Check.Status == 0, a.Event == nil && a.Outcomes[0].Status == 0:
		v.Told = Nothing
		return v
	case a.Outcomes[0].Status == 0: // the trace of what came since is missing
		v.Told = Unknown
		return v
	}
	incident := a.incident()
	j := a.judge(incident)
	v.By = a.by(j, incident)
	for _, one := range v.By {
		if one.At > 0 && (v.FirstTold == 0 || one.At < v.FirstTold) {
			v.FirstTold = one.At
		}
	}
	switch {
	case a.late(j):
		v.Told = No
	case len(v.By) > 0:
		v.Told = Yes
	case a.waits(j):
		v.Told, v.Reason = Waiting, plain(a.because(j.not))
	case !a.Traced() && a.Event != nil:
		v.Told = Unknown
	case len(j.not) == 0:
		v.Told, v.Reason = No, plain(strings.Join(j.unknown, "; "))
	default:
		v.Told, v.Reason = No, plain(a.because(j.not))
	}
	return v
}

// Whole reports whether the outcomes have the beginning of the incident, because what came before it is among them.
func (a *Account) Whole() bool {
	_, to := a.bounds()
	return to < len(a.Outcomes)
}

// by returns by which routes an incident alerted, in the order of the first times.
func (a *Account) by(j *judgement, incident []trace.Outcome) []By {
	list := []By{}
	for name, at := range j.by {
		list = append(list, By{Handler: name, At: at})
	}
	for _, d := range j.reached {
		list = append(list, By{Handler: route(d), Contacts: a.partOf(d).Notified})
	}
	for i := range j.not {
		d := &j.not[i]
		if d.Verdict != trace.Merged {
			continue
		}
		one := By{Handler: route(d)}
		if n := len(d.Attempts); n > 0 {
			one.At = d.Attempts[n-1].At
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(x, y By) int { return cmp.Or(cmp.Compare(x.At, y.At), cmp.Compare(x.Handler, y.Handler)) })
	for i := range incident {
		for k := range incident[i].Deliveries {
			d := &incident[i].Deliveries[k]
			at := slices.IndexFunc(list, func(one By) bool { return one.Handler == route(d) })
			if at < 0 {
				continue
			}
			for _, name := range reachedBy(d) {
				if !slices.Contains(list[at].Contacts, name) {
					list[at].Contacts = append(list[at].Contacts, name)
				}
			}
		}
	}
	return list
}

// reachedBy returns whom the steps of an escalation reached.
func reachedBy(d *trace.Delivery) (names []string) {
	for i := range d.Steps {
		if d.Steps[i].Kind != trace.StepEscalate {
			continue
		}
		for _, v := range d.Steps[i].Saw {
			if v.Name == trace.SawReached && v.Value != "" {
				names = append(names, strings.Split(v.Value, ", ")...)
			}
		}
	}
	return names
}

// routes returns what became of the incident by each route. Of a passing check it is the resolution.
func (a *Account) routes() []Route {
	list := []Route{}
	add := func(d *trace.Delivery) {
		one := Route{Pipeline: d.Pipeline, Workflow: d.Workflow, Handler: d.Handler, Verdict: d.Verdict, Reason: plain(a.reason(d))}
		if one.Time, one.Alerted = alertedAt(d); !one.Alerted {
			one.Time = max(d.Updated, d.Last)
		}
		list = append(list, one)
	}
	failing := len(a.Outcomes) > 0 && a.Outcomes[0].Status != 0 && (a.Event == nil || a.Event.Check.Status != 0)
	switch {
	case a.Simulated != nil:
		for i := range a.Simulated {
			add(&a.Simulated[i])
			list[i].Time, list[i].Alerted = 0, false
		}
	case failing:
		for _, r := range routesOf(a.incident()) {
			if d := r.told(); d != nil {
				add(d)
			}
		}
	case len(a.Outcomes) > 0 && a.Outcomes[0].Status == 0:
		for i := range a.Outcomes[0].Deliveries {
			add(&a.Outcomes[0].Deliveries[i])
		}
	}
	return list
}

// told returns the delivery that tells best what became of an incident by a route: the first that alerted, or else that of
// its fate.
func (r *routeFates) told() *trace.Delivery {
	for i := range slices.Backward(r.held) {
		if _, alerted := alertedAt(&r.held[i]); alerted {
			return &r.held[i]
		}
	}
	for i := range slices.Backward(r.rest) {
		if _, alerted := alertedAt(&r.rest[i]); alerted {
			return &r.rest[i]
		}
	}
	if len(r.held) > 0 {
		return &r.held[len(r.held)-1]
	}
	if f, ok := r.fate(); ok {
		return &f.alert
	}
	return nil
}

// notes returns the remarks to single deliveries.
func (a *Account) notes() []Note {
	notes := []Note{}
	add := func(list []trace.Delivery) {
		for i := range list {
			d := &list[i]
			one := Note{ID: d.ID, Open: open(d)}
			if text, _ := a.goesOn(d); d.Verdict == trace.Held && text != said(d) {
				one.Now = strings.TrimPrefix(text, said(d)+"; ")
			}
			one.Silences, _ = a.mutedBy(d)
			if one.Open || one.Now != "" || one.Silences != nil {
				notes = append(notes, one)
			}
		}
	}
	add(a.Simulated)
	for i := range a.Outcomes {
		add(a.Outcomes[i].Deliveries)
	}
	return notes
}

// mark encloses the name of a handler whose dead letters may be sent again, in the sentence.
const mark = "\x00"

// unmarked returns a text of others, which may hold anything, without marks.
func unmarked(text string) string { return strings.ReplaceAll(text, mark, "") }

// parts divides a text at its marks.
func parts(text string) []Part {
	list := []Part{}
	for i, one := range strings.Split(text, mark) {
		switch {
		case i%2 == 1:
			list = append(list, Part{Next: &Next{Redrive, one}})
		case one != "":
			list = append(list, Part{Text: one})
		}
	}
	return list
}

// plain returns a text without what is in marks.
func plain(text string) string {
	var b strings.Builder
	for _, one := range parts(text) {
		b.WriteString(one.Text)
	}
	return b.String()
}

// clock writes a time, which is in Unix milliseconds.
func clock(millis int64) string { return time.UnixMilli(millis).UTC().Format(time.RFC3339) }

// said returns the reason of a delivery.
func said(d *trace.Delivery) string { return unmarked(d.Reason) }
