package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	extension  = ".journal"
	minSegment = 1 << 20
	maxSegment = 64 << 20
)

// files are the segments of a journal: numbered files that are only appended to, and removed from the oldest on.
type files struct {
	dir   string
	limit int64 // of a segment, in bytes
	parts []*partition

	mu       sync.Mutex // guards the fields below
	segments []*segment // oldest first
	nextID   uint64
	writer   *os.File // of the last segment; nil if the next write begins a new one
	has      []uint64 // see trim
	wake     chan struct{}
}

// segment is one file.
type segment struct {
	id      uint64
	size    int64
	written time.Time
	free    time.Time // since when trim knows that no partition needs it; zero while one does
	entries int
	last    map[key]uint64 // the newest message of each stream in it
	missed  bool           // its file is known to be gone
}

type key struct {
	partition int
	stream    uint64
}

func (s *segment) add(f *Frame) {
	s.entries += f.Count
	k := key{f.Partition, f.Stream}
	s.last[k] = max(s.last[k], f.Last)
}

// owed reports whether a partition needs the segment that has its stream's messages up to has already.
func (s *segment) owed(parts []*partition, has []uint64) bool {
	for _, p := range parts {
		if s.last[key{p.id, p.stream}] > has[p.id] {
			return true
		}
	}
	return false
}

func (fs *files) path(id uint64) string {
	return filepath.Join(fs.dir, fmt.Sprintf("%012d%s", id, extension))
}

// open reads which segments a directory has, and what is in them. After an error it has none.
func (fs *files) open(dir string, maxBytes int64, parts []*partition) (err error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	defer func() {
		if err != nil {
			fs.segments = nil
		}
	}()
	fs.dir, fs.parts, fs.nextID, fs.wake = dir, parts, 1, make(chan struct{})
	fs.limit = min(max(maxBytes/32, minSegment), maxSegment)
	fs.has = make([]uint64, len(parts))
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) { // the first write creates it
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), extension)
		id, err := strconv.ParseUint(name, 10, 64)
		if !ok || err != nil || fs.path(id) != filepath.Join(dir, e.Name()) || !e.Type().IsRegular() {
			continue
		}
		fs.segments = append(fs.segments, &segment{id: id, last: map[key]uint64{}})
		fs.nextID = max(fs.nextID, id+1)
	}
	slices.SortFunc(fs.segments, func(a, b *segment) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
	for i, s := range fs.segments {
		if err := fs.scan(s, i == len(fs.segments)-1); err != nil {
			return err
		}
	}
	return nil
}

// scan reads the headers of a segment. A crash leaves the newest one torn: it is read as a whole, and cut behind the
// last frame that is not damaged. Damage in older ones is found by the reader.
func (fs *files) scan(s *segment, newest bool) error {
	f, err := os.OpenFile(fs.path(s.id), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	s.size, s.written = info.Size(), info.ModTime()
	r := reading{file: f, end: s.size}
	for {
		frame, err := r.header()
		if err == nil && newest {
			err = r.body(&frame)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errDamaged) && newest && !r.resync():
			s.size = r.whole
			return f.Truncate(s.size)
		case errors.Is(err, errDamaged):
			if !newest && !r.resync() {
				return nil
			}
			continue
		case err != nil:
			return err
		}
		s.add(&frame)
		r.pass(&frame)
	}
}

// end returns the newest message of a partition's stream in the journal; 0 for none.
func (fs *files) end(partition int, stream uint64) (last uint64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, s := range fs.segments {
		last = max(last, s.last[key{partition, stream}])
	}
	return last
}

// write appends frames, and syncs them. After an error the next write begins a new file.
func (fs *files) write(b []byte, frames []Frame) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if n := len(fs.segments); fs.writer != nil && fs.segments[n-1].size+int64(len(b)) > fs.limit && fs.segments[n-1].size > 0 {
		fs.endWriter()
	}
	if fs.writer == nil {
		if err := fs.begin(); err != nil {
			return fmt.Errorf("begin a file: %w", err)
		}
	}
	s := fs.segments[len(fs.segments)-1]
	_, err := fs.writer.WriteAt(b, s.size)
	if err == nil {
		err = fs.sync()
	}
	if err != nil {
		_ = fs.writer.Truncate(s.size) // or the reader passes over it as damage
		fs.endWriter()
		if s.size == 0 && os.Remove(fs.path(s.id)) == nil {
			fs.segments = fs.segments[:len(fs.segments)-1]
		}
		return fmt.Errorf("write: %w", err)
	}
	s.size += int64(len(b))
	s.written = time.Now()
	for i := range frames {
		s.add(&frames[i])
	}
	close(fs.wake)
	fs.wake = make(chan struct{})
	return nil
}

