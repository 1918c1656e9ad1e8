package state

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

// Query selects events.
type Query struct {
	Namespace string             // "" for all
	Entity    string             // "" for all
	Selector  *selector.Selector // nil for all
	// Where, unless nil, is called for events that the selector selects, and may refuse them. It must be quick.
	Where func(*resource.Silenceable) bool
	After string // Page.Next of the page before; "" for the first
	Limit int    // events a page has at most; 0 for all
}

// Page has the events that a query found, ordered by namespace, entity and check. They are read on demand.
type Page struct {
	// Next is where the next page begins, or "" if this is the last.
	Next string
	keys []eventKey
}

// Key names an event.
type Key struct{ Namespace, Entity, Check string }

// Len returns how many events the query found.
func (pg *Page) Len() int { return len(pg.keys) }

// Keys returns the names of the events.
func (pg *Page) Keys() iter.Seq[Key] {
	return func(yield func(Key) bool) {
		for _, k := range pg.keys {
			if !yield(Key{k.namespace, k.entity, k.check}) {
				return
			}
		}
	}
}

// Events reads the events. It skips events that were deleted since.
func (pg *Page) Events() iter.Seq2[*resource.Event, error] {
	return func(yield func(*resource.Event, error) bool) {
		for _, k := range pg.keys {
			ev, err := k.partition.event(k.partition.state.opts.DB, k.namespace, k.entity, k.check)
			if errors.Is(err, ErrNotFound) {
				continue
			}
			if !yield(ev, err) || err != nil {
				return
			}
		}
	}
}

// Select finds newest events. Memory answers terms about names, status, state and other figures of the fold,
// is_silenced, the whole entity, and labels. For other fields it reads the events, which takes a thousand times as
// long.
func (s *State) Select(ctx context.Context, query Query) (*Page, error) {
	begin := time.Now()
	parts := s.parts
	if query.Namespace != "" && query.Entity != "" {
		parts = parts[s.opts.Log.Partition(query.Namespace, query.Entity):][:1]
	}
	found := make([][]eventKey, len(parts))
	errs := make([]error, len(parts))
	now := begin.Unix()
	var searching sync.WaitGroup
	for i, p := range parts {
		sc := newScan(p, query, now)
		if i == len(parts)-1 {
			found[i], errs[i] = sc.run(ctx)
			break
		}
		searching.Go(func() { found[i], errs[i] = sc.run(ctx) })
	}
	searching.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	keys := merge(found)
	s.metrics.searchSeconds.Observe(time.Since(begin).Seconds())
	page := &Page{keys: keys}
	if query.Limit > 0 && len(keys) > query.Limit {
		page.keys = keys[:query.Limit]
		page.Next = page.keys[query.Limit-1].token()
	}
	return page, nil
}

// merge merges ordered lists into one.
func merge(lists [][]eventKey) []eventKey {
	if len(lists) == 1 {
		return lists[0]
	}
	n := 0
	for _, l := range lists {
		n += len(l)
	}
	out := make([]eventKey, 0, n)
	for len(out) < n {
		first := -1
		for i, l := range lists {
			if len(l) > 0 && (first < 0 || compareKeys(l[0], lists[first][0]) < 0) {
				first = i
			}
		}
		out = append(out, lists[first][0])
		lists[first] = lists[first][1:]
	}
	return out
}

type eventKey struct {
	partition                *partition
	namespace, entity, check string
}

func compareKeys(a, b eventKey) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.entity, b.entity), cmp.Compare(a.check, b.check))
}

// token returns the token of a page that begins behind this key.
func (k eventKey) token() string {
	return strings.Join([]string{k.namespace, k.entity, k.check}, "\x00")
}

// keyOf decodes a token.
func keyOf(token string) (k eventKey, ok bool) {
	parts := strings.Split(token, "\x00")
	if len(parts) != 3 {
		return k, false
	}
	return eventKey{namespace: parts[0], entity: parts[1], check: parts[2]}, true
}

const (
	// scanOrdered is how many pairs a scan visits in order before it may visit the others as they lie in memory. In
	// order it can stop early, but each pair costs a jump in memory.
	scanOrdered = 10_000
	// scanSteps is how many steps that takes, each of some entities; between steps the fold goes on.
	scanSteps = 40
)

