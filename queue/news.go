package queue

import (
	"slices"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// Members tell each other on the bus what they do. News may get lost: a turn that an agent never got goes to another one
// after the time for an answer, and what agents are connected is compared by number (see Presence).

// Subjects of the bus.
const (
	turnsSubject    = "lapwing.queue.turns"
	presenceSubject = "lapwing.queue.agents"
)

// news is what the other members are to know.
type news struct {
	given    []giving
	receipts []receipt
	expired  []*owed  // turns that had no result in time
	standing []*group // another member goes on with them: it gets the cursor, and who has what
}

// giving says that an agent has a turn.
type giving struct {
	group         Group
	turn          Turn
	attempt       int
	agent, member string
	issued        int64
	stamp, moved  uint64
}

// receipt says what an agent does about a turn.
type receipt struct {
	group   Group
	turn    Turn
	agent   string
	outcome wire.Outcome
}

// maxNews is about how large a message to the other members becomes, in bytes.
const maxNews = 256 << 10

// send passes turns to agents of this member, and news to the other members.
func (q *Queue) send(now time.Time) {
	for q.sendOnce(now) {
	}
}

// sendOnce reports whether there may be more: a turn that did not reach its agent goes to the next one.
func (q *Queue) sendOnce(now time.Time) (more bool) {
	q.mu.Lock()
	local, n := q.local, q.news
	q.local, q.news = q.courier.passing, news{}
	q.batch++
	list := q.courier.take(local)
	var messages [][]byte
	if q.opts.Bus != nil {
		messages = n.encode(q.opts.Member)
	}
	q.mu.Unlock()
	for _, d := range list {
		q.courier.fill(d)
		if !q.opts.Deliver(d) {
			more = true
			q.Undelivered(d, now)
		}
	}
	for _, m := range messages {
		q.publish(turnsSubject, m)
	}
	return more
}

// sendPresence tells the other members what agents have come and gone.
func (q *Queue) sendPresence() {
	if q.opts.Bus == nil {
		return
	}
	for more := true; more; {
		var changes []byte
		if changes, more = q.presence.changes(maxNews); changes != nil {
			q.publish(presenceSubject, changes)
		}
	}
}

func (q *Queue) publish(subject string, message []byte) {
	if err := q.opts.Bus.Publish(subject, message); err != nil {
		q.rare.Warn("the other members get no news of round-robin checks", subject, "err", err)
	}
}

// listen begins to hear the other members.
func (q *Queue) listen() error {
	if q.opts.Bus == nil {
		return nil
	}
	turns, err := q.opts.Bus.Subscribe(turnsSubject, func(_ string, message []byte) {
		if err := q.hear(message, time.Now()); err != nil {
			q.rare.Warn("news of round-robin checks cannot be read", "", "err", err)
		}
	})
	if err != nil {
		return err
	}
	agents, err := q.opts.Bus.Subscribe(presenceSubject, func(_ string, message []byte) {
		if err := q.presence.hear(message); err != nil {
			q.rare.Warn("news of agents cannot be read", "", "err", err)
		}
	})
	if err != nil {
		turns()
		return err
	}
	q.cancel = func() { turns(); agents() }
	return nil
}

// lookAtMembers asks for what was missed of other members' agents, and forgets those of members that are away. It reports
// whether the agents of all others are known, and which members are overloaded.
func (q *Queue) lookAtMembers() (complete bool, overloaded []string) {
	if q.opts.Overloaded() {
		overloaded = append(overloaded, q.opts.Member)
	}
	if q.opts.Bus == nil {
		return true, overloaded
	}
	complete = true
	for _, o := range q.opts.Others() {
		if !o.Heard {
			q.presence.lost(o.ID)
			continue
		}
		if o.Overloaded {
			overloaded = append(overloaded, o.ID)
		}
		missed, wanted := q.presence.heard(o.ID, o.Life, o.Presence)
		if complete = complete && !missed; wanted {
			q.done.Go(func() { q.ask(o.ID) })
		}
	}
	return complete, overloaded
}

// ask gets a copy of a member's agents.
func (q *Queue) ask(member string) {
	copied, err := q.opts.AskCopy(q.life, member)
	if err == nil {
		err = q.presence.take(copied)
	}
	q.presence.asked(member)
	if err != nil && q.life.Err() == nil {
		q.rare.Warn("the agents of another member are not known", member, "member", member, "err", err)
	}
}

// Copy returns a message with the agents of this member, for AskCopy of another one.
func (q *Queue) Copy() []byte { return q.presence.copy() }

// hear takes news of another member.
func (q *Queue) hear(message []byte, now time.Time) error {
	r, err := readNews(message)
	if err != nil || r.member == q.opts.Member {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for r.next() {
		switch r.op {
		case opGiven:
			q.heardGiven(&r.item, now)
		case opStanding:
			if g := q.known(r.item.group, false); g != nil {
				g.move(r.item.moved, r.item.agent, now)
			}
		case opExpired:
			if g := q.find(r.item.group); g != nil && !g.check.acting && g.open[r.item.turn] != nil {
				q.drop(g.open[r.item.turn])
			}
		case opReceipt:
			if g := q.find(r.item.group); g != nil {
				q.receipt(g, r.item.turn, r.item.agent, r.item.outcome, now)
			}
		}
	}
	return r.err()
}

// heardGiven notes that another member has given a turn to an agent. The caller holds mu.
func (q *Queue) heardGiven(it *item, now time.Time) {
	g := q.known(it.group, it.turn.Asked)
	if g == nil {
		return
	}
	c := g.check
	g.move(it.moved, it.agent, now)
	if g.answer(it.turn) != nil {
		return
	}
	o := g.open[it.turn]
	if o == nil {
		o = q.owe(g, it.turn, now)
	}
	if it.stamp <= o.stamp {
		return
	}
	again := it.agent == o.agent
	o.attempt, o.moved = max(o.attempt, it.attempt-1), it.moved
	q.hand(o, it.agent, it.member, it.stamp, it.issued, now)
	c.issues.heard(it.agent, it.turn, it.issued)
	delete(q.waiting, o)
	if c.acting {
		q.setTimer(o, earlier(o.deadline, now.Add(o.limits.answer)))
	} else {
		q.setTimer(o, o.deadline)
	}
	if !again {
		q.countGiven(g, o)
		q.presence.countTurn(g.name, o.agent)
	}
	q.pass(o)
}

// known returns a group of a defined check, from now on if it was not known before; else nil. A user may have a check run
// for other subscriptions than its own. The caller holds mu.
func (q *Queue) known(name Group, asked bool) *group {
	if g := q.find(name); g != nil {
		return g
	}
	if !q.results.defined(name) && !(asked && q.results.get(name.Check) != nil) {
		return nil
	}
	return q.checkOf(name.Check).groupOf(name.Subscription)
}

// find returns a group that is known. The caller holds mu.
func (q *Queue) find(name Group) *group {
	if c := q.checks[name.Check]; c != nil {
		return c.groups[name.Subscription]
	}
	return nil
}

// Receipt takes what an agent says about a turn that it was asked for.
func (q *Queue) Receipt(agent resource.Name, r *wire.Receipt, now time.Time) {
	if g, ok := parseTurn(r.Turn, r.Entity); ok {
		q.noteReceipt(agent, resource.Name{Namespace: agent.Namespace, Name: r.Check}, g.subscriptions, g.Turn, r.Outcome, now)
	}
}

// noteReceipt notes what an agent does about a turn, and tells the other members.
func (q *Queue) noteReceipt(agent, check resource.Name, subscriptions []string, turn Turn, outcome wire.Outcome, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, subscription := range subscriptions {
		name := Group{check, subscription}
		if g := q.find(name); g != nil && q.receipt(g, turn, agent.Name, outcome, now) && q.opts.Bus != nil {
			q.news.receipts = append(q.news.receipts, receipt{name, turn, agent.Name, outcome})
		}
	}
	q.awake()
}

// Undelivered says that a turn did not reach its agent.
func (q *Queue) Undelivered(d *Delivery, now time.Time) {
	q.noteReceipt(d.Agent, d.Check, d.Subscriptions, d.Turn, wire.OutcomeDeclined, now)
}

// receipt reports whether it says anything new. An agent that was never given the turn has no say. The caller holds mu.
func (q *Queue) receipt(g *group, turn Turn, agent string, outcome wire.Outcome, now time.Time) bool {
	o := g.open[turn]
	if o == nil {
		return g.answer(turn) != nil && outcome == wire.OutcomeDone && q.presence.has(g.name, agent) &&
			q.answered(g, turn, agent, 0, now)
	}
	if !slices.Contains(o.tried, agent) {
		return false
	}
	switch outcome {
	case wire.OutcomeDone:
		q.answered(g, turn, agent, 0, now)
	case wire.OutcomeDeclined:
		q.declined(o, agent, now)
	case wire.OutcomeRunning:
		if o.agent != agent || o.running {
			return false
		}
		o.running = true
		q.setTimer(o, o.until())
	}
	return true
}
