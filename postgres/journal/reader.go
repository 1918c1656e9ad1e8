package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// reading reads the frames of one segment.
type reading struct {
	file  *os.File
	at    int64 // of the next frame
	end   int64
	whole int64 // behind the newest frame that was passed

	frame   []byte // a whole frame as it is stored
	entries []byte
}

// header reads the header of the next frame: io.EOF at the end, errDamaged if there is no frame.
func (r *reading) header() (f Frame, err error) {
	if r.at >= r.end {
		return Frame{}, io.EOF
	}
	r.frame = slices.Grow(r.frame[:0], headerSize)[:headerSize]
	if r.end-r.at < headerSize {
		return Frame{}, errDamaged
	}
	if _, err := r.file.ReadAt(r.frame, r.at); err != nil {
		return Frame{}, readError(err)
	}
	if !f.decodeHeader(r.frame) || int64(headerSize+f.stored) > r.end-r.at {
		return Frame{}, errDamaged
	}
	return f, nil
}

// body reads the rest of the frame whose header was read.
func (r *reading) body(f *Frame) error {
	r.frame = slices.Grow(r.frame[:headerSize], f.stored)[:headerSize+f.stored]
	if _, err := r.file.ReadAt(r.frame[headerSize:], r.at+headerSize); err != nil {
		return readError(err)
	}
	if err := f.decode(r.frame, r.entries); err != nil {
		return err
	}
	r.entries = f.entries
	return nil
}

// pass goes on behind a frame.
func (r *reading) pass(f *Frame) {
	r.at += int64(headerSize + f.stored)
	r.whole = r.at
}

// resync goes to the next place behind the present one that looks like a frame; false if there is none.
func (r *reading) resync() bool {
	magic := binary.LittleEndian.AppendUint32(nil, frameMagic)
	chunk := make([]byte, 64<<10)
	for at := r.at + 1; at < r.end; {
		n, err := r.file.ReadAt(chunk[:min(int64(len(chunk)), r.end-at)], at)
		if i := bytes.Index(chunk[:n], magic); i >= 0 {
			r.at = at + int64(i)
			return true
		}
		if err != nil || n < len(magic) {
			break
		}
		at += int64(n - len(magic) + 1)
	}
	r.at = r.end
	return false
}

// readError is for a file that has become shorter: that is damage.
func readError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errDamaged
	}
	return err
}

// Reader reads the journal from a place on. It belongs to one goroutine.
type Reader struct {
	j       *Journal
	segment uint64 // 0 before the first
	reading reading
	frame   int64 // where the newest frame that Next returned begins
}

// Reader returns a reader at the begin of the journal. Close must be called.
func (j *Journal) Reader() *Reader { return &Reader{j: j} }

// Seek goes to the first segment that has messages of a partition behind those in has, or to the newest one.
func (r *Reader) Seek(has []uint64) error {
	fs := &r.j.files
	fs.mu.Lock()
	var to uint64
	for _, s := range fs.segments {
		to = s.id
		if s.owed(fs.parts, has) {
			break
		}
	}
	fs.mu.Unlock()
	return r.open(to)
}

// open begins to read a segment; 0 is before the first.
func (r *Reader) open(id uint64) error {
	r.Close()
	r.segment = id
	if id == 0 {
		return nil
	}
	f, err := os.Open(r.j.files.path(id))
	if errors.Is(err, os.ErrNotExist) {
		if r.j.files.miss(id) {
			r.j.missing(id)
		}
		return nil // Next goes on with the one behind it
	}
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	r.reading.file, r.reading.at, r.reading.end = f, 0, 0
	return nil
}

// Close closes the file. The reader can be used again after Seek.
func (r *Reader) Close() {
	if r.reading.file != nil {
		_ = r.reading.file.Close()
		r.reading.file = nil
	}
}

// Next returns the next frame; false at the end of what is written. The frame is valid until the next call.
func (r *Reader) Next() (f Frame, ok bool, err error) {
	for {
		end, next := r.j.files.look(r.segment)
		if r.reading.file != nil {
			r.reading.end = max(r.reading.end, end)
			f, err = r.read()
			if err == nil || !errors.Is(err, io.EOF) {
				return f, err == nil, err
			}
		}
		if next == 0 {
			return Frame{}, false, nil
		}
		if err := r.open(next); err != nil {
			return Frame{}, false, err
		}
	}
}

// Back has Next return its newest frame again.
func (r *Reader) Back() { r.reading.at = r.frame }

// read returns the next whole frame of the segment, and passes over damage; io.EOF at the end.
func (r *Reader) read() (Frame, error) {
	for {
		f, err := r.reading.header()
		if err == nil {
			err = r.reading.body(&f)
		}
		switch {
		case err == nil:
			r.frame = r.reading.at
			r.reading.pass(&f)
			return f, nil
		case errors.Is(err, io.EOF):
			return Frame{}, io.EOF
		case !errors.Is(err, errDamaged):
			return Frame{}, fmt.Errorf("read the journal: %w", err)
		}
		r.j.metrics.damaged.Inc()
		r.j.rare.Error("the journal for PostgreSQL is damaged: changes are missing", r.j.files.path(r.segment), "offset", r.reading.at)
		r.reading.resync()
	}
}

// Written returns a channel that is closed when there is more to read than there was before the call.
func (r *Reader) Written() <-chan struct{} {
	r.j.files.mu.Lock()
	defer r.j.files.mu.Unlock()
	return r.j.files.wake
}

// look returns the size of a segment, 0 if it was removed, and the id of the one behind it, 0 for none.
func (fs *files) look(id uint64) (size int64, next uint64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, s := range fs.segments {
		switch {
		case s.id == id:
			size = s.size
		case s.id > id:
			return size, s.id
		}
	}
	return size, 0
}
