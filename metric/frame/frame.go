// Package frame writes points in the formats of carbon's receivers: lines of text, pickles and protobuf messages. The
// relay sends them, and tests of listeners read them back.
//
// The caller begins a message, appends points to it, and ends it. It keeps to MaxPoints, and asks Carries first about
// each point. Nothing is allocated but the bytes that are appended.
package frame

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// MaxPoints bounds the points of a message: carbon's MAX_DATAPOINTS_PER_MESSAGE.
const MaxPoints = 500

// Format is how a message has its points.
type Format uint8

const (
	// Line is a line of text a point. Messages have neither beginning nor end.
	Line Format = iota
	// Pickle is Python's pickle of protocol 2, which all versions of carbon read, with its length in front.
	Pickle
	// Protobuf is carbon's message, with its length in front.
	Protobuf
)

// Carries reports whether receivers can read a name and a time. Carbon gives up a connection, or a whole message, for
// a name that is not UTF-8. Text cannot carry spaces, and protobuf has 32 bits for the time.
func (f Format) Carries(name []byte, seconds int64) bool {
	if len(name) == 0 || f == Protobuf && (seconds < 0 || seconds > math.MaxUint32) {
		return false
	}
	if f != Line {
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

// Begin appends the beginning of a message.
func (f Format) Begin(dst []byte) []byte {
	switch f {
	case Pickle:
		return append(dst, 0, 0, 0, 0, 0x80, 2, ']', '(')
	case Protobuf:
		return append(dst, 0, 0, 0, 0)
	}
	return dst
}

// End appends the end of the message that begins at start.
func (f Format) End(dst []byte, start int) []byte {
	switch f {
	case Line:
		return dst
	case Pickle:
		dst = append(dst, 'e', '.')
	}
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}

// Append appends a point to a message.
func (f Format) Append(dst, name []byte, seconds int64, value float64) []byte {
	switch f {
	case Pickle:
		return appendPickled(dst, name, seconds, value)
	case Protobuf:
		return appendMetric(dst, name, seconds, value)
	}
	dst = append(append(dst, name...), ' ')
	dst = appendValue(dst, value)
	dst = strconv.AppendInt(append(dst, ' '), seconds, 10)
	return append(dst, '\n')
}

func appendPickled(dst, name []byte, seconds int64, value float64) []byte {
	dst = binary.LittleEndian.AppendUint32(append(dst, 'X'), uint32(len(name)))
	dst = append(dst, name...)
	if seconds >= math.MinInt32 && seconds <= math.MaxInt32 {
		dst = binary.LittleEndian.AppendUint32(append(dst, 'J'), uint32(int32(seconds)))
	} else {
		dst = binary.LittleEndian.AppendUint64(append(dst, 0x8a, 8), uint64(seconds))
	}
	dst = binary.BigEndian.AppendUint64(append(dst, 'G'), math.Float64bits(value))
	return append(dst, 0x86, 0x86)
}

// appendMetric appends a Metric message with one point, in the field 1 of a Payload.
func appendMetric(dst, name []byte, seconds int64, value float64) []byte {
	point := 1 + protowire.SizeVarint(uint64(seconds)) + 1 + 8
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(1+protowire.SizeBytes(len(name))+1+protowire.SizeBytes(point)))
	dst = protowire.AppendBytes(protowire.AppendTag(dst, 1, protowire.BytesType), name)
	dst = protowire.AppendVarint(protowire.AppendTag(dst, 2, protowire.BytesType), uint64(point))
	dst = protowire.AppendVarint(protowire.AppendTag(dst, 1, protowire.VarintType), uint64(seconds))
	return protowire.AppendFixed64(protowire.AppendTag(dst, 2, protowire.Fixed64Type), math.Float64bits(value))
}

// appendValue writes a value as carbon's relay does: ten decimals at most, without zeros at the end.
func appendValue(dst []byte, value float64) []byte {
	switch {
	case math.IsInf(value, 1):
		return append(dst, "inf"...)
	case math.IsInf(value, -1):
		return append(dst, "-inf"...)
	case value == math.Trunc(value) && math.Abs(value) < 1<<53:
		return strconv.AppendInt(dst, int64(value), 10)
	}
	dst = strconv.AppendFloat(dst, value, 'f', 10, 64)
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
	}
	if dst[len(dst)-1] == '.' {
		dst = dst[:len(dst)-1]
	}
	return dst
}
