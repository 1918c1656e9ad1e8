package handler

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// What is stored:
//
// 	'd' 'm' partition                                   a marker: how far the log has the partition's deliveries
// 	'd' 'p' partition                                   the parts so far of a value that comes in parts
// 	'd' 'q' namespace 0 handler 0 lane seq sub          a delivery
// 	'd' 'r' the same                                    its progress, if an attempt has failed
// 	'd' 'h' namespace 0 handler 0 lane seq id           a delivery was handed over from there, and may come again
// 	'd' 'g' partition                                   the last hand-over to it that was folded
// 	'd' 'f' namespace 0 handler 0 lane                  earlier messages of the lane do not come again
// 	'd' 'x' namespace 0 id                              a dead letter
// 	'd' 'a' namespace 0 handler 0 entity 0 check 0      when the handler last got an incident, if its definition needs that;
//	                                                    of an escalation: its ID, and behind that key its notices
//
// Numbers are big endian (partition and lane 2 bytes, seq 8, sub 4), so that each lane is read in its order. A lane is
// a partition of the log, or one with localBit or handedBit.

const (
	positionLen = 8 + 4
	// version begins a stored delivery. Before 2 it had no receipt time; before 3 it had the handler's input instead
	// of the event. escalatedVersion has the fields of an escalation too, and only their deliveries are stored in it, so
	// that members of an earlier release read all others.
	version          = 3
	escalatedVersion = 4
)

// Flags of a stored delivery. Its hops, at most maxHops, are between the first two and the last.
const (
	flagIncident = 1 << iota
	flagResolution
	flagBits    = 2
	flagRepeats = 1 << 7 // earlier releases take it for many hops: such a delivery gets no fallback there
)

var errMalformed = errors.New("malformed stored delivery")

func appendPosition(b []byte, p position) []byte {
	b = binary.BigEndian.AppendUint64(b, p.seq)
	return binary.BigEndian.AppendUint32(b, p.sub)
}

func decodePosition(b []byte) position {
	return position{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:])}
}

func markerKey(partition int) []byte {
	return binary.BigEndian.AppendUint16([]byte("dm"), uint16(partition))
}

// queueKey returns the prefix of the keys of a handler's deliveries.
func queueKey(name resource.Name) []byte {
	b := append([]byte("dq"), name.Namespace...)
	b = append(b, 0)
	b = append(b, name.Name...)
	return append(b, 0)
}

func deliveryKey(name resource.Name, partition int, pos position) []byte {
	b := binary.BigEndian.AppendUint16(queueKey(name), uint16(partition))
	return appendPosition(b, pos)
}

func (it *item) key() []byte {
	return deliveryKey(resource.Name{Namespace: it.Namespace, Name: it.Handler}, it.Partition, it.pos)
}

func parseDeliveryKey(key []byte) (name resource.Name, partition int, pos position, err error) {
	rest, ok := bytes.CutPrefix(key, []byte("dq"))
	namespace, rest, ok1 := bytes.Cut(rest, []byte{0})
	handler, rest, ok2 := bytes.Cut(rest, []byte{0})
	if !ok || !ok1 || !ok2 || len(rest) != 2+positionLen {
		return resource.Name{}, 0, position{}, errMalformed
	}
	name = resource.Name{Namespace: string(namespace), Name: string(handler)}
	return name, int(binary.BigEndian.Uint16(rest)), decodePosition(rest[2:]), nil
}

func (it *item) progressKey() []byte { return progressKeyOf(it.key()) }

// progressKeyOf returns the key of a delivery's progress, which differs in the second byte only.
func progressKeyOf(key []byte) []byte {
	key = bytes.Clone(key)
	key[1] = 'r'
	return key
}

func (it *item) value() []byte { return appendDelivery(nil, it.Delivery) }

// appendDelivery appends the part of a delivery that is not in its key.
func appendDelivery(b []byte, dl *delivery.Delivery) []byte {
	stored, data := byte(version), dl.Event
	if dl.Event == nil && dl.Data != nil {
		stored, data = 2, dl.Data
	}
	if dl.Escalation != "" {
		stored = escalatedVersion
	}
	b = slices.Grow(b, 64+len(dl.ID)+len(dl.Entity)+len(dl.Check)+len(dl.Pipeline)+len(dl.Workflow)+len(data))
	b = append(b, stored)
	b = binary.AppendVarint(b, dl.Received)
	for _, s := range [...]string{dl.ID, dl.Entity, dl.Check} {
		b = fields.AppendBytes(b, s)
	}
	if stored >= 3 {
		b = fields.AppendBytes(fields.AppendBytes(b, dl.Pipeline), dl.Workflow)
		b = binary.AppendUvarint(b, uint64(dl.Status))
		b = append(b, flagsOf(dl))
	}
	if stored == escalatedVersion {
		b = fields.AppendBytes(fields.AppendBytes(b, dl.Escalation), dl.Contact)
		b = binary.AppendUvarint(b, uint64(dl.Step))
	}
	return append(b, data...)
}

