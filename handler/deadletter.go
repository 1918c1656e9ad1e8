package handler

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// ErrNotFound says that there is no such dead letter.
var ErrNotFound = errors.New("not found")

// maxHops bounds how many fallbacks come one after the other, should they lead in a circle.
const maxHops = 16

// maxReason and maxOutput bound what a dead letter keeps of its last attempt.
const (
	maxReason = 4 << 10
	maxOutput = 4 << 10
)

// DeadLetter is a delivery that could not be handed over, and will not be unless somebody has it sent again.
type DeadLetter struct {
	// ID names it in its namespace; Key is the delivery's own ID, which the handler got with each attempt.
	ID, Key               string
	Namespace, Handler    string
	Pipeline, Workflow    string
	Entity, Check         string
	Reason, Output        string // of the last attempt
	Attempts              int
	Received, First, Last time.Time // of the event, and of the attempts
	Status                uint32
	Incident, Resolution  bool
	Event                 func() (*resource.Event, error)
	delivery              *Delivery
}

// letterID is made of the delivery's place, so that after a crash the same delivery becomes the same dead letter.
func letterID(dl *Delivery) string {
	return fmt.Sprintf("%d-%d-%d.%s", dl.Partition, dl.Seq, dl.Sub, dl.Handler)
}

func letterKey(namespace, id string) []byte {
	b := append([]byte("dx"), namespace...)
	b = append(b, 0)
	return append(b, id...)
}

func encodeLetter(dl *Delivery, p progress, last int64, reason, output string) []byte {
	b := []byte{1}
	b = binary.AppendUvarint(b, uint64(p.attempts))
	b = binary.AppendVarint(b, p.first)
	b = binary.AppendVarint(b, last)
	b = appendString(b, strings.ToValidUTF8(reason[:min(len(reason), maxReason)], ""))
	b = appendString(b, strings.ToValidUTF8(output[:min(len(output), maxOutput)], ""))
	b = appendString(b, dl.Handler)
	b = binary.AppendUvarint(b, uint64(dl.Partition))
	b = binary.AppendUvarint(b, dl.Seq)
	b = binary.AppendUvarint(b, uint64(dl.Sub))
	return appendDelivery(b, dl)
}

func decodeLetter(key, value []byte) (*DeadLetter, error) {
	namespace, id, ok := bytes.Cut(bytes.TrimPrefix(key, []byte("dx")), []byte{0})
	if !ok || len(value) == 0 || value[0] != 1 {
		return nil, errMalformed
	}
	dead := &DeadLetter{ID: string(id), Namespace: string(namespace)}
	value = value[1:]
	number := func() (n uint64) {
		n, size := binary.Uvarint(value)
		if size <= 0 {
			ok = false
			return 0
		}
		value = value[size:]
		return n
	}
	date := func() time.Time {
		n, size := binary.Varint(value)
		if size <= 0 {
			ok = false
			return time.Time{}
		}
		value = value[size:]
		if n == 0 {
			return time.Time{}
		}
		return time.UnixMilli(n)
	}
	text := func() (s string) {
		s, rest, err := cutString(value)
		if err != nil {
			ok = false
			return ""
		}
		value = rest
		return s
	}
	dead.Attempts = int(number())
	dead.First, dead.Last = date(), date()
	dead.Reason, dead.Output, dead.Handler = text(), text(), text()
	partition, seq, sub := number(), number(), number()
	if !ok {
		return nil, errMalformed
	}
	dl, err := decodeDelivery(resource.Name{Namespace: dead.Namespace, Name: dead.Handler}, int(partition), position{seq, uint32(sub)}, value)
	if err != nil {
		return nil, err
	}
	dead.delivery = dl
	dead.Key, dead.Pipeline, dead.Workflow, dead.Entity, dead.Check = dl.ID, dl.Pipeline, dl.Workflow, dl.Entity, dl.Check
	dead.Status, dead.Incident, dead.Resolution = dl.Status, dl.Incident, dl.Resolution
	if dl.Received > 0 {
		dead.Received = time.UnixMilli(dl.Received)
	}
	dead.Event = func() (*resource.Event, error) {
		if dl.Event == nil {
			return nil, errors.New("the event was not kept: the delivery is of an older release")
		}
		ev := new(resource.Event)
		if err := ev.UnmarshalProto(dl.Event); err != nil {
			return nil, fmt.Errorf("decode event of dead letter %s: %w", dead.ID, err)
		}
		return ev, nil
	}
	return dead, nil
}

