//go:build unix

package agent

import (
	"errors"
	"os"
	"syscall"
)

// lockFile opens a file that only this process may hold. Closing it, or the end of the process, releases it.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errSpoolLocked
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
