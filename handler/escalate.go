package handler

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/oncall"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// This file has the handlers of type escalation. The first delivery of an incident stays first in its pair's chain until the
// incident is over, and waits for its steps. At each step it adds local deliveries, one for each handler of each contact;
// they are sent, tried again and recorded like any others, and a notice says what became of each (notice.go). What was done
// is the delivery's progress (climb), which the log
// has like that of other deliveries, in the report of the step's deliveries: so a restart, and the next owner of the
// partition, go on with the step that is due. Deliveries behind the first one are looked at when they come: a resolution
// ends the escalation, and other incidents of the pair are part of it.

const (
	// lookAgain is how long an escalation that is not waiting for a step goes without a look at its event.
	lookAgain = time.Minute
	// defaultRepeatAfter is the wait before all steps are taken again.
	defaultRepeatAfter = 30 * time.Minute
)

// climb is how far an escalation is.
type climb struct {
	next     int // the step to take
	round    int // how often all steps were taken
	taken    int // how many steps were taken in all
	notified []recipient
	hold     string // why no step is taken: an acknowledgement, a silence or a quiet time; "" if it is not held
	problem  string // what was wrong with the targets of the last step
	// earlier are recipients whom a later step has notified again before all deliveries of theirs had ended. The trace of that
	// step waits for those.
	earlier []recipient
}

// maxEarlier bounds climb.earlier. A trace has no more steps either.
const maxEarlier = 64

// append appends the fields of all releases first, so that earlier ones read them and pass over the others.
func (c *climb) append(b []byte) []byte {
	for _, n := range [...]int{c.next, c.round, c.taken, len(c.notified)} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	for _, one := range c.notified {
		b = fields.AppendBytes(b, one.Contact+"/"+one.Handler)
	}
	b = fields.AppendBytes(fields.AppendBytes(b, c.hold), c.problem)
	for i := range c.notified {
		b = c.notified[i].append(b)
	}
	b = binary.AppendUvarint(b, uint64(len(c.earlier)))
	for i := range c.earlier {
		one := &c.earlier[i]
		b = one.append(fields.AppendBytes(fields.AppendBytes(b, one.Contact), one.Handler))
	}
	return b
}

// append appends what became of a recipient.
func (one *recipient) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(one.step))
	b = binary.AppendVarint(b, one.at)
	b = fields.AppendBool(append(b, byte(one.fate)), one.reached)
	return fields.AppendBytes(fields.AppendBytes(b, one.Rota), one.reason)
}

// read reads what append has appended.
func (one *recipient) read(r *fields.Reader) {
	one.step, one.at = int(r.Uint()), r.Int()
	one.fate, one.reached = fate(r.Byte()), r.Bool()
	one.Rota, one.reason = r.Text(), r.Text()
}

func readClimb(r fields.Reader) (*climb, error) {
	next, round, taken, n := r.Uint(), r.Uint(), r.Uint(), r.Count()
	c := &climb{next: int(next), round: int(round), taken: int(taken)}
	for range n {
		contact, handler, _ := strings.Cut(r.Text(), "/")
		c.notified = append(c.notified, recipient{Recipient: oncall.Recipient{Contact: contact, Handler: handler}})
	}
	if len(r.Rest) > 0 { // an earlier release has no more
		c.hold, c.problem = r.Text(), r.Text()
		for i := range c.notified {
			c.notified[i].read(&r)
		}
	}
	if len(r.Rest) > 0 { // nor has the next one
		for range r.Count() {
			one := recipient{Recipient: oncall.Recipient{Contact: r.Text(), Handler: r.Text()}}
			one.read(&r)
			c.earlier = append(c.earlier, one)
		}
	}
	if r.Err() != nil || max(next, round, taken) > 1<<31 {
		return nil, errMalformed
	}
	return c, nil
}

// clone returns a copy, because progress that is being reported must not change.
func (c *climb) clone() *climb {
	copied := *c
	copied.notified, copied.earlier = slices.Clone(c.notified), slices.Clone(c.earlier)
	return &copied
}

