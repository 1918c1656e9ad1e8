//go:build unix

package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// ProcessCPU is the CPU time of this process.
func ProcessCPU() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
