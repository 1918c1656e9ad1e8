package handler

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// folding is the fold of one record: one batch, and what follows when it is committed.
type folding struct {
	d         *Dispatcher
	partition int
	batch     *pebble.Batch // indexed
	letters   map[string]bool
	counts    map[resource.Name]int
	handed    map[resource.Name]int // how many unfinished deliveries were handed over, more than before
	queued    [][]byte              // keys of deliveries that the owner queues, because routing does not bring them
	notices   [][]byte              // keys of notices that escalations are to read
}

func (d *Dispatcher) newFolding(partition int) *folding {
	return &folding{
		d: d, partition: partition, batch: d.opts.DB.NewIndexedBatch(),
		letters: map[string]bool{}, counts: map[resource.Name]int{}, handed: map[resource.Name]int{},
	}
}

// Fold makes the changes of a record of deliveries, the sub-th of message seq. It returns the newest message all of
// whose deliveries are known now. Package fold calls it in the order of the log, before it routes anything later of the
// partition. A record that was folded before changes nothing in the end, when all behind it are folded again, too.
// After an error the record is not folded.
// owned reports whether the record's writer owned the partition at the record's place in the log, since a roster; nil is
// always. A report of another backend is passed over.
func (d *Dispatcher) Fold(
	partition int, seq uint64, sub int, body []byte, owned func(roster uint64) bool,
) (known uint64, err error) {
	l := d.ledger(partition)
	f := d.newFolding(partition)
	defer f.batch.Close()
	switch {
	case len(body) > 0 && body[0] == kindReport:
		err = f.report(l, body, owned)
	case len(body) > 0 && body[0] == kindRequest:
		err = f.request(l, body)
	case len(body) > 0 && body[0] == kindHandOver:
		err = f.handOver(l, position{seq, uint32(sub)}, body)
	default:
		err = fields.Unreadable(unknownRecord(body))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		d.metrics.storeErrors.Inc()
		return l.known, fmt.Errorf("fold record of deliveries of partition %d: %w", partition, err)
	}
	return l.known, nil
}

// report folds a report. One of an earlier term than the last is passed over: its backend does not own the partition any
// more, or is an earlier process of the owner. All backends fold the same records in the same order, so they agree.
func (f *folding) report(l *ledger, body []byte, owned func(roster uint64) bool) error {
	r, err := decodeReport(body)
	if err != nil {
		return fields.Unreadable(err)
	}
	l.mu.Lock()
	known, term, ours := l.known, l.term, l.owned
	l.mu.Unlock()
	if r.term < term || owned != nil && !owned(r.roster) {
		return nil
	}
	if r.begins && r.term > term && !ours {
		// What the last owner had reported in part comes from the new one, perhaps otherwise.
		if err := f.removeBehind(r.from); err != nil {
			return err
		}
	}
	for _, o := range r.ops {
		if err := f.apply(o); err != nil {
			return err
		}
	}
	known, term = max(known, r.upto), r.term
	if err := f.batch.Set(markerKey(f.partition), marker{term, known}.encode(), nil); err != nil {
		return err
	}
	if err := f.commit(l); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known, l.term = known, term
	l.signal()
	return nil
}

// apply adds a change to the batch.
func (f *folding) apply(o op) error {
	value := o.value
	switch o.code {
	case opPart, opLastPart:
		whole, ok, err := f.d.gather(f.batch, f.partition, o)
		if err != nil || !ok {
			return err
		}
		value = whole
	case opDelete:
		return f.remove(o.key)
	}
	if err := checkValue(o.key, value); err != nil {
		return err
	}
	switch o.key[1] {
	case 'x':
		if err := f.countLetter(o.key, true); err != nil {
			return err
		}
	case 'q':
		if _, lane, _, err := parseDeliveryKey(o.key); err == nil && isLocal(lane) {
			f.queued = append(f.queued, o.key)
		}
	case 'a':
		f.notices = append(f.notices, o.key)
	}
	return f.batch.Set(o.key, value, nil)
}

// checkValue returns an error if only newer releases can read a delivery or a dead letter. The other values have no
// version: their formats do not change.
func checkValue(key, value []byte) error {
	switch {
	case key[1] == 'q' && len(value) > 0 && value[0] > escalatedVersion:
		return &fields.NewerError{What: "version of a stored delivery", Got: uint64(value[0]), Known: escalatedVersion}
	case key[1] == 'x' && len(value) > 0 && value[0] > escalatedLetter:
		return &fields.NewerError{What: "version of a dead letter", Got: uint64(value[0]), Known: escalatedLetter}
	}
	return nil
}

// remove adds the removal of a key to the batch. A delivery takes its progress with it.
func (f *folding) remove(key []byte) error {
	switch key[1] {
	case 'x':
		if err := f.countLetter(key, false); err != nil {
			return err
		}
	case 'q':
		if name, lane, _, err := parseDeliveryKey(key); err == nil && isHanded(lane) {
			switch there, err := f.has(key); {
			case err != nil:
				return err
			case there:
				f.handed[name]--
			}
		}
		if err := f.batch.Delete(progressKeyOf(key), nil); err != nil {
			return err
		}
	}
	return f.batch.Delete(key, nil)
}

// has reports whether a key is there.
func (f *folding) has(key []byte) (bool, error) {
	_, closer, err := f.batch.Get(key)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, closer.Close()
}

