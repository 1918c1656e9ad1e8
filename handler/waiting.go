package handler

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// This file tells users what waits for handlers. A queue's lock is held while figures are read that are kept anyway,
// and for as many deliveries as are listed: never for a walk over all that waits, because Dispatch needs the lock.

// failure is why an attempt failed, and when.
type failure struct {
	text string
	at   int64 // Unix milliseconds
}

// failure says why an attempt failed, with the first line that the receiver said; "" if it did not fail.
func (at *attempt) failure() string {
	said, _, _ := strings.Cut(strings.TrimSpace(string(at.res.Output[:min(len(at.res.Output), maxLogged)])), "\n")
	if at.reason == "" || said == "" {
		return at.reason
	}
	return at.reason + ": " + said
}

// maxFailure bounds the text of a failure, in bytes: 100,000 deliveries may wait with one each.
const maxFailure = 200

// fail notes why an attempt failed, "" if it did not, and returns what is kept in place of the text of the attempt
// before. Equal texts share their memory: those of an outage are mostly equal. The caller holds mu.
func (q *queue) fail(before, text string) string {
	if text == "" {
		return before
	}
	if len(text) > maxFailure {
		text = strings.Clone(strings.ToValidUTF8(text[:maxFailure-len("…")], "")) + "…"
	}
	if text == q.failed.text {
		text = q.failed.text
	}
	q.failed = failure{text, time.Now().UnixMilli()}
	return text
}

// retrying returns how many deliveries wait for their next attempt because one has failed. The caller holds mu.
func (q *queue) retrying() int {
	n := q.retries
	for _, g := range q.late {
		if g.tried() > 0 {
			n += len(g.members)
		}
	}
	return n
}

// tried returns how many attempts of a group were made, or of the member that the others wait with.
func (g *group) tried() int {
	if g.attempts == 0 && len(g.members) > 0 {
		return g.members[0].attempts
	}
	return g.attempts
}

// Waiting returns what waits here for the handlers of a namespace, by name; "" for all namespaces, or all handlers.
// Each has up to limit parked deliveries. A handler for which nothing waits or runs, and of which nothing was shed, is left
// out.
func (d *Dispatcher) Waiting(namespace, handler string, limit int) ([]delivery.Waiting, error) {
	var queues []*queue
	owned := map[int]bool{}
	d.mu.RLock()
	for name, q := range d.queues {
		if (namespace == "" || name.Namespace == namespace) && (handler == "" || name.Name == handler) {
			queues = append(queues, q)
		}
	}
	for partition, l := range d.ledgers {
		owned[partition] = l.isOwned()
	}
	d.mu.RUnlock()
	var list []delivery.Waiting
	for _, q := range queues {
		w := q.waiting(limit)
		if w.Memory.Total+w.Disk.Total+w.Parked.Total+w.Running+w.Shed.Total == 0 {
			continue
		}
		var err error
		if w.Oldest, err = d.oldest(q.name, owned); err != nil {
			return nil, err
		}
		list = append(list, w)
	}
	return JoinWaiting(limit, list), nil
}

func (l *ledger) isOwned() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owned && !l.over
}

// waiting returns what waits in a queue, without the age of the oldest.
func (q *queue) waiting(limit int) delivery.Waiting {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := delivery.Waiting{
		Namespace: q.name.Namespace, Handler: q.name.Name, Memory: q.whole.told(), Disk: q.spilled.told(),
		Parked: q.parked.told(), Retrying: q.retrying(), Running: q.running + len(q.sending),
		Shed: q.shedCounts(), LastError: q.failed.text, LastFailed: q.failed.at,
	}
	next := func(due time.Time) {
		if at := due.UnixMilli(); w.Next == 0 || at < w.Next {
			w.Next = at
		}
	}
	if len(q.waits) > 0 {
		next(q.waits[0].due)
	}
	// A group that a worker has changes without the lock; it is counted alone.
	var soon []*group
	for _, groups := range [...][]*group{q.late, q.sealed} {
		for _, g := range groups {
			next(g.due)
			soon = addSoon(soon, g, limit)
		}
	}
	for _, g := range q.groups {
		next(g.due)
		soon = addSoon(soon, g, limit)
	}
	for _, c := range q.waits.soonest(limit) {
		w.Deliveries = append(w.Deliveries, c.describe())
	}
	for _, g := range soon {
		for _, m := range g.members[:min(limit, len(g.members))] {
			w.Deliveries = append(w.Deliveries, g.describe(m))
		}
	}
	return w
}

// shedCounts returns how many deliveries were shed. The caller holds mu.
func (q *queue) shedCounts() delivery.ClassCounts {
	var c counts
	for class, n := range q.sheds {
		c[class] = int(n)
	}
	return c.told()
}

// addSoon adds a group to those that are due first.
func addSoon(soon []*group, g *group, limit int) []*group {
	at, _ := slices.BinarySearchFunc(soon, g.due, func(other *group, due time.Time) int { return other.due.Compare(due) })
	if at == limit {
		return soon
	}
	soon = slices.Insert(soon, at, g)
	return soon[:min(limit, len(soon))]
}

