package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// maxValues bounds the values of one series in an answer, and maxTotal those of all series of a policy.
const (
	maxValues = 10_000_000
	maxTotal  = 100_000_000
)

// Fetch returns the values of a series in (from, until], with whisper's rules: from and until are clamped to the
// retention and to now, and the finest archive that reaches back to from gives the whole range. It reports false if
// the store has no such series, or none of its points can be in the range.
func (s *Store) Fetch(ctx context.Context, name string, from, until, now int64) (series.Range, bool, error) {
	rs, err := s.FetchMany(ctx, []string{name}, from, until, now)
	if err != nil || len(rs) == 0 {
		return series.Range{}, false, err
	}
	return rs[0], true, nil
}

// FetchMany is Fetch for many series. It leaves out those for which Fetch reports false. The order is that of names.
func (s *Store) FetchMany(ctx context.Context, names []string, from, until, now int64) ([]series.Range, error) {
	if from > until {
		return nil, fmt.Errorf("fetch series: from %d is after until %d", from, until)
	}
	type group struct {
		plan  *plan
		k     int
		names []string
		index []int
	}
	groups := map[string]*group{}
	var order []*group
	first := make(map[string]int, len(names))
	for i, name := range names {
		if _, twice := first[name]; twice || checkName(name) != nil {
			continue
		}
		first[name] = i
		var p *plan
		if se := s.lookup(name); se != nil {
			p = s.shards[se.shard].planOf(se)
		} else {
			var err error
			if p, err = s.planOf(name); err != nil {
				return nil, fmt.Errorf("fetch series: %w", err)
			}
		}
		key := planKey(p.Policy)
		g := groups[key]
		if g == nil {
			g = &group{plan: p, k: -1}
			groups[key] = g
			order = append(order, g)
		}
		g.names, g.index = append(g.names, name), append(g.index, i)
	}
	results := make([]series.Range, len(names))
	for _, g := range order {
		p := g.plan
		oldest := now - p.Archives[len(p.Archives)-1].Retention()
		if from > now || until < oldest {
			continue
		}
		from, until := max(from, oldest), min(until, now)
		k := slices.IndexFunc(p.Archives, func(a series.Archive) bool { return a.Retention() >= now-from })
		step := p.Archives[k].Step
		start, end := series.Floor(from, step)+step, series.Floor(until, step)+step
		if start == end {
			end += step
		}
		if (end-start)/step > maxValues {
			return nil, fmt.Errorf("fetch series: %d values from %d to %d: there may be at most %d", (end-start)/step,
				from, until, maxValues)
		}
		if int64(len(g.names))*((end-start)/step) > maxTotal {
			return nil, fmt.Errorf("fetch series: %d values of %d series: there may be at most %d in all",
				(end-start)/step, len(g.names), maxTotal)
		}
		values, err := s.readLevel(ctx, p, k, g.names, start, end, now)
		if err != nil {
			return nil, err
		}
		if err := s.readOthers(ctx, p, k, g.names, values, start, end); err != nil {
			return nil, err
		}
		for j, v := range values {
			if allNaN(v) && s.lookup(g.names[j]) == nil {
				if ok, err := s.stored(ctx, g.names[j]); err != nil {
					return nil, err
				} else if !ok {
					continue
				}
			}
			results[g.index[j]] = series.Range{Name: g.names[j], Start: start, Step: step, Values: v,
				Aggregation: p.Method, XFilesFactor: p.XFilesFactor}
		}
	}
	for i, name := range names {
		if j, ok := first[name]; ok && j != i {
			results[i] = results[j]
		}
	}
	return slices.DeleteFunc(results, func(r series.Range) bool { return r.Step == 0 }), nil
}

