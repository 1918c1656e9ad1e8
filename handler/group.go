package handler

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

const (
	defaultGroupWait = 10 * time.Second
	defaultFold      = 2
	// maxMembers is how many deliveries a group takes before it goes out early.
	maxMembers = 20000
	// fullEvents is how many events of a group are merged whole; the others without their bulk.
	fullEvents = 100
)

// group is deliveries that go out together. They are finished when the group is. Until then their chains wait, unless
// their next deliveries belong to the same group.
type group struct {
	key       string
	slot                // waits in queue.groupWaits until it goes out, or is tried again
	closed    bool      // takes no more members
	members   []*member // oldest first; a worker that has the group changes them without queue.mu
	begin     time.Time // when a worker started it
	lastError string    // why the last attempt failed, if this process made it
	progress
}

// tries returns how many attempts to send a member were made, alone or with the group.
func (g *group) tries(m *member) int { return max(g.attempts, m.attempts) }

// firstTry returns when the first attempt of the group, or of the member that comes next, was made; 0 if there was none.
func (g *group) firstTry() int64 {
	if g.first == 0 && len(g.members) > 0 {
		return g.members[0].first
	}
	return g.first
}

type member struct {
	*item
	chain *chain
}

// join moves the first delivery of a detached chain into its group. The caller holds mu.
func (q *queue) join(def *resource.HandlerGroup, c *chain, it *item, key string) {
	if c.group != nil && (c.group.closed || c.group.key != key) {
		q.stop(c)
		return
	}
	g := q.groups[key]
	if g == nil {
		g = &group{key: key}
		q.groups[key] = g
		q.waitGroup(g, q.groupDue(def, key, time.Now()))
	}
	c.head, it.next = it.next, nil
	c.group = g
	c.members++
	g.members = append(g.members, &member{it, c})
	q.park(it)
	if len(g.members) >= maxMembers {
		q.seal(g)
		q.spawn()
	}
	q.advance(c)
}

// groupDue returns when a group that begins now goes out. The caller holds mu.
func (q *queue) groupDue(def *resource.HandlerGroup, key string, now time.Time) time.Time {
	wait := time.Duration(def.Wait) * time.Second
	if wait == 0 {
		wait = defaultGroupWait
	}
	due := now.Add(wait)
	interval := time.Duration(def.Interval) * time.Second
	for other, sent := range q.sent {
		if now.Sub(sent) >= interval {
			delete(q.sent, other)
		}
	}
	if sent, ok := q.sent[key]; ok && sent.Add(interval).After(due) {
		due = sent.Add(interval)
	}
	return due
}

// stop makes a detached chain wait for the group that has deliveries of its pair. The caller holds mu.
func (q *queue) stop(c *chain) {
	if c.group == nil { // it went out in the meantime
		q.turn(c)
		return
	}
	c.stopped = true
	for it := c.head; it != nil; it = it.next {
		q.park(it)
	}
}

// seal hands a group that waits to the workers. The caller holds mu.
func (q *queue) seal(g *group) {
	q.unwaitGroup(g)
	g.closed = true
	q.sealed = append(q.sealed, g)
}

// workGroup sends a group out. It unlocks mu while it sends. False means that Stop came first.
func (q *queue) workGroup(ctx context.Context, h *resource.Handler, g *group) bool {
	g.begin = time.Now()
	q.sending[g] = struct{}{}
	aboutFailing := g.aboutFailing()
	q.mu.Unlock()
	over, out := q.d.runGroup(ctx, h, g)
	q.mu.Lock()
	delete(q.sending, g)
	g.lastError = q.noteError(g.lastError, out.errorText)
	q.noteTurn(&out, g.firstTry(), aboutFailing)
	if out.sent {
		q.sent[g.key] = time.Now()
	} else {
		q.bucket.giveBack(time.Now())
	}
	for _, m := range over {
		q.release(m)
	}
	switch {
	case out.stopped:
		return false
	case !out.finished:
		if q.leave(g); len(g.members) > 0 {
			for _, m := range g.members {
				q.noteTries(m.item, g.tries(m))
			}
			q.waitGroup(g, out.due)
		}
	}
	return true
}

// release frees the chain of a finished member. The caller holds mu.
func (q *queue) release(m *member) {
	q.forget(m.item)
	c := m.chain
	if c.members--; c.members > 0 {
		return
	}
	c.group = nil
	switch {
	case c.head == nil:
		delete(q.chains, c.pair)
	case c.stopped:
		c.stopped = false
		q.turn(c)
	}
}

// runGroup sends a group out: merged into one delivery if it has enough pairs, or one by one. It returns the finished
// members, and removes them from the group.
func (d *Dispatcher) runGroup(ctx context.Context, h *resource.Handler, g *group) (over []*member, out outcome) {
	// Workers add them in any order, and after a restart in another one.
	slices.SortFunc(g.members, func(a, b *member) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), a.pos.compare(b.pos))
	})
	if h == nil || h.Group == nil {
		return d.runEach(ctx, h, g)
	}
	newest := map[pair]*member{}
	for _, m := range g.members {
		newest[m.chain.pair] = m
	}
	fold := int(h.Group.Fold)
	if fold == 0 {
		fold = defaultFold
	}
	if len(newest) < fold {
		return d.runEach(ctx, h, g)
	}
	var going, rest []*member
	for _, m := range g.members {
		switch {
		case newest[m.chain.pair] != m:
			rest = append(rest, m)
		case m.Resolution && onlyAfterAlert(h) && !d.alerted(m.item):
			d.finish(m.item, d.verdict(m.item, trace.Filtered, "it was over before the alert went out"))
			over = append(over, m)
		default:
			going = append(going, m)
		}
	}
	// If a pair's resolution does not go out, its earlier deliveries need not either.
	kept := rest[:0]
	for _, m := range rest {
		if newest[m.chain.pair].finishedNow() {
			d.finish(m.item, d.verdict(m.item, trace.Filtered, "it was over before the alert went out"))
			over = append(over, m)
			continue
		}
		kept = append(kept, m)
	}
	rest = kept
	g.members = append(rest, going...)
	if len(going) == 0 {
		return over, outcome{finished: true}
	}
	gone, out := d.runMerged(ctx, h, g, going, rest)
	return append(over, gone...), out
}

