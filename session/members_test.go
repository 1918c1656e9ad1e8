package session

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// testCluster is a server of a cluster whose members the test sets. All agents that leave go to the member with id c.
type testCluster struct {
	*Server
	mu   sync.Mutex // guards the fields below
	most int        // sessions
	all  []Member
}

// clusterOf is startDraining for a server that looks at members until the test ends.
func clusterOf(t *testing.T, members ...Member) *testCluster {
	t.Helper()
	c := &testCluster{Server: startDraining(t)}
	c.opts.Members = func() []Member {
		c.mu.Lock()
		defer c.mu.Unlock()
		now := slices.Clone(c.all)
		c.most = max(c.most, c.Sessions())
		for i := range now {
			if now[i].ID == "c" {
				now[i].Sessions += c.most - c.Sessions()
			}
		}
		return now
	}
	c.set(members...)
	b := new(balance)
	c.lookAtMembers(b, time.Now())
	c.running.Go(func() { c.watchMembers(c.ctx, b) })
	return c
}

func (c *testCluster) set(members ...Member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = members
}

// joinFollowing is joinRead for a lapwing agent that follows.
func (s *Server) joinFollowing(t *testing.T, name string) *peer {
	t.Helper()
	p := s.joinRead(t, name, true)
	p.session.mu.Lock()
	p.follows = true
	p.session.mu.Unlock()
	return p
}

// says makes the server write to the agent, as it does when it has something else to say.
func (p *peer) says(t *testing.T) {
	t.Helper()
	p.send(wire.AppendRefused(nil, 1, ""))
}

// told returns the messages that name members to the agent, since the last call, and other messages.
func (p *peer) told(t *testing.T) (members []wire.Members, others []arrival) {
	t.Helper()
	for _, got := range p.take() {
		if got.typ != wire.TypeMembers {
			others = append(others, got)
			continue
		}
		m, err := wire.DecodeMembers(got.payload)
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, m)
	}
	return members, others
}

// TestAgentsLearnMembers: agents that follow learn the members with the first message and again when the URLs have
// changed for a while, always together with other messages. No other agent gets them.
func TestAgentsLearnMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		self := Member{ID: "a", URL: "ws://a:1", Self: true}
		s := clusterOf(t, Member{ID: "b", URL: "ws://b:1", Sessions: 3}, self)
		p, old, stock := s.joinFollowing(t, "new"), s.joinRead(t, "old", true), s.joinRead(t, "stock", false)
		check := func(when string, want ...wire.Members) {
			t.Helper()
			for _, one := range []*peer{p, old, stock} {
				one.says(t)
			}
			synctest.Wait()
			got, _ := p.told(t)
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s told %+v, want %+v", when, got, want)
			}
			for _, one := range []*peer{old, stock} {
				if got, _ := one.told(t); len(got) > 0 {
					t.Errorf("%s %s was told %+v", when, one.name, got)
				}
			}
		}
		both := wire.Members{URLs: []string{"ws://a:1", "ws://b:1"}, Self: "ws://a:1"}
		check("at first", both)
		s.set(self, Member{ID: "b", URL: "ws://b:1", Sessions: 2})
		time.Sleep(time.Minute)
		check("unchanged")
		s.set(self)
		time.Sleep(steadyFor / 2)
		s.set(self, Member{ID: "b", URL: "ws://b:1", Sessions: 3})
		time.Sleep(time.Minute)
		check("after a short absence")
		s.set(Member{ID: "d", Sessions: 3}, Member{ID: "c", URL: "ws://c:1", Sessions: 3}, self,
			Member{ID: "b", URL: "ws://b:1", Sessions: 3})
		time.Sleep(time.Minute)
		if got := p.take(); len(got) > 0 {
			t.Errorf("a message for the members alone: %v", got)
		}
		check("with another one", wire.Members{URLs: []string{"ws://a:1", "ws://b:1", "ws://c:1"}, Self: "ws://a:1"})
	})
}

// TestSurplusMoves: a member with too many sessions asks lapwing agents to move to the one with the fewest, and only
// agents that came before the members last changed. Agents that do not go are asked to leave, then closed.
func TestSurplusMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		self, b := Member{ID: "a", URL: "ws://a:1", Self: true}, Member{ID: "b", URL: "ws://b:1", Sessions: 100}
		s := clusterOf(t, self, b)
		var all []*peer
		for i := range 100 {
			all = append(all, s.joinFollowing(t, fmt.Sprint("own-", i)))
		}
		own := s.joinRead(t, "in-order", true)
		own.session.mu.Lock()
		own.stays = true
		own.session.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, p := range all {
			p.take()
		}
		s.set(self, b, Member{ID: "c", URL: "ws://c:1"}) // a share is 67
		time.Sleep(2 * time.Second)
		late := s.joinFollowing(t, "late")
		time.Sleep(28 * time.Second)
		synctest.Wait()
		asked, parted := 0, 0
		for _, p := range all {
			got, others := p.told(t)
			if len(got) == 0 {
				continue
			}
			asked++
			if len(got) != 1 || got[0].Next != "ws://c:1" {
				t.Errorf("told %+v", got)
			}
			if len(others) == 1 && others[0].typ == wire.TypePace {
				parted++
			}
		}
		if asked < 33 || asked > 36 || parted < asked/2 {
			t.Errorf("%d were asked to move, and %d of them to leave", asked, parted)
		}
		if n := value(t, s.metrics.moved.WithLabelValues("balance")); int(n) != asked {
			t.Errorf("%v moves counted, %d asked", n, asked)
		}
		time.Sleep(time.Minute)
		if n := left(all); n != asked {
			t.Errorf("%d were closed, %d asked", n, asked)
		}
		if n := left([]*peer{late, own}); n > 0 {
			t.Error("an agent was closed that had just come, or chooses by itself")
		}
		if n := s.Sessions(); n != 102-asked {
			t.Errorf("%d sessions stay", n)
		}
	})
}

