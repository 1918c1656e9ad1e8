package queue

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// offer offers a tick that was due some time ago to all groups of a check.
func (b *bed) offer(c *resource.CheckConfig, tick Turn, due time.Time, every time.Duration) {
	b.Offer(&Tick{
		Tick: tick.Tick, Due: due.Unix(), Asked: tick.Asked, Request: &resource.CheckRequest{Config: c},
		Subscriptions: c.Subscriptions, Every: every,
	}, b.now)
	b.send(b.now)
}

// TestResultsOfBefore: results that are read before the first tick is offered count, however long ago they were. Of each
// agent the state has only its newest result, so what lies before all of them counts as answered.
func TestResultsOfBefore(t *testing.T) {
	b := newBed(t, "a", "b")
	began := b.began
	b.began, b.complete = time.Time{}, false
	at := func(age int64) Turn { return Turn{Tick: b.now.Unix() - age} }
	b.answer(at(400), "dead")
	b.answer(at(50), "a")
	b.answer(at(40), "b")
	b.began, b.complete = began, true
	for _, age := range []int64{60, 50, 40, 30} {
		b.offer(&turnsCheck, at(age), b.now.Add(-time.Duration(age)*time.Second), time.Minute)
	}
	b.want("a") // the newest, behind b
	if n := b.counts(); n != (Counts{Given: 1}) {
		t.Errorf("got %+v", n)
	}
}

// TestFlapping: an agent that loses its connection again and again keeps its turn once. The next one gets it, and each
// turn ends in the end.
func TestFlapping(t *testing.T) {
	b := newBed(t, "a", "b")
	b.tick()
	for range 30 {
		b.gone("a")
		b.pass(time.Second)
		b.connect("a")
		b.pass(time.Second)
	}
	got := b.given()
	if fmt.Sprint(got[:3]) != "[a a b]" {
		t.Errorf("given to %v", got)
	}
	b.gone("b")
	for range 300 {
		b.gone("a")
		b.pass(time.Second)
		b.connect("a")
		b.pass(time.Second)
	}
	if n := b.counts(); n.Expired != 1 || len(b.timers) > 0 {
		t.Errorf("got %+v, %d timers", n, len(b.timers))
	}
}

// TestOutage: turns whose results cannot arrive wait for longer, but they do not pile up.
func TestOutage(t *testing.T) {
	b := newBed(t, "a")
	for range 120 {
		b.unheard = b.now.Add(20 * time.Second)
		b.tick()
		b.pass(10 * time.Second)
	}
	if n := len(b.find(linux).open); n > 33 {
		t.Errorf("%d turns wait, of 32 in the time that they may", n)
	}
}

// TestOverload: while a member is overloaded, silent agents that are connected to it keep their turns. Afterwards these have
// the time for an answer, and go to other agents.
func TestOverload(t *testing.T) {
	b := newBed(t, "a", "b")
	b.over = true
	turn := b.tick()
	b.pass(3 * time.Second)
	b.over = false
	b.pass(4 * time.Second)
	b.want("a") // without the overload b would have had it after 5 s
	b.pass(2 * time.Second)
	b.want("b")
	b.answer(turn, "b")

	b.over = true
	turn = b.tick()
	b.pass(9 * time.Second)
	b.over = false
	b.pass(6 * time.Second)
	b.want("a", "b") // behind the deadline that the turn had
	b.answer(turn, "b")

	b.over = true
	b.tick()
	b.pass(time.Minute)
	b.want("a")
	if n := b.counts(); n.Expired != 1 || len(b.find(linux).open) != 0 {
		t.Errorf("got %+v, and %d turns are open", n, len(b.find(linux).open))
	}

	turn = b.tick()
	b.receipt(turn, "b", wire.OutcomeDeclined)
	b.want("b", "a") // an agent that declines does so at once
	b.answer(turn, "a")

	// The clock is set back behind an overload, which is over then.
	b.pass(10 * time.Second)
	b.over = false
	b.now = b.now.Add(-time.Hour)
	b.find(linux).check.begin = b.now
	b.tick()
	b.pass(7 * time.Second)
	b.want("b", "a")
}

