package relay

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/lapwing-monitoring/lapwing/metric/frame"
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
	// Gzip is Line on connections that are compressed, as go-carbon and carbon-c-relay accept them.
	Gzip
)

var protocolNames = [...]string{Pickle: "pickle", Line: "line", Protobuf: "protobuf", UDP: "udp", Gzip: "gzip"}

// String returns the name as carbon's DESTINATION_PROTOCOL has it.
func (p Protocol) String() string {
	if int(p) < len(protocolNames) {
		return protocolNames[p]
	}
	return fmt.Sprintf("protocol %d", uint8(p))
}

// format returns how the protocol has its points.
func (p Protocol) format() frame.Format {
	switch p {
	case Pickle:
		return frame.Pickle
	case Protobuf:
		return frame.Protobuf
	}
	return frame.Line
}

// ParseProtocol reads pickle, line, protobuf, udp or gzip.
func ParseProtocol(name string) (Protocol, error) {
	for p, n := range protocolNames {
		if n == name {
			return Protocol(p), nil
		}
	}
	return 0, fmt.Errorf("%q is no protocol of destinations: use %s", name, strings.Join(protocolNames[:], ", "))
}

const (
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
	out      []byte
	ends     []int // of the datagrams in out
	// unusable counts points of the last batch that the protocol cannot carry.
	unusable int
}

// encode returns the bytes of a batch and how many points they have. They are valid until the next call.
func (e *encoder) encode(batch []byte) (out []byte, points int) {
	format := e.protocol.format()
	e.out, e.ends, e.unusable = e.out[:0], e.ends[:0], 0
	start, inMessage := 0, 0
	for len(batch) > 0 {
		name, seconds, value, rest, ok := takePoint(batch)
		if !ok {
			e.unusable++
			break
		}
		batch = rest
		if !format.Carries(name, seconds) {
			e.unusable++
			continue
		}
		if inMessage == 0 {
			start = len(e.out)
			e.out = format.Begin(e.out)
		}
		before := len(e.out)
		e.out = format.Append(e.out, name, seconds, value)
		if e.protocol == UDP && inMessage > 0 && len(e.out)-start > maxDatagram {
			e.ends = append(e.ends, before)
			start, inMessage = before, 0
		}
		points++
		if inMessage++; inMessage == frame.MaxPoints {
			e.end(format, start)
			inMessage = 0
		}
	}
	if inMessage > 0 {
		e.end(format, start)
	}
	return e.out, points
}

// end completes the message that begins at start.
func (e *encoder) end(format frame.Format, start int) {
	if e.out = format.End(e.out, start); e.protocol == UDP {
		e.ends = append(e.ends, len(e.out))
	}
}
