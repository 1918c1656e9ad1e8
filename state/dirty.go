package state

// dirtySet is what a partition has yet to write: pairs and entities that changed and keys to remove, in the order of
// the position at which each became dirty. However often a pair changes meanwhile, it is written once. Guarded by
// partition.mu.
type dirtySet struct {
	queue  []dirtyItem
	head   int
	bodies map[uint32]dirtyBody // of the pairs that are dirty or being written
	// orphans are the changes of pairs that were deleted while dirty, by the items that stand in the queue for them: they
	// have to be written before the log position may pass that of the item.
	orphans map[orphanKey][]orphan
	bytes   int    // their size
	read    uint64 // bytes of the log folded since the start
}

// dirtyBody is a pair's newest body. pos is that of the pair's item in the queue: a slot that was given back and used
// again may have an older item there, which no longer counts.
type dirtyBody struct {
	body    []byte
	pos     uint64
	changes []change // of the pair's state, that are to be written with it
}

type orphanKey struct {
	slot uint32
	pos  uint64
}

// orphan is a change whose pair is gone, with the key it is to be stored under.
type orphan struct{ key, value []byte }

// dirtyItem is one thing to write: a pair's slot, an entity's index, or a key to remove.
type dirtyItem struct {
	pos    uint64 // position at which it became dirty
	since  int64  // the same in time, Unix milliseconds
	read   uint64 // and in dirtySet.read
	slot   uint32
	entity bool
	tomb   []byte
	set    []byte // with tomb: what to store there instead
	upto   uint64 // of a pair: position of the newest of its changes that is being written
}

func newDirtySet() dirtySet {
	return dirtySet{bodies: map[uint32]dirtyBody{}, orphans: map[orphanKey][]orphan{}}
}

func (d *dirtySet) push(it dirtyItem) {
	it.since, it.read = nowMilli(), d.read
	d.queue = append(d.queue, it)
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
	d.queue[d.head] = dirtyItem{}
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
func (d *dirtySet) keepBody(slot uint32, body []byte) {
	old := d.bodies[slot]
	d.bytes += len(body) - len(old.body)
	old.body = append(old.body[:0], body...)
	d.bodies[slot] = old
}

// keepChange adds to the changes that are to be written with a pair.
func (d *dirtySet) keepChange(slot uint32, c change) {
	b := d.bodies[slot]
	b.changes = append(b.changes, c)
	d.bodies[slot] = b
	d.bytes += len(c.value)
}

// dropChanges forgets a pair's changes up to a position: they are stored.
func (d *dirtySet) dropChanges(slot uint32, upto uint64) {
	b := d.bodies[slot]
	for len(b.changes) > 0 && b.changes[0].pos <= upto {
		d.bytes -= len(b.changes[0].value)
		b.changes = b.changes[1:]
	}
	d.bodies[slot] = b
}

func (d *dirtySet) forget(slot uint32) {
	if b, ok := d.bodies[slot]; ok {
		d.bytes -= len(b.body)
		for _, c := range b.changes {
			d.bytes -= len(c.value)
		}
		delete(d.bodies, slot)
	}
}
