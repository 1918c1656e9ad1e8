package cluster

import (
	"slices"
	"time"
)

// In a cluster with a size a member has its lease while it hears a majority that hears it. Once lost, the lease begins
// again only behind a renewal (renewal.go) in each partition that the member began to write after it heard a majority
// again. When it has folded that, it has folded all rosters that came before, also the one that took it off. Without
// this a process that stood still would act for a moment: the heartbeats that waited in its sockets are a majority's.
//
// A roster that takes it off may also come behind its renewal, if the proposal had to wait for the log, and others have
// folded that roster before it. So a renewal counts only when the others have folded it too, and have no such proposal
// under way: from then on they keep the member (stays).

// lease is what a member knows of its lease beside heartbeats and renewals.
type lease struct {
	majority time.Time // when it last heard a majority again; only renewals begun since then count
	held     time.Time // when it was last seen to have its lease
	regained time.Time // when the lease last began: the silence of others counts from then on
	// back is when the lease last began after a time so long that agents had to go to other members.
	back time.Time
}

// Leased reports whether this backend may act: it is heard by a majority that it hears, or has renewed its lease in the
// log.
func (c *Cluster) Leased() bool {
	if c.alone {
		return true
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.leased(time.Now())
}

// leased is Leased at a time. The caller holds mu.
func (c *Cluster) leased(now time.Time) bool {
	if c.opts.Size == 0 {
		return c.renewedLately(now)
	}
	return c.heardByMajority(now) && c.confirmed()
}

// heardByMajority reports whether this member hears a majority that hears it. The caller holds mu.
func (c *Cluster) heardByMajority(now time.Time) bool {
	heard := 1 // itself
	for _, p := range c.peers {
		if now.Sub(p.heard) < c.opts.Lease && now.Sub(p.hearsUs) < c.opts.Lease {
			heard++
		}
	}
	return heard > c.opts.Size/2
}

// confirmed reports whether a renewal in each partition counts that was begun when this member heard a majority again, or
// later. The caller holds mu.
func (c *Cluster) confirmed() bool {
	for i := range c.parts {
		if c.parts[i].renewals.counts.Before(c.lease.majority) {
			return false
		}
	}
	return true
}

// agree has the renewals count that the others have folded. The caller holds mu.
func (c *Cluster) agree(now time.Time) {
	if c.opts.Size == 0 {
		return
	}
	had := c.leased(now)
	for i := range c.parts {
		if r := &c.parts[i].renewals; r.counts.Before(r.folded) && c.agreed(i, now) {
			r.counts = r.folded
		}
	}
	if !had && c.leased(now) {
		c.regain(now)
	}
}

// agreed reports whether the others have folded the newest own renewal of a partition, and take this member off no
// roster. One that does not get on with the log is not waited for longer than Suspect, and one that is not heard not
// longer than two heartbeats take. The caller holds mu.
func (c *Cluster) agreed(partition int, now time.Time) bool {
	r, newest := &c.parts[partition].renewals, c.parts[partition].rosters.newest()
	if now.Sub(r.at) >= c.opts.Suspect {
		return true
	}
	waits := now.Sub(c.lease.majority) < 2*c.opts.Beat
	for _, id := range newest.Members {
		if p := c.peers[id]; waits && id != c.opts.ID && (p == nil || now.Sub(p.heard) >= c.opts.Lease) {
			return false
		}
	}
	for _, p := range c.peers {
		b := &p.beat
		if now.Sub(p.heard) >= c.opts.Lease || !b.Ready {
			continue
		}
		if partition < len(b.Folded) && b.Folded[partition] < r.seq ||
			partition < len(b.Rosters) && b.Rosters[partition] > newest.Number || slices.Contains(b.Removing, c.opts.ID) {
			return false
		}
	}
	return true
}

// look notes that this member has its lease, if it has.
func (c *Cluster) look(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.agree(now)
	if c.leased(now) {
		c.lease.held = now
	}
}

// regain notes that the lease begins. Agents stay through a short loss of it, and their deadlines need no grace. The
// caller holds mu.
func (c *Cluster) regain(now time.Time) {
	if now.Sub(c.lease.held) > c.opts.Lease-2*c.opts.Beat { // held is up to a Beat old, and so is what closes sessions
		c.lease.back = now
	}
	c.lease.regained, c.lease.held = now, now
}
