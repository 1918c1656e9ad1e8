//go:build !linux

package filter

import "time"

// threadTime is the wall clock where a thread's time is not known.
func threadTime() time.Duration { return time.Since(started) }

func threadID() int { return 0 }

// threadTimeOf is not known here.
func threadTimeOf(int) (time.Duration, bool) { return 0, false }

// processTime is not known here.
func processTime(int) (time.Duration, bool) { return 0, false }

var started = time.Now()
