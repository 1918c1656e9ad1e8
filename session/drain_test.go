package session

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// startDraining is startBare with the goroutine that drains.
func startDraining(t *testing.T) *Server {
	t.Helper()
	s := startBare(t, time.Second)
	s.ctx, s.cancel = t.Context(), func() {} // ends before the clean-ups of startBare
	t.Cleanup(s.running.Wait)
	return s
}

// joinRead is join with a reader, so that the session ends when its agent leaves.
func (s *Server) joinRead(t *testing.T, name string, lapwing bool) *peer {
	t.Helper()
	p := s.join(t, name, lapwing)
	s.running.Go(func() {
		for {
			if _, err := p.conn.Read(); err != nil {
				s.registry.remove(p.session)
				p.close()
				return
			}
		}
	})
	return p
}

// left returns how many of the agents know that their session is over.
func left(all []*peer) (n int) {
	synctest.Wait()
	for _, p := range all {
		select {
		case <-p.done:
			n++
		default:
		}
	}
	return n
}

// TestDrainSpreadsAgents: of a few hundred agents of both kinds, equal shares are asked in each part of the time. The
// agents do not answer: lapwing agents get the pace that asks them to leave, and all are closed after the grace.
func TestDrainSpreadsAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each, over = 200, 30 * time.Second
		s := startDraining(t)
		var own, stock []*peer
		for i := range each {
			own = append(own, s.joinRead(t, fmt.Sprint("own-", i), true))
			stock = append(stock, s.joinRead(t, fmt.Sprint("stock-", i), false))
		}
		begin := time.Now()
		s.Drain(over)
		told := 0
		for range 10 {
			time.Sleep(over / 10)
			gone := left(stock)
			for _, p := range own {
				for _, got := range p.take() {
					pace, _, err := wire.DecodePace(got.payload)
					if got.typ != wire.TypePace || pace != wire.PaceLeave || err != nil {
						t.Fatalf("told %s %v, %v", got.typ, pace, err)
					}
					told++
				}
			}
			want := int(time.Since(begin) * 2 * each / over)
			if n := gone + told; n < want-2 || n > want+2 {
				t.Errorf("after %s %d have been sent away, want %d", time.Since(begin), n, want)
			}
		}
		if told != each {
			t.Errorf("%d were told to leave, want %d", told, each)
		}
		time.Sleep(partGrace + time.Second)
		if n := left(own); n != each {
			t.Errorf("%d of those that did not leave were closed", n)
		}
		if _, _, sessions := s.Draining(); sessions > 0 || s.departures.running {
			t.Errorf("%d sessions are left, and the drain goes on: %v", sessions, s.departures.running)
		}
	})
}

// TestDrainAgain: a second drain spreads the agents that are left over its own time. After Undrain no agent is asked
// to leave.
func TestDrainAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startDraining(t)
		var all []*peer
		for i := range 100 {
			all = append(all, s.joinRead(t, fmt.Sprint("stock-", i), false))
		}
		gone := func(want int, when string) {
			t.Helper()
			if n := left(all); n < want-2 || n > want+2 {
				t.Errorf("%s %d are gone, want %d", when, n, want)
			}
		}
		s.Drain(100 * time.Second)
		since, over, sessions := s.Draining()
		// The first one may have gone already.
		if !since.Equal(time.Now()) || over != 100*time.Second || sessions < 99 || sessions > 100 {
			t.Errorf("draining since %s, over %s, %d sessions", since, over, sessions)
		}
		time.Sleep(20 * time.Second)
		gone(20, "after 20 s")
		s.Drain(200 * time.Second) // the rest, more slowly
		time.Sleep(100 * time.Second)
		gone(60, "half the second time later")
		if again, over, _ := s.Draining(); !again.Equal(since) || over != 200*time.Second {
			t.Errorf("draining since %s, over %s", again, over)
		}
		if s.registry.add(s.newSession(nil, "default", "late")) {
			t.Error("a session was taken whose handshake began before the drain")
		}
		s.Undrain()
		s.Undrain()
		time.Sleep(time.Hour)
		gone(60, "an hour after the end")
		if since, over, _ := s.Draining(); !since.IsZero() || over != 0 {
			t.Errorf("draining since %s, over %s", since, over)
		}
		all = append(all, s.joinRead(t, "new", false)) // fails the test if the agent is refused
		gone(60, "later")
		s.Drain(0)
		gone(101, "at once")
	})
}

// TestDrainTellsWhatIsDurable: an agent that leaves gets its acknowledgement at once, not at its next moment.
func TestDrainTellsWhatIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startDraining(t)
		p := s.join(t, "own", true)
		p.session.mu.Lock()
		p.acks.expect(7, 100)
		p.session.mu.Unlock()
		s.Drain(0)
		if got := p.take(); len(got) != 1 || got[0].typ != wire.TypePace {
			t.Fatalf("got %v", got)
		}
		time.Sleep(123 * time.Millisecond)
		begin := time.Now()
		p.session.Logged(7, 0, 0, nil)
		got := p.take()
		if len(got) != 1 || got[0].typ != wire.TypeAck || !got[0].at.Equal(begin) {
			t.Errorf("at %s got %v", begin, got)
		}
	})
}

// TestDrainRefusesAgents: agents of both kinds are refused, with the reason. Archives are still served.
func TestDrainRefusesAgents(t *testing.T) {
	s := startDraining(t)
	s.Drain(0)
	w := httptest.NewRecorder()
	s.serve(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "draining") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	s.Undrain()
	w = httptest.NewRecorder()
	s.serve(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusUnauthorized {
		t.Errorf("after it: %d %s", w.Code, w.Body)
	}
}
