package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// Sample is a point of a series.
type Sample struct {
	Series *Series
	Time   int64 // Unix time in milliseconds
	Value  float64
}

// groupSize is how many samples are appended between two commits while more are queued.
const groupSize = 5000

// shard appends the points of its series, in the order in which they were put.
type shard struct {
	store *Store
	id    int

	qmu      sync.Mutex
	pending  []Sample      // guarded by qmu
	busy     bool          // guarded by qmu: the goroutine appends samples that are no longer in pending
	space    chan struct{} // guarded by qmu: closed when pending has been taken; nil if no Put waits
	idle     chan struct{} // guarded by qmu: closed when nothing is pending or busy; nil if nothing waits
	queued   uint64        // guarded by qmu: samples that were ever put into pending
	handled  uint64        // guarded by qmu: those of queued whose group is committed
	moved    chan struct{} // guarded by qmu: closed when handled has grown; nil if nothing waits
	released bool          // guarded by qmu: the goroutine has ended
	wake     chan struct{}

	// mu guards the states of the shard's series and all below. It is held while a group is appended and committed, so
	// everything that a holder sees of a series' levels is readable in the tiers.
	mu      sync.Mutex
	series  []*Series
	apps    []storage.Appender // by tier; nil if nothing is appended in the present group
	written []int              // samples in apps
	labels  func(name string) labels.Labels
	// late has the ms offset of the newest sample of a second (or of a slot of a coarse tier), for those that were
	// written late or more than once lately. probed are the spans of late seconds that have been looked up in the tiers.
	// When one of them is full, both become the older ones, and what the older ones had is forgotten. So a slot that gets
	// points is not. forgets is how often that has happened.
	late, lateBefore     map[lateKey]int64
	probed, probedBefore map[lateKey]struct{}
	forgets              int
	// wrong are the coarse slots that must be computed again, by level.
	// The value is true while the corrector computes it; a change meanwhile makes it false again.
	wrong [maxArchives]map[slotKey]bool
	// marks are those of wrong that the journal does not have yet; the last one is of the series marked.
	marks  []byte
	marked *Series
}

type lateKey struct {
	series *Series
	second int64
	level  int32
}

type slotKey struct {
	series *Series
	slot   int64
}

// probeSlots is how many seconds or slots, one step apart, a look into a tier covers: a chunk of the TSDB, which is
// decoded as a whole, has up to four times as many.
const probeSlots = 120

func newShard(s *Store, id int) *shard {
	return &shard{store: s, id: id, wake: make(chan struct{}, 1), labels: labelsOf, late: map[lateKey]int64{},
		probed: map[lateKey]struct{}{}}
}

// Put queues samples whose series have the given shard. It copies them and waits while the queue is full: that is the
// back pressure on senders. After it has returned an error, some of the samples may be queued.
func (s *Store) Put(ctx context.Context, shard int, samples []Sample) error {
	if shard < 0 || shard >= len(s.shards) {
		return fmt.Errorf("put points: shard %d of %d", shard, len(s.shards))
	}
	sh := s.shards[shard]
	for len(samples) > 0 {
		n, space, err := sh.push(samples, true)
		if err != nil {
			return err
		}
		if samples = samples[n:]; len(samples) == 0 {
			break
		}
		select {
		case <-space:
		case <-ctx.Done():
			s.counts.unqueued.Add(int64(len(samples)))
			return fmt.Errorf("put points: queue is full: %w", ctx.Err())
		}
	}
	return nil
}

// TryPut is Put for senders that cannot be slowed down. It reports false, and queues nothing, if there is no room for
// all.
func (s *Store) TryPut(shard int, samples []Sample) bool {
	if shard < 0 || shard >= len(s.shards) {
		return false
	}
	n, _, err := s.shards[shard].push(samples, false)
	if err != nil || n < len(samples) {
		s.counts.unqueued.Add(int64(len(samples)))
		return false
	}
	return true
}

// push queues as many samples as there is room for, or all or none unless part. If some are left it returns what to
// wait for.
func (sh *shard) push(samples []Sample, part bool) (n int, space <-chan struct{}, err error) {
	sh.qmu.Lock()
	defer sh.qmu.Unlock()
	if sh.released || sh.store.done.Load() {
		return 0, nil, ErrStopped
	}
	room := sh.store.o.QueueSamples - len(sh.pending)
	if n = min(room, len(samples)); n < len(samples) {
		if !part {
			return 0, nil, nil
		}
		if sh.space == nil {
			sh.space = make(chan struct{})
		}
		space = sh.space
	}
	if n > 0 {
		sh.pending = append(sh.pending, samples[:n]...)
		sh.queued += uint64(n)
		sh.signal()
	}
	return n, space, nil
}

