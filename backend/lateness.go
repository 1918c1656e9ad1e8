package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/cluster"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/lateness"
	"github.com/lapwing-monitoring/lapwing/queue"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// newLateness makes the watch of late checks.
func (b *Backend) newLateness(p *parts) (*lateness.Watcher, error) {
	o := b.opts.Lateness
	o.Snapshot, o.Runs, o.State = p.config.Snapshot, p.runs, p.state
	o.Written = func(namespace, check string) time.Time {
		return config.Written(p.config, config.Checks, namespace, check)
	}
	o.HeardFor, o.Agents, o.Proxies, o.Report = p.heardFor, p.agents, p.scheduler.Proxies, p.intake.Report
	o.Calendar = func(namespace, name string) *calendar.Calendar {
		return p.calendars.Find(p.config.Snapshot(), namespace, name)
	}
	o.Queued = queue.Deadline
	o.Acts = p.members.acts(cluster.LatenessLane)
	o.Logger, o.Registerer = b.log, b.opts.Registry
	return lateness.New(o)
}

// heardFor returns how long this backend has heard all agents, and sent its own all requests, without a break. It is 0
// while the backend does not know what the other members hear, and counts anew when the agents of a member must connect
// to others.
func (p *parts) heardFor(now time.Time) time.Duration {
	if !p.members.Leased() || p.members.behind() {
		return 0
	}
	return min(p.intake.HeardFor(now), now.Sub(p.members.LastAway()))
}

// behind reports whether other members have folded much that this one has not.
func (m *membership) behind() bool {
	if m.Alone() {
		return false
	}
	members := m.Members()
	i := slices.IndexFunc(members, func(one cluster.Member) bool { return one.Self })
	_, lag := members[i].Lag(members)
	return slices.ContainsFunc(lag, func(n uint64) bool { return n > manyMissing })
}

// agentsQuestion asks a member about its agents.
type agentsQuestion struct {
	Subscriptions []resource.Name `json:"subscriptions"`
	// Agent is one to say more about.
	Agent *resource.Name `json:"agent,omitempty"`
}

type agentsAnswer struct {
	// Without are the subscriptions that no agent of the member has.
	Without []resource.Name `json:"without"`
	// HeardFor is how long the member has heard all agents without a break.
	HeardFor time.Duration `json:"heard_for"`
	// Agent is what the member knows of the agent; nil if it was asked about none, or does not know the question.
	Agent *agentFacts `json:"agent,omitempty"`
}

// agentFacts says of an agent whether it is connected to a member, and has a schedule of its own.
type agentFacts struct {
	Connected bool `json:"connected"`
	Own       bool `json:"own"`
}

func (p *parts) agentsHere(q *agentsQuestion) agentsAnswer {
	a := agentsAnswer{HeardFor: p.heardFor(time.Now())}
	for _, s := range q.Subscriptions {
		if len(p.sessions.WithoutAgent(s.Namespace, []string{s.Name})) > 0 {
			a.Without = append(a.Without, s)
		}
	}
	if q.Agent != nil {
		a.Agent = new(agentFacts)
		a.Agent.Connected, a.Agent.Own = p.sessions.OwnSchedule(*q.Agent)
	}
	return a
}

// ownSchedule reports whether an agent has a schedule of its own: each lapwing agent has, and only the member that it is
// connected to knows what it is. An agent that is connected to none has no schedule.
func (p *parts) ownSchedule(ctx context.Context, agent resource.Name) (bool, error) {
	q := agentsQuestion{Agent: &agent}
	if own := p.agentsHere(&q).Agent; own.Connected {
		return own.Own, nil
	}
	all, err := askAll[agentsAnswer](ctx, p.members, questionAgents, q)
	if err != nil {
		return false, err
	}
	var unknown error
	for _, one := range all {
		switch {
		case one.err != nil && one.member != nil && one.member.Silent >= goneLong: // its agents are at others by then
		case one.err != nil:
			unknown = errors.Join(unknown, errors.New(one.whyNot()))
		case one.answer.Agent == nil:
			unknown = errors.Join(unknown, fmt.Errorf("%s has a release that does not tell it", one.name))
		case one.answer.Agent.Connected:
			return one.answer.Agent.Own, nil
		}
	}
	return false, unknown
}

// agents asks all members about their agents. The agents of a member that is away come to others. If a member that is
// heard does not answer, nothing is known.
func (p *parts) agents(ctx context.Context, subscriptions []resource.Name) lateness.Agents {
	own := p.agentsHere(&agentsQuestion{Subscriptions: subscriptions})
	all, err := askAll[agentsAnswer](ctx, p.members, questionAgents, agentsQuestion{Subscriptions: own.Without})
	if err != nil {
		return lateness.Agents{}
	}
	a := lateness.Agents{HeardFor: own.HeardFor}
	answers, lack := 0, map[resource.Name]int{} // how many of the answers lack a subscription
	for _, one := range all {
		switch {
		case one.err == nil:
			answers++
			a.HeardFor = min(a.HeardFor, one.answer.HeardFor)
			for _, s := range one.answer.Without {
				lack[s]++
			}
		case one.member != nil && one.member.Heard:
			return lateness.Agents{}
		}
	}
	for _, s := range own.Without {
		if lack[s] == answers {
			a.Without = append(a.Without, s)
		}
	}
	return a
}
