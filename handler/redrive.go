package handler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lapwing-monitoring/lapwing/delivery"
)

// redriving is a choice of dead letters that are to be sent again. It has no events: there may be as many letters as are
// kept.
type redriving struct {
	d       *Dispatcher
	choice  delivery.Redrive
	chosen  []redriven
	told    delivery.Redriven
	missing map[string]bool    // handlers
	failing map[checkName]bool // the checks that were looked up
}

// redriven is one of them.
type redriven struct {
	key       []byte
	partition int
	event     position // of its event in the log
}

type checkName struct {
	namespace string
	pair
}

// Redrive sends dead letters again, as if their events came now but with the same key. Those of one check go in the
// order in which their events came. Dead letters of a handler that is not defined stay: they would be dropped. The owner
// of a letter's partition sends it, even if that is another backend.
func (d *Dispatcher) Redrive(ctx context.Context, choice delivery.Redrive) (delivery.Redriven, error) {
	r := redriving{d: d, choice: choice, missing: map[string]bool{}, failing: map[checkName]bool{}}
	ids := choice.IDs
	if ids != nil {
		ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	}
	err := d.pick(ctx, choice.Namespace, ids, choice.Handler, r.consider)
	for name := range r.missing {
		r.told.MissingHandlers = append(r.told.MissingHandlers, name)
	}
	slices.Sort(r.told.MissingHandlers)
	switch {
	case err != nil:
	case choice.DryRun:
		r.told.Count = len(r.chosen)
	default:
		r.told.Count, err = r.send(ctx)
	}
	if err != nil {
		return r.told, fmt.Errorf("redrive dead letters: %w", err)
	}
	return r.told, nil
}

// consider chooses a dead letter, or leaves it out.
func (r *redriving) consider(dead *letter) error {
	if _, ok := r.d.lookup(dead.Namespace, dead.Handler); !ok {
		r.told.NoHandler++
		r.missing[dead.Handler] = true
		return nil
	}
	passed, err := r.hasPassed(dead)
	if err != nil {
		return err
	}
	if passed {
		if r.told.Passed++; r.choice.FailingOnly {
			return nil
		}
	}
	if dead.dl.Resolution {
		r.told.Resolutions++
	}
	r.chosen = append(r.chosen, redriven{letterKey(dead.Namespace, dead.ID), r.d.partitionOf(dead.dl), eventPosition(dead.dl)})
	return nil
}

// hasPassed reports whether the event of a dead letter fails, and the check does not fail now.
func (r *redriving) hasPassed(dead *letter) (bool, error) {
	if dead.Status == 0 {
		return false, nil
	}
	c := checkName{dead.Namespace, pair{dead.Entity, dead.Check}}
	failing, known := r.failing[c]
	if !known {
		ev, err := r.d.opts.Present(c.namespace, c.entity, c.check)
		if err != nil {
			return false, fmt.Errorf("look up the event %s/%s: %w", c.entity, c.check, err)
		}
		failing = ev != nil && ev.Check != nil && ev.Check.Status != 0
		r.failing[c] = failing
	}
	return !failing, nil
}

// send has the log send the chosen ones. Their order in the records of a partition is the order in which they are queued.
func (r *redriving) send(ctx context.Context) (int, error) {
	slices.SortStableFunc(r.chosen, func(a, b redriven) int {
		return cmp.Or(cmp.Compare(a.event.seq, b.event.seq), cmp.Compare(a.event.sub, b.event.sub))
	})
	var all requests
	var err error
	for i := 0; i < len(r.chosen) && err == nil; i++ {
		c := &r.chosen[i]
		err = all.add(ctx, r.d, c.partition, wish{key: c.key, redrive: true, pos: r.d.nextLocal()})
	}
	return all.finish(ctx, r.d, err)
}

// eventPosition returns where the event of a delivery is in the log of its entity. The delivery's own position is
// another one if it was sent again before.
func eventPosition(dl *delivery.Delivery) position {
	_, place, _ := strings.Cut(cmp.Or(dl.EventID, delivery.EventIDOf(dl.ID)), "-")
	seq, sub, _ := strings.Cut(place, "-")
	var at position
	at.seq, _ = strconv.ParseUint(seq, 10, 64) // 0 for an ID of another form
	n, _ := strconv.ParseUint(sub, 10, 32)
	at.sub = uint32(n)
	return at
}
