package backup

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"strconv"

	"github.com/klauspost/compress/zstd"

	"github.com/lapwing-monitoring/lapwing/internal/fields"
)

// Writer writes a backup. After an error of the underlying writer all its methods return that error.
type Writer struct {
	out    io.Writer
	sum    hash.Hash
	zip    *zstd.Encoder
	number uint64 // of the next chunk
	buf    []byte // data of the next chunk
	chunk  []byte
	packed []byte
	end    trailer
	left   int64 // PartDatabase: bytes of the file that are missing
	err    error
}

// NewWriter writes the line that names the format.
func NewWriter(out io.Writer) (*Writer, error) {
	// Each chunk is compressed alone, so that it can be checked alone. The fastest level halves the log and the
	// definitions; higher ones cost the backend more than they save.
	zip, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, fmt.Errorf("write backup: %w", err)
	}
	w := &Writer{out: out, sum: sha256.New(), zip: zip}
	w.write([]byte(magic + strconv.Itoa(version) + "\n"))
	return w, w.err
}

// Manifest writes the manifest. It must be the first call.
func (w *Writer) Manifest(m *Manifest) error { return w.document(chunkManifest, m) }

// Begin begins a section, after all data of the one before.
func (w *Writer) Begin(s *Section) error {
	if err := w.finish(); err != nil {
		return err
	}
	w.left = s.Size
	w.end.Sections++
	return w.document(chunkSection, s)
}

// Message adds a message to a section of messages.
func (w *Writer) Message(m *Message) error {
	b := binary.AppendUvarint(w.buf, m.Sequence)
	b = binary.AppendVarint(b, m.Time)
	var flags byte
	if m.Deleted {
		flags = flagDeleted
	}
	b = append(b, flags)
	b = fields.AppendBytes(b, m.Key)
	b = binary.AppendUvarint(b, uint64(len(m.Data)))
	w.buf = append(b, m.Data...)
	if len(w.buf) < gather {
		return w.err
	}
	return w.data()
}

// Write adds bytes to a section of a file.
func (w *Writer) Write(p []byte) (int, error) {
	written := len(p)
	w.left -= int64(written)
	for len(p) > 0 && w.err == nil {
		n := min(len(p), gather-len(w.buf))
		w.buf = append(w.buf, p[:n]...)
		p = p[n:]
		if len(w.buf) == gather {
			_ = w.data()
		}
	}
	return written, w.err
}

// Close writes the trailer, without which a reader refuses the backup.
func (w *Writer) Close() error {
	if err := w.finish(); err != nil {
		return err
	}
	w.end.SHA256 = hex.EncodeToString(w.sum.Sum(nil))
	return w.document(chunkTrailer, &w.end)
}

// Fail ends a backup that cannot be completed. A reader fails with the reason.
func (w *Writer) Fail(reason error) error {
	if w.err == nil {
		w.emit(chunkFailure, []byte(reason.Error()))
	}
	return w.err
}

var errFileSize = errors.New("a file has another size than was announced")

// finish ends a section.
func (w *Writer) finish() error {
	if w.err == nil && w.left != 0 {
		return errFileSize
	}
	return w.data()
}

// data writes the gathered data as a chunk.
func (w *Writer) data() error {
	if len(w.buf) > 0 {
		w.end.Bytes += int64(len(w.buf))
		w.emit(chunkData, w.buf)
		w.buf = w.buf[:0]
	}
	return w.err
}

func (w *Writer) document(kind byte, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	w.emit(kind, text)
	return w.err
}

// emit writes a chunk.
func (w *Writer) emit(kind byte, raw []byte) {
	if w.err != nil {
		return
	}
	if len(raw) > maxChunk {
		w.err = fmt.Errorf("write backup: a chunk of %d bytes, %d at most", len(raw), maxChunk)
		return
	}
	content, flags := raw, byte(0)
	// Content that is compressed already stays as it is. Most tables of the database are.
	w.packed = w.zip.EncodeAll(raw, w.packed[:0])
	if len(w.packed) < len(raw)-len(raw)/16 {
		content, flags = w.packed, flagZstd
	}
	w.chunk = appendHeader(w.chunk[:0], kind, flags, len(raw), len(content))
	w.chunk = binary.LittleEndian.AppendUint32(w.chunk, checksum(w.number, w.chunk, content))
	w.chunk = append(w.chunk, content...)
	w.number++
	w.write(w.chunk)
}

func (w *Writer) write(b []byte) {
	if w.err != nil {
		return
	}
	_, _ = w.sum.Write(b) // never fails
	if _, err := w.out.Write(b); err != nil {
		w.err = fmt.Errorf("write backup: %w", err)
	}
}

// appendHeader appends a chunk's header without its checksum.
func appendHeader(b []byte, kind, flags byte, raw, length int) []byte {
	b = append(b, kind, flags)
	b = binary.LittleEndian.AppendUint32(b, uint32(raw))
	return binary.LittleEndian.AppendUint32(b, uint32(length))
}

func checksum(number uint64, header, content []byte) uint32 {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], number)
	sum := crc32.Checksum(n[:], castagnoli)
	sum = crc32.Update(sum, castagnoli, header)
	return crc32.Update(sum, castagnoli, content)
}
