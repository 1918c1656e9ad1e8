package agent

import (
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// outbox holds encoded events in the order of their numbers until a backend has acknowledged them.
//
// It is bounded by events, bytes and age. When it is full, a new event replaces the oldest of the same check, or else
// the oldest of all. A keepalive replaces an older one that was never sent. Numbers given up are never used again, so
// the numbers held may have gaps.
//
// With a spool all events except keepalives are on disk too. Events beyond spooledMemory are on disk alone.
type outbox struct {
	maxEvents, maxBytes int
	maxAge              time.Duration // 0 for no limit
	spool               *spool        // nil for none
	trouble             func(error)   // gets an error when the spool cannot be written, and nil when it can again

	mu      sync.Mutex // guards the fields below
	entries []entry    // ascending
	bytes   int        // of the entries' events
	memory  int        // of the events held in memory
	last    uint64     // newest number given
	sent    uint64     // newest number taken to be sent since rewind
	ever    uint64     // newest number ever taken to be sent, on any connection
}

type entry struct {
	seq   uint64
	added int64  // Unix milliseconds
	check string // the event's check; empty for metrics alone
	size  int    // of the event
	wire.Item

	onDisk bool  // the spool has it, and Item.Event may be nil
	offset int64 // of its record
}

const (
	// keepEntries bounds the array that an empty outbox keeps: enough for everyday work, not the size of an outage.
	keepEntries = 64
	// spooledMemory bounds the bytes of events in memory when they are on disk too.
	spooledMemory = 1 << 20
	// maxMemory bounds the bytes of events in memory when the disk does not take them.
	maxMemory = 64 << 20
)

// keepaliveCheck marks keepalives in entry.check. No check can have this name.
const keepaliveCheck = "/keepalive"

// restore adds the events that an earlier process left on disk.
func (o *outbox) restore(s *spool, entries []entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spool, o.entries, o.last = s, entries, s.reserved
	for i := range entries {
		o.bytes += entries[i].size
	}
}

// add adds an event. It returns its number, how many events were given up for it, and how many more are held now.
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

// expire gives up events that are too old and returns how many. The caller holds o.mu.
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

// note reports the spool's trouble once, and its end.
func (o *outbox) note(err error) {
	if err != nil && err != errBroken {
		o.trouble(err)
	}
}

// rewrite writes a new spool file. The caller holds o.mu.
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

// waiting reports whether there is at least one event to send, and whether there is a whole batch.
func (o *outbox) waiting() (some, batch bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.entries) - o.after(o.sent)
	return n > 0, n >= maxBatchEvents
}

// allAcked reports whether everything taken since rewind is acknowledged.
func (o *outbox) allAcked() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.after(o.sent) == 0
}

// roomy reports whether the outbox is at most half full.
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

// rewind marks all events as unsent, for a new connection.
func (o *outbox) rewind() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent = 0
}

// take adds events to send to b, up to the limits but at least one if there is any, and reports whether there are more.
// It starts after the events taken since rewind. Their bytes stay valid even when the entries are dropped. An
// acknowledgement may arrive before the write returns, so taken events count as sent. lost is how many could not be
// read any more.
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

// after returns the index of the first entry with a number above seq. The caller holds o.mu.
func (o *outbox) after(seq uint64) int {
	return sort.Search(len(o.entries), func(i int) bool { return o.entries[i].seq > seq })
}

// ack removes the events numbered seq and lower that were sent to a backend. It returns how many there were, and the
// highest number among them.
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

// giveUp removes one event if it is still held.
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

// giveUpLargest removes the largest event that was sent and not acknowledged, if it has at least that many bytes.
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
