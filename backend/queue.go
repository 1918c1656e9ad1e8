package backend

import (
	"context"
	"time"

	"github.com/lapwing-monitoring/lapwing/cluster"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/queue"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule"
	"github.com/lapwing-monitoring/lapwing/state"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// newQueue makes the queue of round-robin checks. It knows all checks from here on.
func (b *Backend) newQueue(p *parts) (*queue.Queue, error) {
	o := queue.Options{
		Member: p.members.Self(), Life: p.members.Life(),
		Deliver: p.deliver, Unheard: p.unheard, Overloaded: func() bool { return p.sessions.Overloaded() },
		Acts: func(check resource.Name) bool {
			return p.members.Acts(cluster.QueueLane(check.Namespace, check.Name))
		},
		Logger: b.log, Registerer: b.opts.Registry,
	}
	if !p.members.Alone() {
		o.Bus, o.Others, o.AskCopy = p.broker.Bus(), p.members.queueOthers, func(ctx context.Context, member string) ([]byte, error) {
			return p.members.Ask(ctx, member, questionPresence, nil)
		}
	}
	q, err := queue.New(o)
	if err != nil {
		return nil, err
	}
	p.config.OnChange(func(c config.Change) {
		if c.Kind == config.Checks.String() {
			check, _ := config.Get(p.config.Snapshot(), config.Checks, c.Namespace, c.Name)
			q.Define(resource.Name{Namespace: c.Namespace, Name: c.Name}, check)
		}
	})
	for check := range config.List(p.config.Snapshot(), config.Checks, "") {
		q.Define(resource.NameOf(&check.Metadata), check)
	}
	return q, nil
}

// recall tells the queue what results the state has.
func (p *parts) recall() {
	p.queue.Recall(p.state.Pairs(""), func(pr state.Pair) (*resource.Event, error) {
		return p.state.Event(pr.Namespace, pr.Entity, pr.Check)
	}, time.Now())
}

// queueOthers returns the other members, for the queue.
func (m *membership) queueOthers() []queue.Other {
	var others []queue.Other
	for _, o := range m.Others() {
		others = append(others, queue.Other{
			ID: o.ID, Life: o.Life, Heard: o.Heard, Presence: o.Presence, Overloaded: o.Overloaded,
		})
	}
	return others
}

// publish passes a check request to its agents: that of a round-robin check through the queue.
func (p *parts) publish(r schedule.Request) {
	if !r.RoundRobin {
		p.sessions.Publish(r)
		return
	}
	p.queue.Offer(&queue.Tick{
		Tick: r.Tick.Unix(), Due: r.Due.Unix(), Asked: r.Asked, Request: r.Request, Subscriptions: r.Subscriptions, Every: r.Every,
	}, time.Now())
}

// deliver passes a turn to an agent's session.
func (p *parts) deliver(d *queue.Delivery) bool {
	return p.sessions.Ask(d.Agent, d.Request, time.Unix(d.Request.Issued, 0), func() { p.queue.Undelivered(d, time.Now()) })
}

// receipt passes what an agent says about a turn to the queue.
func (p *parts) receipt(agent resource.Name, r *wire.Receipt) { p.queue.Receipt(agent, r, time.Now()) }

// unheard returns when an agent's silence counts, if results could not arrive at some time in the period before now.
func (p *parts) unheard(period time.Duration) time.Time {
	if again := p.intake.Unheard(period.Milliseconds(), time.Now()); again != 0 {
		return time.UnixMilli(again)
	}
	return time.Time{}
}

// queueQuestion asks a member for its groups: those of a check with their turns, or without a check all of a namespace.
type queueQuestion struct {
	Namespace string `json:"namespace"`
	Check     string `json:"check,omitempty"`
}

type queueAnswer struct {
	Groups  []queue.GroupStatus `json:"groups"`
	Details []queue.GroupDetail `json:"details"`
}

func (v *clusterView) queueHere(_ context.Context, q *queueQuestion) (a queueAnswer, err error) {
	if q.Check == "" {
		a.Groups = v.parts.queue.Groups(q.Namespace)
	} else {
		a.Details = v.parts.queue.GroupsOf(q.Namespace, q.Check)
	}
	return a, nil
}

// Groups implements api.Queue.
func (v *clusterView) Groups(ctx context.Context, namespace string) ([]queue.GroupStatus, []string) {
	answers, missing := v.askQueue(ctx, &queueQuestion{Namespace: namespace})
	var lists [][]queue.GroupStatus
	for _, a := range answers {
		lists = append(lists, a.Groups)
	}
	return queue.Join(lists, func(g *queue.GroupStatus) *queue.GroupStatus { return g }), missing
}

// GroupsOf implements api.Queue.
func (v *clusterView) GroupsOf(ctx context.Context, namespace, check string) ([]queue.GroupDetail, []string) {
	answers, missing := v.askQueue(ctx, &queueQuestion{namespace, check})
	var lists [][]queue.GroupDetail
	for _, a := range answers {
		lists = append(lists, a.Details)
	}
	details := queue.JoinDetails(lists)
	for i := range details {
		for t := range details[i].Turns {
			turn := &details[i].Turns[t]
			if turn.Member = v.members.NameOf(turn.Member); v.members.Alone() {
				turn.Member = ""
			}
		}
	}
	return details, missing
}

// askQueue asks all members, this one first.
func (v *clusterView) askQueue(ctx context.Context, q *queueQuestion) (answers []*queueAnswer, missing []string) {
	own, _ := v.queueHere(ctx, q) // it never fails
	all, err := askAll[queueAnswer](ctx, v.members, questionQueue, q)
	if err != nil {
		v.log.Error("the other members were not asked for the queue", "err", err)
	}
	answers, missing = answersOf(all)
	return append([]*queueAnswer{&own}, answers...), missing
}
