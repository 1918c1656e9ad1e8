package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// compactor keeps blocks of late and imported points apart from the others while the head has their time.
//
// At its start the TSDB takes all of the write-ahead log that is older than the newest block for a copy of what
// blocks have, unless the block is marked as made of points out of order. Its own compactor forgets that mark. So
// merged late points, or an import, could reach into the head's time without the mark, and a restart would lose the
// head's points of that time.
//
// Before it writes a part of the head it waits until each shard has committed its present group. The TSDB would wait
// for such groups if it kept books of them, which costs memory for each series. Groups that begin later cannot have
// points of the block's time in order, so what the TSDB drops from the head afterwards is in the block.
type compactor struct {
	tsdb.Compactor
	store *Store
	tier  *tier
}

func (s *Store) newCompactor(t *tier) tsdb.NewCompactorFunc {
	return func(ctx context.Context, r prometheus.Registerer, l *slog.Logger, ranges []int64, pool chunkenc.Pool,
		o *tsdb.Options) (tsdb.Compactor, error) {
		c, err := tsdb.NewLeveledCompactorWithOptions(ctx, r, l, ranges, pool, tsdb.LeveledCompactorOptions{
			MaxBlockChunkSegmentSize: o.MaxBlockChunkSegmentSize, EnableOverlappingCompaction: true})
		return &compactor{c, s, t}, err
	}
}

// Write implements tsdb.Compactor.
func (c *compactor) Write(dest string, b tsdb.BlockReader, mint, maxt int64,
	base *tsdb.BlockMeta) ([]ulid.ULID, error) {
	if _, head := b.(*tsdb.RangeHead); head && !c.tier.held {
		for _, sh := range c.store.shards {
			sh.betweenGroups()
		}
	}
	return c.Compactor.Write(dest, b, mint, maxt, base)
}

// Plan defers a merge of marked blocks with others until the others reach as far. The head's next block brings that
// about.
func (c *compactor) Plan(dir string) ([]string, error) {
	dirs, err := c.Compactor.Plan(dir)
	if err != nil || len(dirs) == 0 {
		return nil, err
	}
	metas, err := blockMetas(dir)
	if err != nil {
		return nil, err
	}
	inOrder := int64(math.MinInt64)
	for _, m := range metas {
		if !m.Compaction.FromOutOfOrder() {
			inOrder = max(inOrder, m.MaxTime)
		}
	}
	marked, latest := 0, int64(math.MinInt64)
	for _, d := range dirs {
		m, ok := metas[filepath.Base(d)]
		if !ok {
			return nil, fmt.Errorf("plan compaction: block %s is gone", filepath.Base(d))
		}
		if m.Compaction.FromOutOfOrder() {
			marked++
		}
		latest = max(latest, m.MaxTime)
	}
	if marked > 0 && marked < len(dirs) && latest > inOrder {
		return nil, nil
	}
	return dirs, nil
}

// Compact passes the mark on if all of the blocks have it.
func (c *compactor) Compact(dest string, dirs []string, open []*tsdb.Block) ([]ulid.ULID, error) {
	all := true
	for _, d := range dirs {
		m, err := readMeta(d)
		if err != nil {
			return nil, err
		}
		all = all && m.Compaction.FromOutOfOrder()
	}
	ids, err := c.Compactor.Compact(dest, dirs, open)
	if err != nil || !all {
		return ids, err
	}
	for _, id := range ids {
		if err := mark(filepath.Join(dest, id.String())); err != nil {
			return ids, err
		}
	}
	return ids, nil
}

// markMerged marks merged blocks whose sources are all marked and still there. They are if the process was killed
// between the two steps of Compact.
func markMerged(dir string) error {
	metas, err := blockMetas(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for name, m := range metas {
		parents := m.Compaction.Parents
		all := len(parents) > 0 && !m.Compaction.FromOutOfOrder()
		for _, p := range parents {
			parent, ok := metas[p.ULID.String()]
			all = all && ok && parent.Compaction.FromOutOfOrder()
		}
		if all {
			if err := mark(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// blockMetas returns the descriptions of the blocks in dir that can be read.
func blockMetas(dir string) (map[string]*tsdb.BlockMeta, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	metas := map[string]*tsdb.BlockMeta{}
	for _, e := range entries {
		if _, err := ulid.ParseStrict(e.Name()); err != nil || !e.IsDir() {
			continue
		}
		if m, err := readMeta(filepath.Join(dir, e.Name())); err == nil {
			metas[e.Name()] = m
		}
	}
	return metas, nil
}

const metaFile = "meta.json"

func readMeta(block string) (*tsdb.BlockMeta, error) {
	b, err := os.ReadFile(filepath.Join(block, metaFile))
	if err != nil {
		return nil, err
	}
	m := &tsdb.BlockMeta{}
	if err := json.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(block, metaFile), err)
	}
	return m, nil
}

// mark marks a block as made of points out of order.
func mark(block string) error {
	m, err := readMeta(block)
	if err != nil {
		return err
	}
	m.Compaction.SetOutOfOrder()
	b, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return err
	}
	path := filepath.Join(block, metaFile)
	f, err := os.Create(path + ".tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}
