package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Item is one event of a batch.
type Item struct {
	Keepalive bool
	Event     []byte // protobuf encoding of a resource.Event
}

// Kinds of items in a batch.
const (
	kindEvent     = 0
	kindKeepalive = 1
)

var (
	errTruncated = errors.New("unexpected end")
	errTrailing  = errors.New("bytes after the end")
)

// AppendEvents appends a whole TypeEvents message, type included. The items are numbered first, first+1 and so on:
// an agent numbers its events upwards within an epoch (a batch ends where it had to drop one), and holds each until a
// TypeAck covers it.
//
// The payload is the first number as uvarint, then for each item the event's length as uvarint, a byte for its kind
// (0 event, 1 keepalive) and the event.
func AppendEvents(dst []byte, first uint64, items []Item) []byte {
	dst = appendType(dst, TypeEvents)
	dst = binary.AppendUvarint(dst, first)
	for _, it := range items {
		dst = binary.AppendUvarint(dst, uint64(len(it.Event)))
		kind := byte(kindEvent)
		if it.Keepalive {
			kind = kindKeepalive
		}
		dst = append(append(dst, kind), it.Event...)
	}
	return dst
}

// Events reads the payload of a TypeEvents message item by item:
//
//	for events := ReadEvents(payload); events.Next(); {
type Events struct {
	// Seq and Item are what Next has read. The item's bytes are part of the payload.
	Seq  uint64
	Item Item

	next uint64 // the number of the next item
	rest []byte
	err  error
}

// ReadEvents begins with the first item.
func ReadEvents(payload []byte) Events {
	first, n := binary.Uvarint(payload)
	if n <= 0 {
		return Events{err: fmt.Errorf("decode first number of events: %w", errTruncated)}
	}
	return Events{next: first, rest: payload[n:]}
}

// Next reads the next item. It is false at the end, and where the payload is broken: then Err has the reason. Items
// of a kind that is not known are left out, and keep their number.
func (e *Events) Next() bool {
	for e.err == nil && len(e.rest) > 0 {
		e.Seq = e.next
		size, n := binary.Uvarint(e.rest)
		if n <= 0 || size >= uint64(len(e.rest)-n) { // one more byte for the kind
			e.err = fmt.Errorf("decode event %d: %w", e.Seq, errTruncated)
			return false
		}
		kind, event := e.rest[n], e.rest[n+1:n+1+int(size)]
		e.rest = e.rest[n+1+int(size):]
		e.next++
		if kind <= kindKeepalive {
			e.Item = Item{Keepalive: kind == kindKeepalive, Event: event}
			return true
		}
	}
	return false
}

// Err is why Next could not go on; nil at the end.
func (e *Events) Err() error { return e.err }

// AppendAck appends a whole TypeAck message, type included: every event numbered seq or lower is durable. Its payload
// is seq as uvarint.
func AppendAck(dst []byte, seq uint64) []byte {
	return binary.AppendUvarint(appendType(dst, TypeAck), seq)
}

// DecodeAck returns the number in the payload of a TypeAck message.
func DecodeAck(payload []byte) (uint64, error) {
	seq, n := binary.Uvarint(payload)
	if n <= 0 {
		return 0, fmt.Errorf("decode acknowledgement: %w", errTruncated)
	}
	if n != len(payload) {
		return 0, fmt.Errorf("decode acknowledgement: %w", errTrailing)
	}
	return seq, nil
}
