package state

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// Cursor is a moment in the fold: the newest folded message of each partition. It means the same on all backends and
// after a restart, so an interrupted live stream can go on from it.
type Cursor []uint64

// String returns the cursor's text form, for ParseCursor.
func (c Cursor) String() string {
	var b []byte
	for i, seq := range c {
		if i > 0 {
			b = append(b, '.')
		}
		b = strconv.AppendUint(b, seq, 36)
	}
	return string(b)
}

// Latest returns, of each partition, the later of two moments of the same log.
func (c Cursor) Latest(other Cursor) Cursor {
	later := slices.Clone(c)
	for i := range min(len(c), len(other)) {
		later[i] = max(c[i], other[i])
	}
	return later
}

var errCursor = errors.New("malformed cursor")

// maxPartitions bounds how much of a client's cursor is read.
const maxPartitions = 1 << 12

// ParseCursor reads a cursor's text form.
func ParseCursor(s string) (Cursor, error) {
	if len(s) > maxPartitions*14 {
		return nil, errCursor
	}
	var c Cursor
	for part := range strings.SplitSeq(s, ".") {
		seq, err := strconv.ParseUint(part, 36, 64-subBits)
		if err != nil {
			return nil, errCursor
		}
		c = append(c, seq)
	}
	return c, nil
}

// Cursor returns the present moment. The tails have all updates up to it.
func (s *State) Cursor() Cursor {
	c := make(Cursor, len(s.parts))
	for i, p := range s.parts {
		p.mu.Lock()
		c[i] = p.folded
		p.mu.Unlock()
	}
	return c
}

// ChangedSince returns the changes since a moment in a namespace, or in all for "". It returns false if they are no
// longer known: the cursor is of another log, or too many events were deleted since. Several changes of a pair are
// one.
func (s *State) ChangedSince(namespace string, c Cursor) (changed []Update, ok bool) {
	if len(c) != len(s.parts) {
		return nil, false
	}
	for i, p := range s.parts {
		if changed, ok = p.changedSince(changed, namespace, c[i]); !ok {
			return nil, false
		}
	}
	return changed, true
}

func (p *partition) changedSince(changed []Update, namespace string, seq uint64) ([]Update, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if seq > p.folded || seq < p.deletions.floor {
		return nil, false
	}
	for _, d := range p.deletions.list {
		if d.seq > seq && (namespace == "" || d.Namespace == namespace) {
			if _, ok := p.find(d.Namespace, d.Entity, d.Check); !ok { // it may exist again
				changed = append(changed, d.Update)
			}
		}
	}
	for slot := range p.used {
		pr := p.at(slot)
		if pr.flags&pairUsed == 0 || pr.pos>>subBits <= seq {
			continue
		}
		if e := &p.entities[pr.entity]; namespace == "" || e.namespace == namespace {
			changed = append(changed, Update{Namespace: e.namespace, Entity: e.name, Check: p.checks.name(pr.check)})
		}
	}
	return changed, true
}

// maxDeletions is how many deletions a partition remembers.
const maxDeletions = 10_000

// deletions are the newest deletions of a partition. Guarded by partition.mu.
type deletions struct {
	list  []deletion // oldest first
	floor uint64     // deletions up to this message may have been dropped
}

type deletion struct {
	Update
	seq uint64
}

func (d *deletions) add(seq uint64, u Update) {
	if len(d.list) >= 2*maxDeletions {
		d.floor = d.list[maxDeletions-1].seq
		d.list = append(d.list[:0], d.list[maxDeletions:]...)
	}
	d.list = append(d.list, deletion{u, seq})
}
