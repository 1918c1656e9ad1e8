package aggregator

import (
	"container/heap"
	"context"
	"math"
	"time"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// longestWait bounds the wait for the first task, so that a step of the clock does not delay it for long.
const longestWait = time.Second

// correctionTime is how often outputs with a longer frequency are looked at for late values, in seconds.
const correctionTime = 60

// task is outputs that are computed at the same time.
type task struct {
	due    int64 // Unix nanoseconds
	period int64 // nanoseconds; at most this long until it is due
	// frequency is that of all outputs, in seconds, or 0 with Options.Carbon.
	frequency int64
	outputs   []*output
	index     int // in the schedule
}

// schedule is a heap of tasks.
type schedule []*task

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].due < s[j].due }
func (s schedule) Swap(i, j int)      { s[i], s[j] = s[j], s[i]; s[i].index, s[j].index = i, j }

// Push is for heap.
func (s *schedule) Push(x any) {
	t := x.(*task)
	t.index = len(*s)
	*s = append(*s, t)
}

// Pop is for heap.
func (s *schedule) Pop() any {
	last := len(*s) - 1
	t := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	return t
}

// next returns when a task is due after now, in nanoseconds.
func (t *task) next(o *Options, now int64) int64 {
	if t.frequency == 0 {
		// As carbon's timer: the phase stays, and missed computations are left out.
		return max(t.due+t.period, now+t.period-series.FloorMod(now-t.due, t.period))
	}
	grace := o.grace(t.frequency)
	first := int64(math.MaxInt64)
	for _, seconds := range []int64{t.frequency, correctionTime} {
		period := seconds * int64(time.Second)
		first = min(first, series.Floor(now-grace, period)+period+grace)
	}
	return first
}

// schedule adds an output to the task of its frequency, or makes one for it. mu is locked.
func (a *Aggregator) schedule(o *output) {
	t := a.groups[o.rule.frequency]
	if t == nil {
		t = &task{}
		now := time.Now().UnixNano()
		if a.options.Carbon {
			t.period = o.rule.frequency * int64(time.Second)
			t.due = now + t.period
		} else {
			t.frequency = o.rule.frequency
			t.period = min(t.frequency, correctionTime) * int64(time.Second)
			t.due = t.next(&a.options, now)
			a.groups[t.frequency] = t
		}
		heap.Push(&a.queue, t)
		if t.index == 0 {
			a.wakeUp()
		}
	}
	o.task, o.at = t, len(t.outputs)
	t.outputs = append(t.outputs, o)
}

// unschedule takes an output out of its task, and the task out of the schedule if it has no other. mu is locked.
func (a *Aggregator) unschedule(o *output) {
	t, last := o.task, len(o.task.outputs)-1
	t.outputs[o.at] = t.outputs[last]
	t.outputs[o.at].at = o.at
	t.outputs[last] = nil
	t.outputs = t.outputs[:last]
	if last > 0 {
		return
	}
	heap.Remove(&a.queue, t.index)
	delete(a.groups, t.frequency)
}

func (a *Aggregator) wakeUp() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// computation is the goroutine's memory.
type computation struct {
	outputs []*output
	results []result
	values  []float64
}

func (a *Aggregator) run(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	timer := time.NewTimer(longestWait)
	defer timer.Stop()
	var c computation
	for {
		wait := a.work(&c)
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			a.flush(&c)
			return
		case <-timer.C:
		case <-a.wake:
		}
	}
}

// work does the tasks that are due, and returns how long to wait for the next.
func (a *Aggregator) work(c *computation) time.Duration {
	for {
		now := time.Now()
		a.mu.Lock()
		retired := a.retired
		a.retired = nil
		c.outputs = c.outputs[:0]
		wait := longestWait
		if len(a.queue) > 0 {
			t := a.queue[0]
			left := t.due - now.UnixNano()
			if left > t.period { // the clock was set back
				t.due = now.UnixNano() + t.period
				if t.frequency > 0 {
					t.due = t.next(&a.options, now.UnixNano())
				}
				heap.Fix(&a.queue, t.index)
				a.mu.Unlock()
				a.retire(retired, c)
				continue
			}
			if left <= 0 {
				c.outputs = append(c.outputs, t.outputs...)
				t.due = t.next(&a.options, now.UnixNano())
				heap.Fix(&a.queue, t.index)
				wait = 0
			} else {
				wait = min(wait, time.Duration(left))
			}
		}
		a.mu.Unlock()
		a.retire(retired, c)
		for _, o := range c.outputs {
			if a.compute(o, now, false, c) {
				a.forget(o)
			}
		}
		clear(c.outputs)
		if wait > 0 {
			return wait
		}
	}
}

// compute emits the results of an output that are due, and tells whether it is empty.
func (a *Aggregator) compute(o *output, now time.Time, all bool, c *computation) (empty bool) {
	c.results = c.results[:0]
	empty = o.compute(a, now, all, c)
	for _, r := range c.results {
		a.options.Emit(o.name, r.start, r.value)
		a.sent.Add(1)
		if r.corrected {
			a.metrics.corrected.Inc()
		} else {
			a.metrics.first.Inc()
		}
	}
	return empty
}

// forget frees an output that is empty.
func (a *Aggregator) forget(o *output) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dead || len(o.intervals) > 0 || len(o.slots) > 0 || a.outputs[o.name] != o {
		return
	}
	o.die(a)
	delete(a.outputs, o.name)
	a.unschedule(o)
}

// retire emits what is complete of outputs whose rules are gone, and frees them.
func (a *Aggregator) retire(outputs []*output, c *computation) {
	for _, o := range outputs {
		a.compute(o, time.Now(), true, c)
		o.mu.Lock()
		o.die(a)
		o.mu.Unlock()
	}
}

// flush emits what is complete when the aggregator stops.
func (a *Aggregator) flush(c *computation) {
	a.mu.Lock()
	retired := a.retired
	a.retired = nil
	c.outputs = c.outputs[:0]
	for _, o := range a.outputs {
		c.outputs = append(c.outputs, o)
	}
	a.mu.Unlock()
	a.retire(retired, c)
	now := time.Now()
	for _, o := range c.outputs {
		a.compute(o, now, true, c)
	}
}
