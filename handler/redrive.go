package handler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// redriving is a choice of dead letters that are to be sent again. It has no events: there may be as many letters as are
// kept.
type redriving struct {
	d       *Dispatcher
	choice  delivery.Redrive
	chosen  []redriven
	told    delivery.Redriven
	missing map[string]bool        // handlers
	now     map[checkName]checkNow // the checks that were looked up
	routes  map[route]int          // with the choice of the newest: their indexes in newest
	newest  []rank                 // of the newest letter of each route
}

// redriven is one of them.
type redriven struct {
	key       []byte
	partition int
	rank
	route int // an index of redriving.newest
	// passed is as Redriven counts it, and resolution too.
	passed, resolution bool
}

// rank is the order of the letters of a check: the place of the event in the log, then the step of an escalation.
type rank struct {
	event position
	step  int
}

func (m rank) compare(o rank) int {
	return cmp.Or(m.event.compare(o.event), cmp.Compare(m.step, o.step))
}

type checkName struct {
	namespace string
	pair
}

// route is a way that several events take, from a pair to a handler.
type route struct {
	checkName
	handler string
}

// checkNow is how a check stands.
type checkNow struct {
	failing bool
	lastOK  int64 // when it was executed that passed last, Unix seconds; 0 if never
}

// Redrive sends dead letters again, as if their events came now but with the same key. Those of one check go in the
// order in which their events came. Dead letters of a handler that is not defined stay: they would be dropped. The owner
// of a letter's partition sends it, even if that is another backend.
func (d *Dispatcher) Redrive(ctx context.Context, choice delivery.Redrive) (delivery.Redriven, error) {
	r := redriving{d: d, choice: choice, missing: map[string]bool{}, now: map[checkName]checkNow{}, routes: map[route]int{}}
	err := d.pick(ctx, choice.Namespace, once(choice.IDs), choice.Handler, r.consider)
	for name := range r.missing {
		r.told.MissingHandlers = append(r.told.MissingHandlers, name)
	}
	slices.Sort(r.told.MissingHandlers)
	if choice.Newest {
		r.leaveOlder()
	}
	for i := range r.chosen {
		if r.chosen[i].passed {
			r.told.Passed++
		}
		if r.chosen[i].resolution {
			r.told.Resolutions++
		}
	}
	switch {
	case err != nil:
	case choice.DryRun:
		r.told.Count = len(r.chosen)
		r.told.Letters, err = r.first()
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
	if passed && r.choice.FailingOnly {
		r.told.Passed++
		return nil
	}
	c := redriven{
		key: letterKey(dead.Namespace, dead.ID), partition: r.d.partitionOf(dead.dl), rank: rank{eventPosition(dead.dl), dead.dl.Step},
		passed: passed, resolution: dead.dl.Resolution,
	}
	if r.choice.Newest {
		c.route = r.routeOf(dead.dl)
		if c.compare(r.newest[c.route]) > 0 {
			r.newest[c.route] = c.rank
		}
	}
	r.chosen = append(r.chosen, c)
	return nil
}

// routeOf returns the index of a delivery's route in newest.
func (r *redriving) routeOf(dl *delivery.Delivery) int {
	way := route{checkName{dl.Namespace, pairOf(dl)}, dl.Handler}
	i, known := r.routes[way]
	if !known {
		i = len(r.newest)
		r.routes[way] = i
		r.newest = append(r.newest, rank{})
	}
	return i
}

// leaveOlder leaves out all but the newest letter of each route. If several pipelines led the newest event to the
// handler, it has several letters, and all of them stay chosen.
func (r *redriving) leaveOlder() {
	all := len(r.chosen)
	r.chosen = slices.DeleteFunc(r.chosen, func(c redriven) bool { return c.rank != r.newest[c.route] })
	r.told.Older = all - len(r.chosen)
}

// hasPassed reports whether a dead letter says what is no longer so: it is of an incident that has passed, or a resolution and
// the check fails again. Of an incident from which the present one is apart by a result that passed, too.
func (r *redriving) hasPassed(dead *letter) (bool, error) {
	c := checkName{dead.Namespace, pair{entity: dead.Entity, check: dead.Check}}
	present, known := r.now[c]
	if !known {
		ev, err := r.d.opts.Present(c.namespace, c.entity, c.check)
		if err != nil {
			return false, fmt.Errorf("look up the event %s/%s: %w", c.entity, c.check, err)
		}
		if ev != nil && ev.Check != nil {
			present = checkNow{ev.Check.Status != 0, ev.Check.LastOK}
		}
		r.now[c] = present
	}
	switch {
	case dead.Status == 0:
		return present.failing, nil
	case !present.failing:
		return true, nil
	}
	ev := new(resource.Event)
	if present.lastOK == 0 || ev.UnmarshalProto(dead.dl.Event) != nil || ev.Check == nil { // an older release did not keep it
		return false, nil
	}
	return ev.Check.Executed != 0 && ev.Check.Executed < present.lastOK, nil
}

// sort puts the chosen ones in the order in which they are sent.
func (r *redriving) sort() {
	slices.SortStableFunc(r.chosen, func(a, b redriven) int { return a.compare(b.rank) })
}

// first reads the first of the chosen ones that are shown.
func (r *redriving) first() (letters []delivery.DeadLetter, err error) {
	r.sort()
	for _, c := range r.chosen[:min(len(r.chosen), shownLetters)] {
		dead, err := r.d.readLetter(c.key)
		if err != nil {
			return nil, err
		}
		if dead != nil { // another request may have deleted it
			letters = append(letters, dead.DeadLetter)
		}
	}
	return letters, nil
}

// send has the log send the chosen ones. Their order in the records of a partition is the order in which they are queued.
func (r *redriving) send(ctx context.Context) (int, error) {
	r.sort()
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
