// Package whisper reads and writes Graphite's whisper files, one file a series, and moves whole trees of them into and
// out of a store. The commands that import and export metrics call it, while no server has the store open.
//
// A file is read with the rules of the whisper library, so a value is there if whisper itself would return it. The
// format has no magic number, so a file is checked in full before any of it is used: a file that is cut off, or that
// is no whisper file, is an error that names the file and the reason. Memory is bounded by the size of the file, never
// by a number in it.
package whisper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// Point is a value at a time in Unix seconds.
type Point struct {
	Time  int64
	Value float64
}

// Sizes of the parts of a file, in bytes.
const (
	metaSize    = 16
	archiveSize = 12
	pointSize   = 12
)

// MaxArchives bounds the archives of a file.
const MaxArchives = 64

// DefaultMaxBytes bounds a file if ReadOptions has no bound. It holds a value a second for more than two years.
const DefaultMaxBytes = 1 << 30

// ErrCompressed is the reason for a file in go-carbon's compressed format.
var ErrCompressed = errors.New("it is in go-carbon's compressed format, which is another one; " +
	"go-whisper's cmd/dump.go prints its points")

// ErrNotWhisper is the reason for a file that breaks a rule of the format.
var ErrNotWhisper = errors.New("not a whisper file")

// typeFirst is go-carbon's meaning of type 6, which is avg_zero for Graphite.
const typeFirst = 6

// compressedMagic begins files in go-carbon's compressed format; a version byte follows.
const compressedMagic = "whisper_compressed"

// Header is what a file says about itself.
type Header struct {
	// Type is the file's number of the aggregation method.
	Type uint32
	// Method is what Type means. It is 0 for go-carbon's first, which no other program has.
	Method series.Method
	// MaxRetention is the file's own figure, in seconds. Nothing here relies on it.
	MaxRetention int64
	XFilesFactor float64
	Archives     []series.Archive
}

// MethodName returns the name of the aggregation method.
func (h *Header) MethodName() string {
	if h.Method == 0 && h.Type == typeFirst {
		return "first"
	}
	return h.Method.String()
}

// Size returns the bytes that a file with this header has.
func (h *Header) Size() int64 { return fileSize(h.Archives) }

func headerSize(archives int) int64 { return metaSize + archiveSize*int64(archives) }

// fileSize returns the size of a file. Archives that came from a file have at most 2^32 points each.
func fileSize(archives []series.Archive) int64 {
	n := headerSize(len(archives))
	for _, a := range archives {
		n += a.Points * pointSize
	}
	return n
}

// ReadOptions are how files are read.
type ReadOptions struct {
	// GoCarbon takes aggregation type 6 for go-carbon's first. Default: Graphite's avg_zero.
	GoCarbon bool
	// MaxBytes bounds a file, decompressed. Default DefaultMaxBytes.
	MaxBytes int64
}

func (o ReadOptions) maxBytes() int64 {
	if o.MaxBytes > 0 {
		return o.MaxBytes
	}
	return DefaultMaxBytes
}

func notWhisper(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrNotWhisper, fmt.Sprintf(format, args...))
}

