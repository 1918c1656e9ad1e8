package cluster

import (
	"slices"
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
)

// propose appends the rosters that should count instead of the newest ones.
func (c *Cluster) propose() {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil || !c.leased(now) || !c.ready && !c.leaving {
		return
	}
	for i := range c.parts {
		p := &c.parts[i]
		newest := p.rosters.newest()
		want := c.want(i, newest, now)
		if slices.Equal(want, newest.Members) {
			p.wanted = time.Time{}
			continue
		}
		if p.wanted.IsZero() {
			p.wanted = now
		}
		if p.proposing || !c.mayPropose(newest, want, now, p.wanted) {
			continue
		}
		p.proposing, p.proposal, p.removing = true, newest.Number+1, without(newest.Members, want)
		c.append(i, Roster{Number: newest.Number + 1, Members: want})
	}
}

// without returns the members that others does not have.
func without(members, others []string) (left []string) {
	for _, id := range members {
		if !slices.Contains(others, id) {
			left = append(left, id)
		}
	}
	return left
}

// removing returns the members that proposals on their way to the log take off, if they can still count: of those with
// one number the first in the log does. The caller holds mu.
func (c *Cluster) removing() (ids []string) {
	for i := range c.parts {
		if p := &c.parts[i]; p.proposal > p.rosters.newest().Number {
			ids = append(ids, p.removing...)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// want returns the members that a partition should have.
func (c *Cluster) want(partition int, newest Roster, now time.Time) []string {
	members := []string{}
	if c.ready && !c.leaving {
		members = append(members, c.opts.ID)
	}
	for _, id := range newest.Members {
		if id != c.opts.ID && c.stays(partition, id, now) {
			members = append(members, id)
		}
	}
	for id, p := range c.peers {
		// A member that comes back must know first that it was away.
		knows := partition < len(p.beat.Rosters) && p.beat.Rosters[partition] == newest.Number
		// In an open cluster it must have shown that the log takes what it writes.
		renews := c.opts.Size > 0 || now.Sub(c.parts[partition].renewals.heard[id]) < c.opts.Suspect
		ready := p.beat.Ready && p.beat.Leased && !p.beat.Leaving && now.Sub(p.heard) < c.opts.Lease
		if !newest.Has(id) && knows && renews && ready {
			members = append(members, id)
		}
	}
	slices.Sort(members)
	return members
}

// stays reports whether a member may stay on a partition's roster. The caller holds mu.
func (c *Cluster) stays(partition int, id string, now time.Time) bool {
	p := c.peers[id]
	if c.opts.Size == 0 {
		leaving := p != nil && now.Sub(p.heard) < c.opts.Lease && p.beat.Leaving
		return !leaving && now.Sub(latest(c.parts[partition].renewals.heard[id], c.lease.regained)) < c.opts.Suspect
	}
	if p == nil {
		return now.Sub(c.lease.regained) < c.opts.Suspect || c.vouched(id, now)
	}
	if now.Sub(p.heard) < c.opts.Lease && p.beat.Leaving {
		return false
	}
	// A member whose renewal is folded may get its lease by it, and needs a moment to say so.
	since := latest(latest(p.ready, c.parts[partition].renewals.heard[id]), c.lease.regained)
	return now.Sub(since) < c.opts.Suspect || now.Sub(p.heard) >= c.opts.Lease && c.vouched(id, now)
}

// vouched reports whether another member hears one that this member does not hear: only the link between the two is
// broken. The caller holds mu.
func (c *Cluster) vouched(id string, now time.Time) bool {
	for _, p := range c.peers {
		if now.Sub(p.heard) < c.opts.Lease && slices.Contains(p.beat.Hears, id) {
			return true
		}
	}
	return false
}

// mayPropose reports whether this member proposes: the first of the wanted members does, and others if it has not for
// a while, so that there is no race as a rule. A member that leaves proposes that itself.
func (c *Cluster) mayPropose(newest Roster, want []string, now, since time.Time) bool {
	if c.leaving && newest.Has(c.opts.ID) || len(want) > 0 && want[0] == c.opts.ID {
		return true
	}
	return now.Sub(since) > 4*c.opts.Beat
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// append proposes a roster. The log may have no room, so it does not wait for it.
func (c *Cluster) append(partition int, r Roster) {
	rec := eventlog.Record{Kind: eventlog.KindRoster, Received: time.Now().UnixMilli(), Body: r.encode()}
	c.done.Go(func() {
		err := c.opts.Log.AppendTo(c.life, partition, &rec, proposal{c}, uint64(partition))
		if err != nil {
			c.proposed(partition, err)
		}
	})
}

// proposal gets the answer of the log to a proposed roster.
type proposal struct{ c *Cluster }

// Logged implements eventlog.Acker.
func (p proposal) Logged(_ uint64, partition int, _ uint64, err error) { p.c.proposed(partition, err) }

func (c *Cluster) proposed(partition int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts[partition].proposing, c.parts[partition].removing = false, nil
	if err != nil {
		c.log.Warn("a roster could not be proposed", "partition", partition, "err", err)
	}
}