func flagsOf(dl *delivery.Delivery) (flags byte) {
	if dl.Incident {
		flags |= flagIncident
	}
	if dl.Resolution {
		flags |= flagResolution
	}
	if dl.Repeats {
		flags |= flagRepeats
	}
	return flags | byte(dl.Hops)<<flagBits
}

// decodeDelivery makes a delivery of a value and the parts of its key. It copies all that it keeps.
func decodeDelivery(name resource.Name, partition int, pos position, value []byte) (*delivery.Delivery, error) {
	dl, err := decodeShared(name, partition, pos, value)
	if err != nil {
		return nil, err
	}
	if dl.Data != nil {
		dl.Data = append([]byte{}, dl.Data...)
	} else {
		dl.Event = append([]byte{}, dl.Event...)
	}
	return dl, nil
}

// decodeShared is decodeDelivery without a copy of the event.
func decodeShared(name resource.Name, partition int, pos position, value []byte) (*delivery.Delivery, error) {
	if len(value) == 0 || value[0] == 0 || value[0] > escalatedVersion {
		return nil, errMalformed
	}
	stored, value := value[0], value[1:]
	dl := &delivery.Delivery{Partition: partition, Seq: pos.seq, Sub: int(pos.sub)}
	dl.Namespace, dl.Handler = name.Namespace, name.Name
	r := fields.NewReader(value)
	if stored >= 2 {
		dl.Received = r.Int()
	}
	dl.ID, dl.Entity, dl.Check = r.Text(), r.Text(), r.Text()
	dl.EventID = delivery.EventIDOf(dl.ID)
	if stored < 3 {
		if r.Err() != nil {
			return nil, errMalformed
		}
		dl.Data = r.Rest[:len(r.Rest):len(r.Rest)]
		return dl, nil
	}
	dl.Pipeline, dl.Workflow = r.Text(), r.Text()
	status, flags := r.Uint(), r.Byte()
	var step uint64
	if stored == escalatedVersion {
		dl.Escalation, dl.Contact, step = r.Text(), r.Text(), r.Uint()
	}
	if r.Err() != nil || status > math.MaxUint32 || step > math.MaxInt32 {
		return nil, errMalformed
	}
	dl.Status, dl.Step = uint32(status), int(step)
	dl.Incident, dl.Resolution, dl.Repeats = flags&flagIncident != 0, flags&flagResolution != 0, flags&flagRepeats != 0
	dl.Hops = int(flags &^ flagRepeats >> flagBits)
	dl.Event = r.Rest
	return dl, nil
}

// read reads a delivery whose event is in Pebble only.
func (d *Dispatcher) read(it *item) (*delivery.Delivery, error) {
	value, closer, err := d.opts.DB.Get(it.key())
	if err != nil {
		return nil, fmt.Errorf("read delivery: %w", err)
	}
	dl, err := decodeDelivery(resource.Name{Namespace: it.Namespace, Name: it.Handler}, it.Partition, it.pos, value)
	return dl, errors.Join(err, closer.Close())
}