func (sh *shard) signal() {
	select {
	case sh.wake <- struct{}{}:
	default:
	}
}

func (sh *shard) run() {
	var spare []Sample
	for {
		batch := sh.take(spare)
		if len(batch) == 0 {
			select {
			case <-sh.wake:
				continue
			case <-sh.store.ctx.Done():
				return
			}
		}
		for rest := batch; len(rest) > 0; {
			n := min(len(rest), groupSize)
			sh.put(rest[:n])
			sh.handle(n)
			rest = rest[n:]
			if sh.store.ctx.Err() != nil {
				return
			}
		}
		clear(batch)
		spare = batch[:0]
	}
}

// take returns what is pending and leaves spare in its place.
func (sh *shard) take(spare []Sample) []Sample {
	sh.qmu.Lock()
	defer sh.qmu.Unlock()
	if len(sh.pending) == 0 {
		sh.busy = false
		if sh.idle != nil {
			close(sh.idle)
			sh.idle = nil
		}
		return nil
	}
	batch := sh.pending
	sh.pending = spare
	sh.busy = true
	if sh.space != nil {
		close(sh.space)
		sh.space = nil
	}
	return batch
}

// handle notes that n more samples are committed, or refused.
func (sh *shard) handle(n int) {
	sh.qmu.Lock()
	defer sh.qmu.Unlock()
	sh.handled += uint64(n)
	if sh.moved != nil {
		close(sh.moved)
		sh.moved = nil
	}
}

// Settle returns when all samples are committed whose Put has returned before: a kill of the process does not lose them.
func (s *Store) Settle(ctx context.Context) error {
	for _, sh := range s.shards {
		if err := sh.settle(ctx); err != nil {
			return fmt.Errorf("wait until points are committed: %w", err)
		}
	}
	return nil
}

