package session

import (
	"sync"
	"sync/atomic"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// turns knows when each round-robin check with a TTL last had a result, of whichever agent it was the turn. The agents share
// the TTL: it is the check that must go on, and not each of them.
//
// It is not stored. After a restart no deadline counts before a whole TTL has passed, and by then it is known again.
type turns struct {
	latest sync.Map // of *atomic.Int64, Unix milliseconds, by key
}

// took notes a result.
func (t *turns) took(namespace, check string, received int64) {
	v, ok := t.latest.Load(key{namespace, check})
	if !ok {
		v, _ = t.latest.LoadOrStore(key{namespace, check}, new(atomic.Int64))
	}
	at := v.(*atomic.Int64)
	for old := at.Load(); received > old && !at.CompareAndSwap(old, received); {
		old = at.Load()
	}
}

// passed says that a check whose deadline on one agent has passed had a later result of another.
func (t *turns) passed(o *state.Overdue) bool {
	if !takesTurns(o.Event.Check) {
		return false
	}
	v, ok := t.latest.Load(key{o.Namespace, o.Check})
	return ok && v.(*atomic.Int64).Load() > o.Received
}

// takesTurns is about checks of the agents themselves: a proxy entity has its results whoever brings them.
func takesTurns(c *resource.Check) bool { return c.RoundRobin && c.ProxyEntityName == "" }