func (it *item) finishedNow() bool {
	it.ledger.mu.Lock()
	defer it.ledger.mu.Unlock()
	return it.finished
}

// runEach sends the members one after the other. After one that must be tried again, the rest wait with it.
func (d *Dispatcher) runEach(ctx context.Context, h *resource.Handler, g *group) (over []*member, out outcome) {
	out.finished = true
	members := g.members
	g.members = nil
	for i, m := range members {
		m.decided = true
		one := d.run(ctx, h, m.item)
		out.sent = out.sent || one.sent
		out.delivered = out.delivered || one.delivered
		out.died += one.died
		out.errorText = cmp.Or(one.errorText, out.errorText)
		if one.stopped {
			g.members = members[i:]
			return over, outcome{stopped: true, sent: out.sent}
		}
		if !one.finished {
			g.members = members[i:]
			out.finished, out.due = false, one.due
			return over, out
		}
		over = append(over, m)
	}
	return over, out
}

// runMerged sends the members in going as one event. rest has earlier ones of the same pairs.
func (d *Dispatcher) runMerged(
	ctx context.Context, h *resource.Handler, g *group, going, rest []*member,
) (over []*member, out outcome) {
	dl := *going[0].Delivery
	dl.ID = groupID(going)
	events := make([]*resource.Event, 0, len(going))
	dl.Incident, dl.Resolution = false, true
	for i, m := range going {
		_, ev, err := d.open(m.item)
		if err != nil {
			d.rare.Error("delivery cannot be read and is left out of its group", "", "delivery", m.ID, "err", err)
			continue
		}
		if i >= fullEvents {
			lighten(ev)
		}
		events = append(events, ev)
		dl.Incident = dl.Incident || m.Incident
		dl.Resolution = dl.Resolution && m.Resolution
	}
	if len(events) == 0 {
		return d.runEach(ctx, h, g)
	}
	ev := d.opts.Workflows.Merge(&dl, g.key, events)
	if ev.Check != nil {
		dl.Status = ev.Check.Status
	}
	if ev.Entity != nil {
		dl.Entity = ev.Entity.Metadata.Name
	}
	if ev.Check != nil {
		dl.Check = ev.Check.Metadata.Name
	}
	dl.Event = ev.AppendProto(nil)

	at := d.attempt(ctx, h, &dl, ev, &g.progress)
	out.sent, out.errorText = at.sent, at.errorText()
	d.notify(h, &dl.Header, g.progress.attempts, &at, going)
	step := trace.Step{Kind: trace.StepGroup, Name: g.key, Saw: []trace.Value{{Name: "members", Value: fmt.Sprint(len(going))}}}
	switch {
	case at.stopped:
		out.stopped = true
	case at.recalled:
		out.due = at.due
	case at.res.Err == nil:
		out.finished, out.delivered = true, true
		for _, m := range rest {
			tr := d.verdict(m.item, trace.Merged, "a later event of the check went out instead")
			tr.Into = dl.ID
			d.finish(m.item, tr)
		}
		for _, m := range going {
			alerted := d.noteAlert(h, m.item)
			tr := d.verdict(m.item, trace.Merged, fmt.Sprintf("one of %d in group %s", len(going), g.key))
			tr.Into, tr.Steps, tr.Attempts = dl.ID, append([]trace.Step{step}, at.steps...), at.attempts
			d.finish(m.item, tr, alerted...)
		}
		d.observe(h, &dl, send.KindOK, at)
		over = append(append(over, rest...), going...)
	case at.again:
		out.due = at.due
		for _, m := range going {
			tr := d.verdict(m.item, trace.Waiting, at.reason)
			tr.Into, tr.Steps, tr.Attempts = dl.ID, append([]trace.Step{step}, at.steps...), at.attempts
			d.report(tr)
		}
		d.observe(h, &dl, "", at)
	default:
		out.finished, out.died = true, len(g.members)
		for _, m := range g.members {
			whole, ev, err := d.open(m.item)
			if err != nil {
				whole = m.Delivery
			}
			tr := d.verdict(m.item, trace.Dead, at.reason)
			tr.Into, tr.Steps, tr.Attempts = dl.ID, append([]trace.Step{step}, at.steps...), at.attempts
			d.bury(m.item, whole, ev, at, g.progress, tr)
		}
		d.observe(h, &dl, at.kind(), at)
		over = append(over, g.members...)
	}
	return over, out
}

// groupID is made of the members' IDs, so that the same ID means the same members. After a crash a group with the same
// members has the same ID.
func groupID(going []*member) string {
	sum := fnv.New64a()
	for _, m := range going {
		_, _ = sum.Write([]byte(m.ID))
		_, _ = sum.Write([]byte{0})
	}
	return fmt.Sprintf("%s/group-%016x", going[0].ID, sum.Sum64())
}

// lighten drops the parts of an event that a list of many does not show.
func lighten(ev *resource.Event) {
	if ev.Entity != nil {
		ev.Entity.System = resource.System{}
	}
	if ev.Check != nil {
		ev.Check.History = nil
		ev.Check.Hooks = nil
	}
	ev.Metrics = nil
}
