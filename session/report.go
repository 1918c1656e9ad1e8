package session

import (
	"context"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// reportEntity is the entity of the backend's events about itself. reportHandler handles them in a namespace that defines a
// handler of that name, as keepalives have the handler "keepalive".
const (
	reportEntity  = "lapwing-backend"
	reportHandler = "lapwing"
)

// Report takes an event of the backend about itself: something that an operator should know of, with what to do about it
// in output. check names the condition, one for each thing that can be wrong ("filter-set-aside-NAME"); a later report with
// status 0 resolves it. Report returns when the event is durable and folded, so the event path must not call it.
// No quota keeps it out: when a tenant floods, operators have to hear of it.
func (i *Intake) Report(ctx context.Context, namespace, check string, status uint32, output string) error {
	now := time.Now().Unix()
	ev := &resource.Event{
		Timestamp: now, ID: resource.NewEventID(), Metadata: resource.ObjectMeta{Namespace: namespace},
		Entity: &resource.Entity{
			EntityClass: resource.EntityProxyClass, Subscriptions: []string{resource.EntitySubscription(reportEntity)},
			Metadata: resource.ObjectMeta{Namespace: namespace, Name: reportEntity},
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
