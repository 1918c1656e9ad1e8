package eventlog

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/lapwing-monitoring/lapwing/internal/fields"
)

// Kind is what a record is about.
type Kind uint8

// The kinds of records. Their numbers are stored; they never change.
const (
	KindEvent        Kind = 1 // a check result, a keepalive or metrics; Body is an Event without its entity
	KindEntity       Kind = 2 // the facts of an agent's host; Body is an EntityState (state.AppendFacts)
	KindDeleteEvent  Kind = 3 // deletes the state of one (entity, check)
	KindDeleteEntity Kind = 4 // deletes an entity and all its checks
	KindDeliveries   Kind = 5 // changes of a partition's deliveries, of package handler; no entity
	KindRoster       Kind = 6 // a roster of the cluster, of package cluster; no entity
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

	knownFlags = FlagOnResolve<<1 - 1
)

// Record is one entry of the log: a header with what the fold needs, and a protobuf body.
type Record struct {
	Kind     Kind
	Flags    Flags
	Received int64 // Unix milliseconds on the backend that received it

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
	n := fixedSize + len(r.Namespace) + len(r.Entity) + len(r.Check) + len(r.Body)
	for _, name := range r.OnResolve {
		n += binary.MaxVarintLen64 + len(name)
	}
	return n
}

// DecodeRecord reads one record that fills b exactly. Body is a part of b. The strings are the results of intern, so
// that a caller that knows most of them already need not allocate.
func DecodeRecord(b []byte, r *Record, intern func([]byte) string) error {
	d := fields.NewReader(b)
	kind, flags := d.Byte(), d.Uint()
	*r = Record{Kind: Kind(kind), Flags: Flags(flags)}
	switch {
	case d.Err() != nil:
		return d.Err()
	case r.Kind > KindRoster:
		return &fields.NewerError{What: "kind of a record of the event log", Got: uint64(kind), Known: uint64(KindRoster)}
	case flags > uint64(knownFlags): // they may have fields of their own
		return &fields.NewerError{What: "sum of a record's flags", Got: flags, Known: uint64(knownFlags)}
	}
	return r.decode(&d, intern)
}

// decode reads what is behind the flags.
func (r *Record) decode(d *fields.Reader, intern func([]byte) string) error {
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
	case r.Kind < KindEvent || r.Kind > KindRoster:
		return fmt.Errorf("record has unknown kind %d", r.Kind)
	case r.Kind < KindDeliveries && (r.Namespace == "" || r.Entity == ""):
		return errors.New("record names no entity")
	}
	return nil
}
