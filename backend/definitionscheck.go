package backend

import (
	"log/slog"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/cluster"
)

// definitionsCheck compares the definitions of this member with those of the others, by what they say in their
// heartbeats. A copy of their stream may lack something in its middle, after damage to a disk, though it has the newest
// change; or it may stand still.
type definitionsCheck struct {
	log *slog.Logger

	mu     sync.Mutex // guards the fields below
	differ map[string]bool
	stands map[string]standstill
}

// standstill is how long a member has lacked definitions without getting any.
type standstill struct {
	revision uint64
	since    time.Time
}

// definitionsState is what definitionsCheck knows of a member.
type definitionsState struct {
	differ bool          // from those of this member, at the same revision
	stands time.Duration // how long it has lacked some and got none
}

// check compares what can be compared now, and returns what is not well, by member's id. A difference stays until the
// members have the same again: they are compared only at the same revision.
func (c *definitionsCheck) check(members []cluster.Member, now time.Time) map[string]definitionsState {
	c.mu.Lock()
	defer c.mu.Unlock()
	var own *cluster.Member
	for i := range members {
		if members[i].Self {
			own = &members[i]
		}
	}
	found, differ, stands := map[string]definitionsState{}, map[string]bool{}, map[string]standstill{}
	for i := range members {
		m := &members[i]
		var s definitionsState
		if lag, _ := m.Lag(members); m.Heard && lag > 0 {
			still := standstill{m.Revision, now}
			if before, known := c.stands[m.ID]; known && before.revision == m.Revision {
				still = before
			}
			stands[m.ID], s.stands = still, now.Sub(still.since)
		}
		if own != nil && !m.Self {
			if s.differ = c.differs(own, m); s.differ {
				differ[m.ID] = true
			}
		}
		if s != (definitionsState{}) {
			found[m.ID] = s
		}
	}
	c.differ, c.stands = differ, stands
	return found
}

// differs compares one member with this one. An earlier release has no digest. The caller holds mu.
func (c *definitionsCheck) differs(own, m *cluster.Member) bool {
	before := c.differ[m.ID]
	switch {
	case m.Revision != own.Revision || m.DefinitionsDigest == 0 || own.DefinitionsDigest == 0:
		return before
	case m.DefinitionsDigest == own.DefinitionsDigest:
		return false
	}
	if !before {
		c.log.Error("another member has other definitions: the copy of one of the two is wrong", "member", m.Name,
			"revision", m.Revision)
	}
	return true
}