// bury ends a delivery as a dead letter, and lets others take its place if the workflow has some.
func (d *Dispatcher) bury(it *item, dl *Delivery, ev *resource.Event, at attempt, p progress, tr *trace.Delivery) {
	last := time.Now()
	d.metrics.dead.WithLabelValues(it.Handler).Inc()
	var with []change
	if d.roomForLetter(resource.Name{Namespace: it.Namespace, Name: it.Handler}, last) {
		with = append(with, change{letterKey(it.Namespace, letterID(it.Delivery)), encodeLetter(dl, p, last.UnixMilli(), at.reason, string(at.res.Output))})
	} else {
		d.metrics.deadDropped.Inc()
		d.rare.Error("dead letter is not kept: there are too many", it.Namespace+"/"+it.Handler, "namespace", it.Namespace, "handler", it.Handler, "delivery", it.ID)
	}
	if ev != nil && dl.hops < maxHops {
		if fallback := d.workflow.Fallback(dl, ev); len(fallback) > 0 {
			for _, f := range fallback {
				f.hops = dl.hops + 1
			}
			// They are stored before the origin is finished: a crash in between repeats them with the same IDs.
			if err := d.addLocal(nil, fallback...); err != nil {
				d.metrics.storeErrors.Inc()
				d.rare.Error("fallback deliveries could not be stored and are lost", "", "delivery", it.ID, "err", err)
			}
		}
	}
	d.finish(it, tr, with...)
}

// roomForLetter says whether another dead letter of a handler can be kept, and counts it. When there are too many it looks for
// old ones first.
func (d *Dispatcher) roomForLetter(name resource.Name, now time.Time) bool {
	if d.letters.take(name, d.opts.DeadLetters) {
		return true
	}
	if !d.letters.mayExpire(now) {
		return false
	}
	if err := d.expireLetters(now); err != nil {
		d.metrics.storeErrors.Inc()
		d.log.Error("old dead letters could not be removed", "err", err)
	}
	return d.letters.take(name, d.opts.DeadLetters)
}

