// Package notification keeps whom the handlers told what, when, and with which result: one record for each attempt to
// deliver an event, or a group of events. Unlike traces, no record is merged with another or left out of a sample.
//
// The handlers report each attempt (Record), and never wait: a record that finds no room is dropped and counted. The
// API reads the newest records first (List), and a part that copies them elsewhere follows them by their numbers
// (After). A Store keeps the records of one backend, bounded by age and by bytes; see store.go. A crash may lose the
// last two seconds. To ask the other members of a cluster is left to the backend (see Join). What a record may contain
// is left to the handlers: they remove secrets first.
package notification

import (
	"strings"

	"github.com/lapwing-monitoring/lapwing/delivery"
)

// Notification is one attempt of a handler to deliver an event, or events that were merged. Of a group the header is
// that of the merged event.
type Notification struct {
	// Number counts the notifications of one member from 1, in the order in which they were recorded. Some may be
	// missing.
	Number uint64 `json:"number"`
	// Member is the backend that made the attempt. A Store leaves it empty.
	Member string `json:"member,omitempty"`
	// At is when the attempt began, Unix milliseconds, and Millis how long it took.
	At     int64 `json:"at"`
	Millis int64 `json:"millis"`
	delivery.Header
	// Type is the handler's type.
	Type string `json:"type"`
	// Recipients are the names by which people know the receivers, without secrets: the contact of an escalation's step,
	// mail addresses, a channel, a host, a command.
	Recipients []string `json:"recipients"`
	// Result is ok, failed, timeout or error.
	Result string `json:"result"`
	// Attempt counts from 1. Final says that no other attempt follows.
	Attempt int    `json:"attempt"`
	Final   bool   `json:"final"`
	Error   string `json:"error,omitempty"`
	// Output is the beginning of a command's output or a server's answer.
	Output string `json:"output,omitempty"`
	// Events is how many events the notification has merged, 1 for one that merged none. Merged has the first of them.
	Events int      `json:"events"`
	Merged []Merged `json:"merged,omitempty"`
}

// Merged is an event that went out with others.
type Merged struct {
	ID     string `json:"id"` // of its delivery
	Entity string `json:"entity"`
	Check  string `json:"check"`
	Status uint32 `json:"status"`
}

// End returns when the attempt was over, Unix milliseconds.
func (n *Notification) End() int64 { return n.At + n.Millis }

// MaxMerged is how many merged events a notification names.
const MaxMerged = 200

// The other bounds of a notification.
const (
	maxRecipients = 100
	maxText       = 1024
	maxOutput     = 256
)

// clamp cuts off what is too long, and frees the memory of the rest.
func (n *Notification) clamp() {
	n.Recipients = append([]string{}, n.Recipients[:min(len(n.Recipients), maxRecipients)]...)
	for i := range n.Recipients {
		n.Recipients[i] = cut(n.Recipients[i], maxOutput)
	}
	n.Merged = n.Merged[:min(len(n.Merged), MaxMerged)]
	n.Error, n.Output = cut(n.Error, maxText), cut(n.Output, maxOutput)
}

// cut returns the beginning of a text, as valid UTF-8.
func cut(text string, limit int) string {
	if len(text) > limit {
		text = strings.Clone(text[:limit])
	}
	return strings.ToValidUTF8(text, "")
}
