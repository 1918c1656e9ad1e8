package handler

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
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

// successor returns the first position behind p.
func (p position) successor() position {
	if p.sub == ^uint32(0) {
		return position{p.seq + 1, 0}
	}
	return position{p.seq, p.sub + 1}
}

// ledger tracks which deliveries of a partition Pebble must have. DESIGN.md gives the rules.
type ledger struct {
	d         *Dispatcher
	partition int
	// horizon is the last position with stored deliveries of earlier processes. Deliveries that are replayed up to it
	// are either stored or finished.
	horizon position

	mu sync.Mutex // guards the fields below
	// top is the last dispatched position.
	top position
	// fresh has the deliveries that are only in memory. gone has the keys of stored deliveries that are finished. ends
	// has the changes that must be made together with the end of deliveries: they wait for a Checkpoint, which alone
	// makes an end durable.
	fresh map[*item]struct{}
	gone  [][]byte
	ends  []change
	// untrimmed is how many deliveries have finished since the last try of trim.
	untrimmed int

	// generation is the number of Checkpoint's last batch. The batch is committed if committed is equal, or if Pebble
	// has that number, which lastCommitted looks up. Until then batch, removed and ended keep the changes, in case
	// they must be made again.
	generation, committed uint64
	marked                position // the position in that batch
	batch                 []*item
	removed               [][]byte
	ended                 []change
}

// change is a key to set, or to delete if value is nil.
type change struct{ key, value []byte }

func (c change) apply(b *pebble.Batch) error {
	if c.value == nil {
		return b.Delete(c.key, nil)
	}
	return b.Set(c.key, c.value, nil)
}

func newLedger(d *Dispatcher, partition int) *ledger {
	l := &ledger{d: d, partition: partition, fresh: map[*item]struct{}{}}
	if l.local() {
		l.horizon = position{math.MaxUint64, math.MaxUint32}
	}
	return l
}

// local reports whether the deliveries are not of the log. The log does not replay those and no Checkpoint includes
// them: they are stored before they are queued, and removed when they finish.
func (l *ledger) local() bool { return l.partition == localPartition }

// track adds a delivery that was put into memory.
func (l *ledger) track(it *item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fresh[it] = struct{}{}
	l.top = it.pos
}

// spill stores a delivery for which memory has no room. A crash before the next Checkpoint undoes that: the delivery
// is then behind the horizon, so it is removed and replayed.
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

// park stores a tracked delivery, so that its event need not stay in memory. A crash undoes a park like a spill. A
// batch of Checkpoint with the same delivery writes it again.
func (l *ledger) park(it *item) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if it.written {
		return nil
	}
	if err := l.d.opts.DB.Set(it.key(), it.value(), pebble.NoSync); err != nil {
		l.d.metrics.storeErrors.Inc()
		return err
	}
	it.stored, it.written = true, true
	delete(l.fresh, it)
	return nil
}

// progress stores the progress of a delivery that will be tried again. It counts as long as the delivery is stored.
func (l *ledger) progress(it *item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.d.opts.DB.Set(it.progressKey(), it.progress.encode(), pebble.NoSync); err != nil {
		l.d.metrics.storeErrors.Inc()
		l.d.rare.Error("attempts of a delivery could not be stored: after a restart they will not count", "", "delivery", it.ID, "err", err)
		return
	}
	it.progressed = true
}

// finish records that a delivery is over, with the changes that must be stored at the same time.
func (l *ledger) finish(it *item, with ...change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	it.finished = true
	if l.local() {
		l.finishLocal(it, with)
		return
	}
	l.ends = append(l.ends, with...)
	if it.progressed {
		l.gone = append(l.gone, it.progressKey())
	}
	if !it.stored {
		delete(l.fresh, it)
		return
	}
	l.remove(it.key())
}

func (l *ledger) finishLocal(it *item, with []change) {
	b := l.d.opts.DB.NewBatch()
	defer b.Close()
	err := errors.Join(b.Delete(it.key(), nil), b.Delete(it.progressKey(), nil))
	for _, c := range with {
		err = errors.Join(err, c.apply(b))
	}
	if err == nil {
		err = b.Commit(pebble.NoSync)
	}
	if err != nil {
		l.d.metrics.storeErrors.Inc()
		l.d.rare.Error("a finished delivery could not be removed and will run again after a restart", "", "delivery", it.ID, "err", err)
	}
}

// remove removes a stored delivery with the next Checkpoint, or with many others. The caller holds mu.
func (l *ledger) remove(key []byte) {
	l.gone = append(l.gone, key)
	if l.untrimmed++; l.untrimmed >= l.d.trimAt {
		l.untrimmed = 0
		if err := l.trim(); err != nil {
			l.d.metrics.storeErrors.Inc()
			l.d.rare.Error("finished deliveries could not be removed, trying again later", "", "partition", l.partition, "err", err)
		}
	}
}

// trim removes the finished deliveries from Pebble, all at once: if a later one of a pair were removed before an
// earlier one, a crash would run the earlier one again without the later one. It removes none until the last batch of
// Checkpoint is known to be committed, since that batch might restore them, and none while ends wait for a Checkpoint,
// without which those deliveries must stay.
func (l *ledger) trim() error {
	if len(l.ends) > 0 && !l.local() {
		return nil
	}
	if known, err := l.lastCommitted(); err != nil || !known {
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

// lastCommitted reports whether the last batch of Checkpoint is committed.
func (l *ledger) lastCommitted() (bool, error) {
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
	l.committed, l.batch, l.removed, l.ended = l.generation, nil, nil, nil
	return true, nil
}

// checkpoint adds the changes since the last one to a batch.
func (l *ledger) checkpoint(b *pebble.Batch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	committed, err := l.lastCommitted()
	if err != nil {
		return err
	}
	if !committed { // it never will be: make its changes again
		for _, it := range l.batch {
			if !it.finished && !it.written {
				it.stored = false
				l.fresh[it] = struct{}{}
			}
		}
		l.gone = append(l.removed, l.gone...)
		l.ends = append(l.ended, l.ends...)
		l.batch, l.removed, l.ended = nil, nil, nil
	} else if len(l.fresh) == 0 && len(l.gone) == 0 && len(l.ends) == 0 && l.top == l.marked {
		return nil
	}
	l.generation++
	l.marked = l.top
	l.removed, l.gone = l.gone, nil
	l.ended, l.ends = l.ends, nil
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
	for _, c := range l.ended {
		if err := c.apply(b); err != nil {
			return err
		}
	}
	return b.Set(markerKey(l.partition), marker{l.generation, l.top}.encode(), nil)
}

// marker is stored with each Checkpoint: its number, and the last position whose deliveries it covers.
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