func (sh *shard) settle(ctx context.Context) error {
	sh.qmu.Lock()
	defer sh.qmu.Unlock()
	for mark := sh.queued; sh.handled < mark; {
		if sh.moved == nil {
			sh.moved = make(chan struct{})
		}
		moved := sh.moved
		sh.qmu.Unlock()
		var err error
		select {
		case <-moved:
		case <-ctx.Done():
			err = ctx.Err()
		case <-sh.store.ctx.Done():
			err = ErrStopped
		}
		sh.qmu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}

// drain waits until all that was queued is appended.
func (sh *shard) drain(ctx context.Context) error {
	for {
		sh.qmu.Lock()
		if len(sh.pending) == 0 && !sh.busy {
			sh.qmu.Unlock()
			return nil
		}
		if sh.idle == nil {
			sh.idle = make(chan struct{})
		}
		idle := sh.idle
		sh.qmu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// releaseWaiters lets blocked Puts return ErrStopped.
func (sh *shard) releaseWaiters() {
	sh.qmu.Lock()
	defer sh.qmu.Unlock()
	sh.released = true
	if sh.space != nil {
		close(sh.space)
		sh.space = nil
	}
}

func (sh *shard) waiting() int {
	sh.qmu.Lock()
	defer sh.qmu.Unlock()
	return len(sh.pending)
}

// tally counts a group's samples, so that the shared counters are touched once a group.
type tally struct {
	points, nan, future, tooOld, tooLate, late, rewritten, failed, wrongLost, closedLost int64
}

// put appends a group of samples and commits them.
func (sh *shard) put(samples []Sample) {
	s := sh.store
	if s.full.Load() {
		s.counts.diskFull.Add(int64(len(samples)))
		return
	}
	var n tally
	now := s.now()
	future := now*1000 + s.o.MaxFuture.Milliseconds()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for i := range samples {
		sm := &samples[i]
		se := sm.Series
		switch {
		case se == nil || int(se.shard) != sh.id:
			n.failed++ // an error of the caller: another shard may be using the series
			continue
		case math.IsNaN(sm.Value):
			n.nan++
			continue
		case sm.Time > future:
			n.future++
			continue
		case sm.Time < 1000:
			n.tooOld++
			continue
		}
		if se.closed {
			// This is rare: the series was closed while its samples were queued.
			if se = sh.reopened(se, &n); se == nil {
				n.closedLost++
				continue
			}
		}
		se.seen = now
		sh.sample(se, sm.Time, sm.Value, now, &n)
	}
	sh.commit(&n)
	s.counts.add(&n)
}

// betweenGroups returns when the present group is committed.
func (sh *shard) betweenGroups() {
	sh.mu.Lock() // it is held from the begin of a group to its commit
	defer sh.mu.Unlock()
}

// reopened returns the series that has the name of a closed one. It commits the group so far and gives up its lock
// meanwhile, because Open may take the locks of plans and of the shard.
func (sh *shard) reopened(old *Series, n *tally) *Series {
	sh.commit(n)
	for range 100 { // the new one may be closed too before the lock is back
		sh.mu.Unlock()
		se, err := sh.store.Open(old.name)
		sh.mu.Lock()
		if err != nil {
			return nil
		}
		if !se.closed {
			return se
		}
	}
	return nil
}

// sample appends one sample in its finest archive, and rolls it up.
func (sh *shard) sample(se *Series, t int64, v float64, now int64, n *tally) {
	p := se.plan
	sec := t / 1000
	k := 0
	if age := now - sec; age > p.Archives[0].Retention() {
		for k = 1; k < len(p.Archives) && age > p.Archives[k].Retention(); k++ {
		}
		if k == len(p.Archives) {
			n.tooOld++
			return
		}
		sh.older(se, k, series.Floor(sec, p.Archives[k].Step), v, now, n)
		return
	}
	l := &se.levels[0]
	if l.ref == 0 {
		sh.register(se)
	}
	if t <= se.doubt && !se.sure {
		sh.makeSure(se)
	}
	switch {
	case t > se.last && t > se.doubt:
		// The normal case: a later point.
	case t > se.last && sec*1000 > se.last:
		// It is the first in its second that this process sees, but the tier may have one.
		if sh.earlier(se, 0, sec) {
			t = max(t, sh.lateTime(se, 0, sec, now))
		} else {
			t = max(t, sec*1000+offset(now-sec))
		}
	case sec == se.last/1000:
		n.rewritten++
		if v == se.newest { // it comes again, for example from a relay that was not sure
			n.points++
			return
		}
		if t = max(t, se.last+1); t/1000 != sec {
			n.failed++ // a thousand values for one second
			return
		}
		if ms := t - sec*1000; ms >= offset(now-sec) { // else a later arrival has a larger one
			sh.noteLate(lateKey{se, sec, 0}, ms)
		}
	default:
		n.late++
		t = sh.lateTime(se, 0, sec, now)
	}
	if !sh.append(se, 0, t, v, n) {
		return
	}
	if t > se.last {
		se.last, se.newest = t, v
	}
	if len(p.tiers) > 1 {
		sh.roll(se, sec, t == se.last, v, n)
	}
	n.points++
}

// older writes a point that only coarser archives cover.
func (sh *shard) older(se *Series, k int, slot int64, v float64, now int64, n *tally) {
	n.late++
	if sh.append(se, k, sh.lateTime(se, k, slot, now), v, n) {
		n.points++
		if k+1 < len(se.levels) {
			sh.outdated(se, k+1, slot, n)
		}
	}
}

// lateTime returns the time in ms of a sample that is not the newest of its series. Samples of one second differ in
// their ms, which grow with the time of arrival, so that the last one to arrive is the last in time. In a coarse tier
// sec is a slot, and its samples may use all of the slot's time.
func (sh *shard) lateTime(se *Series, k int, sec, now int64) int64 {
	key := lateKey{se, sec, int32(k)}
	before, ok := sh.noted(key)
	if !ok && (sh.earlier(se, k, sec) || k > 0 && sh.forgets > 0) { // a coarse slot may have many samples
		before = sh.probe(se, k, sec)
	}
	ms := offset(now - sec)
	if ms <= before {
		ms = min(before+1, sh.lastMs(se, k))
	}
	sh.noteLate(key, ms)
	return sec*1000 + ms
}

// lastMs returns the largest ms offset of a sample of level k.
func (sh *shard) lastMs(se *Series, k int) int64 {
	if k == 0 {
		return 999
	}
	return se.plan.Archives[k].Step*1000 - 1
}

// noted returns the ms offset of the newest sample of a second or slot, if the shard has not forgotten it.
func (sh *shard) noted(key lateKey) (ms int64, ok bool) {
	if ms, ok = sh.late[key]; !ok {
		ms, ok = sh.lateBefore[key]
	}
	return ms, ok
}

func (sh *shard) noteLate(key lateKey, ms int64) {
	if len(sh.late) >= sh.store.o.maxLate/2 {
		sh.forget()
	}
	sh.late[key] = ms
}

func (sh *shard) forget() {
	if len(sh.lateBefore) > 0 {
		sh.forgets++
	}
	sh.lateBefore, sh.late = sh.late, map[lateKey]int64{}
	sh.probedBefore, sh.probed = sh.probed, map[lateKey]struct{}{}
}

// earlier reports whether the tier of level k may have samples of a second or slot that late does not know, because
// they are from before the start of the process or from before Open.
func (sh *shard) earlier(se *Series, k int, sec int64) bool {
	if k == 0 {
		return sec*1000 <= se.doubt
	}
	return sec*1000 <= max(se.doubt, se.plan.tiers[k].startMax)
}

// probe returns the ms offset of the newest sample that the tier of level k has of a second or slot, and 0 if it has
// none. It reads a span of them at once and keeps what it finds in late, so the next seconds of a backfill cost
// nothing.
func (sh *shard) probe(se *Series, k int, sec int64) int64 {
	p, t := se.plan, se.plan.tiers[k]
	step := p.Archives[k].Step
	from := series.Floor(sec, probeSlots*step)
	span := lateKey{se, from, int32(k)}
	_, now := sh.probed[span]
	if _, before := sh.probedBefore[span]; now || before {
		return 0 // it would be in late
	}
	if len(sh.probed) >= sh.store.o.maxLate/2 {
		sh.forget()
	}
	sh.probed[span] = struct{}{}
	unit := int64(1)
	if k > 0 {
		unit = step
	}
	var newest int64
	err := t.read(sh.store.ctx, []string{se.name}, from, from+probeSlots*step, func(_ int, ms int64, _ float64) {
		at := series.Floor(ms/1000, unit)
		if ms -= at * 1000; at == sec {
			newest = ms
		}
		key := lateKey{se, at, int32(k)}
		if had, _ := sh.noted(key); ms > had {
			sh.noteLate(key, ms)
		}
	})
	if err != nil && sh.store.ctx.Err() == nil {
		sh.store.rare.Error("cannot look up earlier values of late points, they may stay", t.name(), "tier", t.name(),
			"err", err)
	}
	return newest
}

// offset returns the ms for a sample that arrives lateness seconds after its second: from 1 to 999, and never less
// for a later arrival. Up to 500 s each second of lateness has its own; beyond, each step is 2.7 % of the lateness,
// up to ten years.
func offset(lateness int64) int64 {
	switch {
	case lateness <= 1:
		return 1
	case lateness <= 500:
		return lateness
	}
	return min(999, 500+int64(math.Log(float64(lateness)/500)/math.Log(315_360_000.0/500)*499))
}

// register looks whether the finest tier has the series from before Open, and until when its samples may be there.
func (sh *shard) register(se *Series) {
	t := se.plan.tiers[0]
	lset := sh.labels(se.name)
	known := false
	if g, ok := sh.appender(t).(storage.GetRef); ok {
		if ref, _ := g.GetRef(lset, lset.Hash()); ref != 0 {
			known, se.levels[0].ref = true, ref
		}
	}
	head := t.db.Head()
	if known {
		se.doubt = max(head.MaxTime(), se.doubt)
		return
	}
	blocks := t.db.Blocks()
	if len(blocks) == 0 {
		se.opened = math.MinInt64
		return
	}
	// A series that the head has not seen has no points that are younger than the head's oldest, unless an import has. The
	// head may be empty.
	if oldest := head.MinTime(); oldest != math.MaxInt64 {
		se.opened = min(se.opened, oldest/1000)
		se.doubt = max(oldest, se.doubt)
	}
	for _, b := range blocks {
		se.doubt = max(b.MaxTime(), se.doubt)
	}
}

// makeSure looks up the newest sample of a series, once for each series whose points are older than those of others. That
// is cheaper than to look up each of its seconds.
func (sh *shard) makeSure(se *Series) {
	se.sure = true
	t := se.plan.tiers[0]
	newest, err := t.newest(sh.store.ctx, se.levels[0].ref, sh.labels(se.name))
	if err == nil {
		se.doubt = min(se.doubt, newest)
	} else if sh.store.ctx.Err() == nil {
		sh.store.rare.Warn("cannot look up the newest point of a series, so each of its earlier seconds is looked up", t.name(),
			"tier", t.name(), "err", err)
	}
}

func (sh *shard) appender(t *tier) storage.Appender {
	for len(sh.apps) <= t.id {
		sh.apps = append(sh.apps, nil)
		sh.written = append(sh.written, 0)
	}
	a := sh.apps[t.id]
	if a == nil {
		a = t.db.Appender(sh.store.ctx)
		sh.apps[t.id] = a
	}
	return a
}

// append appends to the tier of level k and reports whether it was accepted.
func (sh *shard) append(se *Series, k int, t int64, v float64, n *tally) bool {
	tr := se.plan.tiers[k]
	l := &se.levels[k]
	app := sh.appender(tr)
	var ref storage.SeriesRef
	err := error(tsdb.ErrInvalidSample)
	if l.ref != 0 {
		ref, err = app.Append(l.ref, labels.EmptyLabels(), t, v)
	}
	if err != nil && errors.Is(err, tsdb.ErrInvalidSample) {
		// The head has no series of this reference: it is new, or was idle so long that the head dropped it.
		tr.creating.Lock()
		ref, err = app.Append(0, sh.labels(se.name), t, v)
		tr.creating.Unlock()
	}
	if err != nil {
		switch {
		case errors.Is(err, storage.ErrTooOldSample), errors.Is(err, storage.ErrOutOfBounds),
			errors.Is(err, storage.ErrOutOfOrderSample):
			n.tooLate++
		default:
			n.failed++
			sh.store.rare.Error("cannot append a metric's point", tr.name(), "tier", tr.name(), "err", err)
		}
		return false
	}
	l.ref = ref
	sh.written[tr.id]++
	return true
}

// commit makes all that was appended readable and writes it to the logs, after the marks of what it makes wrong.
func (sh *shard) commit(n *tally) {
	sh.writeMarks()
	for id, app := range sh.apps {
		if app == nil {
			continue
		}
		sh.apps[id] = nil
		samples := sh.written[id]
		sh.written[id] = 0
		(*sh.store.tiers.Load())[id].touched.Store(sh.store.o.Now().UnixMilli())
		if err := app.Commit(); err != nil {
			n.failed += int64(samples)
			t := (*sh.store.tiers.Load())[id]
			sh.store.rare.Error("cannot write metric points, they are dropped", t.name(), "tier", t.name(), "points", samples,
				"err", err)
			sh.store.checkDisk()
		}
	}
}

func (sh *shard) add(se *Series) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !se.closed {
		se.index = int32(len(sh.series))
		sh.series = append(sh.series, se)
	}
}

func (sh *shard) remove(se *Series) (bytes int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var n tally
	sh.closeSeries(se, math.MaxInt64, &n)
	sh.commit(&n)
	sh.store.counts.add(&n)
	se.closed = true
	if se.index < 0 {
		return se.size() // add has not run yet, and will not add it
	}
	last := len(sh.series) - 1
	sh.series[se.index] = sh.series[last]
	sh.series[se.index].index = se.index
	sh.series[last] = nil
	sh.series = sh.series[:last]
	return se.size()
}

// each calls f for all series, in portions so that the lock is never held for long. Series that are closed meanwhile
// may make it miss others once.
func (sh *shard) each(f func(*Series)) {
	const portion = 2048
	for from := 0; ; from += portion {
		sh.mu.Lock()
		to := min(from+portion, len(sh.series))
		for i := from; i < to; i++ {
			f(sh.series[i])
		}
		end := to == len(sh.series)
		sh.mu.Unlock()
		if end {
			return
		}
	}
}

// replan gives the series the archives of another plan.
func (sh *shard) replan(se *Series, p *plan) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if se.closed || se.plan == p {
		return
	}
	if planKey(se.plan.Policy) == planKey(p.Policy) {
		se.plan = p
		return
	}
	var n tally
	sh.closeSeries(se, math.MaxInt64, &n)
	sh.commit(&n)
	sh.store.counts.add(&n)
	sh.store.bytes.Add(levelBytes * int64(len(p.tiers)-len(se.levels)))
	finest := se.plan.tiers[0] == p.tiers[0]
	ref := se.levels[0].ref
	se.plan = p
	se.levels = make([]level, len(p.tiers))
	for k := range se.levels {
		se.levels[k].slot = noSlot
	}
	se.opened = sh.store.now()
	if finest {
		se.levels[0].ref = ref
	} else {
		se.last, se.doubt, se.sure = 0, 0, false
	}
}