// scan searches one partition.
type scan struct {
	p     *partition
	query Query
	q     *question
	from  eventKey // start behind this key
	begun bool     // from is set
	limit int      // how many keys are enough
	order int      // how many pairs to visit in order

	keys     []eventKey // found so far
	doubtful []eventKey // their events must be read
	examined int
	read     int
	pairs    int                // number of pairs in the partition
	inRange  []selector.Verdict // by entity
	renamed  uint64             // partition.renamed when inRange was filled
}

func newScan(p *partition, query Query, now int64) *scan {
	sc := &scan{p: p, query: query, q: newQuestion(p, query.Selector, now), limit: math.MaxInt, order: p.state.scanOrdered}
	if query.Limit > 0 {
		sc.limit = query.Limit + 1 // one more shows that there is another page
	}
	sc.from, sc.begun = keyOf(query.After)
	return sc
}

// run returns the keys in order: all matches, or as many as are enough.
func (sc *scan) run(ctx context.Context) ([]eventKey, error) {
	start, end := sc.start(), false
	for !end {
		var err error
		if start, end, err = sc.step(ctx, start); err != nil {
			return nil, err
		}
		if len(sc.keys) >= sc.limit {
			return sc.keys, nil
		}
		if !end && (sc.query.Selector != nil || sc.query.Where != nil) && sc.examined >= sc.order && sc.far() && sc.read < sc.examined/10 {
			return sc.keys, sc.sweep(ctx, start)
		}
	}
	return sc.keys, nil
}

// far reports whether, at the present rate, enough keys will be found only after a good part of all pairs. One pair in
// order costs about as much as four as they lie in memory.
func (sc *scan) far() bool {
	return float64(sc.examined)*float64(sc.limit) > float64(sc.pairs)/4*float64(len(sc.keys))
}

// start returns the key of the first entity to visit.
func (sc *scan) start() string {
	start := sc.query.Namespace
	if sc.query.Namespace != "" && sc.query.Entity != "" {
		start += "\x00" + sc.query.Entity
	}
	if sc.begun {
		start = max(start, sc.from.namespace+"\x00"+sc.from.entity)
	}
	return start
}

// step visits some entities in order, from the one with the given key on. It returns the key of the next one.
func (sc *scan) step(ctx context.Context, start string) (next string, end bool, err error) {
	p, before := sc.p, len(sc.keys)
	sure := before // keys up to here need no reading
	entities := 0
	end = true
	p.mu.Lock()
	sc.pairs = p.count
	p.ordered.Ascend(start, func(key string, i uint32) bool {
		e := &p.entities[i]
		if sc.query.Namespace != "" && e.namespace != sc.query.Namespace {
			return e.namespace < sc.query.Namespace
		}
		if entities > sc.order/scanSteps || len(sc.keys)+len(sc.doubtful) >= sc.limit {
			next, end = key, false
			return false
		}
		entities++
		if sc.query.Entity != "" && e.name != sc.query.Entity {
			return sc.query.Namespace == "" || e.name < sc.query.Entity
		}
		for slot := e.first; slot != 0; slot = p.at(slot - 1).next {
			sc.consider(slot - 1)
		}
		slices.SortFunc(sc.keys[sure:], compareKeys)
		sure = len(sc.keys)
		return true
	})
	p.mu.Unlock()
	return next, end, sc.settle(ctx, before)
}

// consider decides about the pair in a slot. The caller holds mu.
func (sc *scan) consider(slot uint32) {
	pr := sc.p.at(slot)
	sc.examined++
	v := sc.q.decide(slot, pr)
	if v == selector.Yes && sc.query.Where != nil {
		if !sc.q.describe() {
			v = selector.Unknown
		} else if !sc.query.Where(&sc.q.subject) {
			v = selector.No
		}
	}
	if v == selector.No {
		return
	}
	e := &sc.p.entities[pr.entity]
	k := eventKey{sc.p, e.namespace, e.name, sc.p.checks.name(pr.check)}
	if sc.begun && compareKeys(k, sc.from) <= 0 {
		return
	}
	if v == selector.Yes {
		sc.keys = append(sc.keys, k)
	} else {
		sc.doubtful = append(sc.doubtful, k)
	}
}

