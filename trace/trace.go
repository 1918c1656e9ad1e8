// Package trace keeps what became of events: which workflows they met, what each filter read and answered, what the
// mutator made of them, and how each attempt to deliver them went. It answers why an event did, or did not, alert.
//
// The pipeline and the handlers report on a delivery, in as many pieces as they like; the API reads the pieces put
// together. Incidents and resolutions are always kept, and a sample of the rest. Record never blocks: a trace that
// finds no room is dropped and counted, and no event waits for its trace.
//
// A Store bounds what it keeps for each check, by age and by bytes; see store.go. What a verdict causes is left to its
// callers.
package trace

import "github.com/lapwing-monitoring/lapwing/delivery"

// Verdict is the result of an event in one workflow.
type Verdict string

// The verdicts. Delivered alone means that the receiver got the event.
const (
	Delivered Verdict = "delivered"  // the handler took it
	Waiting   Verdict = "waiting"    // it has had no turn yet, or an attempt failed and another one will follow
	Held      Verdict = "held"       // waits, like a resolution that may be taken back
	Grouped   Verdict = "grouped"    // waits for its group to go out
	Merged    Verdict = "folded"     // went out as part of another delivery; the API has always said "folded"
	Filtered  Verdict = "filtered"   // a filter denied it
	Silenced  Verdict = "silenced"   // a silence applies to it
	Inhibited Verdict = "inhibited"  // one of its dependencies fails
	NoHandler Verdict = "no_handler" // no defined handler would take it
	Dead      Verdict = "dead"       // all attempts failed; it is a dead letter
	Dropped   Verdict = "dropped"    // given up, and not tried again
	Failed    Verdict = "failed"     // the workflow could not run
)

// Final reports whether a delivery is over, unless a user sends it again.
func (v Verdict) Final() bool {
	return v != "" && v != Waiting && v != Held && v != Grouped
}

// The kinds of steps.
const (
	StepFilter  = "filter"
	StepMutator = "mutator"
	StepSilence = "silence"
	StepInhibit = "inhibit"
	StepGroup   = "group"
	StepResolve = "resolve"
	// StepEscalate is a step of an escalation.
	StepEscalate = "escalate"
)

// The results of a step.
const (
	Pass  = "pass"
	Deny  = "deny"
	Error = "error"
)

// Delivery reports on one event in one workflow. Header and Event are the same in all reports on a delivery; of the
// rest the newest counts (see Merge).
type Delivery struct {
	delivery.Header
	Verdict Verdict `json:"verdict"`
	// Reason explains the verdict to people, without repeating it: which filter, which silence, which error.
	Reason string `json:"reason,omitempty"`
	// Into is the ID of the delivery that a merged one went out with.
	Into     string    `json:"into,omitempty"`
	Steps    []Step    `json:"steps,omitempty"`
	Attempts []Attempt `json:"attempts,omitempty"`
	// Updated is when the latest of this happened, Unix milliseconds. Default: when it is recorded.
	Updated int64 `json:"updated"`
	// Repeats is how many later events of the check ended in the same way, and Last when the last of them was
	// received, Unix milliseconds. A Store sets both.
	Repeats int   `json:"repeats,omitempty"`
	Last    int64 `json:"last,omitempty"`
}

// Step is the result of one part of a workflow.
type Step struct {
	Kind string `json:"kind"`
	Name string `json:"name,omitempty"`
	// Expression is the expression that decided, if there are several.
	Expression string  `json:"expression,omitempty"`
	Verdict    string  `json:"verdict,omitempty"`
	Error      string  `json:"error,omitempty"`
	Saw        []Value `json:"saw,omitempty"`
	Micros     int64   `json:"micros,omitempty"`
	// At is when a step of an escalation was taken, and Reached when the first of its deliveries got through, Unix milliseconds.
	// Without Reached, the trace of that delivery is not kept.
	At      int64 `json:"at,omitempty"`
	Reached int64 `json:"reached,omitempty"`
}

// Value is a name that an expression read, and its value.
type Value struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Attempt is one attempt to deliver an event.
type Attempt struct {
	At     int64 `json:"at"` // Unix milliseconds
	Millis int64 `json:"millis"`
	// Result is ok, failed, timeout or error.
	Result string `json:"result"`
	// Status is the exit status of a command, or the status of an HTTP answer.
	Status int    `json:"status,omitempty"`
	Output string `json:"output,omitempty"`
	Error  string `json:"error,omitempty"`
	// Next is when the next attempt is due, Unix milliseconds; 0 if none is.
	Next int64 `json:"next,omitempty"`
}
