package agent

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockFile opens a file that only this process may hold. Closing it, or the end of the process, releases it.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	if err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped)); err != nil {
		if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
			err = errSpoolLocked
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