// notify notes that a step sends a delivery to a recipient.
func (c *climb) notify(to oncall.Recipient, at int64) {
	i := slices.IndexFunc(c.notified, func(o recipient) bool { return o.Contact == to.Contact && o.Handler == to.Handler })
	if i < 0 {
		i = len(c.notified)
		c.notified = append(c.notified, recipient{})
	}
	if step := c.notified[i].step; step > 0 && c.isUnderWay(step) {
		c.earlier = append(c.earlier, c.notified[i])
		c.earlier = c.earlier[max(0, len(c.earlier)-maxEarlier):]
	}
	c.notified[i] = recipient{Recipient: to, step: c.taken, at: at, reached: c.notified[i].reached}
}

// names returns the contacts, and the handlers that have none, by what became of them: those whom a delivery reached, those
// to whom the first one is under way, and the others. An earlier release did not note that, and they count as reached.
func (c *climb) names() (reached, sending, missed []string) {
	best := map[string]int{}
	var order []string
	for _, one := range c.notified {
		name, rank := cmp.Or(one.Contact, one.Handler), 0
		switch {
		case one.reached || one.step == 0:
			rank = 2
		case one.fate == underWay:
			rank = 1
		}
		if _, known := best[name]; !known {
			order = append(order, name)
		}
		best[name] = max(best[name], rank)
	}
	for _, name := range order {
		switch best[name] {
		case 2:
			reached = append(reached, name)
		case 1:
			sending = append(sending, name)
		default:
			missed = append(missed, name)
		}
	}
	return reached, sending, missed
}

// stepFailed reports whether all deliveries of the last step have failed.
func (c *climb) stepFailed() bool {
	of := c.ofStep(c.taken)
	return len(of) > 0 && !slices.ContainsFunc(of, func(r recipient) bool { return r.fate != failed })
}

// ofStep returns the recipients whom a step notified, as far as they are known: of a step all of whose deliveries have ended,
// those whom no later step has notified.
func (c *climb) ofStep(step int) (list []recipient) {
	for _, of := range [...][]recipient{c.earlier, c.notified} {
		for _, one := range of {
			if one.step == step {
				list = append(list, one)
			}
		}
	}
	return list
}

// isUnderWay reports whether a delivery of a step has not ended.
func (c *climb) isUnderWay(step int) bool {
	return slices.ContainsFunc(c.ofStep(step), func(r recipient) bool { return r.fate == underWay })
}

// forgetEarlier forgets the earlier recipients of steps all of whose deliveries have ended.
func (c *climb) forgetEarlier() {
	var kept []recipient
	for _, one := range c.earlier {
		if c.isUnderWay(one.step) {
			kept = append(kept, one)
		}
	}
	c.earlier = kept
}

// missed says in words why the deliveries of some recipients did not get through.
func missed(list []recipient) (text []string) {
	for _, one := range list {
		switch one.fate {
		case failed:
			text = append(text, one.String()+" failed: "+one.reason)
		case denied:
			text = append(text, one.String()+" was denied: "+one.reason)
		}
	}
	return text
}

// outcome returns the verdict on an escalation that is over, and in words whom it reached.
func (c *climb) outcome() (trace.Verdict, string) {
	reached, sending, failed := c.names()
	text, none := "", "no one was reached"
	if len(sending) > 0 {
		none += " yet"
		text += "; under way to " + strings.Join(sending, ", ")
	}
	if len(failed) > 0 {
		text += "; it failed to reach " + strings.Join(failed, ", ")
	}
	switch {
	case len(reached) > 0:
		return trace.Delivered, "told " + strings.Join(reached, ", ") + text
	case c.taken == 0 && c.hold != "":
		return trace.Filtered, "before anyone was notified; it waited: " + c.hold
	case c.taken == 0:
		return trace.Filtered, "before anyone was notified"
	case len(c.notified) == 0:
		return trace.Dropped, "no one was reached: " + cmp.Or(c.problem, "its steps found no one to notify")
	}
	return trace.Dropped, none + text + after(": ", strings.Join(missed(c.notified), "; "))
}

