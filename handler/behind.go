package handler

import (
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// behindReason is the reason of a delivery that cannot have its turn yet.
const behindReason = "it waits behind an earlier delivery of the check"

// Behind reports on the deliveries of a check that wait here behind an earlier one: up to limit of each handler. No trace
// has them, because traces begin with a delivery's turn. Those on disk are left out.
func (d *Dispatcher) Behind(namespace, entity, check string, limit int) (all []trace.Delivery) {
	contacts := []string{""}
	for c := range config.List(d.opts.Config(), config.Contacts, namespace) {
		contacts = append(contacts, c.Metadata.Name)
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	for name, q := range d.queues {
		if name.Namespace != namespace {
			continue
		}
		for _, h := range q.behind(entity, check, contacts, limit) {
			all = append(all, trace.Delivery{
				Header: h, Verdict: trace.Waiting, Reason: behindReason, Updated: time.Now().UnixMilli(),
			})
		}
	}
	return all
}

// behind returns the deliveries of a check, to contacts or to none, behind one that waits or has waited, is in a group or is
// being run.
func (q *queue) behind(entity, check string, contacts []string, limit int) (all []delivery.Header) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, contact := range contacts {
		if c := q.chains[pair{entity, check, contact}]; c != nil && c.head != nil {
			all = append(all, c.behind(limit-len(all))...)
		}
	}
	return all
}

// behind is queue.behind of a chain.
func (c *chain) behind(limit int) (all []delivery.Header) {
	it := c.head
	switch {
	case c.stopped: // behind its group
	case c.index > 0 || !it.begin.IsZero() || it.tried || it.parked: // it waits, is being run, or has waited for its turn
		it = it.next
	default:
		return nil
	}
	for ; it != nil && len(all) < limit; it = it.next {
		all = append(all, it.Header)
	}
	return all
}
