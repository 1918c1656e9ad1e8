package state

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

const (
	writeTick    = 200 * time.Millisecond
	writeBatch   = 500              // items a commit
	trimInterval = 10 * time.Second // between syncs of the position, before which the log may be trimmed
)

func nowMilli() int64 { return time.Now().UnixMilli() }

// markPair puts a pair into the dirty queue unless it is there.
func (p *partition) markPair(slot uint32, pos uint64) {
	if pr := p.at(slot); pr.flags&pairDirty == 0 {
		pr.flags |= pairDirty
		pr.queued = pos
		p.dirty.push(dirtyPair, slot, pos)
	}
}

func (p *partition) markEntity(i uint32, pos uint64) {
	if e := &p.entities[i]; !e.dirty {
		e.dirty = true
		p.dirty.push(dirtyEntity, i, pos)
	}
}

// writeBack writes changes that have been dirty for WriteDelay, or earlier to keep memory and replay in bounds: oldest
// first, and a bounded number of items a commit. So several events of one check cost one write, and the disk gets an
// even stream without bursts.
func (s *State) writeBack(ctx context.Context) {
	tick := time.NewTicker(writeTick)
	defer tick.Stop()
	trimmed, swept := time.Now(), time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		trim := time.Since(trimmed) >= trimInterval
		sweep := time.Since(swept) >= sweepMarksEvery
		wrote := false
		for _, p := range s.parts {
			n, err := p.writeDue(nowMilli() - s.opts.WriteDelay.Milliseconds())
			wrote = wrote || n > 0
			if sweep {
				p.sweepMarks()
			}
			if err != nil {
				s.metrics.writeFailures.Inc()
				s.log.Error("write-back failed and will be tried again", "partition", p.id, "err", err)
				continue
			}
			if trim {
				if err := p.trimLog(ctx); err != nil && ctx.Err() == nil {
					s.log.Error("log was not trimmed", "partition", p.id, "err", err)
				}
			}
		}
		// Unsynced commits stay in this process for a while. One sync a tick bounds what the replay repeats after a
		// crash.
		if wrote {
			s.sync()
		}
		if trim {
			trimmed = time.Now()
		}
		if sweep {
			swept = time.Now()
		}
	}
}

// sync makes earlier commits survive a crash.
func (s *State) sync() {
	begin := time.Now()
	if err := s.opts.DB.LogData(nil, pebble.Sync); err != nil {
		s.metrics.writeFailures.Inc()
		s.log.Error("sync of the write-back failed", "err", err)
		return
	}
	s.metrics.syncSeconds.Observe(time.Since(begin).Seconds())
}

// writeDue writes all items that became dirty before the given time, and more while too much is dirty.
func (p *partition) writeDue(before int64) (written int, err error) {
	for {
		n, err := p.writeSome(before)
		written += n
		if err != nil || n == 0 {
			return written, err
		}
	}
}

// writeSome commits one batch and returns how many items it had. After a failure the items go back to the front.
func (p *partition) writeSome(before int64) (n int, err error) {
	p.storing.Lock()
	defer p.storing.Unlock()
	start := time.Now()
	batch := p.state.opts.DB.NewBatch()
	defer batch.Close()
	items, err := p.gather(batch, before)
	if err != nil || len(items) == 0 {
		p.written(items, err)
		return 0, err
	}
	if err = batch.Commit(pebble.NoSync); err != nil {
		err = fmt.Errorf("commit state of partition %d: %w", p.id, err)
	} else {
		p.state.metrics.writeSeconds.Observe(time.Since(start).Seconds())
		p.state.metrics.written.Add(float64(len(items)))
	}
	p.written(items, err)
	return len(items), err
}

// due reports whether the oldest dirty item must be written: it became dirty before the given time, or too much waits.
// The caller holds mu.
func (p *partition) due(front *dirtyItem, before int64) bool {
	return front.since <= before || p.dirty.bytes >= p.state.share.maxDirty || p.dirty.read-front.read >= p.state.share.maxReplay
}

