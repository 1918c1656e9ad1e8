// Package oncall answers who is on call, whom a step of an escalation notifies, and when it is quiet. Package handler takes
// the steps and asks at each one, the pipeline asks for simulations, and the API shows rotas.
//
// All answers are computed from the definitions of the present and a time: nothing is stored, so all members of a cluster
// give the same. What is missing (a contact, a rota, a handler) is a problem that the answer names, and never an error that
// keeps the others from being notified. To send, to wait and to remember are left to package handler.
package oncall

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Directory has contacts, rotas and calendars. It is safe for concurrent use.
type Directory struct {
	config    func() *config.Snapshot
	calendars *calendar.Calendars
}

// New makes a Directory of the present definitions.
func New(config func() *config.Snapshot, calendars *calendar.Calendars) *Directory {
	return &Directory{config, calendars}
}

// Recipient is a handler that gets the incident, and for whom.
type Recipient struct {
	Contact string // "" for a handler without a contact
	Rota    string // through which the contact was found, or ""
	Handler string
}

// String returns the recipient as traces show it: alice by mail (rota primary).
func (r Recipient) String() string {
	switch {
	case r.Contact == "":
		return r.Handler
	case r.Rota == "":
		return r.Contact + " by " + r.Handler
	}
	return r.Contact + " by " + r.Handler + " (rota " + r.Rota + ")"
}

// Recipients returns whom a step notifies about an event at a time, each once, and what is wrong with its targets.
func (d *Directory) Recipients(
	namespace string, step *resource.EscalationStep, ev *resource.Event, at time.Time,
) (list []Recipient, problems []string) {
	g := gathering{d: d, sn: d.config(), namespace: namespace, at: at}
	for _, t := range step.Notify {
		switch {
		case t.Contact != "":
			g.contact(t.Contact, "")
		case t.Rota != "":
			g.rota(t.Rota)
		case t.Handler != "":
			g.add(Recipient{Handler: t.Handler})
		default:
			g.label(t.Label, ev)
		}
	}
	return g.list, g.problems
}

// gathering collects the recipients of a step.
type gathering struct {
	d         *Directory
	sn        *config.Snapshot
	namespace string
	at        time.Time

	list     []Recipient
	problems []string
}

func (g *gathering) problem(format string, args ...any) {
	g.problems = append(g.problems, fmt.Sprintf(format, args...))
}

// add adds a recipient. A handler that is defined and a contact that has it come once, however many targets name them.
func (g *gathering) add(r Recipient) {
	h, ok := config.Get(g.sn, config.Handlers, g.namespace, r.Handler)
	switch {
	case !ok:
		g.problem("there is no handler %s%s", r.Handler, forContact(r.Contact))
	case h.Type == "set" || h.Type == resource.EscalationType:
		g.problem("the handler %s%s is of type %s, which notifies no one itself", r.Handler, forContact(r.Contact), h.Type)
	case !slices.ContainsFunc(g.list, func(o Recipient) bool { return o.Contact == r.Contact && o.Handler == r.Handler }):
		g.list = append(g.list, r)
	}
}

func forContact(name string) string {
	if name == "" {
		return ""
	}
	return " of contact " + name
}

func (g *gathering) contact(name, rota string) {
	c, ok := config.Get(g.sn, config.Contacts, g.namespace, name)
	if !ok {
		g.problem("there is no contact %s", name)
		return
	}
	for _, handler := range c.Handlers {
		g.add(Recipient{name, rota, handler})
	}
}

func (g *gathering) rota(name string) {
	def, ok := config.Get(g.sn, config.Rotas, g.namespace, name)
	if !ok {
		g.problem("there is no rota %s", name)
		return
	}
	now, onCall, _ := g.d.turns(g.sn, def).at(g.at)
	if !onCall {
		g.problem("rota %s has no one on call", name)
		return
	}
	g.contact(now.Contact, name)
}

// mostLabelled bounds the names in a label: agents write labels, and must not page everyone.
const mostLabelled = 20