// load reads the markers, and counts the dead letters and what was handed over.
func (d *Dispatcher) load() error {
	if err := d.moveLocal(); err != nil {
		return err
	}
	it, err := d.opts.DB.NewIter(&pebble.IterOptions{LowerBound: []byte("dm"), UpperBound: []byte("dn")})
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		var m marker
		if err == nil {
			m, err = decodeMarker(value)
		}
		if err == nil && len(it.Key()) != len(markerKey(0)) {
			err = errMalformed
		}
		if err != nil {
			return errors.Join(fmt.Errorf("read marker %x: %w", it.Key(), err), it.Close())
		}
		l := d.ledger(int(binary.BigEndian.Uint16(it.Key()[2:])))
		l.known, l.term = m.known, m.term
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return err
	}
	handed := map[resource.Name]int{}
	err = d.eachKey('q', func(_, _ []byte, name resource.Name, lane int, pos position) error {
		switch {
		case isLocal(lane):
			d.localSeq = max(d.localSeq, pos.seq)
		case isHanded(lane):
			handed[name]++
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.handed.add(handed)
	return d.countLetters()
}

// oldLocal is the lane in which earlier releases had all local deliveries.
const oldLocal = math.MaxUint16

// moveLocal moves the local deliveries of an earlier release, with their progress, to the lanes of their partitions.
// Their numbers stay, so they differ in the new lanes, too.
func (d *Dispatcher) moveLocal() error {
	b := d.opts.DB.NewBatch()
	defer b.Close()
	err := d.eachKey('q', func(key, value []byte, name resource.Name, lane int, pos position) error {
		if lane != oldLocal {
			return nil
		}
		if err := errors.Join(b.Delete(key, nil), b.Delete(progressKeyOf(key), nil)); err != nil {
			return err
		}
		dl, err := decodeDelivery(name, lane, pos, value)
		if err != nil {
			d.log.Error("stored delivery cannot be read and is removed", "key", string(key), "err", err)
			return nil
		}
		moved := deliveryKey(name, localLane(d.partitionOf(dl)), pos)
		if err := b.Set(moved, value, nil); err != nil {
			return err
		}
		progress, closer, err := d.opts.DB.Get(progressKeyOf(key))
		if errors.Is(err, pebble.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		return errors.Join(b.Set(progressKeyOf(moved), progress, nil), closer.Close())
	})
	if err != nil || b.Empty() {
		return err
	}
	return b.Commit(pebble.NoSync)
}

// eachKey calls f with the stored deliveries ('q') or their progress ('r'). f must not keep the key or the value.
func (d *Dispatcher) eachKey(kind byte, f func(key, value []byte, name resource.Name, lane int, pos position) error) error {
	it, err := d.opts.DB.NewIter(&pebble.IterOptions{LowerBound: []byte{'d', kind}, UpperBound: []byte{'d', kind + 1}})
	if err != nil {
		return err
	}
	var key []byte
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		key = append(key[:0], it.Key()...)
		key[1] = 'q'
		name, lane, pos, bad := parseDeliveryKey(key)
		if bad != nil {
			d.rare.Error("key of a stored delivery cannot be read and is left alone", "", "key", string(it.Key()))
			continue
		}
		var value []byte
		if value, err = it.ValueAndErr(); err == nil {
			err = f(it.Key(), value, name, lane, pos)
		}
	}
	return errors.Join(err, it.Error(), it.Close())
}

// readProgress reads a stored delivery's progress. Unreadable progress counts as none.
func (d *Dispatcher) readProgress(it *item) {
	value, closer, err := d.opts.DB.Get(it.progressKey())
	if err == nil {
		it.progress, err = decodeProgress(value)
		it.progressed = true
		err = errors.Join(err, closer.Close())
	}
	if err != nil && !errors.Is(err, pebble.ErrNotFound) {
		d.metrics.storeErrors.Inc()
		d.rare.Error("progress of a stored delivery cannot be read", "", "delivery", it.ID, "err", err)
	}
}

// readPage reads the deliveries of a handler at some places. One that cannot be decoded is removed, and nil is in its
// place.
func (d *Dispatcher) readPage(name resource.Name, plan []spot) ([]*item, error) {
	items := make([]*item, len(plan))
	for i, s := range plan {
		it := &item{pos: s.pos, ledger: s.lane.ledger, stored: true}
		it.Delivery = &delivery.Delivery{Partition: s.lane.id}
		it.Namespace, it.Handler = name.Namespace, name.Name
		dl, err := d.read(it)
		switch {
		case errors.Is(err, errMalformed):
			d.discard(it.ledger, it.key(), err)
			continue
		case errors.Is(err, pebble.ErrNotFound):
			d.log.Error("a stored delivery is missing", "namespace", name.Namespace, "handler", name.Name, "lane", s.lane.id)
			continue
		case err != nil:
			return nil, err
		}
		it.Delivery = dl
		d.readProgress(it)
		items[i] = it
	}
	return items, nil
}

// discard removes a stored delivery that cannot be read.
func (d *Dispatcher) discard(l *ledger, key []byte, err error) {
	d.metrics.storeErrors.Inc()
	d.rare.Error("stored delivery cannot be read and is removed", "", "key", string(key), "err", err)
	l.discard(bytes.Clone(key))
}
