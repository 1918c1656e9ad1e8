package agent

import (
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// outbox holds encoded events, in the order of their numbers, until a backend has them.
//
// It is bounded by events, bytes and age. When it is full, an event makes room by giving up the oldest of the same check,
// which it outdates; failing that, the oldest of all. A keepalive takes the place of one that was never sent, which has
// become worthless. Numbers given up are never used again, so the numbers held may have gaps.
//
// With a spool all but keepalives are on disk too, and what memory has not much room for is there alone.
type outbox struct {
	maxEvents, maxBytes int
	maxAge              time.Duration // 0 for none
	spool               *spool        // nil for none
	trouble             func(error)   // told when the spool cannot be written, and with nil when it can again

	mu      sync.Mutex // guards the fields below
	entries []entry    // ascending
	bytes   int        // of the entries' events
	memory  int        // of those that memory holds
	last    uint64     // newest number given
	sent    uint64     // newest number taken to be sent since rewind
	ever    uint64     // newest number ever taken to be sent
}

type entry struct {
	seq   uint64
	added int64  // Unix milliseconds
	check string // what the event is about; empty for metrics alone
	size  int    // of the event
	wire.Item

	onDisk bool  // the spool has it, and Item.Event may be nil
	offset int64 // of its record
}

const (
	// keepEntries is how long an array an empty outbox keeps: enough for everyday, not what an outage made of it.
	keepEntries = 64
	// spooledMemory is how many bytes of events memory holds beside the disk.
	spooledMemory = 1 << 20
	// maxMemory is how many bytes of events memory holds when the disk does not take them.
	maxMemory = 64 << 20
)

// keepaliveCheck stands for keepalives in entry.check. No check can have this name.
const keepaliveCheck = "/keepalive"

// restore takes over what an earlier process left on disk.
func (o *outbox) restore(s *spool, entries []entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spool, o.entries, o.last = s, entries, s.reserved
	for i := range entries {
		o.bytes += entries[i].size
	}
}

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
	now := time.Now().UnixMilli()
	dropped = o.expire(now)
	for len(o.entries) > 0 && (len(o.entries) >= o.maxEvents || o.bytes+len(item.Event) > o.maxBytes) {
		o.drop(max(0, slices.IndexFunc(o.entries, func(e entry) bool { return e.check == check })))
		dropped++
	}
	for o.spool != nil && o.memory > 0 && o.memory+len(item.Event) > maxMemory {
		o.drop(slices.IndexFunc(o.entries, func(e entry) bool { return e.Event != nil }))
		dropped++
	}
	o.last++
	e := entry{seq: o.last, added: now, check: check, size: len(item.Event), Item: item}
	o.store(&e)
	o.entries = append(o.entries, e)
	o.bytes += e.size
	o.memory += len(e.Event)
	return o.last, dropped, len(o.entries) - before
}

// expire gives up what is too old, and says how much that was. The caller holds o.mu.
func (o *outbox) expire(now int64) (n int) {
	if o.maxAge == 0 {
		return 0
	}
	for len(o.entries) > 0 && now-o.entries[0].added > o.maxAge.Milliseconds() {
		o.drop(0)
		n++
	}
	return n
}

// store puts a new entry on disk, if there is a spool. The caller holds o.mu.
func (o *outbox) store(e *entry) {
	if o.spool == nil {
		return
	}
	if o.spool.mendable() || o.spool.wasteful() {
		o.rewrite()
	}
	if e.Keepalive {
		o.note(o.spool.reserve(e.seq))
		return
	}
	if err := o.spool.put(e); err != nil {
		o.note(err)
		return
	}
	if o.memory+e.size > spooledMemory {
		e.Event = nil
	}
}

// note passes on trouble with the spool, once until it is over.
func (o *outbox) note(err error) {
	if err != nil && err != errBroken {
		o.trouble(err)
	}
}

// rewrite makes a new file of the spool. The caller holds o.mu.
func (o *outbox) rewrite() {
	broken := !o.spool.broken.IsZero()
	if err := o.spool.rewrite(o.entries); err != nil {
		if !broken {
			o.trouble(err)
		}
		return
	}
	for i := range o.entries {
		if e := &o.entries[i]; e.onDisk && o.memory > spooledMemory && e.Event != nil {
			o.memory -= e.size
			e.Event = nil
		}
	}
	if broken {
		o.trouble(nil)
	}
}

// waiting says whether there is a whole batch to send, or at least one event.
func (o *outbox) waiting() (some, batch bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.entries) - o.after(o.sent)
	return n > 0, n >= maxBatchEvents
}

// settled says whether nothing that was taken since rewind waits to be acknowledged.
func (o *outbox) settled() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.after(o.sent) == 0
}

// roomy says whether the outbox is at most half full.
func (o *outbox) roomy() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.entries) <= o.maxEvents/2 && o.bytes <= o.maxBytes/2
}

// drop removes entry i. The caller holds o.mu.
func (o *outbox) drop(i int) {
	e := &o.entries[i]
	o.bytes -= e.size
	o.memory -= len(e.Event)
	if e.onDisk {
		o.note(o.spool.dropped(e))
	}
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
// come in before the write returns, so what is taken counts as sent already. lost is how many could not be read any more.
func (o *outbox) take(b *batch, maxItems, maxBytes int) (more bool, lost int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	bytes := 0
	for i := o.after(o.sent); i < len(o.entries); {
		e := &o.entries[i]
		bytes += e.size
		if len(b.items) == maxItems || len(b.items) > 0 && bytes > maxBytes {
			return true, lost
		}
		item := e.Item
		if item.Event == nil && e.onDisk {
			var err error
			if item.Event, err = o.spool.event(e); err != nil {
				o.note(err)
				o.drop(i)
				lost++
				continue
			}
		}
		b.items = append(b.items, item)
		b.seqs = append(b.seqs, e.seq)
		o.sent = e.seq
		o.ever = max(o.ever, e.seq)
		i++
	}
	return false, lost
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
	stored := int64(0)
	for i := range o.entries[:n] {
		e := &o.entries[i]
		o.bytes -= e.size
		o.memory -= len(e.Event)
		if e.onDisk {
			stored += e.stored()
		}
	}
	o.entries = slices.Delete(o.entries, 0, n)
	if stored > 0 {
		o.note(o.spool.acked(last, stored))
	}
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
		if largest < 0 || e.size > o.entries[largest].size {
			largest = i
		}
	}
	if largest < 0 || o.entries[largest].size < bytes {
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
