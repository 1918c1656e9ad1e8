package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// tier is one archive of all series whose policy has it.
type tier struct {
	archive series.Archive
	id      int // index in Store.tiers
	dir     string
	db      *tsdb.DB
	// block is the time in ms of the smallest block, and window how far back in ms samples out of order are accepted.
	block, window int64
	// startMax is the time in ms of the newest sample when the process started.
	startMax int64
	// touched is the time of the last commit, in ms. After a start it is that of the newest sample.
	touched atomic.Int64
	// held says that retire has the locks of all shards. Compactions are off while it changes.
	held bool
	// startNewest is, after a crash, the time in ms of the newest sample of each series when the process started. Only
	// recover reads it.
	startNewest map[storage.SeriesRef]int64

	// creating is held while the TSDB makes a series. It gives a series a number, and only then adds it to its lists. When
	// a larger number came first it sorts a list that a query may be reading.
	creating sync.Mutex
}

const hour = int64(time.Hour / time.Millisecond)

// samplesPerChunk bounds the samples of a chunk, which costs 23 bytes besides them. The TSDB's default is 120, and it
// bounds a chunk's bytes, too.
const samplesPerChunk = 480

// blockTime returns the time that a block of a tier spans, in ms. A chunk should have at least 120 samples, so blocks of
// coarse tiers are long; they are bounded because all of a block's time is in the head and in the write-ahead log
// before. Data live until their whole block has expired, so blocks of a short retention are short.
func blockTime(a series.Archive) int64 {
	want := 120 * a.Step * 1000
	if half := a.Retention() * 500; half < 2*hour {
		return max(half, hour/4)
	}
	return min(max((want+2*hour-1)/(2*hour)*2*hour, 2*hour), 240*hour)
}

func (t *tier) name() string { return filepath.Base(t.dir) }

// maxBlock returns the time in ms of the largest block: a tenth of the retention, so that old data goes in small
// parts.
func (t *tier) maxBlock() int64 {
	return max(t.block, min(t.archive.Retention()*100, max(31*24*hour, 9*t.block)))
}

func tierDir(a series.Archive) string { return fmt.Sprintf("tier-%ds-%ds", a.Step, a.Retention()) }

// parseTierDir is the reverse of tierDir.
func parseTierDir(name string) (series.Archive, bool) {
	var step, retention int64
	if _, err := fmt.Sscanf(name, "tier-%ds-%ds", &step, &retention); err != nil || step < 1 || retention%step != 0 {
		return series.Archive{}, false
	}
	a := series.Archive{Step: step, Points: retention / step}
	return a, a.Points > 0 && tierDir(a) == name
}

// openTiers opens all tiers that Dir has.
func (s *Store) openTiers(stopped bool) error {
	entries, err := os.ReadDir(s.o.Dir)
	if err != nil {
		return fmt.Errorf("list tiers: %w", err)
	}
	s.planMu.Lock()
	defer s.planMu.Unlock()
	for _, e := range entries {
		if a, ok := parseTierDir(e.Name()); ok && e.IsDir() {
			if err := s.keepLatePoints(filepath.Join(s.o.Dir, e.Name()), stopped); err != nil {
				s.log.Error("some late points from before a kill may be lost", "tier", e.Name(), "err", err)
			}
			if _, err := s.tierOf(a); err != nil {
				return err
			}
		}
	}
	return nil
}

// tierOf returns the tier of an archive and opens it if need be. The caller holds planMu.
func (s *Store) tierOf(a series.Archive) (*tier, error) {
	tiers := *s.tiers.Load()
	for _, t := range tiers {
		if t.archive == a {
			return t, nil
		}
	}
	if len(tiers) >= maxTiers {
		return nil, fmt.Errorf("open tier %s: there are %d tiers, the most that are allowed", tierDir(a), len(tiers))
	}
	t := &tier{archive: a, id: len(tiers), dir: filepath.Join(s.o.Dir, tierDir(a)), block: blockTime(a)}
	window := s.o.LateWindow.Milliseconds()
	if t.id > 0 || a.Step > 1 {
		window += 2 * a.Step * 1000
	}
	t.window = min(window, a.Retention()*1000+a.Step*1000)
	if err := s.openDB(t); err != nil {
		return nil, err
	}
	t.startMax = t.db.Head().MaxTime()
	for _, b := range t.db.Blocks() {
		t.startMax = max(t.startMax, b.MaxTime())
	}
	now := s.o.Now().UnixMilli()
	if t.touched.Store(now); t.startMax != math.MinInt64 {
		t.touched.Store(min(t.startMax, now))
	}
	grown := append(slices.Clone(tiers), t)
	s.tiers.Store(&grown)
	return t, nil
}

// maxTiers bounds the tiers of a store: each has files and a write-ahead log of its own.
const maxTiers = 64

