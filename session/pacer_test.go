package session

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule/timetable"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// moment returns when a frame that was due at a tick is to leave for an agent, to the slot.
func (p *peer) moment(tick time.Time) time.Time {
	return tick.Add(time.Duration(p.offset/slotMillis*slotMillis) * time.Millisecond)
}

// TestRequestsLeaveTogether: all that is due for an agent in a second arrives at the agent's moment of the second.
func TestRequestsLeaveTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startBare(t, time.Second)
		var peers []*peer
		for i := range 200 {
			peers = append(peers, s.join(t, fmt.Sprintf("agent-%d", i), false, "linux"))
		}
		synctest.Wait()
		for second := range 3 {
			tick := time.Now()
			for _, check := range []string{"cpu", "disk", "ntp"} {
				s.Publish(newTick(check, tick, "linux"))
			}
			time.Sleep(999 * time.Millisecond)
			synctest.Wait()
			moments := map[time.Time]bool{}
			for _, p := range peers {
				got := p.take()
				if len(got) != 3 {
					t.Fatalf("second %d: %s got %d requests", second, p.name, len(got))
				}
				for i, check := range []string{"cpu", "disk", "ntp"} {
					if c := checkOf(t, got[i]); c != check {
						t.Errorf("request %d is of %s", i, c)
					}
					if !got[i].at.Equal(p.moment(tick)) {
						t.Fatalf("%s got its request at %s, want %s", p.name, got[i].at.Sub(tick), p.moment(tick).Sub(tick))
					}
				}
				moments[got[0].at] = true
			}
			if len(moments) < 60 {
				t.Errorf("200 agents have %d moments in the second", len(moments))
			}
			time.Sleep(time.Millisecond)
		}
	})
}

func TestWithoutSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startBare(t, 0)
		a := s.join(t, "a", true, "linux")
		a.take()
		time.Sleep(123 * time.Millisecond)
		s.Publish(newTick("cpu", time.Now(), "linux"))
		a.acks.expect(1, 10)
		a.Logged(1, 0, 0, nil)
		if got := a.take(); len(got) != 3 { // with the schedule
			t.Errorf("%d frames came at once", len(got))
		}
	})
}

// TestUrgentFrames: an urgent frame takes the waiting ones along.
func TestUrgentFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startBare(t, time.Minute)
		a := s.join(t, "a", false, "linux")
		s.Publish(newTick("cpu", time.Now(), "linux"))
		if got := a.take(); len(got) != 0 {
			t.Fatalf("%d frames came before the agent's moment, which is after %d ms", len(got), a.offset)
		}
		a.send([]byte("entity_config\n\n"))
		if got := a.take(); len(got) != 2 || got[1].typ != wire.TypeEntityConfig {
			t.Fatalf("got %v", got)
		}
		time.Sleep(2 * time.Minute)
		if got := a.take(); len(got) != 0 {
			t.Errorf("%d frames came again", len(got))
		}
	})
}

// TestLateTicks: requests that are long overdue, after a pause of the scheduler or a change of its clock, are spread
// again.
func TestLateTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startBare(t, time.Second)
		var peers []*peer
		for i := range 100 {
			peers = append(peers, s.join(t, fmt.Sprint("agent-", i), false, "linux"))
		}
		time.Sleep(100 * time.Millisecond)
		begin := time.Now()
		s.Publish(newTick("cpu", begin.Add(-10*time.Second), "linux"))
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		moments := map[time.Duration]bool{}
		for _, p := range peers {
			got := p.take()
			if len(got) != 1 {
				t.Fatalf("%d requests came", len(got))
			}
			moments[got[0].at.Sub(begin)] = true
		}
		if len(moments) < 30 {
			t.Errorf("all came at %d moments", len(moments))
		}
	})
}

// TestAcknowledgementsWait: an acknowledgement waits for the agent's moment, and covers all events before it.
func TestAcknowledgementsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startBare(t, time.Second)
		a := s.join(t, "a", true)
		arrive := func(size int, seqs ...uint64) {
			for _, seq := range seqs {
				a.session.mu.Lock()
				a.acks.expect(seq, size)
				a.session.mu.Unlock()
				a.Logged(seq, 0, 0, nil)
			}
		}
		want := func(when string, seq uint64, at time.Time) {
			t.Helper()
			got := a.take()
			if len(got) != 1 || got[0].typ != wire.TypeAck {
				t.Fatalf("%s: %v", when, got)
			}
			if n, err := wire.DecodeAck(got[0].payload); err != nil || n != seq || !got[0].at.Equal(at) {
				t.Errorf("%s: told %d, %v at %s, want %d at %s", when, n, err, got[0].at, seq, at)
			}
		}
		begin := time.Now()
		arrive(100, 1, 2, 3)
		time.Sleep(time.Duration(a.offset-slotMillis) * time.Millisecond)
		arrive(100, 4)
		if got := a.take(); len(got) != 0 {
			t.Fatalf("told %v before its moment", got)
		}
		time.Sleep(time.Second)
		want("small events", 4, a.moment(begin))
		arrive(100, 5)
		arrive(maxUnackedBytes, 6)
		now := time.Now()
		time.Sleep(time.Second)
		want("large events", 6, now)
		// This event is not durable. An acknowledgement would make the agent drop it.
		a.session.mu.Lock()
		a.acks.expect(7, maxUnackedBytes)
		a.session.mu.Unlock()
		time.Sleep(time.Minute)
		if got := a.take(); len(got) != 0 {
			t.Errorf("told %v of what is not durable", got)
		}
	})
}

