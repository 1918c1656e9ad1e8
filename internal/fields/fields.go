// Package fields reads and writes records that are made of varints and of texts with their length in front.
//
// The event log, the state, the handlers' store and the frames to expression workers use it. An Append function has its counterpart
// in Reader. A Reader never panics and never reads past the end: after the first field that is cut short all further ones are empty,
// so that a caller checks Err once, at the end. Versions, checksums and the meaning of fields are the caller's.
package fields

import (
	"encoding/binary"
	"errors"
)

// ErrTruncated is the error of a record that ends within a field.
var ErrTruncated = errors.New("record is truncated")

// Reader reads a record field by field. Rest is what has not been read; nil after an error.
type Reader struct {
	Rest []byte
	err  error
}

// NewReader returns a Reader of a record. The bytes that it returns are parts of the record, not copies.
func NewReader(record []byte) Reader { return Reader{Rest: record} }

// Err is ErrTruncated if a field was cut short, or the first error passed to Fail.
func (r *Reader) Err() error { return r.err }

// Fail ends the reading with an error, unless there was one before.
func (r *Reader) Fail(err error) {
	r.Rest = nil
	if r.err == nil {
		r.err = err
	}
}

func (r *Reader) fail() { r.Fail(ErrTruncated) }

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if len(r.Rest) == 0 {
		r.fail()
		return 0
	}
	c := r.Rest[0]
	r.Rest = r.Rest[1:]
	return c
}

// Bool reads one byte; any but 0 is true.
func (r *Reader) Bool() bool { return r.Byte() != 0 }

// Uint reads what binary.AppendUvarint wrote.
func (r *Reader) Uint() uint64 {
	v, n := binary.Uvarint(r.Rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Int reads what binary.AppendVarint wrote.
func (r *Reader) Int() int64 {
	v, n := binary.Varint(r.Rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Fixed64 reads eight bytes, the highest first.
func (r *Reader) Fixed64() uint64 {
	if len(r.Rest) < 8 {
		r.fail()
		return 0
	}
	v := binary.BigEndian.Uint64(r.Rest)
	r.Rest = r.Rest[8:]
	return v
}

// Count reads the number of items that follow. An item has one byte at least, so a number above len(Rest) is an error; a caller may
// therefore allocate room for so many.
func (r *Reader) Count() int {
	n := r.Uint()
	if n > uint64(len(r.Rest)) {
		r.fail()
		return 0
	}
	return int(n)
}

// Bytes reads what AppendBytes wrote.
func (r *Reader) Bytes() []byte {
	n := r.Count()
	v := r.Rest[:n:n]
	r.Rest = r.Rest[n:]
	return v
}

// Text reads what AppendBytes wrote, as a copy.
func (r *Reader) Text() string { return string(r.Bytes()) }

// AppendBytes appends a text behind its length.
func AppendBytes[T ~string | ~[]byte](b []byte, v T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// AppendBool appends one byte, 1 or 0.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}
