package eventlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/lapwing-monitoring/lapwing/internal/fields"
)

// Kind is what a record is about.
type Kind uint8

// The kinds of records. Their numbers are stored; they never change.
const (
	KindEvent        Kind = 1 // a check result, a keepalive or metrics; Body is an Event without its entity
	KindEntity       Kind = 2 // the facts of an agent's host; Body is an EntityState
	KindDeleteEvent  Kind = 3 // deletes the state of one (entity, check)
	KindDeleteEntity Kind = 4 // deletes an entity and all its checks
)

// Flags are what the fold and the pipeline must know of an event without decoding its body.
type Flags uint16

// The flags. Their bits are stored; they never change.
const (
	FlagKeepalive Flags = 1 << iota // the check is the agent's keepalive
	FlagDeadline                    // a deadline made this event; valid only while Basis is the pair's position
	FlagHandlers                    // the check or the metrics name handlers, or the event names pipelines
	FlagMetrics                     // the body has metrics, which are handled but not kept
	FlagStateless                   // metrics only: handled, but without state to fold
	FlagHistory                     // the body has a history, with which a new pair starts
	FlagSilenced                    // the body names silences
	FlagFromAgent                   // Epoch and Sequence are set
	FlagOnResolve                   // OnResolve is set
)

// Record is one entry of the log: a header with what the fold needs, and a protobuf body.
type Record struct {
	Kind     Kind
	Flags    Flags
	Origin   string // the backend that received it, and whose pipeline handles it
	Received int64  // Unix milliseconds on the receiving backend

	Namespace string
	Entity    string
	Check     string

	Status   uint32
	Executed int64 // Unix seconds
	LowFlap  uint32
	HighFlap uint32
	// MaxOutput is the check's max_output_size in bytes if its output is longer, so that it must be cut for the state;
	// else 0.
	MaxOutput int64
	// Due is when the pair is overdue unless another event comes first, in Unix milliseconds; 0 means never.
	Due int64

	Epoch    uint64 // FlagFromAgent: the agent process that sent it
	Sequence uint64 // FlagFromAgent: its number in that epoch, counting up
	Basis    uint64 // FlagDeadline: the position of the event that had no successor

	OnResolve []string // FlagOnResolve: the body's silences that end if this resolves an incident

	Body []byte
}

var (
	errTrailing = errors.New("record has bytes behind its end")
)

// AppendRecord appends the encoding of r to b.
func AppendRecord(b []byte, r *Record) []byte {
	b = append(b, byte(r.Kind))
	b = binary.AppendUvarint(b, uint64(r.Flags))
	b = fields.AppendBytes(b, r.Origin)
	b = binary.AppendVarint(b, r.Received)
	b = fields.AppendBytes(b, r.Namespace)
	b = fields.AppendBytes(b, r.Entity)
	b = fields.AppendBytes(b, r.Check)
	if r.Kind == KindEvent {
		b = binary.AppendUvarint(b, uint64(r.Status))
		b = binary.AppendVarint(b, r.Executed)
		b = binary.AppendUvarint(b, uint64(r.LowFlap))
		b = binary.AppendUvarint(b, uint64(r.HighFlap))
		b = binary.AppendVarint(b, r.MaxOutput)
		b = binary.AppendVarint(b, r.Due)
	}
	if r.Flags&FlagFromAgent != 0 {
		b = binary.BigEndian.AppendUint64(b, r.Epoch)
		b = binary.AppendUvarint(b, r.Sequence)
	}
	if r.Flags&FlagDeadline != 0 {
		b = binary.AppendUvarint(b, r.Basis)
	}
	if r.Flags&FlagOnResolve != 0 {
		b = binary.AppendUvarint(b, uint64(len(r.OnResolve)))
		for _, name := range r.OnResolve {
			b = fields.AppendBytes(b, name)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(r.Body)))
	return append(b, r.Body...)
}

// fixedSize is an upper bound, in bytes, for a record's fields of fixed length and the lengths of the others.
const fixedSize = 128

// maxSize is an upper bound for the encoding of r, in bytes. It is cheaper than encoding r.
func maxSize(r *Record) int {
	n := fixedSize + len(r.Origin) + len(r.Namespace) + len(r.Entity) + len(r.Check) + len(r.Body)
	for _, name := range r.OnResolve {
		n += binary.MaxVarintLen64 + len(name)
	}
	return n
}

// DecodeRecord reads one record that fills b exactly. Body is a part of b. The strings are the results of intern, so
// that a caller that knows most of them already need not allocate.
func DecodeRecord(b []byte, r *Record, intern func([]byte) string) error {
	d := fields.NewReader(b)
	*r = Record{Kind: Kind(d.Byte()), Flags: Flags(d.Uint())}
	r.Origin = intern(d.Bytes())
	r.Received = d.Int()
	r.Namespace = intern(d.Bytes())
	r.Entity = intern(d.Bytes())
	r.Check = intern(d.Bytes())
	if r.Kind == KindEvent {
		r.Status = uint32(d.Uint())
		r.Executed = d.Int()
		r.LowFlap = uint32(d.Uint())
		r.HighFlap = uint32(d.Uint())
		r.MaxOutput = d.Int()
		r.Due = d.Int()
	}
	if r.Flags&FlagFromAgent != 0 {
		r.Epoch = d.Fixed64()
		r.Sequence = d.Uint()
	}
	if r.Flags&FlagDeadline != 0 {
		r.Basis = d.Uint()
	}
	if r.Flags&FlagOnResolve != 0 {
		for range d.Uint() {
			if d.Err() != nil {
				break
			}
			r.OnResolve = append(r.OnResolve, string(d.Bytes()))
		}
	}
	r.Body = d.Bytes()
	switch {
	case d.Err() != nil:
		return d.Err()
	case len(d.Rest) != 0:
		return errTrailing
	case r.Kind < KindEvent || r.Kind > KindDeleteEntity:
		return fmt.Errorf("record has unknown kind %d", r.Kind)
	case r.Namespace == "" || r.Entity == "":
		return errors.New("record names no entity")
	}
	return nil
}

// A batch is one message of the broker: a version byte, the records each behind its length, and a CRC-32C of all that,
// so that a message cut anywhere is recognised.
const batchVersion = 1

// batchOverhead is the size of a batch without its records, frameOverhead the room for the length in front of each.
const (
	batchOverhead = 1 + crc32.Size
	frameOverhead = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func startBatch(b []byte) []byte { return append(b, batchVersion) }

func finishBatch(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// Batch is a decoded message: its records are read one by one with Next.
type Batch struct {
	rest []byte
}

// OpenBatch checks a message's frame.
func OpenBatch(msg []byte) (Batch, error) {
	if len(msg) < 5 {
		return Batch{}, fmt.Errorf("log message has %d bytes", len(msg))
	}
	body, sum := msg[:len(msg)-4], binary.BigEndian.Uint32(msg[len(msg)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return Batch{}, errors.New("log message fails its checksum")
	}
	if body[0] != batchVersion {
		return Batch{}, fmt.Errorf("log message has version %d, want %d", body[0], batchVersion)
	}
	return Batch{rest: body[1:]}, nil
}

// Next returns the encoding of the next record, or nil at the end.
func (b *Batch) Next() ([]byte, error) {
	if len(b.rest) == 0 {
		return nil, nil
	}
	n, used := binary.Uvarint(b.rest)
	if used <= 0 || n > uint64(len(b.rest)-used) {
		b.rest = nil
		return nil, fields.ErrTruncated
	}
	rec := b.rest[used : used+int(n) : used+int(n)]
	b.rest = b.rest[used+int(n):]
	return rec, nil
}
