package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// Point is a value to import.
type Point struct {
	Time  int64 // seconds
	Value float64
}

// importSamples is how many points an Import gathers before it writes them.
const importSamples = 4_000_000

// importPrefix begins the names of the directories that an Import uses for its chunks.
const importPrefix = "import-"

// Import writes old points straight into blocks of the tiers. Its points may be of any time within the retention, and
// may overlap with what is there: the TSDB merges the blocks later. It is for one goroutine.
type Import struct {
	s     *Store
	tiers map[*tier][]imported
	count int
	ended bool
}

// imported are the points of a series for one tier, in the order of time.
type imported struct {
	name   string
	points []Point
}

// NewImport begins an import. Points become readable with Commit, or before.
func (s *Store) NewImport() *Import {
	return &Import{s: s, tiers: map[*tier][]imported{}}
}

// Add adds the points of one archive of a series. They go to the tier of the series' archive with the same step; if
// its policy has none, to a tier of the given archive, where reads find them as points of an earlier policy. Points
// beyond the retention of the tier, in the future, or NaN are left out. An imported value replaces a stored one of
// the same second.
func (im *Import) Add(ctx context.Context, name string, archive series.Archive, points []Point) error {
	if im.ended {
		return errors.New("import points: the import has been committed")
	}
	if im.s.done.Load() {
		return ErrStopped
	}
	if err := checkName(name); err != nil {
		return fmt.Errorf("import points: %w", err)
	}
	t, err := im.s.importTier(name, archive)
	if err != nil {
		return fmt.Errorf("import points: %w", err)
	}
	now := im.s.now()
	kept := make([]Point, 0, len(points))
	for _, p := range points {
		if p.Time >= 1 && p.Time <= now && now-p.Time <= t.archive.Retention() && !math.IsNaN(p.Value) {
			kept = append(kept, Point{series.Floor(p.Time, t.archive.Step), p.Value})
		}
	}
	slices.SortStableFunc(kept, func(a, b Point) int { return cmp.Compare(a.Time, b.Time) })
	last := 0 // of equal slots the last value is kept
	for i, p := range kept {
		if i > 0 && kept[last].Time != p.Time {
			last++
		}
		kept[last] = p
	}
	if len(kept) == 0 {
		return nil
	}
	kept = kept[:last+1]
	im.tiers[t] = append(im.tiers[t], imported{name, kept})
	if im.count += len(kept); im.count >= importSamples {
		return im.write(ctx)
	}
	return nil
}

// importTier returns the tier for an archive of a series.
func (s *Store) importTier(name string, archive series.Archive) (*tier, error) {
	p, err := s.planOf(name)
	if err != nil {
		return nil, err
	}
	for _, t := range p.tiers {
		if t.archive.Step == archive.Step {
			return t, nil
		}
	}
	if err := checkPolicy(Policy{Archives: []series.Archive{archive}, Method: series.Average}); err != nil {
		return nil, err
	}
	s.planMu.Lock()
	defer s.planMu.Unlock()
	return s.tierOf(archive)
}

// Commit writes all points that were added and makes them readable.
func (im *Import) Commit(ctx context.Context) error {
	if im.ended {
		return nil
	}
	im.ended = true
	return im.write(ctx)
}

// write makes a block for each tier and each span of its largest blocks, and has the tiers load them.
func (im *Import) write(ctx context.Context) error {
	for t, all := range im.tiers {
		if err := im.s.writeBlocks(ctx, t, all); err != nil {
			return fmt.Errorf("import points into tier %s: %w", t.name(), err)
		}
		// This is the call of the TSDB that loads new blocks at once.
		if err := t.db.CompactOOOHead(ctx); err != nil {
			return fmt.Errorf("load imported points of tier %s: %w", t.name(), err)
		}
		for _, one := range all {
			im.s.importedInto(t, one)
		}
		delete(im.tiers, t)
	}
	im.count = 0
	return nil
}

// importedInto makes the open slots of a series in memory count again with what was imported.
func (s *Store) importedInto(t *tier, one imported) {
	se := s.lookup(one.name)
	if se == nil {
		return
	}
	sh := s.shards[se.shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	k := slices.Index(se.plan.tiers, t)
	if se.closed || k < 0 || k+1 >= len(se.levels) {
		return
	}
	var n tally
	if at := one.points[len(one.points)-1].Time; at >= se.levels[k+1].slot {
		sh.outdated(se, k+1, at, &n)
		sh.commit(&n)
	}
	s.counts.add(&n)
}

func (s *Store) writeBlocks(ctx context.Context, t *tier, all []imported) error {
	span := t.block
	for span*3 <= t.maxBlock() {
		span *= 3
	}
	// rest[i] is what of all[i] is not written yet.
	rest := make([][]Point, len(all))
	for i, one := range all {
		rest[i] = one.points
	}
	for {
		from := int64(math.MaxInt64)
		for _, points := range rest {
			if len(points) > 0 {
				from = min(from, points[0].Time*1000)
			}
		}
		if from == math.MaxInt64 {
			return nil
		}
		from = series.Floor(from, span)
		if err := s.writeBlock(ctx, t, from, from+span, all, rest); err != nil {
			return err
		}
	}
}

// writeBlock writes what rest has before the time to, in ms, and cuts it off.
func (s *Store) writeBlock(ctx context.Context, t *tier, from, to int64, all []imported, rest [][]Point) (err error) {
	dir, err := os.MkdirTemp(s.o.Dir, importPrefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	log := slog.New(warnings{s.log.Handler()})
	o := tsdb.DefaultHeadOptions()
	o.ChunkRange = 2 * (to - from) // a head takes only samples that are within half of it
	o.ChunkDirRoot = dir
	o.StripeSize = 1024
	head, err := tsdb.NewHead(nil, log, nil, nil, o, tsdb.NewHeadStats())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, head.Close()) }()
	if err := head.Init(math.MinInt64); err != nil {
		return err
	}
	now := s.now()
	var app storage.Appender
	n := 0
	commit := func() error {
		if app == nil {
			return nil
		}
		a := app
		app, n = nil, 0
		return a.Commit()
	}
	for i, points := range rest {
		if len(points) == 0 || points[0].Time*1000 >= to {
			continue
		}
		lset := labelsOf(all[i].name)
		var ref storage.SeriesRef
		j := 0
		for ; j < len(points) && points[j].Time*1000 < to; j++ {
			if app == nil {
				app = head.Appender(ctx)
			}
			p := points[j]
			if ref, err = app.Append(ref, lset, p.Time*1000+offset(now-p.Time), p.Value); err != nil {
				return errors.Join(err, app.Rollback())
			}
			if n++; n == groupSize {
				if err := commit(); err != nil {
					return err
				}
			}
		}
		rest[i] = points[j:]
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), commit())
		}
	}
	if err := commit(); err != nil {
		return err
	}
	compactor, err := tsdb.NewLeveledCompactor(ctx, nil, log, []int64{to - from}, nil, nil)
	if err != nil {
		return err
	}
	// Marked as out of order, the block does not keep the head from accepting points of its time.
	meta := &tsdb.BlockMeta{}
	meta.Compaction.SetOutOfOrder()
	_, err = compactor.Write(t.dir, head, head.MinTime(), head.MaxTime()+1, meta)
	return err
}

// removeImports removes what an import that was killed has left.
func removeImports(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, importPrefix+"*"))
	if err != nil {
		return err
	}
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove rest of an import: %w", err)
		}
	}
	return nil
}
