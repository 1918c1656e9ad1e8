package schedule

import (
	"container/heap"
	"time"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule/timetable"
)

// job is a scheduled check.
type job struct {
	config  *resource.CheckConfig // a copy, shared with the requests
	parts   parts                 // further content of the requests
	matches *matches              // its entities; nil for a check without proxy requests
	run     *run                  // the last tick's, for proxy entities
	times   timetable.Timetable
	subdues []timetable.Subdue
	gate    *calendar.Gate // nil if the check has no calendars
	due     int64          // Unix nanoseconds
	issued  int64          // of the last request, Unix seconds
	place   int            // in the queue
}

// distance is the time from a tick to the next one; 0 if there is none.
func distance(tick, next int64) time.Duration {
	if next == timetable.Never {
		return 0
	}
	return time.Duration(next - tick)
}

// issue returns the time of issue for the request of a tick, in Unix seconds. An agent drops a request that is not
// issued later than the last one of the same check. So it is the second of the tick and not of its handling, or two
// ticks a second apart, one of them some milliseconds late, could look like one. It grows even when the wall clock is
// set back. A request that is much too late carries the present second.
func (j *job) issue(tick, now int64) int64 {
	issued := tick
	if now-tick >= int64(time.Second) {
		issued = now
	}
	j.issued = max(issued/int64(time.Second), j.issued+1)
	return j.issued
}

// queue is a heap of jobs, the next due first.
type queue []*job

func (q *queue) add(j *job)    { heap.Push((*jobHeap)(q), j) }
func (q *queue) remove(j *job) { heap.Remove((*jobHeap)(q), j.place) }
func (q *queue) fix(j *job)    { heap.Fix((*jobHeap)(q), j.place) }
func (q *queue) init()         { heap.Init((*jobHeap)(q)) }

// jobHeap implements heap.Interface.
type jobHeap queue

func (h jobHeap) Len() int           { return len(h) }
func (h jobHeap) Less(a, b int) bool { return h[a].due < h[b].due }

func (h jobHeap) Swap(a, b int) {
	h[a], h[b] = h[b], h[a]
	h[a].place, h[b].place = a, b
}

func (h *jobHeap) Push(x any) {
	j := x.(*job)
	j.place = len(*h)
	*h = append(*h, j)
}

func (h *jobHeap) Pop() any {
	last := len(*h) - 1
	j := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return j
}
