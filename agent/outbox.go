package agent

import (
	"slices"
	"sort"
	"sync"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// outbox holds encoded events, in the order of their numbers, until a backend has them.
//
// It is bounded by events and by bytes. When it is full, an event makes room by giving up the oldest of the same check,
// which it outdates; failing that, the oldest of all. Numbers given up are never used again, so the numbers held may
// have gaps.
type outbox struct {
	maxEvents, maxBytes int

	mu      sync.Mutex // guards the fields below
	entries []entry    // ascending
	bytes   int        // of the entries' events
	last    uint64     // newest number given
	sent    uint64     // newest number taken to be sent since rewind
	ever    uint64     // newest number ever taken to be sent
}

type entry struct {
	seq   uint64
	check string // what the event is about; empty for metrics alone
	wire.Item
}

// keepEntries is how long an array an empty outbox keeps: enough for everyday, not what an outage made of it.
const keepEntries = 64

// keepaliveCheck stands for keepalives in entry.check. No check can have this name.
const keepaliveCheck = "/keepalive"

// add takes an event in and returns its number, and how many events were given up for it.
func (o *outbox) add(check string, item wire.Item) (seq uint64, dropped int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.entries) > 0 && (len(o.entries) >= o.maxEvents || o.bytes+len(item.Event) > o.maxBytes) {
		o.drop(max(0, slices.IndexFunc(o.entries, func(e entry) bool { return e.check == check })))
		dropped++
	}
	o.last++
	o.entries = append(o.entries, entry{seq: o.last, check: check, Item: item})
	o.bytes += len(item.Event)
	return o.last, dropped
}

// drop removes entry i. The caller holds o.mu.
func (o *outbox) drop(i int) {
	o.bytes -= len(o.entries[i].Event)
	o.entries = slices.Delete(o.entries, i, i+1)
}

// rewind makes everything held unsent, for a new connection.
func (o *outbox) rewind() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent = 0
}

// take returns events to send now, up to the limits but one at least if there is any, and whether there are more. They
// are those not taken since rewind, and their numbers follow each other from first. It appends to items; the events'
// bytes stay valid whatever becomes of the entries. An acknowledgement may come in before the write returns, so what
// is taken counts as sent already.
func (o *outbox) take(items []wire.Item, maxItems, maxBytes int) (first uint64, _ []wire.Item, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	bytes := 0
	for _, e := range o.entries[o.after(o.sent):] {
		bytes += len(e.Event)
		switch {
		case len(items) == 0:
			first = e.seq
		case len(items) == maxItems, bytes > maxBytes, e.seq != first+uint64(len(items)):
			return first, items, true
		}
		items = append(items, e.Item)
		o.sent = e.seq
		o.ever = max(o.ever, e.seq)
	}
	return first, items, false
}

// after returns the index of the first entry with a number over seq. The caller holds o.mu.
func (o *outbox) after(seq uint64) int {
	return sort.Search(len(o.entries), func(i int) bool { return o.entries[i].seq > seq })
}

// ack removes the events that a backend has: those numbered seq and lower, except what was never sent to one. It
// returns how many there were, and the number up to which they went.
func (o *outbox) ack(seq uint64) (n int, last uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last = min(seq, o.ever)
	n = o.after(last)
	for _, e := range o.entries[:n] {
		o.bytes -= len(e.Event)
	}
	o.entries = slices.Delete(o.entries, 0, n)
	if len(o.entries) == 0 && cap(o.entries) > keepEntries {
		o.entries = nil
	}
	return n, last
}

// giveUp removes one event, if it is still there.
func (o *outbox) giveUp(seq uint64) (gone entry, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := o.after(seq) - 1
	if i < 0 || o.entries[i].seq != seq {
		return entry{}, false
	}
	gone = o.entries[i]
	o.drop(i)
	return gone, true
}

// giveUpLargest removes the largest of the events that were sent to a backend and not acknowledged.
func (o *outbox) giveUpLargest() (gone entry, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	largest := -1
	for i, e := range o.entries[:o.after(o.ever)] {
		if largest < 0 || len(e.Event) > len(o.entries[largest].Event) {
			largest = i
		}
	}
	if largest < 0 {
		return entry{}, false
	}
	gone = o.entries[largest]
	o.drop(largest)
	return gone, true
}

func (o *outbox) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.entries)
}
