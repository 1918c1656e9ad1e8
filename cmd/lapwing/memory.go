//go:build !agentonly

package main

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/internal/offheap"
	"github.com/lapwing-monitoring/lapwing/telemetry"
)

const (
	// headroom is how much garbage is always worth its memory, in bytes, up to the size of the live heap. The broker of a
	// cluster's member copies each message several times.
	headroom, memberHeadroom = 128 << 20, 384 << 20
	// leastGrowth is by how many percent a large heap grows between two collections. Most of a backend's heap has no
	// pointers and costs next to nothing to mark, so a heap that grows less than Go's 100% takes little more CPU.
	leastGrowth, mostGrowth = 40, 100
	// limitStep and growthStep are the changes after which the collector's limit and percentage are set anew.
	limitStep, growthStep = 16 << 20, 5
)

// collector is what the garbage collector was set to.
type collector struct {
	limit   int64 // of the process, in bytes; math.MaxInt64 if it has none
	outside int64 // of that, memory outside of the heap
	garbage int64 // that is always worth its memory
	growth  int   // percent; 0 if GOGC in the environment says what it is
}

// tuneCollector adjusts the collector's settings to a backend's memory until stop is called, which restores them.
func tuneCollector(garbage int64) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	c := collector{limit: debug.SetMemoryLimit(-1), garbage: garbage}
	if os.Getenv("GOGC") == "" {
		c.growth = mostGrowth
	}
	go func() {
		defer close(done)
		c.run(ctx)
	}()
	return func() {
		cancel()
		<-done
		c.tune(0, 0)
	}
}

func (c *collector) run(ctx context.Context) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		metrics.Read(live)
		c.tune(offheap.Mapped(), int64(live[0].Value.Uint64()))
	}
}

// tune sets what should change: the limit, which leaves out what is outside of the heap, and the growth, which depends
// on the heap.
func (c *collector) tune(outside, live int64) {
	if c.limit < math.MaxInt64 && distance(outside, c.outside) >= limitStep {
		c.outside = outside
		debug.SetMemoryLimit(heapLimit(c.limit, outside))
	}
	if growth := heapGrowth(live, c.garbage); c.growth > 0 && distance(int64(growth), int64(c.growth)) >= growthStep {
		c.growth = growth
		debug.SetGCPercent(growth)
	}
}

func distance(a, b int64) int64 { return max(a-b, b-a) }

// heapLimit is what the heap may have of a limit, at least a quarter: with less the collector would take all of the
// CPU.
func heapLimit(limit, outside int64) int64 { return max(limit-outside, limit/4) }

// heapGrowth is by how many percent a heap should grow until the next collection.
func heapGrowth(live, garbage int64) int {
	return int(min(max(garbage*100/max(live, 1), leastGrowth), mostGrowth))
}

// limitMemory sets the limit near which the garbage collector runs more often, and returns it for the backend, in
// bytes: the given one, for 0 that of GOMEMLIMIT, and else three quarters of what the process can have. It returns 0 if
// there is none. One that was not given may be outside of the option's bounds, and is brought within them for the
// backend.
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
