package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/index"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
)

// maxName bounds a name in bytes.
const maxName = 4096

// checkName reports why a canonical name cannot be stored.
func checkName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("series name of %d bytes: there must be from 1 to %d", len(name), maxName)
	}
	if err := checkTags(name); err != nil {
		return fmt.Errorf("series name %q: %w", rarelog.Short(name), err)
	}
	return nil
}

func checkTags(name string) error {
	metric, rest, tagged := strings.Cut(name, ";")
	if metric == "" {
		return errors.New("it has no metric before its tags")
	}
	last := ""
	var tags map[string]bool
	for tagged {
		var tag string
		tag, rest, tagged = strings.Cut(rest, ";")
		key, value, ok := strings.Cut(tag, "=")
		switch {
		case !ok || key == "" || value == "":
			return fmt.Errorf("tag %q is not key=value", tag)
		case key == labels.MetricName:
			return fmt.Errorf("tag %s is reserved", key)
		case tag <= last:
			return errors.New("its tags are not in the canonical order")
		case tags[key]:
			return fmt.Errorf("tag %s is there twice", key)
		}
		last = tag
		if tagged || tags != nil {
			if tags == nil {
				tags = map[string]bool{}
			}
			tags[key] = true
		}
	}
	return nil
}

// labelsOf returns the labels of a canonical name.
func labelsOf(name string) labels.Labels {
	metric, rest, tagged := strings.Cut(name, ";")
	if !tagged {
		return labels.FromStrings(labels.MetricName, name)
	}
	b := labels.NewScratchBuilder(8)
	b.Add(labels.MetricName, metric)
	for tagged {
		var tag string
		tag, rest, tagged = strings.Cut(rest, ";")
		key, value, _ := strings.Cut(tag, "=")
		b.Add(key, value)
	}
	b.Sort()
	return b.Labels()
}

// Name returns the canonical name of a series of the Querier: the metric, and the tags in the order of their bytes.
func Name(ls labels.Labels) string {
	metric := ls.Get(labels.MetricName)
	if ls.Len() == 1 {
		return metric
	}
	tags := make([]string, 0, 8)
	n := len(metric)
	ls.Range(func(l labels.Label) {
		if l.Name != labels.MetricName {
			tag := ";" + l.Name + "=" + l.Value
			n += len(tag)
			tags = append(tags, tag)
		}
	})
	slices.Sort(tags)
	var b strings.Builder
	b.Grow(n)
	b.WriteString(metric)
	for _, tag := range tags {
		b.WriteString(tag)
	}
	return b.String()
}

// Labels returns the labels under which the Querier finds a canonical name.
func Labels(name string) (labels.Labels, error) {
	if err := checkName(name); err != nil {
		return labels.EmptyLabels(), err
	}
	return labelsOf(name), nil
}

// Names calls f with the canonical names of all series that have points in a tier, each once, until f returns false.
// The order is that of the labels. Its memory is bounded by a few bytes for each series in the heads.
func (s *Store) Names(ctx context.Context, f func(name string) bool) (err error) {
	if s.done.Load() {
		return ErrStopped
	}
	var sets []storage.SeriesSet
	var queriers []storage.Querier
	defer func() {
		for _, q := range queriers {
			err = errors.Join(err, q.Close())
		}
	}()
	key, value := index.AllPostingsKey()
	all := labels.MustNewMatcher(labels.MatchEqual, key, value)
	for _, t := range *s.tiers.Load() {
		q, err := t.db.Querier(0, math.MaxInt64)
		if err != nil {
			return fmt.Errorf("list series of tier %s: %w", t.name(), err)
		}
		queriers = append(queriers, q)
		// The TSDB knows from its index alone what blocks have. Of a head from which series were deleted it does not.
		stones, err := t.db.Head().Tombstones()
		if err != nil {
			return fmt.Errorf("list series of tier %s: %w", t.name(), err)
		}
		if stones.Total() > 0 {
			sets = append(sets, &filledSet{SeriesSet: q.Select(ctx, true, nil, all)})
		} else {
			hints := &storage.SelectHints{Start: 0, End: math.MaxInt64, Func: "series"}
			sets = append(sets, q.Select(ctx, true, hints, all))
		}
	}
	set := storage.NewMergeSeriesSet(sets, 0, func(same ...storage.Series) storage.Series { return same[0] })
	for set.Next() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !f(Name(set.At().Labels())) {
			return nil
		}
	}
	if err := set.Err(); err != nil {
		return fmt.Errorf("list series: %w", err)
	}
	return nil
}

// filledSet passes over series that have no samples left.
type filledSet struct {
	storage.SeriesSet
	it chunkenc.Iterator
}

func (s *filledSet) Next() bool {
	for s.SeriesSet.Next() {
		if s.it = s.At().Iterator(s.it); s.it.Next() != chunkenc.ValNone || s.it.Err() != nil {
			return true
		}
	}
	return false
}

// Delete removes series and all their points from the tiers, and closes them in memory. It rewrites the blocks that
// have some, which takes long, so callers should pass many names at once. Points that are put meanwhile or later are
// kept, unless they are older than what was deleted from a head.
func (s *Store) Delete(ctx context.Context, names []string) error {
	if s.done.Load() {
		return ErrStopped
	}
	for _, name := range names {
		if se := s.lookup(name); se != nil {
			s.Close(se)
		}
	}
	for _, t := range *s.tiers.Load() {
		if err := t.delete(ctx, names); err != nil {
			return fmt.Errorf("delete series in tier %s: %w", t.name(), err)
		}
	}
	return nil
}

func (t *tier) delete(ctx context.Context, names []string) error {
	// The TSDB deletes nothing in the part of the head that is out of order.
	if err := t.db.CompactOOOHead(ctx); err != nil {
		return err
	}
	deleted := false
	for _, name := range names {
		if checkName(name) != nil {
			continue
		}
		own := labelsOf(name)
		ms := matchers(own)
		// Other series may have these labels and more.
		q, err := t.db.Querier(0, math.MaxInt64)
		if err != nil {
			return err
		}
		found, _, err := q.LabelNames(ctx, nil, ms...)
		if err = errors.Join(err, q.Close()); err != nil {
			return err
		}
		if len(found) == 0 {
			continue
		}
		for _, l := range found {
			if !own.Has(l) {
				ms = append(ms, labels.MustNewMatcher(labels.MatchEqual, l, ""))
			}
		}
		if err := t.db.Delete(ctx, 0, math.MaxInt64, ms...); err != nil {
			return err
		}
		deleted = true
	}
	if !deleted {
		return nil
	}
	return t.db.CleanTombstones()
}
