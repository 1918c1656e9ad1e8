package handler

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// position is a place in a partition of the event log.
type position struct {
	seq uint64
	sub uint32
}

func (p position) before(o position) bool {
	return p.seq < o.seq || p.seq == o.seq && p.sub < o.sub
}

// successor is the first position behind p.
func (p position) successor() position {
	if p.sub == ^uint32(0) {
		return position{p.seq + 1, 0}
	}
	return position{p.seq, p.sub + 1}
}

// ledger knows which deliveries of a partition Pebble has to have. DESIGN.md gives the rules.
type ledger struct {
	d         *Dispatcher
	partition int
	// horizon is up to where the stored deliveries of earlier processes reach. What is replayed up to there is either
	// stored or finished.
	horizon position

	mu sync.Mutex // guards the fields below
	// top is the last position dispatched.
	top position
	// fresh is what is in memory only. gone is the keys of what is stored and finished.
	fresh map[*item]struct{}
	gone  [][]byte

	// The last batch of Checkpoint bears the number generation. It is committed if committed says so, or if Pebble
	// has that number, which settle looks up. Until then batch and removed keep what would have to be done again.
	generation, committed uint64
	marked                position // the position in that batch
	batch                 []*item
	removed               [][]byte
}

func newLedger(d *Dispatcher, partition int) *ledger {
	return &ledger{d: d, partition: partition, fresh: map[*item]struct{}{}}
}

// track notes a delivery that was put into memory.
func (l *ledger) track(it *item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fresh[it] = struct{}{}
	l.top = it.pos
}

// spill stores a delivery that memory has no room for. A crash before the next Checkpoint makes that void: the delivery
// is then behind the horizon, removed, and replayed.
func (l *ledger) spill(it *item) error {
	if err := l.d.opts.DB.Set(it.key(), it.value(), pebble.NoSync); err != nil {
		l.d.metrics.storeErrors.Inc()
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.top = it.pos
	return nil
}

// finish notes that a delivery has run.
func (l *ledger) finish(it *item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	it.finished = true
	if !it.stored {
		delete(l.fresh, it)
		return
	}
	l.remove(it.key())
}

// remove sees to it that a stored delivery goes: with the next Checkpoint, or when many have come together. The caller
// holds mu.
func (l *ledger) remove(key []byte) {
	l.gone = append(l.gone, key)
	if len(l.gone)%l.d.trimAt == 0 {
		if err := l.trim(); err != nil {
			l.d.metrics.storeErrors.Inc()
			l.d.log.Error("finished deliveries could not be removed and will be again later", "partition", l.partition, "err", err)
		}
	}
}

// trim removes the finished deliveries from Pebble, all at once: were a later one of a pair removed before an earlier one,
// a crash would run the earlier one again, and the later one not. While it is not known whether the last batch of
// Checkpoint is committed nothing is removed, since that batch might bring it back.
func (l *ledger) trim() error {
	if known, err := l.settle(); err != nil || !known {
		return err
	}
	b := l.d.opts.DB.NewBatch()
	defer b.Close()
	for _, key := range l.gone {
		if err := b.Delete(key, nil); err != nil {
			return err
		}
	}
	if err := b.Commit(pebble.NoSync); err != nil {
		return err
	}
	l.gone = nil
	return nil
}

// settle says whether the last batch of Checkpoint is committed.
func (l *ledger) settle() (bool, error) {
	if l.committed == l.generation {
		return true, nil
	}
	m, err := l.d.readMarker(l.partition)
	if err != nil {
		return false, err
	}
	if m.generation != l.generation {
		return false, nil
	}
	l.committed, l.batch, l.removed = l.generation, nil, nil
	return true, nil
}

// checkpoint adds the changes since the last one to a batch.
func (l *ledger) checkpoint(b *pebble.Batch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	committed, err := l.settle()
	if err != nil {
		return err
	}
	if !committed { // so it never will be: do its changes again
		for _, it := range l.batch {
			if !it.finished {
				it.stored = false
				l.fresh[it] = struct{}{}
			}
		}
		l.gone = append(l.removed, l.gone...)
		l.batch, l.removed = nil, nil
	} else if len(l.fresh) == 0 && len(l.gone) == 0 && l.top == l.marked {
		return nil
	}
	l.generation++
	l.marked = l.top
	l.removed, l.gone = l.gone, nil
	for it := range l.fresh {
		it.stored = true
		l.batch = append(l.batch, it)
	}
	clear(l.fresh)

	for _, it := range l.batch {
		if err := b.Set(it.key(), it.value(), nil); err != nil {
			return err
		}
	}
	for _, key := range l.removed {
		if err := b.Delete(key, nil); err != nil {
			return err
		}
	}
	return b.Set(markerKey(l.partition), marker{l.generation, l.top}.encode(), nil)
}

// marker is stored with each Checkpoint: its number, and the last position whose deliveries it has accounted for.
type marker struct {
	generation uint64
	top        position
}

func (m marker) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, m.generation)
	return appendPosition(b, m.top)
}

func decodeMarker(b []byte) (marker, error) {
	if len(b) != 8+positionLen {
		return marker{}, fmt.Errorf("mark of stored deliveries has %d bytes, want %d", len(b), 8+positionLen)
	}
	return marker{binary.BigEndian.Uint64(b), decodePosition(b[8:])}, nil
}

// readMarker reads a partition's marker; the zero marker if there is none.
func (d *Dispatcher) readMarker(partition int) (marker, error) {
	b, closer, err := d.opts.DB.Get(markerKey(partition))
	if errors.Is(err, pebble.ErrNotFound) {
		return marker{}, nil
	}
	if err != nil {
		return marker{}, err
	}
	defer closer.Close()
	return decodeMarker(b)
}
