package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/lapwing-monitoring/lapwing/internal/fields"
)

// DamageError says that a file is no sound backup, and where.
type DamageError struct {
	At   int64  // byte of the file
	Part string // of the backup
	What string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("the backup is damaged at byte %d (%s): %s", e.At, e.Part, e.What)
}

// FailedError says that the backend gave the backup up.
type FailedError struct{ Reason string }

func (e *FailedError) Error() string { return "the backend gave the backup up: " + e.Reason }

// Reader reads a backup and checks it. What it has returned is sound, but whether the file is whole is known only at
// its end: see Next.
type Reader struct {
	Manifest Manifest

	in     io.Reader
	sum    hash.Hash
	unzip  *zstd.Decoder
	number uint64 // of the next chunk
	at     int64  // where the next chunk begins
	begin  int64  // where the newest chunk begins
	part   string // for errors
	file   bool   // the section is a file
	left   int64  // of the file
	held   byte   // kind of a chunk that Next has to deal with; 0 for none
	rest   []byte // data of the newest chunk that was not returned
	raw    []byte
	stored bytes.Buffer
	seen   trailer
	err    error
}

// NewReader reads the beginning of a backup and its manifest.
func NewReader(in io.Reader) (*Reader, error) {
	unzip, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxChunk))
	if err != nil {
		return nil, fmt.Errorf("read backup: %w", err)
	}
	r := &Reader{in: in, sum: sha256.New(), unzip: unzip, part: "beginning"}
	if err := r.readMagic(); err != nil {
		return nil, err
	}
	kind, err := r.chunk()
	switch {
	case err != nil:
		return nil, err
	case kind == chunkFailure:
		return nil, &FailedError{string(r.raw)}
	case kind != chunkManifest:
		return nil, r.damaged("there is no manifest")
	}
	if err := json.Unmarshal(r.raw, &r.Manifest); err != nil {
		return nil, r.damaged("the manifest cannot be read: " + err.Error())
	}
	return r, nil
}

func (r *Reader) readMagic() error {
	var line []byte
	for len(line) < len(magic)+8 {
		var b [1]byte
		if _, err := io.ReadFull(r.in, b[:]); err != nil {
			return r.failed(err)
		}
		line = append(line, b[0])
		if b[0] == '\n' {
			break
		}
	}
	_, _ = r.sum.Write(line) // never fails
	r.at = int64(len(line))
	number, ok := strings.CutPrefix(string(line), magic)
	v, err := strconv.Atoi(strings.TrimSuffix(number, "\n"))
	switch {
	case !ok || err != nil || v < 1 || !strings.HasSuffix(number, "\n"):
		return r.damaged("this is no backup of lapwing")
	case v > version:
		return fmt.Errorf("the backup has format %d, and this lapwing reads formats up to %d: use a later release",
			v, version)
	}
	return nil
}

// Next skips the rest of a section and returns the next one. It returns io.EOF behind a sound trailer at the end of the
// file: then the backup is whole.
func (r *Reader) Next() (*Section, error) {
	for r.err == nil && r.held == 0 {
		if r.left -= int64(len(r.rest)); r.left < 0 && r.file {
			return nil, r.damaged("the file is longer than announced")
		}
		r.rest = nil
		r.read()
	}
	if r.err != nil {
		return nil, r.err
	}
	kind := r.held
	r.held = 0
	if r.file && r.left != 0 {
		return nil, r.damaged(fmt.Sprintf("%d bytes of the file are missing", r.left))
	}
	if kind == chunkTrailer {
		return nil, r.readTrailer()
	}
	s := new(Section)
	if err := json.Unmarshal(r.raw, s); err != nil {
		return nil, r.damaged("the beginning of a part cannot be read: " + err.Error())
	}
	r.part, r.file, r.left = s.String(), s.Part == PartDatabase, s.Size
	switch r.seen.Sections++; {
	case r.seen.Sections > maxSection, s.Size < 0:
		return nil, r.damaged("the beginning of a part makes no sense")
	case s.Part == PartLog && (s.Partition < 0 || s.Partition >= len(r.Manifest.Log)):
		return nil, r.damaged("the manifest does not list the partition")
	case r.file && !plainName(s.Name):
		return nil, r.damaged("this is no name of a file")
	}
	return s, nil
}

// plainName reports whether a name is that of a file in a directory, and leads nowhere else.
func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\\:\x00")
}

// Message reads the next message of a section, and io.EOF at its end. The message's data is valid until the next call.
func (r *Reader) Message(m *Message) error {
	for len(r.rest) == 0 {
		if err := r.more(); err != nil {
			return err
		}
	}
	d := fields.NewReader(r.rest)
	*m = Message{Sequence: d.Uint(), Time: d.Int(), Deleted: d.Byte()&flagDeleted != 0, Key: d.Text(), Data: d.Bytes()}
	if d.Err() != nil {
		return r.damaged("a message is cut short")
	}
	r.rest = d.Rest
	return nil
}

