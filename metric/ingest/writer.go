package ingest

import (
	"cmp"
	"context"
	"errors"

	"github.com/lapwing-monitoring/lapwing/metric/allow"
	"github.com/lapwing-monitoring/lapwing/metric/carbon"
	"github.com/lapwing-monitoring/lapwing/metric/member"
	"github.com/lapwing-monitoring/lapwing/metric/store"
)

// batchSize is how many samples go to a shard at a time.
const batchSize = 1024

// Writer takes the points of one sender. It is not for concurrent use.
type Writer struct {
	table   *Table
	drop    bool
	kind    kind
	passed  bool // a point went to another member since the last Finish
	ctx     context.Context
	cancel  context.CancelFunc
	last    *route
	batches [][]store.Sample // one for each shard of the store
	// counts since the last Flush, so that the counters are touched once a batch
	points  int
	refused [refusals]int
	dropped int
}

// Writer returns a Writer whose Flush waits for room, until ctx ends. The caller must call Close.
func (t *Table) Writer(ctx context.Context) *Writer { return t.writer(ctx, false) }

// Emitter returns a Writer for points that the server makes itself, to which no rules apply.
func (t *Table) Emitter(ctx context.Context) *Writer {
	w := t.writer(ctx, false)
	w.kind = fromHere
	return w
}

// Received takes points of other members. It implements member.Sink.
type Received struct{ w *Writer }

// Received returns a sink for points of another member, whose Flush waits for room until ctx ends.
func (t *Table) Received(ctx context.Context) *Received { return &Received{t.writer(ctx, false)} }

// Add implements member.Sink. The points do not count as points of senders: another member has counted them.
func (s *Received) Add(name []byte, use member.Use, unixMilli int64, value float64) error {
	r := s.w.route(name, fromMember+kind(use))
	if r.refused != taken {
		s.w.refused[r.refused]++
		return nil
	}
	for _, in := range r.inputs {
		in.Add(unixMilli/1000, value)
	}
	if r.series == nil {
		return nil
	}
	return s.w.store(store.Sample{Series: r.series, Time: unixMilli, Value: value})
}

// errFull is the answer to a member while points would be dropped: it keeps them.
var errFull = errors.New("the disk of the store is full")

// Flush implements member.Sink. The other member forgets the points then, so they must outlive a kill of this process.
func (s *Received) Flush() error {
	if err := s.w.Flush(); err != nil {
		return err
	}
	t := s.w.table
	if t.opts.Store == nil {
		return nil
	}
	if t.opts.Store.Full() {
		return errFull
	}
	return t.opts.Store.Settle(s.w.ctx)
}

// Close implements member.Sink.
func (s *Received) Close() error { return s.w.Close() }

// Dropper returns a Writer that never waits: it drops what has no room.
func (t *Table) Dropper() *Writer { return t.writer(context.Background(), true) }

func (t *Table) writer(ctx context.Context, drop bool) *Writer {
	w := &Writer{table: t, drop: drop}
	w.ctx, w.cancel = context.WithCancel(ctx)
	if t.opts.Store != nil {
		w.batches = make([][]store.Sample, t.opts.Store.Shards())
	}
	return w
}

// ErrRefused is returned for a point whose name is not taken.
var ErrRefused = errors.New("the name is not taken")

// Add takes a point. It may wait for room in the store's queues. It does not keep name.
func (w *Writer) Add(name []byte, unixMilli int64, value float64) error {
	r := w.route(name, w.kind)
	w.points++
	if r.refused != taken {
		w.refused[r.refused]++
		return ErrRefused
	}
	for _, in := range r.inputs {
		in.Add(unixMilli/1000, value)
	}
	for _, d := range r.dests {
		d.Add(r.wire, unixMilli/1000, value)
	}
	for i := range r.members {
		f := &r.members[i]
		f.to.Add(f.name, f.use, unixMilli, value)
		w.passed = true
	}
	if r.kept {
		for _, to := range w.table.opts.Remote {
			to.Add(r.wire, unixMilli, value)
		}
	}
	if r.series == nil {
		return nil
	}
	return w.store(store.Sample{Series: r.series, Time: unixMilli, Value: value})
}

