package eventlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/lapwing-monitoring/lapwing/internal/fields"
)

// A batch is one message of the broker: a version byte, the header, the records each behind its length, and a CRC-32C
// of all that, so that a message cut anywhere is recognised.
//
// Version 1 has no header, and each of its records has the origin behind its flags. It is read and no more written.
//
// A release writes only what the release before it reads: members of both run together during an upgrade. A batch or a
// record that only newer releases know is a fields.NewerError.
const batchVersion = 2

// maxOrigin bounds the name of a backend in a header, in bytes.
const maxOrigin = 128

// batchOverhead bounds the size of a batch without its records, and frameOverhead is the room for the length in front
// of each.
const (
	batchOverhead = 1 + maxOrigin + 3*binary.MaxVarintLen64 + crc32.Size
	frameOverhead = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header says which backend wrote a batch, and when in its life.
type Header struct {
	// Origin is the backend that received the records of the batch.
	Origin string
	// Number counts the origin's batches of the partition up, for ever. A batch that the broker has stored twice has the
	// same number twice. 0 is unknown: a batch of version 1.
	Number uint64
	// Roster is the number of the newest roster that the origin knew when it began the batch; 0 if it was alone.
	Roster uint64
}

func startBatch(b []byte, h Header) []byte {
	b = append(b, batchVersion)
	b = fields.AppendBytes(b, h.Origin)
	b = binary.AppendUvarint(b, h.Number)
	return binary.AppendUvarint(b, h.Roster)
}

func finishBatch(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// Batch is an opened message. Its records are read one by one with Next.
type Batch struct {
	Header
	version byte
	rest    []byte
}

// OpenBatch checks a message's frame and reads its header. intern is as for DecodeRecord.
func OpenBatch(msg []byte, intern func([]byte) string) (Batch, error) {
	if len(msg) < 1+crc32.Size {
		return Batch{}, fmt.Errorf("log message has %d bytes", len(msg))
	}
	body, sum := msg[:len(msg)-crc32.Size], binary.BigEndian.Uint32(msg[len(msg)-crc32.Size:])
	if crc32.Checksum(body, castagnoli) != sum {
		return Batch{}, errors.New("log message fails its checksum")
	}
	b := Batch{version: body[0], rest: body[1:]}
	if err := fields.CheckVersion("a batch of the event log", b.version, batchVersion); err != nil {
		return Batch{}, err
	}
	if b.version > 1 {
		d := fields.NewReader(b.rest)
		b.Origin, b.Number, b.Roster = intern(d.Bytes()), d.Uint(), d.Uint()
		if d.Err() != nil {
			return Batch{}, fmt.Errorf("header of log message: %w", d.Err())
		}
		b.rest = d.Rest
	}
	return b, nil
}

// Next reads the next record into r, as DecodeRecord does; more is false at the end. After an error the next call goes
// on behind that record.
func (b *Batch) Next(r *Record, intern func([]byte) string) (more bool, err error) {
	if len(b.rest) == 0 {
		return false, nil
	}
	n, used := binary.Uvarint(b.rest)
	if used <= 0 || n > uint64(len(b.rest)-used) {
		b.rest = nil
		return true, fields.ErrTruncated
	}
	rec := b.rest[used : used+int(n) : used+int(n)]
	b.rest = b.rest[used+int(n):]
	if b.version == 1 {
		return true, b.decodeV1(rec, r, intern)
	}
	return true, DecodeRecord(rec, r, intern)
}

// decodeV1 reads a record of version 1, and with it the batch's origin: one backend wrote all of them.
func (b *Batch) decodeV1(rec []byte, r *Record, intern func([]byte) string) error {
	d := fields.NewReader(rec)
	*r = Record{Kind: Kind(d.Byte()), Flags: Flags(d.Uint())}
	b.Origin = intern(d.Bytes())
	return r.decode(&d, intern)
}
