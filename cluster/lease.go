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
// folded that roster before it. So renewals count only when the others have folded them too, know no newer roster, and
// propose none that takes it off. They keep a member for Suspect after they have folded its renewal (stays), and by then
// its heartbeats say that it has its lease. That is why renewals count only while they are fresh.

// lease is what a member knows of its lease beside heartbeats and renewals.
type lease struct {
	majority  time.Time // when it last heard a majority again; only renewals begun since then count
	round     time.Time // when it last began to write renewals, one into each partition
	rounds    int       // how often it did since majority
	failed    bool      // a renewal of the newest round could not be written
	confirmed time.Time // when its renewals last began to count
	held      time.Time // when it was last seen to have its lease
	regained  time.Time // when the lease last began: the silence of others counts from then on
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

// confirmed reports whether renewals count that were begun since this member heard a majority again. The caller holds mu.
func (c *Cluster) confirmed() bool { return !c.lease.confirmed.Before(c.lease.majority) }

// fresh is how old renewals may be when they begin to count: the heartbeat that says so must reach the others before
// they give the member up.
func (c *Cluster) fresh() time.Duration { return c.opts.Suspect - 2*c.opts.Beat }

// roundDue reports whether this member must write renewals, because none count. If a round does not lead to a lease,
// the next one begins only after the others have had the time to take this member off: else its renewals would keep it
// on the rosters for ever. The first ones may follow at once if the log took them so late that they were old, as in an
// election. The caller holds mu.
func (c *Cluster) roundDue(now time.Time) bool {
	l := &c.lease
	age := now.Sub(l.round)
	if c.confirmed() || age < c.opts.Lease/4 {
		return false
	}
	for i := range c.parts {
		if c.parts[i].renewals.under {
			return false
		}
	}
	return l.round.Before(l.majority) || l.failed || age >= 2*c.opts.Suspect || l.rounds < 3 && age >= c.fresh()
}

// agree has the renewals count if all others agree, in all partitions at the same time. The caller holds mu.
func (c *Cluster) agree(now time.Time) {
	if c.opts.Size == 0 || c.confirmed() || !c.heardByMajority(now) {
		return
	}
	for i := range c.parts {
		if !c.agreed(i, now) {
			return
		}
	}
	c.lease.confirmed = now
	c.regain(now)
}

// agreed reports whether the newest own renewal of a partition may count. If this member is off the partition's roster,
// it acts for nothing there, and only has to know the newest roster. A member that does not get on with the log is not
// waited for longer than half of Suspect, and one that is not heard not longer than two heartbeats take. The caller
// holds mu.
func (c *Cluster) agreed(partition int, now time.Time) bool {
	r, newest := &c.parts[partition].renewals, c.parts[partition].rosters.newest()
	if r.folded.Before(c.lease.majority) {
		return false
	}
	listed, age := newest.Has(c.opts.ID), now.Sub(r.folded)
	if listed && age >= c.fresh() {
		return false
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
		if partition < len(b.Rosters) && b.Rosters[partition] > newest.Number {
			return false
		}
		behind := partition < len(b.Folded) && b.Folded[partition] < r.seq && age < c.opts.Suspect/2
		if listed && (behind || slices.Contains(b.Removing, c.opts.ID)) {
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
