package state

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/report"
)

// Histories reads the changes of all checks, for reports. It implements report.Source.
type Histories struct{ state *State }

// Histories returns the changes of all checks.
func (s *State) Histories() *Histories { return &Histories{s} }

// Begin returns how far back the changes are complete, except for checks with more than HistoryLimit of them.
func (h *Histories) Begin(context.Context, string) (time.Time, error) {
	return time.Now().Add(-h.state.opts.HistoryAge), nil
}

// Changes yields the histories in a range. It reads each partition with one iterator, which is a snapshot of the
// database, and holds the fold up only for copying the pending changes.
func (h *Histories) Changes(
	ctx context.Context, in report.Range, keep func(namespace, entity, check string) bool,
) iter.Seq2[report.History, error] {
	return func(yield func(report.History, error) bool) {
		for _, p := range h.state.parts {
			r := reportReader{p: p, in: in, keep: keep, yield: yield}
			if err := r.read(ctx); err != nil {
				yield(report.History{}, fmt.Errorf("read histories of partition %d: %w", p.id, err))
				return
			}
			if r.end {
				return
			}
		}
	}
}

// reportReader reads the histories of one partition.
type reportReader struct {
	p     *partition
	in    report.Range
	keep  func(namespace, entity, check string) bool
	yield func(report.History, error) bool
	end   bool // yield has returned false

	pending map[string][]StateChange // by the key of a history without the position
	stored  []StateChange            // of the present history
	changes []report.Change          // likewise, for yield
}

func (r *reportReader) read(ctx context.Context) (err error) {
	// First the pending changes, then the database: a change that is stored in between is in both, and none is missing.
	if r.pending, err = r.p.pendingHistories(ctx, r.in.Namespace); err != nil {
		return err
	}
	prefix := append([]byte{'h', byte(r.p.id)}, r.in.Namespace+"\x00"...)
	it, err := r.p.state.opts.DB.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok && !r.end; {
		if err := ctx.Err(); err != nil {
			return err
		}
		group, isChange := historyOf(it.Key())
		if !isChange {
			r.p.malformed(it.Key(), errChange)
			ok = it.Next()
			continue
		}
		group = bytes.Clone(group) // the iterator's memory is used again
		if !r.wanted(group) {
			delete(r.pending, string(group))
			ok = it.SeekGE(after(group))
			continue
		}
		r.stored = r.stored[:0]
		for ; ok && bytes.HasPrefix(it.Key(), group); ok = it.Next() {
			value, err := it.ValueAndErr()
			if err != nil {
				return err
			}
			r.stored = r.p.addChange(r.stored, it.Key(), value)
		}
		r.emit(group)
	}
	if err := it.Error(); err != nil {
		return err
	}
	// The others have no stored changes.
	r.stored = r.stored[:0]
	for group := range r.pending {
		if r.end {
			break
		}
		if r.wanted([]byte(group)) {
			r.emit([]byte(group))
		}
	}
	return ctx.Err()
}

// historyOf returns a change's key without its position: the key of the history, which ends with a NUL.
func historyOf(key []byte) (group []byte, ok bool) {
	if len(key) < 2+8 {
		return nil, false
	}
	group = key[:len(key)-8]
	return group, bytes.Count(group[2:], []byte{0}) == 3 && group[len(group)-1] == 0
}

// after returns the first key behind those that begin with a prefix, which ends with a NUL.
func after(prefix []byte) []byte {
	b := bytes.Clone(prefix)
	b[len(b)-1] = 1
	return b
}

func namesOf(group []byte) (namespace, entity, check string) {
	names := strings.Split(string(group[2:]), "\x00")
	return names[0], names[1], names[2]
}

func (r *reportReader) wanted(group []byte) bool { return r.keep(namesOf(group)) }

// emit yields the stored and the pending changes of a history.
func (r *reportReader) emit(group []byte) {
	all := r.stored
	if pending := r.pending[string(group)]; len(pending) > 0 {
		all = append(all, pending...)
		slices.SortFunc(all, func(a, b StateChange) int { return cmp.Compare(a.pos, b.pos) })
		all = slices.CompactFunc(all, func(a, b StateChange) bool { return a.pos == b.pos })
		delete(r.pending, string(group))
	}
	r.changes = r.changes[:0]
	base := -1 // the index of the newest change before the range
	for _, c := range all {
		before := c.Time.Before(r.in.Since)
		if !before && !c.Time.Before(r.in.Until) {
			continue
		}
		if before && base >= 0 {
			r.changes = slices.Delete(r.changes, base, base+1)
		}
		if before {
			base = len(r.changes)
		}
		r.changes = append(r.changes, report.Change{Time: c.Time, Status: c.Status, Flapping: c.Flapping, Silenced: c.Silenced,
			Missing: c.Missing, Deleted: c.Deleted})
	}
	r.stored = all[:0]
	if len(r.changes) > 0 {
		h := report.History{Changes: r.changes}
		h.Namespace, h.Entity, h.Check = namesOf(group)
		r.end = !r.yield(h, nil)
	}
}

// addChange adds a change to a history. One that cannot be read is left out, counted and logged.
func (p *partition) addChange(to []StateChange, key, value []byte) []StateChange {
	c, err := decodeChange(value)
	if err != nil {
		p.malformed(key, err)
		return to
	}
	c.pos, c.Output = binary.BigEndian.Uint64(key[len(key)-8:]), ""
	return append(to, c)
}

func (p *partition) malformed(key []byte, err error) {
	p.state.metrics.undecodable.Inc()
	p.state.rare.Error("stored change of state cannot be read and is left out", "", "partition", p.id, "key", string(key), "err", err)
}

// pendingStep is how many pairs pendingHistories looks at while the fold waits.
const pendingStep = 1000

// pendingHistories returns the changes of a namespace that are not stored yet, by the keys of their histories.
func (p *partition) pendingHistories(ctx context.Context, namespace string) (map[string][]StateChange, error) {
	found := map[string][]StateChange{}
	p.mu.Lock()
	defer p.mu.Unlock()
	add := func(k keyed) {
		if k.value == nil || len(k.key) == 0 || k.key[0] != 'h' {
			return
		}
		if group, ok := historyOf(k.key); ok && strings.HasPrefix(string(group[2:]), namespace+"\x00") {
			found[string(group)] = p.addChange(found[string(group)], k.key, k.value)
		}
	}
	// The changes of a pair that is deleted move to these, so they come last; some are then in both.
	slots := make([]uint32, 0, len(p.dirty.changes))
	for slot := range p.dirty.changes {
		slots = append(slots, slot)
	}
	for i, slot := range slots {
		if i%pendingStep == pendingStep-1 {
			p.mu.Unlock()
			err := ctx.Err()
			p.mu.Lock()
			if err != nil {
				return nil, err
			}
		}
		pr := p.at(slot)
		if len(p.dirty.changes[slot]) == 0 || p.entities[pr.entity].namespace != namespace {
			continue
		}
		e := &p.entities[pr.entity]
		for _, c := range p.dirty.changes[slot] {
			key := historyKey(p.id, e.namespace, e.name, p.checks.name(pr.check), c.pos)
			add(keyed{key, p.dirty.arena.Get(c.value)})
		}
	}
	for _, orphans := range p.dirty.orphans {
		for _, o := range orphans {
			add(o)
		}
	}
	for _, k := range p.dirty.keys {
		add(k)
	}
	return found, nil
}
