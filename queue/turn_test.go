package queue

import (
	"slices"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestTurnText(t *testing.T) {
	for text, want := range map[string]Turn{
		"1700000000 linux 7":        {Tick: 1700000000},
		"1700000000! entity:a1 0":   {Tick: 1700000000, Asked: true},
		"1700000000 linux,web 12":   {Tick: 1700000000},
		"1700000000 a b,c%2Cd%25 1": {Tick: 1700000000},
	} {
		got, ok := parseTurn(text, "")
		if !ok || got.Turn != want || got.Format(got.stamp, got.subscriptions...) != text {
			t.Errorf("%q is read as %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "1700000000", "1700000000 linux", "1700000000 linux x", "x linux 1", "-1 linux 1", "! linux 1", "1.5 linux 1"} {
		if got, subscriptions, _, ok := ParseTurn(text, ""); ok {
			t.Errorf("%q is read as %+v of %q", text, got, subscriptions)
		}
	}
}

func FuzzParseTurn(f *testing.F) {
	f.Add("1700000000 linux 5")
	f.Add("1700000000! entity:a1 5")
	f.Fuzz(func(t *testing.T, text string) {
		g, ok := parseTurn(text, "sw-1")
		if !ok {
			return
		}
		written := g.Format(g.stamp, g.subscriptions...)
		if again, ok := parseTurn(written, "sw-1"); !ok && len(written) <= maxTurnText || ok && (again.Turn != g.Turn || !slices.Equal(again.subscriptions, g.subscriptions)) {
			t.Errorf("%q is %+v, and read again %+v", text, g, again)
		}
	})
}

func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		timeout        uint32
		longest, every time.Duration
		want           limits
	}{
		"quick, each second":        {longest: 20 * time.Millisecond, every: time.Second, want: limits{5 * time.Second, 10 * time.Second, 5 * time.Minute}},
		"not known, each minute":    {every: time.Minute, want: limits{30 * time.Second, time.Minute, 5 * time.Minute}},
		"quick, each minute":        {longest: time.Second, every: time.Minute, want: limits{5 * time.Second, time.Minute, 5 * time.Minute}},
		"slow, each minute":         {longest: 25 * time.Second, every: time.Minute, want: limits{75 * time.Second, 150 * time.Second, 5 * time.Minute}},
		"with a timeout":            {timeout: 10, longest: time.Second, every: time.Minute, want: limits{15 * time.Second, time.Minute, 15 * time.Second}},
		"with a very long timeout":  {timeout: 3600, every: time.Minute, want: limits{150 * time.Second, 5 * time.Minute, 3605 * time.Second}},
		"each day":                  {longest: time.Second, every: 24 * time.Hour, want: limits{5 * time.Second, 5 * time.Minute, 5 * time.Minute}},
		"a cron without a distance": {want: limits{5 * time.Second, 10 * time.Second, 5 * time.Minute}},
	} {
		if got := limitsOf(&resource.CheckConfig{Timeout: c.timeout}, c.longest, c.every); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}
