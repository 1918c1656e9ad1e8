package whisper

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// tempSuffix ends the names of files that are being written.
const tempSuffix = ".lapwing-tmp"

// Write makes a whisper file with the points of each archive, or replaces it: a reader sees the old file or the whole
// new one. It makes missing directories. When it returns, the file's content is on the disk.
//
// Times are rounded down to the archive's step, and of equal times the last value counts. Of each archive the newest
// points are written that fit into its retention. NaN is no value.
func Write(path string, archives []series.Archive, method series.Method, xff float64, points [][]Point) error {
	return write(path, archives, method, xff, points, true)
}

func write(path string, archives []series.Archive, method series.Method, xff float64, points [][]Point,
	sync bool) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write whisper file %s: %w", path, err)
		}
	}()
	head, err := appendHeader(nil, archives, method, xff)
	if err != nil {
		return err
	}
	if len(points) != len(archives) {
		return fmt.Errorf("points of %d archives for %d archives", len(points), len(archives))
	}
	fitting := make([][]Point, len(archives))
	for i, a := range archives {
		if fitting[i], err = fit(a, points[i]); err != nil {
			return fmt.Errorf("archive %d: %w", i, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "*"+tempSuffix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	w := holeWriter{f: f, w: bufio.NewWriterSize(f, bufferSize)}
	w.write(head)
	for i, a := range archives {
		w.archive(a, fitting[i])
	}
	w.flush()
	if w.err != nil {
		return w.err
	}
	if err := f.Truncate(fileSize(archives)); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if sync {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	if err := f.Close(); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// appendHeader checks the settings of a file and appends its header.
func appendHeader(b []byte, archives []series.Archive, method series.Method, xff float64) ([]byte, error) {
	if method < series.Average || method > series.AbsMin {
		return nil, fmt.Errorf("%v is no aggregation method", method)
	}
	if !(xff >= 0 && xff <= 1) {
		return nil, fmt.Errorf("xFilesFactor is %v: it must be from 0 to 1", xff)
	}
	if err := checkArchives(archives); err != nil {
		return nil, err
	}
	var longest, size int64
	for _, a := range archives {
		longest = max(longest, a.Retention())
		size += a.Points * pointSize
	}
	if longest > math.MaxUint32 {
		return nil, fmt.Errorf("the longest retention is %d s: a file can say at most %d", longest, uint32(math.MaxUint32))
	}
	offset := headerSize(len(archives))
	if offset+size > math.MaxUint32 {
		return nil, fmt.Errorf("the file would have %d bytes: it may have at most %d", offset+size, uint32(math.MaxUint32))
	}
	b = binary.BigEndian.AppendUint32(b, uint32(method))
	b = binary.BigEndian.AppendUint32(b, uint32(longest))
	b = binary.BigEndian.AppendUint32(b, math.Float32bits(float32(xff)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(archives)))
	for _, a := range archives {
		b = binary.BigEndian.AppendUint32(b, uint32(offset))
		b = binary.BigEndian.AppendUint32(b, uint32(a.Step))
		b = binary.BigEndian.AppendUint32(b, uint32(a.Points))
		offset += a.Points * pointSize
	}
	return b, nil
}

// fit returns the points as the archive can hold them: at times of its step, in order, each once, no more than it has
// slots for. The points themselves stay as they are.
func fit(a series.Archive, points []Point) ([]Point, error) {
	kept := make([]Point, 0, len(points))
	for _, p := range points {
		if math.IsNaN(p.Value) {
			continue
		}
		t := series.Floor(p.Time, a.Step)
		if t < 1 || t > math.MaxUint32 {
			return nil, fmt.Errorf("a point has the time %d: a file can say times from 1 to %d", p.Time, uint32(math.MaxUint32))
		}
		kept = append(kept, Point{t, p.Value})
	}
	slices.SortStableFunc(kept, func(p, q Point) int { return cmp.Compare(p.Time, q.Time) })
	n := 0
	for i, p := range kept {
		if i+1 < len(kept) && kept[i+1].Time == p.Time {
			continue
		}
		kept[n] = p
		n++
	}
	kept = kept[:n]
	if n == 0 {
		return kept, nil
	}
	return between(kept, kept[n-1].Time-a.Retention()+1, kept[n-1].Time), nil
}

// holeWriter writes a file and leaves holes where there are many zeros, so that the slots without values need no disk.
type holeWriter struct {
	f    *os.File
	w    *bufio.Writer
	err  error
	zero [minHole]byte
}

// minHole is how many zeros make a hole worthwhile: a block of most file systems.
const minHole = 4096

func (w *holeWriter) write(b []byte) {
	if w.err == nil {
		_, w.err = w.w.Write(b)
	}
}

func (w *holeWriter) flush() {
	if w.err == nil {
		w.err = w.w.Flush()
	}
}

func (w *holeWriter) zeros(n int64) {
	if n < minHole {
		w.write(w.zero[:n])
		return
	}
	w.flush()
	if w.err == nil {
		_, w.err = w.f.Seek(n, io.SeekCurrent)
	}
}

// archive writes the slots of an archive. Its oldest point is in the first one, as if whisper had got it first.
func (w *holeWriter) archive(a series.Archive, points []Point) {
	var slot int64
	var b [pointSize]byte
	for _, p := range points {
		at := (p.Time - points[0].Time) / a.Step
		w.zeros((at - slot) * pointSize)
		binary.BigEndian.PutUint32(b[:], uint32(p.Time))
		binary.BigEndian.PutUint64(b[4:], math.Float64bits(p.Value))
		w.write(b[:])
		slot = at + 1
	}
	w.zeros((a.Points - slot) * pointSize)
}
