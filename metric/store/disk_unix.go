//go:build unix

package store

import "golang.org/x/sys/unix"

// freeBytes returns what a process without rights of its own can still write to the disk of dir.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}
