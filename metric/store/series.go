package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/prometheus/storage"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
)

const nameShards = 64

type nameShard struct {
	mu sync.RWMutex
	m  map[string]*Series // guarded by mu
}

// Series is one series in memory. Callers keep it and put points with it.
type Series struct {
	name  string
	shard uint16

	// All below is guarded by the shard's mu.
	closed bool
	plan   *plan
	// last is the time in ms of the newest sample in the finest tier. Samples up to doubt may be there from before
	// Open. doubt is at first that of all series; sure says that makeSure was called for this one.
	last, doubt int64
	sure        bool
	// newest is the value at last.
	newest float64
	// opened is the time of Open, in seconds, or that of points from before it, if they are later. Slots that began by
	// then may have values that this object does not know.
	opened int64
	// seen is the time of the last Put of a point, in seconds.
	seen   int64
	index  int32 // in the shard's series
	levels []level
}

// level is the state of one archive of a series: its open slot, and what the slot has so far.
type level struct {
	ref  storage.SeriesRef
	slot int64 // start of the newest slot
	// value is the last value for the finest archive, and the sum, largest, … of the finer archive's for others.
	value float64
	known int32
	// open: the slot is not written yet. partial: it has points that value does not contain.
	open, partial bool
}

// noSlot is the slot of a level that has had none. It is far below all times, yet adding a step to it cannot overflow.
const noSlot = -1 << 62

// Name returns the canonical name.
func (se *Series) Name() string { return se.name }

// Shard returns the shard to which all points of the series must be put.
func (se *Series) Shard() int { return int(se.shard) }

// Shards returns the number of shards.
func (s *Store) Shards() int { return len(s.shards) }

// seriesBytes estimates the memory of a Series with its map entry, besides its name and levels.
const seriesBytes, levelBytes = 180, 40

// Open returns the series of a canonical name and creates it if need be. The store keeps the string.
func (s *Store) Open(name string) (*Series, error) {
	h := xxhash.Sum64String(name)
	ns := &s.names[h%nameShards]
	ns.mu.RLock()
	se := ns.m[name]
	ns.mu.RUnlock()
	if se != nil {
		return se, nil
	}
	if s.closing.Load() {
		return nil, ErrStopped
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	p, err := s.planOf(name)
	if err != nil {
		return nil, err
	}
	known := (s.creates != nil || s.o.MemoryLimit > 0) && p.tiers[0].has(s.ctx, name)
	ns.mu.Lock()
	if se := ns.m[name]; se != nil {
		ns.mu.Unlock()
		return se, nil
	}
	if err := s.admit(known); err != nil {
		ns.mu.Unlock()
		s.counts.refused.Add(1)
		return nil, fmt.Errorf("open series %s: %w", rarelog.Short(name), err)
	}
	now := s.now()
	se = &Series{name: name, shard: uint16(h / nameShards % uint64(len(s.shards))), plan: p, opened: now, seen: now,
		levels: make([]level, len(p.tiers)), index: -1}
	// A sender whose clock is fast may have put points ahead of now before the start.
	se.opened = max(now, min(p.tiers[0].startMax/1000, now+int64(s.o.MaxFuture/time.Second)))
	for k := range se.levels {
		se.levels[k].slot = noSlot
	}
	ns.m[name] = se
	s.count.Add(1)
	s.bytes.Add(se.size())
	s.counts.created.Add(1)
	ns.mu.Unlock()
	s.shards[se.shard].add(se)
	return se, nil
}

func (se *Series) size() int64 {
	return seriesBytes + int64(len(se.name)) + levelBytes*int64(len(se.levels))
}

// has reports whether the tier's head has the series.
func (t *tier) has(ctx context.Context, name string) bool {
	app := t.db.Appender(ctx)
	defer func() { _ = app.Rollback() }() // nothing was appended
	g, ok := app.(storage.GetRef)
	if !ok {
		return false
	}
	lset := labelsOf(name)
	ref, _ := g.GetRef(lset, lset.Hash())
	return ref != 0
}

// admit decides whether one more series may be in memory. Known ones are in a head already, from before a restart:
// they count against MaxSeries only.
func (s *Store) admit(known bool) error {
	if n := s.count.Load(); n >= int64(s.o.MaxSeries) {
		return fmt.Errorf("%w: there are %d, the most that are allowed", ErrTooManySeries, n)
	}
	if known {
		return nil
	}
	if limit := s.o.MemoryLimit; limit > 0 {
		if used := s.memory(); used >= limit {
			return fmt.Errorf("%w: they need about %d bytes, the limit is %d", ErrTooManySeries, used, limit)
		}
	}
	if s.creates != nil && !s.creates.AllowN(s.o.Now(), 1) {
		return fmt.Errorf("%w: more than %d new ones a minute", ErrTooManySeries, s.o.CreatesPerMinute)
	}
	return nil
}

// Idle returns the series without points since d ago, so that the caller can drop its pointers and Close them.
func (s *Store) Idle(d time.Duration) []*Series {
	before := s.now() - int64(d/time.Second)
	var idle []*Series
	for _, sh := range s.shards {
		sh.each(func(se *Series) {
			if se.seen < before {
				idle = append(idle, se)
			}
		})
	}
	return idle
}

// Close forgets the series in memory. Its points stay in the tiers. Points that are put with it afterwards go to the
// series that Open returns for its name by then.
func (s *Store) Close(se *Series) {
	ns := &s.names[xxhash.Sum64String(se.name)%nameShards]
	ns.mu.Lock()
	if ns.m[se.name] != se {
		ns.mu.Unlock()
		return
	}
	delete(ns.m, se.name)
	s.count.Add(-1)
	ns.mu.Unlock()
	s.bytes.Add(-s.shards[se.shard].remove(se))
}

// Has reports whether the series of a canonical name is in memory.
func (s *Store) Has(name string) bool { return s.lookup(name) != nil }

// lookup returns the series in memory, or nil.
func (s *Store) lookup(name string) *Series {
	ns := &s.names[xxhash.Sum64String(name)%nameShards]
	ns.mu.RLock()
	defer ns.mu.RUnlock()
	return ns.m[name]
}

// Refresh applies the present policies to all series in memory. The caller calls it after the policies have changed.
func (s *Store) Refresh(ctx context.Context) error {
	s.planMu.Lock()
	clear(s.plans)
	s.planMu.Unlock()
	var all []*Series
	for i := range s.names {
		ns := &s.names[i]
		ns.mu.RLock()
		for _, se := range ns.m {
			all = append(all, se)
		}
		ns.mu.RUnlock()
	}
	var errs []error
	for _, se := range all {
		if ctx.Err() != nil {
			errs = append(errs, ctx.Err())
			break
		}
		p, err := s.planOf(se.name)
		if err != nil {
			if errs = append(errs, err); len(errs) == 10 {
				break
			}
			continue
		}
		s.shards[se.shard].replan(se, p)
	}
	if len(errs) > 0 {
		return fmt.Errorf("apply policies to series: %w", errors.Join(errs...))
	}
	return nil
}
