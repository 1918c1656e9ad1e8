package agent

import (
	"container/heap"
	"context"
	"log/slog"
	"sort"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule/timetable"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// maxWait bounds how long the schedule trusts its timer. The timer ignores changes of the wall clock and stops while
// the machine sleeps.
const maxWait = 5 * time.Second

// schedule runs the checks that a lapwing backend leaves to the agent. Due times depend on the check and the wall clock
// alone, so receiving the same schedule in a new session changes nothing: no tick is lost or repeated.
//
// It outlives the connection, and with a spool the process. A schedule is kept until a backend sends another one or a
// Sensu backend is connected. Checks with secrets are never written to disk.
//
// One goroutine keeps the next due time of every check in a heap. A tick that could not be handled before the next one
// was due is skipped and counted, so a pause ends with at most one run of each check.
type schedule struct {
	run     func(*resource.CheckRequest) verdict // starts a run; must not block
	now     func() time.Time
	log     *slog.Logger
	rare    *rarelog.Log // for messages that depend on the backend's input
	metrics *scheduleMetrics
	wake    chan struct{} // the queue has changed

	mu    sync.Mutex // guards the fields below
	jobs  map[string]*job
	queue dueQueue
	last  int64 // the clock when it was last read, Unix nanoseconds
}

// job is a check that the agent runs by itself.
type job struct {
	request *resource.CheckRequest // shared by the runs, which carry copies of the outermost struct
	times   timetable.Timetable    // without the phase, unless every is set
	every   int64                  // nanoseconds between two runs; 0 if that varies
	shift   int64                  // from a tick of times to the run, in nanoseconds
	phase   uint64                 // as sent by the backend
	subdues []timetable.Subdue
	due     int64 // Unix nanoseconds
	issued  int64 // of the last run, Unix seconds
	place   int   // in the queue
}

func newSchedule(run func(*resource.CheckRequest) verdict, log *slog.Logger, metrics *scheduleMetrics) *schedule {
	return &schedule{run: run, now: time.Now, log: log, rare: rarelog.New(log), metrics: metrics, wake: make(chan struct{}, 1),
		jobs: map[string]*job{}}
}

// apply takes a message of the backend. With replace, checks that are not among the entries are dropped. It keeps none
// of the entries' bytes.
func (s *schedule) apply(replace bool, entries []wire.ScheduleEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readClock()
	stays := make(map[string]bool, len(entries))
	for i := range entries {
		if e := &entries[i]; e.Remove != "" {
			s.drop(e.Remove)
		} else if name, ok := s.set(e); ok {
			stays[name] = true
		}
	}
	if replace {
		for name := range s.jobs {
			if !stays[name] {
				s.drop(name)
			}
		}
	}
	s.changed()
}

// clear drops all checks.
func (s *schedule) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.jobs) == 0 {
		return
	}
	s.log.Info("schedule dropped: this backend asks for every run of a check", "checks", len(s.jobs))
	s.jobs, s.queue = map[string]*job{}, nil
	s.changed()
}

// changed wakes the goroutine for a changed queue. The caller holds s.mu.
func (s *schedule) changed() {
	s.metrics.checks.Set(float64(len(s.jobs)))
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *schedule) drop(name string) {
	if j := s.jobs[name]; j != nil {
		heap.Remove(&s.queue, j.place)
		delete(s.jobs, name)
	}
}

// set adds or replaces one check. It returns false if the check cannot run, and then drops an older definition. The
// caller holds s.mu.
func (s *schedule) set(e *wire.ScheduleEntry) (name string, ok bool) {
	request := new(resource.CheckRequest)
	if err := request.UnmarshalProto(e.Request); err != nil || request.Config == nil {
		s.rare.Error("check of the schedule cannot be read", "", "err", err)
		return "", false
	}
	c := request.Config
	name = c.Metadata.Name
	j := s.jobs[name]
	if j == nil || j.request.Config.Interval != c.Interval || j.request.Config.Cron != c.Cron {
		times, err := timetable.Cron(c)
		if err != nil {
			s.rare.Error("check of the schedule cannot be run", name, "check", name, "err", err)
			s.drop(name)
			return name, false
		}
		fresh := &job{every: int64(timetable.Every(c))}
		if j != nil {
			fresh.issued = j.issued
			s.drop(name)
		}
		fresh.plan(times, e.PhaseMillis)
		fresh.due = fresh.next(s.last)
		j = fresh
		s.jobs[name] = j
		heap.Push(&s.queue, j)
	} else if j.phase != e.PhaseMillis {
		j.move(e.PhaseMillis)
		heap.Fix(&s.queue, j.place)
	}
	j.request = request
	var err error
	if j.subdues, err = timetable.Subdues(c.Subdues); err != nil {
		s.rare.Warn("subdue is ignored", name, "check", name, "err", err)
	}
	return name, true
}

