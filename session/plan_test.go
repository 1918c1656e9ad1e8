package session

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule"
	"github.com/lapwing-monitoring/lapwing/schedule/timetable"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestFleetIsSpreadOverTheInterval: in each second of its interval a check runs on about equally many hosts. An agent
// keeps its phases across sessions, the distances between its checks, and its moment in the second.
func TestFleetIsSpreadOverTheInterval(t *testing.T) {
	s := bareServer(time.Second)
	one := &assignment{every: 10 * time.Second, phase: 3 * time.Second}
	another := &assignment{every: 10 * time.Second, phase: 8 * time.Second}
	minutely := &assignment{every: time.Minute, phase: 17 * time.Second}
	var ten [10]int
	var sixty [60]int
	const agents = 12_000
	for i := range agents {
		a, again := s.newSession(nil, "default", fmt.Sprint("web-", i)), s.newSession(nil, "default", fmt.Sprint("web-", i))
		first := one.entry(a.offset, a.shift).PhaseMillis
		if later := one.entry(again.offset, again.shift).PhaseMillis; first != later {
			t.Fatalf("agent %d has the phase %d, and %d in its next session", i, first, later)
		}
		if distance := (another.entry(a.offset, a.shift).PhaseMillis + 10_000 - first) % 10_000; distance != 5000 {
			t.Fatalf("agent %d runs its checks %d ms apart, want 5000", i, distance)
		}
		if first%1000 != uint64(a.offset) || first >= 10_000 {
			t.Fatalf("agent %d, whose moment is %d ms, has the phase %d ms", i, a.offset, first)
		}
		ten[first/1000]++
		sixty[minutely.entry(a.offset, a.shift).PhaseMillis/1000]++
	}
	for second, n := range ten {
		if n < agents/10*9/10 || n > agents/10*11/10 {
			t.Errorf("%d of %d agents run the check in second %d of 10", n, agents, second)
		}
	}
	for second, n := range sixty {
		if n < agents/60*6/10 || n > agents/60*14/10 {
			t.Errorf("%d of %d agents run the check in second %d of 60", n, agents, second)
		}
	}
}

// TestPhasesThatAreChosen: ticks of a cron line are not shifted, and no tick is if the operator wants no spread.
func TestPhasesThatAreChosen(t *testing.T) {
	spread, none := bareServer(time.Second), bareServer(0)
	cron, interval := &assignment{}, &assignment{every: 10 * time.Second, phase: 3 * time.Second}
	for i := range 100 {
		a, b := spread.newSession(nil, "default", fmt.Sprint("web-", i)), none.newSession(nil, "default", fmt.Sprint("web-", i))
		for _, tc := range []struct {
			entry wire.ScheduleEntry
			want  uint64
		}{
			{cron.entry(a.offset, a.shift), uint64(a.offset)}, {cron.entry(b.offset, b.shift), 0}, {interval.entry(b.offset, b.shift), 3000},
		} {
			if tc.entry.PhaseMillis != tc.want {
				t.Errorf("agent %d: phase %d ms, want %d", i, tc.entry.PhaseMillis, tc.want)
			}
		}
	}
}

// TestTheRunsThatAreTold: the next runs of an agent that the scheduler tells are those of the schedule that its session sends.
func TestTheRunsThatAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := config.New(config.Options{Broker: new(broker.Broker)})
		if err != nil {
			t.Fatal(err)
		}
		for _, spread := range []time.Duration{0, 500 * time.Millisecond, time.Second, 10 * time.Second} {
			s := startBare(t, spread)
			scheduler, err := schedule.New(schedule.Options{Config: store, Publish: s.Publish, Spread: spread})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []*resource.CheckConfig{{Interval: 1}, {Interval: 60}, {Interval: 86_400}, {Cron: "@every 90s"}, {Cron: "TZ=Asia/Kathmandu 0 6 * * *"}} {
				c.Metadata, c.Subscriptions, c.Publish = resource.ObjectMeta{Namespace: "default", Name: "disk"}, []string{"linux"}, true
				every := timetable.Every(c)
				a := schedule.Assignment{Namespace: "default", Check: "disk", Request: &resource.CheckRequest{Config: c}, Every: every}
				if every > 0 {
					a.Phase = timetable.MD5.Phase("disk", every)
				}
				s.Assign([]schedule.Assignment{a})
				name := fmt.Sprint("web-", c.Interval, c.Cron)
				peer := s.join(t, name, true, "linux")
				peer.send([]byte("entity_config\n\n")) // takes the schedule along
				got := peer.take()
				_, _, entries, err := wire.DecodeSchedule(got[len(got)-1].payload)
				if err != nil || len(entries) != 1 {
					t.Fatalf("%s: %d entries, %v", name, len(entries), err)
				}
				times, err := timetable.Cron(c)
				if err != nil {
					t.Fatal(err)
				}
				planned, after := timetable.Planned(times, every, time.Duration(entries[0].PhaseMillis)*time.Millisecond)
				told := scheduler.Upcoming(c, name, time.Now(), 3)
				tick := time.Now().UnixNano() - int64(after)
				for i, second := range told.Runs {
					tick = planned.Next(tick)
					if run := time.Unix(0, tick).Add(after); !run.Equal(time.Unix(second, told.Millis*int64(time.Millisecond))) {
						t.Errorf("spread %s, %s: run %d is at %s, told %d s and %d ms", spread, name, i, run, second, told.Millis)
					}
				}
				if len(told.Runs) != 3 || told.Agent != name || told.Spread {
					t.Errorf("spread %s, %s: told %+v", spread, name, told)
				}
			}
		}
	})
}
