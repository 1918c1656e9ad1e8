package load

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// membership is what a simulated agent knows of the backends' cluster. It is guarded by the agent's mu.
type membership struct {
	urls    []string // of the members, as a backend has named them last
	self    string   // the one that has named them
	next    string   // the one to connect to next, because the backend asked for it
	leaving bool     // nothing more is sent, and the connection ends when all that was sent is acknowledged
	tries   int      // addresses tried since the last connection
}

// errMoved is the end of a connection at the request of the backend.
var errMoved = errors.New("moved to another backend")

// address returns where to connect now: where the backend asked for; else another member, if any is known, and a
// configured backend, in turn. Agents begin with the backends in turn. Sensu's then choose one at random each time.
func (a *simAgent) address() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := &a.cluster
	if next := m.next; next != "" {
		m.next = ""
		return next
	}
	m.tries++
	if m.tries%2 == 1 {
		for _, i := range rand.Perm(len(m.urls)) {
			if m.urls[i] != m.self {
				return m.urls[i]
			}
		}
	}
	backends := a.fleet.opts.Backends
	if a.arrived && a.fleet.opts.Protocol == ProtocolSensu {
		return backends[rand.IntN(len(backends))]
	}
	return backends[(a.index+m.tries/2)%len(backends)]
}

// onMembers takes the members, and begins to leave if the backend asks for that.
func (a *simAgent) onMembers(payload []byte) error {
	m, err := wire.DecodeMembers(payload)
	if err != nil {
		return fmt.Errorf("read members: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cluster.urls, a.cluster.self = m.URLs, m.Self
	if m.Next == "" {
		return nil
	}
	a.cluster.next, a.cluster.leaving = m.Next, true
	return a.left()
}

// left returns errMoved when a leaving agent has the acknowledgements of all that it has sent. The caller holds a.mu.
func (a *simAgent) left() error {
	if a.cluster.leaving && (len(a.unacked) == 0 || a.unacked[0].sequence > a.sent) {
		return errMoved
	}
	return nil
}

// spools reports whether the agent must keep its events for now. The caller holds a.mu.
func (a *simAgent) spools() bool { return a.pace == wire.PaceSpool || a.cluster.leaving }
