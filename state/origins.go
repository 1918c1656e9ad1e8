package state

import (
	"encoding/binary"
	"fmt"
	"maps"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/internal/fields"
)

// originSet knows how far each backend's batches are folded, so that a batch that the broker has stored twice counts
// once: a writer that gets no answer publishes again, and the broker recognises that for two minutes only.
//
// A replay begins before the newest folded message, and must judge each batch by the numbers of its time. So base has
// the numbers before the message from which a replay begins, as they are stored. A failed commit leaves it as it is:
// the next one may begin its replay earlier. Guarded by partition.mu.
type originSet struct {
	newest  map[string]uint64 // number of the newest folded batch, by origin
	base    map[string]uint64 // the same before the message at which a replay begins
	folded  []foldedBatch     // from that message on, oldest first
	storing map[string]uint64 // base after the commit under way; nil if that does not change it
	passed  int               // how many of folded are in storing
}

type foldedBatch struct {
	seq    uint64
	origin string
	number uint64
}

func newOriginSet() originSet {
	return originSet{newest: map[string]uint64{}, base: map[string]uint64{}}
}

// fold records a batch, and reports whether it is a repeat. A batch without a number never is.
func (o *originSet) fold(seq uint64, origin string, number uint64) (repeat bool) {
	if number == 0 {
		return false
	}
	if number <= o.newest[origin] {
		return true
	}
	o.newest[origin] = number
	o.folded = append(o.folded, foldedBatch{seq, origin, number})
	return false
}

// store adds the numbers to a batch that makes a replay begin at the message from.
func (o *originSet) store(batch *pebble.Batch, partition int, from uint64) error {
	o.passed = 0
	for o.passed < len(o.folded) && o.folded[o.passed].seq < from {
		o.passed++
	}
	if o.passed == 0 {
		return nil
	}
	o.storing = maps.Clone(o.base)
	for _, b := range o.folded[:o.passed] {
		o.storing[b.origin] = b.number
	}
	var value []byte
	for origin, number := range o.storing {
		value = binary.AppendUvarint(fields.AppendBytes(value, origin), number)
	}
	return batch.Set(originsKey(partition), value, nil)
}

// stored ends the commit that store wrote to.
func (o *originSet) stored(err error) {
	if err == nil && o.storing != nil {
		o.base = o.storing
		o.folded = append(o.folded[:0], o.folded[o.passed:]...)
	}
	o.storing = nil
}

// load reads what store wrote.
func (o *originSet) load(value []byte) error {
	for r := fields.NewReader(value); len(r.Rest) > 0; {
		origin, number := r.Text(), r.Uint()
		if err := r.Err(); err != nil {
			return fmt.Errorf("read how far the origins' batches are folded: %w", err)
		}
		o.base[origin], o.newest[origin] = number, number
	}
	return nil
}

func originsKey(partition int) []byte { return []byte{'o', byte(partition)} }

// Number returns the number of an origin's newest folded batch; 0 if there is none.
func (f *Folder) Number(origin string) uint64 {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	return f.p.origins.newest[origin]
}
