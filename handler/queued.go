package handler

import (
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// Why no trace has a delivery.
const (
	behindReason = "it waits behind an earlier delivery of the check"
	turnReason   = "it waits for a free worker of the handler"
	runReason    = "it has its first turn now"
	diskReason   = "it waits on disk, behind other deliveries of the handler"
)

// Queued reports on the deliveries of a check that wait here and that no trace has, because traces begin with a delivery's
// turn: up to limit of each handler. Of those that wait behind no other one of the check in memory, it has incidents and
// resolutions only, which traces always have.
func (d *Dispatcher) Queued(namespace, entity, check string, limit int) (all []trace.Delivery) {
	pairs := []pair{{entity, check, ""}}
	for c := range config.List(d.opts.Config(), config.Contacts, namespace) {
		pairs = append(pairs, pair{entity, check, c.Metadata.Name})
	}
	spilled := map[resource.Name][]spot{}
	d.mu.RLock()
	for name, q := range d.queues {
		if name.Namespace != namespace {
			continue
		}
		list, spots := q.queued(pairs, limit)
		all = append(all, list...)
		if len(spots) > 0 {
			spilled[name] = spots
		}
	}
	d.mu.RUnlock()
	for name, spots := range spilled { // without the locks, which Dispatch needs
		for _, s := range spots {
			it := &item{pos: s.pos, ledger: s.lane.ledger, Delivery: &delivery.Delivery{Partition: s.lane.id}}
			it.Namespace, it.Handler = name.Namespace, name.Name
			dl, err := d.read(it)
			if err == nil && (dl.Incident || dl.Resolution) { // by now it may be gone
				all = append(all, queuedDelivery(&dl.Header, diskReason))
			}
		}
	}
	return all
}

// queuedDelivery is a report of a delivery that may have its turn by now. Its time is before those of all its traces, which
// count then.
func queuedDelivery(h *delivery.Header, reason string) trace.Delivery {
	return trace.Delivery{Header: *h, Verdict: trace.Waiting, Reason: reason, Updated: h.Received}
}

// queued is Dispatcher.Queued of a handler's queue, with the places of those on disk.
func (q *queue) queued(pairs []pair, limit int) (all []trace.Delivery, spots []spot) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range pairs {
		if c := q.chains[p]; c != nil && c.head != nil {
			all = append(all, c.queued(limit-len(all))...)
		}
		if sh := q.shelves[p]; sh != nil {
			spots = append(spots, sh.spots[:max(0, min(len(sh.spots), limit-len(all)-len(spots)))]...)
		}
	}
	return all, spots
}

// queued is Dispatcher.Queued of a chain.
func (c *chain) queued(limit int) (all []trace.Delivery) {
	it := c.head
	waited := c.index > 0 || it.climb != nil || it.tried // it has a trace
	if !waited && !c.stopped && limit > 0 && (it.Incident || it.Resolution) {
		reason := turnReason
		if !it.begin.IsZero() {
			reason = runReason
		}
		all = append(all, queuedDelivery(&it.Header, reason))
	}
	switch {
	case c.stopped: // behind its group
	case waited || !it.begin.IsZero() || it.parked || len(all) > 0:
		it = it.next
	default:
		return nil
	}
	for ; it != nil && len(all) < limit; it = it.next {
		all = append(all, trace.Delivery{Header: it.Header, Verdict: trace.Waiting, Reason: behindReason, Updated: time.Now().UnixMilli()})
	}
	return all
}
