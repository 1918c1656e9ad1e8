package cluster

import "time"

// In a cluster with a size a member has its lease while it hears a majority that hears it. Once lost, the lease begins
// again only behind a renewal (renewal.go) in each partition that the member began to write after it heard a majority
// again. When it has folded that, it has folded all rosters that came before, also the one that took it off. Without
// this a process that stood still would act for a moment: the heartbeats that waited in its sockets are a majority's.

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

// confirmed reports whether this member has folded all rosters that came before it heard a majority again. The caller
// holds mu.
func (c *Cluster) confirmed() bool {
	for i := range c.parts {
		if c.parts[i].renewals.folded.Before(c.lease.majority) {
			return false
		}
	}
	return true
}

// hold notes that this member has its lease, if it has.
func (c *Cluster) hold(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
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