// settle reads the events of doubtful keys, and merges the selected ones into the keys from index before on.
func (sc *scan) settle(ctx context.Context, before int) error {
	if len(sc.doubtful) == 0 {
		return ctx.Err()
	}
	slices.SortFunc(sc.doubtful, compareKeys)
	from, err := newWalk(sc.p)
	if err != nil {
		return err
	}
	defer from.it.Close()
	for _, k := range sc.doubtful {
		if err := ctx.Err(); err != nil {
			return err
		}
		sc.read++
		ev, err := sc.p.lookAt(from, k)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if sc.query.Selector.Decide(func(i int) selector.Verdict {
			return verdict(sc.q.terms[i].term.Match(selector.Event(ev), sc.q.now))
		}) == selector.Yes && sc.where(k, ev) {
			sc.keys = append(sc.keys, k)
		}
	}
	sc.doubtful = sc.doubtful[:0]
	slices.SortFunc(sc.keys[before:], compareKeys)
	return nil
}

// where calls the query's Where for an event.
func (sc *scan) where(k eventKey, ev *resource.Event) bool {
	if sc.query.Where == nil {
		return true
	}
	cfg, _ := sc.p.state.opts.Entity(k.namespace, k.entity)
	return ev.Check != nil && sc.query.Where(resource.SilenceableOf(ev, cfg))
}

// lookAt reads an event whose answer is not in memory, and remembers its traits for the next search.
func (p *partition) lookAt(from store, k eventKey) (*resource.Event, error) {
	ev, err := p.event(from, k.namespace, k.entity, k.check)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	slot, ok := p.find(k.namespace, k.entity, k.check)
	known := !ok || p.at(slot).traits != 0
	p.mu.Unlock()
	if !known {
		body := *ev
		body.Entity = nil
		p.learnOne(k.namespace, k.entity, k.check, body.AppendProto(nil))
	}
	return ev, nil
}

// walk is a store for reading many bodies in the order of their keys, which costs a fraction of single reads. It has
// the bodies as of its creation.
type walk struct {
	db *pebble.DB
	it *pebble.Iterator
}

func newWalk(p *partition) (*walk, error) {
	it, err := p.state.opts.DB.NewIter(&pebble.IterOptions{LowerBound: []byte{'b', byte(p.id)}, UpperBound: []byte{'b', byte(p.id) + 1}})
	if err != nil {
		return nil, fmt.Errorf("read events of partition %d: %w", p.id, err)
	}
	return &walk{p.state.opts.DB, it}, nil
}

func (w *walk) Get(key []byte) ([]byte, io.Closer, error) {
	if !w.it.SeekGE(key) || !bytes.Equal(w.it.Key(), key) {
		return w.db.Get(key) // it may exist now; Get returns errors, too
	}
	value, err := w.it.ValueAndErr()
	return value, w, err
}

// Close does nothing: the iterator owns the value.
func (w *walk) Close() error { return nil }

// sweep visits all pairs as they lie in memory, of entities from the given key on, and keeps the first keys.
func (sc *scan) sweep(ctx context.Context, start string) error {
	p, before := sc.p, len(sc.keys)
	for first := uint32(0); ; first += chunkLen {
		p.mu.Lock()
		last := min(first+chunkLen, p.used)
		for slot := first; slot < last; slot++ {
			if pr := p.at(slot); pr.flags&pairUsed != 0 && sc.covers(pr.entity, start) {
				sc.consider(slot)
			}
		}
		p.mu.Unlock()
		if err := sc.settle(ctx, before); err != nil {
			return err
		}
		if sc.query.Limit > 0 && len(sc.keys) > before+2*sc.limit {
			sc.cut(before)
		}
		if first >= last {
			break
		}
	}
	sc.cut(before)
	return nil
}

// cut sorts the keys from index before on and drops those beyond the limit. A pair that was deleted and added again
// during the scan may be there twice.
func (sc *scan) cut(before int) {
	found := sc.keys[before:]
	slices.SortFunc(found, compareKeys)
	found = slices.Compact(found)
	sc.keys = sc.keys[:min(before+len(found), sc.limit)]
}

// covers reports whether an entity is in the query's range, from the given key on.
func (sc *scan) covers(entity uint32, start string) bool {
	if sc.renamed != sc.p.renamed {
		sc.renamed = sc.p.renamed
		clear(sc.inRange)
	}
	known := remembered(&sc.inRange, entity)
	if *known == selector.Unknown {
		e := &sc.p.entities[entity]
		*known = verdict((sc.query.Namespace == "" || e.namespace == sc.query.Namespace) &&
			(sc.query.Entity == "" || e.name == sc.query.Entity) &&
			e.namespace+"\x00"+e.name >= start)
	}
	return *known == selector.Yes
}
