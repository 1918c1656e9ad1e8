//go:build unix

package connlimit

import "syscall"

// Files returns the process's limit of file descriptors; 0 if unknown. Go's runtime has raised it as far as possible
// before main begins.
func Files() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > 1<<30 {
		return 0
	}
	return int(limit.Cur)
}
