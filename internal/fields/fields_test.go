package fields

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"
)

// encode writes one of each kind of field.
func encode(n uint64, i int64, text string) []byte {
	b := binary.AppendUvarint(nil, n)
	b = binary.AppendVarint(b, i)
	b = AppendBytes(b, text)
	b = AppendBytes(b, []byte(text))
	b = AppendBool(b, true)
	b = append(b, 7)
	return binary.BigEndian.AppendUint64(b, n)
}

func TestRoundTrip(t *testing.T) {
	for _, c := range []struct {
		n    uint64
		i    int64
		text string
	}{{0, 0, ""}, {1, -1, "a"}, {math.MaxUint64, math.MinInt64, "two words"}, {300, math.MaxInt64, string(make([]byte, 200))}} {
		b := encode(c.n, c.i, c.text)
		r := NewReader(append(b, "rest"...))
		if n, i, text, raw := r.Uint(), r.Int(), r.Text(), r.Bytes(); n != c.n || i != c.i || text != c.text || string(raw) != c.text {
			t.Errorf("read %d, %d, %q and %q, want %d, %d and %q twice", n, i, text, raw, c.n, c.i, c.text)
		}
		if ok, one, fixed := r.Bool(), r.Byte(), r.Fixed64(); !ok || one != 7 || fixed != c.n {
			t.Errorf("read %v, %d and %d, want true, 7 and %d", ok, one, fixed, c.n)
		}
		if r.Err() != nil || string(r.Rest) != "rest" {
			t.Errorf("error %v, rest %q", r.Err(), r.Rest)
		}
	}
}

// TestTruncated cuts a record at each byte: the reader gives an error, and only zero values behind the cut.
func TestTruncated(t *testing.T) {
	whole := encode(300, -300, "text")
	for size := range whole {
		r := NewReader(whole[:size])
		r.Uint()
		r.Int()
		r.Text()
		r.Bytes()
		r.Bool()
		r.Byte()
		r.Fixed64()
		if !errors.Is(r.Err(), ErrTruncated) || r.Rest != nil {
			t.Errorf("%d bytes of %d: error %v, rest %q", size, len(whole), r.Err(), r.Rest)
		}
		if r.Uint() != 0 || r.Int() != 0 || r.Text() != "" || r.Bytes() != nil && len(r.Bytes()) != 0 || r.Bool() || r.Count() != 0 {
			t.Errorf("%d bytes of %d: a field after the cut is not empty", size, len(whole))
		}
	}
}

func TestCountIsBounded(t *testing.T) {
	r := NewReader(binary.AppendUvarint(nil, 1<<40))
	if n := r.Count(); n != 0 || r.Err() == nil {
		t.Errorf("count %d, error %v", n, r.Err())
	}
}

func FuzzReader(f *testing.F) {
	f.Add(encode(300, -300, "text"))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.Clone(b))
		for before := len(r.Rest) + 1; len(r.Rest) > 0 && len(r.Rest) < before; {
			before = len(r.Rest)
			switch r.Byte() % 6 {
			case 0:
				r.Uint()
			case 1:
				r.Int()
			case 2:
				r.Text()
			case 3:
				r.Count()
			case 4:
				r.Bool()
			case 5:
				r.Fixed64()
			}
		}
		if len(r.Rest) > 0 {
			t.Errorf("%d bytes are left", len(r.Rest))
		}
	})
}
