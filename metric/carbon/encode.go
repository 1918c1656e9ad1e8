package carbon

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Point is one point to send.
type Point struct {
	Name []byte
	// Time is Unix seconds.
	Time  int64
	Value float64
}

const (
	// MaxFramePoints bounds the points of a frame that is sent; carbon sends no more either.
	MaxFramePoints = 500
	// maxFrameSent bounds a frame that is sent, in bytes, except for one with a single point. carbon closes a connection
	// with a frame above 1 MiB.
	maxFrameSent = 512 << 10
)

// AppendLine appends a point as a line. The value has as few digits as give the same float64 again.
func AppendLine(dst []byte, p Point) []byte {
	dst = append(dst, p.Name...)
	dst = append(dst, ' ')
	format := byte('f')
	if a := math.Abs(p.Value); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	dst = strconv.AppendFloat(dst, p.Value, format, -1, 64)
	return appendTime(dst, p.Time)
}

// AppendRoundedLine appends a point as a line as carbon's relay writes it: the value has at most ten decimals.
func AppendRoundedLine(dst []byte, p Point) []byte {
	dst = append(dst, p.Name...)
	dst = append(dst, ' ')
	begin := len(dst)
	dst = strconv.AppendFloat(dst, p.Value, 'f', 10, 64)
	if bytes.IndexByte(dst[begin:], '.') >= 0 {
		dst = bytes.TrimRight(dst, "0")
		dst = bytes.TrimSuffix(dst, []byte("."))
	}
	return appendTime(dst, p.Time)
}

func appendTime(dst []byte, time int64) []byte {
	dst = append(dst, ' ')
	dst = strconv.AppendInt(dst, time, 10)
	return append(dst, '\n')
}

// AppendPickle appends points as frames of pickle protocol 2, which all versions of carbon read. A frame has at most
// MaxFramePoints. Bytes of a name that are no UTF-8 become _, because Python 3 cannot read them and would lose the frame.
func AppendPickle(dst []byte, points []Point) []byte {
	for len(points) > 0 {
		begin := len(dst)
		dst = append(dst, 0, 0, 0, 0, opProto, 2, opEmptyList, opMark)
		n := 0
		for n < len(points) && (n == 0 || n < MaxFramePoints && len(dst)-begin < maxFrameSent) {
			dst = appendPickled(dst, points[n])
			n++
		}
		dst = append(dst, opAppends, opStop)
		binary.BigEndian.PutUint32(dst[begin:], uint32(len(dst)-begin-4))
		points = points[n:]
	}
	return dst
}

func appendPickled(dst []byte, p Point) []byte {
	switch {
	case len(p.Name) < 256 && ascii(p.Name):
		// A str in both Pythons, and the shortest form.
		dst = append(dst, opShortBinString, byte(len(p.Name)))
		dst = append(dst, p.Name...)
	default:
		name := p.Name
		if !utf8.Valid(name) {
			name = bytes.ToValidUTF8(name, []byte{'_'})
		}
		dst = append(dst, opBinUnicode)
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(name)))
		dst = append(dst, name...)
	}
	if p.Time == int64(int32(p.Time)) {
		dst = append(dst, opBinInt)
		dst = binary.LittleEndian.AppendUint32(dst, uint32(p.Time))
	} else {
		dst = append(dst, opLong1, 8)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(p.Time))
	}
	dst = append(dst, opBinFloat)
	dst = binary.BigEndian.AppendUint64(dst, math.Float64bits(p.Value))
	return append(dst, opTuple2, opTuple2)
}

func ascii(b []byte) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// AppendProtobuf appends points as frames of carbon's protobuf, at most MaxFramePoints each. Points of one name that
// follow each other share it. Times outside 0 to 2^32-1 cannot be written, and such points are left out.
func AppendProtobuf(dst []byte, points []Point) []byte {
	for len(points) > 0 {
		begin := len(dst)
		dst = append(dst, 0, 0, 0, 0)
		n := 0
		for n < len(points) && (n == 0 || n < MaxFramePoints && len(dst)-begin < maxFrameSent) {
			same := n + 1
			for same < len(points) && same < MaxFramePoints && bytes.Equal(points[same].Name, points[n].Name) {
				same++
			}
			dst = appendMetric(dst, points[n:same])
			n = same
		}
		if size := len(dst) - begin - 4; size == 0 {
			dst = dst[:begin]
		} else {
			binary.BigEndian.PutUint32(dst[begin:], uint32(size))
		}
		points = points[n:]
	}
	return dst
}

// appendMetric appends a Metric message with points of one name.
func appendMetric(dst []byte, points []Point) []byte {
	size, any := 0, false
	for _, p := range points {
		if uint64(p.Time) <= math.MaxUint32 {
			size += 2 + pointSize(p)
			any = true
		}
	}
	if !any {
		return dst
	}
	name := points[0].Name
	size += 1 + protowire.SizeBytes(len(name))
	dst = protowire.AppendTag(dst, payloadMetrics, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(size))
	dst = protowire.AppendTag(dst, metricName, protowire.BytesType)
	dst = protowire.AppendBytes(dst, name)
	for _, p := range points {
		if uint64(p.Time) > math.MaxUint32 {
			continue
		}
		dst = protowire.AppendTag(dst, metricPoints, protowire.BytesType)
		dst = append(dst, byte(pointSize(p)))
		dst = protowire.AppendTag(dst, pointTimestamp, protowire.VarintType)
		dst = protowire.AppendVarint(dst, uint64(p.Time))
		dst = protowire.AppendTag(dst, pointValue, protowire.Fixed64Type)
		dst = protowire.AppendFixed64(dst, math.Float64bits(p.Value))
	}
	return dst
}

// pointSize is the length of a Point message; it is below 128.
func pointSize(p Point) int { return 1 + protowire.SizeVarint(uint64(p.Time)) + 1 + 8 }