// gather moves due items into a batch, together with the position up to which the batch is complete. It holds fold, so
// a batch never has a part of a message. It never ends within a message either, so that a replay does not meet the
// record of a pair whose removal is stored.
func (p *partition) gather(batch *pebble.Batch, before int64) ([]takenItem, error) {
	p.fold.Lock()
	defer p.fold.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lookAtKept()
	items, held, err := p.take(batch, before)
	p.dirty.pushFront(held)
	if err != nil {
		return items, fmt.Errorf("gather state of partition %d: %w", p.id, err)
	}
	if len(items) == 0 {
		return nil, nil
	}
	return items, p.checkpoint(batch)
}

// take moves due items from the queue into a batch, and returns the due items that cannot be stored yet. The caller
// holds mu.
func (p *partition) take(batch *pebble.Batch, before int64) (items []takenItem, held []dirtyItem, err error) {
	for {
		front := p.dirty.front()
		if front == nil {
			return items, held, nil
		}
		whole := len(items) == 0 || items[len(items)-1].pos>>subBits != front.pos>>subBits
		if whole && (len(items)+len(held) >= p.state.writeBatch || !p.due(front, before)) {
			return items, held, nil
		}
		it := p.dirty.pop()
		if p.holds(&it) {
			held = append(held, it)
			continue
		}
		items = append(items, takenItem{dirtyItem: it})
		if err := p.put(batch, &items[len(items)-1]); err != nil {
			return items, held, err
		}
	}
}

// lookAtKept notes the first message that a replay must return again: for what it set off (ReturnAgain), or for what
// follows the fold (Options.Kept). The caller holds fold and mu.
func (p *partition) lookAtKept() {
	p.first = p.again
	if p.state.opts.Kept == nil {
		return
	}
	if kept := p.state.opts.Kept(p.id); kept > 0 && (p.first == 0 || kept < p.first) {
		p.first = kept
	}
}

// holds reports whether an item must not be stored yet, because a replay must return its newest event again. A pair that
// gets an event between any two write-backs would hold the log back for ever, so it is stored when twice MaxReplay would
// have to be replayed. The caller holds mu.
func (p *partition) holds(it *dirtyItem) bool {
	if p.first == 0 || p.dirty.read-it.read >= 2*p.state.share.maxReplay {
		return false
	}
	newest := it.pos
	if it.kind == dirtyPair {
		if pr := p.at(it.slot); pr.flags&pairDirty != 0 && pr.queued == it.pos {
			newest = pr.pos
		}
	}
	return newest>>subBits >= p.first
}

// put adds an item to a batch. The caller holds mu.
func (p *partition) put(batch *pebble.Batch, it *takenItem) error {
	switch it.kind {
	case dirtyKey:
		k := p.dirty.keys[it.slot]
		if k.value == nil {
			return batch.Delete(k.key, nil)
		}
		return batch.Set(k.key, k.value, nil)
	case dirtyEntity:
		e := &p.entities[it.slot]
		if !e.used || !e.dirty {
			return nil
		}
		e.dirty = false
		p.value = append(binary.AppendUvarint(p.value[:0], e.pos), e.body...)
		return batch.Set(storeKey('e', p.id, e.namespace, e.name, ""), p.value, nil)
	}
	pr := p.at(it.slot)
	if pr.flags&pairDirty == 0 || pr.queued != it.pos { // deleted in the meantime
		return putAll(batch, p.dirty.orphans[orphanKey{it.slot, it.pos}])
	}
	return p.putPair(batch, pr, it)
}

// putPair adds a pair, its body and its changes to a batch, after which the pair is not dirty. The caller holds mu.
func (p *partition) putPair(batch *pebble.Batch, pr *pair, it *takenItem) error {
	pr.flags &^= pairDirty
	e, check := &p.entities[pr.entity], p.checks.name(pr.check)
	p.value = pr.append(p.value[:0], p.wide[it.slot])
	if err := batch.Set(storeKey('s', p.id, e.namespace, e.name, check), p.value, nil); err != nil {
		return err
	}
	if err := batch.Set(storeKey('b', p.id, e.namespace, e.name, check), p.dirty.arena.Get(pr.body), nil); err != nil {
		return err
	}
	for _, c := range p.dirty.changes[it.slot] {
		if err := batch.Set(historyKey(p.id, e.namespace, e.name, check, c.pos), p.dirty.arena.Get(c.value), nil); err != nil {
			return err
		}
		it.upto = c.pos
	}
	return nil
}

