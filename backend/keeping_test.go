package backend

import (
	"testing"
	"time"
)

// TestKeeping: how long a backend without its lease keeps its agents.
func TestKeeping(t *testing.T) {
	const tick, grace = 500 * time.Millisecond, 2500 * time.Millisecond
	for name, c := range map[string]struct {
		stands time.Duration // the process stands still for so long, then runs
		again  time.Duration // after so long it stands still again for 10 s; 0 for never
		back   time.Duration // when it has its lease again after it runs; 0 for never
		stay   time.Duration // how long agents stay after it runs; 0 for ever
	}{
		"it loses its lease":                            {stay: grace + tick},
		"it has it again in time":                       {back: 2 * time.Second},
		"it stood still for a moment":                   {stands: 2 * time.Second, stay: 2 * tick},
		"it stood still":                                {stands: time.Minute, stay: 2*grace + tick},
		"it stood still, and has its lease in time":     {stands: time.Minute, back: 4 * time.Second},
		"it stands still again and again without lease": {stands: time.Minute, again: 2 * time.Second, stay: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			k := keeping{grace: grace, leased: now, looked: now}
			if now = now.Add(c.stands); c.stands == 0 {
				now = now.Add(tick)
			}
			began := now
			for slept := false; now.Sub(began) < time.Minute; now = now.Add(tick) {
				ran := now.Sub(began)
				if c.again > 0 && ran >= c.again && !slept {
					slept, now = true, now.Add(10*time.Second)
				}
				if !k.look(now, c.back > 0 && ran >= c.back) {
					if c.stay == 0 || ran < c.stay-tick || ran > c.stay {
						t.Errorf("agents had to go after %s, want %s", ran, c.stay)
					}
					return
				}
			}
			if c.stay > 0 {
				t.Errorf("agents stayed, and should have gone after %s", c.stay)
			}
		})
	}
}
