package wire

import (
	"encoding/binary"
	"fmt"
)

// maxReason bounds the reason of a refusal, in bytes.
const maxReason = 1 << 10

// AppendRefused appends a whole TypeRefused message, type included: the backend will never take the event numbered seq,
// for the reason. Its payload is seq as uvarint, and the reason up to the end. A TypeAck covers the event too.
func AppendRefused(dst []byte, seq uint64, reason string) []byte {
	dst = binary.AppendUvarint(appendType(dst, TypeRefused), seq)
	return append(dst, reason[:min(len(reason), maxReason)]...)
}

// DecodeRefused returns the number and the reason in the payload of a TypeRefused message.
func DecodeRefused(payload []byte) (seq uint64, reason string, err error) {
	seq, n := binary.Uvarint(payload)
	if n <= 0 {
		return 0, "", fmt.Errorf("decode refusal: %w", errTruncated)
	}
	return seq, string(payload[n:min(len(payload), n+maxReason)]), nil
}