// TestTimeInAMicrosecond: a turn whose time comes later in the present microsecond waits for the next one.
func TestTimeInAMicrosecond(t *testing.T) {
	b := newBed(t, "a")
	b.now = b.now.Add(900 * time.Nanosecond)
	turn := b.tick()
	b.receipt(turn, "a", wire.OutcomeRunning)
	end := b.find(linux).open[turn].until()
	if next := b.fire(end.Add(-700 * time.Nanosecond)); !next.Equal(end.Truncate(time.Microsecond).Add(time.Microsecond)) {
		t.Errorf("the turn that ends at %v is looked at at %v", end, next)
	}
	if b.fire(end.Add(time.Microsecond)); b.counts().Expired != 1 {
		t.Error("the turn did not end")
	}
}

// TestReceived: a result has a deadline of its own if it has a TTL. Other events end no deadline.
func TestReceived(t *testing.T) {
	b := newBed(t)
	ev := resource.Event{Check: resource.CheckOf(&turnsCheck)}
	b.folded(b.results.get(linux.Check), linux.Check, "a", ev.AppendProto(nil), 5000, true)
	b.folded(b.results.get(linux.Check), linux.Check, "a", ev.AppendProto(nil), 6000, false)
	for _, a := range []*state.Applied{{Deadline: true}, {Deleted: true}} {
		a.Kind, a.Namespace, a.Check, a.Received, a.Due = eventlog.KindEvent, "default", "turns", 7000, 8000
		b.Follow(a)
	}
	if got := b.Received("default", "turns"); got != 5000 {
		t.Errorf("got %d, want 5000", got)
	}
}

// TestTakeOverOfRunning: the owner and the agent that runs a turn are lost together.
func TestTakeOverOfRunning(t *testing.T) {
	for what, lost := range map[string]func(b *bed, turn Turn){
		"gone":     func(b *bed, _ Turn) { b.gone("a") },
		"declined": func(b *bed, turn Turn) { b.receipt(turn, "a", wire.OutcomeDeclined) },
	} {
		t.Run(what, func(t *testing.T) {
			b := newBed(t, "a", "b")
			turn := b.tick()
			b.receipt(turn, "a", wire.OutcomeRunning)
			b.acts = false
			b.pass(time.Second)
			lost(b, turn)
			b.pass(time.Second)
			b.want("a")
			b.acts = true
			b.pass(4 * time.Second)
			b.want("b")
		})
	}
}

// TestTwoOwnersLost: the second owner gave a turn after its deadline, because it took over late, and is lost too. The third
// one does not take the turn for one that was over before.
func TestTwoOwnersLost(t *testing.T) {
	b := newBed(t, "a", "b")
	b.acts = false
	turn := b.tick()
	b.pass(13 * time.Second)
	b.heardGiving(giving{linux, turn, 1, "a", "m", b.now.Unix(), 1, 1})
	b.pass(time.Second)
	b.want("a")
	b.gone("a")
	b.pass(9 * time.Second)
	b.acts = true
	b.pass(5 * time.Second)
	b.want("b")
}

