package member

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/klauspost/compress/s2"
)

// Use is what a member does with a point that it gets from another one.
type Use uint8

// The bits of a Use.
const (
	// Store keeps the point.
	Store Use = 1 << iota
	// Aggregate adds the point to the outputs of aggregation rules that the member computes.
	Aggregate

	useBits = 2
	allUses = Store | Aggregate
)

// A batch is, after a byte for the version and one of flags, perhaps compressed: for each point the number of its name
// in this batch and its use, the name itself if the number is new, the time since the point before, and the value.
const (
	batchVersion = 1
	headerBytes  = 2

	flagCompressed = 1
	flagDelayed    = 2
	knownFlags     = flagCompressed | flagDelayed

	// maxBody bounds the points of a batch before compression, maxName a name in it.
	maxBody = 1 << 20
	maxName = 64 << 10
	// compressFrom is the size from which compression is tried.
	compressFrom = 512
)

// point is a point on its way to another member.
type point struct {
	name  string
	milli int64
	value float64
	use   Use
}

// encoder makes batches. Its buffers are used again.
type encoder struct {
	numbers map[string]uint64
	body    []byte
	out     []byte
}

// encode makes a batch of as many points as fit, and returns how many these are. The batch is valid until the next
// call.
func (e *encoder) encode(points []point) (batch []byte, n int) {
	if e.numbers == nil {
		e.numbers = map[string]uint64{}
	}
	clear(e.numbers)
	e.body = e.body[:0]
	var last int64
	for n = range points {
		p := &points[n]
		number, known := e.numbers[p.name]
		if !known {
			number = uint64(len(e.numbers))
		}
		if n > 0 && len(e.body)+len(p.name)+5*binary.MaxVarintLen64 > maxBody {
			return e.finish(), n
		}
		e.body = binary.AppendUvarint(e.body, number<<useBits|uint64(p.use))
		if !known {
			e.numbers[p.name] = number
			e.body = binary.AppendUvarint(e.body, uint64(len(p.name)))
			e.body = append(e.body, p.name...)
		}
		e.body = binary.AppendVarint(e.body, p.milli-last)
		e.body = binary.LittleEndian.AppendUint64(e.body, math.Float64bits(p.value))
		last = p.milli
	}
	return e.finish(), len(points)
}

func (e *encoder) finish() []byte {
	if len(e.body) >= compressFrom {
		if most := headerBytes + s2.MaxEncodedLen(len(e.body)); cap(e.out) < most {
			e.out = make([]byte, most)
		}
		packed := s2.Encode(e.out[headerBytes:cap(e.out)], e.body)
		if len(packed) < len(e.body) {
			e.out = e.out[:headerBytes+len(packed)]
			e.out[0], e.out[1] = batchVersion, flagCompressed
			return e.out
		}
	}
	e.out = append(append(e.out[:0], batchVersion, 0), e.body...)
	return e.out
}

// delay marks a batch as one that has waited on disk.
func delay(batch []byte) { batch[1] |= flagDelayed }

// errShort is the error of a batch that ends within a point.
var errShort = errors.New("it ends within a point")

// Decode calls f with each point of a batch. name is valid until f returns. The intervals of aggregates that points of
// a delayed batch belong to have ended, or another member has computed them: their use is to be stored only, and points
// that are not to be stored are left out.
func Decode(batch []byte, f func(name []byte, use Use, unixMilli int64, value float64) error) error {
	if len(batch) < headerBytes {
		return fmt.Errorf("read a batch of points: it has %d bytes", len(batch))
	}
	if batch[0] != batchVersion {
		return fmt.Errorf("read a batch of points: it has version %d, and this member knows version %d: upgrade it",
			batch[0], batchVersion)
	}
	flags, body := batch[1], batch[headerBytes:]
	if flags&^knownFlags != 0 {
		return fmt.Errorf("read a batch of points: unknown flags %#x", flags)
	}
	if flags&flagCompressed != 0 {
		size, err := s2.DecodedLen(body)
		if err != nil {
			return fmt.Errorf("read a batch of points: %w", err)
		}
		if size > maxBody+maxName {
			return fmt.Errorf("read a batch of points: it has %d bytes, more than %d", size, maxBody+maxName)
		}
		if body, err = s2.Decode(nil, body); err != nil {
			return fmt.Errorf("read a batch of points: %w", err)
		}
	}
	uses := allUses
	if flags&flagDelayed != 0 {
		uses = Store
	}
	if err := decodeBody(body, uses, f); err != nil {
		return fmt.Errorf("read a batch of points: %w", err)
	}
	return nil
}

func decodeBody(body []byte, uses Use, f func(name []byte, use Use, unixMilli int64, value float64) error) error {
	var names [][]byte
	var milli int64
	for len(body) > 0 {
		head, n := binary.Uvarint(body)
		if n <= 0 {
			return errShort
		}
		body = body[n:]
		number, use := head>>useBits, Use(head)&allUses
		switch {
		case use == 0:
			return errors.New("a point has no use")
		case number > uint64(len(names)):
			return fmt.Errorf("a point has the name number %d of %d", number, len(names))
		case number == uint64(len(names)):
			size, n := binary.Uvarint(body)
			if n <= 0 || size == 0 || size > maxName || size > uint64(len(body)-n) {
				return errors.New("a name has no bytes, or too many")
			}
			names = append(names, body[n:n+int(size)])
			body = body[n+int(size):]
		}
		since, n := binary.Varint(body)
		if n <= 0 || len(body)-n < 8 {
			return errShort
		}
		milli += since
		value := math.Float64frombits(binary.LittleEndian.Uint64(body[n:]))
		body = body[n+8:]
		if use &= uses; use == 0 {
			continue
		}
		if err := f(names[number], use, milli, value); err != nil {
			return err
		}
	}
	return nil
}