// plan computes the job's times.
func (j *job) plan(times timetable.Timetable, phaseMillis uint64) {
	planned, after := timetable.Planned(times, time.Duration(j.every), time.Duration(phaseMillis)*time.Millisecond)
	j.times, j.shift, j.phase = planned, int64(after), phaseMillis
}

// move changes the job's phase and shifts the next run by as little as possible. So a backend that spreads its agents
// differently neither repeats that run nor skips it, even if its new time has just passed.
func (j *job) move(phaseMillis uint64) {
	by := (int64(phaseMillis) - int64(j.phase)) * int64(time.Millisecond)
	if every := j.every; every > 0 {
		by %= every
		if by > every/2 {
			by -= every
		} else if by < -every/2 {
			by += every
		}
	}
	j.plan(j.times, phaseMillis)
	if j.due != timetable.Never {
		j.due += by
	}
}

func (j *job) next(t int64) int64 {
	tick := j.times.Next(t - j.shift)
	if tick == timetable.Never {
		return timetable.Never
	}
	return tick + j.shift
}

// latest returns the last run that is due by now, and how many due runs before it are skipped.
func (j *job) latest(now int64) (due, missed int64) {
	tick, missed := j.times.Latest(j.due-j.shift, now-j.shift)
	return tick + j.shift, missed
}

// loop starts due runs until ctx ends.
func (s *schedule) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		runs, wait := s.due()
		for _, req := range runs {
			s.metrics.ticks.WithLabelValues(string(s.run(req))).Inc()
		}
		timer.Stop()
		if wait >= 0 {
			timer.Reset(wait)
		}
	}
}

// due returns a request for each due check and the time until the next one; negative if there is none.
func (s *schedule) due() (runs []*resource.CheckRequest, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil, -1
	}
	s.readClock()
	for s.queue[0].due <= s.last {
		if req := s.fire(s.queue[0]); req != nil {
			runs = append(runs, req)
		}
	}
	return runs, min(maxWait, time.Duration(s.queue[0].due-s.last))
}

// paused reports whether calendars keep a check from running at a time. Behind the last pause that the backend knew, it runs.
func paused(pauses []resource.CheckPause, t int64) bool {
	i := sort.Search(len(pauses), func(i int) bool { return pauses[i].End > t })
	return i < len(pauses) && pauses[i].Begin <= t
}

// fire returns the newest due run of a job, unless it is subdued or paused, and queues the job's next run. The caller holds s.mu.
func (s *schedule) fire(j *job) *resource.CheckRequest {
	due, missed := j.latest(s.last)
	j.due = j.next(s.last)
	heap.Fix(&s.queue, j.place)
	s.metrics.ticks.WithLabelValues(tickMissed).Add(float64(missed))
	tick := time.Unix(0, due-j.shift)
	if timetable.Subdued(j.subdues, tick) || paused(j.request.Pauses, tick.Unix()) {
		s.metrics.ticks.WithLabelValues(tickSubdued).Inc()
		return nil
	}
	s.metrics.lateness.Observe(time.Duration(s.last - due).Seconds())
	// Issued is the second in which the run is due, not the one in which it is handled, so that runs a second apart
	// stay distinct. It grows even when the wall clock is set back.
	j.issued = max(due/int64(time.Second), j.issued+1)
	req := *j.request
	req.Issued, req.Pauses = j.issued, nil
	return &req
}

// readClock computes the due times again when the wall clock was set back: runs repeat until the clock has caught up.
// Small steps only delay, since computing again could repeat a run of a moment ago. The caller holds s.mu.
func (s *schedule) readClock() {
	now := s.now().UnixNano()
	if now < s.last-int64(time.Second) {
		s.log.Warn("wall clock was set back; due times are computed anew", "seconds", (s.last-now)/int64(time.Second))
		for _, j := range s.jobs {
			j.due = j.next(now)
		}
		heap.Init(&s.queue)
	}
	s.last = now
}

// dueQueue is a heap of jobs, the next due first.
type dueQueue []*job

func (q dueQueue) Len() int           { return len(q) }
func (q dueQueue) Less(a, b int) bool { return q[a].due < q[b].due }

func (q dueQueue) Swap(a, b int) {
	q[a], q[b] = q[b], q[a]
	q[a].place, q[b].place = a, b
}

func (q *dueQueue) Push(x any) {
	j := x.(*job)
	j.place = len(*q)
	*q = append(*q, j)
}

func (q *dueQueue) Pop() any {
	last := len(*q) - 1
	j := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return j
}
