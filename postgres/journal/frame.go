package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"

	"github.com/klauspost/compress/s2"
)

// A frame has the changes of whole messages of one partition. Numbers are little endian:
//
//	 0 magic     uint32
//	 4 version   uint16
//	 6 partition uint16
//	 8 stream    uint64  see Stream
//	16 from      uint64  the message before the first
//	24 last      uint64  the last message
//	32 oldest    int64   when the first event was received, Unix milliseconds; 0 without events
//	40 newest    int64   likewise the last
//	48 count     uint32  entries
//	52 raw       uint32  bytes of the entries
//	56 stored    uint32  bytes of the entries behind this header, compressed with S2
//	60 checksum  uint32  CRC-32C of all that is before it and of the stored bytes
//	64 header    uint32  CRC-32C of all that is before it, so that a header is known to be right without its entries
const (
	headerSize   = 68
	frameMagic   = 0x1df7504c
	frameVersion = 2
	// maxFrame bounds the entries of a frame, in bytes: a frame with all that may wait is shorter. Its compressed length
	// must fit into 32 bits with their sign.
	maxFrame = 256 << 20
)

// castagnoli is immutable.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDamaged says that there is no whole frame.
var errDamaged = errors.New("damaged frame")

// Frame is a part of the journal: the changes of the messages behind From up to Last of a partition.
type Frame struct {
	Partition      int
	Stream         uint64
	From, Last     uint64
	Oldest, Newest int64 // Unix milliseconds; 0 without entries
	Count          int

	raw     int // bytes
	stored  int
	entries []byte
}

// append encodes the frame and its entries.
func (f *Frame) append(b, entries []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, headerSize)...)
	n := len(b)
	b = append(b, make([]byte, s2.MaxEncodedLen(len(entries)))...)
	b = b[:n+len(s2.Encode(b[n:], entries))]
	h := b[at:]
	binary.LittleEndian.PutUint32(h, frameMagic)
	binary.LittleEndian.PutUint16(h[4:], frameVersion)
	binary.LittleEndian.PutUint16(h[6:], uint16(f.Partition))
	for i, v := range [...]uint64{f.Stream, f.From, f.Last, uint64(f.Oldest), uint64(f.Newest)} {
		binary.LittleEndian.PutUint64(h[8+8*i:], v)
	}
	for i, v := range [...]int{f.Count, len(entries), len(b) - n} {
		binary.LittleEndian.PutUint32(h[48+4*i:], uint32(v))
	}
	binary.LittleEndian.PutUint32(h[60:], checksum(h))
	binary.LittleEndian.PutUint32(h[64:], crc32.Checksum(h[:64], castagnoli))
	return b
}

// checksum is of a header and the stored bytes behind it.
func checksum(frame []byte) uint32 {
	return crc32.Update(crc32.Checksum(frame[:60], castagnoli), castagnoli, frame[headerSize:])
}

// decodeHeader reads a header; false if it is none, or damaged.
func (f *Frame) decodeHeader(h []byte) bool {
	if len(h) < headerSize || binary.LittleEndian.Uint32(h) != frameMagic || binary.LittleEndian.Uint16(h[4:]) != frameVersion ||
		binary.LittleEndian.Uint32(h[64:]) != crc32.Checksum(h[:64], castagnoli) {
		return false
	}
	*f = Frame{
		Partition: int(binary.LittleEndian.Uint16(h[6:])), Stream: binary.LittleEndian.Uint64(h[8:]),
		From: binary.LittleEndian.Uint64(h[16:]), Last: binary.LittleEndian.Uint64(h[24:]),
		Oldest: int64(binary.LittleEndian.Uint64(h[32:])), Newest: int64(binary.LittleEndian.Uint64(h[40:])),
		Count: int(binary.LittleEndian.Uint32(h[48:])), raw: int(binary.LittleEndian.Uint32(h[52:])),
		stored: int(binary.LittleEndian.Uint32(h[56:])),
	}
	return f.raw <= maxFrame && f.stored <= s2.MaxEncodedLen(maxFrame) && f.From < f.Last
}

// decode reads the entries of a frame, whose header was read, and uses buffer for them.
func (f *Frame) decode(frame, buffer []byte) error {
	if binary.LittleEndian.Uint32(frame[60:]) != checksum(frame) {
		return errDamaged
	}
	if n, err := s2.DecodedLen(frame[headerSize:]); err != nil || n != f.raw {
		return errDamaged
	}
	entries, err := s2.Decode(buffer[:cap(buffer)], frame[headerSize:])
	if err != nil {
		return errDamaged
	}
	f.entries = entries
	return nil
}

// Entries returns the frame's changes in the order of the log. An Entry is valid until the reader's next frame.
func (f *Frame) Entries() iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		var e Entry
		for b := f.entries; len(b) > 0; {
			var err error
			if b, err = e.next(b); err != nil {
				yield(nil, fmt.Errorf("read an entry of the journal, partition %d behind message %d: %w", f.Partition, f.From, err))
				return
			}
			if !yield(&e, nil) {
				return
			}
		}
	}
}
