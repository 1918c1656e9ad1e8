package relay

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Protocol is how points are written to a destination.
type Protocol uint8

const (
	// Pickle is carbon's default between relays and caches: Python's pickle, protocol 2, with a length in front.
	Pickle Protocol = iota
	// Line is a line of text a point.
	Line
	// Protobuf is carbon's message, with a length in front.
	Protobuf
	// UDP has lines in datagrams. What is lost on the way is not noticed.
	UDP
)

var protocolNames = [...]string{Pickle: "pickle", Line: "line", Protobuf: "protobuf", UDP: "udp"}

// String returns the name as carbon's DESTINATION_PROTOCOL has it.
func (p Protocol) String() string {
	if int(p) < len(protocolNames) {
		return protocolNames[p]
	}
	return fmt.Sprintf("protocol %d", uint8(p))
}

// ParseProtocol reads pickle, line, protobuf or udp.
func ParseProtocol(name string) (Protocol, error) {
	for p, n := range protocolNames {
		if n == name {
			return Protocol(p), nil
		}
	}
	return 0, fmt.Errorf("%q is no protocol of destinations: use %s", name, strings.Join(protocolNames[:], ", "))
}

const (
	// maxMessagePoints is carbon's MAX_DATAPOINTS_PER_MESSAGE.
	maxMessagePoints = 500
	// maxDatagram fits into an Ethernet frame.
	maxDatagram = 1400
	// maxName bounds a series' name, in bytes. Carbon closes a connection on a line of 16384.
	maxName = 16000
	// pointOverhead is the most that a point of a batch has beside its name.
	pointOverhead = 3 + 8 + 8
)

// A batch holds points in the relay's own form, the same in memory and in the spill: the name's length as a varint, the
// name, the seconds and the value in 8 bytes each.

func appendPoint(b, name []byte, seconds int64, value float64) []byte {
	b = binary.AppendUvarint(b, uint64(len(name)))
	b = append(b, name...)
	b = binary.LittleEndian.AppendUint64(b, uint64(seconds))
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(value))
}

// takePoint returns the first point of a batch and the rest. ok is false if there is no whole point.
func takePoint(b []byte) (name []byte, seconds int64, value float64, rest []byte, ok bool) {
	length, n := binary.Uvarint(b)
	if n <= 0 || length > maxName || uint64(len(b)-n) < length+16 {
		return nil, 0, 0, nil, false
	}
	name, b = b[n:n+int(length)], b[n+int(length):]
	return name, int64(binary.LittleEndian.Uint64(b)), math.Float64frombits(binary.LittleEndian.Uint64(b[8:])),
		b[16:], true
}

// countPoints returns how many points a batch has. ok is false if it ends inside a point.
func countPoints(b []byte) (n int, ok bool) {
	for len(b) > 0 {
		if _, _, _, b, ok = takePoint(b); !ok {
			return n, false
		}
		n++
	}
	return n, true
}

// encoder writes batches in a protocol. It is for one goroutine.
type encoder struct {
	protocol Protocol
	exact    bool
	out      []byte
	message  []byte // one Metric of protobuf
	ends     []int  // of the datagrams in out
	// unusable counts points of the last batch that the protocol cannot carry.
	unusable int
}

// encode returns the bytes of a batch and how many points they have. They are valid until the next call.
func (e *encoder) encode(batch []byte) (out []byte, points int) {
	e.out, e.ends, e.unusable = e.out[:0], e.ends[:0], 0
	start, inMessage := 0, 0
	for len(batch) > 0 {
		name, seconds, value, rest, ok := takePoint(batch)
		if !ok {
			e.unusable++
			break
		}
		batch = rest
		if !e.usable(name, seconds) {
			e.unusable++
			continue
		}
		if inMessage == 0 {
			start = len(e.out)
			e.begin()
		}
		before := len(e.out)
		e.point(name, seconds, value)
		if e.protocol == UDP && inMessage > 0 && len(e.out)-start > maxDatagram {
			e.ends = append(e.ends, before)
			start, inMessage = before, 0
		}
		points++
		if inMessage++; inMessage == maxMessagePoints {
			e.end(start)
			inMessage = 0
		}
	}
	if inMessage > 0 {
		e.end(start)
	}
	return e.out, points
}

