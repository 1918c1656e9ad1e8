package queue

import (
	"slices"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// check is what a check owes.
type check struct {
	name   resource.Name
	acting bool      // this member gives the turns
	begin  time.Time // when it begins to, or began
	groups map[string]*group
	// longest is how long the longest of the newest runs took.
	longest time.Duration
	issues  issues
}

// group is what one group owes.
type group struct {
	check  *check
	name   Group
	limits limits // of the newest tick
	cursor string // the agent that had the last turn
	place  int    // where the cursor was found in its ring; agents may have come or gone since
	moved  uint64 // when that was, see stamp
	open   map[Turn]*owed
	done   []answered // turns that had a result, in their order
	// recalled is the oldest tick that was answered before the group was first offered one, in Unix seconds; 0 if none was.
	// Older ones count as answered: of each agent the state has only its newest result.
	recalled int64
	offered  bool // it was offered a tick
	counts   Counts
	twice    []Duplicate // the newest
}

// answered is a turn that had its result.
type answered struct {
	turn  Turn
	agent string
	at    int64     // when this member learned it, Unix milliseconds
	tried *[]string // agents that had the turn before, if there were any; they may have a result too
}

// Counts are a group's figures since this backend began.
type Counts struct {
	// Given are turns that were given to an agent, and Again those that were given to a further one.
	Given, Again uint64
	// Answered are turns with a result, Declined requests that an agent would not run, and Expired turns without a result.
	Answered, Declined, Expired uint64
	// Duplicates are results of turns that had one, and Late those that came behind the deadline.
	Duplicates, Late uint64
}

// Duplicate is a result of a turn that had one, by another agent.
type Duplicate struct {
	Turn          Turn
	First, Second string // the agents
	At            time.Time
}

// stamp returns when a group's cursor moves, in Unix microseconds, and later than it moved before. Members compare stamps,
// so a member that has just begun and knows none gives later ones than those before it.
func stamp(before uint64, now time.Time) uint64 {
	return max(before+1, uint64(max(0, now.UnixMicro())))
}

// move notes which agent was given a turn at a time. A stamp of the future, beyond what clocks differ by, is made up.
func (g *group) move(at uint64, agent string, now time.Time) {
	if at > g.moved && at < stamp(0, now.Add(leastDeadline)) {
		g.moved, g.cursor = at, agent
	}
}

// maxTwice is how many duplicates a group shows.
const maxTwice = 10

// checkOf returns what a check owes, from now on if it owed nothing before. The caller holds mu.
func (q *Queue) checkOf(name resource.Name) *check {
	c := q.checks[name]
	if c == nil {
		c = &check{name: name, groups: map[string]*group{}}
		q.checks[name] = c
	}
	return c
}

// groupOf returns a group, from now on if there was none before.
func (c *check) groupOf(subscription string) *group {
	g := c.groups[subscription]
	if g == nil {
		g = &group{check: c, name: Group{c.name, subscription}, open: map[Turn]*owed{}}
		g.limits = limits{leastAnswer, mostDeadline, mostDeadline} // until the first tick
		c.groups[subscription] = g
	}
	return g
}

// dropUnused drops the groups that are not of a check's definition, once they owe nothing: a user had the check run for
// other subscriptions. The caller holds mu.
func (q *Queue) dropUnused(c *check) {
	for subscription, g := range c.groups {
		if len(g.open) == 0 && !q.results.defined(g.name) {
			delete(c.groups, subscription)
		}
	}
	if len(c.groups) == 0 {
		delete(q.checks, c.name)
	}
}

// issues has when requests of a check were issued, in Unix seconds. An agent drops one that was not issued later than the
// one before it.
type issues struct {
	newest int64
	// lately and before are by what an agent tells requests apart by. lately begins at the time since, and before is of the
	// time in front of it.
	lately, before map[agentEntity]issue
	since          int64
}

type agentEntity struct{ agent, entity string }

// issue is a request that was issued.
type issue struct {
	at    int64
	turn  Turn
	batch uint64
}

// issuedFor is for how many seconds it is known when a request was issued, at least.
const issuedFor = 3

// next returns the time of issue of a request: that of the turn, unless it is given late, and later than that of any other
// request that this agent has for the check. An agent that gets a turn of several groups in the same batch has one request
// for all of them.
func (s *issues) next(agent string, turn Turn, batch uint64, now time.Time) int64 {
	at := turn.Tick
	if late := now.Unix() - at; late > 1 || late < 0 {
		at = now.Unix()
	}
	k := agentEntity{agent, turn.Entity}
	last, known := s.lately[k]
	if !known {
		last = s.before[k]
	}
	if last.turn == turn && last.batch == batch {
		return last.at
	}
	s.newest = max(s.newest, at) // it does not go back with the clock
	at = max(s.newest, last.at+1)
	s.note(k, issue{at, turn, batch})
	return at
}

// note notes when a request was issued. Old ones are forgotten as newer ones come, not as the clock goes on.
func (s *issues) note(k agentEntity, one issue) {
	if s.lately == nil || s.newest-s.since > issuedFor {
		next := s.before
		if next == nil || len(next) > 2*len(s.lately) { // a map that was large once stays so
			next = map[agentEntity]issue{}
		}
		clear(next)
		s.lately, s.before, s.since = next, s.lately, s.newest
	}
	s.lately[k] = one
}

// heard notes when another member has issued a request.
func (s *issues) heard(agent string, turn Turn, at int64) {
	k := agentEntity{agent, turn.Entity}
	s.newest = max(s.newest, min(at, turn.Tick))
	if at > max(s.lately[k].at, s.before[k].at) {
		s.note(k, issue{at: at})
	}
}

// noteDuration notes how long a run took. A longer one than usual counts less with each that follows.
func (c *check) noteDuration(d time.Duration) { c.longest = max(d, c.longest-c.longest/64) }

// answer returns the result of a turn; nil if it had none, or too long ago.
func (g *group) answer(t Turn) *answered {
	if at, found := g.search(t); found {
		return &g.done[at]
	}
	return nil
}

// tried returns the agents that had a turn, as far as is known.
func (g *group) tried(t Turn) []string {
	if o := g.open[t]; o != nil {
		return o.tried
	}
	if a := g.answer(t); a != nil && a.tried != nil {
		return *a.tried
	}
	return nil
}

func (g *group) search(t Turn) (at int, found bool) {
	return slices.BinarySearchFunc(g.done, t, func(a answered, t Turn) int { return a.turn.compare(t) })
}

// recall sets recalled. Agents that have had no turn for long do not count.
func (g *group) recall(now time.Time) {
	since := now.Add(-2 * g.limits.deadline).Unix()
	for _, a := range g.done {
		if !a.turn.Asked && a.turn.Tick >= since {
			g.recalled = a.turn.Tick
			break
		}
	}
}

// had reports whether a turn had its result. If the clock was set back, a tick falls due again, and what it had before does
// not count.
func (g *group) had(t Turn, now time.Time) bool {
	at, found := g.search(t)
	if found && g.done[at].at > now.Add(time.Second).UnixMilli() {
		g.done = slices.Delete(g.done, at, at+1)
		return false
	}
	return found || !t.Asked && t.Tick < g.recalled
}

// noteAnswer notes the result of a turn, and forgets those that no turn needs any more: a result counts as the second of
// its turn for as long as the turn may be given to an agent, and once more.
func (g *group) noteAnswer(t Turn, agent string, now time.Time) {
	a := answered{t, agent, now.UnixMilli(), nil}
	if o := g.open[t]; o != nil {
		a.turn = o.turn // the entity of t may be part of a whole receipt, which would stay in memory
		if len(o.tried) > 1 {
			tried := o.tried
			a.tried = &tried
		}
	}
	if len(g.done) == cap(g.done) {
		before := now.Add(-2 * g.limits.deadline).UnixMilli()
		g.done = slices.DeleteFunc(g.done, func(a answered) bool { return a.at < before })
		if len(g.done) > cap(g.done)*3/4 {
			g.done = slices.Grow(g.done, len(g.done)+1) // or the next ones would each look at all
		}
	}
	at, _ := g.search(t)
	g.done = slices.Insert(g.done, at, a)
}