// Read reads the bytes of a section that has a file, and io.EOF at its end.
func (r *Reader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if err := r.more(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.rest)
	if r.left -= int64(n); r.left < 0 {
		return 0, r.damaged("the file is longer than announced")
	}
	r.rest = r.rest[n:]
	return n, nil
}

// Size returns how many bytes of the file have been read.
func (r *Reader) Size() int64 { return r.at }

// Bytes returns how much data the sections have had so far, before it was compressed.
func (r *Reader) Bytes() int64 { return r.seen.Bytes }

// more reads the next chunk of data. At the end of the section it returns io.EOF.
func (r *Reader) more() error {
	if r.held == 0 {
		r.read()
	}
	switch {
	case r.err != nil:
		return r.err
	case r.held != 0:
		return io.EOF
	}
	return nil
}

// read reads a chunk into rest, or into held if it is no data.
func (r *Reader) read() {
	kind, err := r.chunk()
	switch {
	case err != nil:
	case kind == chunkData && r.seen.Sections > 0:
		r.rest = r.raw
		r.seen.Bytes += int64(len(r.raw))
	case kind == chunkSection, kind == chunkTrailer:
		r.held = kind
	case kind == chunkFailure:
		r.err = &FailedError{string(r.raw)}
	default:
		_ = r.damaged(fmt.Sprintf("a chunk of kind %q has no place here", kind))
	}
}

// chunk reads a chunk into raw.
func (r *Reader) chunk() (kind byte, err error) {
	if r.err != nil {
		return 0, r.err
	}
	r.begin = r.at
	var header [headerLen]byte
	if _, err := io.ReadFull(r.in, header[:]); err != nil {
		return 0, r.failed(err)
	}
	raw, length := binary.LittleEndian.Uint32(header[2:]), binary.LittleEndian.Uint32(header[6:])
	if raw > maxChunk || length > raw {
		return 0, r.damaged("the length of a chunk makes no sense")
	}
	r.stored.Reset() // grows with what comes: a damaged length must not fill the memory
	if n, err := io.CopyN(&r.stored, r.in, int64(length)); err != nil {
		r.at += headerLen + n
		return 0, r.failed(err)
	}
	content := r.stored.Bytes()
	if checksum(r.number, header[:headerLen-4], content) != binary.LittleEndian.Uint32(header[headerLen-4:]) {
		return 0, r.damaged("a chunk fails its checksum")
	}
	r.number++
	if header[0] != chunkTrailer {
		_, _ = r.sum.Write(header[:]) // never fails
		_, _ = r.sum.Write(content)
	}
	r.at += headerLen + int64(length)
	switch header[1] {
	case 0:
		r.raw = append(r.raw[:0], content...)
	case flagZstd:
		if r.raw, err = r.unzip.DecodeAll(content, r.raw[:0]); err != nil {
			return 0, r.damaged("a chunk cannot be decompressed: " + err.Error())
		}
	default:
		return 0, r.damaged("a chunk is of a later release")
	}
	if len(r.raw) != int(raw) {
		return 0, r.damaged("a chunk has another length than it says")
	}
	return header[0], nil
}

// readTrailer compares the trailer with what was read. It returns io.EOF if they agree.
func (r *Reader) readTrailer() error {
	var want trailer
	if err := json.Unmarshal(r.raw, &want); err != nil {
		return r.damaged("the trailer cannot be read: " + err.Error())
	}
	switch {
	case want.SHA256 != hex.EncodeToString(r.sum.Sum(nil)):
		return r.damaged("the file fails its checksum")
	case want.Sections != r.seen.Sections || want.Bytes != r.seen.Bytes:
		return r.damaged("parts are missing")
	}
	var b [1]byte
	switch n, err := io.ReadFull(r.in, b[:]); {
	case n > 0:
		r.begin = r.at
		return r.damaged("there are bytes behind the end of the backup")
	case !errors.Is(err, io.EOF):
		return r.failed(err)
	}
	r.seen.SHA256 = want.SHA256
	r.err = io.EOF
	return io.EOF
}

// damaged ends the reading.
func (r *Reader) damaged(what string) error {
	r.err = &DamageError{r.begin, r.part, what}
	return r.err
}

// failed ends the reading after an error of the underlying reader.
func (r *Reader) failed(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		r.err = &DamageError{r.at, r.part, "the file was cut off here"}
	} else {
		r.err = fmt.Errorf("read backup: %w", err)
	}
	return r.err
}