func putAll(batch *pebble.Batch, all []keyed) error {
	for _, k := range all {
		if err := batch.Set(k.key, k.value, nil); err != nil {
			return err
		}
	}
	return nil
}

// checkpoint adds to a batch the message from which a restart must replay (the oldest one that is still dirty), the
// marks so far, the numbers of the log's batches and the digest before that message, and the id of the stream. Every
// batch that moves the position has all five.
func (p *partition) checkpoint(batch *pebble.Batch) error {
	next := p.resumeAt()
	if err := p.marks.store(batch, p.id, position(next, 0)); err != nil {
		return fmt.Errorf("gather marks of partition %d: %w", p.id, err)
	}
	if err := p.origins.store(batch, p.id, next); err != nil {
		return fmt.Errorf("gather numbers of partition %d: %w", p.id, err)
	}
	if err := p.digest.store(batch, p.id, next); err != nil {
		return fmt.Errorf("gather digest of partition %d: %w", p.id, err)
	}
	if err := batch.Set(streamKey(p.id), []byte(p.state.opts.Log.StreamID(p.id)), nil); err != nil {
		return fmt.Errorf("gather stream id of partition %d: %w", p.id, err)
	}
	return batch.Set(positionKey(p.id), binary.BigEndian.AppendUint64(nil, next), nil)
}

// resumeAt returns the message from which a restart must replay. The caller holds mu.
func (p *partition) resumeAt() uint64 {
	next := p.folded + 1
	if front := p.dirty.front(); front != nil {
		next = min(next, front.pos>>subBits)
	}
	if p.first > 0 {
		next = min(next, p.first)
	}
	return next
}

// written drops the bodies of items that are stored now, or puts back the items of a failed batch.
func (p *partition) written(items []takenItem, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.marks.stored(err)
	p.origins.stored(err)
	p.digest.committed(err)
	if err != nil {
		p.putBack(items)
		return
	}
	for _, it := range items {
		switch it.kind {
		case dirtyKey:
			delete(p.dirty.keys, it.slot)
			continue
		case dirtyEntity:
			continue
		}
		delete(p.dirty.orphans, orphanKey{it.slot, it.pos})
		switch pr := p.at(it.slot); {
		case pr.flags&pairDirty == 0:
			p.dirty.forget(it.slot, pr)
		case it.upto > 0:
			p.dirty.dropChanges(it.slot, it.upto)
		}
	}
}

// putBack puts items back into the queue that still must be written. The caller holds mu.
func (p *partition) putBack(items []takenItem) {
	var again []dirtyItem
	for _, it := range items {
		switch it.kind {
		case dirtyKey:
		case dirtyEntity:
			e := &p.entities[it.slot]
			if !e.used || e.dirty {
				continue
			}
			e.dirty = true
		default:
			pr := p.at(it.slot)
			if len(p.dirty.orphans[orphanKey{it.slot, it.pos}]) > 0 {
				break
			}
			if pr.flags&(pairUsed|pairDirty) != pairUsed || pr.queued != it.pos {
				continue
			}
			pr.flags |= pairDirty
		}
		again = append(again, it.dirtyItem)
	}
	p.dirty.pushFront(again)
}

// trimLog syncs the position and lets the log be trimmed before it.
func (p *partition) trimLog(ctx context.Context) error {
	next, err := p.syncPosition()
	if err != nil {
		return fmt.Errorf("sync position of partition %d: %w", p.id, err)
	}
	p.mu.Lock()
	p.synced = next
	p.mu.Unlock()
	if trim := p.state.opts.Trim; trim != nil {
		var ok bool
		if next, ok = trim(p.id, next); !ok {
			return nil
		}
	}
	return p.state.opts.Log.Trim(ctx, p.id, next, p.state.share.keepLog)
}

func (p *partition) syncPosition() (next uint64, err error) {
	p.storing.Lock()
	defer p.storing.Unlock()
	batch := p.state.opts.DB.NewBatch()
	defer batch.Close()
	p.fold.Lock()
	p.mu.Lock()
	p.lookAtKept()
	err = p.checkpoint(batch)
	next = p.resumeAt()
	p.mu.Unlock()
	p.fold.Unlock()
	if err == nil {
		err = batch.Commit(pebble.Sync)
	}
	p.written(nil, err)
	return next, err
}
