package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/internal/fields"
)

// Fold takes the record of a roster of a partition, or of a renewal. Package fold calls it in the order of the log, and
// asks Owns after it. A roster whose number does not follow the newest one is ignored: another proposal was first, or
// this is a replay.
func (c *Cluster) Fold(partition int, seq uint64, body []byte) error {
	if c.alone {
		return nil
	}
	if isRenewal(body) {
		return c.foldRenewal(partition, body)
	}
	r, err := decodeRoster(body)
	if err != nil {
		return fmt.Errorf("fold a roster of partition %d: %w", partition, fields.Unreadable(err))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &c.parts[partition]
	old := p.rosters.newest()
	if r.Number != old.Number+1 {
		return nil
	}
	p.rosters = p.rosters.add(seq, r)
	p.wanted, p.folded = time.Time{}, time.Now()
	close(c.changed)
	c.changed = make(chan struct{})
	for _, id := range r.Members {
		if !old.Has(id) {
			p.renewals.hear(id, time.Now()) // it has come, and begins to renew
		}
	}
	for _, id := range old.Members {
		if other := c.peers[id]; other != nil && !r.Has(id) {
			other.left = time.Now()
		}
	}
	if partition == 0 || !slices.Equal(c.parts[0].rosters.newest().Members, r.Members) {
		c.log.Info("members of the cluster", "partition", partition, "roster", r.Number, "members", strings.Join(c.names(r), " "))
	}
	c.metrics.rosters.Inc()
	// Not synced: what a power cut takes away, the log brings again.
	if err := c.db.Set(rosterKey(partition), p.rosters.encode(), pebble.NoSync); err != nil {
		return fmt.Errorf("store rosters of partition %d: %w", partition, err)
	}
	return nil
}

// names returns the members' names, and ids where no name is known. The caller holds mu.
func (c *Cluster) names(r Roster) (names []string) {
	for _, id := range r.Members {
		switch p := c.peers[id]; {
		case id == c.opts.ID:
			id = c.opts.Name
		case p != nil && p.beat.Name != "":
			id = p.beat.Name
		}
		names = append(names, id)
	}
	return names
}

func rosterKey(partition int) []byte { return []byte{'c', byte(partition)} }

// load reads the rosters that Fold has stored. The caller holds mu.
func (c *Cluster) load() error {
	for i := range c.parts {
		value, closer, err := c.db.Get(rosterKey(i))
		if errors.Is(err, pebble.ErrNotFound) {
			continue
		}
		if err == nil {
			c.parts[i].rosters, err = decodeHistory(value)
			err = errors.Join(err, closer.Close())
		}
		if err != nil {
			return fmt.Errorf("read stored rosters of partition %d: %w", i, err)
		}
	}
	return nil
}
