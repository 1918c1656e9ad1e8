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
func (s *Store) keepLatePoints(tier string, stopped bool) error {
	dir, fresh, old := filepath.Join(tier, lateLog), filepath.Join(tier, lateLogNew), filepath.Join(tier, lateLogOld)
	if exists(old) && !exists(dir) { // an earlier call was killed between its last steps
		if err := os.Rename(old, dir); err != nil {
			return fmt.Errorf("put the log of late points back: %w", err)
		}
	}
	if err := errors.Join(os.RemoveAll(fresh), os.RemoveAll(old)); err != nil {
		return fmt.Errorf("remove copies of the log of late points: %w", err)
	}
	if stopped || !exists(dir) {
		return nil
	}
	// Damage is left to the TSDB, unless the log is written anew.
	if forgets, size, _ := forgetsLatePoints(dir); !forgets {
		return nil
	} else if free, err := s.o.freeBytes(tier); err == nil && free < size+s.o.MinFreeBytes {
		return fmt.Errorf("write the log of late points anew: there is no room for %d bytes", size)
	}
	damage, err := copyLateLog(dir, fresh)
	if err != nil {
		return errors.Join(fmt.Errorf("write the log of late points anew: %w", err), os.RemoveAll(fresh))
	}
	if err := os.Rename(dir, old); err != nil {
		return fmt.Errorf("replace the log of late points: %w", err)
	}
	if err := os.Rename(fresh, dir); err != nil {
		return errors.Join(fmt.Errorf("replace the log of late points: %w", err), os.Rename(old, dir))
	}
	if damage == nil {
		return os.RemoveAll(old)
	}
	bad := fmt.Sprintf("%s.bad-%d", dir, s.o.Now().UnixNano())
	s.counts.setAside.Add(1)
	s.log.Error("the log of late points is damaged, points behind the damage are lost, and it was set aside",
		"tier", filepath.Base(tier), "renamed", filepath.Base(bad), "err", damage)
	return os.Rename(old, bad)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// forgetsLatePoints reports whether a log of late points has points of a series before a marker without a chunk, how many
// bytes its records have, and where it is damaged.
func forgetsLatePoints(dir string) (forgets bool, size int64, damage error) {
	seen := map[chunks.HeadSeriesRef]struct{}{}
	damage, _ = readLateLog(dir, func(raw []byte, samples []record.RefSample, markers []record.RefMmapMarker) error {
		size += int64(len(raw))
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
	return forgets, size, damage
}

// copyLateLog copies a log of late points without markers that have no chunk, up to its damage if it has some.
func copyLateLog(from, to string) (damage, err error) {
	log, err := wlog.New(nil, nil, to, compression.None)
	if err != nil {
		return nil, err
	}
	var encoder record.Encoder
	damage, err = readLateLog(from, func(raw []byte, _ []record.RefSample, markers []record.RefMmapMarker) error {
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
	return damage, errors.Join(err, log.Close())
}

// readLateLog calls f with each record of a log of late points: its samples, or its markers, or neither. It returns what it
// cannot read as damage, and the error of f.
func readLateLog(dir string, f func(raw []byte, samples []record.RefSample, markers []record.RefMmapMarker) error) (
	damage, err error) {
	segments, damage := wlog.NewSegmentsReader(dir)
	if damage != nil {
		return damage, nil
	}
	defer segments.Close()
	decoder := record.NewDecoder(labels.NewSymbolTable())
	var samples []record.RefSample
	var markers []record.RefMmapMarker
	r := wlog.NewReader(segments)
	for r.Next() {
		raw := r.Record()
		var s []record.RefSample
		var m []record.RefMmapMarker
		switch decoder.Type(raw) {
		case record.Samples:
			samples, damage = decoder.Samples(raw, samples[:0])
			s = samples
		case record.MmapMarkers:
			markers, damage = decoder.MmapMarkers(raw, markers[:0])
			m = markers
		}
		if damage != nil {
			return damage, nil
		}
		if err := f(raw, s, m); err != nil {
			return nil, err
		}
	}
	return r.Err(), nil
}
