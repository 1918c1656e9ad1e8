package lateness

import (
	"sync/atomic"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// Runs keeps when each defined check last ran. It follows the fold, so all members of a cluster know the same. The
// Watcher says which checks are defined.
type Runs struct {
	checks  atomic.Pointer[table] // replaced as a whole
	cursors []cursor              // by partition; each belongs to the goroutine of its partition
}

// table has the defined checks by namespace and name.
type table map[string]map[string]*run

// run is the newest run of a check.
type run struct {
	received atomic.Int64 // Unix milliseconds; 0 if none is known
}

// cursor remembers the checks of the namespace of the last event. Most events are of few namespaces, and a look-up by
// one name takes half as long as by two.
type cursor struct {
	table     *table
	namespace string
	checks    map[string]*run
	_         [32]byte // each cursor has a cache line of its own
}

// NewRuns returns Runs without checks, for a log with so many partitions.
func NewRuns(partitions int) *Runs {
	r := &Runs{cursors: make([]cursor, partitions)}
	r.checks.Store(&table{})
	return r
}

// Name is part of fold.Follower.
func (r *Runs) Name() string { return "lateness" }

// Follow is part of fold.Follower.
func (r *Runs) Follow(a *state.Applied) {
	if !a.Ran {
		return
	}
	c := &r.cursors[a.Partition]
	if t := r.checks.Load(); c.table != t || c.namespace != a.Namespace {
		c.table, c.namespace, c.checks = t, a.Namespace, (*t)[a.Namespace]
	}
	if one := c.checks[a.Check]; one != nil {
		one.raise(a.Received)
	}
}

// find returns the newest run of a check; nil if the check is not defined.
func (r *Runs) find(k resource.Name) *run { return (*r.checks.Load())[k.Namespace][k.Name] }

// resolution is the least step of the time of a run, in milliseconds. Many agents run a check in the same second, and a
// read costs less than a write.
const resolution = 1000

// raise keeps the time of a run unless a newer one is known: partitions are not folded in one order.
func (r *run) raise(received int64) {
	for old := r.received.Load(); received >= old+resolution && !r.received.CompareAndSwap(old, received); {
		old = r.received.Load()
	}
}

// lower moves a time back that is in the future, because the clock of another backend is ahead.
func (r *run) lower(now int64) {
	if received := r.received.Load(); received > now {
		r.received.CompareAndSwap(received, now)
	}
}
