package aggregator

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// maxCarbonIntervals bounds the intervals of an output with Options.Carbon between two computations.
const maxCarbonIntervals = 1000

// maxSeconds bounds the time of a point: the year 9999.
const maxSeconds = 253_402_300_799

// output is a series that a rule makes.
type output struct {
	name string
	rule *rule
	task *task // its own with Options.Carbon, else that of its frequency. Guarded by Aggregator.mu.
	at   int   // its index in task.outputs. Guarded by Aggregator.mu.

	mu sync.Mutex // guards the fields below
	// dead says that the aggregator has forgotten the output. A dead one stays dead.
	dead      bool
	intervals []interval // by rising start
	spare     [][]float64
	received  uint64 // since the last computation

	// The sources, each with a slot; none with Options.Carbon. A slot that is free has no source, and NaN in all
	// intervals.
	slots map[string]int32 // by name
	names []string
	last  []int64 // the start of the last interval that has a value of the slot
	free  []int32
}

// interval is the values of an interval.
type interval struct {
	start   int64
	values  []float64 // by slot, NaN where there is none; with Options.Carbon in the order of their coming
	known   int       // values that are not NaN
	changed bool      // since the last emission
	emitted bool
	touched int64 // when the last value came; only with Options.Carbon
}

// reason is why a value was dropped.
type reason uint8

const (
	kept reason = iota
	late
	future
	full
	stale
)

var reasons = [...]string{late: "late", future: "future", full: "full", stale: "stale"}

// add adds a value, and returns why it could not. mu is locked.
func (o *output) add(a *Aggregator, in *Input, unixSeconds int64, value float64) reason {
	switch {
	case unixSeconds < 0:
		return late
	case unixSeconds > maxSeconds:
		return future
	}
	start := series.Floor(unixSeconds, o.rule.frequency)
	iv, reason := o.interval(a, start)
	if reason != kept {
		return reason
	}
	if a.options.Carbon {
		if len(iv.values) >= a.options.MaxPoints {
			return full
		}
		iv.values = append(iv.values, value)
		iv.known++
		iv.touched = time.Now().Unix()
	} else {
		slot := int(in.slot)
		if slot >= len(o.names) || o.names[slot] != in.name {
			if !o.place(a, in) {
				return full
			}
			slot = int(in.slot)
		}
		for len(iv.values) <= slot {
			iv.values = append(iv.values, math.NaN())
		}
		switch old := iv.values[slot]; {
		case old != old:
			iv.known++
			o.last[slot] = max(o.last[slot], start)
		case old == value:
			o.received++
			return kept
		}
		iv.values[slot] = value
	}
	iv.changed = true
	o.received++
	return kept
}

// interval returns the interval that begins at start, a new one if the time allows it.
func (o *output) interval(a *Aggregator, start int64) (*interval, reason) {
	at := len(o.intervals)
	for ; at > 0 && o.intervals[at-1].start >= start; at-- {
		if iv := &o.intervals[at-1]; iv.start == start {
			return iv, kept
		}
	}
	if a.options.Carbon {
		if len(o.intervals) >= maxCarbonIntervals {
			return nil, full
		}
	} else {
		now := time.Now()
		if start < o.oldest(a, now.Unix()) {
			return nil, late
		}
		if start > now.Add(a.options.Future).Unix() {
			return nil, future
		}
	}
	var values []float64
	if n := len(o.spare); n > 0 {
		values = o.spare[n-1]
		o.spare = o.spare[:n-1]
	}
	if !a.options.Carbon {
		values = slices.Grow(values, len(o.names))
		for range o.names {
			values = append(values, math.NaN())
		}
	}
	o.intervals = slices.Insert(o.intervals, at, interval{start: start, values: values})
	return &o.intervals[at], kept
}

// oldest returns the start of the oldest interval that is kept.
func (o *output) oldest(a *Aggregator, now int64) int64 {
	return series.Floor(now, o.rule.frequency) - int64(a.options.MaxIntervals)*o.rule.frequency
}