// after puts a mark before a text that is not empty.
func after(mark, text string) string {
	if text == "" {
		return ""
	}
	return mark + text
}

// climber is what a worker knows of an escalation besides.
type climber struct {
	follower *item // behind it in the chain
	// spilledBehind is set if deliveries of its pair are on disk; a resolution may be one of them.
	spilledBehind bool
	ended         string    // what the trace has of an escalation without further steps
	passing       time.Time // when its event was first seen to pass
}

// escalate gives the first delivery of an escalation's chain its turn.
func (d *Dispatcher) escalate(h *resource.Handler, it *item) outcome {
	if it.climb == nil {
		if out := d.beginEscalation(h, it); out != nil {
			return *out
		}
	}
	d.hear(h, it)
	if it.follower != nil {
		return d.absorb(h, it, it.follower)
	}
	ev, err := d.opts.Present(it.Namespace, it.Entity, it.Check)
	if err != nil {
		d.rare.Error("event of an escalation cannot be read, trying again", it.Namespace+"/"+it.Handler,
			"namespace", it.Namespace, "handler", it.Handler, "entity", it.Entity, "check", it.Check, "err", err)
		return outcome{due: time.Now().Add(lookAgain)}
	}
	switch {
	case ev == nil || ev.Check == nil:
		d.finish(it, d.climbed(it, trace.Filtered, "the event was deleted"))
		return outcome{finished: true}
	case ev.Check.Status == 0:
		return d.passes(it)
	}
	it.passing = time.Time{}
	if held := d.heldBy(ev); held != "" {
		if it.climb.next > 0 || it.climb.round > 0 { // when the silence ends, it begins again
			it.climb = it.climb.clone()
			it.climb.next, it.climb.round, it.due = 0, 0, 0
			it.ledger.progress(it)
		}
		return d.hold(it, held, time.Now().Add(lookAgain))
	}
	return d.takeStep(h, it, ev)
}

// beginEscalation decides whether a delivery begins an escalation. It returns the end of one that does not.
func (d *Dispatcher) beginEscalation(h *resource.Handler, it *item) *outcome {
	dl, ev, err := d.open(it)
	if err == nil && ev == nil {
		err = errMalformed
	}
	if err != nil {
		d.dropUnread(it, err)
		return &outcome{finished: true}
	}
	out, steps := d.decide(h, it, dl, ev)
	if out != nil {
		return out
	}
	reason := ""
	switch {
	case it.Resolution:
		reason = "there is no escalation that it would end"
	case !it.Incident || it.Check == "":
		reason = "only incidents escalate"
	}
	if reason != "" {
		tr := d.verdict(it, trace.Filtered, reason)
		tr.Steps = append(steps, trace.Step{Kind: trace.StepEscalate, Verdict: trace.Deny})
		d.finish(it, tr)
		return &outcome{finished: true}
	}
	it.climb = new(climb)
	if after := h.Escalation.Steps[0].After; after > 0 {
		it.due = cmp.Or(it.Received, time.Now().UnixMilli()) + after*1000
	}
	it.ledger.progress(it)
	tr := d.verdict(it, trace.Held, "the escalation begins")
	tr.Steps = steps
	d.report(tr)
	return nil
}