// TestOneRequest: an agent gets one request for a turn of several groups, side by side or not, and also when it comes
// later than they do. Its requests are not issued in the future.
func TestOneRequest(t *testing.T) {
	b := newBed(t)
	three := turnsCheck
	three.Subscriptions = []string{"x", "y", "z"}
	b.Define(linux.Check, &three)
	b.presence.Connected(name("a"), []string{"x", "z"})
	b.presence.Connected(name("b"), []string{"y"})
	for range 100 {
		turn := Turn{Tick: b.now.Unix()}
		b.offer(&three, turn, b.now, time.Second)
		if len(b.sent) != 2 || len(b.sent[0].Subscriptions)+len(b.sent[1].Subscriptions) != 3 {
			t.Fatalf("sent %+v", b.sent)
		}
		for _, d := range b.sent {
			if d.Request.Issued != turn.Tick {
				t.Fatalf("issued at %d for %d", d.Request.Issued, turn.Tick)
			}
			for _, s := range d.Subscriptions {
				b.result(Group{linux.Check, s}, turn, 0, d.Agent.Name, 0, b.now)
			}
		}
		b.sent = nil
		b.pass(time.Second)
	}
	b.gone("a")
	b.gone("b")
	b.offer(&three, Turn{Tick: b.now.Unix()}, b.now, time.Second)
	b.presence.Connected(name("c"), three.Subscriptions)
	b.pass(lookEvery)
	if len(b.sent) != 1 || len(b.sent[0].Subscriptions) != 3 {
		t.Errorf("sent %+v", b.sent)
	}
}

// heardGivings has a queue hear that another member gives a turn.
func (b *bed) heardGiving(g giving) {
	b.t.Helper()
	n := news{given: []giving{g}}
	for _, m := range n.encode("other") {
		if err := b.hear(m, b.now); err != nil {
			b.t.Fatal(err)
		}
	}
}

// TestNewsOfOthers: what another member gives is passed on, forgotten when that member says so, and never makes up checks.
func TestNewsOfOthers(t *testing.T) {
	b := newBed(t, "a")
	b.acts = false
	for i := range int64(100_000) {
		b.heardGiving(giving{linux, Turn{Tick: b.now.Unix() + i}, 1, fmt.Sprint("agent-", i), "other", b.now.Unix() + i, uint64(i), uint64(i)})
	}
	if c := b.checks[linux.Check]; len(c.issues.lately)+len(c.issues.before) > 20 {
		t.Errorf("%d times of issue are kept", len(c.issues.lately)+len(c.issues.before))
	}
	gone := Group{resource.Name{Namespace: "default", Name: "gone"}, "linux"}
	b.heardGiving(giving{gone, Turn{Tick: b.now.Unix()}, 1, "a", "m", b.now.Unix(), 1, 1})
	if b.find(gone) != nil {
		t.Error("a check that is not defined has a group")
	}

	// A turn that is due long behind its tick, and is heard of before it is offered here.
	b = newBed(t, "a")
	b.acts = false
	tick := Turn{Tick: b.now.Unix() - 1800}
	b.heardGiving(giving{linux, tick, 1, "a", "m", b.now.Unix(), 1, 1})
	b.pass(time.Second)
	b.offer(&turnsCheck, tick, b.now, time.Hour)
	b.want("a")
	// Another owner, which does not know how often it was given, gives it again.
	b.heardGiving(giving{linux, tick, 1, "b", "other", b.now.Unix(), 2, 2})
	b.heardGiving(giving{linux, tick, 1, "a", "m", b.now.Unix(), 3, 3})
	b.heardGiving(giving{linux, tick, 2, "b", "other", b.now.Unix(), 2, 2}) // late
	b.send(b.now)
	b.want("a")
	n := news{expired: []*owed{b.find(linux).open[tick]}}
	if err := b.hear(n.encode("other")[0], b.now); err != nil {
		t.Fatal(err)
	}
	if n := len(b.find(linux).open); n != 0 || len(b.timers) != 0 {
		t.Errorf("%d turns are owed, with %d timers", n, len(b.timers))
	}
}

// TestClockSetBack: ticks fall due again, and are run again. No agent gets a request that it drops.
func TestClockSetBack(t *testing.T) {
	b := newBed(t, "a", "b", "c")
	issued := map[string]int64{}
	runs := func(ticks int) (n int) {
		for range ticks {
			turn := b.tick()
			for _, d := range b.sent {
				if d.Request.Issued > issued[d.Agent.Name] {
					n++
					b.answer(turn, d.Agent.Name)
				}
				issued[d.Agent.Name] = d.Request.Issued
			}
			b.sent = nil
			b.pass(10 * time.Second)
		}
		return n
	}
	if n := runs(60); n != 60 {
		t.Fatalf("%d of 60 ticks were run", n)
	}
	b.now = b.now.Add(-5 * time.Minute)
	if n := runs(60); n < 57 { // the last ones before that are known to have been run
		t.Errorf("%d of 60 ticks were run after the clock was set back", n)
	}
}

