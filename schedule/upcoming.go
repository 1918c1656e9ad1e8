package schedule

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule/timetable"
)

const (
	// coarse is the least step in a pause. Subdues and calendars change at whole minutes, or nearly so, and what is found
	// behind a pause is searched in small steps.
	coarse = time.Minute
	// mostSteps bounds the search for one check: several months without a run in steps of a minute.
	mostSteps = 400_000
)

// Upcoming returns the next n runs of a check after a time. agent is one with a schedule of its own, whose runs it returns; ""
// for the requests of the backend. It may be called while the scheduler runs.
func (s *Scheduler) Upcoming(c *resource.CheckConfig, agent string, from time.Time, n int) resource.CheckRuns {
	out := resource.CheckRuns{Namespace: c.Metadata.Namespace, Check: c.Metadata.Name, Runs: []int64{}}
	times, err := timetable.New(c, s.opts.PhaseHash)
	switch {
	case err != nil:
		out.Problem = err.Error()
		return out
	case !c.Publish:
		out.Problem = "publish is false: it runs only when it is asked to"
		return out
	}
	if out.Problem = never(c, times, from); out.Problem != "" {
		return out
	}
	every := timetable.Every(c)
	out.Every = int64(every / time.Second)
	_, planned := s.assignable(c)
	out.Spread = every > 0 && planned && agent == ""
	var after int64 // from a tick to the run, nanoseconds
	if planned && agent != "" {
		out.Agent = agent
		times, after, out.Millis = s.planned(c, times, agent)
	}
	why := s.closedNow(c)
	t, steps := from.UnixNano()-after, 0
	for len(out.Runs) < n {
		tick := times.Next(t)
		if steps++; steps > mostSteps || tick == timetable.Never {
			break
		}
		reason := why(time.Unix(0, tick))
		if reason == "" {
			out.Runs = append(out.Runs, tick/int64(time.Second))
			t = tick
			continue
		}
		pause := resource.RunPause{From: tick / int64(time.Second), Why: reason}
		end := tick
		for ; steps < mostSteps && end != timetable.Never && why(time.Unix(0, end)) != ""; steps++ {
			t, end = end, times.Next(max(end, end+int64(coarse)-1))
		}
		if end == timetable.Never || steps >= mostSteps {
			out.Pauses = append(out.Pauses, pause)
			break
		}
		for tick = times.Next(t); why(time.Unix(0, tick)) != ""; tick = times.Next(tick) { // the first one behind the pause
		}
		pause.Until = tick / int64(time.Second)
		if reason == notIn(c) {
			pause.Why += s.exceptedText(c, time.Unix(pause.From, 0), time.Unix(pause.Until, 0))
		}
		out.Pauses = append(out.Pauses, pause)
		t = tick - 1
	}
	if len(out.Runs) < n {
		out.Searched = t / int64(time.Second)
	}
	return out
}

// planned returns the times of a check in an agent's own schedule, how many nanoseconds after each of them the agent runs it,
// and how many milliseconds of a second these runs are behind the whole one.
func (s *Scheduler) planned(c *resource.CheckConfig, times timetable.Timetable, agent string) (timetable.Timetable, int64, int64) {
	every, phase := timetable.Every(c), time.Duration(0)
	if every > 0 {
		phase = s.opts.PhaseHash.Phase(c.Metadata.Name, every)
	}
	phase = timetable.PlaceOf(resource.Name{Namespace: c.Metadata.Namespace, Name: agent}, s.opts.Spread).Phase(every, phase)
	times, after := timetable.Planned(times, every, phase)
	return times, int64(after), (phase % time.Second).Milliseconds()
}

// closedNow returns a function that says why a check does not run at a time; "" if it does.
func (s *Scheduler) closedNow(c *resource.CheckConfig) func(time.Time) string {
	subdues, _ := timetable.Subdues(c.Subdues) // invalid ones count for nothing, and are logged when the check is scheduled
	find := func(name string) *calendar.Calendar { return s.defs.calendar(c.Metadata.Namespace, name) }
	gate, _ := calendar.NewGate(c.Calendars, find)
	return func(at time.Time) string {
		switch {
		case timetable.Subdued(subdues, at):
			return "subdued"
		case gate.Open(at):
			return ""
		}
		var names []string
		for _, name := range c.Calendars.NotWithin {
			if find(name).Active(at) {
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			return "in calendar " + strings.Join(names, ", ")
		}
		return notIn(c)
	}
}

// notIn says that a check does not run because none of its calendars is active.
func notIn(c *resource.CheckConfig) string {
	if c.Calendars.Empty() {
		return ""
	}
	return "not in calendar " + strings.Join(c.Calendars.RunWithin, ", ")
}

// mostExcepted bounds the names of excepted times that a pause has.
const mostExcepted = 3

// exceptedText names what a check's calendars except in a pause: the holiday because of which it is so long.
func (s *Scheduler) exceptedText(c *resource.CheckConfig, from, until time.Time) string {
	var names []string
	for _, name := range c.Calendars.RunWithin {
		for _, w := range s.defs.calendar(c.Metadata.Namespace, name).Excepted(from, until, mostExcepted) {
			if !slices.Contains(names, w.Name) && len(names) < mostExcepted {
				names = append(names, w.Name)
			}
		}
	}
	if names == nil {
		return ""
	}
	return " (excepted: " + strings.Join(names, ", ") + ")"
}

// never says that a check's cron names no time after a given one, such as 30 February; "" if it does.
func never(c *resource.CheckConfig, times timetable.Timetable, from time.Time) string {
	if times.Next(from.UnixNano()) != timetable.Never {
		return ""
	}
	return "its cron " + strconv.Quote(c.Cron) + " names no time in the next five years"
}

// ClosedNow says why a check does not run at a time, "" if it does: it is subdued, its calendars do not let it, or its cron
// names no time.
func (s *Scheduler) ClosedNow(c *resource.CheckConfig, at time.Time) string {
	if times, err := timetable.New(c, s.opts.PhaseHash); err == nil {
		if why := never(c, times, at); why != "" {
			return why
		}
	}
	return s.closedNow(c)(at)
}

// maxMatching bounds the time for which ProxyNames evaluates expressions.
const maxMatching = 2 * time.Second

// ProxyNames returns the names of the entities that a check's proxy requests match. It is false if that is not known: another
// call evaluates the expressions, or it takes too long.
func (s *Scheduler) ProxyNames(ctx context.Context, c *resource.CheckConfig) (names []string, known bool) {
	m := s.acquire(c)
	defer s.release(m)
	if !m.mu.TryLock() {
		return nil, false
	}
	known = m.listOf != nil || len(m.expressions) == 0
	m.mu.Unlock()
	if !known { // there was no tick yet
		ctx, cancel := context.WithTimeout(ctx, maxMatching)
		defer cancel()
		s.matching(ctx, c, m)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.list {
		names = append(names, e.Metadata.Name)
	}
	slices.Sort(names)
	return names, m.listOf != nil || len(m.expressions) == 0
}
