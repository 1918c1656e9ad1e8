package filter

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime returns the CPU time of the calling thread.
func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return time.Since(started)
	}
	return time.Duration(ts.Nano())
}

// threadID identifies the calling thread for threadTimeOf.
func threadID() int { return unix.Gettid() }

// threadTimeOf returns the CPU time of a thread of this process, if it still exists.
func threadTimeOf(id int) (time.Duration, bool) {
	const perThread, scheduled = 4, 2 // see MAKE_THREAD_CPUCLOCK of the kernel
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^id<<3|perThread|scheduled), &ts); err != nil {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}

// processTime returns the CPU time of another process.
func processTime(pid int) (time.Duration, bool) {
	const scheduled = 2 // see MAKE_PROCESS_CPUCLOCK of the kernel
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &ts); err != nil {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}

var started = time.Now()