// absorb looks at the delivery behind an escalation. A resolution ends both; another incident of the pair is part of it.
func (d *Dispatcher) absorb(h *resource.Handler, it, next *item) outcome {
	dl, ev, err := d.open(next)
	if err == nil && ev == nil {
		err = errMalformed
	}
	if err != nil {
		d.dropUnread(next, err)
		return outcome{absorbed: true}
	}
	out, steps := d.decide(h, next, dl, ev)
	switch {
	case out != nil && out.finished: // a filter denies it
		return outcome{absorbed: true}
	case out != nil:
		return *out
	}
	traceOf := func(v trace.Verdict, reason string) *trace.Delivery {
		tr := d.verdict(next, v, reason)
		tr.Steps = steps
		return tr
	}
	if !next.Resolution {
		tr := traceOf(trace.Merged, "the escalation that began before goes on")
		tr.Into = it.ID
		d.finish(next, tr)
		return outcome{absorbed: true}
	}
	var list []*delivery.Delivery
	for _, one := range it.climb.notified {
		list = append(list, stepDelivery(dl, it.Handler, 0, one.Recipient))
	}
	it.ledger.addLocal(list)
	verdict, over := it.climb.outcome()
	over = resolved(over)
	d.finish(it, d.climbed(it, verdict, over))
	d.finish(next, traceOf(verdict, "it ends the escalation of "+it.ID+": "+over))
	return outcome{absorbed: true, finished: true}
}

// resolved begins a text of outcome with the resolution.
func resolved(text string) string {
	if strings.HasPrefix(text, "before ") {
		return "resolved " + text
	}
	return "resolved; " + text
}

// hear has an escalation read what became of the deliveries of its steps. If all of the last step have failed, the next step
// is due.
func (d *Dispatcher) hear(h *resource.Handler, it *item) {
	c := it.climb.clone()
	keys, steps, err := d.readNotices(it, c)
	if err != nil {
		d.metrics.storeErrors.Inc()
		d.rare.Error("notices of an escalation cannot be read, trying again", it.Namespace+"/"+it.Handler, "delivery", it.ID, "err", err)
		return
	}
	if len(keys) == 0 {
		return
	}
	tr := d.verdict(it, "", "")
	for _, step := range slices.Sorted(maps.Keys(steps)) {
		tr.Steps = append(tr.Steps, c.stepTrace(step))
	}
	c.forgetEarlier()
	it.climb = c
	if now := time.Now().UnixMilli(); steps[c.taken] && c.stepFailed() && c.next > 0 && it.due > now {
		it.due = now
	}
	it.ledger.progress(it)
	gone := make([]change, len(keys))
	for i, key := range keys {
		gone[i].key = key
	}
	it.ledger.change(gone...)
	if len(steps) == 0 {
		return
	}
	if steps[c.taken] && c.hold == "" {
		tr.Verdict, tr.Reason = trace.Held, stepText(h, it)
	}
	d.report(tr)
}

// stepDelivery makes the delivery of an escalation's event to a recipient. Its ID is the same if it is made again.
func stepDelivery(of *delivery.Delivery, escalation string, step int, to oncall.Recipient) *delivery.Delivery {
	dl := *of
	part := "resolved"
	if step > 0 {
		part = strconv.Itoa(step)
	}
	dl.ID = of.ID + "/" + part + recipientPart(to.Contact, to.Handler)
	dl.Handler, dl.Pipeline, dl.Workflow = to.Handler, "", ""
	dl.Escalation, dl.Step, dl.Contact = escalation, step, to.Contact
	return &dl
}

// recipientPart is the end of the ID of a delivery to a recipient, behind the escalation's ID and the step.
func recipientPart(contact, handler string) string { return "/" + contact + "/" + handler }

// passes ends an escalation whose event passes although no resolution came: filters have denied it. One that is on its way
// has a minute.
func (d *Dispatcher) passes(it *item) outcome {
	now := time.Now()
	if it.passing.IsZero() || it.spilledBehind {
		it.passing = now
	}
	if now.Sub(it.passing) < lookAgain {
		return outcome{due: it.passing.Add(lookAgain)}
	}
	verdict, over := it.climb.outcome()
	d.finish(it, d.climbed(it, verdict, "the check passes, and no resolution came to the handler: its filters denied it; "+over))
	return outcome{finished: true}
}

