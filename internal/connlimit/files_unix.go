//go:build unix

package connlimit

import "syscall"

// Files is how many file descriptors the process may have; 0 if that is not known. Go's runtime has raised the limit as far as
// the system lets it before main begins.
func Files() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > 1<<30 {
		return 0
	}
	return int(limit.Cur)
}
