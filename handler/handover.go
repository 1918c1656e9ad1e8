package handler

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// This file has the way of a delivery to the home partition of its handler. A handler that groups or limits its rate
// has one queue in the whole cluster: that of the owner of its home partition. The owners of other partitions hand
// their deliveries over, with a record in the log of the home partition. DESIGN.md gives the rules.
//
// A hand-over has the namespace and the handler; for each lane that deliveries come from, its floor; and for each
// delivery its lane, message, ID, progress and value. The floor is the first message of the lane that may come again:
// the log knows that the deliveries of earlier ones need no hand-over any more.

// handedBit marks the lane of a partition's deliveries that owners of other partitions have handed over.
const handedBit = 1 << 14

func handedLane(partition int) int { return partition | handedBit }
func isHanded(lane int) bool       { return !isLocal(lane) && lane&handedBit != 0 }

const (
	// handOverMost bounds the deliveries of one round, and handedMost those of one record.
	handOverMost = 512
	handedMost   = 1 << 8
)

// floor is the first message of a lane that may come again.
type floor struct {
	lane int
	seq  uint64
}

// handed is a delivery in a hand-over.
type handed struct {
	lane     int // that it comes from
	seq      uint64
	id       string
	progress []byte // empty if it was not tried
	value    []byte
}

func appendHandOver(b []byte, name resource.Name, floors []floor) []byte {
	b = fields.AppendBytes(fields.AppendBytes(append(b, kindHandOver), name.Namespace), name.Name)
	b = binary.AppendUvarint(b, uint64(len(floors)))
	for _, f := range floors {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(f.lane)), f.seq)
	}
	return b
}

func appendHanded(b []byte, h handed) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(h.lane)), h.seq)
	return fields.AppendBytes(fields.AppendBytes(fields.AppendBytes(b, h.id), h.progress), h.value)
}

func decodeHandOver(body []byte) (name resource.Name, floors []floor, all []handed, err error) {
	r := fields.NewReader(body)
	r.Byte()
	name = resource.Name{Namespace: r.Text(), Name: r.Text()}
	for range r.Count() {
		floors = append(floors, floor{int(r.Uint()), r.Uint()})
	}
	for len(r.Rest) > 0 && r.Err() == nil {
		all = append(all, handed{int(r.Uint()), r.Uint(), r.Text(), r.Bytes(), r.Bytes()})
	}
	if err := r.Err(); err != nil {
		return name, nil, nil, fmt.Errorf("read hand-over of deliveries: %w", err)
	}
	bad := name.Name == "" || bytes.IndexByte([]byte(name.Namespace+name.Name), 0) >= 0 || len(all) > handedMost
	for _, f := range floors {
		bad = bad || uint64(f.lane) > math.MaxUint16
	}
	for _, h := range all {
		bad = bad || uint64(h.lane) > math.MaxUint16 || len(h.value) == 0
	}
	if bad {
		return name, nil, nil, fmt.Errorf("read hand-over of deliveries to %s: %w", name, errMalformed)
	}
	return name, floors, all, nil
}

// central reports whether one member is to run all deliveries of a handler.
func central(h *resource.Handler) bool {
	return h.Group != nil || h.RateLimit != nil && h.RateLimit.PerSecond > 0
}

// away reports whether a delivery is to be handed over. It is, too, while earlier ones of its handler may be unfinished
// at home although the definition has changed: they must not be overtaken. The caller holds mu.
func (q *queue) away(it *item) bool {
	return it.ledger.partition != q.home && !it.stays && (q.central || q.d.handed.any(q.name))
}

// startHandOver starts handing over the chains in leaving, unless that is under way. The caller holds mu.
func (q *queue) startHandOver() {
	if q.leaving.head != nil && !q.handing && q.d.running.Load() {
		q.handing = true
		q.d.workers.Go(q.handOver)
	}
}

// handOver hands over the first deliveries of the chains in leaving until there are none, or Stop. A chain goes on when
// that is folded here, so a pair's deliveries come home in their order. It is no worker: while the log takes nothing,
// those go on with deliveries that are at home.
func (q *queue) handOver() {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer func() { q.handing = false }()
	for q.leaving.head != nil && q.d.running.Load() && !q.d.behind() {
		if !q.d.mayRun() {
			q.arm(time.Now().Add(mayRunPause))
			return
		}
		h, ok := q.d.lookup(q.name.Namespace, q.name.Name)
		q.central = ok && central(h)
		var chains []*chain
		var its []*item
		for q.leaving.head != nil && len(chains) < handOverMost {
			c := q.leaving.pop()
			if !q.away(c.head) {
				q.turn(c)
				continue
			}
			c.head.begin = time.Now()
			chains, its = append(chains, c), append(its, c.head)
		}
		q.mu.Unlock()
		stay, err := q.d.handOver(q.name, q.home, its)
		q.mu.Lock()
		for _, it := range its {
			it.begin = time.Time{}
		}
		if err != nil {
			return // the chains are for the next process
		}
		for i, c := range chains {
			it := its[i]
			if it.stays = stay[it]; it.stays && !it.ledger.isOver() {
				q.turn(c)
				continue
			}
			q.d.metrics.handed.WithLabelValues(q.name.Name).Inc()
			it.ledger.finishAs(it, true)
			q.drop(c)
		}
		if q.pageDue() {
			q.spawn()
		}
	}
}

