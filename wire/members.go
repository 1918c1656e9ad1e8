package wire

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// MaxMembers is how many members a TypeMembers message may name. An agent ignores the rest.
const MaxMembers = 16

// maxMemberURL bounds a member's URL, in bytes. An agent ignores longer ones.
const maxMemberURL = 256

// Members are the backends of a cluster that take agents, as one of them names them to its agents.
type Members struct {
	URLs []string // where agents connect, ws or wss
	Self string   // the one of URLs that has sent the message; empty if it is not among them
	Next string   // the one of URLs that the agent is to move to; empty if it may stay
}

// AppendMembers appends a whole TypeMembers message, type included.
//
// The payload is the place of Next among the URLs, counted from 1, as uvarint, and 0 for none; the place of Self in the
// same way; then for each URL its length as uvarint, and the URL.
func AppendMembers(dst []byte, m Members) []byte {
	dst = appendType(dst, TypeMembers)
	for _, u := range []string{m.Next, m.Self} {
		dst = binary.AppendUvarint(dst, uint64(1+slices.Index(m.URLs, u)))
	}
	for _, u := range m.URLs {
		dst = append(binary.AppendUvarint(dst, uint64(len(u))), u...)
	}
	return dst
}

// DecodeMembers returns the contents of the payload of a TypeMembers message, up to MaxMembers URLs. It does not check
// what the URLs mean.
func DecodeMembers(payload []byte) (m Members, err error) {
	var places [2]uint64 // of Next and Self
	for i := range places {
		v, n := binary.Uvarint(payload)
		if n <= 0 {
			return Members{}, fmt.Errorf("decode head of members: %w", errTruncated)
		}
		places[i], payload = v, payload[n:]
	}
	for place := uint64(1); len(payload) > 0 && place <= MaxMembers; place++ {
		size, n := binary.Uvarint(payload)
		if n <= 0 || size > uint64(len(payload)-n) {
			return Members{}, fmt.Errorf("decode member %d: %w", place, errTruncated)
		}
		u := payload[n : n+int(size)]
		payload = payload[n+int(size):]
		if len(u) == 0 || len(u) > maxMemberURL {
			continue
		}
		m.URLs = append(m.URLs, string(u))
		if place == places[0] {
			m.Next = string(u)
		}
		if place == places[1] {
			m.Self = string(u)
		}
	}
	return m, nil
}