// eachLetter calls f with the dead letters of a namespace, or of all if it is "", from a key on, until f returns false.
func (d *Dispatcher) eachLetter(namespace string, from []byte, f func(key []byte, dead *DeadLetter) bool) error {
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
			break // it.Error tells
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

// DeadLetters returns up to limit dead letters of a namespace and a handler, "" for all, behind the one that after names.
// If there are more, next is for the next call. A delivery that just died may not be among them for some milliseconds.
func (d *Dispatcher) DeadLetters(namespace, handler, after string, limit int) (letters []DeadLetter, next string, err error) {
	var from []byte
	if after != "" {
		name := namespace
		if namespace == "" {
			name, after, _ = strings.Cut(after, "/")
		}
		from = append(letterKey(name, after), 0)
	}
	err = d.eachLetter(namespace, from, func(_ []byte, dead *DeadLetter) bool {
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
		letters = append(letters, *dead)
		return true
	})
	if err != nil {
		return nil, "", fmt.Errorf("read dead letters: %w", err)
	}
	return letters, next, nil
}

// DeadLetter returns one.
func (d *Dispatcher) DeadLetter(namespace, id string) (DeadLetter, error) {
	value, closer, err := d.opts.DB.Get(letterKey(namespace, id))
	if errors.Is(err, pebble.ErrNotFound) {
		return DeadLetter{}, fmt.Errorf("dead letter %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return DeadLetter{}, fmt.Errorf("read dead letter %s: %w", id, err)
	}
	dead, err := decodeLetter(letterKey(namespace, id), value)
	if err := errors.Join(err, closer.Close()); err != nil {
		return DeadLetter{}, fmt.Errorf("read dead letter %s: %w", id, err)
	}
	return *dead, nil
}

// pick finds the dead letters that are meant: those with the IDs, or, if ids is nil, all of the handler, "" for any.
func (d *Dispatcher) pick(ctx context.Context, namespace string, ids []string, handler string, f func(*DeadLetter) error) error {
	if ids != nil {
		for _, id := range ids {
			dead, err := d.DeadLetter(namespace, id)
			if errors.Is(err, ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			if handler != "" && dead.Handler != handler {
				continue
			}
			if err := errors.Join(ctx.Err(), f(&dead)); err != nil {
				return err
			}
		}
		return nil
	}
	// In pages, so that nothing is held open while f writes.
	const pageSize = 100
	for after := ""; ; {
		page, next, err := d.DeadLetters(namespace, handler, after, pageSize)
		if err != nil {
			return err
		}
		for i := range page {
			if err := errors.Join(ctx.Err(), f(&page[i])); err != nil {
				return err
			}
		}
		if next == "" {
			return nil
		}
		after = next
	}
}

// Redrive has dead letters sent again, as if their events came now but with the same key: those with the given IDs, or
// all of the handler ("" for any) if ids is nil. It returns how many those are; what is not there is passed over.
func (d *Dispatcher) Redrive(ctx context.Context, namespace string, ids []string, handler string) (n int, err error) {
	err = d.pick(ctx, namespace, ids, handler, func(dead *DeadLetter) error {
		d.lettersMu.Lock()
		defer d.lettersMu.Unlock()
		key := letterKey(dead.Namespace, dead.ID)
		if there, err := d.has(key); err != nil || !there {
			return err // somebody else was quicker
		}
		b := d.opts.DB.NewBatch()
		defer b.Close()
		if err := b.Delete(key, nil); err != nil {
			return err
		}
		dl := *dead.delivery
		dl.Received = 0 // its age counts from now
		if err := d.addLocal(b, &dl); err != nil {
			return err
		}
		d.letters.add(resource.Name{Namespace: dead.Namespace, Name: dead.Handler}, -1)
		n++
		return nil
	})
	if err != nil {
		return n, fmt.Errorf("redrive dead letters: %w", err)
	}
	return n, nil
}

// DeleteDeadLetters removes dead letters for good, chosen as for Redrive.
func (d *Dispatcher) DeleteDeadLetters(ctx context.Context, namespace string, ids []string, handler string) (n int, err error) {
	err = d.pick(ctx, namespace, ids, handler, func(dead *DeadLetter) error {
		gone, err := d.removeLetter(letterKey(dead.Namespace, dead.ID), resource.Name{Namespace: dead.Namespace, Name: dead.Handler})
		if gone {
			n++
		}
		return err
	})
	if err != nil {
		return n, fmt.Errorf("delete dead letters: %w", err)
	}
	return n, nil
}

func (d *Dispatcher) removeLetter(key []byte, name resource.Name) (bool, error) {
	d.lettersMu.Lock()
	defer d.lettersMu.Unlock()
	if there, err := d.has(key); err != nil || !there {
		return false, err
	}
	if err := d.opts.DB.Delete(key, pebble.NoSync); err != nil {
		return false, err
	}
	d.letters.add(name, -1)
	return true, nil
}

func (d *Dispatcher) has(key []byte) (bool, error) {
	_, closer, err := d.opts.DB.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, closer.Close()
}

// expireLetters removes those older than DeadLetterAge.
func (d *Dispatcher) expireLetters(now time.Time) error {
	type old struct {
		key  []byte
		name resource.Name
	}
	var olds []old
	before := now.Add(-d.opts.DeadLetterAge)
	err := d.eachLetter("", nil, func(key []byte, dead *DeadLetter) bool {
		if dead.Last.Before(before) {
			olds = append(olds, old{slices.Clone(key), resource.Name{Namespace: dead.Namespace, Name: dead.Handler}})
		}
		return true
	})
	for _, o := range olds {
		if _, removeErr := d.removeLetter(o.key, o.name); removeErr != nil {
			return errors.Join(err, removeErr)
		}
	}
	return err
}

// countLetters is for the start.
func (d *Dispatcher) countLetters() error {
	return d.eachLetter("", nil, func(_ []byte, dead *DeadLetter) bool {
		d.letters.add(resource.Name{Namespace: dead.Namespace, Name: dead.Handler}, 1)
		return true
	})
}
