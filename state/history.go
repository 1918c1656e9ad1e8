package state

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/internal/offheap"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// This file keeps the history of a check over days: not each result, but each change of status, flapping or silencing,
// with the beginning of the output. A change is written in the commit of its pair, under the position of its event, so
// that a replay after a crash neither loses nor doubles one. Changes of deleted events stay until they are old.

const (
	// changeOutput is how much of an event's output a change keeps, in bytes.
	changeOutput = 256
	// trimHistoryEvery is the time between removals of old changes.
	trimHistoryEvery = time.Hour
)

// StateChange is a change of a check's state.
type StateChange struct {
	Time     time.Time // when the backend received the event
	Executed int64     // Unix seconds
	Status   uint32
	Flapping bool
	Silenced bool
	Missing  bool // the event reports that no result came in time
	Deleted  bool // the event was deleted; all but Time is empty
	Output   string

	pos uint64
}

// Seq returns the message of the partition that made the change.
func (c *StateChange) Seq() uint64 { return c.pos >> subBits }

// Flags of a stored change.
const (
	changeFlapping = 1 << iota
	changeSilenced
	changeMissing
	changeDeleted
)

const changeVersion = 1

// change is a change that is not stored yet.
type change struct {
	pos   uint64
	value offheap.Ref // in the dirty set's arena
}

// aspects are the parts of the state whose changes are kept.
type aspects struct {
	known    bool // there was an earlier result
	status   uint32
	flapping bool
	silenced bool
}

func (p *pair) aspects(wide []resource.CheckHistory) aspects {
	a := aspects{known: p.n > 0, flapping: p.flags&pairFlapping != 0, silenced: p.flags&pairSilenced != 0}
	if a.known {
		a.status = p.statusAt(int(p.n)-1, wide)
	}
	return a
}

// noteChange keeps the change of a pair that was just folded, if there is one. The caller holds mu.
func (p *partition) noteChange(slot uint32, pos uint64, before, after aspects, rec *eventlog.Record, body []byte) {
	if before == after || p.state.opts.HistoryAge == 0 {
		return
	}
	var flags byte
	if after.flapping {
		flags |= changeFlapping
	}
	if after.silenced {
		flags |= changeSilenced
	}
	if rec.Flags&eventlog.FlagDeadline != 0 {
		flags |= changeMissing
	}
	p.value = appendChange(p.value[:0], rec.Received, rec.Executed, after.status, flags, resource.PeekOutput(body))
	p.dirty.keepChange(slot, pos, p.value)
}

// noteDeletion keeps the pending changes of a pair that is about to be dropped, and its deletion. It must come before
// the items that remove the pair: a replay that no longer finds the pair then finds the deletion stored. The caller
// holds mu.
func (p *partition) noteDeletion(slot uint32, pos uint64, received int64) {
	pr := p.at(slot)
	e := &p.entities[pr.entity]
	p.deletions.add(pos>>subBits, Update{Deleted: true, Namespace: e.namespace, Entity: e.name, Check: p.checks.name(pr.check)})
	if p.state.opts.HistoryAge == 0 {
		return
	}
	key := func(pos uint64) []byte { return historyKey(p.id, e.namespace, e.name, p.checks.name(pr.check), pos) }
	for _, c := range p.dirty.changes[slot] {
		value := bytes.Clone(p.dirty.arena.Get(c.value))
		if pr.flags&pairDirty != 0 {
			ref := orphanKey{slot, pr.queued}
			p.dirty.orphans[ref] = append(p.dirty.orphans[ref], keyed{key(c.pos), value})
			continue
		}
		// They are being written, but that may fail.
		p.dirty.set(pos, key(c.pos), value)
	}
	// The change has no earlier state: a replay may know an older one.
	deleted := appendChange(nil, received, 0, 0, changeDeleted, nil)
	p.dirty.set(pos, key(pos), deleted)
}

func appendChange(b []byte, received, executed int64, status uint32, flags byte, output []byte) []byte {
	if len(output) > changeOutput {
		output = output[:changeOutput]
		for len(output) > 0 && !utf8.Valid(output) && len(output) > changeOutput-utf8.UTFMax {
			output = output[:len(output)-1]
		}
	}
	b = slices.Grow(b, 2+2*binary.MaxVarintLen64+binary.MaxVarintLen32+len(output))
	b = append(b, changeVersion, flags)
	b = binary.AppendVarint(b, received)
	b = binary.AppendVarint(b, executed)
	b = binary.AppendUvarint(b, uint64(status))
	return append(b, output...)
}

var errChange = errors.New("malformed change of state")

func decodeChange(b []byte) (StateChange, error) {
	if len(b) < 2 || b[0] != changeVersion {
		return StateChange{}, errChange
	}
	flags, r := b[1], fields.NewReader(b[2:])
	received, executed, status := r.Int(), r.Int(), r.Uint()
	if r.Err() != nil {
		return StateChange{}, errChange
	}
	return StateChange{
		Time: time.UnixMilli(received), Executed: executed, Status: uint32(status), Output: string(r.Rest),
		Flapping: flags&changeFlapping != 0, Silenced: flags&changeSilenced != 0, Missing: flags&changeMissing != 0,
		Deleted: flags&changeDeleted != 0,
	}, nil
}

// historyKey returns the key of a change. Changes of one check are in the order of their events.
func historyKey(partition int, namespace, entity, check string, pos uint64) []byte {
	b := append(slices.Grow(storeKey('h', partition, namespace, entity, check), 9), 0)
	return binary.BigEndian.AppendUint64(b, pos)
}

