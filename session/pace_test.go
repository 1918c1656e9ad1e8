package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestPacing plays a minute of pressure, one letter a second: g none, l a little lag, s too much lag, b appends that
// wait, w large records that wait, c both for too short to count, x a log that takes nothing. The resulting paces have
// a letter a second too.
func TestPacing(t *testing.T) {
	for _, tc := range []struct{ name, pressure, want string }{
		{"calm", "gggggggg", "gggggggg"},
		{"lag", "ggssssssgggggg", "gggssssssssggg"},
		{"blocked", "gbbbbgggggg", "ggssssssggg"},
		{"large records waited", "gwwwwgggggg", "ggssssssggg"},
		{"none waited for long", "gcccc", "ggggg"},
		{"a moment of each is nothing", "gsgbgxgsg", "ggggggggg"},
		{"disk full, then slowly at first", "gxxxxxgggggggggg", "ggxxxxxxxsssgggg"},
		{"disk full while slow", "gsssxxxgggggggg", "ggsssxxxxxsssgg"},
		{"from spool, slow is kept by lag", "gxxxggggllllggggggg", "ggxxxxxssssssssgggg"},
		{"a relapse begins the wait anew", "gxxxggxggxgggggg", "ggxxxxxxxxxxxsss"},
		{"slow is not left for a moment", "gsssggsggsgggggg", "ggsssssssssssggg"},
		{"lag below the threshold begins nothing", "glllllllll", "gggggggggg"},
	} {
		var p pacing
		now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
		var got strings.Builder
		for _, c := range tc.pressure {
			q := map[rune]Pressure{
				'g': {}, 'l': {Lag: time.Second}, 's': {Lag: 3 * time.Second}, 'x': {Err: errors.New("disk is full")},
				'b': {Waited: lookEvery}, 'c': {Waited: lookEvery - 1, LargeWaited: slowLarge - 1}, 'w': {LargeWaited: slowLarge},
			}[c]
			for range time.Second / lookEvery {
				before := p.pace
				if changed := p.look(now, q); changed != (p.pace != before) {
					t.Errorf("%s: from %s to %s, and look says %v", tc.name, before, p.pace, changed)
				}
				now = now.Add(lookEvery)
			}
			got.WriteByte("gsx"[p.pace])
		}
		if got.String() != tc.want {
			t.Errorf("%s: under %s the paces are %s, want %s", tc.name, tc.pressure, &got, tc.want)
		}
	}
}

func TestAgentsAreToldThePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startBare(t, time.Second)
		var mu sync.Mutex
		var pressure Pressure
		press := func(q Pressure) {
			mu.Lock()
			defer mu.Unlock()
			pressure = q
		}
		s.opts.Pressure = func() Pressure {
			mu.Lock()
			defer mu.Unlock()
			return pressure
		}
		ctx, cancel := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		watching.Go(func() { s.watchPressure(ctx) })
		defer watching.Wait()
		defer cancel()

		var own []*peer
		for i := range 50 {
			own = append(own, s.join(t, fmt.Sprint("own-", i), true))
		}
		stock := s.join(t, "stock", false, "linux")
		told := func(when string, want wire.Pace, every time.Duration) (moments map[time.Duration]bool) {
			t.Helper()
			moments = map[time.Duration]bool{}
			for _, p := range own {
				got := p.take()
				if len(got) != 1 || got[0].typ != wire.TypePace {
					t.Fatalf("%s: %v", when, got)
				}
				pace, ms, err := wire.DecodePace(got[0].payload)
				if err != nil || pace != want || ms != every {
					t.Fatalf("%s: told %s %s, %v", when, pace, ms, err)
				}
				moments[got[0].at.Sub(got[0].at.Truncate(time.Second))] = true
			}
			return moments
		}
		time.Sleep(10 * time.Second)
		press(Pressure{Err: errors.New("disk is full")})
		time.Sleep(worseAfter + lookEvery)
		synctest.Wait()
		if n := len(told("full", wire.PaceSpool, 0)); n != 1 {
			t.Errorf("all were told to hold back at %d moments", n)
		}
		if again := s.opts.Intake.Unheard(1000, time.Now()) - time.Now().UnixMilli(); again != 5000 {
			t.Error("a deadline that passes now would count")
		}
		late := s.join(t, "late", true)
		late.send([]byte("entity_config\n\n"))
		time.Sleep(time.Second)
		if got := late.take(); len(got) != 2 || got[1].typ != wire.TypePace {
			t.Errorf("an agent that comes later gets %v", got)
		}
		press(Pressure{})
		time.Sleep(betterAfter + lookEvery + time.Second)
		if n := len(told("free again", wire.PaceSlow, slowBatches)); n < 20 {
			t.Errorf("all were let go on at %d moments", n)
		}
		if got := s.opts.Intake.Unheard(120_000, time.Now()) - time.Now().UnixMilli(); got < 115_000 || got > 120_000 {
			t.Errorf("a keepalive that is due now would count in %d ms", got)
		}
		time.Sleep(betterAfter + lookEvery)
		if n := len(told("calm", wire.PaceGo, 0)); n < 20 {
			t.Errorf("all were let go on at %d moments", n)
		}
		time.Sleep(time.Hour)
		if s.opts.Intake.Unheard(120_000, time.Now()) != 0 {
			t.Error("deadlines still do not count")
		}
		for _, p := range append(own, stock) {
			if got := p.take(); len(got) != 0 {
				t.Errorf("%s was told %v", p.name, got)
			}
		}
	})
}