// inTheWay bounds how many names in a row are tried for a new file.
const inTheWay = 100

// begin begins a new segment. It passes over the names of what is there already. The caller holds mu.
func (fs *files) begin() error {
	if err := os.MkdirAll(fs.dir, 0o700); err != nil {
		return err
	}
	var f *os.File
	for range inTheWay {
		var err error
		f, err = os.OpenFile(fs.path(fs.nextID), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			break
		}
		if !errors.Is(err, os.ErrExist) {
			return err
		}
		fs.nextID++
	}
	if f == nil {
		return fmt.Errorf("something is in the way of %d files below %s", inTheWay, fs.path(fs.nextID))
	}
	if err := syncDir(fs.dir); err != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return err
	}
	fs.writer = f
	fs.segments = append(fs.segments, &segment{id: fs.nextID, last: map[key]uint64{}})
	fs.nextID++
	return nil
}

// gone has the next write begin a new file if the present one is not at its path any more. Then the segments without a
// file leave the list. It returns those that were not known to be gone. Only the writer's goroutine calls it.
func (fs *files) gone() (missing []uint64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.writer == nil {
		return nil
	}
	has, err := fs.writer.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Stat(fs.path(fs.segments[len(fs.segments)-1].id)); err == nil && os.SameFile(has, there) {
			return nil
		}
	}
	fs.endWriter()
	fs.segments = slices.DeleteFunc(fs.segments, func(s *segment) bool {
		_, err := os.Stat(fs.path(s.id))
		if !errors.Is(err, os.ErrNotExist) {
			return false
		}
		if !s.missed {
			missing = append(missing, s.id)
		}
		return true
	})
	return missing
}

// miss reports whether a file that is not there should be, and was not known to be gone.
func (fs *files) miss(id uint64) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, s := range fs.segments {
		if s.id == id && !s.missed {
			s.missed = true
			return true
		}
	}
	return false
}

// sync makes a write survive a crash of the machine. Readers and the state wait for nothing meanwhile. The caller holds
// mu, which is free during the sync: only the writer's goroutine changes writer.
func (fs *files) sync() error {
	w := fs.writer
	fs.mu.Unlock()
	defer fs.mu.Lock()
	return w.Sync()
}

// syncDir makes a new file's name survive a crash of the machine. Windows has no such call, and needs none.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (fs *files) endWriter() {
	_ = fs.writer.Close()
	fs.writer = nil
}

func (fs *files) size() (n int64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, s := range fs.segments {
		n += s.size
	}
	return n
}

func (fs *files) usage() (bytes, owed int64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, s := range fs.segments {
		bytes += s.size
		if s.owed(fs.parts, fs.has) {
			owed += s.size
		}
	}
	return bytes, owed
}

// trim removes the oldest segments that no partition has needed for a while.
func (fs *files) trim(has []uint64, keep time.Duration) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	copy(fs.has, has)
	now := time.Now()
	for _, s := range fs.segments {
		if s.owed(fs.parts, fs.has) {
			s.free = time.Time{}
		} else if s.free.IsZero() {
			s.free = now
		}
	}
	for len(fs.segments) > 0 {
		s := fs.segments[0]
		if len(fs.segments) == 1 && fs.writer != nil || s.free.IsZero() || now.Sub(s.free) < keep {
			return nil
		}
		if err := fs.remove(); err != nil {
			return err
		}
	}
	return nil
}

// removeBefore removes the segments that were written before a time, whatever they have.
func (fs *files) removeBefore(t time.Time) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for len(fs.segments) > 0 && fs.segments[0].written.Before(t) {
		if len(fs.segments) == 1 && fs.writer != nil {
			fs.endWriter()
		}
		if err := fs.remove(); err != nil {
			return err
		}
	}
	return nil
}

// removeOldest removes the oldest segment, whatever it has; false if it is the only one. It returns how many entries it
// had if a partition needed it.
func (fs *files) removeOldest() (entries int, ok bool, err error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if len(fs.segments) < 2 {
		return 0, false, nil
	}
	if s := fs.segments[0]; s.owed(fs.parts, fs.has) {
		entries = s.entries
	}
	err = fs.remove()
	return entries, err == nil, err
}

// remove removes the oldest segment. The caller holds mu.
func (fs *files) remove() error {
	if err := os.Remove(fs.path(fs.segments[0].id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove a file of the journal: %w", err)
	}
	fs.segments = slices.Delete(fs.segments, 0, 1)
	return nil
}

func (fs *files) close() error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.writer == nil {
		return nil
	}
	err := fs.writer.Close()
	fs.writer = nil
	return err
}