// TestAgentThatDoesNotRead: its queue is bounded, frames beyond it are dropped, and no other agent has to wait.
func TestAgentThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startBare(t, time.Second)
		s.opts.SendQueue = 5
		stuck, well := s.join(t, "stuck", false, "linux"), s.join(t, "well", false, "linux")
		stuck.gate <- struct{}{} // its reader stops at the first frame
		for range 20 {
			s.Publish(newTick("cpu", time.Now(), "linux"))
			time.Sleep(time.Second)
		}
		if n := len(well.take()); n != 20 {
			t.Errorf("the other agent got %d requests", n)
		}
		stuck.session.mu.Lock()
		if n := len(stuck.out.frames); n != 5 {
			t.Errorf("%d frames wait", n)
		}
		stuck.session.mu.Unlock()
		<-stuck.gate
		time.Sleep(time.Second)
		if n := len(stuck.take()); n < 6 || n > 8 {
			t.Errorf("%d frames came once it read again", n)
		}
		s.Publish(newTick("cpu", time.Now(), "linux"))
		time.Sleep(time.Second)
		if n := len(stuck.take()); n != 1 {
			t.Errorf("%d frames came for the next request", n)
		}
	})
}

// TestWheel puts sessions into the wheel and takes them out by hand.
func TestWheel(t *testing.T) {
	at := func(ms int64) time.Time { return time.UnixMilli(1_000_000_000_000 + ms) }
	slot := func(ms int64) int64 { return at(ms).UnixMilli() / slotMillis }
	newWheel := func() (*pacer, map[string]*session) {
		p := newPacer(time.Second, nil)
		p.due(nil, at(0))
		sessions := map[string]*session{}
		for name, ms := range map[string]int64{"10": 10, "500": 500, "990": 990, "1000": 1000} {
			sessions[name] = &session{name: name}
			p.put(sessions[name], slot(ms), slot(0))
		}
		return p, sessions
	}
	due := func(p *pacer, ms int64) []string {
		var names []string
		for _, s := range p.due(nil, at(ms)) {
			names = append(names, s.name)
		}
		return names
	}
	all := []string{"10", "1000", "500", "990"}
	for _, tc := range []struct {
		name string
		ms   []int64
		want [][]string
	}{
		{"in time", []int64{9, 10, 499, 500, 990, 1000, 1010}, [][]string{nil, {"10"}, nil, {"500"}, {"990"}, {"1000"}, nil}},
		{"late", []int64{700, 700, 1500}, [][]string{{"10", "500"}, nil, {"990", "1000"}}},
		{"after a pause", []int64{1_000_000}, [][]string{all}},
		{"the clock was set back", []int64{-1_000_000, -999_000}, [][]string{all, nil}},
		{"a little", []int64{10, -20}, [][]string{{"10"}, {"1000", "500", "990"}}},
	} {
		p, _ := newWheel()
		for i, ms := range tc.ms {
			got := due(p, ms)
			if len(got) > 2 {
				slices.Sort(got)
			}
			if !slices.Equal(got, tc.want[i]) {
				t.Errorf("%s: at %d due %v, want %v", tc.name, ms, got, tc.want[i])
			}
		}
		if p.waiting == 0 != (len(due(p, 1_000_000)) == 0) {
			t.Errorf("%s: %d waiting", tc.name, p.waiting)
		}
	}
	// A session that is overdue leaves at once, even if the clock was not read for long.
	p, _ := newWheel()
	due(p, 1000)
	p.put(&session{name: "past"}, slot(900), slot(5000))
	p.put(&session{name: "ahead"}, slot(5900), slot(5000))
	if got := due(p, 5000); !slices.Equal(got, []string{"past"}) {
		t.Errorf("due %v, want what is past", got)
	}
	if got := due(p, 5900); !slices.Equal(got, []string{"ahead"}) {
		t.Errorf("due %v, want what was ahead", got)
	}
}

// TestMoment: requests leave within a spread of their ticks, at the agent's moment of a second, and as far apart as
// the ticks.
func TestMoment(t *testing.T) {
	for _, spread := range []time.Duration{0, 500 * time.Millisecond, time.Second, 10 * time.Second} {
		p := newPacer(spread, nil)
		for _, name := range []string{"a", "b", "web1", "web2"} {
			offset := timetable.PlaceOf(resource.Name{Namespace: "default", Name: name}, spread).Offset
			for _, tick := range []int64{0, 1, 999, 1000, 1_700_000_000_123} {
				due := p.moment(tick, offset)
				if due < tick || due > tick+spread.Milliseconds() {
					t.Errorf("spread %s, offset %d: tick %d leaves at %d", spread, offset, tick, due)
				}
				if next := p.moment(tick+7000, offset); next != due+7000 {
					t.Errorf("spread %s, offset %d: tick %d leaves at %d, and 7 s later at %d", spread, offset, tick, due, next)
				}
				if other := p.moment(tick+300, offset); spread >= time.Second && (other-due)%1000 != 0 {
					t.Errorf("spread %s, offset %d: ticks %d and 300 ms later leave at %d and %d", spread, offset, tick, due, other)
				}
			}
		}
	}
}
