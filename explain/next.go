package explain

import (
	"slices"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// Next is something to go on with. A client words it as a command, or shows a button.
type Next struct {
	Kind NextKind `json:"kind"`
	// Name is of the filter, the handler or the silence that it is about; empty for the others, which are about the event.
	Name string `json:"name,omitempty"`
}

// NextKind says what to go on with.
type NextKind string

// The kinds. Those without a remark need no name.
const (
	SeeFilter         NextKind = "see_filter"    // the filter Name, which denied it
	TryDefinitions    NextKind = "try_drafts"    // simulate the event with drafts of definitions
	SeeDependencies   NextKind = "see_depends"   // what it depends on
	SeeHandlers       NextKind = "see_handlers"  // the handlers that are defined
	GiveOwnHandler    NextKind = "handle_own"    // define a handler for lapwing's own events
	GiveKeepalives    NextKind = "handle_alive"  // define a handler for keepalives
	GiveHandlers      NextKind = "give_handlers" // give the check handlers
	SeeDeadLetters    NextKind = "see_dead"      // what the handler Name did not take
	Redrive           NextKind = "redrive"       // send what the handler Name did not take again
	SimulateNow       NextKind = "simulate"      // what would happen now
	SeeWhetherWaiting NextKind = "see_whether"   // whether it waits for the handler Name
	SeeWaiting        NextKind = "see_waiting"   // what waits for the handler Name
	SeeNotifications  NextKind = "see_notified"  // whom handlers told
	DeleteEvent       NextKind = "delete_event"  // its check is not defined any more
	SeeHistoryAround  NextKind = "see_around"    // its states around the moment that was asked for
	SeeHistory        NextKind = "see_history"   // its states over days
	SeeAudit          NextKind = "see_audit"     // who changed the silence Name
	Unacknowledge     NextKind = "unack"         // end the acknowledgement
	Unsilence         NextKind = "unsilence"     // end the event's own silence
	DeleteSilence     NextKind = "end_silence"   // end the silence Name for all its events
)

// next returns what an operator may do about the fate of the present event.
func (a *Account) next() (steps []Next) {
	add := func(kind NextKind, name string) {
		if one := (Next{kind, name}); !slices.Contains(steps, one) {
			steps = append(steps, one)
		}
	}
	deliveries, simulated := a.Simulated, true
	if a.Traced() || a.Event == nil {
		deliveries, simulated = nil, false
		if len(a.Outcomes) > 0 && a.Outcomes[0].Status == 0 {
			deliveries = slices.Clone(a.Outcomes[0].Deliveries)
		}
		for _, f := range fates(a.incident()) {
			deliveries = append(deliveries, f.alert)
			if f.newest != nil {
				deliveries = append(deliveries, *f.newest)
			}
		}
	}
	for i := range deliveries {
		a.nextOf(&deliveries[i], simulated, add)
	}
	if a.Orphaned {
		add(DeleteEvent, "")
	}
	if !a.At.IsZero() {
		add(SeeHistoryAround, "")
	}
	if len(steps) == 0 {
		add(SeeHistory, "")
	}
	return steps
}

func (a *Account) nextOf(d *trace.Delivery, simulated bool, add func(NextKind, string)) {
	switch d.Verdict {
	case trace.Silenced:
		a.nextOfSilenced(d, add)
	case trace.Filtered:
		for _, st := range d.Steps {
			if st.Kind == trace.StepFilter && st.Verdict == trace.Deny && st.Expression != "" {
				add(SeeFilter, st.Name)
			}
		}
		add(TryDefinitions, "")
	case trace.Inhibited:
		add(SeeDependencies, "")
	case trace.NoHandler:
		add(SeeHandlers, "")
		switch { // lapwing's own events and keepalives are of no check that is defined
		case a.Entity == resource.BackendEntity:
			add(GiveOwnHandler, "")
		case a.Check == "keepalive":
			add(GiveKeepalives, "")
		default:
			add(GiveHandlers, "")
		}
	case trace.Dead:
		add(SeeDeadLetters, d.Handler)
		add(Redrive, d.Handler)
	case trace.Dropped, trace.Failed:
		add(SimulateNow, "")
	default:
		switch {
		case d.Handler == "":
		case simulated: // its delivery may wait at a backend that did not answer
			add(SeeWhetherWaiting, d.Handler)
		case d.Verdict == trace.Waiting:
			add(SeeWaiting, d.Handler)
		}
		add(SeeNotifications, "")
	}
}

func (a *Account) nextOfSilenced(d *trace.Delivery, add func(NextKind, string)) {
	own := resource.SilencedName(resource.EntitySubscription(a.Entity), a.Check)
	names, _ := a.mutedBy(d)
	for _, name := range names {
		one := a.Silences[name]
		switch {
		case one != nil && one.Ended != "":
			add(SeeAudit, name)
		case one != nil && one.Silence.Acknowledgement:
			add(Unacknowledge, "")
		case name == own:
			add(Unsilence, "")
		default:
			add(DeleteSilence, name)
		}
	}
}