// openDB opens a tier's TSDB. What cannot be read is renamed and logged, so that one bad file does not keep the
// server from starting: a checkpoint, single blocks, then the write-ahead log, then the whole tier.
func (s *Store) openDB(t *tier) error {
	o := tsdb.DefaultOptions()
	o.MinBlockDuration = t.block
	o.MaxBlockDuration = t.maxBlock()
	o.RetentionDuration = t.archive.Retention()*1000 + t.block
	o.OutOfOrderTimeWindow = t.window
	o.SamplesPerChunk = samplesPerChunk
	o.IsolationDisabled = true
	o.NewCompactorFunc = s.newCompactor(t)
	o.BlocksToDelete = func(blocks []*tsdb.Block) map[ulid.ULID]struct{} {
		return t.expired(blocks, s.o.Now().UnixMilli())
	}
	if s.o.Compress {
		o.WALCompression = compression.Snappy
	}
	// Appending by reference looks the series up in one map a stripe. With four times the default, these maps stay so
	// small that 250,000 series cost a third less time a point. Coarse tiers get few points.
	if t.archive.Step <= 60 {
		o.StripeSize = 4 * tsdb.DefaultStripeSize
	}
	if s.o.stripes > 0 {
		o.StripeSize = s.o.stripes
	}
	log := slog.New(warnings{s.log.Handler()}).With("tier", t.name())
	open := func() (err error) {
		t.db, err = tsdb.Open(t.dir, log, nil, o, nil)
		return err
	}
	if err := markMerged(t.dir); err != nil {
		return fmt.Errorf("open tier %s: %w", t.name(), err)
	}
	var err error
	aside := func(path string) bool {
		bad := fmt.Sprintf("%s.bad-%d", path, s.o.Now().UnixNano())
		if rerr := os.Rename(path, bad); rerr != nil {
			return false
		}
		s.counts.setAside.Add(1)
		s.log.Error("metric data cannot be read, it was set aside", "path", path,
			"renamed", filepath.Base(bad), "err", err)
		return true
	}
	if path, cerr := badCheckpoint(t.dir); cerr != nil {
		err = cerr
		aside(path)
	}
	if err = open(); err == nil {
		return nil
	}
	if damaged(err) && badBlocks(t.dir, log, aside) > 0 {
		if err = open(); err == nil {
			return nil
		}
	}
	for _, part := range []string{"wbl", "chunks_head", "wal"} {
		if !damaged(err) {
			break
		}
		if aside(filepath.Join(t.dir, part)) {
			if err = open(); err == nil {
				return nil
			}
		}
	}
	if damaged(err) && aside(t.dir) {
		if err = open(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("open tier %s: %w", t.name(), err)
}

// expired returns the blocks that may be removed: by the clock, because in a tier that no policy uses any more no
// newer block appears, by which the TSDB would measure their age.
func (t *tier) expired(blocks []*tsdb.Block, now int64) map[ulid.ULID]struct{} {
	ids := map[ulid.ULID]struct{}{}
	for _, b := range blocks {
		if m := b.Meta(); m.Compaction.Deletable || m.MaxTime < now-t.archive.Retention()*1000-t.block {
			ids[m.ULID] = struct{}{}
		}
	}
	return ids
}

// idle reports whether the tier has got no points for two blocks' time, whatever the points' own times are.
func (t *tier) idle(now int64) bool {
	h := t.db.Head()
	return h.NumSeries() > 0 && h.MaxTime() >= h.MinTime() && now-t.touched.Load() >= 2*t.block
}

// retire writes the head of an idle tier into a block, so that it needs no memory. No shard commits meanwhile: the TSDB
// would write the block, lose what comes then with a time of the block, and drop the series from the head.
func (s *Store) retire(t *tier) error {
	t.db.DisableCompactions() // it waits for one that runs, which may wait for a shard
	defer func() {
		if !s.full.Load() {
			t.db.EnableCompactions()
		}
	}()
	for _, sh := range s.shards {
		sh.mu.Lock()
		defer sh.mu.Unlock()
	}
	t.held = true
	defer func() { t.held = false }()
	h := t.db.Head()
	if err := t.db.CompactHead(tsdb.NewRangeHead(h, h.MinTime(), h.MaxTime())); err != nil {
		return err
	}
	return t.db.CompactOOOHead(context.Background())
}

// damaged reports whether err may come from the content of files. Errors of the environment do not: setting files
// aside would not help, and would hide good data.
func damaged(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EMFILE, syscall.ENFILE, syscall.EACCES, syscall.EPERM, syscall.EROFS,
		syscall.EIO, syscall.EAGAIN, syscall.ENOMEM, syscall.EDQUOT} {
		if errors.Is(err, e) {
			return false
		}
	}
	return !strings.Contains(err.Error(), "lock DB directory")
}

// badCheckpoint reads the newest checkpoint of the write-ahead log and returns the path of one that is damaged. The
// TSDB would take the damage for one of the log itself, and cut the log off at every start.
func badCheckpoint(dir string) (path string, err error) {
	path, _, err = wlog.LastCheckpoint(filepath.Join(dir, "wal"))
	if err != nil {
		return "", nil // there is none
	}
	segments, err := wlog.NewSegmentsReader(path)
	if err != nil {
		return path, err
	}
	defer segments.Close()
	r := wlog.NewReader(segments)
	for r.Next() {
	}
	return path, r.Err()
}

// badBlocks sets the blocks aside that cannot be opened, and returns their number.
func badBlocks(dir string, log *slog.Logger, aside func(string) bool) int {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	n := 0
	for _, e := range entries {
		if _, err := ulid.ParseStrict(e.Name()); err != nil {
			continue
		}
		path := filepath.Join(dir, e.Name())
		b, err := tsdb.OpenBlock(log, path, nil, nil)
		if err == nil {
			err = b.Close()
		}
		if err != nil && aside(path) {
			n++
		}
	}
	return n
}

func (s *Store) closeTiers() error {
	s.planMu.Lock()
	defer s.planMu.Unlock()
	var errs []error
	for _, t := range *s.tiers.Load() {
		if err := t.db.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close tier %s: %w", t.name(), err))
		}
	}
	return errors.Join(errs...)
}