// soonest returns the chains that wait the shortest, in the order of their times.
func (h waitHeap) soonest(limit int) (first []*chain) {
	var next []int // the indexes of those that may follow: children of the first ones
	add := func(i int) {
		if i < len(h) {
			at, _ := slices.BinarySearchFunc(next, h[i].due, func(j int, due time.Time) int { return h[j].due.Compare(due) })
			next = slices.Insert(next, at, i)
		}
	}
	for add(0); len(next) > 0 && len(first) < limit; {
		i := next[0]
		next = next[1:]
		first = append(first, h[i])
		add(2*i + 1)
		add(2*i + 2)
	}
	return first
}

// describe describes the first delivery of a chain that waits.
func (c *chain) describe() delivery.Parked {
	p := c.head.describe(c.due)
	switch {
	case c.head.climb != nil:
		p.For = delivery.ForEscalation
	case c.resolving:
		p.For = delivery.ForResolution
	}
	return p
}

// describe describes a member of a group.
func (g *group) describe(m *member) delivery.Parked {
	p := m.describe(g.due)
	p.Group, p.Attempts, p.Error = g.key, max(g.attempts, m.attempts), g.failure
	if p.Attempts == 0 {
		p.For, p.Error = delivery.ForGroup, ""
	}
	return p
}

func (it *item) describe(due time.Time) delivery.Parked {
	return delivery.Parked{
		ID: it.ID, Entity: it.Entity, Check: it.Check, Status: it.Status, Class: it.Class().String(),
		For: delivery.ForAttempt, Received: it.Received, Next: due.UnixMilli(), Attempts: it.attempts, Error: it.failure,
	}
}

func (c *counts) told() delivery.ClassCounts {
	return delivery.ClassCounts{
		Total: c.sum(), Change: c[delivery.Change], Failing: c[delivery.Failing], Unchanged: c[delivery.Unchanged],
		Metrics: c[delivery.MetricsOnly],
	}
}

// oldest returns when the event of the oldest delivery of a handler was received, 0 if none is stored: those that came
// in the last moments are not. It reads one delivery of each lane.
func (d *Dispatcher) oldest(name resource.Name, owned map[int]bool) (received int64, err error) {
	prefix := queueKey(name)
	it, err := d.opts.DB.NewIter(&pebble.IterOptions{
		LowerBound: prefix, UpperBound: append(bytes.Clone(prefix), 0xff, 0xff, 0xff),
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; {
		_, lane, pos, bad := parseDeliveryKey(it.Key())
		if bad != nil {
			ok = it.Next()
			continue
		}
		if owned[lane&^(localBit|handedBit)] {
			value, err := it.ValueAndErr()
			if err != nil {
				return 0, err
			}
			dl, bad := decodeShared(name, lane, pos, value)
			if bad == nil && dl.Received > 0 && (received == 0 || dl.Received < received) {
				received = dl.Received
			}
		}
		ok = it.SeekGE(append(bytes.Clone(it.Key()[:len(prefix)+2]), 0xff)) // no number begins so
	}
	return received, it.Error()
}

// JoinWaiting makes one list of those of several backends, with up to limit parked deliveries of each handler.
func JoinWaiting(limit int, lists ...[]delivery.Waiting) []delivery.Waiting {
	joined := []delivery.Waiting{}
	at := map[resource.Name]int{}
	for _, list := range lists {
		for i := range list {
			name := resource.Name{Namespace: list[i].Namespace, Name: list[i].Handler}
			if known, ok := at[name]; ok {
				addWaiting(&joined[known], &list[i])
				continue
			}
			at[name] = len(joined)
			joined = append(joined, list[i])
		}
	}
	slices.SortFunc(joined, func(a, b delivery.Waiting) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Handler, b.Handler))
	})
	for i := range joined {
		dls := joined[i].Deliveries
		slices.SortStableFunc(dls, func(a, b delivery.Parked) int { return cmp.Compare(a.Next, b.Next) })
		joined[i].Deliveries = dls[:min(limit, len(dls))]
	}
	return joined
}

func addWaiting(to, more *delivery.Waiting) {
	for _, sum := range [...]struct{ to, more *delivery.ClassCounts }{
		{&to.Memory, &more.Memory}, {&to.Disk, &more.Disk}, {&to.Parked, &more.Parked}, {&to.Shed, &more.Shed},
	} {
		sum.to.Total += sum.more.Total
		sum.to.Change += sum.more.Change
		sum.to.Failing += sum.more.Failing
		sum.to.Unchanged += sum.more.Unchanged
		sum.to.Metrics += sum.more.Metrics
	}
	to.Retrying += more.Retrying
	to.Running += more.Running
	to.Oldest, to.Next = first(to.Oldest, more.Oldest), first(to.Next, more.Next)
	if more.LastFailed > to.LastFailed {
		to.LastFailed, to.LastError = more.LastFailed, more.LastError
	}
	to.Deliveries = slices.Concat(to.Deliveries, more.Deliveries)
}

// first returns the earlier of two times, of which 0 is none.
func first(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
