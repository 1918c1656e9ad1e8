//go:build unix

package eventlog

import "golang.org/x/sys/unix"

// FreeSpace returns how many bytes an unprivileged process can still write below dir.
func FreeSpace(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return uint64(st.Bavail) * uint64(st.Bsize), nil
}
