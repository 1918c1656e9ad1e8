package handler

import (
	"slices"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/notification"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// notify reports an attempt, the nth of its delivery or of its group. group is the members that went out as one event.
//
// Handlers that write points to a store notify no one, and there may be thousands of such attempts in a second: they
// would drive the others out of the history.
func (d *Dispatcher) notify(h *resource.Handler, of *delivery.Header, nth int, at *attempt, group []*member) {
	if d.opts.Notify == nil || len(at.attempts) == 0 || h.StoresPoints() {
		return
	}
	made, recipients := &at.attempts[0], at.res.Recipients
	if of.Contact != "" && !slices.Contains(recipients, of.Contact) { // the program of a command says nothing of whom it tells
		recipients = append([]string{of.Contact}, recipients...)
	}
	n := &notification.Notification{
		At: made.At, Millis: made.Millis, Header: *of, Type: h.Type, Recipients: recipients, Result: made.Result,
		Attempt: nth, Final: !at.again, Error: made.Error, Output: made.Output, Events: max(1, len(group)),
	}
	for _, m := range group[:min(len(group), notification.MaxMerged)] {
		n.Merged = append(n.Merged, notification.Merged{ID: m.ID, Entity: m.Entity, Check: m.Check, Status: m.Status})
	}
	d.opts.Notify(n)
}
