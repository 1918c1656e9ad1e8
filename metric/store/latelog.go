package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
)

// The TSDB's log of late points, and its names while it is written anew.
const (
	lateLog    = "wbl"
	lateLogNew = "wbl.new"
	lateLogOld = "wbl.old"
)

// keepLatePoints has the TSDB read all late points again that its log has, after a run without Stop.
//
// A compaction of late points puts those in memory into chunk files, which are written in large parts. The next late point of
// a series is logged behind a marker without a reference to a chunk, and at that marker a start forgets the points before
// it. After a kill the chunk files may not have them. So such markers are taken out. Points that are in a chunk file, too,
// are there twice then, which does no harm.
func keepLatePoints(tier string) error {
	dir, fresh, old := filepath.Join(tier, lateLog), filepath.Join(tier, lateLogNew), filepath.Join(tier, lateLogOld)
	if exists(old) && !exists(dir) { // an earlier call was killed between its last steps
		if err := os.Rename(old, dir); err != nil {
			return fmt.Errorf("put the log of late points back: %w", err)
		}
	}
	if err := errors.Join(os.RemoveAll(fresh), os.RemoveAll(old)); err != nil {
		return fmt.Errorf("remove copies of the log of late points: %w", err)
	}
	if !exists(dir) {
		return nil
	}
	forgets, err := forgetsLatePoints(dir)
	if err != nil || !forgets {
		return err
	}
	if err := copyLateLog(dir, fresh); err != nil {
		return fmt.Errorf("write the log of late points anew: %w", err)
	}
	if err := errors.Join(os.Rename(dir, old), os.Rename(fresh, dir)); err != nil {
		return fmt.Errorf("replace the log of late points: %w", err)
	}
	return os.RemoveAll(old)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// forgetsLatePoints reports whether a log of late points has points of a series before a marker without a chunk.
func forgetsLatePoints(dir string) (forgets bool, err error) {
	seen := map[chunks.HeadSeriesRef]struct{}{}
	err = readLateLog(dir, func(_ []byte, samples []record.RefSample, markers []record.RefMmapMarker) error {
		for _, s := range samples {
			seen[s.Ref] = struct{}{}
		}
		for _, m := range markers {
			if _, ok := seen[m.Ref]; ok && m.MmapRef == 0 {
				forgets = true
			}
		}
		return nil
	})
	return forgets, err
}

// copyLateLog copies a log of late points without markers that have no chunk.
func copyLateLog(from, to string) error {
	log, err := wlog.New(nil, nil, to, compression.None)
	if err != nil {
		return err
	}
	var encoder record.Encoder
	err = readLateLog(from, func(raw []byte, _ []record.RefSample, markers []record.RefMmapMarker) error {
		if markers == nil {
			return log.Log(raw)
		}
		var kept []record.RefMmapMarker
		for _, m := range markers {
			if m.MmapRef != 0 {
				kept = append(kept, m)
			}
		}
		if len(kept) == 0 {
			return nil
		}
		return log.Log(encoder.MmapMarkers(kept, nil))
	})
	return errors.Join(err, log.Close())
}

// readLateLog calls f with each record of a log of late points: its samples, or its markers, or neither. It ends without an
// error where the log is torn, as the TSDB does.
func readLateLog(dir string, f func(raw []byte, samples []record.RefSample, markers []record.RefMmapMarker) error) error {
	segments, err := wlog.NewSegmentsReader(dir)
	if err != nil {
		return fmt.Errorf("open the log of late points: %w", err)
	}
	defer segments.Close()
	decoder := record.NewDecoder(labels.NewSymbolTable())
	var samples []record.RefSample
	var markers []record.RefMmapMarker
	for r := wlog.NewReader(segments); r.Next(); {
		raw := r.Record()
		var s []record.RefSample
		var m []record.RefMmapMarker
		switch decoder.Type(raw) {
		case record.Samples:
			if samples, err = decoder.Samples(raw, samples[:0]); err != nil {
				return nil
			}
			s = samples
		case record.MmapMarkers:
			if markers, err = decoder.MmapMarkers(raw, markers[:0]); err != nil {
				return nil
			}
			m = markers
		}
		if err := f(raw, s, m); err != nil {
			return err
		}
	}
	return nil
}
