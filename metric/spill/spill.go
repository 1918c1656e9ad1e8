// Package spill is a queue of records on disk, for data whose receiver is away. The relay puts batches of points there,
// and a cluster may put what it owes to absent members there.
//
// Records come out in the order in which they went in, also after a restart. A process that is killed at any moment
// leaves a queue that can be read: a torn record at the end is cut. A damaged record is skipped and counted, and
// reading goes on at the next whole record. After a kill, the last record that was read may come again.
//
// The queue is bounded. When it is full, or the disk is, Append fails and nothing that is stored is lost: the caller
// counts the newest records as dropped. Records are written to the operating system at once, but they are only synced
// at the end of a file and by Close: a power failure may cost the newest ones. One process at a time may open a
// directory.
package spill

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ErrFull is returned by Append when the record does not fit into MaxBytes.
var ErrFull = errors.New("the spill is full")

// ErrClosed is returned after Close.
var ErrClosed = errors.New("the spill is closed")

const (
	// MaxRecord bounds a record, in bytes.
	MaxRecord = 16 << 20
	// DefaultMaxBytes is the bound of a queue without MaxBytes.
	DefaultMaxBytes = 1 << 30

	minBytes       = 64 << 10
	minSegment     = 64 << 10
	maxSegment     = 16 << 20
	headerSize     = 12
	extension      = ".spill"
	positionFile   = "position"
	positionLength = 20
)

// mark begins each record. Reading finds the next record by it after a damaged one.
var mark = []byte{0xf7, 'L', 's', 0x1d}

// castagnoli is immutable.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Options are the settings of a spill.
type Options struct {
	// Dir has the files. It is created if it is missing.
	Dir string
	// MaxBytes bounds the files together. The default is DefaultMaxBytes, the least is 64 KiB. Space is freed in steps of
	// a sixteenth of it, or 16 MiB at most.
	MaxBytes int64
}

// Spill is a queue on disk. Its methods may be called by several goroutines, but only one may use Next and Done.
type Spill struct {
	dir         string
	maxBytes    int64
	segmentSize int64

	mu       sync.Mutex // guards the fields below
	closed   bool
	segments []segment // oldest first
	nextID   uint64
	writer   *os.File // of the last segment; nil when the next record begins a new one
	reader   *os.File // of the first segment; nil when it is not open
	position *os.File
	offset   int64  // of the oldest record that is not done, in the first segment
	end      int64  // behind the record that Next returned; 0 without one
	record   []byte // the bytes of the record that Next returned, a part of buffer
	buffer   []byte
	stats    Stats
}

// segment is one file.
type segment struct {
	id   uint64
	size int64
}

// Stats are counts since Open.
type Stats struct {
	// Appended and Done are records.
	Appended, Done uint64
	// Damaged counts places where records were skipped or cut, DamagedBytes their bytes.
	Damaged, DamagedBytes uint64
}

// Open opens the queue of a directory, with the records that are there.
func Open(o Options) (*Spill, error) {
	if o.Dir == "" {
		return nil, errors.New("spill: Dir is empty")
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxBytes < minBytes {
		return nil, fmt.Errorf("spill: MaxBytes is %d: the least is %d", o.MaxBytes, minBytes)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of a spill: %w", err)
	}
	s := &Spill{dir: o.Dir, maxBytes: o.MaxBytes, segmentSize: min(max(o.MaxBytes/16, minSegment), maxSegment), nextID: 1}
	if err := s.find(); err != nil {
		return nil, err
	}
	var err error
	if s.position, err = os.OpenFile(filepath.Join(o.Dir, positionFile), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, fmt.Errorf("open the position of a spill: %w", err)
	}
	s.resume()
	return s, nil
}

// find lists the segments that an earlier process left. They are not appended to: their ends may be torn.
func (s *Spill) find() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("list the files of a spill: %w", err)
	}
	for _, e := range entries {
		id, err := strconv.ParseUint(strings.TrimSuffix(e.Name(), extension), 10, 64)
		if err != nil || e.Name() != segmentName(id) || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return fmt.Errorf("look at the file %s of a spill: %w", e.Name(), err)
		}
		s.segments = append(s.segments, segment{id, info.Size()})
	}
	slices.SortFunc(s.segments, func(a, b segment) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
	if n := len(s.segments); n > 0 {
		s.nextID = s.segments[n-1].id + 1
	}
	return nil
}

