//go:build !agentonly

package main

import (
	"math"
	"os"
	"runtime/debug"

	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/telemetry"
)

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