// stored reports whether a tier has the series at any time.
func (s *Store) stored(ctx context.Context, name string) (bool, error) {
	ms := matchers(labelsOf(name))
	for _, t := range *s.tiers.Load() {
		q, err := t.db.Querier(0, math.MaxInt64)
		if err != nil {
			return false, fmt.Errorf("read tier %s: %w", t.name(), err)
		}
		set := q.Select(ctx, false, nil, ms...)
		found := false
		for !found && set.Next() {
			sr := set.At()
			found = Name(sr.Labels()) == name && sr.Iterator(nil).Next() != chunkenc.ValNone
		}
		if err := errors.Join(set.Err(), q.Close()); err != nil {
			return false, fmt.Errorf("read tier %s: %w", t.name(), err)
		}
		if found {
			return true, nil
		}
	}
	return false, nil
}

func allNaN(values []float64) bool {
	for _, v := range values {
		if !math.IsNaN(v) {
			return false
		}
	}
	return true
}

func (sh *shard) planOf(se *Series) *plan {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return se.plan
}

// unknown returns n NaN for each of count series.
func unknown(count int, n int64) [][]float64 {
	all := make([]float64, int64(count)*n)
	for i := range all {
		all[i] = math.NaN()
	}
	values := make([][]float64, count)
	for i := range values {
		values[i] = all[int64(i)*n : int64(i+1)*n : int64(i+1)*n]
	}
	return values
}

// readLevel returns the values of archive k in [start, end), both multiples of its step. Slots that the tier does not
// have yet, or not right, are computed from the next finer archive: those before a series' first and after its last
// value, open slots, and slots that wait for the corrector.
func (s *Store) readLevel(ctx context.Context, p *plan, k int, names []string, start, end, now int64,
) ([][]float64, error) {
	step := p.Archives[k].Step
	values := unknown(len(names), (end-start)/step)
	t := p.tiers[k]
	// Before the tier: a slot that is corrected in between is then either wrong here or right there.
	var wrong [][]int64
	if k > 0 {
		wrong = s.wrongSlots(names, k, start, end, step)
	}
	if err := t.read(ctx, names, start, end, func(i int, ms int64, v float64) {
		values[i][(ms/1000-start)/step] = v
	}); err != nil {
		return nil, err
	}
	if k == 0 {
		return values, nil
	}
	// The finer tier has everything since limit: a block is kept until all of it is one block's time beyond the
	// retention.
	limit := series.Floor(now-p.Archives[k-1].Retention()-p.tiers[k-1].block/1000, step) + step
	heads := ranges{from: max(start, limit)}
	tails := ranges{to: end}
	single := ranges{}
	for i, v := range values {
		known := slices.IndexFunc(v, func(f float64) bool { return !math.IsNaN(f) })
		if known < 0 {
			heads.add(i, heads.from, end)
			continue
		}
		if known > 0 {
			heads.add(i, heads.from, start+int64(known)*step)
		}
		last := len(v) - 1
		for math.IsNaN(v[last]) {
			last--
		}
		tail := start + int64(last+1)*step
		w := wrong[i]
		for len(w) > 0 && w[len(w)-1] >= tail-step {
			tail = min(tail, w[len(w)-1])
			w = w[:len(w)-1]
		}
		for _, slot := range w {
			single.add(i, slot, slot+step)
		}
		tails.add(i, max(tail, limit), end)
	}
	if err := s.compute(ctx, p, k, names, values, start, now, &heads, false); err != nil {
		return nil, err
	}
	if err := s.compute(ctx, p, k, names, values, start, now, &tails, false); err != nil {
		return nil, err
	}
	return values, s.compute(ctx, p, k, names, values, start, now, &single, true)
}

// ranges are times per series that are to be computed, and the range around all of them.
type ranges struct {
	from, to int64
	series   []int
	each     [][2]int64
}

func (r *ranges) add(i int, from, to int64) {
	if from >= to {
		return
	}
	if len(r.series) == 0 {
		r.from, r.to = from, to
	}
	r.from, r.to = min(r.from, from), max(r.to, to)
	r.series = append(r.series, i)
	r.each = append(r.each, [2]int64{from, to})
}

