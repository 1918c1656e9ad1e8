//go:build !agentonly

package main

import (
	"math"
	"os"
	"runtime/debug"

	"github.com/lapwing-monitoring/lapwing/telemetry"
)

// limitMemory sets the limit near which the garbage collector runs more often, and returns it, in bytes: the given one, for 0 that of
// GOMEMLIMIT, and else three quarters of what the process can have. It returns 0 if there is none.
func limitMemory(limit int64) int64 {
	if limit == 0 && os.Getenv("GOMEMLIMIT") != "" {
		if limit = debug.SetMemoryLimit(-1); limit == math.MaxInt64 {
			return 0 // GOMEMLIMIT=off
		}
		return limit
	}
	if limit == 0 {
		limit = int64(telemetry.MemoryLimit() / 4 * 3)
	}
	if limit > 0 {
		debug.SetMemoryLimit(limit)
	}
	return limit
}
