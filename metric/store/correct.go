package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/index"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// correctBatch is how many series are read at once to compute a slot again.
const correctBatch = 200

func (s *Store) wakeCorrector() {
	select {
	case s.correct <- struct{}{}:
	default:
	}
}

// runCorrections computes wrong slots again. It works for at most a fifth of a core's time.
func (s *Store) runCorrections() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.correct:
		}
		s.correctOnce(s.ctx, true)
		// Gather what belongs together before the next round.
		if !s.pause(s.ctx, 200*time.Millisecond) {
			return
		}
	}
}

// pause waits for d and reports false if ctx has ended.
func (s *Store) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// correctAll computes all wrong slots again and reports whether it has finished before ctx ended.
func (s *Store) correctAll(ctx context.Context) bool {
	for s.counts.wrong.Load() > 0 && ctx.Err() == nil && !s.full.Load() {
		s.correctOnce(ctx, false)
	}
	return s.counts.wrong.Load() == 0
}

// Flush waits until all that was queued before is appended, and all slots that late points have changed are written
// again.
func (s *Store) Flush(ctx context.Context) error {
	for _, sh := range s.shards {
		if err := sh.drain(ctx); err != nil {
			return err
		}
	}
	if !s.correctAll(ctx) {
		return fmt.Errorf("roll up metric points: %w", cmp.Or(ctx.Err(), errDiskFull))
	}
	return nil
}

var errDiskFull = errors.New("disk of the metric store is almost full")

