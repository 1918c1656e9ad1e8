package handler

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// maxHops bounds how many fallbacks follow one another, in case they form a circle.
const maxHops = 16

// maxReason and maxOutput bound what a dead letter keeps of its last attempt.
const (
	maxReason = 4 << 10
	maxOutput = 4 << 10
)

// letter is a dead letter with its delivery.
type letter struct {
	delivery.DeadLetter
	dl *delivery.Delivery
}

// letterID is made of the delivery's position, so that after a crash the same delivery becomes the same dead letter.
func letterID(dl *delivery.Delivery) string {
	return fmt.Sprintf("%d-%d-%d.%s", dl.Partition, dl.Seq, dl.Sub, dl.Handler)
}

func letterKey(namespace, id string) []byte {
	b := append([]byte("dx"), namespace...)
	b = append(b, 0)
	return append(b, id...)
}

// letterVersion begins a stored dead letter. A new version of the delivery in it needs a new one of this, too:
// escalatedLetter is that of escalatedVersion.
const (
	letterVersion   = 1
	escalatedLetter = 2
)

func encodeLetter(dl *delivery.Delivery, p progress, last int64, reason, output string) []byte {
	b := []byte{letterVersion}
	if dl.Escalation != "" {
		b[0] = escalatedLetter
	}
	b = binary.AppendUvarint(b, uint64(p.attempts))
	b = binary.AppendVarint(b, p.first)
	b = binary.AppendVarint(b, last)
	b = fields.AppendBytes(b, strings.ToValidUTF8(reason[:min(len(reason), maxReason)], ""))
	b = fields.AppendBytes(b, strings.ToValidUTF8(output[:min(len(output), maxOutput)], ""))
	b = fields.AppendBytes(b, dl.Handler)
	b = binary.AppendUvarint(b, uint64(dl.Partition))
	b = binary.AppendUvarint(b, dl.Seq)
	b = binary.AppendUvarint(b, uint64(dl.Sub))
	return appendDelivery(b, dl)
}

func decodeLetter(key, value []byte) (*letter, error) {
	namespace, id, ok := bytes.Cut(bytes.TrimPrefix(key, []byte("dx")), []byte{0})
	if !ok || len(value) == 0 || value[0] != letterVersion && value[0] != escalatedLetter {
		return nil, errMalformed
	}
	dead := &letter{DeadLetter: delivery.DeadLetter{ID: string(id), Namespace: string(namespace)}}
	r := fields.NewReader(value[1:])
	dead.Attempts = int(r.Uint())
	dead.First, dead.Last = r.Int(), r.Int()
	dead.Reason, dead.Output, dead.Handler = r.Text(), r.Text(), r.Text()
	partition, seq, sub := r.Uint(), r.Uint(), r.Uint()
	if r.Err() != nil {
		return nil, errMalformed
	}
	var err error
	name := resource.Name{Namespace: dead.Namespace, Name: dead.Handler}
	if dead.dl, err = decodeDelivery(name, int(partition), position{seq, uint32(sub)}, r.Rest); err != nil {
		return nil, err
	}
	dead.Pipeline, dead.Workflow = dead.dl.Pipeline, dead.dl.Workflow
	dead.Entity, dead.Check, dead.Status = dead.dl.Entity, dead.dl.Check, dead.dl.Status
	return dead, nil
}

// bury ends a delivery as a dead letter, and adds the deliveries that replace it, if the workflow has a fallback.
func (d *Dispatcher) bury(it *item, dl *delivery.Delivery, ev *resource.Event, at attempt, p progress, tr *trace.Delivery) {
	last := time.Now()
	d.metrics.dead.WithLabelValues(it.Handler).Inc()
	var with []change
	key := letterKey(it.Namespace, letterID(it.Delivery))
	if d.roomForLetter(key, it.ledger, last) {
		with = append(with, change{
			key: key, value: encodeLetter(dl, p, last.UnixMilli(), at.reason, string(at.res.Output)),
		})
	} else {
		d.metrics.deadDropped.Inc()
		d.rare.Error("dead letter is not kept: there are too many", it.Namespace+"/"+it.Handler, "namespace", it.Namespace,
			"handler", it.Handler, "delivery", it.ID)
	}
	if ev != nil && dl.Hops < maxHops {
		fallback := d.opts.Workflows.Fallback(dl, ev)
		for _, f := range fallback {
			f.Hops = dl.Hops + 1
		}
		it.ledger.addLocal(fallback)
	}
	if !d.finish(it, tr, with...) {
		d.letters.folded(map[string]bool{string(key): true}, nil) // it will not come
	}
}

