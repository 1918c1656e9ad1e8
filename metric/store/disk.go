package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// runDisk syncs the write-ahead logs and watches the free space.
func (s *Store) runDisk() {
	interval := s.o.SyncInterval
	if interval < 0 {
		interval = time.Second
	}
	stopped := map[*tier]bool{}
	for s.pause(s.ctx, interval) {
		s.checkDisk()
		s.pauseCompactions(stopped)
		// What the journal had is removed only when the values that were computed are synced.
		removable := s.journal.removable()
		if s.o.SyncInterval > 0 && !s.syncLogs() {
			continue
		}
		if err := s.journal.remove(removable); err != nil {
			s.rare.Error("cannot remove a journal of corrections", "journal", "err", err)
		}
	}
}

// checkDisk decides whether points are accepted.
func (s *Store) checkDisk() {
	if s.o.MinFreeBytes < 0 {
		return
	}
	free, err := s.o.freeBytes(s.o.Dir)
	if err != nil {
		return // no statement is no reason to stop
	}
	low := free < s.o.MinFreeBytes
	switch {
	case s.full.Swap(low) == low:
	case low:
		s.log.Error("disk of the metric store is almost full, points are dropped", "free_bytes", free,
			"needed_bytes", s.o.MinFreeBytes)
	default:
		s.log.Info("disk of the metric store has room again, points are stored", "free_bytes", free)
		s.wakeCorrector()
	}
}

// pauseCompactions stops the compactions while the disk is almost full, and lets them go on afterwards: a compaction
// would use up the room that the TSDB needs for its head's chunk files. Only runDisk calls it, with all tiers that it
// has stopped.
func (s *Store) pauseCompactions(stopped map[*tier]bool) {
	full := s.full.Load()
	for _, t := range *s.tiers.Load() {
		switch {
		case full && !stopped[t]:
			t.db.DisableCompactions()
			stopped[t] = true
		case !full && stopped[t]:
			t.db.EnableCompactions()
			delete(stopped, t)
		}
	}
}

// syncLogs makes what was written to the logs safe against a power cut. The TSDB itself syncs a log's segment only
// when it is full; the segment is opened again here, because the kernel syncs the file and not the descriptor.
func (s *Store) syncLogs() (ok bool) {
	ok = true
	if err := s.journal.sync(); err != nil {
		ok = false
		s.counts.syncFailed.Add(1)
		s.rare.Error("cannot sync the journal of corrections", "journal", "err", err)
	}
	for _, t := range *s.tiers.Load() {
		for _, log := range []string{"wal", "wbl"} {
			if err := syncLast(filepath.Join(t.dir, log)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				ok = false
				s.counts.syncFailed.Add(1)
				s.rare.Error("cannot sync a log of the metric store", t.name(), "tier", t.name(), "err", err)
			}
		}
	}
	return ok
}

// syncLast syncs the newest segment of a log.
func syncLast(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	last := ""
	for _, e := range entries {
		if n := e.Name(); !e.IsDir() && len(n) == 8 && n > last {
			last = n
		}
	}
	if last == "" {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(dir, last), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// diskBytes returns the size of all blocks, and of the logs and head chunks.
func (t *tier) diskBytes() (blocks, wal int64) {
	for _, b := range t.db.Blocks() {
		blocks += b.Size()
	}
	for _, part := range []string{"wal", "wbl", "chunks_head"} {
		_ = filepath.WalkDir(filepath.Join(t.dir, part), func(_ string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil
			}
			if info, err := d.Info(); err == nil {
				wal += info.Size()
			}
			return nil
		})
	}
	return blocks, wal
}
