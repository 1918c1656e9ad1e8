package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// Pace is the backend's request how fast a lapwing agent sends batches.
type Pace uint8

// The paces. A new connection starts with PaceGo.
const (
	PaceGo    Pace = iota // as they come
	PaceSlow              // at most one batch per given time
	PaceSpool             // none until the next pace: the agent keeps them
	PaceLeave             // none any more: the agent waits for acknowledgements and moves to another backend
)

func (p Pace) String() string {
	switch p {
	case PaceGo:
		return "go"
	case PaceSlow:
		return "slow"
	case PaceSpool:
		return "spool"
	case PaceLeave:
		return "leave"
	}
	return fmt.Sprintf("pace %d", uint8(p))
}

// AppendPace appends a whole TypePace message, type included. every is the least time between two batches under
// PaceSlow, to the millisecond, and has no meaning otherwise.
//
// The payload is a byte for the pace (0 go, 1 slow, 2 spool, 3 leave) and the time in milliseconds as uvarint, which is 0 for all
// but PaceSlow.
func AppendPace(dst []byte, p Pace, every time.Duration) []byte {
	var ms uint64
	if p == PaceSlow {
		ms = uint64(max(0, every.Milliseconds()))
	}
	return binary.AppendUvarint(append(appendType(dst, TypePace), byte(p)), ms)
}

// DecodePace returns the contents of the payload of a TypePace message.
func DecodePace(payload []byte) (p Pace, every time.Duration, err error) {
	if len(payload) == 0 {
		return 0, 0, fmt.Errorf("decode pace: %w", errTruncated)
	}
	p = Pace(payload[0])
	if p > PaceLeave {
		return 0, 0, fmt.Errorf("decode pace: %v is not known", p)
	}
	ms, n := binary.Uvarint(payload[1:])
	if n <= 0 {
		return 0, 0, fmt.Errorf("decode pace: %w", errTruncated)
	}
	if 1+n != len(payload) {
		return 0, 0, fmt.Errorf("decode pace: %w", errTrailing)
	}
	if ms > math.MaxInt64/uint64(time.Millisecond) {
		return 0, 0, errors.New("decode pace: time out of range")
	}
	if p != PaceSlow {
		return p, 0, nil
	}
	return p, time.Duration(ms) * time.Millisecond, nil
}
