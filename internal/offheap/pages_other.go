//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package offheap

import "errors"

// Systems without mmap keep strings on the heap.
func mapPages(int) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmapPages([]byte) bool { return false }
