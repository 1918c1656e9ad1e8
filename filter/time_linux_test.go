package filter

import (
	"time"

	"golang.org/x/sys/unix"
)

// processTime is the CPU time that another process has used.
func processTime(pid int) (time.Duration, error) {
	const scheduled = 2 // see MAKE_PROCESS_CPUCLOCK of the kernel
	var ts unix.Timespec
	err := unix.ClockGettime(int32(^pid<<3|scheduled), &ts)
	return time.Duration(ts.Nano()), err
}
