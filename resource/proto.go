package resource

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// This file has the functions that the generated code in pb.gen.go calls.

// closeMessage writes the length of the sub-message b[start:] into the byte reserved before start. It moves a longer
// message to make room: that is cheaper than computing the size of every message first.
func closeMessage(b []byte, start int) []byte {
	n := len(b) - start
	if n < 0x80 {
		b[start-1] = byte(n)
		return b
	}
	extra := protowire.SizeVarint(uint64(n)) - 1
	b = append(b, make([]byte, extra)...)
	copy(b[start+extra:], b[start:start+n])
	binary.PutUvarint(b[start-1:], uint64(n))
	return b
}

// sortedKeys appends m's keys in order to keys, which should be empty. Equal messages then have equal encodings.
func sortedKeys[V any](keys []string, m map[string]V) []string {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func appendStringMap(b []byte, num protowire.Number, m map[string]string) []byte {
	if len(m) == 0 {
		return b
	}
	var room [16]string
	for _, key := range sortedKeys(room[:0], m) {
		value := m[key]
		b = protowire.AppendTag(b, num, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(2+protowire.SizeBytes(len(key))+protowire.SizeBytes(len(value))))
		b = protowire.AppendString(append(b, 0x0a), key)
		b = protowire.AppendString(append(b, 0x12), value)
	}
	return b
}

// mapEntry splits an entry of a map with string keys into its key and its encoded value.
func mapEntry(b []byte) (key string, value []byte, err error) {
	var k []byte
	for len(b) > 0 {
		tag, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return "", nil, fieldError("map entry", 0, n, nil)
		}
		b = b[n:]
		switch tag {
		case 1<<3 | 2:
			k, n = protowire.ConsumeBytes(b)
		case 2<<3 | 2:
			value, n = protowire.ConsumeBytes(b)
		default:
			n = skipField(tag, b)
		}
		if n < 0 {
			return "", nil, fieldError("map entry", tag, n, nil)
		}
		b = b[n:]
	}
	return string(k), value, nil
}

func mergeStringEntry(m *map[string]string, b []byte) error {
	key, value, err := mapEntry(b)
	if err != nil {
		return err
	}
	if *m == nil {
		*m = make(map[string]string)
	}
	(*m)[key] = string(value)
	return nil
}

// repeats counts the elements of a list whose first value is at the start of b, so that the list is allocated once. It
// does not see elements after other fields.
func repeats(tag uint64, b []byte) int {
	for count := 1; ; count++ {
		n := protowire.ConsumeFieldValue(protowire.Number(tag>>3), protowire.BytesType, b)
		if n < 0 {
			return count
		}
		b = b[n:]
		next, n := protowire.ConsumeVarint(b)
		if n < 0 || next != tag {
			return count
		}
		b = b[n:]
	}
}

// errFieldNumber is for a field numbered 0, or above protobuf's limit.
var errFieldNumber = errors.New("invalid field number")

// codeFieldNumber encodes errFieldNumber among protowire's negative lengths.
const codeFieldNumber = -1000

// skipField returns the length of the value of an unknown field, or a negative error code.
func skipField(tag uint64, b []byte) int {
	num := tag >> 3
	if num < 1 || num > uint64(protowire.MaxValidNumber) {
		return codeFieldNumber
	}
	return protowire.ConsumeFieldValue(protowire.Number(num), protowire.Type(tag&7), b)
}

// fieldError says where decoding failed: with a protowire error code if n is negative, else with err.
func fieldError(message string, tag uint64, n int, err error) error {
	switch {
	case n == codeFieldNumber:
		err = errFieldNumber
	case n < 0:
		err = protowire.ParseError(n)
	}
	if tag == 0 {
		return fmt.Errorf("decode %s: %w", message, err)
	}
	return fmt.Errorf("decode %s field %d: %w", message, tag>>3, err)
}