// label adds the contacts and rotas that a label names. A name of both is the contact.
func (g *gathering) label(name string, ev *resource.Event) {
	var value string
	if ev.Check != nil {
		value = ev.Check.Metadata.Labels[name]
	}
	if value == "" && ev.Entity != nil {
		value = ev.Entity.Metadata.Labels[name]
	}
	found := 0
	for one := range strings.SplitSeq(value, ",") {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		if found++; found > mostLabelled {
			g.problem("label %s has more than %d names, and the others are left out", name, mostLabelled)
			break
		}
		if _, ok := config.Get(g.sn, config.Contacts, g.namespace, one); ok {
			g.contact(one, "")
		} else if _, ok := config.Get(g.sn, config.Rotas, g.namespace, one); ok {
			g.rota(one)
		} else {
			g.problem("label %s names %q, which is neither a contact nor a rota", name, one)
		}
	}
	if found == 0 {
		g.problem("neither the check nor the entity has a label %s", name)
	}
}

// Quiet reports whether an escalation is quiet for a status at a time, in which calendar, and when that calendar ends; the
// zero time if it does not in the next years.
func (d *Directory) Quiet(
	namespace string, e *resource.HandlerEscalation, status uint32, at time.Time,
) (name string, until time.Time, quiet bool) {
	severity, sn := resource.SeverityOf(status), d.config()
	for _, q := range e.Quiet {
		if !slices.Contains(q.Severities, severity) {
			continue
		}
		for _, name := range q.Calendars {
			if c := d.calendars.Find(sn, namespace, name); c.Active(at) {
				return name, c.Next(at), true
			}
		}
	}
	return "", time.Time{}, false
}

// QuietText says in words what Quiet returns.
func QuietText(status uint32, name string, until time.Time) string {
	text := "it is quiet for severity " + resource.SeverityOf(status)
	if !until.IsZero() {
		text += " until " + until.UTC().Format(time.RFC3339)
	}
	return text + ": calendar " + name
}

// Contact returns a contact's definition, or nil.
func (d *Directory) Contact(namespace, name string) *resource.Contact {
	c, _ := config.Get(d.config(), config.Contacts, namespace, name)
	return c
}

// OnCall returns who is on call in a rota from a time to another one: limit shifts at most. Shifts are cut to that time.
func (d *Directory) OnCall(def *resource.Rota, from, to time.Time, limit int) resource.OnCall {
	sn := d.config()
	t := d.turns(sn, def)
	out := resource.OnCall{Rota: def.Metadata.Name, Problem: t.problem, From: from.Unix(), Shifts: []resource.OnCallShift{},
		TimeZone: cmp.Or(def.TimeZone, "UTC")}
	last := -1 // the turn of the last shift
	for at := from; at.Before(to); {
		now, onCall, turn := t.at(at)
		until := t.next(at)
		now.Until = until.Unix()
		if until.After(to) {
			until = to
		}
		now.Begin, now.End = at.Unix(), until.Unix()
		if onCall {
			_, known := config.Get(sn, config.Contacts, def.Metadata.Namespace, now.Contact)
			now.NoContact = !known
		}
		switch n := len(out.Shifts); {
		case !onCall:
		case n > 0 && turn == last && out.Shifts[n-1].End == now.Begin && out.Shifts[n-1].Contact == now.Contact &&
			out.Shifts[n-1].Override == now.Override && out.Shifts[n-1].Reason == now.Reason:
			out.Shifts[n-1].End, out.Shifts[n-1].Until = now.End, now.Until
		case n == limit:
			out.More = true
			return out
		default:
			out.Shifts, last = append(out.Shifts, now), turn
		}
		at = until
	}
	if n := len(out.Shifts); n > 0 && out.Shifts[n-1].End == to.Unix() {
		out.Shifts[n-1].Until = t.endOf(time.Unix(out.Shifts[n-1].Until, 0), last, &out.Shifts[n-1])
	}
	return out
}

// mostParts bounds the parts of one turn that are joined behind the time that was asked for.
const mostParts = 1000

// endOf returns when a turn ends that goes on to a time at least, Unix seconds.
func (t *turns) endOf(at time.Time, turn int, of *resource.OnCallShift) int64 {
	for range mostParts {
		now, onCall, n := t.at(at)
		if !onCall || n != turn || now.Contact != of.Contact || now.Override != of.Override || now.Reason != of.Reason {
			break
		}
		if turn < 0 {
			at = t.nextOverride(at)
		} else {
			at = t.next(at)
		}
	}
	return at.Unix()
}

