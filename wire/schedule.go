package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ScheduleEntry is a check that a lapwing agent must run by itself from now on, or no longer.
type ScheduleEntry struct {
	// Remove is the name of a check that must no longer run. If it is empty, the check in Request replaces the one of
	// the same name.
	Remove string
	// PhaseMillis places the check's runs. A check with an interval is due whenever the Unix time in milliseconds
	// leaves this remainder when divided by the interval; one with a cron line is due this long after each of its
	// ticks.
	PhaseMillis uint64
	Request     []byte // protobuf encoding of a resource.CheckRequest
}

// Modes of a schedule message, and operations of its entries.
const (
	modeReplace = 0
	modeChange  = 1

	opSet    = 0
	opRemove = 1
)

// AppendSchedule appends a whole TypeSchedule message, type included. Within a session revisions count up from 1 by one
// for each message. If replace is set, the agent forgets every check that is not among the entries.
//
// The payload is the revision as uvarint and a byte for the mode (0 replace, 1 change); then for each entry a byte for
// the operation (0 set, 1 remove), the length of the rest of the entry as uvarint, and the rest: the phase as uvarint
// and the request to set a check, its name to remove one.
func AppendSchedule(dst []byte, revision uint64, replace bool, entries []ScheduleEntry) []byte {
	dst = binary.AppendUvarint(appendType(dst, TypeSchedule), revision)
	mode := byte(modeChange)
	if replace {
		mode = modeReplace
	}
	dst = append(dst, mode)
	for _, e := range entries {
		if e.Remove != "" {
			dst = binary.AppendUvarint(append(dst, opRemove), uint64(len(e.Remove)))
			dst = append(dst, e.Remove...)
			continue
		}
		var phase [binary.MaxVarintLen64]byte
		n := binary.PutUvarint(phase[:], e.PhaseMillis)
		dst = binary.AppendUvarint(append(dst, opSet), uint64(n+len(e.Request)))
		dst = append(append(dst, phase[:n]...), e.Request...)
	}
	return dst
}

// DecodeSchedule returns the contents of the payload of a TypeSchedule message. The entries' requests are part of
// payload. It skips nothing: an agent that understood only some of its schedule would run the wrong checks.
func DecodeSchedule(payload []byte) (revision uint64, replace bool, entries []ScheduleEntry, err error) {
	revision, n := binary.Uvarint(payload)
	if n <= 0 || n == len(payload) {
		return 0, false, nil, fmt.Errorf("decode head of schedule: %w", errTruncated)
	}
	mode := payload[n]
	if mode > modeChange {
		return 0, false, nil, fmt.Errorf("decode head of schedule: mode %d is not known", mode)
	}
	for b := payload[n+1:]; len(b) > 0; {
		op := b[0]
		size, n := binary.Uvarint(b[1:])
		if n <= 0 || size > uint64(len(b)-1-n) {
			return 0, false, nil, fmt.Errorf("decode schedule entry %d: %w", len(entries), errTruncated)
		}
		body := b[1+n : 1+n+int(size)]
		b = b[1+n+int(size):]
		e, err := decodeScheduleEntry(op, body)
		if err != nil {
			return 0, false, nil, fmt.Errorf("decode schedule entry %d: %w", len(entries), err)
		}
		entries = append(entries, e)
	}
	return revision, mode == modeReplace, entries, nil
}

func decodeScheduleEntry(op byte, body []byte) (ScheduleEntry, error) {
	switch op {
	case opSet:
		phase, n := binary.Uvarint(body)
		if n <= 0 {
			return ScheduleEntry{}, errTruncated
		}
		return ScheduleEntry{PhaseMillis: phase, Request: body[n:]}, nil
	case opRemove:
		if len(body) == 0 {
			return ScheduleEntry{}, errors.New("no name to remove")
		}
		return ScheduleEntry{Remove: string(body)}, nil
	}
	return ScheduleEntry{}, fmt.Errorf("operation %d is not known", op)
}
