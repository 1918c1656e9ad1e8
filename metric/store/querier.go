package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// Querier returns a reader of all tiers for PromQL, from mint to maxt in ms. A series has the samples of its finest
// tier, and those of coarser tiers for slots in which the finer have none. Of several samples of a second the last
// one is returned, with the time of the first.
func (s *Store) Querier(mint, maxt int64) (storage.Querier, error) {
	if s.done.Load() {
		return nil, ErrStopped
	}
	// The last second may have been rewritten, and is one second in any case.
	if maxt%1000 == 0 {
		maxt += 999
	}
	var queriers []storage.Querier
	for _, t := range *s.tiers.Load() {
		q, err := t.db.Querier(mint, maxt)
		if err != nil {
			for _, q := range queriers {
				err = errors.Join(err, q.Close())
			}
			return nil, fmt.Errorf("open querier of tier %s: %w", t.name(), err)
		}
		queriers = append(queriers, &tierQuerier{Querier: q, step: t.archive.Step * 1000})
	}
	return storage.NewMergeQuerier(queriers, nil, mergeTiers), nil
}

// tierQuerier marks the series of a tier with its step.
type tierQuerier struct {
	storage.Querier
	step int64
}

func (q *tierQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints,
	ms ...*labels.Matcher) storage.SeriesSet {
	return &tierSet{q.Querier.Select(ctx, sorted, hints, ms...), q.step}
}

type tierSet struct {
	storage.SeriesSet
	step int64
}

func (s *tierSet) At() storage.Series { return &tierSeries{s.SeriesSet.At(), s.step} }

type tierSeries struct {
	storage.Series
	step int64 // ms
}

func (s *tierSeries) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	if m, ok := it.(*tierIterator); ok && len(m.parts) == 1 {
		m.reset(0, s.Series.Iterator(m.parts[0].it), s.step)
		return m
	}
	m := &tierIterator{parts: make([]part, 1)}
	m.reset(0, s.Series.Iterator(nil), s.step)
	return m
}

// mergeTiers joins the parts that several tiers have of a series.
func mergeTiers(all ...storage.Series) storage.Series {
	if len(all) == 1 {
		return all[0]
	}
	parts := make([]*tierSeries, len(all))
	for i, s := range all {
		parts[i] = s.(*tierSeries)
	}
	slices.SortFunc(parts, func(a, b *tierSeries) int { return int(a.step - b.step) })
	return &storage.SeriesEntry{Lset: all[0].Labels(), SampleIteratorFn: func(it chunkenc.Iterator) chunkenc.Iterator {
		m, ok := it.(*tierIterator)
		if !ok || len(m.parts) != len(parts) {
			m = &tierIterator{parts: make([]part, len(parts))}
		}
		for i, p := range parts {
			m.reset(i, p.Series.Iterator(m.parts[i].it), p.step)
		}
		return m
	}}
}

// part is what one tier has of a series. t and v are its next sample: of a second's samples, the time of the first
// and the value of the last.
type part struct {
	it    chunkenc.Iterator
	step  int64
	t     int64
	v     float64
	prev  int64 // time of the sample before
	state partState
	// aheadT and aheadV have been read from it beyond t's second.
	ahead  bool
	aheadT int64
	aheadV float64
}

type partState uint8

const (
	before partState = iota // nothing has been read
	valid
	ended
)

// tierIterator reads the parts of a series side by side; finer ones come first.
type tierIterator struct {
	parts []part
	t     int64
	v     float64
	begun bool
	over  bool
}

func (m *tierIterator) reset(i int, it chunkenc.Iterator, step int64) {
	m.parts[i] = part{it: it, step: step, prev: math.MinInt64}
	m.begun, m.over = false, false
}

// read moves p to its next second.
func (p *part) read() {
	if p.state == ended {
		return
	}
	if p.state == valid {
		p.prev = p.t
	}
	if !p.ahead {
		if p.it.Next() != chunkenc.ValFloat {
			p.state = ended
			return
		}
		p.aheadT, p.aheadV = p.it.At()
	}
	p.t, p.v, p.state, p.ahead = p.aheadT, p.aheadV, valid, false
	p.finish()
}

// finish reads the rest of the second of p.t.
func (p *part) finish() {
	second := p.t / 1000
	for p.it.Next() == chunkenc.ValFloat {
		t, v := p.it.At()
		if t/1000 != second {
			p.ahead, p.aheadT, p.aheadV = true, t, v
			return
		}
		p.v = v
	}
}

// seek moves p to the first sample of its series at or after t.
func (p *part) seek(t int64) {
	if p.state == ended || p.state == valid && p.t >= t {
		return
	}
	if p.ahead && p.aheadT >= t {
		p.read()
		return
	}
	p.ahead = false
	// Begin with the second of t, because its first sample may be before t and its last after.
	if p.it.Seek(t-t%1000) != chunkenc.ValFloat {
		p.state = ended
		return
	}
	p.t, p.v = p.it.At()
	p.state = valid
	p.finish()
	for p.state == valid && p.t < t {
		p.read()
	}
}

func (m *tierIterator) Next() chunkenc.ValueType {
	if m.over {
		return chunkenc.ValNone
	}
	for i := range m.parts {
		p := &m.parts[i]
		if p.state == before || m.begun && p.state == valid && p.t <= m.t {
			p.read()
		}
	}
	return m.choose()
}

// ms is a time in milliseconds. The alias keeps vet from taking Seek for io.Seeker's.
type ms = int64

func (m *tierIterator) Seek(t ms) chunkenc.ValueType {
	if m.over {
		return chunkenc.ValNone
	}
	if m.begun && m.t >= t {
		return chunkenc.ValFloat
	}
	for i := range m.parts {
		m.parts[i].seek(t)
	}
	return m.choose()
}

// choose makes the earliest sample the present one. It passes over samples of a coarse tier whose slot has one of a
// finer tier.
func (m *tierIterator) choose() chunkenc.ValueType {
	for {
		first := -1
		for i := range m.parts {
			if p := &m.parts[i]; p.state == valid && (first < 0 || p.t < m.parts[first].t) {
				first = i
			}
		}
		if first < 0 {
			m.over = true
			return chunkenc.ValNone
		}
		p := &m.parts[first]
		covered := false
		slot := p.t - p.t%p.step
		for i := range first {
			f := &m.parts[i]
			if f.state == valid && f.t < slot+p.step || f.prev >= slot {
				covered = true
				break
			}
		}
		if !covered {
			m.t, m.v, m.begun = p.t, p.v, true
			return chunkenc.ValFloat
		}
		p.read()
	}
}

func (m *tierIterator) At() (int64, float64) { return m.t, m.v }
func (m *tierIterator) AtT() int64           { return m.t }

func (m *tierIterator) AtHistogram(*histogram.Histogram) (int64, *histogram.Histogram) {
	panic("metric store: there are no histograms")
}

func (m *tierIterator) AtFloatHistogram(*histogram.FloatHistogram) (int64, *histogram.FloatHistogram) {
	panic("metric store: there are no histograms")
}

func (m *tierIterator) Err() error {
	for i := range m.parts {
		if err := m.parts[i].it.Err(); err != nil {
			return err
		}
	}
	return nil
}

var _ storage.Querier = (*tierQuerier)(nil)
