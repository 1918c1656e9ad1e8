package intake

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// turns knows when each round-robin check with a TTL last had a result, from any agent. The agents share the TTL: the
// check must go on, and not each of them.
//
// It is not stored. After a restart no deadline counts before a whole TTL has passed, and by then it is known again.
type turns struct {
	latest sync.Map // of *turn, by key
}

// turn is the newest result of a check.
type turn struct {
	received atomic.Int64 // Unix milliseconds
	until    atomic.Int64 // when no deadline asks for it any more
}

// turnSlack is how much later than its TTL a deadline may be handled: the backend may have been told nothing meanwhile.
const turnSlack = time.Hour

// took notes a result, which has a deadline.
func (t *turns) took(namespace, check string, received, due int64) {
	v, ok := t.latest.Load(resource.Name{Namespace: namespace, Name: check})
	if !ok {
		v, _ = t.latest.LoadOrStore(resource.Name{Namespace: namespace, Name: check}, new(turn))
	}
	raise(&v.(*turn).until, due+turnSlack.Milliseconds())
	raise(&v.(*turn).received, received)
}

func raise(at *atomic.Int64, to int64) {
	for old := at.Load(); to > old && !at.CompareAndSwap(old, to); {
		old = at.Load()
	}
}

// forget drops the checks that have had no result for so long that no deadline asks for it any more.
func (t *turns) forget(now time.Time) {
	t.latest.Range(func(k, v any) bool {
		if v.(*turn).until.Load() < now.UnixMilli() {
			t.latest.CompareAndDelete(k, v)
		}
		return true
	})
}

// passed reports whether a check whose deadline on one agent has passed had a later result of another.
func (t *turns) passed(o *state.Overdue) bool {
	if !takesTurns(o.Event.Check) {
		return false
	}
	v, ok := t.latest.Load(resource.Name{Namespace: o.Namespace, Name: o.Check})
	return ok && v.(*turn).received.Load() > o.Received
}

// takesTurns reports whether agents take turns with a check. The results of a proxy entity are its own, from any agent.
func takesTurns(c *resource.Check) bool { return c.RoundRobin && c.ProxyEntityName == "" }