// heldBy returns why an event takes no steps now: an acknowledgement or a silence; "" if it does.
func (d *Dispatcher) heldBy(ev *resource.Event) string {
	if len(ev.Check.Silenced) == 0 {
		return ""
	}
	sn := d.opts.Config()
	for _, name := range ev.Check.Silenced {
		s, ok := config.Get(sn, config.Silences, ev.Entity.Metadata.Namespace, name)
		if ok && s.Acknowledgement {
			return "acknowledged by " + cmp.Or(s.Creator, "a user") + reasonOf(s)
		}
	}
	name := ev.Check.Silenced[0]
	if s, ok := config.Get(sn, config.Silences, ev.Entity.Metadata.Namespace, name); ok {
		return "silenced by " + name + " of " + cmp.Or(s.Creator, "a user") + reasonOf(s)
	}
	return "silenced by " + name
}

func reasonOf(s *resource.Silenced) string {
	if s.Reason == "" {
		return ""
	}
	return ": " + s.Reason
}

// hold reports why an escalation takes no step, unless that was said, and when it looks again.
func (d *Dispatcher) hold(it *item, reason string, due time.Time) outcome {
	if it.climb.hold != reason {
		d.setHold(it, reason)
		d.report(d.climbed(it, trace.Held, reason))
	}
	return outcome{due: due}
}

// setHold notes why an escalation is held; "" that it is not.
func (d *Dispatcher) setHold(it *item, reason string) {
	if it.climb.hold != reason {
		it.climb = it.climb.clone()
		it.climb.hold = reason
		it.ledger.progress(it)
	}
}

// climbed begins a report on an escalation.
func (d *Dispatcher) climbed(it *item, v trace.Verdict, reason string) *trace.Delivery {
	if it.climb.taken > 0 && v.Final() {
		reason = "after " + countSteps(it.climb.taken) + ": " + reason
	}
	return d.verdict(it, v, reason)
}

func countSteps(n int) string {
	if n == 1 {
		return "1 step"
	}
	return fmt.Sprintf("%d steps", n)
}

// takeStep takes the step that is due, if one is.
func (d *Dispatcher) takeStep(h *resource.Handler, it *item, ev *resource.Event) outcome {
	now, e := time.Now(), h.Escalation
	if it.climb.next >= len(e.Steps) {
		d.setHold(it, "")
		if text := stepText(h, it); it.ended != text {
			it.ended = text
			d.report(d.climbed(it, trace.Held, text))
		}
		gaveUp := "reached"
		if reached, sending, _ := it.climb.names(); len(reached)+len(sending) == 0 {
			gaveUp = "no_one"
		}
		return outcome{due: now.Add(lookAgain), gaveUp: gaveUp}
	}
	if due := time.UnixMilli(it.due); due.After(now) {
		d.setHold(it, "")
		return outcome{due: due}
	}
	if name, until, quiet := d.opts.OnCall.Quiet(it.Namespace, e, ev.Check.Status, now); quiet {
		look := now.Add(lookAgain)
		if !until.IsZero() && until.Before(look) {
			look = until
		}
		reason := fmt.Sprintf("step %d is due, but %s", it.climb.taken+1, oncall.QuietText(ev.Check.Status, name, until))
		return d.hold(it, reason, look)
	}
	step := &e.Steps[it.climb.next]
	recipients, problems := d.opts.OnCall.Recipients(it.Namespace, step, ev, now)
	c := it.climb.clone()
	c.taken++
	c.next++
	c.hold, c.problem = "", short(strings.Join(problems, "; "))
	number, wait := c.next, time.Duration(0)
	switch {
	case c.next < len(e.Steps):
		wait = time.Duration(e.Steps[c.next].After) * time.Second
	case c.round < int(e.Repeat):
		c.next, c.round = 0, c.round+1
		wait = cmp.Or(time.Duration(e.RepeatAfter)*time.Second, defaultRepeatAfter)
	}
	if len(recipients) == 0 && c.next > 0 {
		wait = 0 // the next step must not wait for an answer
	}
	made := d.stepDeliveries(it, ev, c, recipients)
	it.climb, it.due = c, now.Add(wait).UnixMilli()
	mark := change{key: alertKey(it), value: []byte(it.ID)}
	if err := it.ledger.mark(mark); err != nil {
		d.rare.Error("mark of an escalation could not be stored", "", "delivery", it.ID, "err", err)
	}
	it.ledger.change(mark)
	it.ledger.addLocal(made)
	it.ledger.progress(it)
	d.metrics.escalated.WithLabelValues(it.Handler, result(len(made) > 0)).Inc()
	d.reportStep(it, h, number, problems)
	if c.next >= len(e.Steps) {
		return outcome{due: now.Add(lookAgain)}
	}
	return outcome{due: now.Add(wait)}
}

