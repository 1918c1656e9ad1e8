package wire

import (
	"encoding/binary"

	"github.com/gobwas/ws"
)

// appendHeader appends the header of a frame. Unlike ws.WriteHeader it needs no io.Writer, so several frames fit in one
// buffer.
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

// parseHeader returns the frame header at the start of b, and its length, which is 0 while the header is incomplete.
func parseHeader(b []byte) (h ws.Header, n int, err error) {
	if len(b) < ws.MinHeaderSize {
		return ws.Header{}, 0, nil
	}
	h = ws.Header{Fin: b[0]&0x80 != 0, Rsv: b[0] >> 4 & 7, OpCode: ws.OpCode(b[0] & 0x0f), Masked: b[1]&0x80 != 0}
	length := b[1] & 0x7f
	n = ws.MinHeaderSize
	switch length {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if h.Masked {
		n += len(h.Mask)
	}
	if len(b) < n {
		return ws.Header{}, 0, nil
	}
	switch length {
	case 126:
		h.Length = int64(binary.BigEndian.Uint16(b[2:]))
	case 127:
		h.Length = int64(binary.BigEndian.Uint64(b[2:]))
	default:
		h.Length = int64(length)
	}
	if h.Length < 0 {
		return ws.Header{}, 0, ws.ErrHeaderLengthMSB
	}
	if h.Masked {
		copy(h.Mask[:], b[n-len(h.Mask):])
	}
	return h, n, nil
}