// History returns the changes of a check's state, newest first: at most limit (0 for all), and only those before the
// place that an earlier call returned as next (0 for the newest). next is 0 at the end.
func (s *State) History(namespace, entity, check string, before uint64, limit int) (changes []StateChange, next uint64, err error) {
	p := s.parts[s.opts.Log.Partition(namespace, entity)]
	if before == 0 {
		before = 1<<64 - 1
	}
	pending := p.pendingChanges(namespace, entity, check)
	stored, err := p.storedChanges(namespace, entity, check, before, limit)
	if err != nil {
		return nil, 0, err
	}
	// Pending changes may have been stored since.
	all := slices.DeleteFunc(append(pending, stored...), func(c StateChange) bool { return c.pos >= before })
	slices.SortFunc(all, func(a, b StateChange) int {
		switch {
		case a.pos > b.pos:
			return -1
		case a.pos < b.pos:
			return 1
		}
		return 0
	})
	all = slices.CompactFunc(all, func(a, b StateChange) bool { return a.pos == b.pos })
	if limit > 0 && len(all) > limit {
		all = all[:limit]
		next = all[limit-1].pos
	}
	return all, next, nil
}

// pendingChanges returns the changes that are not stored yet.
func (p *partition) pendingChanges(namespace, entity, check string) (changes []StateChange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	add := func(pos uint64, value []byte) {
		if c, err := decodeChange(value); err == nil {
			c.pos = pos
			changes = append(changes, c)
		}
	}
	if slot, ok := p.find(namespace, entity, check); ok {
		for _, c := range p.dirty.changes[slot] {
			add(c.pos, p.dirty.arena.Get(c.value))
		}
	}
	prefix := string(append(storeKey('h', p.id, namespace, entity, check), 0))
	addKey := func(key, value []byte) {
		if len(key) == len(prefix)+8 && string(key[:len(prefix)]) == prefix {
			add(binary.BigEndian.Uint64(key[len(prefix):]), value)
		}
	}
	for _, orphans := range p.dirty.orphans {
		for _, o := range orphans {
			addKey(o.key, o.value)
		}
	}
	for _, k := range p.dirty.keys {
		if k.value != nil {
			addKey(k.key, k.value)
		}
	}
	return changes
}

// storedChanges returns the changes in the database, newest first, one more than limit.
func (p *partition) storedChanges(namespace, entity, check string, before uint64, limit int) (changes []StateChange, err error) {
	bounds := pebble.IterOptions{
		LowerBound: historyKey(p.id, namespace, entity, check, 0), UpperBound: historyKey(p.id, namespace, entity, check, before),
	}
	it, err := p.state.opts.DB.NewIter(&bounds)
	if err != nil {
		return nil, fmt.Errorf("read history of %s/%s: %w", entity, check, err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.Last(); ok; ok = it.Prev() {
		value, err := it.ValueAndErr()
		if err != nil {
			return nil, fmt.Errorf("read history of %s/%s: %w", entity, check, err)
		}
		c, err := decodeChange(value)
		if err != nil {
			return nil, fmt.Errorf("read history of %s/%s: %w", entity, check, err)
		}
		c.pos = binary.BigEndian.Uint64(it.Key()[len(it.Key())-8:])
		changes = append(changes, c)
		if limit > 0 && len(changes) > limit {
			break
		}
	}
	return changes, it.Error()
}

// trimHistories removes old changes periodically.
func (s *State) trimHistories(ctx context.Context) {
	tick := time.NewTicker(trimHistoryEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, p := range s.parts {
			if err := p.trimHistory(ctx, time.Now().Add(-s.opts.HistoryAge)); err != nil && ctx.Err() == nil {
				s.log.Error("history was not trimmed", "partition", p.id, "err", err)
			}
		}
	}
}

// trimHistory removes the changes of each check that are older than the cutoff or exceed its share. The newest of the
// old ones stays, because it is the state at the cutoff, unless the check was deleted.
func (p *partition) trimHistory(ctx context.Context, cutoff time.Time) (err error) {
	it, err := p.state.opts.DB.NewIter(&pebble.IterOptions{LowerBound: []byte{'h', byte(p.id)}, UpperBound: []byte{'h', byte(p.id) + 1}})
	if err != nil {
		return fmt.Errorf("read histories: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	var group []byte // the key of a check's changes without the position
	n, past := 0, false
	for ok := it.Last(); ok; {
		if err := ctx.Err(); err != nil {
			return err
		}
		key := it.Key()
		if len(key) < 8 {
			return fmt.Errorf("read histories: malformed key %q", key)
		}
		if prefix := key[:len(key)-8]; string(prefix) != string(group) {
			group, n, past = append(group[:0], prefix...), 0, false
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return fmt.Errorf("read histories: %w", err)
		}
		c, err := decodeChange(value)
		n++
		if err == nil && n <= p.state.opts.HistoryLimit && !past {
			if past = c.Time.Before(cutoff); !past || !c.Deleted {
				ok = it.Prev()
				continue
			}
		}
		// This one and all before it are not needed.
		from := append(slices.Clone(group), make([]byte, 8)...)
		to := append(slices.Clone(key), 0)
		if err := p.state.opts.DB.DeleteRange(from, to, pebble.NoSync); err != nil {
			return fmt.Errorf("trim history: %w", err)
		}
		ok = it.SeekLT(from)
	}
	return it.Error()
}
