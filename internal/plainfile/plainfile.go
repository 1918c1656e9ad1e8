// Package plainfile reads small files whole, and refuses all but regular files. All parts use it for files that an
// operator names.
//
// A named pipe, a device or a directory in the place of a file must not hang a start, and a file that has grown without
// bound must not fill the memory.
package plainfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// ErrIrregular says that the path is not a regular file of the expected size.
var ErrIrregular = errors.New("it is no plain file")

// Open opens a file for reading. It never waits, and fails with ErrIrregular if the path leads to a named pipe, a device or a
// directory.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ENXIO) { // a socket
		return nil, fmt.Errorf("open %s: %w", path, ErrIrregular)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("open %s: %w but a %s", path, ErrIrregular, kind(info.Mode()))
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// kind names a file that is not plain.
func kind(m os.FileMode) string {
	switch {
	case m.IsDir():
		return "directory"
	case m&os.ModeNamedPipe != 0:
		return "named pipe"
	case m&os.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

// Read reads a whole file of at most most bytes. A larger one fails with ErrIrregular.
func Read(path string, most int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("read %s: %w: it has more than %d bytes", path, ErrIrregular, most)
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}
