package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestKillEvenly: the processes of a run together kill the wanted share of the agents, and each kills its agents evenly
// over the time.
func TestKillEvenly(t *testing.T) {
	for _, share := range []float64{0, 0.05, 0.29, 0.5, 1} {
		t.Run(fmt.Sprint(share), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const length = time.Minute
				total := 0
				for _, part := range [][2]int{{1, 33}, {34, 33}, {67, 34}} {
					f := newTestFleet(t, FleetOptions{First: part[0], Count: part[1], KillAgents: share, Seed: 7})
					f.ctx, f.cancel = context.WithCancel(t.Context())
					want := len(f.victims())
					total += want
					f.Begin(length)
					for i := range want {
						time.Sleep(length / time.Duration(want))
						synctest.Wait()
						if n := int(f.measures.killed.Load()); n != i+1 {
							t.Errorf("%d agents were killed in %d of %d parts of the time", n, i+1, want)
						}
					}
					dead := 0
					for _, a := range f.agents {
						if a.killed() {
							dead++
						}
					}
					if dead != want {
						t.Errorf("%d agents are dead, want %d", dead, want)
					}
					if err := f.Stop(); err != nil {
						t.Fatal(err)
					}
				}
				if want := int(math.Round(share * 100)); total != want {
					t.Errorf("%d of 100 agents are killed, want %d", total, want)
				}
			})
		})
	}
}

// TestKill: the backend gets no close frame of a killed agent. The agent neither connects again nor does anything else,
// and is no disconnect that the backend caused.
func TestKill(t *testing.T) {
	b := newFakeBackend(t)
	f := b.start(t, FleetOptions{Count: 2, AckDelay: time.Hour})
	ends := map[string]*backendEnd{}
	for range 2 {
		end := <-b.conns
		ends[end.header.Get(wire.HeaderAgentName)] = end
	}
	until(func() bool { return f.measures.arrived.Load() == 2 })
	a := f.agents[0]
	end := ends[a.name]
	end.ask(t, 1, "a", 1)
	until(func() bool { return f.delayed.len() == 1 })
	f.kill(a)
	for {
		_, err := end.Read()
		if err == nil {
			continue // its keepalive
		}
		var closed *wire.CloseError
		if errors.As(err, &closed) || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the connection ended with %v", err)
		}
		break
	}
	f.sendDelayed(time.Now().Add(2 * time.Hour))
	if err := f.dial(a); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := a.onRequest(turnRequest(2, "a", 2)); ok || err != nil {
		t.Errorf("a killed agent takes a turn; error %v", err)
	}
	if err := a.onSchedule(wire.AppendSchedule(nil, 1, true, nil)[len(wire.TypeSchedule)+1:]); err != nil {
		t.Fatal(err)
	}
	s := f.Snapshot()
	if s.Killed != 1 || s.Connected != 1 || s.Disconnects != 0 || s.Errors != 0 || s.Turns.Answered != 0 {
		t.Errorf("counted %+v", s)
	}
	if err := f.Stop(); err != nil {
		t.Fatal(err)
	}
	if n := b.taken.Load(); n != 2 {
		t.Errorf("there were %d connections", n)
	}
}

// TestBegin: the turns of each agent are counted from the beginning of the measured part, and not those of killed
// agents.
func TestBegin(t *testing.T) {
	f := newTestFleet(t, FleetOptions{Count: 4})
	f.ctx, f.cancel = context.WithCancel(t.Context())
	tick := int64(0)
	give := func(agent, turns int) {
		t.Helper()
		for range turns {
			tick++
			if _, ok, err := f.agents[agent].onRequest(turnRequest(tick, "a", tick)); !ok || err != nil {
				t.Fatalf("a turn was not taken; error %v", err)
			}
		}
	}
	give(0, 5)
	give(1, 7)
	f.Begin(0)
	give(0, 3)
	give(2, 3)
	give(3, 9)
	f.kill(f.agents[3])
	got := f.Snapshot().Turns.PerAgent
	if len(got) != 2 || got[3] != 2 || got[0] != 1 {
		t.Errorf("turns per agent %v", got)
	}
	if err := f.Stop(); err != nil {
		t.Fatal(err)
	}
}
