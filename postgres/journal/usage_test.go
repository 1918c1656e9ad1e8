package journal

import (
	"testing"
	"time"
)

func TestGrowth(t *testing.T) {
	var g growth
	begin := time.Unix(1e9, 0)
	f := func(at time.Duration, owed int64, want float64) {
		t.Helper()
		g.note(begin.Add(at), owed)
		if got := g.perSecond(begin.Add(at), owed); got != want {
			t.Errorf("after %s: %g, want %g", at, got, want)
		}
	}
	f(0, 1000, 0)
	f(59*time.Second, 60_000, 0) // too early to say
	f(time.Minute, 7000, 100)
	f(2*time.Minute, 13_000, 100)
	f(5*time.Minute, 1000, 0)
	for s := 301; s <= 900; s++ { // the samples from before are forgotten
		g.note(begin.Add(time.Duration(s)*time.Second), int64(1_000_000-1000*(s-300)))
	}
	f(900*time.Second, 400_000, -1000)
	if len(g.samples) > 32 {
		t.Errorf("%d samples are kept", len(g.samples))
	}
}

func TestLeft(t *testing.T) {
	f := func(u Usage, left int64, in time.Duration, grows bool) {
		t.Helper()
		gotIn, gotGrows := u.FullIn()
		if u.Left() != left || gotIn != in || gotGrows != grows {
			t.Errorf("%+v: left %d, full in %s, %t; want %d, %s, %t", u, u.Left(), gotIn, gotGrows, left, in, grows)
		}
	}
	f(Usage{MaxBytes: 100, Bytes: 50, Owed: 40}, 60, 0, false)
	f(Usage{MaxBytes: 100, Bytes: 50, Owed: 40, Growth: -1}, 60, 0, false)
	f(Usage{MaxBytes: 100, Bytes: 50, Owed: 40, Growth: 2}, 60, 30*time.Second, true)
	f(Usage{MaxBytes: 100, Owed: 100, Growth: 2}, 0, 0, true)
	// The disk fills before the bound is reached. What PostgreSQL has can go.
	f(Usage{MaxBytes: 100, Bytes: 50, Owed: 40, Free: 30, MinFree: 20, Growth: 1}, 20, 20*time.Second, true)
	f(Usage{MaxBytes: 100, Bytes: 40, Owed: 40, Free: 10, MinFree: 20, Growth: 1}, 0, 0, true)
	f(Usage{MaxBytes: 1 << 60, Growth: 1}, 1<<60, 365*24*time.Hour, true)
}
