//go:build !unix

package connlimit

// Files returns the process's limit of file descriptors; 0 if unknown.
func Files() int { return 0 }
