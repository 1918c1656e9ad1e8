package state

import (
	"cmp"
	"slices"

	"github.com/lapwing-monitoring/lapwing/internal/offheap"
)

// dirtySet has what a partition must still write: changed pairs and entities, and keys to remove, in the order of the
// position at which each became dirty. A pair that changes several times is written once. Guarded by partition.mu.
//
// At full load nearly all pairs are in it. So its entries have no pointers, and the bodies are not on the heap.
type dirtySet struct {
	queue   []dirtyItem
	head    int
	arena   offheap.Arena       // the bodies of pairs that are dirty or being written, and the changes
	bodies  int                 // how many there are
	changes map[uint32][]change // changes to write with a pair, by slot
	// orphans has the changes of pairs that were deleted while dirty, by the items that are queued for them: they must
	// be written before the log position may pass the item's.
	orphans map[orphanKey][]keyed
	keys    map[uint32]keyed // of the items for keys, until they are written
	nextKey uint32
	bytes   int    // size of the bodies and changes
	read    uint64 // bytes of the log folded since the start
}

type orphanKey struct {
	slot uint32
	pos  uint64
}

// keyed is a value for a key that belongs to no pair or entity; nil removes the key.
type keyed struct{ key, value []byte }

// dirtyKind is what a dirtyItem writes.
type dirtyKind uint8

const (
	dirtyPair dirtyKind = iota
	dirtyEntity
	dirtyKey
)

// dirtyItem is one thing to write.
type dirtyItem struct {
	pos   uint64 // position at which it became dirty
	since int64  // the time of that, Unix milliseconds
	read  uint64 // dirtySet.read at that time
	slot  uint32 // of a pair; else the index of an entity, or the number of a key
	kind  dirtyKind
}

// takenItem is an item that a commit has taken.
type takenItem struct {
	dirtyItem
	upto uint64 // of a pair: position of its newest change in the commit
}

func newDirtySet() dirtySet {
	return dirtySet{changes: map[uint32][]change{}, orphans: map[orphanKey][]keyed{}, keys: map[uint32]keyed{}}
}

func (d *dirtySet) push(kind dirtyKind, slot uint32, pos uint64) {
	d.queue = append(d.queue, dirtyItem{pos: pos, since: nowMilli(), read: d.read, slot: slot, kind: kind})
}

// set queues a value for a key; nil removes the key.
func (d *dirtySet) set(pos uint64, key, value []byte) {
	d.nextKey++
	d.keys[d.nextKey] = keyed{key, value}
	d.push(dirtyKey, d.nextKey, pos)
}

func (d *dirtySet) len() int { return len(d.queue) - d.head }

func (d *dirtySet) front() *dirtyItem {
	if d.head == len(d.queue) {
		return nil
	}
	return &d.queue[d.head]
}

func (d *dirtySet) pop() dirtyItem {
	it := d.queue[d.head]
	d.head++
	if d.head > 1024 && d.head > len(d.queue)/2 {
		d.queue = append(d.queue[:0], d.queue[d.head:]...)
		d.head = 0
	}
	return it
}

// pushFront puts items back that were not written. The queue stays in the order of the positions: its front holds the
// log back.
func (d *dirtySet) pushFront(items []dirtyItem) {
	if len(items) == 0 {
		return
	}
	newest := items[len(items)-1].pos
	for front := d.front(); front != nil && front.pos < newest; front = d.front() {
		items = append(items, d.pop())
	}
	slices.SortStableFunc(items, func(a, b dirtyItem) int { return cmp.Compare(a.pos, b.pos) })
	if d.head >= len(items) {
		d.head -= len(items)
		copy(d.queue[d.head:], items)
		return
	}
	d.queue = append(append(make([]dirtyItem, 0, len(items)+d.len()), items...), d.queue[d.head:]...)
	d.head = 0
}

// keepBody copies a pair's newest body, into the memory of the one before if there is one.
func (d *dirtySet) keepBody(pr *pair, body []byte) {
	if pr.body == 0 {
		d.bodies++
	} else {
		d.bytes -= len(d.arena.Get(pr.body))
	}
	pr.body = d.arena.Replace(pr.body, body)
	d.bytes += len(body)
}

// keepChange adds a change to write with a pair.
func (d *dirtySet) keepChange(slot uint32, pos uint64, value []byte) {
	d.changes[slot] = append(d.changes[slot], change{pos, d.arena.Put(value)})
	d.bytes += len(value)
}

// drop frees memory of the arena.
func (d *dirtySet) drop(ref offheap.Ref) {
	d.bytes -= len(d.arena.Get(ref))
	d.arena.Free(ref)
}

// dropChanges drops a pair's changes up to a position, once they are stored.
func (d *dirtySet) dropChanges(slot uint32, upto uint64) {
	changes := d.changes[slot]
	for len(changes) > 0 && changes[0].pos <= upto {
		d.drop(changes[0].value)
		changes = changes[1:]
	}
	if len(changes) == 0 {
		delete(d.changes, slot)
		return
	}
	d.changes[slot] = changes
}

// forget drops a pair's body and its changes: they are stored, or the pair is deleted.
func (d *dirtySet) forget(slot uint32, pr *pair) {
	if pr.body == 0 {
		return
	}
	d.drop(pr.body)
	pr.body = 0
	for _, c := range d.changes[slot] {
		d.drop(c.value)
	}
	delete(d.changes, slot)
	if d.bodies--; d.bodies == 0 {
		d.arena.Trim()
	}
}
