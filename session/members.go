package session

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// signpost is what lapwing agents get to know about the members of the cluster. It never changes.
type signpost struct {
	number  uint32   // counts other URLs, from 1
	urls    []string // of the members
	self    string   // the one of this backend; may be empty
	frames  [][]byte // the message that only names the members; then those that also ask to move to each of urls
	weights []int    // how likely an agent that leaves is asked to move to each of urls
}

func newSignpost(number uint32, urls []string, self string) signpost {
	m := wire.Members{URLs: urls, Self: self}
	p := signpost{number: number, urls: urls, self: self, frames: [][]byte{wire.AppendMembers(nil, m)}}
	for _, m.Next = range urls {
		p.frames = append(p.frames, wire.AppendMembers(nil, m))
	}
	return p
}

// leads reports whether it has a member for agents that leave.
func (p *signpost) leads() bool {
	return p != nil && slices.ContainsFunc(p.weights, func(w int) bool { return w > 0 })
}

// watchMembers names the members to agents, and moves sessions to make the members even, until ctx ends.
func (s *Server) watchMembers(ctx context.Context, b *balance) {
	tick := time.NewTicker(balanceEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.lookAtMembers(b, time.Now())
	}
}

// members returns the members by id; none if the backend is in no cluster. The caller owns the slice.
func (s *Server) members() []Member {
	if s.opts.Members == nil {
		return nil
	}
	members := slices.Clone(s.opts.Members())
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return members
}

// lookAtMembers makes one look at the members.
func (s *Server) lookAtMembers(b *balance, now time.Time) {
	members, own := s.members(), s.Sessions()
	surplus := b.look(now, members, own)
	leaving := s.departures.direct(s, members, b.share, own, now.Sub(b.since) >= steadyFor)
	if _, closed := s.Suspended(); surplus == 0 || leaving || closed {
		return
	}
	if sessions := s.choose(surplus, b, now); len(sessions) > 0 {
		if b.begun.Equal(now) {
			s.log.Info("sessions are moved to other members", "sessions", own, "share", b.share)
		}
		s.departures.balance(s, sessions)
	}
}

// shareOfOthers returns what each other member has once all sessions have left this one.
func shareOfOthers(members []Member, own int) int {
	total, others := own, 0
	for _, m := range members {
		if !m.Self {
			total, others = total+m.Sessions, others+1
		}
	}
	return (total + max(1, others) - 1) / max(1, others)
}

// direct makes the signpost, and reports whether there is a drain. It holds mu, so that a signpost from before a drain
// does not replace the one that Drain has made.
func (d *departures) direct(s *Server, members []Member, share, own int, steady bool) (draining bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if draining = !d.drainSince.IsZero(); draining {
		share = shareOfOthers(members, own)
	}
	s.direct(members, share, draining, steady)
	return draining
}

// direct makes the signpost from members, which it changes. The caller holds departures.mu. Agents learn other URLs with
// the next message that the backend has for them, once these were the same for a while: an agent needs no newest list,
// because it tries the next member if one is gone.
func (s *Server) direct(members []Member, share int, leaving, steady bool) {
	members = slices.DeleteFunc(members, func(m Member) bool { return m.URL == "" })
	members = members[:min(len(members), wire.MaxMembers)]
	var urls []string
	var self string
	for _, m := range members {
		urls = append(urls, m.URL)
		if m.Self {
			self = m.URL
		}
	}
	old := s.signpost.Load()
	var next signpost
	switch {
	case old == nil && len(urls) == 0:
		return
	case old == nil:
		next = newSignpost(1, urls, self)
	case steady && len(urls) > 0 && !(slices.Equal(urls, old.urls) && self == old.self):
		next = newSignpost(old.number+1, urls, self)
	default:
		next = *old
	}
	next.weights = make([]int, len(next.urls))
	for i, u := range next.urls {
		at := slices.IndexFunc(members, func(m Member) bool { return m.URL == u && !m.Self })
		if at < 0 {
			continue
		}
		next.weights[i] = max(0, share-members[at].Sessions)
		if leaving {
			next.weights[i]++ // any member is better than none
		}
	}
	s.signpost.Store(&next)
}

// takeMembers appends the members if the agent does not know them, or is to move. The caller holds mu.
func (s *session) takeMembers(b *batch) {
	p := s.server.signpost.Load()
	if p == nil {
		return
	}
	next := 0
	if s.departure != staying && !s.directed {
		s.directed = true
		next = 1 + draw(p.weights)
	}
	if next > 0 || s.signpost != p.number {
		s.signpost = p.number
		b.frames = append(b.frames, p.frames[next])
	}
}

// choose returns up to n sessions to move. Lapwing agents come first if there is a member for them, because they go
// straight there and lose nothing, then sessions that have lasted long: those of the others may have been moved lately.
func (s *Server) choose(n int, b *balance, now time.Time) []*session {
	leads := s.signpost.Load().leads()
	var found [4][]*session // the best first
	s.registry.each(func(one *session) {
		joined := time.UnixMilli(one.joined)
		if one.departure != staying || one.closed || one.stays || !b.mayMove(joined, now) {
			return
		}
		class := 0
		if !one.follows || !leads {
			class = 2
		}
		if now.Sub(joined) < moveAgain {
			class++
		}
		if len(found[class]) < n {
			found[class] = append(found[class], one)
		}
	})
	all := slices.Concat(found[:]...)
	return all[:min(n, len(all))]
}

// Sessions returns the number of sessions that are to stay. Other members balance by it.
func (s *Server) Sessions() int { return int(s.registry.staying.Load()) }