func result(notified bool) string {
	if notified {
		return "notified"
	}
	return "no_one"
}

// stepDeliveries makes the deliveries of a step, and notes whom they notify.
func (d *Dispatcher) stepDeliveries(it *item, ev *resource.Event, c *climb, recipients []oncall.Recipient) (list []*delivery.Delivery) {
	of := &delivery.Delivery{Header: it.Header, Event: ev.AppendProto(nil)}
	of.Status = ev.Check.Status
	for _, r := range recipients {
		list = append(list, stepDelivery(of, it.Handler, c.taken, r))
		c.notify(r, time.Now().UnixMilli())
	}
	return list
}

// stepName names a step of an escalation: by its number among all that were taken, and by that in the definition.
func stepName(taken, number, of int) string {
	if taken == number {
		return fmt.Sprintf("step %d of %d", number, of)
	}
	return fmt.Sprintf("step %d (%d of %d again)", taken, number, of)
}

// stepText says whom the last step reached, and what comes next.
func stepText(h *resource.Handler, it *item) string {
	c, of := it.climb, len(h.Escalation.Steps)
	number := c.next
	if number == 0 {
		number = of
	}
	var got, going []string
	list := c.ofStep(c.taken)
	for _, one := range list {
		switch one.fate {
		case arrived:
			got = append(got, one.String())
		case underWay:
			going = append(going, one.String())
		}
	}
	text, bad := stepName(c.taken, number, of), missed(list)
	switch {
	case len(list) == 0:
		text += " found no one to notify"
	case len(got)+len(going) == 0:
		text += " reached no one"
	case len(got) == 0:
		text += " notifies " + strings.Join(going, ", ")
	default:
		text += " reached " + strings.Join(got, ", ") + after("; under way: ", strings.Join(going, ", "))
	}
	if c.problem != "" {
		text += " (" + c.problem + ")"
	}
	text += after(": ", strings.Join(bad, "; "))
	if c.next < of {
		return text + fmt.Sprintf("; step %d follows at %s unless it is acknowledged", c.taken+1, time.UnixMilli(it.due).UTC().Format(time.RFC3339))
	}
	switch reached, sending, _ := c.names(); {
	case len(reached) > 0:
		text += "; it has told " + strings.Join(reached, ", ") + ", and no step follows"
	case len(sending) > 0:
		text += "; no step follows"
	default:
		text += "; no one was reached, and no step follows"
	}
	return text
}

// stepTrace returns a step for the trace, with what became of its deliveries.
func (c *climb) stepTrace(number int) trace.Step {
	step := trace.Step{Kind: trace.StepEscalate, Name: trace.StepName(number)}
	var all, got []string
	list, ended := c.ofStep(number), true
	for _, one := range list {
		step.At = one.at
		all = append(all, one.String())
		switch one.fate {
		case arrived:
			got = append(got, one.String())
		case underWay:
			ended = false
		}
	}
	switch {
	case len(got) > 0:
		step.Verdict = trace.Pass
		step.Saw = append(step.Saw, trace.Value{Name: trace.SawReached, Value: strings.Join(got, ", ")})
	case ended:
		step.Verdict = trace.Error
	}
	if len(all) > 0 && len(got) < len(all) {
		step.Saw = append([]trace.Value{{Name: "notifies", Value: strings.Join(all, ", ")}}, step.Saw...)
	}
	step.Error = strings.Join(missed(list), "; ")
	return step
}

