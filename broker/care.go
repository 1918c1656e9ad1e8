package broker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// This file looks after the streams' leaders and replicas in a cluster. Each member acts for itself alone, so that no
// two act at once: it gives leaders away, and has its own replica rebuilt.

const (
	// spreadAfter is how long a member must lead more streams than its share before it gives one away, and the least time
	// between two of them.
	spreadAfter = time.Minute
	// standsAfter is how long a replica may stand still while its leader goes on.
	standsAfter = time.Minute
	// mayLack is how many changes a replica may lack that becomes a leader: under load each one always lacks some.
	mayLack = 100
	// heardLately is how long ago the leader must have heard such a replica.
	heardLately = 2 * time.Second
)

// care is what a member knows of its leaders and replicas from earlier looks.
type care struct {
	leading leading
	copies  map[string]*ownCopy // by stream
}

// lookAfter looks at all streams, and does at most one thing about each.
func (b *Broker) lookAfter(c *care, now time.Time) {
	groups := map[string]Group{}
	names := b.openedStreams()
	for _, name := range names {
		ctx, cancel := context.WithTimeout(b.life, lookTimeout)
		g, err := b.StreamStatus(ctx, name)
		cancel()
		if err != nil {
			continue // there is no answer during an election
		}
		groups[name] = g
		if c.copies[name] == nil {
			c.copies[name] = &ownCopy{}
		}
		if c.copies[name].stands(now, b.opts.Name, b.view(name), g) {
			b.rebuild(name)
		}
	}
	if len(groups) < len(names) {
		c.leading = leading{}
		return
	}
	if stream, to := c.leading.giveAway(now, b.opts.Name, b.Replicas(), groups); stream != "" {
		b.giveAway(stream, to)
	}
}

// openedStreams returns the names of the streams that this process has opened, in order.
func (b *Broker) openedStreams() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.opened))
}

// leading follows whether a member leads more streams than its share. After members have died and come back, the others
// lead all streams: one does the work of all, and if it dies all streams wait for an election.
type leading struct {
	since time.Time // since then it leads too many; zero if it does not
	gave  time.Time // when it last gave one away
}

// giveAway returns a stream that a member should give away, and to which one; "" for none. It waits until all replicas
// are current or nearly so: an election in the middle of a repair would make that longer.
func (l *leading) giveAway(now time.Time, self string, copies int, groups map[string]Group) (stream, to string) {
	led := map[string]int{self: 0}
	for _, g := range groups {
		if g.Leader == "" || 1+len(g.Replicas) < copies || slices.ContainsFunc(g.Replicas, Replica.repairs) {
			l.since = time.Time{}
			return "", ""
		}
		led[g.Leader]++
		for _, r := range g.Replicas {
			led[r.Name] += 0
		}
	}
	share := (len(groups) + len(led) - 1) / len(led)
	if led[self] <= share {
		l.since = time.Time{}
		return "", ""
	}
	if l.since.IsZero() {
		l.since = now
	}
	if now.Sub(l.since) < spreadAfter || now.Sub(l.gave) < spreadAfter {
		return "", ""
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		g := groups[name]
		if g.Leader != self {
			continue
		}
		for _, r := range g.Replicas {
			if led[r.Name] < share && (to == "" || led[r.Name] < led[to]) {
				stream, to = name, r.Name
			}
		}
	}
	if stream != "" {
		l.gave = now
	}
	return stream, to
}

func allCurrent(replicas []Replica) bool {
	return !slices.ContainsFunc(replicas, func(r Replica) bool { return !r.Current || r.Offline })
}

// repairs reports whether a replica is more than a moment behind.
func (r Replica) repairs() bool {
	nearly := r.Lag <= mayLack && r.Heard > 0 && r.Heard < heardLately // 0 is one that was never heard
	return r.Offline || !r.Current && !nearly
}

func (b *Broker) giveAway(stream, to string) {
	if err := b.stepDown(b.life, stream, to); err != nil {
		b.rare.Warn("this member leads more streams than its share, and cannot give one away now", "",
			"stream", stream, "err", err)
		return
	}
	b.moved.Inc()
	b.log.Info("another member leads a stream from now on, because this one leads more than its share",
		"stream", stream, "member", to)
}

// ownCopy follows whether this member's replica of a stream stands still.
type ownCopy struct {
	last   uint64    // its newest message
	leader uint64    // the leader's newest message when that was first seen
	since  time.Time // since then it is the newest message; zero if the replica has everything, or cannot get it
}

// stands reports whether a replica has stood still for long while its leader went on, and can be rebuilt: all others
// must be current.
func (o *ownCopy) stands(now time.Time, self string, own streamView, g Group) bool {
	connected := own.Majority && own.Leader != "" && own.Leader == g.Leader && !own.Leads
	if !connected || own.Last >= g.Last || own.Last != o.last || o.since.IsZero() {
		*o = ownCopy{last: own.Last, leader: g.Last}
		if connected && own.Last < g.Last {
			o.since = now
		}
		return false
	}
	others := slices.DeleteFunc(slices.Clone(g.Replicas), func(r Replica) bool { return r.Name == self })
	if now.Sub(o.since) < standsAfter || g.Last == o.leader || !allCurrent(others) {
		return false
	}
	o.since = time.Time{}
	return true
}

// rebuild has the leader drop the replica that is furthest behind: this member's. keepReplicas then asks for a new one.
func (b *Broker) rebuild(stream string) {
	b.log.Warn("the own replica of a stream stands still while others go on: it is dropped and made anew",
		"stream", stream)
	if err := b.drop(stream); err != nil {
		b.rare.Error("the own replica of a stream stands still, and cannot be made anew now", stream,
			"stream", stream, "err", err)
		return
	}
	b.rebuilt.Inc()
}

// drop has a stream keep one copy less.
func (b *Broker) drop(name string) error {
	b.describing.Lock()
	defer b.describing.Unlock()
	ctx, cancel := context.WithTimeout(b.life, apiTimeout)
	defer cancel()
	stream, err := b.js.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", name, err)
	}
	cfg := stream.CachedInfo().Config
	if cfg.Replicas < b.Replicas() {
		return fmt.Errorf("stream %s has only %d copies", name, cfg.Replicas)
	}
	cfg.Replicas--
	if _, err := b.js.UpdateStream(ctx, cfg); err != nil {
		return fmt.Errorf("drop a copy of stream %s: %w", name, err)
	}
	return nil
}