// TestSurplusWithoutURLs: where agents get no URLs, because they come through a load balancer, they are asked to leave,
// and Sensu agents get the close frame.
func TestSurplusWithoutURLs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clusterOf(t, Member{ID: "a", Self: true})
		var own, stock []*peer
		for i := range 10 {
			own = append(own, s.joinFollowing(t, fmt.Sprint("own-", i)))
			stock = append(stock, s.joinRead(t, fmt.Sprint("stock-", i), false))
		}
		time.Sleep(time.Minute)
		s.set(Member{ID: "a", Self: true}, Member{ID: "c"})
		time.Sleep(time.Minute)
		asked := left(stock)
		for _, p := range own {
			got, others := p.told(t)
			if len(got) > 0 {
				t.Errorf("told %+v", got)
			}
			if len(others) > 0 {
				asked++
			}
		}
		if asked != 10 {
			t.Errorf("%d were asked to leave", asked)
		}
	})
}

// TestDrainSaysWhere: each agent that leaves in a drain learns where to go, the first one too, and most go to the member
// with most room.
func TestDrainSaysWhere(t *testing.T) {
	for _, tt := range []struct {
		name           string
		b, c           int // sessions
		leastB, leastC int // agents of 100 that go to b and to c, at least
	}{
		{"one has room", 400, 0, 0, 80},
		{"all are even", 100, 100, 10, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				self := Member{ID: "a", URL: "ws://a:1", Self: true}
				b, c := Member{ID: "b", URL: "ws://b:1", Sessions: tt.b}, Member{ID: "c", URL: "ws://c:1", Sessions: tt.c}
				s := clusterOf(t, self, b, c)
				var all []*peer
				for i := range 100 {
					all = append(all, s.joinFollowing(t, fmt.Sprint("own-", i)))
				}
				time.Sleep(5 * time.Second)
				s.Drain(10 * time.Second)
				s.set(b, c) // the others know
				time.Sleep(15 * time.Second)
				synctest.Wait()
				next := map[string]int{}
				for _, p := range all {
					p.addNext(t, next)
				}
				if next[b.URL]+next[c.URL] != 100 || next[b.URL] < tt.leastB || next[c.URL] < tt.leastC {
					t.Errorf("sent to %v", next)
				}
			})
		})
	}
}

// addNext counts the member that an agent which had to leave was sent to.
func (p *peer) addNext(t *testing.T, next map[string]int) {
	t.Helper()
	got, rest := p.told(t)
	if len(got) == 0 || len(rest) != 1 || rest[0].typ != wire.TypePace {
		t.Fatalf("%s got %+v, %v", p.name, got, rest)
	}
	for _, m := range got { // one of them names other members, at the moment at which they have changed
		if m.Next != "" {
			next[m.Next]++
		}
	}
}

// TestSuspend: all sessions are closed, and agents are refused with the reason, until Resume. A drain is not affected.
func TestSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startDraining(t)
		var all []*peer
		for i := range 20 {
			all = append(all, s.joinRead(t, fmt.Sprint("agent-", i), i%2 == 0))
		}
		handshake := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			s.serve(w, httptest.NewRequest(http.MethodGet, "/", nil))
			return w
		}
		s.Suspend("no majority")
		if n := left(all); n != len(all) {
			t.Errorf("%d are gone", n)
		}
		if s.registry.add(s.newSession(nil, "default", "late")) {
			t.Error("a session was taken whose handshake began before")
		}
		w := handshake()
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "no majority") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if got := w.Header().Get("Retry-After"); got != retryAfter {
			t.Errorf("Retry-After: %s", got)
		}
		s.Drain(0)
		s.Resume()
		if reason, yes := s.Suspended(); yes || reason != "" {
			t.Error("still suspended")
		}
		if w := handshake(); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "draining") {
			t.Errorf("in a drain: %d %s", w.Code, w.Body)
		}
		s.Suspend("again")
		s.Undrain()
		if w := handshake(); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "again") {
			t.Errorf("after the drain: %d %s", w.Code, w.Body)
		}
		s.Resume()
		if w := handshake(); w.Code != http.StatusUnauthorized {
			t.Errorf("in the end: %d %s", w.Code, w.Body)
		}
		s.joinRead(t, "new", false) // fails the test if the agent is refused
	})
}