// readHeader reads a header and checks all that can be checked without the size of the file.
func readHeader(r io.Reader, o ReadOptions) (Header, error) {
	var h Header
	var buf [len(compressedMagic) + 1]byte
	n, err := io.ReadFull(r, buf[:metaSize])
	switch {
	case err == io.EOF:
		return h, notWhisper("the file is empty")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return h, notWhisper("the file has %d bytes, and a header needs %d", n, metaSize)
	case err != nil:
		return h, err
	}
	if strings.HasPrefix(compressedMagic, string(buf[:metaSize])) {
		if m, _ := io.ReadFull(r, buf[metaSize:]); strings.HasPrefix(string(buf[:metaSize+m]), compressedMagic) {
			return h, fmt.Errorf("%w (format version %d)", ErrCompressed, buf[len(compressedMagic)])
		}
	}
	h.Type = binary.BigEndian.Uint32(buf[0:])
	switch {
	case h.Type < uint32(series.Average) || h.Type > uint32(series.AbsMin):
		return h, badType(h.Type)
	case o.GoCarbon && h.Type == typeFirst:
	case o.GoCarbon && h.Type > typeFirst:
		return h, notWhisper("aggregation type %d is in go-carbon's compressed files only", h.Type)
	default:
		h.Method = series.Method(h.Type)
	}
	h.MaxRetention = int64(binary.BigEndian.Uint32(buf[4:]))
	h.XFilesFactor = factor(math.Float32frombits(binary.BigEndian.Uint32(buf[8:])))
	if !(h.XFilesFactor >= 0 && h.XFilesFactor <= 1) {
		return h, notWhisper("its xFilesFactor is %v, and must be from 0 to 1", h.XFilesFactor)
	}
	count := binary.BigEndian.Uint32(buf[12:])
	if count == 0 || count > MaxArchives {
		return h, notWhisper("it has %d archives, and there must be from 1 to %d", count, MaxArchives)
	}
	next := headerSize(int(count))
	for i := range int(count) {
		if _, err := io.ReadFull(r, buf[:archiveSize]); err != nil {
			if isEOF(err) {
				return h, notWhisper("the file ends in the header of archive %d of %d", i, count)
			}
			return h, err
		}
		offset := int64(binary.BigEndian.Uint32(buf[0:]))
		a := series.Archive{Step: int64(binary.BigEndian.Uint32(buf[4:])), Points: int64(binary.BigEndian.Uint32(buf[8:]))}
		if offset != next {
			return h, notWhisper("archive %d begins at byte %d, and should begin at %d", i, offset, next)
		}
		next += a.Points * pointSize
		h.Archives = append(h.Archives, a)
	}
	if err := checkArchives(h.Archives); err != nil {
		return h, fmt.Errorf("%w: %w", ErrNotWhisper, err)
	}
	if most := o.maxBytes(); next > most {
		return h, notWhisper("its header stands for %d bytes, and the bound is %d", next, most)
	}
	return h, nil
}

func badType(t uint32) error {
	// Before whisper 0.9.10, the first number was the time of the last update.
	if t > 900_000_000 {
		return notWhisper("aggregation type %d is not known; the file may be of whisper before 0.9.10", t)
	}
	return notWhisper("aggregation type %d is not known", t)
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// factor turns the file's 32 bits into the number that was meant: 0.3, not 0.30000001192092896.
func factor(f float32) float64 {
	wide := float64(f)
	if short := math.Round(wide*1e6) / 1e6; float32(short) == f {
		return short
	}
	return wide
}

// checkArchives applies whisper's rules for archives.
func checkArchives(archives []series.Archive) error {
	if len(archives) == 0 || len(archives) > MaxArchives {
		return fmt.Errorf("%d archives: there must be from 1 to %d", len(archives), MaxArchives)
	}
	for i, a := range archives {
		if a.Step < 1 || a.Step > math.MaxUint32 || a.Points < 1 || a.Points > math.MaxUint32 {
			return fmt.Errorf("archive %d has step %d and %d points: both must be from 1 to %d", i, a.Step, a.Points,
				uint32(math.MaxUint32))
		}
		if i == 0 {
			continue
		}
		finer := archives[i-1]
		switch {
		case a.Step <= finer.Step:
			return fmt.Errorf("archive %d has step %d, which is not longer than %d before it", i, a.Step, finer.Step)
		case a.Step%finer.Step != 0:
			return fmt.Errorf("archive %d has step %d, which is no multiple of %d before it", i, a.Step, finer.Step)
		case a.Retention() <= finer.Retention():
			return fmt.Errorf("archive %d reaches back %d s, which is not longer than %d s before it", i, a.Retention(),
				finer.Retention())
		case finer.Points < a.Step/finer.Step:
			return fmt.Errorf("archive %d has %d points, and one of the next archive is made of %d", i-1, finer.Points,
				a.Step/finer.Step)
		}
	}
	return nil
}
