//go:build unix

package agent

import (
	"errors"
	"os"
	"syscall"
)

// lockFile opens a file that this process alone may hold. It is released when it is closed, or when the process ends.
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