// compute fills the ranges of archive k's values from the next finer archive: all with one read, or one by one.
func (s *Store) compute(ctx context.Context, p *plan, k int, names []string, values [][]float64, start, now int64,
	r *ranges, single bool) error {
	if len(r.series) == 0 {
		return nil
	}
	if single {
		for j, i := range r.series {
			one := ranges{}
			one.add(i, r.each[j][0], r.each[j][1])
			if err := s.compute(ctx, p, k, names, values, start, now, &one, false); err != nil {
				return err
			}
		}
		return nil
	}
	sub := make([]string, len(r.series))
	for j, i := range r.series {
		sub[j] = names[i]
	}
	finer, err := s.readLevel(ctx, p, k-1, sub, r.from, r.to, now)
	if err != nil {
		return err
	}
	step, n := p.Archives[k].Step, p.ratios[k]
	for j, i := range r.series {
		for slot := r.each[j][0]; slot < r.each[j][1]; slot += step {
			at := (slot - r.from) / step * n
			if v := p.Method.Aggregate(finer[j][at:at+n], p.XFilesFactor); !math.IsNaN(v) {
				values[i][(slot-start)/step] = v
			}
		}
	}
	return nil
}

// wrongSlots returns for each series in memory the slots of level k in [start, end) whose values in the tier are not
// final, in the order of time.
func (s *Store) wrongSlots(names []string, k int, start, end, step int64) [][]int64 {
	wrong := make([][]int64, len(names))
	byShard := make([][]int, len(s.shards))
	all := make([]*Series, len(names))
	for i, name := range names {
		if se := s.lookup(name); se != nil {
			all[i] = se
			byShard[se.shard] = append(byShard[se.shard], i)
		}
	}
	for id, indexes := range byShard {
		if len(indexes) == 0 {
			continue
		}
		sh := s.shards[id]
		sh.mu.Lock()
		m := sh.wrong[k]
		if few := int64(len(m)) <= int64(len(indexes))*(end-start)/step; few && len(m) > 0 {
			of := make(map[*Series]int, len(indexes))
			for _, i := range indexes {
				of[all[i]] = i
			}
			for key := range m {
				if i, ok := of[key.series]; ok && key.slot >= start && key.slot < end {
					wrong[i] = append(wrong[i], key.slot)
				}
			}
			m = nil
		}
		for _, i := range indexes {
			se := all[i]
			if len(m) > 0 {
				for slot := start; slot < end; slot += step {
					if _, ok := m[slotKey{se, slot}]; ok {
						wrong[i] = append(wrong[i], slot)
					}
				}
				// This can take long: let the points through between two series.
				sh.mu.Unlock()
				sh.mu.Lock()
				m = sh.wrong[k]
			}
			if k < len(se.levels) {
				if l := &se.levels[k]; l.open && l.slot >= start && l.slot < end {
					wrong[i] = append(wrong[i], l.slot)
				}
			}
		}
		sh.mu.Unlock()
		for _, i := range indexes {
			slices.Sort(wrong[i])
		}
	}
	return wrong
}

// readOthers fills what is still unknown from tiers that the policy does not have: they have the points of earlier
// policies. Finer values are consolidated by the policy's method, coarser ones stand at the beginning of their slot.
func (s *Store) readOthers(ctx context.Context, p *plan, k int, names []string, values [][]float64,
	start, end int64) error {
	var others []*tier
	for _, t := range *s.tiers.Load() {
		if !slices.Contains(p.tiers, t) && t.overlaps(start*1000, end*1000-1) {
			others = append(others, t)
		}
	}
	if len(others) == 0 {
		return nil
	}
	slices.SortFunc(others, func(a, b *tier) int { return int(a.archive.Step - b.archive.Step) })
	var sub []string
	var index []int
	for i, v := range values {
		if slices.ContainsFunc(v, math.IsNaN) {
			sub, index = append(sub, names[i]), append(index, i)
		}
	}
	step := p.Archives[k].Step
	for _, t := range others {
		if len(sub) == 0 {
			return nil
		}
		found := make([][][]float64, len(sub)) // by series and slot; its samples' seconds are in the order of time
		last := make([]int64, len(sub))
		err := t.read(ctx, sub, start, end, func(j int, ms int64, v float64) {
			sec := ms / 1000
			slot := (sec - start) / step
			if !math.IsNaN(values[index[j]][slot]) {
				return
			}
			if found[j] == nil {
				found[j] = make([][]float64, (end-start)/step)
			}
			f := found[j][slot]
			if own := series.Floor(sec, t.archive.Step); len(f) > 0 && own == last[j] {
				f[len(f)-1] = v
			} else {
				found[j][slot] = append(f, v)
				last[j] = own
			}
		})
		if err != nil {
			return err
		}
		for j, slots := range found {
			for slot, f := range slots {
				if len(f) > 0 {
					values[index[j]][slot] = p.Method.Aggregate(f, 0)
				}
			}
		}
	}
	return nil
}

