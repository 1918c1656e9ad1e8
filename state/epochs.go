package state

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/fields"
)

// This file makes sure that a record counts once, for any number of agents that report one pair.
//
// An agent process numbers its events and draws an epoch for them. A pair holds the epoch and the number of its newest
// event, which is enough for a pair with one agent. When an event of another epoch replaces it, or the pair is
// deleted, the partition records how far the earlier epoch had come for the entity: a mark.
//
// The invariant behind marks: the events of one epoch about one entity are folded in the order of their numbers. An
// entity is in one partition, a session appends in order, and an agent that sends again begins with the lowest number
// that was not acknowledged. So an event whose number is not above the mark of its epoch was folded before, for any
// check.
//
// A mark has the position of the record that made it, and counts only for later records. A replay begins before some
// of the stored marks, and must judge each record by the marks of its time. So older marks stay beside the newest one
// until the stored position has passed them. All changed marks go into the next commit: a pair is never stored without
// the marks made before.
//
// A repeat is recognised for keepMarks. If an agent is away for longer, sends folded events again, and another agent
// has reported the pair in the meantime, those events count twice.

const (
	// keepMarks is how long a mark counts.
	keepMarks = 7 * 24 * time.Hour
	// markSlack is how much longer a mark is stored: a replay sees records that are older than the newest.
	markSlack = 24 * time.Hour
	// maxMarks bounds the marks of a partition, about 64 bytes each. Beyond it the oldest quarter is dropped.
	maxMarks = 1 << 16
	// sweepMarksEvery is the time between removals of marks that no longer count.
	sweepMarksEvery = time.Hour
)

// mark records that all events of an epoch about an entity up to a number were folded before a position.
type mark struct {
	seq uint64
	pos uint64
	at  int64 // when the record at pos was received, Unix milliseconds
}

// markSet has the marks of a partition, by markKey. Guarded by partition.mu.
type markSet struct {
	newest  map[uint64]mark
	older   map[uint64][]mark   // earlier marks that a replay may need, in the order of their positions
	changed map[uint64]struct{} // since the last commit
	storing map[uint64]struct{} // those in the commit under way
	from    uint64              // position at which a replay begins after that commit
}

func newMarkSet() markSet {
	return markSet{newest: map[uint64]mark{}, older: map[uint64][]mark{}, changed: map[uint64]struct{}{}}
}

// markKey returns the key of an epoch and an entity. It needs both, because agents on hosts copied from one image may
// share an epoch.
func markKey(epoch uint64, namespace, entity string) uint64 {
	var d xxhash.Digest
	d.Reset()
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], epoch)
	_, _ = d.Write(b[:])
	_, _ = d.WriteString(namespace)
	_, _ = d.Write([]byte{0})
	_, _ = d.WriteString(entity)
	return d.Sum64()
}

// before returns the mark that counts for a record at a position.
func (ms *markSet) before(key, pos uint64) (m mark, ok bool) {
	if m, ok = ms.newest[key]; !ok || m.pos < pos {
		return m, ok
	}
	older := ms.older[key]
	for i := len(older) - 1; i >= 0; i-- {
		if older[i].pos < pos {
			return older[i], true
		}
	}
	return mark{}, false
}

// note adds a mark unless an earlier one covers it. In a replay the mark, or later ones, may exist already.
func (ms *markSet) note(key uint64, m mark) {
	if last, ok := ms.before(key, m.pos); ok && m.seq <= last.seq {
		return
	}
	ms.changed[key] = struct{}{}
	newest, ok := ms.newest[key]
	if ok && newest.pos < m.pos {
		ms.older[key] = append(ms.older[key], newest)
	}
	if !ok || newest.pos < m.pos {
		ms.newest[key] = m
		return
	}
	if newest.pos == m.pos { // one record deletes several pairs
		newest.seq = max(newest.seq, m.seq)
		ms.newest[key] = newest
		return
	}
	older := ms.older[key]
	i, found := slices.BinarySearchFunc(older, m, compareMarks)
	if found {
		older[i].seq = max(older[i].seq, m.seq)
		return
	}
	ms.older[key] = slices.Insert(older, i, m)
}

func compareMarks(a, b mark) int {
	switch {
	case a.pos < b.pos:
		return -1
	case a.pos > b.pos:
		return 1
	}
	return 0
}

// trim drops older marks that no replay from a position on needs.
func (ms *markSet) trim(key, from uint64) {
	older, ok := ms.older[key]
	if !ok {
		return
	}
	passed := 0 // marks before from, of which the last still counts
	for passed < len(older) && older[passed].pos < from {
		passed++
	}
	if ms.newest[key].pos < from {
		passed++
	}
	if passed > 1 {
		older = older[passed-1:]
	}
	if len(older) == 0 {
		delete(ms.older, key)
		return
	}
	ms.older[key] = slices.Clip(slices.Clone(older))
}

