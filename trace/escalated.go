package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Escalated completes the traces of escalations among the deliveries of an event by those of the deliveries of their steps.
// Only these tell when each got through. An escalation that is over hears nothing of deliveries that are still under way.
func Escalated(deliveries []Delivery) {
	for i := range deliveries {
		e := &deliveries[i]
		if e.Handler == "" || !slices.ContainsFunc(e.Steps, func(st Step) bool { return st.Kind == StepEscalate }) {
			continue
		}
		var got []*Delivery
		for j := range deliveries {
			if one := &deliveries[j]; one.Escalation == e.Handler && one.Step > 0 && strings.HasPrefix(one.ID, e.ID+"/") && one.arrived() > 0 {
				got = append(got, one)
			}
		}
		slices.SortStableFunc(got, func(a, b *Delivery) int { return cmp.Compare(a.arrived(), b.arrived()) })
		e.reach(got)
	}
}

// arrived returns when a delivery got through, Unix milliseconds; 0 if it did not.
func (d *Delivery) arrived() int64 {
	if d.Verdict != Delivered && d.Verdict != Merged {
		return 0
	}
	if n := len(d.Attempts); n > 0 {
		return d.Attempts[n-1].At
	}
	return d.Updated
}

// reach notes in the trace of an escalation the deliveries of its steps that got through, the first one first.
func (d *Delivery) reach(got []*Delivery) {
	reachedNoOne := !slices.ContainsFunc(d.Steps, func(st Step) bool { return st.Kind == StepEscalate && st.Verdict == Pass })
	var late []string
	for _, one := range got {
		i := slices.IndexFunc(d.Steps, func(st Step) bool { return st.Kind == StepEscalate && st.Name == StepName(one.Step) })
		if i < 0 {
			continue
		}
		st, to := &d.Steps[i], one.recipient()
		st.Reached = cmp.Or(st.Reached, one.arrived())
		if st.add(to) {
			late = append(late, to+" at "+time.UnixMilli(one.arrived()).UTC().Format(time.RFC3339))
		}
	}
	if len(late) == 0 || !d.Verdict.Final() {
		return
	}
	d.Reason += "; got through since: " + strings.Join(late, ", ")
	if reachedNoOne && d.Verdict == Dropped {
		d.Verdict = Delivered
	}
}

// StepName is the name of a step of an escalation, by its number among all that were taken.
func StepName(number int) string { return fmt.Sprintf("step %d", number) }

// recipient names the recipient of a delivery of a step.
func (d *Delivery) recipient() string {
	if d.Contact == "" {
		return d.Handler
	}
	return d.Contact + " by " + d.Handler
}

// SawReached is the name of the value of an escalation's step that has the recipients whom it reached.
const SawReached = "reached"

// add adds a recipient to those whom a step reached. It returns false if the step has that one.
func (st *Step) add(to string) bool {
	st.Verdict = Pass
	i := slices.IndexFunc(st.Saw, func(v Value) bool { return v.Name == SawReached })
	if i < 0 {
		st.Saw = append(st.Saw, Value{Name: SawReached, Value: to})
		return true
	}
	has := slices.ContainsFunc(strings.Split(st.Saw[i].Value, ", "), func(one string) bool {
		return one == to || strings.HasPrefix(one, to+" (") // its rota follows
	})
	if !has {
		st.Saw[i].Value += ", " + to
	}
	return !has
}
