package handler

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// This file has the records of the log that are about deliveries (eventlog.KindDeliveries), except their fold. They are
// of three kinds, which differ in the first byte.
//
// The owner of a partition writes reports. A report has the number of its ownership (term), the cluster's roster under
// which it began (0 if there is none), whether this is the first report of it and then the message from which it routes
// (from), the message up to which the log now has all deliveries (upto, 0 if this record does not have it), and changes
// of keys of the database: the key behind its length, an op, and what the op needs. A report that is too large for a
// record is several: then the last one has upto.
//
// Any backend writes requests: what users want done with dead letters. A request has its number, and for each dead
// letter the key behind its length, and 0 to delete it, or 1 and the position that its delivery gets.
//
// The owner of another partition writes hand-overs: handover.go.

// The kinds of records. A new format gets a new kind: releases that do not know it refuse the record.
const (
	kindReport   = 1
	kindRequest  = 2
	kindHandOver = 3
)

// unknownRecord is the error of a record of none of these kinds.
func unknownRecord(body []byte) error {
	if len(body) > 0 && body[0] > kindHandOver {
		return &fields.NewerError{What: "kind of a record of deliveries", Got: uint64(body[0]), Known: kindHandOver}
	}
	return errors.New("it is of no kind")
}

// The ops of a change. A value that is too large for a record comes in parts with their offsets.
const (
	opDelete   = 0
	opSet      = 1
	opPart     = 2
	opLastPart = 3
)

// reportBytes bounds the changes in a record. Larger records wait behind others in the log.
const reportBytes = 48 << 10

// report is a report, or as much of it as is in one record.
type report struct {
	term    uint64
	roster  uint64
	begins  bool
	from    uint64
	upto    uint64
	changes []change // of a report that is written
	ops     []op     // of a record that was read
}

// op is a change in a record. key and value are parts of the record.
type op struct {
	key    []byte
	code   byte
	offset uint64
	value  []byte
}

func appendReportHeader(b []byte, r *report) []byte {
	b = append(b, kindReport)
	b = binary.AppendUvarint(binary.AppendUvarint(b, r.term), r.roster)
	if b = fields.AppendBool(b, r.begins); r.begins {
		b = binary.AppendUvarint(b, r.from)
	}
	return binary.AppendUvarint(b, r.upto)
}

func appendOp(b []byte, o op) []byte {
	b = append(fields.AppendBytes(b, o.key), o.code)
	switch o.code {
	case opDelete:
		return b
	case opPart, opLastPart:
		b = binary.AppendUvarint(b, o.offset)
	}
	return fields.AppendBytes(b, o.value)
}

func decodeReport(body []byte) (*report, error) {
	r := fields.NewReader(body)
	r.Byte()
	rep := &report{term: r.Uint(), roster: r.Uint(), begins: r.Bool()}
	if rep.begins {
		rep.from = r.Uint()
	}
	rep.upto = r.Uint()
	for len(r.Rest) > 0 && r.Err() == nil {
		o := op{key: r.Bytes(), code: r.Byte()}
		switch o.code {
		case opDelete:
		case opPart, opLastPart:
			o.offset = r.Uint()
			fallthrough
		case opSet:
			o.value = r.Bytes()
		default:
			return nil, &fields.NewerError{What: "op of a report of deliveries", Got: uint64(o.code), Known: opLastPart}
		}
		if r.Err() == nil && !isOurs(o.key) {
			return nil, fmt.Errorf("report of deliveries changes the key %q", o.key)
		}
		rep.ops = append(rep.ops, o)
	}
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("read report of deliveries: %w", err)
	}
	return rep, nil
}

// isOurs reports whether a report may change a key.
func isOurs(key []byte) bool {
	return len(key) >= 2 && key[0] == 'd' && bytes.IndexByte([]byte("qrxa"), key[1]) >= 0
}

