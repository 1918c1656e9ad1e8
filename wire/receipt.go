package wire

import (
	"encoding/binary"
	"fmt"
)

// Outcome is what became of a request that carries a turn.
type Outcome uint8

// The outcomes. Their numbers are sent.
const (
	OutcomeRunning  Outcome = 1 // the agent runs it, and a result will follow
	OutcomeDeclined Outcome = 2 // the agent will not run it: another one may
	OutcomeDone     Outcome = 3 // the agent has done it, and no result will follow
)

func (o Outcome) String() string {
	switch o {
	case OutcomeRunning:
		return "running"
	case OutcomeDeclined:
		return "declined"
	case OutcomeDone:
		return "done"
	}
	return fmt.Sprintf("outcome %d", uint8(o))
}

// Receipt tells the backend about a request with a turn, before its result or instead of it.
type Receipt struct {
	// Check and Entity are the request's check and its proxy entity, "" for none.
	Check, Entity string
	// Turn is the value of the check's annotation resource.TurnAnnotation.
	Turn    string
	Outcome Outcome
	// Reason is why a request was declined.
	Reason string
}

// AppendReceipt appends a whole TypeReceipt message, type included. Its payload is a byte for the outcome (1 running, 2
// declined, 3 done), and then the check, the proxy entity, the turn and the reason, each as its length in uvarint and its
// bytes.
func AppendReceipt(dst []byte, r *Receipt) []byte {
	dst = append(appendType(dst, TypeReceipt), byte(r.Outcome))
	for _, text := range []string{r.Check, r.Entity, r.Turn, r.Reason[:min(len(r.Reason), maxReason)]} {
		dst = append(binary.AppendUvarint(dst, uint64(len(text))), text...)
	}
	return dst
}

// DecodeReceipt returns the contents of the payload of a TypeReceipt message.
func DecodeReceipt(payload []byte) (r Receipt, err error) {
	if len(payload) == 0 {
		return r, fmt.Errorf("decode receipt: %w", errTruncated)
	}
	r.Outcome, payload = Outcome(payload[0]), payload[1:]
	rest := string(payload) // once for all of them
	if r.Outcome < OutcomeRunning || r.Outcome > OutcomeDone {
		return r, fmt.Errorf("decode receipt: %v is not known", r.Outcome)
	}
	for _, text := range []*string{&r.Check, &r.Entity, &r.Turn, &r.Reason} {
		size, n := binary.Uvarint(payload)
		if n <= 0 || size > uint64(len(payload)-n) {
			return r, fmt.Errorf("decode receipt: %w", errTruncated)
		}
		payload = payload[n+int(size):]
		*text, rest = rest[n:n+int(size)], rest[n+int(size):]
	}
	if len(payload) > 0 {
		return r, fmt.Errorf("decode receipt: %w", errTrailing)
	}
	return r, nil
}
