//go:build !linux

package filter

import "time"

// threadTime is the time itself where that of a thread is not known.
func threadTime() time.Duration { return time.Since(started) }

var started = time.Now()
