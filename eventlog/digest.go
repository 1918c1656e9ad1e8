package eventlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/lapwing-monitoring/lapwing/internal/fields"
)

// Digest is a sum over messages of a partition, of their sequence numbers and checksums. Backends that have read the
// same messages have the same digest. If one message differs, or is missing, all later digests differ.
type Digest struct {
	From uint64 `json:"from"` // the first message that counts; 0 if there is none yet
	Seq  uint64 `json:"seq"`  // the newest one
	Sum  uint64 `json:"sum"`
}

// Checksum returns the checksum of a message for Add. A sound message has been opened by OpenBatch, and ends with it.
func Checksum(msg []byte, sound bool) uint32 {
	if sound {
		return binary.BigEndian.Uint32(msg[len(msg)-crc32.Size:])
	}
	return crc32.Checksum(msg, castagnoli)
}

// Add counts a message.
func (d *Digest) Add(seq uint64, checksum uint32) {
	if d.From == 0 {
		d.From = seq
	}
	d.Seq = seq
	// Sums can be compared, and one can be added to another, because each message adds a number of its own.
	h := seq*0x9e3779b97f4a7c15 ^ uint64(checksum)
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	d.Sum += h ^ h>>31
}

// digestVersion begins an encoded digest.
const digestVersion = 1

// Append adds the encoded digest to b.
func (d *Digest) Append(b []byte) []byte {
	b = append(b, digestVersion)
	b = binary.AppendUvarint(b, d.From)
	b = binary.AppendUvarint(b, d.Seq)
	return binary.AppendUvarint(b, d.Sum)
}

// DecodeDigest reads what Append wrote.
func DecodeDigest(b []byte) (Digest, error) {
	r := fields.NewReader(b)
	if v := r.Byte(); v != digestVersion && r.Err() == nil {
		return Digest{}, fmt.Errorf("digest has version %d, want %d", v, digestVersion)
	}
	d := Digest{From: r.Uint(), Seq: r.Uint(), Sum: r.Uint()}
	return d, r.Err()
}
