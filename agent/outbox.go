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
// which it outdates; failing that, the oldest of all. A keepalive takes the place of one that was never sent, which has
// become worthless. Numbers given up are never used again, so the numbers held may have gaps.
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

// add takes an event in and returns its number, how many events were given up for it, and how many more are held now.
func (o *outbox) add(check string, item wire.Item) (seq uint64, dropped, more int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := len(o.entries)
	if item.Keepalive {
		if i := slices.IndexFunc(o.entries[o.after(o.ever):], func(e entry) bool { return e.Keepalive }); i >= 0 {
			o.drop(o.after(o.ever) + i)
		}
	}
	for len(o.entries) > 0 && (len(o.entries) >= o.maxEvents || o.bytes+len(item.Event) > o.maxBytes) {
		o.drop(max(0, slices.IndexFunc(o.entries, func(e entry) bool { return e.check == check })))
		dropped++
	}
	o.last++
	o.entries = append(o.entries, entry{seq: o.last, check: check, Item: item})
	o.bytes += len(item.Event)
	return o.last, dropped, len(o.entries) - before
}

// waiting says whether there is a whole batch to send, or at least one event.
func (o *outbox) waiting() (some, batch bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.entries) - o.after(o.sent)
	return n > 0, n >= maxBatchEvents
}

// roomy says whether the outbox is at most half full.
func (o *outbox) roomy() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.entries) <= o.maxEvents/2 && o.bytes <= o.maxBytes/2
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

// take adds events to send now to b, up to the limits but one at least if there is any, and says whether there are more.
// They are those not taken since rewind. Their bytes stay valid whatever becomes of the entries. An acknowledgement may
// come in before the write returns, so what is taken counts as sent already.
func (o *outbox) take(b *batch, maxItems, maxBytes int) (more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	bytes := 0
	for _, e := range o.entries[o.after(o.sent):] {
		bytes += len(e.Event)
		if len(b.items) == maxItems || len(b.items) > 0 && bytes > maxBytes {
			return true
		}
		b.items = append(b.items, e.Item)
		b.seqs = append(b.seqs, e.seq)
		o.sent = e.seq
		o.ever = max(o.ever, e.seq)
	}
	return false
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

// giveUpLargest removes the largest of the events that were sent to a backend and not acknowledged, if it has at least so
// many bytes.
func (o *outbox) giveUpLargest(bytes int) (gone entry, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	largest := -1
	for i, e := range o.entries[:o.after(o.ever)] {
		if largest < 0 || len(e.Event) > len(o.entries[largest].Event) {
			largest = i
		}
	}
	if largest < 0 || len(o.entries[largest].Event) < bytes {
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