// usable reports whether receivers can read a name and a time. Carbon gives up a connection, or a whole message, for
// a name that is not UTF-8, and text cannot carry spaces.
func (e *encoder) usable(name []byte, seconds int64) bool {
	if len(name) == 0 || e.protocol == Protobuf && (seconds < 0 || seconds > math.MaxUint32) {
		return false
	}
	if e.protocol == Pickle || e.protocol == Protobuf {
		return utf8.Valid(name)
	}
	plain := true
	for _, c := range name {
		if c <= ' ' || c >= 0x7f {
			plain = false
			break
		}
	}
	return plain || utf8.Valid(name) && !bytes.ContainsFunc(name, isSpace)
}

// isSpace reports whether Python splits a line at c.
func isSpace(c rune) bool { return c <= ' ' || c == 0x7f || unicode.IsSpace(c) }

func (e *encoder) begin() {
	switch e.protocol {
	case Pickle:
		e.out = append(e.out, 0, 0, 0, 0, 0x80, 2, ']', '(')
	case Protobuf:
		e.out = append(e.out, 0, 0, 0, 0)
	}
}

// end completes the message that begins at start.
func (e *encoder) end(start int) {
	switch e.protocol {
	case UDP:
		e.ends = append(e.ends, len(e.out))
		return
	case Line:
		return
	case Pickle:
		e.out = append(e.out, 'e', '.')
	}
	binary.BigEndian.PutUint32(e.out[start:], uint32(len(e.out)-start-4))
}

func (e *encoder) point(name []byte, seconds int64, value float64) {
	switch e.protocol {
	case Pickle:
		e.out = append(e.out, 'X')
		e.out = binary.LittleEndian.AppendUint32(e.out, uint32(len(name)))
		e.out = append(e.out, name...)
		if seconds >= math.MinInt32 && seconds <= math.MaxInt32 {
			e.out = append(e.out, 'J')
			e.out = binary.LittleEndian.AppendUint32(e.out, uint32(int32(seconds)))
		} else {
			e.out = append(e.out, 0x8a, 8)
			e.out = binary.LittleEndian.AppendUint64(e.out, uint64(seconds))
		}
		e.out = append(e.out, 'G')
		e.out = binary.BigEndian.AppendUint64(e.out, math.Float64bits(value))
		e.out = append(e.out, 0x86, 0x86)
	case Protobuf:
		var room [24]byte
		p := append(room[:0], 1<<3)
		p = binary.AppendUvarint(p, uint64(seconds))
		p = binary.LittleEndian.AppendUint64(append(p, 2<<3|1), math.Float64bits(value))
		m := binary.AppendUvarint(append(e.message[:0], 1<<3|2), uint64(len(name)))
		m = append(m, name...)
		m = append(m, 2<<3|2, byte(len(p)))
		m = append(m, p...)
		e.message = m
		e.out = binary.AppendUvarint(append(e.out, 1<<3|2), uint64(len(m)))
		e.out = append(e.out, m...)
	default:
		e.out = append(append(e.out, name...), ' ')
		e.out = appendValue(e.out, value, e.exact)
		e.out = strconv.AppendInt(append(e.out, ' '), seconds, 10)
		e.out = append(e.out, '\n')
	}
}

// appendValue writes a value as carbon's relay does: ten decimals at most, without zeros at the end. exact writes the
// shortest text of the same value instead.
func appendValue(b []byte, value float64, exact bool) []byte {
	switch {
	case math.IsInf(value, 1):
		return append(b, "inf"...)
	case math.IsInf(value, -1):
		return append(b, "-inf"...)
	case exact:
		return strconv.AppendFloat(b, value, 'g', -1, 64)
	case value == math.Trunc(value) && math.Abs(value) < 1<<53:
		return strconv.AppendInt(b, int64(value), 10)
	}
	b = strconv.AppendFloat(b, value, 'f', 10, 64)
	for b[len(b)-1] == '0' {
		b = b[:len(b)-1]
	}
	if b[len(b)-1] == '.' {
		b = b[:len(b)-1]
	}
	return b
}
