package intake

import (
	"context"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// reportHandler handles the backend's events about itself in a namespace that defines a handler of that name, as
// "keepalive" does for keepalives.
const reportHandler = "lapwing"

// errReserved is the error of an event about the backend's own entity.
func errReserved() error {
	return reject("entity", "event of entity %q: only the backend reports for it, use another name", resource.BackendEntity)
}

// Report takes an event of the backend about itself: a condition that an operator should know, with the remedy in
// output. check names the condition, one for each thing that can be wrong ("filter-set-aside-NAME"); a later report
// with status 0 resolves it. Report returns when the event is durable and folded, so the event path must not call it.
// No quota refuses it: operators must get it even when a tenant floods the backend.
func (i *Intake) Report(ctx context.Context, namespace, check string, status uint32, output string) error {
	now := time.Now().Unix()
	ev := &resource.Event{
		Timestamp: now, ID: resource.NewEventID(), Metadata: resource.ObjectMeta{Namespace: namespace},
		Entity: &resource.Entity{
			EntityClass: resource.EntityProxyClass, Subscriptions: []string{resource.EntitySubscription(resource.BackendEntity)},
			Metadata: resource.ObjectMeta{Namespace: namespace, Name: resource.BackendEntity},
		},
		Check: &resource.Check{
			Metadata: resource.ObjectMeta{Namespace: namespace, Name: check},
			Interval: 60, Status: status, Output: output, Executed: now, Issued: now,
		},
	}
	if _, ok := config.Get(i.opts.Config.Snapshot(), config.Handlers, namespace, reportHandler); ok {
		ev.Check.Handlers = []string{reportHandler}
	}
	return i.submit(ctx, ev, false)
}
