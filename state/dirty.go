package state

import "github.com/lapwing-monitoring/lapwing/internal/offheap"

// dirtySet is what a partition has yet to write: pairs and entities that changed and keys to remove, in the order of
// the position at which each became dirty. However often a pair changes meanwhile, it is written once. Guarded by
// partition.mu.
//
// At full load nearly all pairs are in it, so what it keeps of each has no pointers, and the bodies are not on the heap.
type dirtySet struct {
	queue  []dirtyItem
	head   int
	arena  offheap.Arena       // the bodies of the pairs that are dirty or being written, and the changes
	bodies int                 // how many they are
	change map[uint32][]change // changes that are to be written with a pair, by slot
	// orphans are the changes of pairs that were deleted while dirty, by the items that stand in the queue for them: they
	// have to be written before the log position may pass that of the item.
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

// keyed is something to store under a key that no pair or entity makes; with a nil value the key is removed.
type keyed struct{ key, value []byte }

// dirtyKind is what a dirtyItem is for.
type dirtyKind uint8

const (
	dirtyPair dirtyKind = iota
	dirtyEntity
	dirtyKey
)

// dirtyItem is one thing to write.
type dirtyItem struct {
	pos   uint64 // position at which it became dirty
	since int64  // the same in time, Unix milliseconds
	read  uint64 // and in dirtySet.read
	slot  uint32 // of a pair; the index of an entity; the number of a key
	kind  dirtyKind
}

// takenItem is one that a commit has taken.
type takenItem struct {
	dirtyItem
	upto uint64 // of a pair: position of the newest of its changes in the commit
}

func newDirtySet() dirtySet {
	return dirtySet{change: map[uint32][]change{}, orphans: map[orphanKey][]keyed{}, keys: map[uint32]keyed{}}
}

func (d *dirtySet) push(kind dirtyKind, slot uint32, pos uint64) {
	d.queue = append(d.queue, dirtyItem{pos: pos, since: nowMilli(), read: d.read, slot: slot, kind: kind})
}

// set has a value stored under a key, or the key removed if it is nil.
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

// pushFront puts items back that could not be written, in their order.
func (d *dirtySet) pushFront(items []dirtyItem) {
	d.queue = append(append(make([]dirtyItem, 0, len(items)+d.len()), items...), d.queue[d.head:]...)
	d.head = 0
}

// keepBody copies a pair's newest body, into the room of the one before if there is one.
func (d *dirtySet) keepBody(pr *pair, body []byte) {
	if pr.body == 0 {
		d.bodies++
	} else {
		d.bytes -= len(d.arena.Get(pr.body))
	}
	pr.body = d.arena.Replace(pr.body, body)
	d.bytes += len(body)
}

// keepChange adds to the changes that are to be written with a pair.
func (d *dirtySet) keepChange(slot uint32, pos uint64, value []byte) {
	d.change[slot] = append(d.change[slot], change{pos, d.arena.Put(value)})
	d.bytes += len(value)
}

// drop frees what the arena has of a pair.
func (d *dirtySet) drop(ref offheap.Ref) {
	d.bytes -= len(d.arena.Get(ref))
	d.arena.Free(ref)
}

// dropChanges forgets a pair's changes up to a position: they are stored.
func (d *dirtySet) dropChanges(slot uint32, upto uint64) {
	changes := d.change[slot]
	for len(changes) > 0 && changes[0].pos <= upto {
		d.drop(changes[0].value)
		changes = changes[1:]
	}
	if len(changes) == 0 {
		delete(d.change, slot)
		return
	}
	d.change[slot] = changes
}

// forget drops a pair's body and its changes: they are stored, or the pair is gone.
func (d *dirtySet) forget(slot uint32, pr *pair) {
	if pr.body == 0 {
		return
	}
	d.drop(pr.body)
	pr.body = 0
	for _, c := range d.change[slot] {
		d.drop(c.value)
	}
	delete(d.change, slot)
	if d.bodies--; d.bodies == 0 {
		d.arena.Trim()
	}
}
