package metric

import (
	"cmp"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
)

// listSeries is a series with its samples in memory. It implements storage.Series.
type listSeries struct {
	labels labels.Labels
	times  []int64 // ms, rising
	values []float64
}

// Labels implements storage.Series.
func (s *listSeries) Labels() labels.Labels { return s.labels }

// Iterator implements storage.Series.
func (s *listSeries) Iterator(chunkenc.Iterator) chunkenc.Iterator { return &listIterator{s, -1} }

// mergeSeconds makes one series of those of several members. Of a second it has one sample, because members may have
// stored the same point with different milliseconds: that of the series with most samples, of equal ones of the first.
func mergeSeconds(all ...storage.Series) storage.Series {
	lists := make([]*listSeries, 0, len(all))
	for _, one := range all {
		lists = append(lists, one.(*listSeries)) // the only kind that gatheredQuerier puts into sets
	}
	slices.SortStableFunc(lists, func(a, b *listSeries) int { return cmp.Compare(len(b.times), len(a.times)) })
	merged := lists[0]
	for _, l := range lists[1:] {
		merged = mergeTwo(merged, l)
	}
	return merged
}

// mergeTwo adds the samples of seconds of b that a does not have.
func mergeTwo(a, b *listSeries) *listSeries {
	out := &listSeries{a.labels, make([]int64, 0, len(a.times)), make([]float64, 0, len(a.values))}
	i := 0
	take := func(l *listSeries, k int) {
		out.times, out.values = append(out.times, l.times[k]), append(out.values, l.values[k])
	}
	for j, t := range b.times {
		second := t / 1000
		for i < len(a.times) && a.times[i]/1000 < second {
			take(a, i)
			i++
		}
		if i == len(a.times) || a.times[i]/1000 > second {
			take(b, j)
		}
	}
	out.times, out.values = append(out.times, a.times[i:]...), append(out.values, a.values[i:]...)
	return out
}

// answerSet is the series of one member, sorted by their labels. It implements storage.SeriesSet.
type answerSet struct {
	series []*listSeries
	at     int
}

func (s *answerSet) Next() bool                        { s.at++; return s.at < len(s.series) }
func (s *answerSet) At() storage.Series                { return s.series[s.at] }
func (s *answerSet) Err() error                        { return nil }
func (s *answerSet) Warnings() annotations.Annotations { return nil }

// listIterator implements chunkenc.Iterator.
type listIterator struct {
	s  *listSeries
	at int
}

func (it *listIterator) Next() chunkenc.ValueType {
	if it.at < len(it.s.times) {
		it.at++
	}
	return it.kind()
}

func (it *listIterator) kind() chunkenc.ValueType {
	if it.at < len(it.s.times) {
		return chunkenc.ValFloat
	}
	return chunkenc.ValNone
}

// ms is a time in milliseconds. The name keeps vet from taking Seek for that of package io.
type ms = int64

func (it *listIterator) Seek(t ms) chunkenc.ValueType {
	it.at = max(it.at, 0)
	if it.at < len(it.s.times) && it.s.times[it.at] < t {
		n, _ := slices.BinarySearch(it.s.times[it.at:], t)
		it.at += n
	}
	return it.kind()
}

func (it *listIterator) At() (int64, float64) { return it.s.times[it.at], it.s.values[it.at] }
func (it *listIterator) AtT() int64           { return it.s.times[it.at] }
func (it *listIterator) Err() error           { return nil }

func (it *listIterator) AtHistogram(*histogram.Histogram) (int64, *histogram.Histogram) {
	return 0, nil // only numbers are stored
}

func (it *listIterator) AtFloatHistogram(*histogram.FloatHistogram) (int64, *histogram.FloatHistogram) {
	return 0, nil // only numbers are stored
}
