package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// simulation has members, their agents, and what lies between them. It has no goroutines, and its own
// clock.
type simulation struct {
	now     time.Time
	rand    *rand.Rand
	members []*simulatedMember
	agents  []*simulatedAgent
	way     func(*simulation, *simulatedAgent) int // the member that an agent connects to by itself
	counts  []int                                  // sessions of each member
	next    int                                    // of a round robin
	moves   int                                    // sessions that were asked to go
}

type simulatedMember struct {
	up      bool
	life    int
	balance balance
	reports []int // its numbers of sessions, as beats carried them, the newest last
}

type simulatedAgent struct {
	at      int       // its member, -1 while it is connected to none
	joined  time.Time // that member
	back    time.Time // when it connects
	to      int       // where to; -1 for where its way leads
	follows bool
	moved   []time.Time
}

// The ways to a member: Sensu agents choose from their list at random; load balancers take members in turn, or the one
// with the fewest connections.
func atRandom(s *simulation, _ *simulatedAgent) int { return s.rand.IntN(len(s.members)) }

func roundRobin(s *simulation, _ *simulatedAgent) int {
	for s.next++; !s.members[s.next%len(s.members)].up; s.next++ {
		continue
	}
	return s.next % len(s.members)
}

func leastConnections(s *simulation, _ *simulatedAgent) int {
	best := -1
	for i, m := range s.members {
		if m.up && (best < 0 || s.counts[i] < s.counts[best]) {
			best = i
		}
	}
	return best
}

func newSimulation(agents int, follow func(i int) bool, way func(*simulation, *simulatedAgent) int) *simulation {
	s := &simulation{now: time.Unix(1e9, 0), rand: rand.New(rand.NewPCG(1, uint64(agents))), way: way}
	s.counts = make([]int, 3)
	for range s.counts {
		s.members = append(s.members, &simulatedMember{up: true})
	}
	for i := range agents {
		back := s.now.Add(s.delay(10 * time.Second))
		s.agents = append(s.agents, &simulatedAgent{at: -1, to: -1, follows: follow(i), back: back})
	}
	return s
}

// delay is a random time up to a longest one.
func (s *simulation) delay(longest time.Duration) time.Duration {
	return time.Duration(s.rand.Int64N(int64(longest)))
}

// set starts or stops a member. Agents of one that stops connect again within some seconds.
func (s *simulation) set(member int, up bool) {
	m := s.members[member]
	m.up, m.balance = up, balance{}
	m.life++
	for _, a := range s.agents {
		if a.at == member && !up {
			a.at, a.to, a.back = -1, -1, s.now.Add(s.delay(3*time.Second))
			s.counts[member]--
		}
	}
}

// run lets time pass. Each second members look at each other's numbers of one second ago.
func (s *simulation) run(d time.Duration) {
	const step = 500 * time.Millisecond
	for end := s.now.Add(d); s.now.Before(end); s.now = s.now.Add(step) {
		for _, a := range s.agents {
			if a.at < 0 && !a.back.After(s.now) {
				s.connect(a)
			}
		}
		if s.now.Nanosecond() == 0 {
			for i, n := range s.counts {
				m := s.members[i]
				m.reports = append(m.reports, n)
			}
			for i, m := range s.members {
				if m.up {
					s.look(i, m)
				}
			}
		}
	}
}

func (s *simulation) connect(a *simulatedAgent) {
	to := a.to
	if a.to = -1; to < 0 || !s.members[to].up {
		to = s.way(s, a)
	}
	if !s.members[to].up {
		a.back = s.now.Add(time.Second + s.delay(time.Second))
		return
	}
	a.at, a.joined = to, s.now
	s.counts[to]++
}

func (s *simulation) look(self int, m *simulatedMember) {
	var members []Member
	for i, o := range s.members {
		if o.up {
			old := o.reports[max(0, len(o.reports)-2)]
			members = append(members, Member{ID: fmt.Sprint(i), Life: fmt.Sprint(o.life), Sessions: old, Self: i == self})
		}
	}
	surplus := m.balance.look(s.now, members, s.counts[self])
	weights := make([]int, len(s.members))
	for _, o := range members {
		if !o.Self {
			var at int
			fmt.Sscan(o.ID, &at)
			weights[at] = max(0, m.balance.share-o.Sessions)
		}
	}
	for _, follows := range []bool{true, false} {
		for _, a := range s.agents {
			if surplus > 0 && a.at == self && a.follows == follows && m.balance.mayMove(a.joined, s.now) {
				surplus--
				s.moves++
				s.counts[self]--
				a.moved = append(a.moved, s.now)
				a.at, a.to, a.back = -1, -1, s.now.Add(200*time.Millisecond+s.delay(2*time.Second))
				if follows {
					a.to = draw(weights)
				}
			}
		}
	}
}

