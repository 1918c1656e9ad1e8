package filter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// The frames between the backend and a worker: a length of 4 bytes, a kind and a body. Both ends are the same binary,
// so the frames have no versions. DESIGN.md describes the exchange.
const (
	frameHello    byte = 'h' // worker: ready
	frameDefine   byte = 'd' // backend: a definition, before the first question about it
	frameForget   byte = 'f' // backend: forget all definitions
	frameQuestion byte = 'q' // backend; a number is first, which the following three repeat
	frameAnswer   byte = 'a' // worker: to the oldest question without an answer
	frameLook     byte = 'l' // worker: it needs another event before it can answer
	frameEvents   byte = 'e' // backend: the requested events; later questions may come before it
)

// maxFrame bounds a frame, in bytes. An event is far smaller, and a larger look-up is refused.
const maxFrame = 64 << 20

var errFrame = errors.New("a frame is malformed")

// frame begins a frame in b; endFrame sets its length.
func frame(b []byte, kind byte) []byte { return append(b, 0, 0, 0, 0, kind) }

// numbered begins a frame that belongs to a question.
func numbered(b []byte, kind byte, number uint64) []byte {
	return binary.AppendUvarint(frame(b, kind), number)
}

// isFor cuts the number from the body of such a frame, and reports whether it is that of the question.
func isFor(body []byte, number uint64) ([]byte, bool) {
	r := readFields(body)
	got := r.Uint()
	return r.Rest, r.Err() == nil && got == number
}

func endFrame(b []byte, begin int) []byte {
	binary.LittleEndian.PutUint32(b[begin:], uint32(len(b)-begin-4))
	return b
}

// readFrame reads a frame into b, or into a larger slice.
func readFrame(r io.Reader, b []byte) (kind byte, body, buffer []byte, err error) {
	if cap(b) < 4 {
		b = make([]byte, 4096)
	}
	if _, err := io.ReadFull(r, b[:4]); err != nil {
		return 0, nil, b, err
	}
	n := int(binary.LittleEndian.Uint32(b[:4]))
	if n < 1 || n > maxFrame {
		return 0, nil, b, fmt.Errorf("%w: %d bytes", errFrame, n)
	}
	if cap(b) < n {
		b = make([]byte, n)
	}
	if _, err := io.ReadFull(r, b[:n]); err != nil {
		return 0, nil, b, err
	}
	return b[0], b[1:n], b, nil
}

// fieldReader reads the body of a frame.
type fieldReader struct{ fields.Reader }

func readFields(body []byte) *fieldReader { return &fieldReader{fields.NewReader(body)} }

// Err is errFrame if a field was cut short.
func (r *fieldReader) Err() error {
	if errors.Is(r.Reader.Err(), fields.ErrTruncated) {
		return errFrame
	}
	return r.Reader.Err()
}

// An event is its protobuf message followed by lapwing's additions, for which the message has no fields.

func appendEvent(b []byte, ev *resource.Event) []byte {
	b = appendMessage(b, ev.AppendProto)
	if ev.Entity == nil {
		return append(b, 0)
	}
	return appendOwn(append(b, 1), ev.Entity.DependsOn, ev.Entity.TTL)
}

func (r *fieldReader) event() *resource.Event {
	ev := &resource.Event{}
	if err := ev.UnmarshalProto(r.Bytes()); err != nil && r.Err() == nil {
		r.Fail(err)
	}
	if r.Bool() {
		if ev.Entity == nil {
			ev.Entity = &resource.Entity{}
		}
		ev.Entity.DependsOn, ev.Entity.TTL = r.own()
	}
	return ev
}

func appendEntity(b []byte, cfg *resource.EntityConfig, system *resource.System) []byte {
	b = appendOwn(appendMessage(b, cfg.AppendProto), cfg.DependsOn, cfg.TTL)
	if system == nil {
		return append(b, 0)
	}
	return appendMessage(append(b, 1), system.AppendProto)
}

func (r *fieldReader) entity() (*resource.EntityConfig, *resource.System) {
	cfg := &resource.EntityConfig{}
	if err := cfg.UnmarshalProto(r.Bytes()); err != nil && r.Err() == nil {
		r.Fail(err)
	}
	cfg.DependsOn, cfg.TTL = r.own()
	if !r.Bool() {
		return cfg, nil
	}
	system := &resource.System{}
	if err := system.UnmarshalProto(r.Bytes()); err != nil && r.Err() == nil {
		r.Fail(err)
	}
	return cfg, system
}

// appendMessage appends a message with its length in four bytes, which is known only afterwards.
func appendMessage(b []byte, message func([]byte) []byte) []byte {
	const width = 5
	at := len(b)
	b = message(append(b, 0x80, 0x80, 0x80, 0x80, 0))
	for n, i := len(b)-at-width, 0; i < width; i++ { // a varint of a fixed width
		b[at+i] = byte(n>>(7*i)) & 0x7f
		if i < width-1 {
			b[at+i] |= 0x80
		}
	}
	return b
}

func appendOwn(b []byte, dependsOn []string, ttl int64) []byte {
	b = binary.AppendUvarint(b, uint64(len(dependsOn)))
	for _, d := range dependsOn {
		b = fields.AppendBytes(b, d)
	}
	return binary.AppendVarint(b, ttl)
}

func (r *fieldReader) own() (dependsOn []string, ttl int64) {
	for range r.Count() {
		dependsOn = append(dependsOn, r.Text())
	}
	return dependsOn, r.Int()
}