// roomForLetter reports whether another dead letter can be kept, and expects it. When there are too many it removes old
// ones first.
func (d *Dispatcher) roomForLetter(key []byte, l *ledger, now time.Time) bool {
	if d.letters.take(key, l, d.opts.DeadLetters) {
		return true
	}
	if !d.letters.mayExpire(now) {
		return false
	}
	if err := d.expireLetters(now); err != nil {
		d.log.Error("old dead letters could not be removed", "err", err)
	}
	return d.letters.take(key, l, d.opts.DeadLetters)
}

// eachLetter calls f with the dead letters of a namespace, or of all for "", from a key on, until f returns false.
func (d *Dispatcher) eachLetter(namespace string, from []byte, f func(key []byte, dead *letter) bool) error {
	lower, upper := []byte("dx"), []byte("dy")
	if namespace != "" {
		lower = letterKey(namespace, "")
		upper = append(letterKey(namespace, "")[:len(lower)-1], 1)
	}
	if bytes.Compare(from, lower) > 0 {
		lower = from
	}
	it, err := d.opts.DB.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			break // it.Error returns it
		}
		dead, err := decodeLetter(it.Key(), value)
		if err != nil {
			d.rare.Error("dead letter cannot be read", "", "key", string(it.Key()), "err", err)
			continue
		}
		if !f(it.Key(), dead) {
			break
		}
	}
	return errors.Join(it.Error(), it.Close())
}

// DeadLetters returns up to limit dead letters of a namespace and a handler, "" for all, that come behind the key
// after. If there are more, next is for the next call. A delivery that just died may be missing for some milliseconds.
func (d *Dispatcher) DeadLetters(
	namespace, handler, after string, limit int,
) (letters []delivery.DeadLetter, next string, err error) {
	page, next, err := d.letterPage(namespace, handler, after, limit)
	for _, dead := range page {
		letters = append(letters, dead.DeadLetter)
	}
	return letters, next, err
}

func (d *Dispatcher) letterPage(namespace, handler, after string, limit int) (letters []*letter, next string, err error) {
	var from []byte
	if after != "" {
		name := namespace
		if namespace == "" {
			name, after, _ = strings.Cut(after, "/")
		}
		from = append(letterKey(name, after), 0)
	}
	err = d.eachLetter(namespace, from, func(_ []byte, dead *letter) bool {
		if handler != "" && dead.Handler != handler {
			return true
		}
		if len(letters) == limit {
			next = letters[limit-1].ID
			if namespace == "" {
				next = letters[limit-1].Namespace + "/" + next
			}
			return false
		}
		letters = append(letters, dead)
		return true
	})
	if err != nil {
		return nil, "", fmt.Errorf("read dead letters: %w", err)
	}
	return letters, next, nil
}

// DeadLetter returns one dead letter with its event; false if there is none.
func (d *Dispatcher) DeadLetter(namespace, id string) (*delivery.DeadLetter, bool, error) {
	dead, err := d.readLetter(letterKey(namespace, id))
	if dead == nil || err != nil {
		return nil, false, err
	}
	if dead.dl.Event != nil { // an older release did not keep it
		ev := new(resource.Event)
		if err := ev.UnmarshalProto(dead.dl.Event); err != nil {
			d.rare.Error("event of a dead letter cannot be read", "", "namespace", namespace, "letter", id, "err", err)
		} else {
			dead.Event = ev
		}
	}
	return &dead.DeadLetter, true, nil
}

// readLetter reads a dead letter; nil if there is none.
func (d *Dispatcher) readLetter(key []byte) (*letter, error) {
	_, id, _ := bytes.Cut(key, []byte{0})
	value, closer, err := d.opts.DB.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read dead letter %s: %w", id, err)
	}
	dead, err := decodeLetter(key, value)
	if err := errors.Join(err, closer.Close()); err != nil {
		return nil, fmt.Errorf("read dead letter %s: %w", id, err)
	}
	return dead, nil
}

