package backend

import (
	"log/slog"
	"slices"
	"sync"

	"github.com/lapwing-monitoring/lapwing/cluster"
	"github.com/lapwing-monitoring/lapwing/eventlog"
)

// digestCheck compares the digests of the event log's partitions with the digests that other members send in their
// heartbeats. Members whose digests differ have read different messages: a replica of the log, or a disk, is wrong.
type digestCheck struct {
	own digests
	log *slog.Logger

	mu     sync.Mutex       // guards differ
	differ map[string][]int // by member's id, the partitions whose digests differ, in order
}

// digests are this member's; *state.State.
type digests interface {
	DigestAt(partition int, seq uint64) (eventlog.Digest, bool)
	JoinDigest(partition int, theirs eventlog.Digest)
}

// check compares what can be compared now, and returns which partitions differ from those of this member, by member's
// id. A difference stays until digests are equal again: a member that is behind cannot be compared for a while.
func (c *digestCheck) check(members []cluster.Member) map[string][]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string][]int{}
	for i := range members {
		m := &members[i]
		if m.Self {
			continue
		}
		var differ []int
		for p, theirs := range m.Digests {
			if c.differs(m, p, theirs) {
				differ = append(differ, p)
			}
		}
		if len(differ) > 0 {
			found[m.ID] = differ
		}
	}
	c.differ = found
	return found
}

// differs compares one partition. The caller holds mu.
func (c *digestCheck) differs(m *cluster.Member, partition int, theirs eventlog.Digest) bool {
	before := slices.Contains(c.differ[m.ID], partition)
	own, ok := c.own.DigestAt(partition, theirs.Seq)
	switch {
	case !ok:
		return before
	case own.From > theirs.From:
		c.own.JoinDigest(partition, theirs)
		return before
	case own.From < theirs.From: // it joins ours
		return before
	case own.Sum == theirs.Sum:
		return false
	}
	if !before {
		c.log.Error("another member has read other messages of the event log: the replica of one of the two is wrong",
			"member", m.Name, "partition", partition, "seq", theirs.Seq, "own", own.Sum, "theirs", theirs.Sum)
	}
	return true
}