// handOver appends deliveries to the log of the home partition of their handler. When it returns, they are folded here,
// except the ones in stay: they cannot be read, or are too large for the log. An error means that the log is closed,
// or Stop.
func (d *Dispatcher) handOver(name resource.Name, home int, its []*item) (stay map[*item]bool, _ error) {
	stay = map[*item]bool{}
	head := appendHandOver(nil, name, d.floors(name, its))
	acks := make(acks, len(its))
	records := 0
	for len(its) > 0 {
		body, n := d.appendSome(bytes.Clone(head), its, stay)
		part := its[:n]
		if its = its[n:]; len(body) == len(head) {
			continue
		}
		rec := eventlog.Record{Kind: eventlog.KindDeliveries, Received: time.Now().UnixMilli(), Body: body}
		var tooLarge *resource.TooLargeError
		switch err := d.append(d.ctx, home, &rec, acks, 0); {
		case errors.As(err, &tooLarge):
			for _, it := range part {
				stay[it] = true
			}
		case err != nil:
			return nil, err
		default:
			records++
		}
	}
	for range records {
		select {
		case err := <-acks:
			if err != nil {
				return nil, err
			}
		case <-d.ctx.Done():
			return nil, d.ctx.Err()
		}
	}
	return stay, nil
}

// acks gets a value for each record of a hand-over.
type acks chan error

// Logged implements eventlog.Acker.
func (a acks) Logged(_ uint64, _ int, _ uint64, err error) { a <- err }

// appendSome appends deliveries to a record, and returns how many it has dealt with. Unreadable ones stay: run
// drops them.
func (d *Dispatcher) appendSome(body []byte, its []*item, stay map[*item]bool) (_ []byte, n int) {
	for _, it := range its[:min(len(its), handedMost)] {
		value, err := it.value(), error(nil)
		if it.parked {
			value, err = d.readable(change{key: it.key(), stored: true})
		}
		if err != nil {
			stay[it] = true
			n++
			continue
		}
		if n > 0 && len(body)+len(value) > reportBytes {
			break
		}
		h := handed{lane: it.Partition, seq: it.pos.seq, id: it.ID, value: value}
		if it.attempts > 0 {
			h.progress = it.progress.encode()
		}
		body = appendHanded(body, h)
		n++
	}
	return body, n
}

// floors returns the floors of the lanes of a handler's deliveries. Of a message up to known the log has all
// deliveries, so a delivery that is not stored has ended. Local deliveries are always stored.
func (d *Dispatcher) floors(name resource.Name, its []*item) []floor {
	lowest := map[int]uint64{}
	for _, it := range its {
		seq, seen := lowest[it.Partition]
		if !seen {
			seq = d.floorOf(name, it)
		}
		lowest[it.Partition] = min(seq, it.pos.seq)
	}
	var floors []floor
	for lane, seq := range lowest {
		floors = append(floors, floor{lane, seq})
	}
	return floors
}

// floorOf returns the floor of the lane of a delivery.
func (d *Dispatcher) floorOf(name resource.Name, it *item) uint64 {
	seq := uint64(math.MaxUint64)
	if !isLocal(it.Partition) {
		seq = it.ledger.knownNow() + 1 // before the look at what is stored
	}
	stored, err := d.firstStored(name, it.Partition)
	if err != nil {
		d.metrics.storeErrors.Inc()
		d.rare.Error("stored deliveries cannot be read", name.String(), "namespace", name.Namespace,
			"handler", name.Name, "err", err)
		return 0
	}
	return min(seq, stored)
}

// firstStored returns the message of the first stored delivery of a lane; the largest number if there is none.
func (d *Dispatcher) firstStored(name resource.Name, lane int) (uint64, error) {
	it, err := d.opts.DB.NewIter(&pebble.IterOptions{
		LowerBound: deliveryKey(name, lane, position{}),
		UpperBound: append(deliveryKey(name, lane, position{math.MaxUint64, math.MaxUint32}), 0),
	})
	if err != nil {
		return 0, err
	}
	seq := uint64(math.MaxUint64)
	if it.First() {
		var pos position
		_, _, pos, err = parseDeliveryKey(it.Key())
		seq = pos.seq
	}
	return seq, errors.Join(err, it.Error(), it.Close())
}
