package filter

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is the CPU time that the calling thread has used.
func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return time.Since(started)
	}
	return time.Duration(ts.Nano())
}

// threadID names the calling thread for threadTimeOf.
func threadID() int { return unix.Gettid() }

// threadTimeOf is the CPU time that a thread of this process has used, if it is still there.
func threadTimeOf(id int) (time.Duration, bool) {
	const perThread, scheduled = 4, 2 // see MAKE_THREAD_CPUCLOCK of the kernel
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^id<<3|perThread|scheduled), &ts); err != nil {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}

// processTime is the CPU time that another process has used.
func processTime(pid int) (time.Duration, bool) {
	const scheduled = 2 // see MAKE_PROCESS_CPUCLOCK of the kernel
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &ts); err != nil {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}

var started = time.Now()
