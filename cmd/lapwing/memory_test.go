//go:build !agentonly

package main

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/telemetry"
)

// TestHeapLimit: what is outside of the heap counts, too, but the heap keeps a share.
func TestHeapLimit(t *testing.T) {
	for _, tc := range [][3]int64{{1000, 0, 1000}, {1000, 300, 700}, {1000, 900, 250}, {1000, 5000, 250}} {
		if got := heapLimit(tc[0], tc[1]); got != tc[2] {
			t.Errorf("%d of %d outside: %d for the heap, want %d", tc[1], tc[0], got, tc[2])
		}
	}
}

// TestHeapGrowth: a small heap may double, a large one grows by less.
func TestHeapGrowth(t *testing.T) {
	for live, want := range map[int64]int{0: 100, 10 << 20: 100, 128 << 20: 100, 256 << 20: 50, 512 << 20: 40,
		8 << 30: 40} {
		if got := heapGrowth(live, headroom); got != want {
			t.Errorf("%d MiB: %d%%, want %d", live>>20, got, want)
		}
		if got, want := heapGrowth(3*live, memberHeadroom), want; got != want {
			t.Errorf("member with %d MiB: %d%%, want %d", 3*live>>20, got, want)
		}
	}
}

// TestCollector: settings change when it matters, and a limit that no test set and a growth that the operator set stay.
func TestCollector(t *testing.T) {
	limit, growth := debug.SetMemoryLimit(-1), debug.SetGCPercent(100)
	defer func() {
		debug.SetMemoryLimit(limit)
		debug.SetGCPercent(growth)
	}()
	f := func(c *collector, outside, live, limit int64, growth int) {
		t.Helper()
		c.tune(outside, live)
		is := debug.SetGCPercent(100)
		debug.SetGCPercent(is)
		if l := debug.SetMemoryLimit(-1); l != limit || is != growth {
			t.Errorf("limit %d and growth %d%%, want %d and %d%%", l, is, limit, growth)
		}
	}
	const total = 1 << 30
	debug.SetMemoryLimit(total)
	c := &collector{limit: total, garbage: headroom, growth: mostGrowth}
	f(c, limitStep-1, headroom, total, 100)
	f(c, limitStep, 2*headroom, total-limitStep, 50)
	f(c, 2*limitStep-1, 2*headroom-headroom/100, total-limitStep, 50)
	f(c, 0, 0, total, 100)
	debug.SetGCPercent(77)
	f(&collector{limit: total}, 0, 100*headroom, total, 77)
	debug.SetMemoryLimit(math.MaxInt64)
	f(&collector{limit: math.MaxInt64}, total, 0, math.MaxInt64, 77)
}

// TestLimitMemory: the backend takes every limit that comes from the system or from GOMEMLIMIT.
func TestLimitMemory(t *testing.T) {
	was := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(was)
	for _, tc := range []struct {
		name               string
		flag               int64
		variable           string
		runtime            int64 // as GOMEMLIMIT has set it
		want, collectorHas int64
	}{
		{"flag", 1 << 30, "2GiB", 2 << 30, 1 << 30, 1 << 30},
		{"variable", 0, "2GiB", 2 << 30, 2 << 30, 2 << 30},
		{"small variable", 0, "50MiB", 50 << 20, 64 << 20, 50 << 20},
		{"large variable", 0, "2TiB", 2 << 40, 1 << 40, 2 << 40},
		{"off", 0, "off", math.MaxInt64, 0, math.MaxInt64},
	} {
		t.Setenv("GOMEMLIMIT", tc.variable)
		debug.SetMemoryLimit(tc.runtime)
		got := limitMemory(tc.flag)
		if has := debug.SetMemoryLimit(-1); got != tc.want || has != tc.collectorHas {
			t.Errorf("%s: %d for the backend and %d for the collector, want %d and %d", tc.name, got, has, tc.want,
				tc.collectorHas)
		}
		opts := backend.DefaultOptions()
		opts.StateDir, opts.MemoryLimit = t.TempDir(), got
		if err := opts.Check(); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	t.Setenv("GOMEMLIMIT", "")
	debug.SetMemoryLimit(math.MaxInt64)
	if got, has := limitMemory(0), telemetry.MemoryLimit(); has > 0 && (got <= 0 || uint64(got) > max(has, 64<<20)) {
		t.Errorf("by default %d of %d", got, has)
	}
}
