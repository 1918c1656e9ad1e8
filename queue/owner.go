package queue

import (
	"slices"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// All functions of this file need the caller to hold mu.

const (
	// takeOver is how long a member waits before it gives turns of a check that another one had: what that one has given
	// is on its way to it.
	takeOver = time.Second
	// comeBack is how long an agent that has lost its connection may take to have another one. It brings the results that
	// it has.
	comeBack = 3 * time.Second
	// ownerless is how long a check may have had no owner. A turn that was over before that was the former owner's.
	ownerless = 10 * time.Second
	// maxTried is how many agents are tried for a turn at once. If all of them decline, the next ones wait for the time for
	// an answer: a check that no agent can run must not keep the whole fleet busy.
	maxTried = 32
)

// setActing begins or ends to give a check's turns.
func (q *Queue) setActing(c *check, acts bool, now time.Time) {
	if acts == c.acting {
		return
	}
	if c.acting = acts; acts {
		q.beginGiving(c, now)
	} else {
		q.endGiving(c)
	}
}

// beginGiving takes over the turns of a check. That there was no owner for a while is not their fault.
func (q *Queue) beginGiving(c *check, now time.Time) {
	if c.begin = now; q.opts.Bus != nil {
		c.begin = now.Add(takeOver)
	}
	for _, g := range c.groups {
		for _, o := range g.open {
			// The former owner may have given it after the deadline: it had taken over itself.
			if now.Sub(later(o.deadline, o.given.Add(o.limits.answer))) < ownerless {
				o.extend(c.begin.Add(2 * o.limits.answer))
			}
			switch answer := o.given.Add(o.limits.answer); {
			case o.running && !o.lost:
				q.setTimer(o, o.until())
			case o.agent != "" && !o.lost && answer.After(c.begin):
				q.setTimer(o, earlier(o.deadline, answer))
			default:
				q.setTimer(o, earlier(o.deadline, c.begin))
			}
		}
	}
}

// endGiving tells the next owner where a check's groups stand. The turns wait here for their results.
func (q *Queue) endGiving(c *check) {
	for _, g := range c.groups {
		q.news.standing = append(q.news.standing, g)
		for _, o := range g.open {
			delete(q.waiting, o)
			q.setTimer(o, o.until())
		}
	}
	q.awake()
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// timeout handles a turn whose time has come.
func (q *Queue) timeout(o *owed, now time.Time) {
	c := o.group.check
	if !c.acting {
		q.drop(o)
		return
	}
	if o.agent != "" && !o.lost {
		if again := q.opts.Unheard(o.limits.answer); again.After(now) && again.Before(o.most) {
			// Its result could not arrive during the time for an answer, so it waits for longer.
			o.extend(again.Add(o.limits.answer))
			q.setTimer(o, again)
			return
		}
	}
	// While a member is overloaded, another request would only add to its load. Afterwards the agent has the time for an
	// answer once more, and then there is time for another agent.
	excused := q.overloaded[o.member].Add(o.limits.answer)
	switch {
	case !o.until().After(now):
		q.expire(o)
	case o.request == nil || o.running && !o.lost:
		q.setTimer(o, o.until())
	case o.agent != "" && !o.lost && excused.After(now):
		o.extend(earlier(excused.Add(2*o.limits.answer), o.due.Add(2*o.limits.deadline)))
		q.setTimer(o, earlier(o.until(), excused))
	default:
		delete(q.waiting, o)
		if o.agent == "" {
			o.tried = nil // all had it, or as many as may at once
		}
		q.give(o, now)
	}
}

// expire ends a turn without a result. The other members drop it too, or the next owner would give it again.
func (q *Queue) expire(o *owed) {
	o.group.counts.Expired++
	q.metrics.expired.Inc()
	q.drop(o)
	if q.opts.Bus != nil {
		q.news.expired = append(q.news.expired, o)
		q.awake()
	}
}

// giveBack gives turns whose agents have lost their connection to these agents, as soon as they have another one. It is
// the same request: an agent that has got it before drops it, and brings its result. One that loses its next connection
// too may be one that the check brings down, so it keeps a turn only once.
func (q *Queue) giveBack(now time.Time) {
	for o := range q.lost {
		c := o.group.check
		member := q.presence.MemberOf(resource.Name{Namespace: c.name.Namespace, Name: o.agent})
		if member == "" || o.back || !c.acting || now.Before(c.begin) || o.request == nil {
			continue
		}
		q.hand(o, o.agent, member, stamp(o.stamp, now), o.issued, now)
		o.extend(now.Add(2 * o.limits.answer))
		q.setTimer(o, now.Add(o.limits.answer))
		q.tell(o)
	}
}

// tell passes a turn to its agent: the member that the agent is connected to sends it.
func (q *Queue) tell(o *owed) {
	if q.opts.Bus != nil {
		q.news.given = append(q.news.given, giving{o.group.name, o.turn, o.attempt, o.agent, o.member, o.issued, o.stamp, o.moved})
		q.awake()
	}
	q.pass(o)
}

// give gives a turn to the next agent that has not had it. If there is none it waits for one, and if all have had it they
// begin anew, after the time for an answer.
func (q *Queue) give(o *owed, now time.Time) {
	g := o.group
	q.takeBack(o)
	if !o.deadline.After(now) {
		q.setTimer(o, now) // it is over
		return
	}
	agent, member, some := "", "", true
	if len(o.tried) < maxTried {
		agent, member, some = q.presence.next(g, o.tried)
	}
	switch {
	case !some:
		o.tried = nil // they are gone
		q.waiting[o] = struct{}{}
		q.setTimer(o, o.deadline)
		return
	case agent == "":
		if len(o.tried) < maxTried {
			q.waiting[o] = struct{}{}
		}
		q.setTimer(o, earlier(o.deadline, now.Add(o.limits.answer)))
		return
	}
	g.cursor, g.moved = agent, stamp(max(g.moved, o.stamp), now)
	o.moved = g.moved
	q.hand(o, agent, member, g.moved, g.check.issues.next(agent, o.turn, q.batch, now), now)
	q.setTimer(o, earlier(o.deadline, now.Add(o.limits.answer)))
	q.countGiven(g, o)
	q.tell(o)
}

// countGiven counts a turn that an agent has got.
func (q *Queue) countGiven(g *group, o *owed) {
	if o.attempt == 1 {
		g.counts.Given++
		q.count(g.check, q.metrics.given)
	} else {
		g.counts.Again++
		q.count(g.check, q.metrics.again)
	}
}

// giveWaiting gives turns to agents that were not there when they waited for one.
func (q *Queue) giveWaiting(now time.Time) {
	if len(q.waiting) == 0 {
		return
	}
	all := make([]*owed, 0, len(q.waiting))
	for o := range q.waiting {
		if q.presence.others(o.group.name, o.tried) {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b *owed) int { return int(a.order) - int(b.order) })
	for _, o := range all {
		delete(q.waiting, o)
		q.give(o, now)
	}
}

// noteLost notes that connections of agents have ended.
func (q *Queue) noteLost(g *group, left map[connection]struct{}, now time.Time) {
	if len(left) == 0 {
		return
	}
	for _, o := range g.open {
		if o.agent == "" || o.lost {
			continue
		}
		if _, lost := left[connection{resource.Name{Namespace: g.check.name.Namespace, Name: o.agent}, o.member}]; lost {
			o.lost = true
			q.lost[o] = struct{}{}
			if g.check.acting {
				q.setTimer(o, earlier(o.until(), now.Add(comeBack)))
			}
		}
	}
}

// declined gives a turn to another agent: the one that has it will not run it, or is not connected.
func (q *Queue) declined(o *owed, agent string, now time.Time) {
	if o.agent != agent {
		return // it has been given to another one since
	}
	o.group.counts.Declined++
	q.count(o.group.check, q.metrics.declined)
	if o.group.check.acting && o.request != nil {
		q.give(o, now)
	} else {
		q.takeBack(o)
	}
}
