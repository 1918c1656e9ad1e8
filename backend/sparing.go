package backend

import (
	"path/filepath"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapwing-monitoring/lapwing/eventlog"
)

// sparingFS keeps the state database from setting space aside on a disk that has little. The database does so for each new file of
// its newest writes, 141 MiB, to write faster. That would take the space below which no events are taken, and some file systems
// give all that is left to a request that they then refuse.
type sparingFS struct {
	vfs.FS
	reserve *atomic.Uint64 // what must stay free, in bytes
}

func (s *sparingFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.Create(name, category)
	return s.sparing(f, name), err
}

func (s *sparingFS) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.ReuseForWrite(old, name, category)
	return s.sparing(f, name), err
}

func (s *sparingFS) Unwrap() vfs.FS { return s.FS }

func (s *sparingFS) sparing(f vfs.File, name string) vfs.File {
	if f == nil {
		return nil
	}
	return &sparingFile{File: f, dir: filepath.Dir(name), reserve: s.reserve}
}

type sparingFile struct {
	vfs.File
	dir     string
	reserve *atomic.Uint64
}

// Preallocate sets space aside if there is enough above the reserve for it and for a first start. Without it the file grows as it is
// written.
func (f *sparingFile) Preallocate(offset, length int64) error {
	free, err := eventlog.FreeSpace(f.dir)
	if err != nil || free < f.reserve.Load()+uint64(length)+initialSpace {
		return nil
	}
	return f.File.Preallocate(offset, length)
}
