package handler

import (
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// This file has the order of deliveries under overload: docs/overload.md describes it to users.

// One turn in shareEvery goes to the lower classes, and these take such turns in rotation. So each class gets at least
// one in shareEvery * (delivery.Classes - 1).
const shareEvery = 8

// rotation hands out turns by class.
type rotation struct{ turns uint }

// first returns the class that the next turn belongs to; if it has nothing, the turn goes to the first class that has.
func (r *rotation) first() delivery.Class {
	if (r.turns+1)%shareEvery != 0 {
		return delivery.Change
	}
	return delivery.Change + 1 + delivery.Class((r.turns+1)/shareEvery%(delivery.Classes-1))
}

// next returns the class whose turn it is, of those that have something.
func (r *rotation) next(has func(delivery.Class) bool) (c delivery.Class, ok bool) {
	if c = r.first(); has(c) {
		return c, true
	}
	for c = range delivery.Classes {
		if has(c) {
			return c, true
		}
	}
	return 0, false
}

// lasts has, for each class, the number of the last delivery of a row that was numbered in its order. A row is in the
// class of its most urgent delivery, because the earlier ones have to go first.
type lasts [delivery.Classes]uint64

// class returns the class of a row whose first delivery has the number from.
func (l *lasts) class(from uint64) delivery.Class {
	for c, last := range l {
		if last >= from {
			return delivery.Class(c)
		}
	}
	return delivery.Classes - 1
}

// counts are numbers of deliveries by class.
type counts [delivery.Classes]int

func (c *counts) sum() (n int) {
	for _, of := range c {
		n += of
	}
	return n
}

// mayShed reports whether a delivery of a class is shed while as many deliveries are on disk. The caller holds mu.
func (q *queue) mayShed(c delivery.Class) bool {
	most := q.d.opts.QueueDisk
	if most == 0 {
		return false
	}
	switch c {
	case delivery.Failing:
		return q.spilled.sum() >= most
	case delivery.Unchanged:
		return q.spilled.sum() >= most-most/4
	case delivery.MetricsOnly:
		return q.spilled.sum() >= most/2
	}
	return false
}

// shed ends a delivery without a turn. The log has it already if it was handed over. The caller holds mu.
func (q *queue) shed(it *item, c delivery.Class) {
	q.sheds[c]++
	if it.stored {
		it.ledger.discard(it.key())
	}
	q.d.rare.Error("deliveries are shed: too many of the handler are on disk", q.name.String()+c.String(),
		"namespace", q.name.Namespace, "handler", q.name.Name, "class", c.String(), "on_disk", q.spilled.sum())
	if it.Incident {
		q.d.report(q.d.verdict(it, trace.Dropped, "too many deliveries of the handler were on disk"))
	}
	if q.d.onFinish != nil {
		q.d.onFinish(it.Delivery, trace.Dropped)
	}
}