// route finds a name's route: the one that followed the last route the last time, or the table's.
func (w *Writer) route(name []byte, k kind) *route {
	if w.last != nil {
		if next := w.last.next.Load(); next != nil && next.name == string(name) && next.kind == k &&
			next.generation.Load() == w.table.generation.Load() {
			w.last = next
			return w.saw(next)
		}
	}
	r := w.table.find(name, k)
	if r.refused == tooMany { // the table does not keep it, so no other route may
		return r
	}
	if w.last != nil {
		w.last.next.Store(r)
	}
	w.last = r
	return w.saw(r)
}

// saw notes that a route had a point.
func (w *Writer) saw(r *route) *route {
	if epoch := w.table.epoch.Load(); r.seen.Load() != epoch {
		r.seen.Store(epoch)
	}
	return r
}

func (w *Writer) store(s store.Sample) error {
	shard := s.Series.Shard()
	w.batches[shard] = append(w.batches[shard], s)
	if len(w.batches[shard]) >= batchSize {
		return w.put(shard)
	}
	return nil
}

// put hands a shard's batch over; the store copies it.
func (w *Writer) put(shard int) error {
	batch := w.batches[shard]
	w.batches[shard] = batch[:0]
	if !w.drop {
		return w.table.opts.Store.Put(w.ctx, shard, batch)
	}
	if !w.table.opts.Store.TryPut(shard, batch) {
		w.dropped += len(batch)
	}
	return nil
}

// Flush hands all points over to the store. A Writer that does not wait drops what has no room, and counts it.
func (w *Writer) Flush() error {
	var failed error
	for shard, batch := range w.batches {
		if len(batch) > 0 {
			failed = cmp.Or(failed, w.put(shard))
		}
	}
	w.count()
	if w.passed && !w.drop && w.table.opts.Room != nil {
		failed = cmp.Or(failed, w.table.opts.Room(w.ctx))
	}
	return failed
}

// Finish waits, after Flush, until the points are safe: the store has committed them, and other members have theirs, or
// they are on disk for them. So a sender that sees its connection closed in order knows that a kill of this process
// loses none of its points.
func (w *Writer) Finish() error {
	if s := w.table.opts.Store; s != nil {
		if err := s.Settle(w.ctx); err != nil {
			return err
		}
	}
	if !w.passed || w.table.opts.Settle == nil {
		return nil
	}
	w.passed = false
	return w.table.opts.Settle(w.ctx)
}

// Dropped returns how many points were dropped since the last call.
func (w *Writer) Dropped() int {
	n := w.dropped
	w.dropped = 0
	return n
}

func (w *Writer) count() {
	m := w.table.metrics
	m.points.Add(float64(w.points))
	w.points = 0
	for why, n := range w.refused {
		if n > 0 {
			m.refused[why].Add(float64(n))
			w.refused[why] = 0
			if v := verdicts[why]; v != allow.Allowed && w.table.opts.Refused != nil {
				w.table.opts.Refused(v, n)
			}
		}
	}
}

// verdicts are those of the lists of names.
var verdicts = [refusals]allow.Verdict{blacklisted: allow.Blacklisted, notWhitelisted: allow.NotWhitelisted}

// Close ends the use of the Writer. It may be called while Add or Flush waits for room, which then return an error.
// Points that were not flushed are lost.
func (w *Writer) Close() error {
	w.cancel()
	return nil
}

// datagrams is a Writer for carbon's datagrams.
type datagrams struct{ *Writer }

// Flush hands all points over, and returns how many had no room.
func (d datagrams) Flush() (dropped int, err error) {
	err = d.Writer.Flush()
	return d.Dropped(), err
}

// Datagrams returns a Writer for points that come by UDP, which drops what has no room.
func (t *Table) Datagrams() carbon.DroppingWriter { return datagrams{t.Dropper()} }
