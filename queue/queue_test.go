package queue

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// bed is a queue of one member, whose agents answer as the test says, at times that the test sets.
type bed struct {
	*Queue
	t       *testing.T
	acts    bool
	refuses bool // its sessions take nothing
	over    bool // it is overloaded
	unheard time.Time
	sent    []*Delivery
	now     time.Time
}

var turnsCheck = resource.CheckConfig{
	Metadata: resource.ObjectMeta{Namespace: "default", Name: "turns"}, Interval: 10, RoundRobin: true, Subscriptions: []string{"linux"},
}

func newBed(t *testing.T, agents ...string) *bed {
	t.Helper()
	b := &bed{t: t, acts: true, now: time.Unix(1_000_000, 0)}
	q, err := New(Options{
		Member: "m", Life: "1",
		Acts: func(resource.Name) bool { return b.acts },
		Deliver: func(d *Delivery) bool {
			request, config := *d.Request, *d.Request.Config
			config.Metadata.Annotations = maps.Clone(config.Metadata.Annotations)
			d.Request, request.Config = &request, &config
			b.sent = append(b.sent, d)
			return !b.refuses
		},
		Unheard:    func(time.Duration) time.Time { return b.unheard },
		Overloaded: func() bool { return b.over },
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Queue = q
	q.began, q.complete = b.now.Add(-time.Hour), true
	q.Define(resource.NameOf(&turnsCheck.Metadata), &turnsCheck)
	q.checkOf(linux.Check).groupOf("linux").cursor = "~" // the first turn is that of the first agent
	for _, name := range agents {
		b.connect(name)
	}
	return b
}

func name(agent string) resource.Name { return resource.Name{Namespace: "default", Name: agent} }

func (b *bed) connect(agent string) { b.presence.Connected(name(agent), []string{"linux"}) }
func (b *bed) gone(agent string)    { b.presence.Gone(name(agent)) }

// tick offers a tick at the present second, and returns it.
func (b *bed) tick() Turn {
	t := Turn{Tick: b.now.Unix()}
	b.Offer(&Tick{
		Tick: t.Tick, Due: t.Tick, Request: &resource.CheckRequest{Config: &turnsCheck}, Subscriptions: []string{"linux"},
		Every: 10 * time.Second,
	}, b.now)
	b.send(b.now)
	return t
}

// pass lets time pass, in tenths of a second.
func (b *bed) pass(d time.Duration) {
	for end := b.now.Add(d); b.now.Before(end); {
		b.now = b.now.Add(100 * time.Millisecond)
		b.look(b.now)
		b.fire(b.now)
		b.send(b.now)
	}
}

// given returns the agents that got turns since the last call.
func (b *bed) given() (agents []string) {
	for _, d := range b.sent {
		agents = append(agents, d.Agent.Name)
	}
	b.sent = nil
	return agents
}

func (b *bed) want(agents ...string) {
	b.t.Helper()
	if got := b.given(); fmt.Sprint(got) != fmt.Sprint(agents) {
		b.t.Errorf("given to %v, want %v", got, agents)
	}
}

var linux = Group{resource.NameOf(&turnsCheck.Metadata), "linux"}

// answer has an agent answer a turn.
func (b *bed) answer(t Turn, agent string) {
	b.result(linux, t, 0, agent, 10*time.Millisecond, b.now)
}

func (b *bed) receipt(t Turn, agent string, outcome wire.Outcome) {
	b.Receipt(name(agent), &wire.Receipt{Check: "turns", Turn: t.Format(0, "linux"), Outcome: outcome}, b.now)
	b.send(b.now)
}

func (b *bed) counts() Counts { return b.find(linux).counts }

func TestTurns(t *testing.T) {
	b := newBed(t, "a", "b", "c")
	for i, agent := range []string{"a", "b", "c", "a", "b"} {
		turn := b.tick()
		if d := b.sent[0]; d.Request.Issued != turn.Tick || d.Request.Config.Metadata.Annotations[resource.TurnAnnotation] != turn.Format(d.moved, "linux") {
			t.Errorf("request %d was issued at %d with %v", i, d.Request.Issued, d.Request.Config.Metadata.Annotations)
		}
		b.want(agent)
		b.answer(turn, agent)
		b.answer(turn, agent) // a replay of the log
		b.answer(turn, map[string]string{"a": "b", "b": "c", "c": "a"}[agent])
		b.answer(turn, "stranger")
		b.answer(Turn{Tick: turn.Tick + 5}, "stranger")
		b.pass(10 * time.Second)
		b.want()
	}
	if got := b.counts(); got != (Counts{Given: 5, Answered: 5, Duplicates: 5}) {
		t.Errorf("got %+v", got)
	}
	d := b.GroupsOf("default", "turns")
	if len(d) != 1 || len(d[0].Twice) != 5 || d[0].Twice[4].First != "b" || d[0].Twice[4].Second != "c" {
		t.Errorf("duplicates are shown as %+v", d)
	}
	if turnsCheck.Metadata.Annotations != nil {
		t.Errorf("the definition has annotations: %v", turnsCheck.Metadata.Annotations)
	}
}

// TestAgain: what has no result goes to the next agent, with a newer time of issue.
func TestAgain(t *testing.T) {
	for what, happens := range map[string]func(b *bed, turn Turn){
		"silence": func(b *bed, _ Turn) { b.pass(5 * time.Second) },
		"gone": func(b *bed, _ Turn) {
			b.gone("a")
			b.pass(comeBack + lookEvery)
		},
		"gone while it runs": func(b *bed, turn Turn) {
			b.receipt(turn, "a", wire.OutcomeRunning)
			b.gone("a")
			b.pass(comeBack + lookEvery)
		},
		"declined": func(b *bed, turn Turn) { b.receipt(turn, "a", wire.OutcomeDeclined) },
	} {
		t.Run(what, func(t *testing.T) {
			b := newBed(t, "a", "b", "c")
			turn := b.tick()
			happens(b, turn)
			if len(b.sent) != 2 || b.sent[1].Attempt != 2 || b.sent[1].Turn != turn {
				t.Fatalf("sent %+v", b.sent)
			}
			b.want("a", "b")
			b.receipt(turn, "a", wire.OutcomeDeclined) // late
			b.want()
			b.answer(turn, "b")
			b.pass(10 * time.Second)
			b.want()
			b.tick()
			b.want("c")
		})
	}
}

// TestKept: a turn stays with an agent that will have a result.
func TestKept(t *testing.T) {
	for what, happens := range map[string]func(b *bed, turn Turn){
		"back": func(b *bed, _ Turn) {
			b.gone("a")
			b.pass(2 * time.Second)
			b.connect("a")
			b.pass(2500 * time.Millisecond)
			if len(b.sent) == 2 && b.sent[1].Request.Issued == b.sent[0].Request.Issued {
				b.sent = b.sent[1:] // the same request again: it may have got lost
			}
		},
		"runs for long": func(b *bed, turn Turn) {
			b.pass(2 * time.Second)
			b.receipt(turn, "a", wire.OutcomeRunning)
			b.pass(time.Minute)
		},
		"results cannot arrive": func(b *bed, _ Turn) {
			b.unheard = b.now.Add(19 * time.Second)
			b.pass(18 * time.Second)
		},
		"a receipt of a stranger": func(b *bed, turn Turn) {
			b.receipt(turn, "c", wire.OutcomeDeclined)
			b.receipt(turn, "c", wire.OutcomeDone)
			b.pass(4 * time.Second)
		},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBed(t, "a", "b", "c")
			turn := b.tick()
			happens(b, turn)
			b.want("a")
			b.answer(turn, "a")
			b.pass(10 * time.Second)
			b.want()
			if got := b.counts(); got.Answered != 1 || got.Expired != 0 || got.Again != 0 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestDone: a receipt acknowledges a turn as a result does.
func TestDone(t *testing.T) {
	b := newBed(t, "a", "b")
	turn := b.tick()
	b.receipt(turn, "a", wire.OutcomeDone)
	b.pass(9 * time.Second)
	b.receipt(turn, "b", wire.OutcomeDone)
	b.want("a")
	if got := b.counts(); got != (Counts{Given: 1, Answered: 1, Duplicates: 1}) {
		t.Errorf("got %+v", got)
	}
}

// TestNoAgent: a turn waits for an agent until its deadline.
func TestNoAgent(t *testing.T) {
	b := newBed(t)
	b.tick()
	b.pass(8 * time.Second)
	b.want()
	b.connect("late")
	b.pass(200 * time.Millisecond)
	b.want("late")
	b.gone("late")
	b.pass(time.Minute)
	b.want()
	if got := b.counts(); got.Expired != 1 {
		t.Errorf("got %+v", got)
	}
}

// TestAllRefuse: when all agents have declined, they are asked again after the time for an answer.
func TestAllRefuse(t *testing.T) {
	b := newBed(t, "a", "b")
	b.refuses = true
	turn := b.tick()
	b.want("a", "b")
	b.pass(4 * time.Second)
	b.want()
	b.refuses = false
	b.pass(1100 * time.Millisecond)
	if len(b.sent) != 1 || b.sent[0].Request.Issued <= turn.Tick {
		t.Fatalf("sent %+v", b.sent)
	}
	b.want("a")
}

// TestTwoGroups: an agent whose turn it is in two groups gets one request, and its result is that of both. When the groups'
// turns are those of two agents, each gets one.
func TestTwoGroups(t *testing.T) {
	b := newBed(t)
	both := turnsCheck
	both.Subscriptions = []string{"linux", "web"}
	b.Define(linux.Check, &both)
	b.presence.Connected(name("a"), both.Subscriptions)
	b.Offer(&Tick{
		Tick: b.now.Unix(), Due: b.now.Unix(), Request: &resource.CheckRequest{Config: &both}, Subscriptions: both.Subscriptions,
		Every: time.Second,
	}, b.now)
	b.send(b.now)
	if len(b.sent) != 1 || b.sent[0].Request.Config.Metadata.Annotations[resource.TurnAnnotation] != b.sent[0].Turn.Format(b.sent[0].moved, "linux", "web") {
		t.Fatalf("sent %+v", b.sent)
	}
	result := resource.Event{Check: resource.CheckOf(b.sent[0].Request.Config)}
	b.folded(b.results.get(linux.Check), linux.Check, "a", result.AppendProto(nil), 17, true)
	if got := b.Received("default", "turns"); got != 17 {
		t.Errorf("the last result was received at %d, want 17", got)
	}
	if open := len(b.find(linux).open) + len(b.find(Group{linux.Check, "web"}).open); open > 0 {
		t.Errorf("%d turns have no result", open)
	}
	b.sent = nil
	b.presence.Connected(name("b"), []string{"web"})
	b.pass(time.Second)
	b.Offer(&Tick{
		Tick: b.now.Unix(), Due: b.now.Unix(), Request: &resource.CheckRequest{Config: &both}, Subscriptions: both.Subscriptions,
		Every: time.Second,
	}, b.now)
	b.send(b.now)
	b.want("a", "b")
	b.Define(linux.Check, &turnsCheck)
	if b.find(Group{linux.Check, "web"}) != nil || b.find(linux) == nil {
		t.Error("the group of a subscription that the check has no more is kept, or the other one is not")
	}
	b.Define(linux.Check, nil)
	if b.find(linux) != nil || len(b.timers) > 0 {
		t.Error("the check is owed though it is no longer defined")
	}
}

// TestStrict: between two turns of an agent, each agent that is there all the time has one, even if others come and go.
func TestStrict(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		b := newBed(t)
		for i := range 20 {
			b.connect(fmt.Sprintf("agent-%02d", i))
		}
		var order []string
		has := map[Turn]string{}
		for range 500 {
			turn := b.tick()
			for _, d := range b.sent {
				if has[d.Turn] != d.Agent.Name { // else it came back, and got its turn again
					order = append(order, d.Agent.Name)
				}
				has[d.Turn] = d.Agent.Name
				if d.Agent.Name < "agent-10" || rng.IntN(4) > 0 { // the others may be silent
					b.answer(turn, d.Agent.Name)
				}
			}
			b.sent = nil
			if agent := fmt.Sprintf("agent-%02d", 10+rng.IntN(10)); rng.IntN(2) == 0 {
				b.gone(agent)
			} else {
				b.connect(agent)
			}
			b.pass(time.Duration(1+rng.IntN(3)) * time.Second)
		}
		strict(t, fmt.Sprint("seed ", seed), order, "agent-10")
	}
}

// strict checks an order of turns: between two of an agent, each agent whose name is less than below has one.
func strict(t *testing.T, what string, order []string, below string) {
	t.Helper()
	last := map[string]int{}
	for at, agent := range order {
		before, had := last[agent]
		if had {
			for other, since := range last {
				if other < below && other != agent && since < before {
					t.Fatalf("%s: %s had turns %d and %d, and %s none between them", what, agent, before, at, other)
				}
			}
		}
		last[agent] = at
	}
}

// TestFirst: checks begin with different agents.
func TestFirst(t *testing.T) {
	b := newBed(t)
	for i := range 100 {
		b.connect(fmt.Sprintf("agent-%02d", i))
	}
	first := map[string]int{}
	for i := range 1000 {
		c := turnsCheck
		c.Metadata.Name = fmt.Sprint("check-", i)
		b.Define(resource.NameOf(&c.Metadata), &c)
		b.Offer(&Tick{Tick: b.now.Unix(), Due: b.now.Unix(), Request: &resource.CheckRequest{Config: &c}, Subscriptions: c.Subscriptions}, b.now)
	}
	b.send(b.now)
	for _, agent := range b.given() {
		first[agent]++
	}
	if len(first) < 95 {
		t.Errorf("the first turns of 1,000 checks are those of %d agents, want nearly all of 100", len(first))
	}
}

// TestFairness: the bins hold all agents.
func TestFairness(t *testing.T) {
	for _, turns := range [][]uint32{{}, {0}, {3, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {0, 100}, {5, 17, 23}} {
		f := fairness(turns)
		sum := 0
		for i, b := range f.Bins {
			sum += b.Agents
			if b.From > b.To || i > 0 && b.From != f.Bins[i-1].To+1 {
				t.Errorf("%v: bins %+v", turns, f.Bins)
			}
		}
		if sum != len(turns) || len(f.Bins) > maxBins {
			t.Errorf("%v: %d agents in %d bins", turns, sum, len(f.Bins))
		}
	}
}

// TestJoin: of what members say, that of the one that gives the turns counts.
func TestJoin(t *testing.T) {
	group := func(check string, acts bool, given uint64) GroupStatus {
		return GroupStatus{Namespace: "default", Check: check, Subscription: "linux", Acts: acts, Given: given}
	}
	got := Join([][]GroupStatus{
		{group("b", false, 1), group("a", true, 2)},
		{group("a", false, 3), group("b", true, 4), group("c", false, 5)},
		{group("c", false, 6)},
	}, func(g *GroupStatus) *GroupStatus { return g })
	if want := []GroupStatus{group("a", true, 2), group("b", true, 4), group("c", false, 5)}; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestJoinDetails: a member that began later does not know all duplicates.
func TestJoinDetails(t *testing.T) {
	group := func(acts bool, twice ...DuplicateTurn) []GroupDetail {
		return []GroupDetail{{GroupStatus: GroupStatus{Check: "a", Subscription: "x", Acts: acts, Agents: 3}, Twice: twice}}
	}
	first, second := DuplicateTurn{Tick: 1, Second: "b", At: 5}, DuplicateTurn{Tick: 2, Second: "b", At: 6}
	other := second
	other.At++ // the members read it at different times
	got := JoinDetails([][]GroupDetail{group(false, first, second), group(true, other), {}})
	if len(got) != 1 || !got[0].Acts || fmt.Sprint(got[0].Twice) != fmt.Sprint([]DuplicateTurn{first, second}) {
		t.Errorf("got %+v", got)
	}
}

// TestGoesOn: a queue that begins anew, or hears nothing of a turn that was given, goes on behind the agent that had the
// newest turn of which there is a result.
func TestGoesOn(t *testing.T) {
	b := newBed(t, "a", "b", "c")
	ran := func(age int64, agent string) {
		at := b.now.Add(-time.Duration(age) * time.Second)
		b.result(linux, Turn{Tick: at.Unix()}, stamp(0, at), agent, 0, b.now)
	}
	ran(3600, "a")
	turn := b.tick()
	b.want("b")
	b.answer(turn, "b")
	ran(-1, "c") // another member has given it
	ran(2, "a")
	ran(-3600, "b") // made up
	b.pass(10 * time.Second)
	b.tick()
	b.want("a")
}
