package queue

import (
	"container/heap"
	"maps"
	"slices"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// owed is a turn without a result.
type owed struct {
	group    *group
	turn     Turn
	order    uint64                 // among all turns, as they were offered
	request  *resource.CheckRequest // nil until the tick is offered here: another member may be faster
	limits   limits
	due      time.Time
	deadline time.Time
	most     time.Time // up to which the deadline may be moved

	agent, member string   // that has it; "" if none has
	stamp         uint64   // when it was given, see stamp; later ones count
	moved         uint64   // when the group's cursor moved for it
	attempt       int      // how often it was given
	tried         []string // to these agents
	issued        int64
	given         time.Time // to the agent
	running       bool      // the agent says that it runs it
	lost          bool      // the connection that it was given through has ended
	back          bool      // it was given to the same agent again, after another connection was lost
	passed        uint64    // the stamp under which it was last passed to an agent of this member

	next  int64 // when it is looked at, Unix microseconds
	place int   // in the timers; -1 if it has none
}

// owe notes a turn. It may not be due yet, if that is later than its tick. The caller holds mu, as for all functions of
// this file.
func (q *Queue) owe(g *group, turn Turn, now time.Time) *owed {
	q.offered++
	o := &owed{group: g, turn: turn, order: q.offered, limits: g.limits, place: -1}
	o.setDue(time.Unix(turn.Tick, 0), g.limits)
	o.deadline = later(o.deadline, now.Add(mostDeadline)) // until it is offered here
	g.open[turn] = o
	return o
}

// setDue sets until when a turn is given to agents.
func (o *owed) setDue(due time.Time, l limits) {
	o.due, o.limits, o.deadline = due, l, due.Add(l.deadline)
	o.most = o.deadline.Add(mostDeadline)
}

// extend moves the deadline, for what is not the turn's fault, but not for ever: turns would pile up.
func (o *owed) extend(to time.Time) { o.deadline = later(o.deadline, earlier(to, o.most)) }

// drop forgets a turn that is not owed any more.
func (q *Queue) drop(o *owed) {
	delete(o.group.open, o.turn)
	delete(q.waiting, o)
	delete(q.lost, o)
	if o.place >= 0 {
		heap.Remove(&q.timers, o.place)
	}
	o.agent = ""
}

// until is how long a turn waits: an agent that runs it may go on behind the deadline.
func (o *owed) until() time.Time {
	if end := o.given.Add(o.limits.run); o.running && end.After(o.deadline) {
		return end
	}
	return o.deadline
}

// hand notes that an agent has a turn.
func (q *Queue) hand(o *owed, agent, member string, at uint64, issued int64, now time.Time) {
	o.back = agent == o.agent
	o.attempt++
	o.agent, o.member, o.stamp, o.issued, o.given = agent, member, at, issued, now
	o.running, o.lost = false, false
	delete(q.lost, o)
	if !slices.Contains(o.tried, agent) {
		o.tried = append(o.tried, agent)
	}
}

// takeBack takes a turn from the agent that has it.
func (q *Queue) takeBack(o *owed) {
	o.agent, o.member, o.running, o.lost, o.back = "", "", false, false, false
	delete(q.lost, o)
}

// pass has the loop pass a turn to its agent, if that is connected to this member.
func (q *Queue) pass(o *owed) {
	if o.member == q.opts.Member && o.request != nil && o.passed < o.stamp {
		o.passed = o.stamp
		q.local = append(q.local, passing{o, o.stamp})
		q.awake()
	}
}

// passing is a turn on its way to its agent.
type passing struct {
	*owed
	as uint64 // the stamp then
}

// courier makes the requests of turns for their agents, in memory that it uses again.
type courier struct {
	passing  []passing // for Queue.local, once it is empty
	requests map[requestKey]*Delivery

	// fill has the request of one delivery in these.
	request     resource.CheckRequest
	config      resource.CheckConfig
	annotations map[string]string
}

// maxRequests is how many requests a map may have had that is used again. It would be emptied as slowly as if it had as many.
const maxRequests = 4096

// requestKey tells requests apart.
type requestKey struct {
	check  *check
	turn   Turn
	agent  string
	issued int64
}

// take returns the requests for the agents that have some turns. An agent that has the turn of several of a check's groups,
// issued together, gets one request. The caller holds mu.
func (c *courier) take(local []passing) (list []*Delivery) {
	if c.requests == nil {
		c.requests = map[requestKey]*Delivery{}
	}
	for _, p := range local {
		if p.agent == "" || p.stamp != p.as {
			continue // it has been settled, or given to another agent, since
		}
		k := requestKey{p.group.check, p.turn, p.agent, p.issued}
		d := c.requests[k]
		if d == nil {
			d = &Delivery{
				Agent: resource.Name{Namespace: p.group.name.Check.Namespace, Name: p.agent}, Check: p.group.name.Check,
				Turn: p.turn, Attempt: p.attempt, Request: p.request, issued: p.issued,
			}
			c.requests[k] = d
			list = append(list, d)
		}
		d.Subscriptions, d.moved = append(d.Subscriptions, p.group.name.Subscription), max(d.moved, p.moved)
	}
	if clear(local); len(c.requests) > maxRequests {
		c.requests = nil
	}
	clear(c.requests)
	c.passing = local[:0]
	return list
}

// fill puts the turn and the time of issue on a delivery's request.
func (c *courier) fill(d *Delivery) {
	if c.annotations == nil {
		c.annotations = map[string]string{}
	}
	clear(c.annotations)
	c.request, c.config = *d.Request, *d.Request.Config
	maps.Copy(c.annotations, c.config.Metadata.Annotations)
	c.annotations[resource.TurnAnnotation] = d.Turn.Format(d.moved, d.Subscriptions...)
	c.config.Metadata.Annotations = c.annotations
	c.request.Config, c.request.Issued = &c.config, d.issued
	d.Request = &c.request
}

// here reports whether a tick fell due since this queue began.
func (q *Queue) here(t Turn) bool { return !q.began.IsZero() && t.Tick >= q.began.Unix() }

// answered takes a turn's result from an agent, or its receipt that it is done. It reports whether the turn had a result of
// another agent before.
func (q *Queue) answered(g *group, turn Turn, agent string, took time.Duration, now time.Time) (duplicate bool) {
	c := g.check
	if a := g.answer(turn); a != nil {
		second := func(d Duplicate) bool { return d.Turn == turn && d.Second == agent }
		if a.agent == agent || slices.ContainsFunc(g.twice, second) {
			return false // read again
		}
		g.counts.Duplicates++
		q.count(c, q.metrics.duplicates)
		g.twice = append(g.twice, Duplicate{a.turn, a.agent, agent, now})
		g.twice = g.twice[max(0, len(g.twice)-maxTwice):]
		return true
	}
	g.noteAnswer(turn, agent, now)
	c.noteDuration(took)
	due, deadline := time.Unix(turn.Tick, 0), time.Unix(turn.Tick, 0).Add(g.limits.deadline)
	if o := g.open[turn]; o != nil {
		due, deadline = o.due, o.deadline
		q.drop(o)
	} else if !q.here(turn) {
		return false // an earlier process has counted it
	}
	g.counts.Answered++
	q.count(c, q.metrics.answered)
	if now.After(deadline) {
		g.counts.Late++
		q.count(c, q.metrics.late)
	} else if c.acting {
		q.metrics.latency.Observe(now.Sub(due).Seconds())
	}
	return false
}
