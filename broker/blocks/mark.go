package blocks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/lapwing-monitoring/lapwing/internal/plainfile"
)

// Mark says how far a stream was written.
type Mark struct {
	// Last is the newest message that was acknowledged.
	Last uint64 `json:"last"`
	// First is the oldest message that must be there. FirstTime is when it was written, in Unix nanoseconds.
	First     uint64 `json:"first"`
	FirstTime int64  `json:"first_time"`
	// Live is how many subjects held a value.
	Live uint64 `json:"live"`
	// Taken says that the stream's reader has stored its results for all messages below.
	Taken uint64 `json:"taken"`
}

// ErrBadMark says that the file of a mark is damaged, or belongs to another stream.
var ErrBadMark = errors.New("the file fails its checksum")

const (
	markMagic = "lapwing mark 2\n\x00"
	markLen   = len(markMagic) + 5*8 + 4
	// earlierMagic begins the marks of earlier builds. Most of their checksums do not cover the name of the stream.
	earlierMagic = "lapwing mark 1\n\x00"
)

// MarkFile is where the mark of a stream is kept.
func MarkFile(dir, stream string) string { return filepath.Join(dir, "marks", stream) }

// ReadMark reads a stream's mark. found is false if there is none.
func ReadMark(dir, stream string) (m Mark, found bool, err error) {
	b, err := plainfile.Read(MarkFile(dir, stream), int64(markLen))
	if errors.Is(err, fs.ErrNotExist) {
		return m, false, nil
	}
	if errors.Is(err, plainfile.ErrIrregular) {
		return m, true, fmt.Errorf("read mark of stream %s: %w", stream, ErrBadMark)
	}
	if err != nil {
		return m, false, fmt.Errorf("read mark of stream %s: %w", stream, err)
	}
	if !soundMark(stream, b) {
		return m, true, fmt.Errorf("read mark of stream %s: %w", stream, ErrBadMark)
	}
	u := func(i int) uint64 { return binary.LittleEndian.Uint64(b[len(markMagic)+8*i:]) }
	return Mark{Last: u(0), First: u(1), FirstTime: int64(u(2)), Live: u(3), Taken: u(4)}, true, nil
}

// soundMark reports whether b is a mark of the stream, written by this build or an earlier one.
func soundMark(stream string, b []byte) bool {
	if len(b) != markLen {
		return false
	}
	n := markLen - 4
	sum := binary.LittleEndian.Uint32(b[n:])
	switch string(b[:len(markMagic)]) {
	case markMagic:
		return sum == markSum(stream, b[:n])
	case earlierMagic:
		return sum == crc32.ChecksumIEEE(b[:n]) || sum == markSum(stream, b[:n])
	}
	return false
}

// markSum is the checksum of a mark. It covers the stream's name, so that a mark of another stream fails.
func markSum(stream string, b []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE([]byte(stream)), crc32.IEEETable, b)
}

// Marker keeps the mark of an open stream. Its writes are not synced: they survive the end of the process. After a loss
// of power the mark may be an older one, which shows less damage but none that is not there.
type Marker struct {
	stream string

	mu   sync.Mutex // guards the fields below
	file *os.File
	mark Mark
	buf  [markLen]byte
}

// OpenMarker opens a stream's mark, or makes one.
func OpenMarker(dir, stream string) (*Marker, error) {
	m, found, err := ReadMark(dir, stream)
	if err != nil {
		return nil, err
	}
	if !found {
		if err := WriteMark(dir, stream, m); err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(MarkFile(dir, stream), os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open mark of stream %s: %w", stream, err)
	}
	return &Marker{stream: stream, file: f, mark: m}, nil
}

// WriteMark puts a mark in place, synced.
func WriteMark(dir, stream string, m Mark) error {
	path := MarkFile(dir, stream)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("write mark of stream %s: %w", stream, err)
	}
	var b [markLen]byte
	m.encode(stream, b[:])
	if err := WriteFile(path, b[:]); err != nil {
		return fmt.Errorf("write mark of stream %s: %w", stream, err)
	}
	return nil
}

func (m *Mark) encode(stream string, b []byte) {
	b = append(b[:0], markMagic...)
	for _, v := range [...]uint64{m.Last, m.First, uint64(m.FirstTime), m.Live, m.Taken} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	binary.LittleEndian.AppendUint32(b, markSum(stream, b))
}

// Stored notes that a message was acknowledged.
func (m *Marker) Stored(seq uint64) error {
	return m.change(func(mark *Mark) { mark.Last = max(mark.Last, seq) })
}

// Trimmed notes, before it is done, that the messages below first are removed.
func (m *Marker) Trimmed(first uint64) error {
	return m.change(func(mark *Mark) { mark.First = max(mark.First, first) })
}

// Took notes that the reader has stored its results for the messages below next.
func (m *Marker) Took(next uint64) error {
	return m.change(func(mark *Mark) { mark.Taken = max(mark.Taken, next) })
}

// Holds notes that after the messages up to seq, live subjects hold a value.
func (m *Marker) Holds(seq, live uint64) error {
	return m.change(func(mark *Mark) { mark.Last, mark.Live = max(mark.Last, seq), live })
}

func (m *Marker) change(f func(*Mark)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.mark
	if f(&m.mark); m.mark == was || m.file == nil {
		return nil
	}
	m.mark.encode(m.stream, m.buf[:])
	if _, err := m.file.WriteAt(m.buf[:], 0); err != nil {
		return fmt.Errorf("write mark: %w", err)
	}
	return nil
}

// Close syncs the mark.
func (m *Marker) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file == nil {
		return nil
	}
	err := errors.Join(m.file.Sync(), m.file.Close())
	m.file = nil
	return err
}

// WriteFile replaces a file atomically and syncs it.
func WriteFile(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp-")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir syncs a directory, so that renames in it survive a loss of power.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	// Some systems cannot sync a directory, and need not.
	_ = d.Sync()
	return d.Close()
}