// resume reads where an earlier process was. Without a readable position the oldest segment is read from its start.
func (s *Spill) resume() {
	var b [positionLength]byte
	n, _ := s.position.ReadAt(b[:], 0)
	if n < len(b) || crc32.Checksum(b[:16], castagnoli) != binary.LittleEndian.Uint32(b[16:]) {
		return
	}
	id, offset := binary.LittleEndian.Uint64(b[:]), int64(binary.LittleEndian.Uint64(b[8:]))
	s.nextID = max(s.nextID, id+1) // so that no new segment begins at an old position
	if len(s.segments) > 0 && s.segments[0].id == id && offset >= 0 {
		s.offset = min(offset, s.segments[0].size)
	}
}

func segmentName(id uint64) string { return fmt.Sprintf("%020d%s", id, extension) }

func (s *Spill) path(id uint64) string { return filepath.Join(s.dir, segmentName(id)) }

// Append adds a record behind all others. The caller may use record again. It fails with ErrFull if there is no room.
func (s *Spill) Append(record []byte) error {
	if len(record) > MaxRecord {
		return fmt.Errorf("spill a record of %d bytes: the limit is %d", len(record), MaxRecord)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	size := int64(headerSize + len(record))
	if s.disk()+size > s.maxBytes {
		return fmt.Errorf("spill a record of %d bytes: %w: MaxBytes is %d", len(record), ErrFull, s.maxBytes)
	}
	if s.writer != nil && s.segments[len(s.segments)-1].size+size > s.segmentSize {
		s.endWriter()
	}
	if s.writer == nil {
		f, err := os.OpenFile(s.path(s.nextID), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("begin a file of a spill: %w", err)
		}
		s.writer = f
		s.segments = append(s.segments, segment{id: s.nextID})
		s.nextID++
	}
	last := &s.segments[len(s.segments)-1]
	b := make([]byte, headerSize, size)
	copy(b, mark)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(record)))
	b = append(b, record...)
	binary.LittleEndian.PutUint32(b[8:], checksum(b))
	if n, err := s.writer.WriteAt(b, last.size); err != nil {
		// What was written of the record goes away again, or stays behind the end of the segment as a torn record.
		if n > 0 && s.writer.Truncate(last.size) != nil {
			s.endWriter()
		}
		return fmt.Errorf("write to a spill: %w", err)
	}
	last.size += size
	s.stats.Appended++
	return nil
}

// checksum is over the length and the bytes of a whole record.
func checksum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[4:8], castagnoli), castagnoli, b[headerSize:])
}

// endWriter ends the last segment. Errors are left out: the next record goes to a new file, and reading finds damage.
func (s *Spill) endWriter() {
	if s.writer != nil {
		_ = s.writer.Sync()
		_ = s.writer.Close()
		s.writer = nil
	}
}

// disk returns the bytes of all files.
func (s *Spill) disk() (n int64) {
	for _, seg := range s.segments {
		n += seg.size
	}
	return n
}

// Bytes returns the bytes on disk that are not done.
func (s *Spill) Bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.disk() - s.offset
}

// Stats returns the counts so far.
func (s *Spill) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Next returns the oldest record that is not done, and io.EOF if there is none. It returns the same record until Done
// is called. The record is valid until then.
func (s *Spill) Next() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if s.end > 0 {
		return s.record, nil
	}
	for len(s.segments) > 0 {
		found, err := s.read()
		if err != nil {
			return nil, err
		}
		if found {
			return s.record, nil
		}
		if err := s.dropFirst(); err != nil {
			return nil, err
		}
	}
	return nil, io.EOF
}

// Done takes the record that Next returned off the queue.
func (s *Spill) Done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end == 0 || s.closed {
		return
	}
	s.offset, s.end = s.end, 0
	s.stats.Done++
	if s.offset >= s.segments[0].size && s.dropFirst() == nil {
		return
	}
	s.savePosition()
}