// TestNewAgent: when all agents have declined a turn, a new one gets it at once. When they are many, not all are tried at
// once.
func TestNewAgent(t *testing.T) {
	b := newBed(t, "a")
	b.refuses = true
	b.tick()
	b.refuses = false
	b.pass(time.Second)
	b.want("a")
	b.connect("b")
	b.pass(lookEvery)
	b.want("b")

	b = newBed(t)
	for i := range 100 {
		b.connect(fmt.Sprintf("agent-%02d", i))
	}
	b.refuses = true
	b.tick()
	b.pass(time.Second)
	if n := len(b.given()); n != maxTried {
		t.Errorf("%d agents were tried", n)
	}
	b.pass(4100 * time.Millisecond)
	if got := b.given(); len(got) != maxTried || got[0] != "agent-32" {
		t.Errorf("then these were tried: %v", got)
	}
}

// TestOtherSubscriptions: a group that only a user's request had is dropped when it owes nothing.
func TestOtherSubscriptions(t *testing.T) {
	b := newBed(t, "a")
	other := turnsCheck
	other.Subscriptions = []string{"entity:a"}
	b.presence.Connected(name("a"), []string{"linux", "entity:a"})
	turn := Turn{Tick: b.now.Unix(), Asked: true}
	b.offer(&other, turn, b.now, 0)
	b.want("a")
	g := Group{linux.Check, "entity:a"}
	b.pass(2 * time.Second)
	b.result(g, turn, 0, "a", 0, b.now)
	b.pass(2 * time.Second)
	if b.find(g) != nil || b.find(linux) == nil {
		t.Error("the group is kept, or the check's own is not")
	}
}

// TestMadeUpReceipts: what an agent says again, or of a turn that it never had, is not told to the other members.
func TestMadeUpReceipts(t *testing.T) {
	b := newBed(t, "a")
	turn := b.tick()
	list := make([]string, 10_000)
	for i := range list {
		list[i] = "linux"
	}
	text := turn.Format(0, list...)
	for range 3 {
		b.Receipt(name("a"), &wire.Receipt{Check: "turns", Turn: text, Outcome: wire.OutcomeRunning}, b.now)
		b.Receipt(name("stranger"), &wire.Receipt{Check: "turns", Turn: text, Outcome: wire.OutcomeDone}, b.now)
	}
	if o := b.find(linux).open[turn]; o == nil || !o.running || len(b.news.receipts) > 0 { // alone it tells nothing at all
		t.Errorf("the turn is %+v", o)
	}
	b.answer(turn, "a")
	for range 3 {
		b.Receipt(name("stranger"), &wire.Receipt{Check: "turns", Turn: text, Outcome: wire.OutcomeDone}, b.now)
	}
	if n := b.counts(); n != (Counts{Given: 1, Answered: 1}) {
		t.Errorf("got %+v", n)
	}
	if _, ok := parseTurn(turn.Format(0, strings.Repeat("x", maxTurnText)), ""); ok {
		t.Error("a text of any length is read")
	}
}

// TestOldTurns: a member that takes a check over does not give what was over long before, and it takes results of agents
// that it does not know yet.
func TestOldTurns(t *testing.T) {
	b := newBed(t, "a")
	b.acts = false
	old := b.tick()
	b.pass(50 * time.Second)
	b.complete = false
	known := b.tick()
	b.answer(known, "stranger")
	b.complete = true
	b.acts = true
	b.pass(10 * time.Second)
	b.want()
	if n := b.counts(); n.Given != 0 || n.Answered != 1 || len(b.find(linux).open) != 0 {
		t.Errorf("the ticks %v and %v: got %+v, and %d are open", old, known, n, len(b.find(linux).open))
	}
}
