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

// This file tells users what waits for handlers. Dispatch needs a queue's lock, so Waiting holds it only to read sums,
// to pass over the deliveries that memory has whole (Options.QueueSize bounds them), and to build a few times as many
// deliveries as are listed. It walks neither over all that waits nor over all groups.

// maxErrorText bounds why an attempt failed, in bytes: 100,000 deliveries may wait with a text each.
const maxErrorText = 200

// errorText says why an attempt failed, with the first line that the receiver said; "" if it did not fail.
func (at *attempt) errorText() string {
	said, _, _ := strings.Cut(strings.TrimSpace(string(at.res.Output[:min(len(at.res.Output), maxLogged)])), "\n")
	switch {
	case strings.Contains(at.reason, said), at.reason == "":
		return at.reason
	case strings.Contains(said, at.reason): // a mail server's answer is there with the recipient
		return said
	}
	return at.reason + ": " + said
}

// noteError notes why an attempt failed, "" if it did not, and returns what is kept in place of the text of the attempt
// before. Equal texts share their memory: those of an outage are mostly equal. The caller holds mu.
func (q *queue) noteError(before, text string) string {
	if text == "" {
		return before
	}
	if len(text) > maxErrorText {
		text = strings.Clone(strings.ToValidUTF8(text[:maxErrorText-len("…")], "")) + "…"
	}
	if text == q.lastError {
		text = q.lastError
	}
	q.lastError, q.lastFailed = text, time.Now().UnixMilli()
	return text
}

// Waiting returns what waits here for the handlers of a namespace, by name; "" for all namespaces, or all handlers.
// Each has up to limit parked deliveries. A handler for which nothing waits or runs is left out if nothing of it was shed
// and it does not fail, or if it is deleted.
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
		if w.Memory.Total+w.Disk.Total+w.Parked.Total+w.Running == 0 {
			if _, defined := d.lookup(w.Namespace, w.Handler); !defined || w.Shed.Total == 0 && w.FailingSince == 0 {
				continue
			}
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

// waiting returns what waits in a queue, without the age of the oldest. It lists up to limit deliveries that wait for a
// worker, as many that wait for a time of their own, and as many members of groups: the first are among them.
func (q *queue) waiting(limit int) delivery.Waiting {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := delivery.Waiting{
		Namespace: q.name.Namespace, Handler: q.name.Name, Memory: q.whole.classCounts(), Disk: q.spilled.classCounts(),
		Parked: q.parked.classCounts(), Retrying: q.retrying, Running: q.running + len(q.sending),
		Shed: q.shedCounts(),
	}
	q.describeHealth(&w)
	now := time.Now()
	due := q.due(max(1, limit))
	if len(due)+len(q.sealed) > 0 {
		w.Next = now.UnixMilli()
	} else {
		for _, at := range [...]time.Time{q.waits.first(), q.groupWaits.first()} {
			if !at.IsZero() {
				w.Next = first(w.Next, at.UnixMilli())
			}
		}
	}
	for _, c := range slices.Concat(due[:min(limit, len(due))], q.waits.soonest(limit)) {
		w.Deliveries = append(w.Deliveries, c.describe(now))
	}
	// A group that a worker has is not looked at: it changes without the lock.
	members := limit
	for _, g := range slices.Concat(q.sealed[:min(limit, len(q.sealed))], q.groupWaits.soonest(limit)) {
		for _, m := range g.members[:min(members, len(g.members))] {
			w.Deliveries = append(w.Deliveries, g.describe(m, now))
			members--
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
	return c.classCounts()
}

// due returns the first chains that wait for a worker with a delivery that was parked, in the order of their turns.
// The caller holds mu.
func (q *queue) due(limit int) (due []*chain) {
	for i := range q.ready {
		for c := q.ready[i].head; c != nil && len(due) < limit; c = c.next {
			if c.head.parked || c.head.tried {
				due = append(due, c)
			}
		}
	}
	return due
}

// describe describes the first delivery of a chain that waits for a time, or for a worker.
func (c *chain) describe(now time.Time) delivery.Parked {
	switch {
	case c.index == 0:
		return c.head.describe(delivery.ForWorker, now)
	case c.head.climb != nil:
		return c.head.describe(delivery.ForEscalation, c.due)
	case c.resolving:
		return c.head.describe(delivery.ForResolution, c.due)
	}
	return c.head.describe(delivery.ForAttempt, c.due)
}

// describe describes a member of a group that waits for its time, or for a worker. The attempt of one member may have
// failed before the others had their turns: these have no attempts, and still wait in their group.
func (g *group) describe(m *member, now time.Time) (p delivery.Parked) {
	tries := g.tries(m)
	switch {
	case g.index == 0:
		p = m.describe(delivery.ForWorker, now)
	case tries > 0:
		p = m.describe(delivery.ForAttempt, g.slot.due)
	default:
		p = m.describe(delivery.ForGroup, g.slot.due)
	}
	p.Group, p.Attempts, p.Error = g.key, tries, ""
	if tries > 0 {
		p.Error = g.lastError
	}
	return p
}

// noteTry notes what memory knows of the delivery of an escalation that is tried again: key is its tryKey. While a worker has
// it, memory knows no more than what the last attempt said.
func (q *queue) noteTry(try *resource.EscalationTry, p pair, key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.chains[p]
	if c == nil {
		return
	}
	is := func(it *item) bool { return it != nil && it.Step > 0 && tryKey(it.Delivery) == key }
	var known delivery.Parked
	_, goesOut := q.sending[c.group]
	switch {
	case c.group != nil && !goesOut:
		i := slices.IndexFunc(c.group.members, func(m *member) bool { return m.chain == c && is(m.item) })
		if i < 0 {
			return
		}
		known = c.group.describe(c.group.members[i], time.Now())
	case !is(c.head):
		return
	case !c.head.begin.IsZero():
		try.Error = c.head.lastError
		return
	default:
		known = c.describe(time.Now())
	}
	try.Attempts, try.Error, try.Next = known.Attempts, known.Error, known.Next
}

func (it *item) describe(waitsFor string, next time.Time) delivery.Parked {
	return delivery.Parked{
		ID: it.ID, Entity: it.Entity, Check: it.Check, Status: it.Status, Class: it.Class().String(),
		For: waitsFor, Received: it.Received, Next: next.UnixMilli(), Attempts: it.attempts, Error: it.lastError,
	}
}

func (c *counts) classCounts() delivery.ClassCounts {
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
		if w := &joined[i]; w.Retrying == 0 && w.LastDelivered > w.LastFailed { // at another backend than the one that failed
			w.FailingSince, w.Failures, w.Died = 0, 0, 0
		}
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
	to.FailingSince = first(to.FailingSince, more.FailingSince)
	to.Failures += more.Failures
	to.Died += more.Died
	to.LastDelivered = max(to.LastDelivered, more.LastDelivered)
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
