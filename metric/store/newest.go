package store

import (
	"context"
	"fmt"
	"math"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// headReader reads the head of a tier, but not its points that are out of order.
type headReader struct {
	index    tsdb.IndexReader
	chunks   tsdb.ChunkReader
	builder  labels.ScratchBuilder
	metas    []chunks.Meta
	iterator chunkenc.Iterator
}

func (t *tier) headReader() (r *headReader, err error) {
	r = &headReader{}
	if r.index, err = t.db.Head().Index(); err != nil {
		return nil, err
	}
	if r.chunks, err = t.db.Head().Chunks(); err != nil {
		_ = r.index.Close()
		return nil, err
	}
	return r, nil
}

func (r *headReader) close() {
	_ = r.index.Close()
	_ = r.chunks.Close()
}

// newest returns the time in ms of the newest sample of a series, which is the last one of its last chunk. It reports
// false if there is none in order.
func (r *headReader) newest(ref storage.SeriesRef) (ms int64, ok bool) {
	if err := r.index.Series(ref, &r.builder, &r.metas); err != nil || len(r.metas) == 0 {
		return 0, false
	}
	chunk, _, err := r.chunks.ChunkOrIterable(r.metas[len(r.metas)-1])
	if err != nil || chunk == nil {
		return 0, false
	}
	for r.iterator = chunk.Iterator(r.iterator); r.iterator.Next() != chunkenc.ValNone; {
		ms, ok = r.iterator.AtT(), true
	}
	return ms, ok
}

// newest returns the time in ms of the newest sample that the tier has of a series, math.MinInt64 if it has none. It reads
// the times of chunks, and decodes one at most. Blocks may have newer samples than the head: those of an import.
func (t *tier) newest(ctx context.Context, ref storage.SeriesRef, lset labels.Labels) (int64, error) {
	newest, inOrder := int64(math.MinInt64), false
	if ref != 0 {
		r, err := t.headReader()
		if err != nil {
			return 0, fmt.Errorf("read the head of tier %s: %w", t.name(), err)
		}
		defer r.close()
		var ms int64
		if ms, inOrder = r.newest(ref); inOrder {
			newest = ms
		}
	}
	if !inOrder {
		late := tsdb.NewHeadAndOOOIndexReader(t.db.Head(), math.MinInt64, math.MinInt64, math.MaxInt64, 0)
		if err := newestChunk(ctx, late, lset, &newest); err != nil {
			return 0, fmt.Errorf("read the head of tier %s: %w", t.name(), err)
		}
	}
	for _, b := range t.db.Blocks() {
		if b.MaxTime() <= newest {
			continue
		}
		r, err := b.Index()
		if err == nil {
			err = newestChunk(ctx, r, lset, &newest)
			_ = r.Close()
		}
		if err != nil {
			return 0, fmt.Errorf("read the index of block %s of tier %s: %w", b.Meta().ULID, t.name(), err)
		}
	}
	return newest, nil
}

// newestChunk raises newest to the end of the newest chunk that an index has of a series.
func newestChunk(ctx context.Context, r tsdb.IndexReader, lset labels.Labels, newest *int64) error {
	postings, err := tsdb.PostingsForMatchers(ctx, r, matchers(lset)...)
	if err != nil {
		return err
	}
	var b labels.ScratchBuilder
	var metas []chunks.Meta
	for postings.Next() {
		if err := r.Series(postings.At(), &b, &metas); err != nil {
			return err
		}
		if labels.Equal(b.Labels(), lset) {
			for _, m := range metas {
				*newest = max(*newest, m.MaxTime)
			}
		}
	}
	return postings.Err()
}