// store adds the changed marks to a batch that makes from the position at which a replay begins.
func (ms *markSet) store(batch *pebble.Batch, partition int, from uint64) error {
	var value []byte
	for key := range ms.changed {
		m, ok := ms.newest[key]
		if !ok {
			if err := batch.Delete(markStoreKey(partition, key), nil); err != nil {
				return err
			}
			continue
		}
		value = value[:0]
		for _, o := range ms.older[key] {
			value = appendMark(value, o)
		}
		if err := batch.Set(markStoreKey(partition, key), appendMark(value, m), nil); err != nil {
			return err
		}
	}
	if len(ms.changed) > 0 {
		ms.storing, ms.changed = ms.changed, map[uint64]struct{}{}
	}
	ms.from = from
	return nil
}

// stored ends the commit that store wrote to.
func (ms *markSet) stored(err error) {
	for key := range ms.storing {
		if err != nil {
			ms.changed[key] = struct{}{}
		} else {
			ms.trim(key, ms.from)
		}
	}
	ms.storing = nil
}

// sweep drops the marks that have not counted for markSlack, and the oldest quarter if there are too many.
func (ms *markSet) sweep(now int64) {
	forget := func(key uint64) {
		delete(ms.newest, key)
		delete(ms.older, key)
		ms.changed[key] = struct{}{}
	}
	for key, m := range ms.newest {
		if now-m.at > (keepMarks + markSlack).Milliseconds() {
			forget(key)
		}
	}
	if len(ms.newest) <= maxMarks {
		return
	}
	byAge := make([]uint64, 0, len(ms.newest))
	for _, m := range ms.newest {
		byAge = append(byAge, m.pos)
	}
	slices.Sort(byAge)
	oldest := byAge[len(byAge)/4]
	for key, m := range ms.newest {
		if m.pos < oldest {
			forget(key)
		}
	}
}

func markStoreKey(partition int, key uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{'n', byte(partition)}, key)
}

func appendMark(b []byte, m mark) []byte {
	b = binary.AppendUvarint(b, m.seq)
	b = binary.AppendUvarint(b, m.pos)
	return binary.AppendVarint(b, m.at)
}

var errMark = errors.New("malformed mark of an epoch")

// loadMark reads what store wrote: the marks of a key, oldest first.
func (p *partition) loadMark(key, value []byte) error {
	if len(key) != 8 || len(value) == 0 {
		return errMark
	}
	var all []mark
	for r := fields.NewReader(value); len(r.Rest) > 0; {
		all = append(all, mark{seq: r.Uint(), pos: r.Uint(), at: r.Int()})
		if r.Err() != nil {
			return errMark
		}
	}
	k, last := binary.BigEndian.Uint64(key), len(all)-1
	p.marks.newest[k] = all[last]
	if last > 0 {
		p.marks.older[k] = slices.Clip(all[:last])
	}
	return nil
}

// repeated reports whether an event was folded before; pr is its pair, or nil. The caller holds mu.
func (p *partition) repeated(pr *pair, pos uint64, rec *eventlog.Record) bool {
	switch {
	case rec.Flags&eventlog.FlagFromAgent == 0:
		return false
	case pr != nil && pr.epoch == rec.Epoch:
		return rec.Sequence <= pr.sequence
	case len(p.marks.newest) == 0:
		return false
	}
	m, ok := p.marks.before(markKey(rec.Epoch, rec.Namespace, rec.Entity), pos)
	return ok && rec.Sequence <= m.seq && rec.Received-m.at <= keepMarks.Milliseconds()
}

// displaced marks how far the epoch of a pair had come, before the record at pos replaces it. The first mark of an
// epoch looks at all pairs of the entity: an agent that restarted, and displaces its own epoch in one pair after the
// other, then makes one mark and not many. The caller holds mu.
func (p *partition) displaced(pr *pair, pos uint64, received int64) {
	if pr.epoch == 0 {
		return
	}
	e := &p.entities[pr.entity]
	key, m := markKey(pr.epoch, e.namespace, e.name), mark{seq: pr.sequence, pos: pos, at: received}
	if _, ok := p.marks.before(key, pos); !ok {
		for slot := e.first; slot != 0; slot = p.at(slot - 1).next {
			// A pair that is newer than the record was stored before a crash; its event comes later in this replay.
			if o := p.at(slot - 1); o.epoch == pr.epoch && o.pos < pos {
				m.seq = max(m.seq, o.sequence)
			}
		}
	}
	p.marks.note(key, m)
	if len(p.marks.newest) > maxMarks {
		p.marks.sweep(received)
	}
}

// sweepMarks drops marks that no longer count at the time the newest record was received.
func (p *partition) sweepMarks() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.received > 0 {
		p.marks.sweep(p.received)
	}
}