// nextOverride returns the first time after now at which an override begins or ends, while one goes on.
func (t *turns) nextOverride(now time.Time) time.Time {
	next := int64(math.MaxInt64)
	for _, o := range t.rota.Overrides {
		for _, at := range [...]int64{o.Begin, o.End} {
			if at > now.Unix() {
				next = min(next, at)
			}
		}
	}
	return time.Unix(next, 0)
}

// turns computes the turns of a rota.
type turns struct {
	rota    *resource.Rota
	zone    *time.Location
	start   int64 // by the clock on the wall, see wall
	within  []*calendar.Calendar
	problem string
}

func (d *Directory) turns(sn *config.Snapshot, def *resource.Rota) *turns {
	t := &turns{rota: def, zone: time.UTC}
	var err error
	if t.zone, err = time.LoadLocation(cmp.Or(def.TimeZone, "UTC")); err != nil {
		t.zone, t.problem = time.UTC, "the rota's time zone is not known here, and UTC takes its place: "+err.Error()
	}
	if start, err := time.Parse(resource.RotaTime, def.Start); err == nil { // Validate checks it
		t.start = start.Unix()
	}
	for _, name := range def.Within {
		c := d.calendars.Find(sn, def.Metadata.Namespace, name)
		if c.Problem != "" {
			t.problem = c.Problem + ": the rota is on call without regard to it"
			continue
		}
		t.within = append(t.within, c)
	}
	return t
}

// wall returns the time that a clock on the wall shows, as seconds. Days have 86,400 of them, also when clocks change.
func (t *turns) wall(at time.Time) int64 {
	_, offset := at.In(t.zone).Zone()
	return at.Unix() + int64(offset)
}

// fromWall is the reverse of wall.
func (t *turns) fromWall(wall int64) time.Time {
	w := time.Unix(wall, 0).UTC()
	return time.Date(w.Year(), w.Month(), w.Day(), w.Hour(), w.Minute(), w.Second(), 0, t.zone)
}

// at returns who is on call at a time, and the number of the turn; -1 for an override.
func (t *turns) at(now time.Time) (shift resource.OnCallShift, onCall bool, turn int) {
	for _, o := range slices.Backward(t.rota.Overrides) {
		if o.Begin <= now.Unix() && now.Unix() < o.End {
			return resource.OnCallShift{Contact: o.Contact, Override: true, Reason: o.Reason}, true, -1
		}
	}
	since := t.wall(now) - t.start
	if since < 0 || len(t.within) > 0 && !slices.ContainsFunc(t.within, func(c *calendar.Calendar) bool { return c.Active(now) }) {
		return resource.OnCallShift{}, false, 0
	}
	turn = int(t.turnAt(now))
	return resource.OnCallShift{Contact: t.rota.Contacts[turn%len(t.rota.Contacts)]}, true, turn
}

// turnAt returns the number of the turn at a time, -1 before the first one. A turn ends at an instant: when the clocks are set
// back, they show its end twice, and the first counts.
func (t *turns) turnAt(now time.Time) int64 {
	since := t.wall(now) - t.start
	if since < 0 {
		return -1
	}
	turn := since / t.rota.Shift
	for !t.begin(turn + 1).After(now) {
		turn++
	}
	for turn > 0 && t.begin(turn).After(now) {
		turn--
	}
	return turn
}

// begin returns when a turn begins.
func (t *turns) begin(turn int64) time.Time { return t.fromWall(t.start + turn*t.rota.Shift) }

// next returns the first time after now at which the answer of at may be another one.
func (t *turns) next(now time.Time) time.Time {
	next := t.begin(t.turnAt(now) + 1)
	if !next.After(now) { // the rota begins in the hour in which the clocks are set back
		next = now.Add(time.Hour)
	}
	sooner := func(at time.Time) {
		if at.After(now) && at.Before(next) {
			next = at
		}
	}
	for _, o := range t.rota.Overrides {
		sooner(time.Unix(o.Begin, 0))
		sooner(time.Unix(o.End, 0))
	}
	for _, c := range t.within {
		sooner(c.Next(now))
	}
	return next
}
