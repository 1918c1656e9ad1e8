package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// logFile is a log for a process that has no stderr: when it is too large it is renamed and another one begun.
type logFile struct {
	path    string
	maxSize int64
	keep    int // older ones, named path.1 (the youngest) and so on

	mu   sync.Mutex // guards the fields below
	file *os.File
	size int64
}

func (l *logFile) open() error {
	if err := os.MkdirAll(filepath.Dir(l.path), 0o750); err != nil {
		return fmt.Errorf("open log file: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begin()
}

// begin opens the file and goes on at its end. The caller holds mu.
func (l *logFile) begin() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return fmt.Errorf("open log file: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("open log file: %w", err), f.Close())
	}
	l.file, l.size = f, info.Size()
	return nil
}

// Write writes an entry to the file, whole.
func (l *logFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return 0, os.ErrClosed
	}
	if l.size > 0 && l.size+int64(len(b)) > l.maxSize {
		if err := l.turn(); err != nil {
			return 0, err
		}
	}
	n, err := l.file.Write(b)
	l.size += int64(n)
	return n, err
}

// turn renames the files and begins another one. The caller holds mu.
func (l *logFile) turn() error {
	// A file that cannot be renamed, because another program reads it on Windows, is gone on with.
	err := l.file.Close()
	older := func(i int) string { return fmt.Sprint(l.path, ".", i) }
	if l.keep > 0 {
		for i := l.keep - 1; i > 0; i-- {
			if e := os.Rename(older(i), older(i+1)); !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
		err = errors.Join(err, os.Rename(l.path, older(1)))
	} else {
		err = errors.Join(err, os.Remove(l.path))
	}
	l.file = nil
	if e := l.begin(); e != nil {
		return errors.Join(err, e)
	}
	return nil
}

// Close closes the file.
func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}