// reportStep reports a step that was taken, the number-th of the definition, and what comes next.
func (d *Dispatcher) reportStep(it *item, h *resource.Handler, number int, problems []string) {
	step := it.climb.stepTrace(it.climb.taken)
	step.At = time.Now().UnixMilli()
	if len(problems) > 0 {
		step.Error = strings.Join(problems, "; ")
		d.rare.Warn("a step of an escalation does not reach all that it names", it.Namespace+"/"+it.Handler+strconv.Itoa(number),
			"namespace", it.Namespace, "handler", it.Handler, "step", number, "err", step.Error)
	}
	it.ended = stepText(h, it)
	tr := d.climbed(it, trace.Held, it.ended)
	tr.Steps = []trace.Step{step}
	d.report(tr)
}

// annotationPrefix begins the annotations that tell a handler whom an escalation notifies through it.
const annotationPrefix = "lapwing.io/"

// address returns what the handler of a contact gets, and what its templates know of the contact. The annotations are in a
// copy of the event. A delivery that is not of an escalation is returned as it is.
func (d *Dispatcher) address(dl *delivery.Delivery, ev *resource.Event) (*resource.Event, send.Contact) {
	if dl.Escalation == "" || ev == nil || ev.Check == nil {
		return ev, send.Contact{}
	}
	to := send.Contact{Name: dl.Contact, Escalation: dl.Escalation, Step: dl.Step}
	check := *ev.Check
	check.Metadata.Annotations = maps.Clone(check.Metadata.Annotations)
	if check.Metadata.Annotations == nil {
		check.Metadata.Annotations = map[string]string{}
	}
	add := func(name, value string) {
		if value != "" {
			check.Metadata.Annotations[name] = value
		}
	}
	if c := d.opts.OnCall.Contact(dl.Namespace, dl.Contact); c != nil {
		to.FullName, to.Email, to.User = c.FullName, c.Email, c.User
		for name, value := range c.Metadata.Annotations {
			if !strings.HasPrefix(name, annotationPrefix) {
				add(name, value)
			}
		}
	}
	if d.opts.AcknowledgeURL != nil && dl.Step > 0 {
		var err error
		if to.AcknowledgeURL, err = d.opts.AcknowledgeURL(dl, ev); err != nil { // a notification without a link is better than none
			d.rare.Warn("a notification goes out without its link", "", "namespace", dl.Namespace, "handler", dl.Handler, "err", err)
		}
	}
	add(annotationPrefix+"escalation", to.Escalation)
	if to.Step > 0 {
		add(annotationPrefix+"escalation-step", strconv.Itoa(to.Step))
	}
	add(annotationPrefix+"contact", to.Name)
	add(annotationPrefix+"contact-email", to.Email)
	add(annotationPrefix+"acknowledge-url", to.AcknowledgeURL)
	addressed := *ev
	addressed.Check = &check
	return &addressed, to
}