// overlaps reports whether the tier may have samples from mint to maxt, in ms.
func (t *tier) overlaps(mint, maxt int64) bool {
	h := t.db.Head()
	if h.MinTime() <= maxt && h.MaxTime() >= mint || h.MinOOOTime() <= maxt && h.MaxOOOTime() >= mint {
		return true
	}
	for _, b := range t.db.Blocks() {
		if b.OverlapsClosedInterval(mint, maxt) {
			return true
		}
	}
	return false
}

// matchers selects series that have at least the given labels.
func matchers(ls labels.Labels) []*labels.Matcher {
	ms := make([]*labels.Matcher, 0, ls.Len())
	ls.Range(func(l labels.Label) { ms = append(ms, labels.MustNewMatcher(labels.MatchEqual, l.Name, l.Value)) })
	return ms
}

// regexNames is how many names go into one regular expression: above 256, the TSDB would try the expression on all
// names.
const regexNames = 200

// read calls visit for all samples of names in [start, end), which are in seconds. Those of a series come in the order
// of time.
func (t *tier) read(ctx context.Context, names []string, start, end int64,
	visit func(i int, ms int64, v float64)) (err error) {
	if !t.overlaps(start*1000, end*1000-1) {
		return nil
	}
	q, err := t.db.Querier(start*1000, end*1000-1)
	if err != nil {
		return fmt.Errorf("read tier %s: %w", t.name(), err)
	}
	defer func() {
		if cerr := q.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("read tier %s: %w", t.name(), cerr)
		}
	}()
	index := make(map[string]int, len(names))
	var it chunkenc.Iterator
	run := func(matchers ...*labels.Matcher) error {
		set := q.Select(ctx, false, nil, matchers...)
		for set.Next() {
			sr := set.At()
			i, ok := index[Name(sr.Labels())]
			if !ok {
				continue
			}
			it = sr.Iterator(it)
			for it.Next() == chunkenc.ValFloat {
				ms, v := it.At()
				visit(i, ms, v)
			}
			if err := it.Err(); err != nil {
				return fmt.Errorf("read series %s in tier %s: %w", Name(sr.Labels()), t.name(), err)
			}
		}
		if err := set.Err(); err != nil {
			return fmt.Errorf("read tier %s: %w", t.name(), err)
		}
		return nil
	}
	var quoted []string
	flush := func() error {
		if len(quoted) == 0 {
			return nil
		}
		m, err := labels.NewMatcher(labels.MatchRegexp, labels.MetricName, strings.Join(quoted, "|"))
		if err != nil {
			return fmt.Errorf("read tier %s: %w", t.name(), err)
		}
		quoted = quoted[:0]
		return run(m)
	}
	for i, name := range names {
		if _, twice := index[name]; twice {
			continue
		}
		index[name] = i
		// A regular expression must be UTF-8; a name need not.
		if plain := !strings.Contains(name, ";") && utf8.ValidString(name); plain && len(names) > 1 {
			if quoted = append(quoted, regexp.QuoteMeta(name)); len(quoted) == regexNames {
				if err := flush(); err != nil {
					return err
				}
			}
			continue
		}
		if err := run(matchers(labelsOf(name))...); err != nil {
			return err
		}
	}
	return flush()
}

var _ storage.Queryable = (*Store)(nil)
