package cluster

import (
	"fmt"
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/fields"
)

// In an open cluster (Options.Size is 0) no majority of the members is known: the log, not the members, has one. So the
// lease comes from the log. Each member that may act writes a renewal into every partition once in a while. It has its
// lease while it has folded a renewal of its own, in each partition, that it began to write less than Lease ago. A
// member whose renewals others have not folded for Suspect is taken off the partition's roster.
//
// All of this is in one order. When a member is proposed to be taken off, Lease has passed since it began its last
// renewal that the others have folded, because Suspect is longer. Behind the place of the roster it folds that before its
// next renewal. A renewal that was on its way when others gave the member up could be just before that place: so a lost
// lease begins again with the second renewal, which was begun when the first one was folded. If the proposal itself waits
// for the log, the member may renew twice before it: then it acts until it folds the roster, for Lease at most, and an
// alert of that time may come twice, with the same key.
//
// While the log takes nothing, no member has a lease, and none is taken off: the silence of others counts from when a
// member has its own lease again.

// renewalVersion begins an encoded renewal. It is no version of a roster: both are bodies of KindRoster.
const renewalVersion = 2

func encodeRenewal(id string) []byte { return fields.AppendBytes([]byte{renewalVersion}, id) }

// isRenewal reports whether a record of KindRoster is a renewal.
func isRenewal(body []byte) bool { return len(body) > 0 && body[0] == renewalVersion }

// renewals is what a member knows of the renewals of one partition.
type renewals struct {
	under  bool                 // an own one is on its way to the log
	begun  time.Time            // when the newest own one was begun
	folded time.Time            // when the newest own one that is folded was begun
	seq    uint64               // the message that it is in
	counts time.Time            // in an open cluster, when the newest one that counts for the lease was begun
	heard  map[string]time.Time // by other member: when its newest one was folded
}

// renew writes the renewals that this member needs, if it is ready to act: in an open cluster always new ones, else a
// round for each lease.
func (c *Cluster) renew(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ready || c.life.Err() != nil {
		return
	}
	if c.opts.Size > 0 {
		if !c.heardByMajority(now) || !c.roundDue(now) {
			return
		}
		c.lease.round, c.lease.failed = now, false
		c.lease.rounds++
	}
	for i := range c.parts {
		r := &c.parts[i].renewals
		if r.under || now.Sub(r.begun) < c.opts.Lease/4 {
			continue
		}
		r.under, r.begun = true, now
		rec := eventlog.Record{Kind: eventlog.KindRoster, Received: now.UnixMilli(), Body: encodeRenewal(c.opts.ID)}
		c.done.Go(func() {
			if err := c.opts.Log.AppendTo(c.life, i, &rec, renewal{c, now}, 0); err != nil {
				c.renewed(i, 0, now, err)
			}
		})
	}
}

// renewal is a renewal that this member writes. It takes effect when it is folded.
type renewal struct {
	c     *Cluster
	begun time.Time
}

// Logged implements eventlog.Acker.
func (r renewal) Logged(_ uint64, partition int, seq uint64, err error) {
	r.c.renewed(partition, seq, r.begun, err)
}

// renewed notes that a renewal of this member is folded, or failed.
func (c *Cluster) renewed(partition int, seq uint64, begun time.Time, err error) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.parts[partition].renewals
	r.under = false
	if err != nil {
		c.lease.failed = true
		if c.life.Err() == nil {
			c.rare.Warn("the lease could not be renewed in the event log", "", "partition", partition, "err", err)
		}
		return
	}
	had, before := c.leased(now), r.folded
	r.folded, r.seq = begun, seq
	if c.opts.Size > 0 {
		c.agree(now)
		return
	}
	if now.Sub(before) < c.opts.Lease {
		r.counts = begun
	}
	if !had && c.leased(now) {
		c.regain(now)
	}
}

// foldRenewal takes a renewal of any member.
func (c *Cluster) foldRenewal(partition int, body []byte) error {
	r := fields.NewReader(body)
	r.Byte()
	id := r.Text()
	if err := r.Err(); err != nil {
		return fmt.Errorf("fold a renewal of partition %d: %w", partition, fields.Unreadable(err))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts[partition].renewals.hear(id, time.Now())
	return nil
}

func (r *renewals) hear(id string, now time.Time) {
	if r.heard == nil {
		r.heard = map[string]time.Time{}
	}
	r.heard[id] = now
}

// renewedLately reports whether this member has its lease by its renewals. The caller holds mu.
func (c *Cluster) renewedLately(now time.Time) bool {
	for i := range c.parts {
		if now.Sub(c.parts[i].renewals.counts) >= c.opts.Lease {
			return false
		}
	}
	return true
}
