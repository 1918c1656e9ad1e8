package resource

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// This file reads single fields of encoded resources without decoding the rest. The backend keeps an event in the
// encoding in which it came and needs only a few of its fields. Nothing here allocates; returned bytes are part of the
// argument.
//
// The result is always what UnmarshalProto would decode. Protobuf allows a sub-message in several pieces, which
// decoders merge. No agent sends that, and here it is an error: otherwise a sender could show one name to a view and
// another to the decoder.

var errRepeated = errors.New("sub-message given twice")

// EventView has the fields of an Event that PeekEvent reads.
type EventView struct {
	Timestamp int64
	Sequence  int64
	ID        []byte
	Pipelines bool // has references to pipelines
	// The encoded sub-messages; nil if absent.
	Entity, Check, Metrics []byte

	meta   []byte
	broken error // of the first invalid reference to a pipeline
}

// CheckView has the fields of a Check that PeekCheck reads.
type CheckView struct {
	Name, Namespace, ProxyEntityName              []byte
	Status                                        uint32
	Executed, Issued, TTL, MaxOutputSize          int64
	Interval, Timeout, LowFlap, HighFlap          uint32
	Handlers, MetricHandlers, Pipelines, Silenced int // how many
	RoundRobin, IsSilenced                        bool
	OutputLen                                     int

	rules ruled
}

// ruled has the fields of a check that only validation needs.
type ruled struct {
	publish                        bool
	cron, format, requests, subdue []byte
	subdues                        int
	lastOK, occurrences, watermark int64
	duration                       uint64 // the bits of a float64
	broken                         error  // of the first member of a list that breaks a rule
}

// EntityView has the fields of an Entity that PeekEntity reads.
type EntityView struct {
	Name, Namespace, Class []byte
	LastSeen               int64
}

// PeekEvent reads the protobuf encoding of an Event. To validate it, validate the views.
func PeekEvent(b []byte) (EventView, error) {
	var view EventView
	for len(b) > 0 {
		f, n, err := nextField("Event", b)
		if err != nil {
			return EventView{}, err
		}
		b = b[n:]
		switch f.tag {
		case 1<<3 | 0:
			view.Timestamp = int64(f.x)
		case 2<<3 | 2:
			err = setOnce(&view.Entity, f)
		case 3<<3 | 2:
			err = setOnce(&view.Check, f)
		case 4<<3 | 2:
			err = setOnce(&view.Metrics, f)
		case 5<<3 | 2:
			err = setOnce(&view.meta, f)
		case 6<<3 | 2:
			view.ID = f.v
		case 7<<3 | 0:
			view.Sequence = int64(f.x)
		case 8<<3 | 2:
			view.Pipelines = true
			if view.broken == nil {
				view.broken = validateEncodedPipeline(f.v)
			}
		}
		if err != nil {
			return EventView{}, fieldError("Event", f.tag, 0, err)
		}
	}
	return view, nil
}

// PeekCheck reads the protobuf encoding of a Check.
func PeekCheck(b []byte) (CheckView, error) {
	var view CheckView
	var meta []byte
	for len(b) > 0 {
		f, n, err := nextField("Check", b)
		if err != nil {
			return CheckView{}, err
		}
		b = b[n:]
		switch f.tag {
		case 3<<3 | 2:
			view.Handlers++
		case 4<<3 | 0:
			view.HighFlap = uint32(f.x)
		case 5<<3 | 0:
			view.Interval = uint32(f.x)
		case 6<<3 | 0:
			view.LowFlap = uint32(f.x)
		case 9<<3 | 0:
			view.rules.publish = f.x != 0
		case 10<<3 | 2, 11<<3 | 2, 24<<3 | 2, 34<<3 | 2, 37<<3 | 2, 47<<3 | 2, 48<<3 | 2:
			view.rules.member(f)
		case 13<<3 | 2:
			view.ProxyEntityName = f.v
		case 16<<3 | 2:
			err = setOnce(&view.rules.subdue, f)
		case 17<<3 | 2:
			view.rules.cron = f.v
		case 18<<3 | 0:
			view.TTL = int64(f.x)
		case 19<<3 | 0:
			view.Timeout = uint32(f.x)
		case 20<<3 | 2:
			err = setOnce(&view.rules.requests, f)
		case 21<<3 | 0:
			view.RoundRobin = f.x != 0
		case 22<<3 | 1:
			view.rules.duration = f.x
		case 23<<3 | 0:
			view.Executed = int64(f.x)
		case 25<<3 | 0:
			view.Issued = int64(f.x)
		case 26<<3 | 2:
			view.OutputLen = len(f.v)
		case 28<<3 | 0:
			view.Status = uint32(f.x)
		case 30<<3 | 0:
			view.rules.lastOK = int64(f.x)
		case 31<<3 | 0:
			view.rules.occurrences = int64(f.x)
		case 32<<3 | 0:
			view.rules.watermark = int64(f.x)
		case 33<<3 | 2:
			view.Silenced++
		case 35<<3 | 2:
			view.rules.format = f.v
		case 36<<3 | 2:
			view.MetricHandlers++
		case 38<<3 | 2:
			err = setOnce(&meta, f)
		case 39<<3 | 0:
			view.MaxOutputSize = int64(f.x)
		case 42<<3 | 0:
			view.IsSilenced = f.x != 0
		case 46<<3 | 2:
			view.Pipelines++
		}
		if err != nil {
			return CheckView{}, fieldError("Check", f.tag, 0, err)
		}
	}
	var err error
	view.Name, view.Namespace, err = peekMeta(meta)
	if err != nil {
		return CheckView{}, err
	}
	return view, nil
}

