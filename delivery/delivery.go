// Package delivery defines an event on its way to one handler, as data.
//
// Package pipeline makes deliveries, package handler queues and stores them, package trace reports on them, and the
// API lists those that failed. The package promises only types. It imports nothing but resource, so that every part on
// the way can share them; routing, queueing and storing are left to the parts named above.
package delivery

import (
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Header identifies a delivery and describes its event. It is the same at each attempt, in traces and in dead letters.
type Header struct {
	// ID is the event's ID, a slash, and the route: the handler, or pipeline, workflow and handler. Receivers
	// recognise repeats by it.
	ID string `json:"id"`
	// EventID is the event's place in the log, the same for all deliveries of the event.
	EventID string `json:"event"`
	// Namespace and Handler name the handler, Entity and Check the pair whose deliveries are kept in order.
	Namespace string `json:"namespace"`
	Entity    string `json:"entity"`
	Check     string `json:"check"`
	// Status is the check's status. Incident and Resolution say what the event was for its pair.
	Status     uint32 `json:"status"`
	Incident   bool   `json:"incident,omitempty"`
	Resolution bool   `json:"resolution,omitempty"`
	// Received is when this backend received the event, Unix milliseconds; 0 if unknown.
	Received int64 `json:"received"`
	// Pipeline and Workflow are "" if the event names the handler itself; Handler is "" if there is none.
	Pipeline string `json:"pipeline,omitempty"`
	Workflow string `json:"workflow,omitempty"`
	Handler  string `json:"handler,omitempty"`
	// Escalation is the escalation handler that a delivery is a step of, and Step its number among all steps that the
	// incident has taken, from 1; 0 for its resolution. Contact is whom it notifies, "" for no one in particular.
	Escalation string `json:"escalation,omitempty"`
	Step       int    `json:"step,omitempty"`
	Contact    string `json:"contact,omitempty"`
}

// EventIDOf returns the part of a delivery's ID that identifies the event.
func EventIDOf(id string) string {
	event, _, _ := strings.Cut(id, "/")
	return event
}

// Delivery is an event on its way to one handler.
type Delivery struct {
	Header
	// Partition, Seq and Sub are the event's position in the log. No two deliveries to a handler have the same.
	Partition int
	Seq       uint64
	Sub       int
	// Event is the whole event as protobuf. Other deliveries may share it; it is never changed.
	Event []byte
	// Data is the handler's input for a delivery without an Event, as an older release stored it.
	Data []byte
	// Hops is how many dead letters led to this delivery, each replaced by the next.
	Hops int
	// Repeats is set if the event changed neither the status nor the flapping nor the silencing of its pair.
	Repeats bool
}

// DeadLetter is a delivery that failed for good. Only a user can have it tried again.
type DeadLetter struct {
	ID        string `json:"id"` // unique in its namespace
	Namespace string `json:"namespace"`
	Handler   string `json:"handler"`
	Pipeline  string `json:"pipeline,omitempty"`
	Workflow  string `json:"workflow,omitempty"`
	Entity    string `json:"entity"`
	Check     string `json:"check"`
	Status    uint32 `json:"status"`
	// Reason is why it was given up, and Output the output of the last attempt.
	Reason   string `json:"reason"`
	Output   string `json:"output,omitempty"`
	Attempts int    `json:"attempts"`
	First    int64  `json:"first"` // time of the first attempt, Unix milliseconds
	Last     int64  `json:"last"`  // time of the last attempt
	// Event is the event to handle. It is missing in lists, and if the stored event cannot be read.
	Event *resource.Event `json:"event,omitempty"`
}

// Redrive says which dead letters are sent again.
type Redrive struct {
	// Namespace is "" for all. IDs names the letters; if it is nil, they are all of Handler, "" for any.
	Namespace string
	IDs       []string
	Handler   string
	// FailingOnly leaves out what Redriven.Passed counts.
	FailingOnly bool
	// Newest leaves out, of each entity, check, handler and contact, all letters but those of the newest event. Letters
	// that are left out for another reason do not count.
	Newest bool
	// DryRun sends nothing.
	DryRun bool
}

// Redriven says what became of dead letters that were to be sent again.
type Redriven struct {
	// Count is how many were queued for their handlers, or would be in a dry run.
	Count int `json:"count"`
	// Resolutions is how many of them are resolutions. failing_only leaves them out only if the check fails again: else a
	// receiver that got another alert of the incident would keep it open.
	Resolutions int `json:"resolutions"`
	// Passed is how many say what is no longer so, which a receiver would believe: those of incidents whose check has
	// passed since or has no event any more, and resolutions of checks that fail again. They are in Count, too, unless
	// failing_only left them out.
	Passed int `json:"passed"`
	// Older is how many newest left out: they stay dead letters.
	Older int `json:"older,omitempty"`
	// NoHandler is how many stay because their handler is not defined; MissingHandlers has the names.
	NoHandler       int      `json:"no_handler"`
	MissingHandlers []string `json:"missing_handlers,omitempty"`
	// Letters has the first of those that a dry run counts, without their events.
	Letters []DeadLetter `json:"letters,omitempty"`
}

// Waiting is what waits for a handler, on one backend or on several together.
type Waiting struct {
	Namespace string `json:"namespace"`
	Handler   string `json:"handler"`
	// Memory counts the deliveries that have their turn as soon as a worker is free, Disk those that wait on disk for
	// room in memory, and Parked those that wait for a time, for their group, or behind such a delivery of their check.
	// Parked ones that are due stay parked until they have ended.
	Memory ClassCounts `json:"memory"`
	Disk   ClassCounts `json:"disk"`
	Parked ClassCounts `json:"parked"`
	// Retrying is how many of those in memory and parked have had an attempt that failed: they wait for the time of the
	// next one, for a worker, or are being run.
	Retrying int `json:"retrying"`
	// Running is how many runs are under way; a group that goes out is one. What they run is counted above, too.
	Running int `json:"running"`
	// Oldest is when the event of the oldest of all these was received, and Next when a parked one has its next turn,
	// Unix milliseconds; 0 if there is none. Next is now if one is due and waits for a worker.
	Oldest int64 `json:"oldest,omitempty"`
	Next   int64 `json:"next,omitempty"`
	// Shed counts the deliveries that were given up since the backend started because too many were on disk.
	Shed ClassCounts `json:"shed"`
	// LastError is why the last attempt failed that did, and LastFailed when that was, Unix milliseconds. Both are
	// empty if no attempt has failed since the backend started.
	LastError  string `json:"last_error,omitempty"`
	LastFailed int64  `json:"last_failed,omitempty"`
	// FailingSince is when the first attempt failed since the last one that succeeded, Unix milliseconds: nothing gets
	// through. It is 0 if the last attempt succeeded, or if none of those that failed waits or is a dead letter. Failures
	// is how many attempts have failed since, and Died how many deliveries became dead letters.
	FailingSince int64 `json:"failing_since,omitempty"`
	Failures     int   `json:"failures,omitempty"`
	Died         int   `json:"died,omitempty"`
	// LastDelivered is when the last attempt succeeded, Unix milliseconds; 0 if none has since the backend started.
	LastDelivered int64 `json:"last_delivered,omitempty"`
	// Deliveries are the first of the parked ones that wait for a time or for a worker, in the order of their next turn.
	// Lists of all handlers have none.
	Deliveries []Parked `json:"deliveries,omitempty"`
}

// Parked is a delivery that waits for a time, or has done so and waits for a worker.
type Parked struct {
	ID     string `json:"id"`
	Entity string `json:"entity"`
	Check  string `json:"check"`
	Status uint32 `json:"status"`
	Class  string `json:"class"`
	// For is what it waits for: attempt, resolution (the handler's resolve.delay), group, escalation or worker. One that
	// waits for a worker is due: earlier ones of the handler take its concurrency or its rate_limit.
	For string `json:"for"`
	// Group is the group that it is in.
	Group string `json:"group,omitempty"`
	// Received is when its event was received, and Next when its next turn is (now if it is due), Unix milliseconds.
	Received int64 `json:"received,omitempty"`
	Next     int64 `json:"next"`
	Attempts int   `json:"attempts"`
	// Error is why the last attempt failed; empty if there was none since the backend started.
	Error string `json:"error,omitempty"`
	// Member is the backend that has it, in a cluster.
	Member string `json:"member,omitempty"`
}

// The values of Parked.For.
const (
	ForAttempt    = "attempt"
	ForResolution = "resolution"
	ForGroup      = "group"
	ForEscalation = "escalation"
	ForWorker     = "worker"
)

// ClassCounts are numbers of deliveries by class (see Class), and their sum.
type ClassCounts struct {
	Total     int `json:"total"`
	Change    int `json:"change"`
	Failing   int `json:"failing"`
	Unchanged int `json:"unchanged"`
	Metrics   int `json:"metrics"`
}
