package view

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/state"
)

// Reader reads a view. It is for one goroutine.
type Reader struct {
	views  *Views
	view   *View
	closed bool
}

// Row is an event in a list. Version grows with each change of the event.
type Row struct {
	state.Key
	Class   Class
	Version uint64
}

// GroupCounts has the number of events of each class in one group.
type GroupCounts struct {
	Value  string
	Counts Counts
}

// Window is a part of a view at one moment.
type Window struct {
	// Version grows with each change of the view.
	Version uint64
	Counts  Counts
	Rows    []Row
	// Also has those of the events that were asked for by name and that the view has.
	Also []Row
	// Groups is how many groups there are, and Group some of them, those with the worst events first. It is for queries with a
	// group.
	Groups int
	Group  []GroupCounts
}

// Range says which rows, or groups, a window has.
type Range struct{ Offset, Limit int }

// Close ends the reader.
func (r *Reader) Close() {
	if !r.closed {
		r.closed = true
		r.views.release(r.view)
	}
}

// Ready waits until the view is made, or has failed.
func (r *Reader) Ready(ctx context.Context) error {
	for {
		changed, made, err := r.view.standing()
		if err != nil || made {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Changed is closed when the view changes after this call, or ends.
func (r *Reader) Changed() <-chan struct{} {
	changed, _, _ := r.view.standing()
	return changed
}

// Err returns why the view has ended, or nil if it goes on.
func (r *Reader) Err() error {
	_, _, err := r.view.standing()
	return err
}

// Made reports whether the view is made.
func (r *Reader) Made() bool {
	_, made, _ := r.view.standing()
	return made
}

func (one *View) standing() (changed <-chan struct{}, made bool, err error) {
	one.mu.RLock()
	defer one.mu.RUnlock()
	return one.changed, one.content != nil, one.err
}

// Window returns rows of a view that is ready, and the rows of some other events.
func (r *Reader) Window(rows Range, also []state.Key) Window {
	one := r.view
	one.mu.RLock()
	defer one.mu.RUnlock()
	c := one.content
	w := Window{Version: one.version, Counts: c.counts}
	if first, ok := c.tree.GetAt(rows.Offset); ok {
		c.tree.Ascend(first, func(it *item) bool {
			if len(w.Rows) >= rows.Limit {
				return false
			}
			w.Rows = append(w.Rows, it.row())
			return true
		})
	}
	for _, at := range also {
		if it, ok := c.items[at]; ok {
			w.Also = append(w.Also, it.row())
		}
	}
	return w
}

func (it *item) row() Row { return Row{Key: it.key, Class: it.class, Version: it.version} }

// Groups returns groups of a view that is ready, those with the worst events first.
func (r *Reader) Groups(some Range) Window {
	one := r.view
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.sorted == nil || one.ordered != one.counted {
		one.sorted = one.sorted[:0]
		for _, g := range one.content.groups {
			one.sorted = append(one.sorted, g)
		}
		slices.SortFunc(one.sorted, worse)
		one.ordered = one.counted
	}
	w := Window{Version: one.version, Counts: one.content.counts, Groups: len(one.sorted)}
	for i := some.Offset; i < min(some.Offset+some.Limit, len(one.sorted)); i++ {
		w.Group = append(w.Group, GroupCounts{one.sorted[i].value, one.sorted[i].counts})
	}
	return w
}

// worse orders groups by their number of critical events, then of the next classes, and then by name.
func worse(x, y *group) int {
	for class := range OK {
		if c := cmp.Compare(y.counts[class], x.counts[class]); c != 0 {
			return c
		}
	}
	return strings.Compare(x.value, y.value)
}

// Place returns the place of an event in the view's order; false if the view does not have it.
func (r *Reader) Place(at state.Key) (place int, ok bool) {
	one := r.view
	one.mu.RLock()
	defer one.mu.RUnlock()
	it, ok := one.content.items[at]
	if !ok {
		return 0, false
	}
	low, high := 0, one.content.tree.Len()
	for low < high {
		middle := (low + high) / 2
		if other, _ := one.content.tree.GetAt(middle); one.query.Order.less(other, it) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, true
}
