package state

// dirtySet is what a partition has yet to write: pairs and entities that changed and keys to remove, in the order of
// the position at which each became dirty. However often a pair changes meanwhile, it is written once. Guarded by
// partition.mu.
type dirtySet struct {
	queue  []dirtyItem
	head   int
	bodies map[uint32]dirtyBody // of the pairs that are dirty or being written
	bytes  int                  // their size
	read   uint64               // bytes of the log folded since the start
}

// dirtyBody is a pair's newest body. pos is that of the pair's item in the queue: a slot that was given back and used
// again may have an older item there, which no longer counts.
type dirtyBody struct {
	body []byte
	pos  uint64
}

// dirtyItem is one thing to write: a pair's slot, an entity's index, or a key to remove.
type dirtyItem struct {
	pos    uint64 // position at which it became dirty
	since  int64  // the same in time, Unix milliseconds
	read   uint64 // and in dirtySet.read
	slot   uint32
	entity bool
	tomb   []byte
}

func newDirtySet() dirtySet { return dirtySet{bodies: map[uint32]dirtyBody{}} }

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
	d.bodies[slot] = dirtyBody{body: append(old.body[:0], body...), pos: old.pos}
}

func (d *dirtySet) forget(slot uint32) {
	if b, ok := d.bodies[slot]; ok {
		d.bytes -= len(b.body)
		delete(d.bodies, slot)
	}
}
