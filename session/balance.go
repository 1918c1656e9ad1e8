package session

import (
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// balanceEvery is the time between two looks at the members.
	balanceEvery = time.Second
	// steadyFor is how long the members and their sessions must be steady before sessions are moved.
	steadyFor = 3 * time.Second
	// inFlight is longer than nearly all agents take to connect again. Until then they still count.
	inFlight = 15 * time.Second
	// lookAgain is after how long a rebalance that has not ended begins anew, from the totals of then.
	lookAgain = time.Minute
	// moveAgain is how long a session lasts before it may be moved to make members even that were even when it began.
	moveAgain = 3 * time.Minute
	// surplusParts is the part of its surplus that a member moves with each look. Agents that choose a backend at
	// random may come back, so a surplus shrinks more slowly than it is moved.
	surplusParts = 2
	// maxMoves bounds the sessions that are moved with each look.
	maxMoves = 400
)

// Member is a backend of a cluster that lives and takes agents.
type Member struct {
	ID       string
	Life     string // differs after each start of its process
	URL      string // where agents reach it, ws or wss; empty if they are not to know it
	Sessions int    // as its Server.Sessions says
	Self     bool   // this backend
}

// balance decides how many sessions a member has to move so that all members have an equal share of them. Each member
// decides for itself from what all know, and only gives sessions away. So their surpluses add up to what the others
// lack, and no member moves sessions that another one moves as well.
//
// While sessions move, the numbers of other members are a moment older than this one's, so a session may count for two
// members or for none. So the share is fixed when a rebalance begins, from the highest total of the last seconds.
type balance struct {
	lives  []life // of the members
	since  time.Time
	totals []totalAt // of the last seconds, while the members were these
	total  int       // the highest of totals
	base   int       // the total when it last grew by more than a twentieth
	grown  time.Time
	share  int       // of each member
	begun  time.Time // when the rebalance began; zero if there is none
}

// life is a member from one start to the next. One that starts again has lost its sessions, even if it was away for
// less time than there is between two looks.
type life struct{ id, life string }

type totalAt struct {
	at       time.Time
	sessions int
}

// look returns how many sessions to move now. own is this backend's number of sessions, without the sessions that are
// about to leave. The members are sorted by id.
func (b *balance) look(now time.Time, members []Member, own int) (surplus int) {
	if same := slices.EqualFunc(members, b.lives, func(m Member, l life) bool { return l == life{m.ID, m.Life} }); !same {
		*b = balance{since: now, grown: now}
		for _, m := range members {
			b.lives = append(b.lives, life{m.ID, m.Life})
		}
	}
	self := slices.IndexFunc(members, func(m Member) bool { return m.Self })
	if self < 0 {
		return 0 // does not take agents, or is alone
	}
	members = slices.Clone(members)
	members[self].Sessions = own
	b.count(now, members)
	if b.begun.IsZero() || now.Sub(b.begun) > lookAgain {
		b.begun = time.Time{}
		b.share = (b.total + len(members) - 1) / len(members)
		if now.Sub(b.since) < steadyFor || now.Sub(b.grown) < steadyFor || !uneven(members, b.share) {
			return 0
		}
		b.begun = now
	}
	surplus = own - b.share
	if surplus <= b.share/100 {
		b.begun = time.Time{}
		return 0
	}
	return min(maxMoves, (surplus+surplusParts-1)/surplusParts)
}

// count updates the total.
func (b *balance) count(now time.Time, members []Member) {
	total := 0
	for _, m := range members {
		total += m.Sessions
	}
	b.totals = slices.DeleteFunc(b.totals, func(t totalAt) bool { return now.Sub(t.at) > inFlight })
	b.totals = append(b.totals, totalAt{now, total})
	for _, t := range b.totals {
		total = max(total, t.sessions)
	}
	if b.total = total; total > b.base+b.base/20 {
		b.base, b.grown = total, now
	}
	b.base = min(b.base, total)
}

// uneven reports whether a member is off its share by more than a twentieth, and by more than one session.
func uneven(members []Member, share int) bool {
	most := max(1, share/20)
	return slices.ContainsFunc(members, func(m Member) bool { return max(m.Sessions-share, share-m.Sessions) > most })
}

// mayMove reports whether a session that began at a time may be moved: it began before the members were these, or long
// ago. So a rebalance moves each agent once at most, whatever backend the agent chooses.
func (b *balance) mayMove(joined, now time.Time) bool {
	return joined.Before(b.since) || now.Sub(joined) >= moveAgain
}

// draw returns a random index, with the probability of its weight; -1 if all weights are 0.
func draw(weights []int) int {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	if sum == 0 {
		return -1
	}
	at := rand.IntN(sum)
	for i, w := range weights {
		if at < w {
			return i
		}
		at -= w
	}
	return -1
}
