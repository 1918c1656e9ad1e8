package whisper

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/internal/plainfile"
	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// File is a file that was read.
type File struct {
	Path         string // as given to Read
	Header       Header
	Archives     []Archive
	Size         int64 // on disk
	ModTimeNanos int64
}

// Archive is an archive of a file with its points.
type Archive struct {
	series.Archive
	points []Point
	// Unreachable is the number of slots whose time does not belong where it stands. Whisper does not return them, and
	// they are not among the points. NaNs is the number of slots that hold NaN, which is the same as no value.
	Unreachable, NaNs int
}

// Points returns the values of the archive's slots in the order of time, also those that are older than the retention:
// a file keeps them until their slots are written again. The caller must not change them.
func (a *Archive) Points() []Point { return a.points }

// Within returns the points that a fetch at the time now can return: those within the retention, and not in the future.
func (a *Archive) Within(now int64) []Point {
	return between(a.points, series.Floor(now-a.Retention(), a.Step)+1, now)
}

// between returns the points from first to last, both included.
func between(points []Point, first, last int64) []Point {
	find := func(t int64) int {
		i, _ := slices.BinarySearchFunc(points, t, func(p Point, t int64) int { return cmp.Compare(p.Time, t) })
		return i
	}
	i, j := find(first), find(last+1)
	return points[i:max(i, j)]
}

// Read reads a file. One whose name ends in .gz is decompressed. The file may be written by carbon in the meantime.
func Read(path string, o ReadOptions) (*File, error) {
	f, size, err := open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	file, err := readFile(path, f, size, o)
	if err != nil {
		return nil, fmt.Errorf("read whisper file %s: %w", path, err)
	}
	file.Path, file.Size = path, size
	if info, err := f.Stat(); err == nil {
		file.ModTimeNanos = info.ModTime().UnixNano()
	}
	return file, nil
}

func open(path string) (*os.File, int64, error) {
	f, err := plainfile.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("read whisper file: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, 0, fmt.Errorf("read whisper file: %w", err)
	}
	return f, info.Size(), nil
}

// decompressed returns r, or what gzip makes of it if the name of the file says so.
func decompressed(path string, r io.Reader) (_ io.Reader, zip bool, err error) {
	if !strings.HasSuffix(path, gzSuffix) {
		return r, false, nil
	}
	z, err := gzip.NewReader(r)
	if err != nil {
		if isEOF(err) {
			return nil, true, notWhisper("the file ends in the header of gzip")
		}
		return nil, true, fmt.Errorf("%w: %w", ErrNotWhisper, err)
	}
	return z, true, nil
}

// bufferSize is the memory for reading a file. A file has a few hundred kilobytes as a rule.
const bufferSize = 64 << 10

func readFile(path string, src io.Reader, size int64, o ReadOptions) (*File, error) {
	r, zip, err := decompressed(path, bufio.NewReaderSize(src, bufferSize))
	if err != nil {
		return nil, err
	}
	if zip {
		r = bufio.NewReaderSize(r, bufferSize)
	}
	f, err := parse(r, size, zip, o)
	var broken *fs.PathError
	if zip && err != nil && !errors.Is(err, ErrNotWhisper) && !errors.Is(err, ErrCompressed) && !errors.As(err, &broken) {
		err = fmt.Errorf("%w: decompress it: %w", ErrNotWhisper, err)
	}
	return f, err
}

// parse reads a file of size bytes, or of the size in its header if anySize is set.
func parse(r io.Reader, size int64, anySize bool, o ReadOptions) (*File, error) {
	h, err := readHeader(r, o)
	if err != nil {
		return nil, err
	}
	if !anySize {
		if err := checkSize(&h, size); err != nil {
			return nil, err
		}
	}
	f := &File{Header: h}
	for i, a := range h.Archives {
		read, err := readArchive(r, a)
		if err != nil {
			if isEOF(err) {
				return nil, notWhisper("the file ends in archive %d of %d", i, len(h.Archives))
			}
			return nil, fmt.Errorf("archive %d: %w", i, err)
		}
		f.Archives = append(f.Archives, read)
	}
	var more [1]byte
	switch _, err := io.ReadFull(r, more[:]); {
	case err == nil:
		return nil, notWhisper("the file is longer than the %d bytes that its header stands for", h.Size())
	case err != io.EOF:
		return nil, err
	}
	return f, nil
}

func checkSize(h *Header, size int64) error {
	if want := h.Size(); size != want {
		return notWhisper("the file has %d bytes, and its header stands for %d", size, want)
	}
	return nil
}

// readArchive reads the slots of an archive. Its memory grows with the values that it finds.
func readArchive(r io.Reader, a series.Archive) (Archive, error) {
	out := Archive{Archive: a}
	var buf [1024 * pointSize]byte
	var base int64
	for slot := int64(0); slot < a.Points; {
		n := min(a.Points-slot, int64(len(buf)/pointSize))
		b := buf[:n*pointSize]
		if _, err := io.ReadFull(r, b); err != nil {
			return out, err
		}
		if slot == 0 {
			base = int64(binary.BigEndian.Uint32(b))
		}
		for ; len(b) > 0; b, slot = b[pointSize:], slot+1 {
			t := int64(binary.BigEndian.Uint32(b))
			if t == 0 {
				continue
			}
			if base == 0 || t%a.Step != 0 || slotOf(a, base, t) != slot {
				out.Unreachable++
				continue
			}
			v := math.Float64frombits(binary.BigEndian.Uint64(b[4:]))
			if math.IsNaN(v) {
				out.NaNs++
				continue
			}
			out.points = append(out.points, Point{t, v})
		}
	}
	byTime := func(p, q Point) int { return cmp.Compare(p.Time, q.Time) }
	if !slices.IsSortedFunc(out.points, byTime) {
		slices.SortFunc(out.points, byTime)
	}
	return out, nil
}

// slotOf returns the slot of the time t in an archive whose first slot has the time base.
func slotOf(a series.Archive, base, t int64) int64 {
	d := t - base
	return series.FloorMod((d-series.FloorMod(d, a.Step))/a.Step, a.Points)
}
