package lateness

import (
	"fmt"
	"time"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule/timetable"
)

const (
	// mostOverdue is the largest number of missing runs that is counted.
	mostOverdue = 100
	// mostSteps bounds the work of one count: a check may have many subdues, or one that lasts for years.
	mostSteps = 1000

	day = int64(24 * time.Hour)
)

// plan says when the results of a check are due. All times are Unix nanoseconds. A plan is not safe for concurrent use.
//
// Even ticks count from the last run and not from the phase of the check: each lapwing agent has a phase of its own,
// and a check for proxy entities may spread its runs over the whole distance. So the true tick is at most one distance
// before the counted one, and the counted tick is excused if a subdue was active, or a calendar did not let the check run, at any moment in between.
type plan struct {
	every   time.Duration       // distance of even ticks; 0 for another cron
	cron    timetable.Timetable // nil if ticks are even
	subdues []timetable.Subdue
	gate    *calendar.Gate // nil if the check has no calendars
	edges   []int64        // the times of day in UTC at which a subdue may begin or end
	timeout time.Duration  // of a run; 0 if it has none
	least   time.Duration  // the shortest grace
	queued  func(time.Duration) time.Duration
}

// newPlan returns the plan of a check; nil if the check has no valid schedule.
func newPlan(c *resource.CheckConfig, opts *Options) *plan {
	p := &plan{every: timetable.Every(c), timeout: time.Duration(c.Timeout) * time.Second, least: opts.Grace}
	if p.every == 0 {
		var err error
		if p.cron, err = timetable.Cron(c); err != nil {
			return nil
		}
	}
	if c.RoundRobin {
		p.queued = opts.Queued
	}
	p.gate, _ = calendar.NewGate(c.Calendars, func(name string) *calendar.Calendar { return opts.Calendar(c.Metadata.Namespace, name) })
	p.subdues, _ = timetable.Subdues(c.Subdues) // package schedule logs invalid ones
	for i := range c.Subdues {
		p.addEdges(&c.Subdues[i])
	}
	return p
}

// addEdges adds the times of day at which a subdue may begin or end. It also ends at midnight, see timetable.Subdue.
func (p *plan) addEdges(w *resource.TimeWindowRepeated) {
	begin, err := time.Parse(time.RFC3339, w.Begin)
	if err != nil {
		return
	}
	end, err := time.Parse(time.RFC3339, w.End)
	if err != nil {
		return
	}
	_, offset := begin.Zone()
	length := end.Sub(begin) + time.Second // the second of the end belongs to the subdue
	p.edges = append(p.edges, begin.UnixNano()%day, begin.Add(length).UnixNano()%day, -int64(offset)*int64(time.Second))
}

// nextEdge returns the first time after t at which a subdue may begin or end.
func (p *plan) nextEdge(t int64) int64 {
	wait := day
	for _, edge := range p.edges {
		if w := (edge - t) % day; w > 0 {
			wait = min(wait, w)
		} else {
			wait = min(wait, w+day)
		}
	}
	next := t + wait
	if change := p.gate.Next(time.Unix(0, t)); !change.IsZero() {
		next = min(next, change.UnixNano())
	}
	return next
}

// subduedUntil returns when the subdue ends, or a calendar lets the check run again, that excuses a tick; 0 if none does. If the steps run out, it returns the
// time up to which it has looked.
func (p *plan) subduedUntil(tick int64, steps *int) int64 {
	excused := false
	for t := min(tick, tick-int64(p.every)+1); t <= tick || excused; t = p.nextEdge(t) {
		active := timetable.Subdued(p.subdues, time.Unix(0, t)) || !p.gate.Open(time.Unix(0, t))
		if *steps--; *steps < 0 || excused && !active {
			return t
		}
		excused = active
	}
	return 0
}

// next returns the first tick after t. Even ticks count from the time from.
func (p *plan) next(from, t int64) int64 {
	if p.cron != nil {
		return p.cron.Next(t)
	}
	every := int64(p.every)
	return from + ((t-from)/every+1)*every
}

// graceFrom returns how long the result of a tick after from may take: the timeout of a run, or one distance. A
// round-robin check may also wait that long for its turn.
func (p *plan) graceFrom(from int64) time.Duration {
	distance := p.every
	if p.cron != nil && (p.timeout == 0 || p.queued != nil) {
		if first := p.cron.Next(from); first != timetable.Never {
			distance = time.Duration(p.cron.Next(first) - first)
		}
	}
	grace := p.timeout
	if grace == 0 {
		grace = distance
	}
	if p.queued != nil {
		grace = max(grace, p.queued(distance))
	}
	return max(grace, p.least)
}

// overdue is the count of the ticks after a time whose results are missing. All times are Unix nanoseconds.
type overdue struct {
	from  int64 // the last run, or the time from which runs were due
	upTo  int64 // ticks until then are counted
	grace time.Duration
	runs  int
	first int64 // the first missing tick; 0 if none is missing
}

// overdueSince returns a count of the ticks after a time.
func (p *plan) overdueSince(from int64) overdue {
	return overdue{from: from, upTo: from, grace: p.graceFrom(from)}
}

// count adds the ticks whose results are missing now, up to a number of them.
func (o *overdue) count(p *plan, now int64, most int) {
	end := now - int64(o.grace)
	if p.cron == nil && len(p.subdues) == 0 && p.gate == nil {
		if n := (end - o.from) / int64(p.every); n > 0 && end > o.from {
			o.runs, o.first = int(min(n, int64(most))), o.from+int64(p.every)
		}
		return
	}
	for steps := mostSteps; o.runs < most && steps > 0; steps-- {
		tick := p.next(o.from, o.upTo)
		if tick > end {
			return
		}
		if until := p.subduedUntil(tick, &steps); until > 0 {
			o.upTo = until + int64(p.every) - 1 // the whole distance before an even tick must be free
			continue
		}
		o.upTo = tick
		if o.runs++; o.runs == 1 {
			o.first = tick
		}
	}
}

// hearing says since when the backend hears all agents.
type hearing struct {
	now, since int64 // Unix nanoseconds
	reconnect  time.Duration
}

// settled reports whether all agents have had the time to connect again.
func (h hearing) settled() bool { return h.now-h.since >= int64(h.reconnect) }

// proves reports whether missing runs prove that agents are silent: a result has come since the backend hears, or
// agents are connected and a run is missing that the backend would have heard.
func (h hearing) proves(p *plan, lastRun int64, missing *overdue) bool {
	switch {
	case lastRun > h.since:
		return true
	case !h.settled():
		return false
	case missing.from >= h.since:
		return missing.runs > 0
	}
	heard := p.overdueSince(h.since)
	heard.count(p, h.now, 1)
	return heard.runs > 0
}

// words says how many runs are missing.
func (p *plan) words(runs int) string {
	what := "interval"
	if p.cron != nil {
		what = "run"
	}
	switch {
	case runs == 1:
		return "overdue by 1 " + what
	case runs >= mostOverdue:
		return fmt.Sprintf("overdue by %d %ss or more", mostOverdue, what)
	}
	return fmt.Sprintf("overdue by %d %ss", runs, what)
}
