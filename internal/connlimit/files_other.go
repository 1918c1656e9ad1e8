//go:build !unix

package connlimit

// Files is how many file descriptors the process may have; 0 if that is not known.
func Files() int { return 0 }
