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
