package wire

import (
	"encoding/binary"

	"github.com/gobwas/ws"
)

// appendHeader appends the header of a frame. Unlike ws.WriteHeader it needs no io.Writer, so several frames can be
// put together in one buffer.
func appendHeader(b []byte, h ws.Header) []byte {
	first := h.Rsv<<4 | byte(h.OpCode)
	if h.Fin {
		first |= 0x80
	}
	var mask byte
	if h.Masked {
		mask = 0x80
	}
	switch {
	case h.Length < 126:
		b = append(b, first, mask|byte(h.Length))
	case h.Length <= 0xffff:
		b = binary.BigEndian.AppendUint16(append(b, first, mask|126), uint16(h.Length))
	default:
		b = binary.BigEndian.AppendUint64(append(b, first, mask|127), uint64(h.Length))
	}
	if h.Masked {
		b = append(b, h.Mask[:]...)
	}
	return b
}
