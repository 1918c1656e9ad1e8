package blocks

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/minio/highwayhash"
)

// A block is a file of records, one after the other:
//
//	length u32 (top bit: has headers) · sequence u64 · time u64 · subject length u16 ·
//	subject · [header length u32 · headers] · message · checksum u64
//
// Integers are little endian. The checksum does not cover the three lengths, so scan checks them by the records they
// lead to.
const (
	headLen     = 22
	sumLen      = 8
	emptyLen    = headLen + sumLen
	maxRecord   = 32 << 20
	headersBit  = 1 << 31
	erasedBit   = 1 << 63 // in the sequence: a removed message whose number stays taken
	tombBit     = 1 << 62 // in the sequence: this record says that the message with the number is removed
	sequenceMax = 1 << 56 // all real sequences are smaller
)

// record is one record of a block. Its slices are parts of the block.
type record struct {
	offset, length int
	seq            uint64
	tomb, erased   bool
	time           int64
	subject        []byte
	headers        []byte
	message        []byte
}

// hole is a part of a block without a sound record.
type hole struct {
	from, to    int    // offsets
	after, next uint64 // sequence before the hole, and of the record behind it; next is 0 at the end of the block
}

// reader reads the blocks of one stream.
type reader struct {
	stream Stream
	subj   []byte
}

func newReader(s Stream) *reader { return &reader{stream: s, subj: []byte(s.Subject)} }

// hash is keyed by the stream's name and the block's number, so that a block from elsewhere fails its checksum.
func (rd *reader) hash(index int) (*highwayhash.Digest64, error) {
	key := sha256.Sum256(fmt.Appendf(nil, "%s-%d", rd.stream.Name, index))
	return highwayhash.NewDigest64(key[:])
}

// scan calls f with every sound record of a block and returns the holes between them. last is the newest sequence of the
// blocks before.
func (rd *reader) scan(index int, b []byte, last uint64, f func(*record)) ([]hole, error) {
	h, err := rd.hash(index)
	if err != nil {
		return nil, err
	}
	var holes []hole
	var r record
	for at := 0; at < len(b); {
		if rd.parse(h, b, at, &r) {
			last = max(last, r.seq)
			f(&r)
			at += r.length
			continue
		}
		next := at + 1
		for ; next < len(b); next++ {
			if rd.likely(b, next) && rd.parse(h, b, next, &r) {
				break
			}
		}
		gap := hole{from: at, to: next, after: last}
		if next < len(b) && !r.tomb {
			gap.next = r.seq
		}
		holes = append(holes, gap)
		at = next
	}
	return holes, nil
}

// likely is a cheap test that saves computing the checksum at most offsets of a hole.
func (rd *reader) likely(b []byte, at int) bool {
	if len(b)-at < emptyLen {
		return false
	}
	n := int(binary.LittleEndian.Uint16(b[at+20:]))
	return n == 0 && binary.LittleEndian.Uint32(b[at:]) == emptyLen || bytes.HasPrefix(b[at+headLen:], rd.subj)
}

// parse reads the record at an offset into r and reports whether it is sound.
func (rd *reader) parse(h *highwayhash.Digest64, b []byte, at int, r *record) bool {
	b = b[at:]
	if len(b) < emptyLen {
		return false
	}
	length := binary.LittleEndian.Uint32(b)
	withHeaders := length&headersBit != 0
	length &^= headersBit
	subject := int(binary.LittleEndian.Uint16(b[20:]))
	if length < emptyLen || length > maxRecord || int(length) > len(b) || subject > int(length)-emptyLen {
		return false
	}
	seq := binary.LittleEndian.Uint64(b[4:])
	*r = record{
		offset: at, length: int(length), seq: seq &^ (erasedBit | tombBit), tomb: seq&tombBit != 0, erased: seq&erasedBit != 0,
		time: int64(binary.LittleEndian.Uint64(b[12:])), subject: b[headLen : headLen+subject],
		message: b[headLen+subject : length-sumLen],
	}
	if withHeaders {
		if len(r.message) < 4 {
			return false
		}
		n := binary.LittleEndian.Uint32(r.message)
		if uint64(n) > uint64(len(r.message)-4) {
			return false
		}
		r.headers, r.message = r.message[4:4+n], r.message[4+n:]
		if !wholeHeaders(r.headers) {
			return false
		}
	}
	if r.seq > sequenceMax || len(r.subject) == 0 && length != emptyLen || len(r.subject) > 0 && !r.erased && !rd.ours(r) {
		return false
	}
	h.Reset()
	_, _ = h.Write(b[4:20])
	_, _ = h.Write(r.subject)
	_, _ = h.Write(r.headers)
	_, _ = h.Write(r.message)
	return h.Sum64() == binary.LittleEndian.Uint64(b[length-sumLen:])
}

// ours reports whether the record belongs to the stream.
func (rd *reader) ours(r *record) bool {
	if !bytes.HasPrefix(r.subject, rd.subj) {
		return false
	}
	if rd.stream.Valid != nil {
		return rd.stream.Valid(r.subject[len(rd.subj):], r.headers, r.message) == nil
	}
	return len(r.subject) == len(rd.subj)
}

var headersEnd = []byte("\r\n\r\n")

// wholeHeaders reports whether h is a complete block of headers.
func wholeHeaders(h []byte) bool {
	return bytes.HasPrefix(h, []byte("NATS/1.0")) && bytes.Index(h, headersEnd) == len(h)-len(headersEnd)
}

// appendMark appends a record without a message: flags is erasedBit or tombBit.
func (rd *reader) appendMark(index int, b []byte, seq uint64, flags uint64, at int64) ([]byte, error) {
	h, err := rd.hash(index)
	if err != nil {
		return nil, err
	}
	start := len(b)
	b = binary.LittleEndian.AppendUint32(b, emptyLen)
	b = binary.LittleEndian.AppendUint64(b, seq|flags)
	b = binary.LittleEndian.AppendUint64(b, uint64(at))
	b = binary.LittleEndian.AppendUint16(b, 0)
	_, _ = h.Write(b[start+4 : start+20])
	return binary.LittleEndian.AppendUint64(b, h.Sum64()), nil
}