// correctOnce computes the slots that are wrong by now: those of finer archives first, because coarser ones are made
// of them. On a full disk they go on waiting.
func (s *Store) correctOnce(ctx context.Context, paced bool) {
	s.correctMu.Lock()
	defer s.correctMu.Unlock()
	if s.full.Load() {
		return
	}
	// All marks in the journal's files up to this one are among those taken below.
	journaled, err := s.journal.rotate()
	if err != nil {
		s.rare.Error("cannot close a journal of corrections", "journal", "err", err)
	}
	// All levels are taken at once: a late point that comes afterwards makes its slots of all levels wrong again, so
	// no coarse slot is left with what the finer one was before.
	var taken [maxArchives][]slotKey
	for _, sh := range s.shards {
		sh.mu.Lock()
		for k := range sh.wrong {
			for key := range sh.wrong[k] {
				sh.wrong[k][key] = true
				taken[k] = append(taken[k], key)
			}
		}
		sh.mu.Unlock()
	}
	for k, keys := range taken {
		slices.SortFunc(keys, func(a, b slotKey) int {
			return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.series.shard, b.series.shard),
				cmp.Compare(a.series.name, b.series.name))
		})
		for len(keys) > 0 && ctx.Err() == nil {
			n := 1
			for n < len(keys) && n < correctBatch && keys[n].slot == keys[0].slot &&
				keys[n].series.shard == keys[0].series.shard {
				n++
			}
			begin := time.Now()
			if !s.correctKeys(ctx, k, keys[:n]) {
				return
			}
			keys = keys[n:]
			if paced && !s.pause(ctx, 4*time.Since(begin)) {
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
	s.journal.finished(journaled)
}

// correction is one slot of series of one plan, which are read together.
type correction struct {
	plan   *plan
	level  int
	slot   int64 // the slot's begin, in seconds
	series []*Series
	names  []string
	// newest has the ms offset of each series' newest sample of the slot, as far as the shard knows it. unsure says that
	// the tier may have newer ones, and forgets how often the shard had forgotten what it knew.
	newest  []int64
	unsure  bool
	forgets int
}

// correctKeys computes slots of one time and one shard. It reports false if it could not finish, because ctx has ended
// or the disk is full.
func (s *Store) correctKeys(ctx context.Context, k int, keys []slotKey) bool {
	sh := s.shards[keys[0].series.shard]
	for _, c := range sh.corrections(k, keys) {
		values, err := s.aggregate(ctx, c.plan, k, c.names, c.slot)
		if err == nil && s.full.Load() {
			return false
		}
		var n tally
		if err == nil {
			err = sh.storeCorrection(ctx, c, values, s.now(), &n)
		}
		if err != nil {
			if ctx.Err() != nil {
				return false
			}
			s.counts.correctFailed.Add(int64(len(c.names)))
			s.rare.Error("cannot roll up metric points", c.plan.tiers[k].name(), "tier", c.plan.tiers[k].name(),
				"series", len(c.names), "err", err)
			continue // the slots are forgotten below: the same error would come again
		}
		s.counts.add(&n)
		if n.failed > 0 && s.full.Load() {
			return false // the disk has become full
		}
		s.counts.corrected.Add(int64(len(c.series)))
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, key := range keys {
		if taken, ok := sh.wrong[k][key]; ok && taken {
			delete(sh.wrong[k], key)
			s.counts.wrong.Add(-1)
		}
	}
	return true
}

// corrections groups the keys, which have one slot, by their plans.
func (sh *shard) corrections(k int, keys []slotKey) (all []*correction) {
	byPlan := map[*plan]*correction{}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, key := range keys {
		se, p := key.series, key.series.plan
		if k >= len(se.levels) || key.slot%p.Archives[k].Step != 0 {
			continue // the policy has changed
		}
		c := byPlan[p]
		if c == nil {
			c = &correction{plan: p, level: k, slot: key.slot, forgets: sh.forgets}
			byPlan[p], all = c, append(all, c)
		}
		before, ok := sh.noted(lateKey{se, key.slot, int32(k)})
		c.series, c.names, c.newest = append(c.series, se), append(c.names, se.name), append(c.newest, before)
		c.unsure = c.unsure || !ok && (sh.forgets > 0 || sh.earlier(se, k, key.slot))
	}
	return all
}

// storeCorrection writes what was computed, each behind the newest sample of its slot.
func (sh *shard) storeCorrection(ctx context.Context, c *correction, values []float64, now int64, n *tally) error {
	if err := sh.lockCorrection(ctx, c); err != nil {
		return err
	}
	defer sh.mu.Unlock()
	for i, se := range c.series {
		if se.plan != c.plan || math.IsNaN(values[i]) {
			continue
		}
		key := lateKey{se, c.slot, int32(c.level)}
		if had, ok := sh.noted(key); !ok || c.newest[i] > had { // also if there is none, so that lateTime reads nothing
			sh.noteLate(key, c.newest[i])
		}
		sh.append(se, c.level, sh.lateTime(se, c.level, c.slot, now), values[i], n)
	}
	sh.commit(n)
	return nil
}

// lockCorrection takes the shard's lock when c.newest has the newest sample of each series. What the shard has forgotten
// is read from the tier, without the lock, but with it when the shard forgets faster than the disk answers.
func (sh *shard) lockCorrection(ctx context.Context, c *correction) error {
	for try := 1; ; try++ {
		if c.unsure {
			if err := c.readNewest(ctx); err != nil {
				return err
			}
		}
		sh.mu.Lock()
		if sh.forgets == c.forgets {
			break
		}
		if try == 3 {
			if err := c.readNewest(ctx); err != nil {
				sh.mu.Unlock()
				return err
			}
			break
		}
		c.forgets, c.unsure = sh.forgets, true
		sh.mu.Unlock()
	}
	for i, se := range c.series { // storing one may make the shard forget the others
		had, _ := sh.noted(lateKey{se, c.slot, int32(c.level)})
		c.newest[i] = max(c.newest[i], had)
	}
	return nil
}

// readNewest raises newest to what the tier has.
func (c *correction) readNewest(ctx context.Context) error {
	stored, err := c.plan.newest(ctx, c.level, c.names, c.slot)
	for i, ms := range stored {
		c.newest[i] = max(c.newest[i], ms)
	}
	return err
}

// newest returns the ms offset in a slot of level k of the newest sample that the tier has of each series, or 0.
func (p *plan) newest(ctx context.Context, k int, names []string, slot int64) ([]int64, error) {
	offsets := make([]int64, len(names))
	err := p.tiers[k].read(ctx, names, slot, slot+p.Archives[k].Step, func(i int, ms int64, _ float64) {
		offsets[i] = ms - slot*1000
	})
	return offsets, err
}

// aggregate computes a slot of archive k of several series from what the next finer tier has.
func (s *Store) aggregate(ctx context.Context, p *plan, k int, names []string, slot int64) ([]float64, error) {
	fine := p.Archives[k-1].Step
	values := unknown(len(names), p.ratios[k])
	if err := p.tiers[k-1].read(ctx, names, slot, slot+p.Archives[k].Step, func(i int, ms int64, v float64) {
		values[i][(ms/1000-slot)/fine] = v
	}); err != nil {
		return nil, err
	}
	result := make([]float64, len(names))
	for i, v := range values {
		result[i] = p.Method.Aggregate(v, p.XFilesFactor)
	}
	return result, nil
}

// runSweeps closes the slots of series that get no more points.
func (s *Store) runSweeps() {
	for s.pause(s.ctx, s.o.SweepInterval) {
		s.sweep()
		s.retireTiers()
	}
}

func (s *Store) retireTiers() {
	now := s.o.Now().UnixMilli()
	for _, t := range *s.tiers.Load() {
		if s.full.Load() || s.ctx.Err() != nil {
			return
		}
		if !t.idle(now) {
			continue
		}
		if err := s.retire(t); err != nil {
			s.rare.Error("cannot write the head of an idle tier", t.name(), "tier", t.name(), "err", err)
		}
	}
}

func (s *Store) sweep() {
	before := s.now() - int64(s.o.CloseAfter/time.Second)
	for _, sh := range s.shards {
		sh.closeSlots(before)
	}
}

// recover rolls up the slots that were open when the last run ended without Stop, for all series of the finest tiers'
// heads.
func (s *Store) recover() {
	for _, t := range *s.tiers.Load() {
		if t.startMax == math.MinInt64 {
			continue
		}
		if err := s.recoverTier(t); err != nil && s.ctx.Err() == nil {
			s.log.Error("cannot roll up the points from before a crash", "tier", t.name(), "err", err)
		}
	}
	if s.ctx.Err() == nil {
		close(s.recovered)
	}
}

// pauseRecover waits for d, or until Stop waits for recover. It reports false if the store has been stopped.
func (s *Store) pauseRecover(d time.Duration) bool {
	select {
	case <-s.hurry:
	case <-time.After(d):
	case <-s.ctx.Done():
	}
	return s.ctx.Err() == nil
}

func (s *Store) recoverTier(t *tier) error {
	head, err := t.db.Head().Index()
	if err != nil {
		return err
	}
	defer head.Close()
	name, value := index.AllPostingsKey()
	postings, err := head.Postings(s.ctx, name, value)
	if err != nil {
		return err
	}
	var b labels.ScratchBuilder
	var last time.Time
	for n := 0; postings.Next(); n++ {
		if n%correctBatch == 0 {
			if n > 0 && !s.pauseRecover(4*time.Since(last)) {
				return s.ctx.Err()
			}
			last = time.Now()
		}
		if err := head.Series(postings.At(), &b, nil); err != nil {
			continue // the head dropped it meanwhile
		}
		p, err := s.planOf(Name(b.Labels()))
		if err != nil || p.tiers[0] != t || len(p.tiers) == 1 {
			continue
		}
		se, err := s.Open(Name(b.Labels()))
		if errors.Is(err, ErrTooManySeries) {
			return err
		}
		if err != nil {
			continue
		}
		at, ok := t.startNewest[postings.At()]
		if !ok {
			at = t.startMax
		}
		s.shards[se.shard].recover(se, p, at/1000)
	}
	t.startNewest = nil
	return postings.Err()
}

// newestOfEach returns the time in ms of the newest sample of each series in the head: a sender may be behind others, or
// ahead of all. It reads the last chunk of each series, before new samples come.
func (t *tier) newestOfEach() (map[storage.SeriesRef]int64, error) {
	r, err := t.headReader()
	if err != nil {
		return nil, err
	}
	defer r.close()
	name, value := index.AllPostingsKey()
	postings, err := r.index.Postings(context.Background(), name, value)
	if err != nil {
		return nil, err
	}
	newest := map[storage.SeriesRef]int64{}
	for postings.Next() {
		if at, ok := r.newest(postings.At()); ok {
			newest[postings.At()] = at
		}
	}
	return newest, postings.Err()
}

// recover notes the slots around a time as wrong.
func (sh *shard) recover(se *Series, p *plan, at int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if se.plan != p {
		return
	}
	se.opened = max(se.opened, at)
	var n tally
	for k := 1; k < len(se.levels); k++ {
		step := p.Archives[k].Step
		slot := series.Floor(at, step)
		sh.wrongSlot(k, slotKey{se, slot}, &n)
		sh.wrongSlot(k, slotKey{se, slot - step}, &n)
	}
	sh.commit(&n)
	sh.store.counts.add(&n)
}
