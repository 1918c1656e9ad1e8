// Package delivery has the types of an event on its way to one handler: what package pipeline makes, package handler
// queues and stores, package trace reports on, and the API shows when it failed.
//
// It is data only. It imports nothing but resource, so that every part on the way can use the same types.
package delivery

import (
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Header names a delivery and says what its event was. It is the same at each attempt, in traces and in dead letters.
type Header struct {
	// ID is the event's ID, a slash, and the rest of the way: the handler, or pipeline, workflow and handler. Receivers
	// recognise repeats by it.
	ID string `json:"id"`
	// EventID is the event's place in the log, the same for all deliveries of the event.
	EventID string `json:"event"`
	// Namespace and Handler name the handler, Entity and Check the pair whose deliveries are kept in order.
	Namespace string `json:"namespace"`
	Entity    string `json:"entity"`
	Check     string `json:"check"`
	// Status is the check's, and Incident and Resolution what the event was to the pair.
	Status     uint32 `json:"status"`
	Incident   bool   `json:"incident,omitempty"`
	Resolution bool   `json:"resolution,omitempty"`
	// Received is when this backend received the event, Unix milliseconds; 0 if that is not known.
	Received int64 `json:"received"`
	// Pipeline and Workflow are "" if the event names the handler itself; Handler is "" if there is none.
	Pipeline string `json:"pipeline,omitempty"`
	Workflow string `json:"workflow,omitempty"`
	Handler  string `json:"handler,omitempty"`
}

// EventIDOf is the part of a delivery's ID that names the event.
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
	// Data is what the handler gets of a delivery without an Event, which an older release stored.
	Data []byte
	// Hops is how many dead letters the delivery replaces, one after the other.
	Hops int
}

// DeadLetter is a delivery that could not be handed over. It is not tried again unless a user asks for it.
type DeadLetter struct {
	ID        string `json:"id"` // names it in its namespace
	Namespace string `json:"namespace"`
	Handler   string `json:"handler"`
	Pipeline  string `json:"pipeline,omitempty"`
	Workflow  string `json:"workflow,omitempty"`
	Entity    string `json:"entity"`
	Check     string `json:"check"`
	Status    uint32 `json:"status"`
	// Reason is why it was given up, and Output what the last attempt said.
	Reason   string `json:"reason"`
	Output   string `json:"output,omitempty"`
	Attempts int    `json:"attempts"`
	First    int64  `json:"first"` // when the first attempt was, Unix milliseconds
	Last     int64  `json:"last"`  // and the last
	// Event is the event that was to be handled. Lists do not have it, nor has a letter whose event cannot be read.
	Event *resource.Event `json:"event,omitempty"`
}
