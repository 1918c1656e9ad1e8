package handler

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/oncall"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// An escalation learns from notices what became of the deliveries of its steps. The end of such a delivery leaves a notice
// in the same report, so that no crash and no change of the owner keeps one without the other. All members fold it, also if
// the handler groups and so another member sent the delivery. The fold wakes the escalation, which moves what it reads to its
// own progress and removes the notice. There is one notice at most for each recipient of a step.
//
// The keys begin with that of the mark which noteAlert would store for the escalation's handler. That key alone has the ID of
// the escalation that goes on: without it no notice is left, and an escalation that is over leaves nothing behind.

// fate is what became of a delivery.
type fate byte

const (
	underWay fate = iota
	arrived
	failed // all attempts failed, or it was given up
	denied // a filter or a silence of its handler denied it
)

func fateOf(v trace.Verdict) fate {
	switch v {
	case trace.Delivered, trace.Merged:
		return arrived
	case trace.Dead, trace.Dropped, trace.Failed:
		return failed
	}
	return denied
}

// recipient is a recipient of an escalation, and what became of the delivery of the last step that notified it.
type recipient struct {
	oncall.Recipient
	step    int   // that step's number in all; 0 if an earlier release took it: then no notice comes
	at      int64 // when it was taken, Unix milliseconds
	fate    fate
	reached bool   // by this step or an earlier one
	reason  string // why it failed or was denied
}

// maxNoticeReason bounds the reason in a notice.
const maxNoticeReason = 160

// noticeKey returns the key of a notice. prefix is the alertKey of the escalation's handler.
func noticeKey(prefix []byte, contact, handler string, step int) []byte {
	b := bytes.Clone(prefix)
	for _, s := range [...]string{contact, handler} {
		b = append(append(b, s...), 0)
	}
	return binary.BigEndian.AppendUint32(b, uint32(step))
}

// noteEnd returns the notice of the end of an escalation's delivery, as a change of the log.
func (d *Dispatcher) noteEnd(it *item, tr *trace.Delivery) []change {
	if it.Escalation == "" || it.Step == 0 {
		return nil
	}
	of := *it.Delivery
	of.Handler = it.Escalation
	prefix := alertKey(&item{Delivery: &of})
	id, closer, err := d.opts.DB.Get(prefix)
	if err != nil { // it is over
		if !errors.Is(err, pebble.ErrNotFound) {
			d.metrics.storeErrors.Inc()
		}
		return nil
	}
	ours := strings.HasPrefix(it.ID, string(id)+"/")
	value := fields.AppendBytes(nil, string(id))
	if closer.Close() != nil || !ours {
		return nil
	}
	value = append(value, byte(fateOf(tr.Verdict)))
	value = fields.AppendBytes(value, short(tr.Reason))
	return []change{{key: noticeKey(prefix, it.Contact, it.Handler, it.Step), value: value}}
}

func short(reason string) string {
	return strings.ToValidUTF8(reason[:min(len(reason), maxNoticeReason)], "")
}

// readNotices moves the notices of an escalation to c. It returns their keys, and the steps about which there is news.
func (d *Dispatcher) readNotices(it *item, c *climb) (keys [][]byte, steps map[int]bool, err error) {
	prefix := alertKey(it)
	iter, err := d.opts.DB.NewIter(&pebble.IterOptions{LowerBound: append(bytes.Clone(prefix), 0), UpperBound: append(bytes.Clone(prefix), 0xff)})
	if err != nil {
		return nil, nil, err
	}
	steps = map[int]bool{}
	for ok := iter.First(); ok; ok = iter.Next() {
		key := bytes.Clone(iter.Key())
		keys = append(keys, key)
		contact, rest, ok1 := bytes.Cut(key[len(prefix):], []byte{0})
		handler, number, ok2 := bytes.Cut(rest, []byte{0})
		value, bad := iter.ValueAndErr()
		if bad != nil {
			err = bad
			break
		}
		r := fields.NewReader(value)
		id, end, reason := r.Text(), fate(r.Byte()), r.Text()
		if !ok1 || !ok2 || len(number) != 4 || r.Err() != nil || id != it.ID {
			continue
		}
		step := int(binary.BigEndian.Uint32(number))
		for i := range c.notified {
			one := &c.notified[i]
			if one.Contact != string(contact) || one.Handler != string(handler) {
				continue
			}
			now := *one
			now.reached = one.reached || end == arrived
			if step == one.step {
				now.fate, now.reason = end, reason
			}
			if now != *one {
				*one, steps[one.step] = now, true
			}
		}
		for i := range c.earlier {
			if one := &c.earlier[i]; one.Contact == string(contact) && one.Handler == string(handler) && one.step == step {
				one.fate, one.reason, steps[step] = end, reason, true
			}
		}
	}
	return keys, steps, errors.Join(err, iter.Error(), iter.Close())
}

// forgetNotices ends the notices of an escalation that is over. It returns the changes for the log.
func (d *Dispatcher) forgetNotices(it *item) []change {
	if it.climb == nil || it.climb.taken == 0 {
		return nil
	}
	mark := change{key: alertKey(it)}
	if err := it.ledger.mark(mark); err != nil {
		d.rare.Error("mark of an escalation could not be removed", "", "delivery", it.ID, "err", err)
	}
	keys, _, err := d.readNotices(it, it.climb.clone())
	if err != nil {
		d.metrics.storeErrors.Inc()
	}
	gone := []change{mark}
	for _, key := range keys {
		gone = append(gone, change{key: key})
	}
	return gone
}

// noticeOf reports whether a key is that of a notice, and of which handler and pair.
func noticeOf(key []byte) (name resource.Name, p pair, ok bool) {
	parts := bytes.SplitN(key[2:], []byte{0}, 5)
	if key[1] != 'a' || len(parts) < 5 || len(parts[4]) == 0 {
		return name, p, false
	}
	return resource.Name{Namespace: string(parts[0]), Name: string(parts[1])}, pair{entity: string(parts[2]), check: string(parts[3])}, true
}

// wakeEscalation makes the escalation of a pair look at its notices.
func (d *Dispatcher) wakeEscalation(name resource.Name, p pair) {
	d.mu.RLock()
	q := d.queues[name]
	d.mu.RUnlock()
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.chains[p]
	switch {
	case c == nil || !c.climbs:
	case c.index > 0:
		q.unwait(c)
		q.turn(c)
	default: // it may run, and have looked before
		c.noticed = true
	}
}
