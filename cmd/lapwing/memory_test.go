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

// TestCollectorOfTheOperator: a GOGC that was set stays.
func TestCollectorOfTheOperator(t *testing.T) {
	was := debug.SetGCPercent(77)
	defer debug.SetGCPercent(was)
	t.Setenv("GOGC", "77")
	bearGarbage()
	if got := debug.SetGCPercent(77); got != 77 {
		t.Errorf("GOGC=77 became %d", got)
	}
	t.Setenv("GOGC", "")
	bearGarbage()
	if got := debug.SetGCPercent(77); got != heapGrowth {
		t.Errorf("without GOGC the heap grows by %d%%, want %d", got, heapGrowth)
	}
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
			t.Errorf("%s: %d for the backend and %d for the collector, want %d and %d", tc.name, got, has, tc.want, tc.collectorHas)
		}
		if err := (&backend.Options{StateDir: t.TempDir(), MemoryLimit: got}).Check(); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	t.Setenv("GOMEMLIMIT", "")
	debug.SetMemoryLimit(math.MaxInt64)
	if got, has := limitMemory(0), telemetry.MemoryLimit(); has > 0 && (got <= 0 || uint64(got) > max(has, 64<<20)) {
		t.Errorf("by default %d of %d", got, has)
	}
}