// place gives a source the slot of its name, a new one if it has none.
func (o *output) place(a *Aggregator, in *Input) bool {
	slot, ok := o.slots[in.name]
	if !ok {
		if a.inputs.Add(1) > int64(a.options.MaxInputs) {
			a.inputs.Add(-1)
			a.metrics.refusedInputs.Inc()
			return false
		}
		if n := len(o.free); n > 0 {
			slot = o.free[n-1]
			o.free = o.free[:n-1]
		} else {
			slot = int32(len(o.names))
			o.names = append(o.names, "")
			o.last = append(o.last, 0)
		}
		o.names[slot], o.last[slot] = in.name, math.MinInt64
		o.slots[in.name] = slot
	}
	in.slot = slot
	return true
}

// release frees the slots of sources without a value in the intervals from oldest on.
func (o *output) release(a *Aggregator, oldest int64) {
	for slot, name := range o.names {
		if o.last[slot] >= oldest {
			continue
		}
		delete(o.slots, name)
		o.names[slot], o.last[slot] = "", math.MaxInt64
		o.free = append(o.free, int32(slot))
		a.inputs.Add(-1)
	}
}

// points returns how many values are kept.
func (o *output) points() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.intervals {
		n += o.intervals[i].known
	}
	return n
}

// result is a value to emit.
type result struct {
	start     int64
	value     float64
	corrected bool
}

// compute appends the results that are due, and drops what is too old. all is for the last computation: it includes the
// intervals that have ended, but not the grace. It returns whether the output has become empty, so that it can be
// forgotten.
func (o *output) compute(a *Aggregator, now time.Time, all bool, c *computation) (empty bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dead {
		return false
	}
	frequency := o.rule.frequency
	grace := a.options.grace(frequency)
	if all {
		grace = 0
	}
	for i := range o.intervals {
		iv := &o.intervals[i]
		ended := (iv.start+frequency)*int64(time.Second)+grace <= now.UnixNano()
		if !iv.changed || !ended && (!a.options.Carbon || all) {
			continue
		}
		c.values = c.values[:0]
		for _, v := range iv.values {
			if v == v {
				c.values = append(c.values, v)
			}
		}
		iv.changed = false
		if v := o.rule.method.of(c.values); v == v { // infinite values can cancel each other
			c.results = append(c.results, result{iv.start, v, iv.emitted})
			iv.emitted = true
		}
	}
	a.received.Add(o.received)
	a.metrics.received.Add(float64(o.received))
	o.received = 0

	oldest := o.oldest(a, now.Unix())
	o.drop(a, oldest)
	if !a.options.Carbon {
		o.release(a, oldest)
	}
	return len(o.intervals) == 0 && len(o.slots) == 0
}

// drop forgets the intervals that are kept no longer.
func (o *output) drop(a *Aggregator, oldest int64) {
	remaining := o.intervals[:0]
	for i := range o.intervals {
		iv := o.intervals[i]
		old := iv.start < oldest
		if a.options.Carbon {
			// The newest MaxIntervals+2, and of these only those that got a value lately.
			old = iv.touched < oldest || i < len(o.intervals)-a.options.MaxIntervals-2
		}
		if !old {
			remaining = append(remaining, iv)
			continue
		}
		// Two are enough: an interval a tick goes, and one comes.
		if len(o.spare) < 2 && !a.options.Carbon {
			o.spare = append(o.spare, iv.values[:0])
		}
	}
	clear(o.intervals[len(remaining):])
	o.intervals = remaining
}

// die empties the output. mu is locked.
func (o *output) die(a *Aggregator) {
	o.dead = true
	a.inputs.Add(-int64(len(o.slots)))
	o.intervals, o.spare, o.slots, o.names, o.last, o.free = nil, nil, nil, nil, nil, nil
}