// PeekEntity reads the protobuf encoding of an Entity.
func PeekEntity(b []byte) (EntityView, error) {
	var view EntityView
	var meta []byte
	for len(b) > 0 {
		f, n, err := nextField("Entity", b)
		if err != nil {
			return EntityView{}, err
		}
		b = b[n:]
		switch f.tag {
		case 1<<3 | 2:
			view.Class = f.v
		case 5<<3 | 0:
			view.LastSeen = int64(f.x)
		case 14<<3 | 2:
			err = setOnce(&meta, f)
		}
		if err != nil {
			return EntityView{}, fieldError("Entity", f.tag, 0, err)
		}
	}
	var err error
	view.Name, view.Namespace, err = peekMeta(meta)
	if err != nil {
		return EntityView{}, err
	}
	return view, nil
}

// AppendCheckSubscriptions appends the subscriptions of an encoded Check to dst.
func AppendCheckSubscriptions(dst [][]byte, check []byte) ([][]byte, error) {
	return appendStrings(dst, "Check", check, 11)
}

// AppendEntitySubscriptions appends the subscriptions of an encoded Entity to dst.
func AppendEntitySubscriptions(dst [][]byte, entity []byte) ([][]byte, error) {
	return appendStrings(dst, "Entity", entity, 4)
}

func appendStrings(dst [][]byte, message string, b []byte, number uint64) ([][]byte, error) {
	for len(b) > 0 {
		f, n, err := nextField(message, b)
		if err != nil {
			return nil, err
		}
		b = b[n:]
		if f.tag == number<<3|2 {
			dst = append(dst, f.v)
		}
	}
	return dst, nil
}

func peekMeta(b []byte) (name, namespace []byte, err error) {
	for len(b) > 0 {
		f, n, err := nextField("ObjectMeta", b)
		if err != nil {
			return nil, nil, err
		}
		b = b[n:]
		switch f.tag {
		case 1<<3 | 2:
			name = f.v
		case 2<<3 | 2:
			namespace = f.v
		}
	}
	return name, namespace, nil
}

// AppendEventWithoutEntity appends the fields of an encoded Event to dst, except the entity.
func AppendEventWithoutEntity(dst, event []byte) ([]byte, error) {
	for b := event; len(b) > 0; {
		f, n, err := nextField("Event", b)
		if err != nil {
			return nil, err
		}
		if f.tag>>3 != 2 {
			dst = append(dst, b[:n]...)
		}
		b = b[n:]
	}
	return dst, nil
}

// rawField is a field whose value is in x or v, depending on its wire type.
type rawField struct {
	tag uint64
	x   uint64
	v   []byte
}

// nextField returns the field at the start of b, and its length.
func nextField(message string, b []byte) (rawField, int, error) {
	var f rawField
	tag, n := protowire.ConsumeVarint(b)
	if n < 0 {
		return f, 0, fieldError(message, 0, n, nil)
	}
	f.tag = tag
	size := n
	switch b = b[n:]; protowire.Type(tag & 7) {
	case protowire.VarintType:
		f.x, n = protowire.ConsumeVarint(b)
	case protowire.BytesType:
		f.v, n = protowire.ConsumeBytes(b)
	case protowire.Fixed64Type:
		f.x, n = protowire.ConsumeFixed64(b)
	default:
		n = skipField(tag, b)
	}
	if num := tag >> 3; n >= 0 && (num < 1 || num > uint64(protowire.MaxValidNumber)) {
		n = codeFieldNumber
	}
	if n < 0 {
		return f, 0, fieldError(message, tag, n, nil)
	}
	return f, size + n, nil
}

// setOnce stores a sub-message that may come only once. An empty one is stored as not nil.
func setOnce(dst *[]byte, f rawField) error {
	if *dst != nil {
		return errRepeated
	}
	*dst = f.v
	return nil
}

// PeekSilenced returns the names of the silences in the protobuf encoding of an Event. Only the result is allocated.
func PeekSilenced(event []byte) []string {
	view, err := PeekEvent(event)
	if err != nil {
		return nil
	}
	var room [8][]byte // most events have fewer
	silenced, err := appendStrings(room[:0], "Check", view.Check, 33)
	if err != nil || len(silenced) == 0 {
		return nil
	}
	names := make([]string, len(silenced))
	for i, name := range silenced {
		names[i] = string(name)
	}
	return names
}

// PeekOutput returns the check output in the protobuf encoding of an Event, or nil if there is none.
func PeekOutput(event []byte) []byte {
	view, err := PeekEvent(event)
	if err != nil {
		return nil
	}
	for check := view.Check; len(check) > 0; {
		f, n, err := nextField("Check", check)
		if err != nil {
			return nil
		}
		if f.tag == 26<<3|2 {
			return f.v
		}
		check = check[n:]
	}
	return nil
}