// send appends the records of a report. They are encoded one by one: together they may be larger than memory allows.
func (l *ledger) send(r report, number uint64) error {
	body, size := []byte(nil), 0
	emit := func(last bool) error {
		h := r
		if !last {
			h.upto = 0
		}
		rec := eventlog.Record{
			Kind: eventlog.KindDeliveries, Received: time.Now().UnixMilli(), Body: append(appendReportHeader(nil, &h), body...),
		}
		r.begins, body = false, body[:0]
		if last {
			return l.d.append(l.ctx, l.partition, &rec, l, number)
		}
		return l.d.append(l.ctx, l.partition, &rec, nil, 0)
	}
	for _, c := range r.changes {
		value, err := l.d.readable(c)
		if err != nil {
			l.d.rare.Error("delivery cannot be read and is not reported", "", "key", string(c.key), "err", err)
			continue
		}
		code, offset := byte(opSet), 0
		if value == nil {
			code = opDelete
		}
		for len(value)-offset > reportBytes {
			body = appendOp(body, op{c.key, opPart, uint64(offset), value[offset : offset+reportBytes]})
			code, offset = opLastPart, offset+reportBytes
			if err := emit(false); err != nil {
				return err
			}
		}
		if size = len(c.key) + len(value) - offset; len(body) > 0 && len(body)+size > reportBytes {
			if err := emit(false); err != nil {
				return err
			}
		}
		body = appendOp(body, op{c.key, code, uint64(offset), value[offset:]})
	}
	return emit(true)
}

// append appends a record to the log of a partition, again and again while the log has no room. It gives up when the
// log is closed, the record is too large, or ctx ends.
func (d *Dispatcher) append(
	ctx context.Context, partition int, rec *eventlog.Record, acker eventlog.Acker, token uint64,
) error {
	var tooLarge *resource.TooLargeError
	for {
		err := d.opts.Log.AppendTo(ctx, partition, rec, acker, token)
		if err == nil || errors.Is(err, eventlog.ErrClosed) || errors.As(err, &tooLarge) || ctx.Err() != nil {
			return err
		}
		if !errors.Is(err, eventlog.ErrNoRoom) { // the log refuses to wait while the backend stops
			d.rare.Error("a record of deliveries is not in the log yet, trying again", "",
				"partition", partition, "err", err)
		}
		select {
		case <-time.After(appendPause):
		case <-ctx.Done():
		}
	}
}

// appendPause is the pause between tries to append a record.
const appendPause = 20 * time.Millisecond

// wish is what a request wants with one dead letter: to remove it, and to send its delivery again if redrive is set.
type wish struct {
	key     []byte
	redrive bool
	pos     position
}

func encodeRequest(id uint64, wishes []wish) []byte {
	b := binary.BigEndian.AppendUint64([]byte{kindRequest}, id)
	for _, w := range wishes {
		b = fields.AppendBool(fields.AppendBytes(b, w.key), w.redrive)
		if w.redrive {
			b = binary.AppendUvarint(binary.AppendUvarint(b, w.pos.seq), uint64(w.pos.sub))
		}
	}
	return b
}

func decodeRequest(body []byte) (id uint64, wishes []wish, err error) {
	r := fields.NewReader(body)
	r.Byte()
	id = r.Fixed64()
	for len(r.Rest) > 0 && r.Err() == nil {
		w := wish{key: r.Bytes(), redrive: r.Bool()}
		if w.redrive {
			w.pos = position{r.Uint(), uint32(r.Uint())}
		}
		if r.Err() == nil && !bytes.HasPrefix(w.key, []byte("dx")) {
			return 0, nil, fmt.Errorf("request about dead letters names the key %q", w.key)
		}
		wishes = append(wishes, w)
	}
	if err := r.Err(); err != nil {
		return 0, nil, fmt.Errorf("read request about dead letters: %w", err)
	}
	return id, wishes, nil
}

// partKey is where the parts of a value gather. One report at a time is folded, so there is one value at a time.
func partKey(partition int) []byte {
	return binary.BigEndian.AppendUint16([]byte("dp"), uint16(partition))
}

// gather adds a part of a value to the parts before it, and returns the value when it is whole. Parts whose
// beginning is missing were folded before: a replay began behind it.
func (d *Dispatcher) gather(b *pebble.Batch, partition int, o op) (value []byte, whole bool, err error) {
	sofar := fields.AppendBytes(nil, o.key)
	head := len(sofar)
	if o.offset > 0 {
		stored, closer, err := b.Get(partKey(partition))
		if errors.Is(err, pebble.ErrNotFound) {
			return nil, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		fits := bytes.HasPrefix(stored, sofar) && uint64(len(stored)-head) == o.offset
		if fits {
			sofar = bytes.Clone(stored)
		}
		if err := closer.Close(); err != nil || !fits {
			return nil, false, err
		}
	}
	sofar = append(sofar, o.value...)
	if o.code == opLastPart {
		return sofar[head:], true, b.Delete(partKey(partition), nil)
	}
	return nil, false, b.Set(partKey(partition), sofar, nil)
}
