package state

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// traitSet keeps each set of traits of a partition's events once: there are about as many as definitions of checks,
// however many entities run them. Guarded by partition.mu.
type traitSet struct {
	seed    maphash.Seed
	entries []traitEntry
	bySum   map[uint64]uint32 // index into entries
	free    []uint32
	reused  uint64 // how often an index was reused
}

type traitEntry struct {
	traits *resource.Traits
	sum    uint64
	pairs  int // pairs with these traits
}

func newTraitSet() traitSet {
	return traitSet{seed: maphash.MakeSeed(), bySum: map[uint64]uint32{}}
}

// at returns the traits for a number other than 0.
func (ts *traitSet) at(ref uint32) *resource.Traits { return ts.entries[ref-1].traits }

// take returns the number for traits with a sum, and counts one more pair of them.
func (ts *traitSet) take(sum uint64, body []byte) (ref uint32, err error) {
	if i, ok := ts.bySum[sum]; ok {
		ts.entries[i].pairs++
		return i + 1, nil
	}
	traits, err := resource.TraitsOf(body)
	if err != nil {
		return 0, err
	}
	var i uint32
	if n := len(ts.free); n > 0 {
		i, ts.free = ts.free[n-1], ts.free[:n-1]
		ts.reused++
	} else {
		i = uint32(len(ts.entries))
		ts.entries = append(ts.entries, traitEntry{})
	}
	ts.entries[i] = traitEntry{traits: traits, sum: sum, pairs: 1}
	ts.bySum[sum] = i
	return i + 1, nil
}

// drop counts one pair less.
func (ts *traitSet) drop(ref uint32) {
	if ref == 0 {
		return
	}
	e := &ts.entries[ref-1]
	if e.pairs--; e.pairs == 0 {
		delete(ts.bySum, e.sum)
		*e = traitEntry{}
		ts.free = append(ts.free, ref-1)
	}
}

// characterise records the traits in an event's body for selectors, and reports whether the event is the result of a
// run. A body that cannot be read leaves the pair without traits; searches then read the event. The caller holds mu.
func (p *partition) characterise(pr *pair, body []byte) (ran bool) {
	view, err := resource.PeekTraits(p.traits.seed, body)
	pr.timestamp = 0
	if view.Timestamp > 0 && view.Timestamp <= math.MaxUint32 {
		pr.timestamp = uint32(view.Timestamp)
	}
	if pr.traits != 0 && err == nil && p.traits.entries[pr.traits-1].sum == view.Sum {
		return view.Ran
	}
	before := pr.traits
	pr.traits = 0
	if err == nil {
		pr.traits, _ = p.traits.take(view.Sum, body)
	}
	p.traits.drop(before)
	return view.Ran
}

const (
	learnBatch = 500                  // events
	learnPause = 5 * time.Millisecond // after each batch
)

// learn reads the stored events once after the start, for their traits, which are not stored with the pairs. It takes
// its time; an earlier search reads what it needs.
func (s *State) learn(ctx context.Context) {
	defer close(s.learned)
	for _, p := range s.parts {
		if err := p.learn(ctx); err != nil && ctx.Err() == nil {
			s.log.Error("stored events were not read in advance: searches will read them", "partition", p.id, "err", err)
		}
	}
}

func (p *partition) learn(ctx context.Context) error {
	from, err := newWalk(p)
	if err != nil {
		return err
	}
	it := from.it
	pause := time.NewTicker(learnPause)
	defer pause.Stop()
	for ok := it.First(); ok && err == nil && ctx.Err() == nil; {
		for n := 0; ok && n < learnBatch; n++ {
			var body []byte
			if body, err = it.ValueAndErr(); err != nil {
				break
			}
			if names := strings.Split(string(it.Key()[2:]), "\x00"); len(names) == 3 {
				p.learnOne(names[0], names[1], names[2], body)
			}
			ok = it.Next()
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
	if err := errors.Join(err, it.Error(), it.Close()); err != nil {
		return fmt.Errorf("read events of partition %d: %w", p.id, err)
	}
	return nil
}

// learnOne records the traits of a stored event. A pair that has traits has had a newer event since the start.
func (p *partition) learnOne(namespace, entity, check string, body []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slot, ok := p.find(namespace, entity, check); ok && p.at(slot).traits == 0 {
		p.characterise(p.at(slot), body)
	}
}