// savePosition is best effort: without it, records come again after a restart.
func (s *Spill) savePosition() {
	var b [positionLength]byte
	if len(s.segments) > 0 {
		binary.LittleEndian.PutUint64(b[:], s.segments[0].id)
		binary.LittleEndian.PutUint64(b[8:], uint64(s.offset))
	} else {
		binary.LittleEndian.PutUint64(b[:], s.nextID-1)
	}
	binary.LittleEndian.PutUint32(b[16:], crc32.Checksum(b[:16], castagnoli))
	_, _ = s.position.WriteAt(b[:], 0)
}

// dropFirst deletes the first segment.
func (s *Spill) dropFirst() error {
	if s.reader != nil {
		_ = s.reader.Close()
		s.reader = nil
	}
	if len(s.segments) == 1 && s.writer != nil {
		_ = s.writer.Close()
		s.writer = nil
	}
	if err := os.Remove(s.path(s.segments[0].id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove a file of a spill: %w", err)
	}
	s.segments = slices.Delete(s.segments, 0, 1)
	s.offset = 0
	s.savePosition()
	return nil
}

// read looks for the next whole record of the first segment, and reports whether there is one.
func (s *Spill) read() (found bool, err error) {
	first := s.segments[0]
	if s.offset >= first.size {
		return false, nil
	}
	if s.reader == nil {
		if s.reader, err = os.Open(s.path(first.id)); errors.Is(err, os.ErrNotExist) {
			s.damage(first.size - s.offset)
			return false, nil
		} else if err != nil {
			return false, fmt.Errorf("read a spill: %w", err)
		}
	}
	if record, ok, err := s.recordAt(s.offset, first.size); err != nil || ok {
		s.record = record
		return ok, err
	}
	// Look for the next mark that begins a whole record.
	from := s.offset
	chunk := make([]byte, 64<<10)
	for at := s.offset + 1; at < first.size; {
		n, err := s.reader.ReadAt(chunk[:min(int64(len(chunk)), first.size-at)], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, fmt.Errorf("read a spill: %w", err)
		}
		if n < len(mark) {
			break
		}
		i := bytes.Index(chunk[:n], mark)
		if i < 0 {
			at += int64(n - len(mark) + 1)
			continue
		}
		record, ok, err := s.recordAt(at+int64(i), first.size)
		if err != nil {
			return false, err
		}
		if ok {
			s.record = record
			s.offset = at + int64(i)
			s.damage(s.offset - from)
			return true, nil
		}
		at += int64(i) + 1
	}
	s.damage(first.size - from)
	return false, nil
}

func (s *Spill) damage(length int64) {
	s.stats.Damaged++
	s.stats.DamagedBytes += uint64(length)
}

// recordAt reads the record at an offset of the first segment. ok is false if there is no whole record.
func (s *Spill) recordAt(offset, size int64) (record []byte, ok bool, err error) {
	var header [headerSize]byte
	if size-offset < headerSize {
		return nil, false, nil
	}
	if ok, err := s.readFull(header[:], offset); err != nil || !ok {
		return nil, false, err
	}
	length := int64(binary.LittleEndian.Uint32(header[4:]))
	if !bytes.Equal(header[:4], mark) || length > MaxRecord || length > size-offset-headerSize {
		return nil, false, nil
	}
	s.buffer = slices.Grow(s.buffer[:0], int(length)+headerSize)
	b := s.buffer[:length+headerSize]
	if ok, err := s.readFull(b, offset); err != nil || !ok {
		return nil, false, err
	}
	if binary.LittleEndian.Uint32(b[8:]) != checksum(b) {
		return nil, false, nil
	}
	s.end = offset + headerSize + length
	return b[headerSize:], true, nil
}

// readFull fills b from the first segment. A file that has become shorter is damage, not an error.
func (s *Spill) readFull(b []byte, offset int64) (ok bool, err error) {
	if _, err := s.reader.ReadAt(b, offset); errors.Is(err, io.EOF) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("read a spill: %w", err)
	}
	return true, nil
}

// Close syncs and closes the files. The records stay for the next Open. It may be called twice.
func (s *Spill) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	if s.writer != nil {
		errs = append(errs, s.writer.Sync(), s.writer.Close())
	}
	if s.reader != nil {
		errs = append(errs, s.reader.Close())
	}
	errs = append(errs, s.position.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close a spill: %w", err)
	}
	return nil
}