func within(t *testing.T, when string, counts []int, percent int) {
	t.Helper()
	share := 0
	for _, n := range counts {
		share += n
	}
	share /= len(counts)
	if off := max(slices.Max(counts)-share, share-slices.Min(counts)); off*100 > share*percent {
		t.Errorf("%s: %v, more than %d%% from %d", when, counts, percent, share)
	}
}

// TestBalance: a member is stopped and started. Then the members become even, whatever the agents are and however they
// choose a backend, no agent is moved twice, and nothing moves once they are even.
func TestBalance(t *testing.T) {
	all := func(int) bool { return true }
	none := func(int) bool { return false }
	third := func(i int) bool { return i%3 == 0 }
	for _, tt := range []struct {
		name              string
		agents            int
		follow            func(int) bool
		way               func(*simulation, *simulatedAgent) int
		seconds, restarts int
	}{
		{"lapwing agents", 3000, all, atRandom, 30, 3},
		{"many lapwing agents", 40_000, all, atRandom, 30, 1},
		{"few lapwing agents", 30, all, atRandom, 30, 3},
		{"Sensu agents", 3000, none, atRandom, 30, 3},
		{"many Sensu agents", 40_000, none, atRandom, 90, 1},
		{"Sensu agents, round robin", 3000, none, roundRobin, 30, 3},
		{"Sensu agents, least connections", 3000, none, leastConnections, 30, 3},
		{"many Sensu agents, least connections", 40_000, none, leastConnections, 30, 1},
		{"mixed", 3000, third, atRandom, 30, 3},
		{"mixed, round robin", 3000, third, roundRobin, 30, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSimulation(tt.agents, tt.follow, tt.way)
			s.run(2 * time.Minute)
			start := s.moves
			for restart := range tt.restarts {
				s.set(restart, false)
				s.run(30 * time.Second)
				if n := s.counts[restart]; n > 0 {
					t.Fatalf("%d sessions at a member that is down", n)
				}
				s.set(restart, true)
				began, moves := s.now, s.moves
				s.run(time.Duration(tt.seconds) * time.Second)
				t.Logf("after %d s: %v, %d moves", tt.seconds, s.counts, s.moves-moves)
				within(t, fmt.Sprint("restart ", restart), s.counts, 10)
				s.run(time.Minute)
				even := s.moves
				s.run(2 * moveAgain)
				if s.moves > even {
					t.Errorf("%d sessions were moved when all was even", s.moves-even)
				}
				for _, a := range s.agents {
					if n := len(a.moved); n > 1 && !a.moved[n-2].Before(began) {
						t.Fatalf("an agent was moved twice: %v", a.moved)
					}
				}
			}
			if start > tt.agents/5 {
				t.Errorf("%d sessions were moved before the first restart", start)
			}
		})
	}
}

// TestBalanceAfterAQuickRestart: a member is back before another one has looked. Its agents went to the others, and come
// back.
func TestBalanceAfterAQuickRestart(t *testing.T) {
	t.Parallel()
	toOthers := func(s *simulation, _ *simulatedAgent) int { return 1 + s.rand.IntN(2) }
	s := newSimulation(3000, func(int) bool { return true }, roundRobin)
	s.run(time.Minute)
	s.way = toOthers
	s.set(0, false)
	s.set(0, true)
	s.run(30 * time.Second)
	within(t, "after a quick restart", s.counts, 10)
}

// TestBalanceAfterAStart: the first member that starts gets all agents. It gives the others their shares when they
// start, together or one after the other.
func TestBalanceAfterAStart(t *testing.T) {
	t.Parallel()
	for _, apart := range []time.Duration{0, 10 * time.Second} {
		for _, follows := range []bool{true, false} {
			s := newSimulation(3000, func(int) bool { return follows }, atRandom)
			s.set(1, false)
			s.set(2, false)
			s.run(time.Minute)
			s.set(1, true)
			s.run(apart)
			s.set(2, true)
			s.run(time.Minute)
			within(t, fmt.Sprintf("%s apart, lapwing %v", apart, follows), s.counts, 10)
			even := s.moves
			s.run(2 * moveAgain)
			if s.moves > even+3000/20 { // agents that came late
				t.Errorf("%s apart, lapwing %v: %d moves when all was even", apart, follows, s.moves-even)
			}
		}
	}
}