// Escalations returns up to limit escalations of a namespace that are going on, by handler, of an entity and a check; "" is
// all. All members of a cluster know all of them, some milliseconds after their owner.
func (d *Dispatcher) Escalations(namespace, entity, check string, limit int) (list []resource.Escalation, more bool, err error) {
	var found []*item // the escalations of list
	stored := map[string]progress{}
	err = d.eachKey('r', func(key, _ []byte, name resource.Name, lane int, pos position) error {
		if namespace != "" && name.Namespace != namespace {
			return nil
		}
		it := &item{pos: pos, Delivery: &delivery.Delivery{Partition: lane}}
		it.Namespace, it.Handler = name.Namespace, name.Name
		d.readProgress(it)
		if it.climb == nil && !isLocal(lane) && !isHanded(lane) { // no delivery of a step
			return nil
		}
		dl, err := d.read(it)
		if err != nil {
			return nil // it ended meanwhile
		}
		if entity != "" && dl.Entity != entity || check != "" && dl.Check != check {
			return nil
		}
		it.Delivery = dl
		if it.climb == nil {
			if dl.Escalation != "" && dl.Step > 0 {
				stored[tryKey(dl)] = it.progress
			}
			return nil
		}
		if more = more || len(list) == limit; more {
			return nil
		}
		one := resource.Escalation{
			Namespace: name.Namespace, Entity: dl.Entity, Check: dl.Check, Handler: name.Name, Began: dl.Received,
			Steps: it.climb.taken,
		}
		one.Notified, one.Sending, one.Failed = it.climb.names()
		if one.Notified == nil {
			one.Notified = []string{}
		}
		ev, err := d.opts.Present(name.Namespace, dl.Entity, dl.Check)
		known := err == nil && ev != nil && ev.Check != nil
		if known {
			one.Held = d.heldBy(ev)
		}
		h, ok := d.lookup(name.Namespace, name.Name)
		if !ok { // it ends at its next turn
			one.Held = "the handler is deleted, and no step follows"
		}
		if ok && one.Held == "" && h.Escalation != nil && it.climb.next < len(h.Escalation.Steps) {
			one.Next = max(it.due, dl.Received)
			if known {
				d.noteNext(&one, &h.Escalation.Steps[it.climb.next], ev)
				d.noteQuiet(&one, h.Escalation, ev.Check.Status)
			}
		}
		list, found = append(list, one), append(found, it)
		return nil
	})
	for i, it := range found {
		list[i].Tries = d.tries(it, list[i].Sending, stored)
	}
	return list, more, err
}

// tryKey returns what the deliveries of an escalation to the same recipient have in common. Later ones wait behind the first
// one, which alone is tried.
func tryKey(dl *delivery.Delivery) string {
	to := recipientPart(dl.Contact, dl.Handler)
	return strings.TrimSuffix(dl.ID, "/"+strconv.Itoa(dl.Step)+to) + to
}

// tries returns the deliveries of an escalation to some contacts, or handlers without one, that are tried again. The backend
// that sends a delivery knows all of its last attempt, and others what the log has of it: stored, by tryKey.
func (d *Dispatcher) tries(it *item, sending []string, stored map[string]progress) (list []resource.EscalationTry) {
	for _, to := range it.climb.notified {
		if to.fate != underWay || !slices.Contains(sending, cmp.Or(to.Contact, to.Handler)) {
			continue
		}
		key := it.ID + recipientPart(to.Contact, to.Handler)
		try := resource.EscalationTry{Contact: to.Contact, Handler: to.Handler, Attempts: stored[key].attempts, Next: stored[key].due}
		d.mu.RLock()
		q := d.queues[resource.Name{Namespace: it.Namespace, Name: to.Handler}]
		d.mu.RUnlock()
		if q != nil {
			q.noteTry(&try, pair{it.Entity, it.Check, to.Contact}, key)
		}
		if try.Attempts > 0 {
			list = append(list, try)
		}
	}
	return list
}

// noteNext notes in an escalation whom its next step would notify as of now.
func (d *Dispatcher) noteNext(one *resource.Escalation, step *resource.EscalationStep, ev *resource.Event) {
	at := time.Now()
	if next := time.UnixMilli(one.Next); next.After(at) {
		at = next
	}
	recipients, problems := d.opts.OnCall.Recipients(one.Namespace, step, ev, at)
	for _, r := range recipients {
		one.NextNotifies = append(one.NextNotifies, r.String())
	}
	if len(recipients) == 0 {
		one.NextProblem = strings.Join(problems, "; ")
	}
}

// noteQuiet notes in an escalation with a next step whether that step waits for the end of a quiet time.
func (d *Dispatcher) noteQuiet(one *resource.Escalation, e *resource.HandlerEscalation, status uint32) {
	now := time.Now()
	if time.UnixMilli(one.Next).After(now) {
		return
	}
	name, until, quiet := d.opts.OnCall.Quiet(one.Namespace, e, status, now)
	if !quiet {
		return
	}
	if one.Quiet = name; !until.IsZero() {
		one.QuietUntil = until.UnixMilli()
	}
}
