// Package pickle writes values as Python pickles of protocol 2, which Python 2.3 and all later versions read. The HTTP
// API of metric/graphite answers format=pickle with it.
//
// It writes plain data only: none, booleans, numbers, texts, lists, tuples and dictionaries. A reader that refuses
// classes can load all of it.
package pickle

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// Tuple is written as a tuple; []any is written as a list.
type Tuple []any

// Dict is a dictionary with text keys, written in its order.
type Dict []Item

// Item is a key of a Dict and its value.
type Item struct {
	Key   string
	Value any
}

// The opcodes that Append uses.
const (
	opProto      = 0x80
	opStop       = '.'
	opMark       = '('
	opNone       = 'N'
	opTrue       = 0x88
	opFalse      = 0x89
	opInt1       = 'K' // one byte, unsigned
	opInt2       = 'M' // two bytes, little endian, unsigned
	opInt4       = 'J' // four bytes, little endian, signed
	opLong1      = 0x8a
	opFloat      = 'G' // eight bytes, big endian
	opText       = 'X' // four bytes of length, little endian
	opEmptyList  = ']'
	opAppends    = 'e'
	opEmptyDict  = '}'
	opSetItems   = 'u'
	opEmptyTuple = ')'
	opTuple1     = 0x85
	opTuple2     = 0x86
	opTuple3     = 0x87
	opTuple      = 't'
)

// maxDepth bounds nested values, so that a value that contains itself is an error.
const maxDepth = 64

// Append appends the pickle of v to b. v is nil, bool, int, int64, float64, string, []float64, []any, Tuple or Dict.
// NaN is written as None among the values of a []float64, and as a number elsewhere. Bytes of a text that are no UTF-8
// become U+FFFD.
func Append(b []byte, v any) ([]byte, error) {
	b = append(b, opProto, 2)
	b, err := appendValue(b, v, 0)
	if err != nil {
		return nil, err
	}
	return append(b, opStop), nil
}

func appendValue(b []byte, v any, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("pickle: values are nested more than %d deep", maxDepth)
	}
	switch v := v.(type) {
	case nil:
		return append(b, opNone), nil
	case bool:
		if v {
			return append(b, opTrue), nil
		}
		return append(b, opFalse), nil
	case int:
		return appendInt(b, int64(v)), nil
	case int64:
		return appendInt(b, v), nil
	case float64:
		return appendFloat(b, v), nil
	case string:
		return appendText(b, v)
	case []float64:
		return appendFloats(b, v), nil
	case []any:
		b = append(b, opEmptyList)
		if len(v) == 0 {
			return b, nil
		}
		b, err := appendValues(append(b, opMark), v, depth)
		return append(b, opAppends), err
	case Tuple:
		return appendTuple(b, v, depth)
	case Dict:
		return appendDict(b, v, depth)
	}
	return nil, fmt.Errorf("pickle: cannot write a %T", v)
}

func appendValues(b []byte, values []any, depth int) ([]byte, error) {
	var err error
	for _, v := range values {
		if b, err = appendValue(b, v, depth+1); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func appendInt(b []byte, n int64) []byte {
	switch {
	case n >= 0 && n <= math.MaxUint8:
		return append(b, opInt1, byte(n))
	case n >= 0 && n <= math.MaxUint16:
		return binary.LittleEndian.AppendUint16(append(b, opInt2), uint16(n))
	case n >= math.MinInt32 && n <= math.MaxInt32:
		return binary.LittleEndian.AppendUint32(append(b, opInt4), uint32(int32(n)))
	}
	return binary.LittleEndian.AppendUint64(append(b, opLong1, 8), uint64(n))
}

func appendFloat(b []byte, f float64) []byte {
	return binary.BigEndian.AppendUint64(append(b, opFloat), math.Float64bits(f))
}

func appendFloats(b []byte, values []float64) []byte {
	b = append(b, opEmptyList)
	if len(values) == 0 {
		return b
	}
	b = append(b, opMark)
	for _, v := range values {
		if math.IsNaN(v) {
			b = append(b, opNone)
		} else {
			b = appendFloat(b, v)
		}
	}
	return append(b, opAppends)
}

func appendText(b []byte, s string) ([]byte, error) {
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) > math.MaxInt32 {
		return nil, fmt.Errorf("pickle: a text of %d bytes is too long", len(s))
	}
	return append(binary.LittleEndian.AppendUint32(append(b, opText), uint32(len(s))), s...), nil
}

func appendTuple(b []byte, v Tuple, depth int) ([]byte, error) {
	end := byte(opTuple)
	switch len(v) {
	case 0:
		return append(b, opEmptyTuple), nil
	case 1:
		end = opTuple1
	case 2:
		end = opTuple2
	case 3:
		end = opTuple3
	default:
		b = append(b, opMark)
	}
	b, err := appendValues(b, v, depth)
	return append(b, end), err
}

func appendDict(b []byte, v Dict, depth int) ([]byte, error) {
	b = append(b, opEmptyDict)
	if len(v) == 0 {
		return b, nil
	}
	b = append(b, opMark)
	var err error
	for _, item := range v {
		if b, err = appendText(b, item.Key); err != nil {
			return nil, err
		}
		if b, err = appendValue(b, item.Value, depth+1); err != nil {
			return nil, err
		}
	}
	return append(b, opSetItems), nil
}
