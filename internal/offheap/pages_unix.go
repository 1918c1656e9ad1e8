//go:build linux || darwin || freebsd || netbsd || openbsd

package offheap

import "syscall"

func mapPages(n int) ([]byte, error) {
	return syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
}

// unmapPages reports whether the memory came from mapPages. Otherwise it is left to the collector.
func unmapPages(data []byte) bool { return syscall.Munmap(data) == nil }
