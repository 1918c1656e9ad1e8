//go:build !linux

package filter

import "time"

// threadTime is the time itself where that of a thread is not known.
func threadTime() time.Duration { return time.Since(started) }

func threadID() int { return 0 }

// threadTimeOf is not known here.
func threadTimeOf(int) (time.Duration, bool) { return 0, false }

// processTime is not known here.
func processTime(int) (time.Duration, bool) { return 0, false }

var started = time.Now()