// pick calls f with the chosen dead letters: those with the IDs, or, if ids is nil, all of the handler, "" for any.
func (d *Dispatcher) pick(ctx context.Context, namespace string, ids []string, handler string, f func(*letter) error) error {
	if ids != nil {
		for _, id := range ids {
			dead, err := d.readLetter(letterKey(namespace, id))
			if err != nil {
				return err
			}
			if dead == nil || handler != "" && dead.Handler != handler {
				continue
			}
			if err := errors.Join(ctx.Err(), f(dead)); err != nil {
				return err
			}
		}
		return nil
	}
	// In pages, so that no iterator is open while f writes.
	const pageSize = 100
	for after := ""; ; {
		page, next, err := d.letterPage(namespace, handler, after, pageSize)
		if err != nil {
			return err
		}
		for _, dead := range page {
			if err := errors.Join(ctx.Err(), f(dead)); err != nil {
				return err
			}
		}
		if next == "" {
			return nil
		}
		after = next
	}
}

// DeleteDeadLetters removes dead letters for good, those with the given IDs, or all of the handler ("" for any) if ids
// is nil. It returns their number when that is folded here, and ignores IDs that do not exist. Of two requests for the
// same letter the one that comes first in the log gets it, even if they are of two backends.
func (d *Dispatcher) DeleteDeadLetters(ctx context.Context, namespace string, ids []string, handler string) (n int, err error) {
	var all requests
	err = d.pick(ctx, namespace, ids, handler, func(dead *letter) error {
		return all.add(ctx, d, d.partitionOf(dead.dl), wish{key: letterKey(dead.Namespace, dead.ID)})
	})
	if n, err = all.finish(ctx, d, err); err != nil {
		return n, fmt.Errorf("delete dead letters: %w", err)
	}
	return n, nil
}

// shownLetters is how many dead letters the answer to a dry run shows.
const shownLetters = 20

// CountDeadLetters returns how many dead letters DeleteDeadLetters would remove, and the first of them without their
// events.
func (d *Dispatcher) CountDeadLetters(
	ctx context.Context, namespace string, ids []string, handler string,
) (n int, first []delivery.DeadLetter, err error) {
	err = d.pick(ctx, namespace, once(ids), handler, func(dead *letter) error {
		if n++; n <= shownLetters {
			first = append(first, dead.DeadLetter)
		}
		return nil
	})
	if err != nil {
		return 0, nil, fmt.Errorf("count dead letters: %w", err)
	}
	return n, first, nil
}

// once returns IDs without repeats, and nil, which means all, for nil.
func once(ids []string) []string {
	if ids == nil {
		return nil
	}
	return slices.Compact(slices.Sorted(slices.Values(ids)))
}

// expireLetters removes dead letters older than DeadLetterAge.
func (d *Dispatcher) expireLetters(now time.Time) error {
	ctx, cancel := context.WithTimeout(d.ctx, expireTimeout)
	defer cancel()
	before := now.Add(-d.opts.DeadLetterAge).UnixMilli()
	var all requests
	var failed error
	err := d.eachLetter("", nil, func(key []byte, dead *letter) bool {
		if dead.Last < before {
			failed = all.add(ctx, d, d.partitionOf(dead.dl), wish{key: slices.Clone(key)})
		}
		return failed == nil
	})
	_, err = all.finish(ctx, d, errors.Join(err, failed))
	return err
}

// expireTimeout bounds how long a worker waits for the log to remove old dead letters.
const expireTimeout = 5 * time.Second

// countLetters counts the stored dead letters, at the start.
func (d *Dispatcher) countLetters() error {
	return d.eachLetter("", nil, func(_ []byte, dead *letter) bool {
		d.letters.folded(nil, map[resource.Name]int{{Namespace: dead.Namespace, Name: dead.Handler}: 1})
		return true
	})
}

// parseLetterKey returns whose letter it is: the handler, and the lane and message of the delivery. ok is false if it
// is not the key of a letter.
func parseLetterKey(key []byte) (name resource.Name, lane int, seq uint64, ok bool) {
	namespace, id, ok := bytes.Cut(bytes.TrimPrefix(key, []byte("dx")), []byte{0})
	place, handler, ok1 := bytes.Cut(id, []byte("."))
	part, rest, ok2 := bytes.Cut(place, []byte("-"))
	message, _, ok3 := bytes.Cut(rest, []byte("-"))
	lane, err := strconv.Atoi(string(part))
	seq, err1 := strconv.ParseUint(string(message), 10, 64)
	ok = ok && ok1 && ok2 && ok3 && err == nil && err1 == nil
	return resource.Name{Namespace: string(namespace), Name: string(handler)}, lane, seq, ok
}
