package intake

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// turns records when each round-robin check with a TTL last had a result, from any agent. The agents share the TTL:
// some agent must run the check, not each of them.
//
// It is not stored. After a restart no deadline counts before a whole TTL has passed, and by then it is complete
// again.
type turns struct {
	latest sync.Map // of *turn, by key
}

// turn is the newest result of a check.
type turn struct {
	received atomic.Int64 // Unix milliseconds
	until    atomic.Int64 // when no deadline needs it any more
}

// turnSlack is how much later than its TTL a deadline may be handled: in the meantime the backend may have received
// nothing.
const turnSlack = time.Hour

// took records a result with a deadline.
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

// forget drops the checks whose last result no deadline needs any more.
func (t *turns) forget(now time.Time) {
	t.latest.Range(func(k, v any) bool {
		if v.(*turn).until.Load() < now.UnixMilli() {
			t.latest.CompareAndDelete(k, v)
		}
		return true
	})
}

// passed reports whether another agent has had a later result of a check whose deadline on one agent has passed.
func (t *turns) passed(o *state.Overdue) bool {
	if !takesTurns(o.Event.Check) {
		return false
	}
	v, ok := t.latest.Load(resource.Name{Namespace: o.Namespace, Name: o.Check})
	return ok && v.(*turn).received.Load() > o.Received
}

// takesTurns reports whether agents take turns with a check. The results of a proxy entity are its own, from any
// agent.
func takesTurns(c *resource.Check) bool { return c.RoundRobin && c.ProxyEntityName == "" }
