package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
)

const (
	// maxDiary bounds the changes of definitions that are remembered. Above it the oldest half is forgotten.
	maxDiary = 20_000
	// clockSkewOfMembers is how far the clocks of members may differ.
	clockSkewOfMembers = 5 * time.Second
)

// diary has the changes of definitions that PostgreSQL may not have yet, each with its time: a silence that came and went
// while PostgreSQL was away is history, too. Each member keeps one, in memory. Without its changes, after a restart or
// above maxDiary, PostgreSQL gets the present definitions.
type diary struct {
	mu      sync.Mutex // guards the fields below
	seen    *config.Snapshot
	newest  time.Time // of the changes
	first   uint64    // the number of changes[0]
	changes []definition
}

// look notes what has changed since the last call, and returns the present definitions.
func (d *diary) look(definitions func() *config.Snapshot, at time.Time) *config.Snapshot {
	d.mu.Lock() // before the snapshot is taken: a later call must not have an earlier one
	defer d.mu.Unlock()
	now := definitions()
	if d.seen != nil && d.seen != now {
		if !at.After(d.newest) {
			at = d.newest.Add(time.Microsecond)
		}
		d.newest = at
		for _, c := range definitionChanges(d.seen, now) {
			c.at = at
			d.changes = append(d.changes, c)
		}
	}
	d.seen = now
	if n := len(d.changes); n > maxDiary {
		d.drop(n - maxDiary/2)
	}
	return now
}

// close forgets everything.
func (d *diary) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop(len(d.changes))
	d.seen = nil
}

// drop forgets the oldest changes. The caller holds mu.
func (d *diary) drop(n int) {
	d.changes = append([]definition(nil), d.changes[n:]...)
	d.first += uint64(n)
}

// forget forgets the changes of before a time.
func (d *diary) forget(before time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for n < len(d.changes) && d.changes[n].at.Before(before) {
		n++
	}
	if n > 0 {
		d.drop(n)
	}
}

// from returns the changes from a number on, and the number of the next one; false if some are forgotten.
func (d *diary) from(number uint64) (all []definition, next uint64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next = d.first + uint64(len(d.changes))
	if number < d.first || number > next {
		return nil, next, false
	}
	return append(all, d.changes[number-d.first:]...), next, true
}

// since returns the changes after a time, and the number of the next one.
func (d *diary) since(t time.Time) (all []definition, next uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.changes {
		if c.at.After(t) {
			all = append(all, c)
		}
	}
	return all, d.first + uint64(len(d.changes))
}

// keepDiary notes changes of definitions while there is a database.
func (p *Projection) keepDiary(ctx context.Context) {
	tick := time.NewTicker(lookEvery / 2)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			p.mu.Lock()
			configured := p.settings.DSN != ""
			p.mu.Unlock()
			if configured {
				p.diary.look(p.opts.Definitions, now)
			} else {
				p.diary.close()
			}
		case <-ctx.Done():
			return
		}
	}
}
