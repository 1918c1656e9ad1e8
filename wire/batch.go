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

// DecodeEvents calls f for each item of the payload of a TypeEvents message, in order, until f returns an error. The
// items' bytes are part of payload. Items of an unknown kind are skipped, and keep their number.
func DecodeEvents(payload []byte, f func(seq uint64, it Item) error) error {
	seq, n := binary.Uvarint(payload)
	if n <= 0 {
		return fmt.Errorf("decode first number of events: %w", errTruncated)
	}
	for b := payload[n:]; len(b) > 0; seq++ {
		size, n := binary.Uvarint(b)
		if n <= 0 || size >= uint64(len(b)-n) { // one more byte for the kind
			return fmt.Errorf("decode event %d: %w", seq, errTruncated)
		}
		kind, event := b[n], b[n+1:n+1+int(size)]
		b = b[n+1+int(size):]
		if kind > kindKeepalive {
			continue
		}
		if err := f(seq, Item{Keepalive: kind == kindKeepalive, Event: event}); err != nil {
			return err
		}
	}
	return nil
}

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
