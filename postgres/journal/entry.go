package journal

import (
	"encoding/binary"

	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/state"
)

// Flags of an entry. They are stored, in journals and in PostgreSQL: their bits never change.
const (
	Deleted    = 1 << iota // the pair is gone
	Stateless              // metrics only: the pair's state is what it was
	Changed                // the status, the flapping or the silencing is another than before
	Incident               // the check is not OK
	Resolution             // it is OK, and was not before
	Silenced
	Flapping
	Missing // no result came in time: a deadline made the event
	Metrics // the event has metric points
	Ran     // the result of a run that an agent was asked for
)

// Entry is one change of a pair: an event with the state after it, or a deletion. The bytes are a part of the frame.
type Entry struct {
	Seq   uint64 // the message of the log
	Sub   int    // the record in it
	Flags uint32

	Namespace, Entity, Check []byte

	Received int64 // Unix milliseconds
	// The rest is empty for a deletion.
	Status                            uint32
	Executed, LastOK                  int64 // Unix seconds
	Occurrences, OccurrencesWatermark int64
	Body                              []byte // the event in protobuf, see state.Applied.Body
}

// appendEntry encodes a change.
func appendEntry(b []byte, a *state.Applied) []byte {
	st := a.Numbers()
	flags := uint64(0)
	for _, f := range [...]struct {
		set  bool
		flag uint64
	}{
		{a.Deleted, Deleted}, {a.Stateless, Stateless}, {a.Changed || a.Deleted, Changed}, {a.Incident, Incident},
		{a.Resolution, Resolution}, {a.Silenced, Silenced}, {st.Flapping, Flapping}, {a.Deadline, Missing},
		{a.HasMetrics, Metrics}, {a.Ran, Ran},
	} {
		if f.set {
			flags |= f.flag
		}
	}
	b = binary.AppendUvarint(b, flags)
	b = binary.AppendUvarint(b, a.Seq)
	b = binary.AppendUvarint(b, uint64(a.Sub))
	b = fields.AppendBytes(b, a.Namespace)
	b = fields.AppendBytes(b, a.Entity)
	b = fields.AppendBytes(b, a.Check)
	b = binary.AppendVarint(b, a.Received)
	if a.Deleted {
		return b
	}
	b = binary.AppendUvarint(b, uint64(a.Status))
	b = binary.AppendVarint(b, st.Executed)
	b = binary.AppendVarint(b, st.LastOK)
	b = binary.AppendVarint(b, st.Occurrences)
	b = binary.AppendVarint(b, st.OccurrencesWatermark)
	return fields.AppendBytes(b, a.Body())
}

// next reads an entry and returns what is behind it.
func (e *Entry) next(b []byte) ([]byte, error) {
	r := fields.NewReader(b)
	*e = Entry{Flags: uint32(r.Uint()), Seq: r.Uint(), Sub: int(r.Uint())}
	e.Namespace, e.Entity, e.Check = r.Bytes(), r.Bytes(), r.Bytes()
	e.Received = r.Int()
	if e.Flags&Deleted == 0 {
		e.Status, e.Executed, e.LastOK = uint32(r.Uint()), r.Int(), r.Int()
		e.Occurrences, e.OccurrencesWatermark = r.Int(), r.Int()
		e.Body = r.Bytes()
	}
	return r.Rest, r.Err()
}
