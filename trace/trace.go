// Package trace keeps what became of events: which workflows they met, what each filter saw and said, what the mutator
// made of them, and how each attempt to hand them over went. It answers why something did, or did not, alert.
//
// The pipeline and the handlers report on a delivery as often as they like, in pieces; reading puts the pieces
// together. Incidents and resolutions are always kept, of the rest a sample. Record never blocks: a trace that finds no
// room is lost and counted, an event never waits for its trace.
//
// A Store bounds what it keeps by checks, by age and by bytes; see store.go for how.
package trace

import "github.com/lapwing-monitoring/lapwing/delivery"

// Verdict is what became of an event in one workflow.
type Verdict string

// The verdicts. Only the first of them means that the receiver got it.
const (
	Delivered Verdict = "delivered"  // the handler took it
	Waiting   Verdict = "waiting"    // an attempt failed, another will be made
	Held      Verdict = "held"       // it waits, as a resolution does that may be taken back
	Grouped   Verdict = "grouped"    // it waits for its group to go out
	Merged    Verdict = "folded"     // it went out as part of another delivery
	Filtered  Verdict = "filtered"   // a filter denied it
	Silenced  Verdict = "silenced"   // a silence holds it back
	Inhibited Verdict = "inhibited"  // something that it depends on fails
	NoHandler Verdict = "no_handler" // nothing that is defined would take it
	Dead      Verdict = "dead"       // all attempts failed; it is a dead letter
	Dropped   Verdict = "dropped"    // it is given up and will not be repeated
	Failed    Verdict = "failed"     // the workflow could not be run
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
)

// What a step can say.
const (
	Pass  = "pass"
	Deny  = "deny"
	Error = "error"
)

// Delivery is what became of one event in one workflow. The header and Event are the same in all reports on a delivery;
// of the rest, the newest counts (see Merge).
type Delivery struct {
	delivery.Header
	Verdict Verdict `json:"verdict"`
	// Reason is the verdict in words for people, without the verdict itself: which filter, which silence, which error.
	Reason string `json:"reason,omitempty"`
	// Into is the ID of the delivery that a folded one went out with.
	Into     string    `json:"into,omitempty"`
	Steps    []Step    `json:"steps,omitempty"`
	Attempts []Attempt `json:"attempts,omitempty"`
	// Updated is when the latest of this happened, Unix milliseconds. Default when it is recorded.
	Updated int64 `json:"updated"`
	// Repeats is how many later events of the check came to the same end in the same way, and Last when the last of them
	// was received, Unix milliseconds. A Store sets them.
	Repeats int   `json:"repeats,omitempty"`
	Last    int64 `json:"last,omitempty"`
}

// Step is what one part of a workflow said.
type Step struct {
	Kind string `json:"kind"`
	Name string `json:"name,omitempty"`
	// Expression is the one that decided, if there are several.
	Expression string  `json:"expression,omitempty"`
	Verdict    string  `json:"verdict,omitempty"`
	Error      string  `json:"error,omitempty"`
	Saw        []Value `json:"saw,omitempty"`
	Micros     int64   `json:"micros,omitempty"`
}

// Value is a name that an expression looked at, and its value.
type Value struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Attempt is one try to hand an event over.
type Attempt struct {
	At     int64 `json:"at"` // Unix milliseconds
	Millis int64 `json:"millis"`
	// Result is ok, failed, timeout or error.
	Result string `json:"result"`
	// Status is the exit status of a command, or that of an HTTP answer.
	Status int    `json:"status,omitempty"`
	Output string `json:"output,omitempty"`
	Error  string `json:"error,omitempty"`
	// Next is when the next attempt is due, Unix milliseconds; 0 if there is none.
	Next int64 `json:"next,omitempty"`
}
