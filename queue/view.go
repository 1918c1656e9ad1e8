package queue

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// GroupStatus is what users see of a group. Times are in seconds.
type GroupStatus struct {
	Namespace    string `json:"namespace"`
	Check        string `json:"check"`
	Subscription string `json:"subscription"`
	// Acts says that this member gives the turns. The figures of the member that does are the whole truth.
	Acts bool `json:"acts"`
	// Agents are connected and have the subscription.
	Agents int `json:"agents"`
	// Open turns have no result yet, Waiting ones of them no agent.
	Open    int `json:"open"`
	Waiting int `json:"waiting"`
	// Oldest is the age of the oldest open turn.
	Oldest float64 `json:"oldest"`
	// Last is the agent that had the newest turn.
	Last string `json:"last"`
	// Answer is how long an agent may be silent before its turn goes to the next one, and Deadline how long after its tick
	// a turn is given to agents.
	Answer   float64 `json:"answer"`
	Deadline float64 `json:"deadline"`
	// Figures since the member began; see Counts.
	Given      uint64 `json:"given"`
	Again      uint64 `json:"again"`
	Answered   uint64 `json:"answered"`
	Declined   uint64 `json:"declined"`
	Expired    uint64 `json:"expired"`
	Duplicates uint64 `json:"duplicates"`
	Late       uint64 `json:"late"`
}

// GroupDetail is a group with its turns.
type GroupDetail struct {
	GroupStatus
	// Turns are open, the oldest first.
	Turns []OpenTurn `json:"turns"`
	// Fairness has how many turns the agents had, of all checks with the subscription.
	Fairness Fairness `json:"fairness"`
	// Twice are the newest duplicates.
	Twice []DuplicateTurn `json:"twice"`
}

// OpenTurn is a turn without a result.
type OpenTurn struct {
	Tick    int64  `json:"tick"` // Unix seconds
	Entity  string `json:"entity,omitempty"`
	Asked   bool   `json:"asked,omitempty"`
	Agent   string `json:"agent,omitempty"`
	Member  string `json:"member,omitempty"`
	Attempt int    `json:"attempt"`
	Running bool   `json:"running,omitempty"`
	// Lost says that the agent's connection has ended since.
	Lost bool `json:"lost,omitempty"`
	// Since is how long the agent has had it, in seconds.
	Since float64 `json:"since"`
}

// DuplicateTurn is a result of a turn that had one.
type DuplicateTurn struct {
	Tick   int64  `json:"tick"`
	Entity string `json:"entity,omitempty"`
	First  string `json:"first"`
	Second string `json:"second"`
	At     int64  `json:"at"` // Unix seconds
}

// Fairness says how many turns the agents of a subscription had, each since it was connected.
type Fairness struct {
	// Least and Most are those of one agent.
	Least int     `json:"least"`
	Most  int     `json:"most"`
	Mean  float64 `json:"mean"`
	// Bins are numbers of agents: from Least to Most in equal steps, ten at most.
	Bins []FairnessBin `json:"bins"`
}

// FairnessBin is how many agents had From to To turns.
type FairnessBin struct {
	From   int `json:"from"`
	To     int `json:"to"`
	Agents int `json:"agents"`
}

// maxBins is how many bins Fairness has at most.
const maxBins = 10

// Groups returns the groups of a namespace, "" for all, in any order.
func (q *Queue) Groups(namespace string) []GroupStatus {
	now := time.Now()
	list := []GroupStatus{}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range q.checks {
		if namespace != "" && c.name.Namespace != namespace {
			continue
		}
		for _, g := range c.groups {
			list = append(list, q.status(g, now))
		}
	}
	return list
}

// maxTurns is how many open turns of a group GroupsOf returns.
const maxTurns = 100

// GroupsOf returns the groups of a check, in the order of their subscriptions.
func (q *Queue) GroupsOf(namespace, name string) (list []GroupDetail) {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.checks[resource.Name{Namespace: namespace, Name: name}]
	if c == nil {
		return nil
	}
	for _, g := range c.groups {
		list = append(list, GroupDetail{
			GroupStatus: q.status(g, now), Turns: g.openTurns(now), Fairness: fairness(q.presence.turnsOf(g.name)), Twice: g.duplicates(),
		})
	}
	slices.SortFunc(list, func(a, b GroupDetail) int { return strings.Compare(a.Subscription, b.Subscription) })
	return list
}

// openTurns returns the oldest open turns. The caller holds the Queue's mu.
func (g *group) openTurns(now time.Time) []OpenTurn {
	turns := []OpenTurn{}
	for _, o := range g.open {
		t := OpenTurn{
			Tick: o.turn.Tick, Entity: o.turn.Entity, Asked: o.turn.Asked, Agent: o.agent, Member: o.member,
			Attempt: o.attempt, Running: o.running, Lost: o.lost,
		}
		if o.agent != "" {
			t.Since = now.Sub(o.given).Seconds()
		}
		turns = append(turns, t)
	}
	slices.SortFunc(turns, func(a, b OpenTurn) int {
		return cmp.Or(cmp.Compare(a.Tick, b.Tick), strings.Compare(a.Entity, b.Entity))
	})
	return turns[:min(len(turns), maxTurns)]
}

