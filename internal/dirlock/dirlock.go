// Package dirlock lets one process use a directory at a time.
package dirlock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrInUse says that another process uses the directory.
var ErrInUse = errors.New("another process uses the directory")

// Lock is held until Unlock, or until the process ends.
type Lock struct{ file *os.File }

// Take locks a directory, which must be there, by the file LOCK in it.
func Take(dir string) (*Lock, error) {
	path := filepath.Join(dir, "LOCK")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if err := tryLock(f); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, err), f.Close())
	}
	return &Lock{f}, nil
}

// Unlock lets another process take the directory. It may be called twice.
func (l *Lock) Unlock() error {
	if err := l.file.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
