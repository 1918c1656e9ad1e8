//go:build !agentonly

package main

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"time"

	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/internal/offheap"
	"github.com/lapwing-monitoring/lapwing/telemetry"
)

const (
	// heapGrowth is by how many percent the heap grows between two collections. What is large on a backend's heap has no pointers
	// and costs next to nothing to mark, so a heap that grows less than Go's 100% takes little more CPU.
	heapGrowth = 40
	// limitStep is the change of the memory outside of the heap, in bytes, after which the heap's limit is set anew.
	limitStep = 16 << 20
)

// bearGarbage has the garbage collector bear less garbage than it does by default. GOGC in the environment wins.
func bearGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
}

// shareLimit keeps the collector's limit below the process's by what is outside of the heap, until ctx ends.
func shareLimit(ctx context.Context) {
	limit, last := debug.SetMemoryLimit(-1), int64(0)
	if limit == math.MaxInt64 {
		return
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if now := offheap.Mapped(); now-last >= limitStep || last-now >= limitStep {
			debug.SetMemoryLimit(heapLimit(limit, now))
			last = now
		}
	}
}

// heapLimit is what the heap may have of a limit, at least a quarter: with less the collector would take all of the CPU.
func heapLimit(limit, outside int64) int64 { return max(limit-outside, limit/4) }

// limitMemory sets the limit near which the garbage collector runs more often, and returns it for the backend, in bytes: the given one,
// for 0 that of GOMEMLIMIT, and else three quarters of what the process can have. It returns 0 if there is none. One that was not given
// may be outside of the option's bounds, and is brought within them for the backend.
func limitMemory(limit int64) int64 {
	switch {
	case limit > 0:
		debug.SetMemoryLimit(limit)
		return limit
	case os.Getenv("GOMEMLIMIT") != "":
		if limit = debug.SetMemoryLimit(-1); limit == math.MaxInt64 {
			return 0 // GOMEMLIMIT=off
		}
	default:
		if limit = int64(telemetry.MemoryLimit() / 4 * 3); limit == 0 {
			return 0
		}
		debug.SetMemoryLimit(limit)
	}
	return min(max(limit, backend.LeastMemoryLimit), backend.MostMemoryLimit)
}