// duplicates returns the newest duplicates. The caller holds the Queue's mu.
func (g *group) duplicates() []DuplicateTurn {
	list := []DuplicateTurn{}
	for _, t := range g.twice {
		list = append(list, DuplicateTurn{t.Turn.Tick, t.Turn.Entity, t.First, t.Second, t.At.Unix()})
	}
	return list
}

// JoinDetails joins what several members say of the groups of a check. Each member knows the duplicates since it began, so
// all of them together are shown.
func JoinDetails(lists [][]GroupDetail) []GroupDetail {
	joined := Join(lists, func(g *GroupDetail) *GroupStatus { return &g.GroupStatus })
	for i := range joined {
		g := &joined[i]
		g.Twice = []DuplicateTurn{}
		for _, list := range lists {
			for _, other := range list {
				if other.Subscription == g.Subscription {
					g.Twice = append(g.Twice, other.Twice...)
				}
			}
		}
		slices.SortFunc(g.Twice, DuplicateTurn.compare)
		g.Twice = slices.CompactFunc(g.Twice, func(a, b DuplicateTurn) bool {
			return a.Tick == b.Tick && a.Entity == b.Entity && a.Second == b.Second
		})
		g.Twice = g.Twice[max(0, len(g.Twice)-maxTwice):]
	}
	return joined
}

func (t DuplicateTurn) compare(o DuplicateTurn) int {
	return cmp.Or(cmp.Compare(t.Tick, o.Tick), strings.Compare(t.Entity, o.Entity), strings.Compare(t.Second, o.Second))
}

// Join joins what several members say of the same groups: that of the member that gives a group's turns, else that of the
// first one. status returns the status of a group.
func Join[G any](lists [][]G, status func(*G) *GroupStatus) []G {
	known := map[Group]int{}
	joined := []G{}
	for _, list := range lists {
		for i := range list {
			s := status(&list[i])
			name := Group{resource.Name{Namespace: s.Namespace, Name: s.Check}, s.Subscription}
			if at, ok := known[name]; !ok {
				known[name] = len(joined)
				joined = append(joined, list[i])
			} else if s.Acts && !status(&joined[at]).Acts {
				joined[at] = list[i]
			}
		}
	}
	slices.SortFunc(joined, func(a, b G) int {
		x, y := status(&a), status(&b)
		return cmp.Or(
			strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Check, y.Check), strings.Compare(x.Subscription, y.Subscription),
		)
	})
	return joined
}

// status returns what users see of a group. The caller holds mu.
func (q *Queue) status(g *group, now time.Time) GroupStatus {
	waiting := 0
	for _, o := range g.open {
		if o.agent == "" {
			waiting++
		}
	}
	n := g.counts
	return GroupStatus{
		Namespace: g.check.name.Namespace, Check: g.check.name.Name, Subscription: g.name.Subscription, Acts: g.check.acting,
		Agents: q.presence.agentsOf(g.name), Open: len(g.open), Waiting: waiting, Oldest: g.oldest(now).Seconds(), Last: g.cursor,
		Answer: g.limits.answer.Seconds(), Deadline: g.limits.deadline.Seconds(),
		Given: n.Given, Again: n.Again, Answered: n.Answered, Declined: n.Declined, Expired: n.Expired,
		Duplicates: n.Duplicates, Late: n.Late,
	}
}

// fairness sums up how many turns each agent had.
func fairness(turns []uint32) Fairness {
	f := Fairness{Bins: []FairnessBin{}}
	if len(turns) == 0 {
		return f
	}
	f.Least, f.Most = int(slices.Min(turns)), int(slices.Max(turns))
	width := (f.Most-f.Least)/maxBins + 1
	for from := f.Least; from <= f.Most; from += width {
		f.Bins = append(f.Bins, FairnessBin{From: from, To: min(from+width-1, f.Most)})
	}
	sum := 0
	for _, n := range turns {
		sum += int(n)
		f.Bins[(int(n)-f.Least)/width].Agents++
	}
	f.Mean = float64(sum) / float64(len(turns))
	return f
}

// agentsOf returns how many agents a group has.
func (p *Presence) agentsOf(g Group) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.ring(g); r != nil {
		return len(r.agents)
	}
	return 0
}

// turnsOf returns how many turns each agent of a group's subscription had, in their order.
func (p *Presence) turnsOf(g Group) []uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.ring(g); r != nil {
		return slices.Clone(r.turns)
	}
	return nil
}