// countLetter counts a dead letter that comes or goes, unless it was there before or was not.
func (f *folding) countLetter(key []byte, comes bool) error {
	f.letters[string(key)] = true
	name, _, _, readable := parseLetterKey(key)
	there, err := f.has(key)
	switch {
	case err != nil || there == comes || !readable:
		return err
	case comes:
		f.counts[name]++
	default:
		f.counts[name]--
	}
	return nil
}

// request folds a request. A dead letter that is not there any more is passed over: another request was faster, or a
// replay folds this one again.
func (f *folding) request(l *ledger, body []byte) error {
	id, wishes, err := decodeRequest(body)
	if err != nil {
		return fields.Unreadable(err)
	}
	n := 0
	for _, w := range wishes {
		value, closer, err := f.batch.Get(w.key)
		if errors.Is(err, pebble.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		dead, err := decodeLetter(w.key, value)
		if err := errors.Join(err, closer.Close()); err != nil {
			f.d.rare.Error("dead letter cannot be read and is left alone", "", "key", string(w.key), "err", err)
			continue
		}
		n++
		if err := f.remove(w.key); err != nil {
			return err
		}
		if !w.redrive {
			continue
		}
		it := localItem(dead.dl, f.partition, w.pos, l)
		it.Received = 0 // its age counts from now
		f.queued = append(f.queued, it.key())
		if err := f.batch.Set(it.key(), it.value(), nil); err != nil {
			return err
		}
	}
	if err := f.commit(l); err != nil {
		return err
	}
	f.d.letters.answer(id, n)
	return nil
}

// commit commits the batch, counts dead letters and what was handed over, wakes escalations, and queues the local and handed deliveries
// that it adds, if their partition is this backend's.
func (f *folding) commit(l *ledger) error {
	if err := f.batch.Commit(pebble.NoSync); err != nil {
		return err
	}
	f.d.letters.folded(f.letters, f.counts)
	f.d.handed.add(f.handed)
	for _, key := range f.notices {
		if name, p, ok := noticeOf(key); ok {
			f.d.wakeEscalation(name, p)
		}
	}
	l.mu.Lock()
	owned := l.owned
	l.mu.Unlock()
	if !owned {
		return nil
	}
	for _, key := range f.queued {
		switch it, err := f.d.readStored(key, l); {
		case errors.Is(err, errMalformed):
			f.d.metrics.storeErrors.Inc()
			f.d.rare.Error("delivery cannot be read and waits for the next start", "", "key", string(key), "err", err)
		case err != nil:
			return err
		default:
			f.d.enqueue(it)
		}
	}
	return nil
}

// isBehind reports whether a key is about a delivery of a message behind from.
func (f *folding) isBehind(key []byte, from uint64) bool {
	switch key[1] {
	case 'q', 'r':
		key = bytes.Clone(key)
		key[1] = 'q'
		_, lane, pos, err := parseDeliveryKey(key)
		return err == nil && lane == f.partition && pos.seq > from
	case 'x':
		_, lane, seq, ok := parseLetterKey(key)
		return ok && lane == f.partition && seq > from
	}
	return false
}

// removeBehind removes what reports, spills and parks have stored of messages behind from: their events are routed
// again. So is a dead letter: its delivery runs again.
func (f *folding) removeBehind(from uint64) error {
	for _, kind := range [...]byte{'q', 'r'} {
		err := f.d.eachKey(kind, func(key, _ []byte, _ resource.Name, _ int, _ position) error {
			if f.isBehind(key, from) {
				return f.batch.Delete(key, nil)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	it, err := f.d.opts.DB.NewIter(&pebble.IterOptions{LowerBound: []byte("dx"), UpperBound: []byte("dy")})
	if err != nil {
		return err
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		if f.isBehind(it.Key(), from) {
			err = f.remove(it.Key())
		}
	}
	return errors.Join(err, it.Error(), it.Close())
}

// marker is stored with each report: its term, and the message up to which the log has all deliveries. Earlier releases
// had a counter instead of the term, and also the place in the message, all of whose deliveries they knew.
type marker struct {
	term, known uint64
}

func (m marker) encode() []byte {
	return appendPosition(binary.BigEndian.AppendUint64(nil, m.term), position{m.known, ^uint32(0)})
}

func decodeMarker(b []byte) (marker, error) {
	if len(b) != 8+positionLen {
		return marker{}, fmt.Errorf("it has %d bytes, want %d", len(b), 8+positionLen)
	}
	return marker{binary.BigEndian.Uint64(b), decodePosition(b[8:]).seq}, nil
}

// readStored reads a stored delivery. The event of a local one stays in Pebble.
func (d *Dispatcher) readStored(key []byte, l *ledger) (*item, error) {
	name, lane, pos, err := parseDeliveryKey(key)
	if err != nil {
		return nil, err
	}
	value, closer, err := d.opts.DB.Get(key)
	if err != nil {
		return nil, err
	}
	dl, err := decodeDelivery(name, lane, pos, value)
	if err := errors.Join(err, closer.Close()); err != nil {
		return nil, err
	}
	it := &item{Delivery: dl, pos: pos, ledger: l, stored: true}
	if isLocal(lane) {
		it.Delivery, it.parked = slim(dl), true
	}
	d.readProgress(it)
	return it, nil
}

// slim returns a delivery without its event.
func slim(dl *delivery.Delivery) *delivery.Delivery {
	s := *dl
	s.Event, s.Data = nil, nil
	return &s
}
