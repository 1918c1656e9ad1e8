package eventfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// stamp is the time of the rotation, in UTC, at the end of the name of a renamed file: events.log.20261127T081500.000Z.
// Names sort by time. Other files, for example of logrotate, have other names and are left alone.
const stamp = "20060102T150405.000Z"

var newline = []byte{'\n'}

// file is a file of lines that is renamed when it is too large or too old.
type file struct {
	path     string
	maxBytes int64
	maxAge   time.Duration
	keep     int
	warn     func(error) // gets what fails in a rotation; lines are written all the same

	mu    sync.Mutex // guards the fields below
	out   *os.File   // nil if it is not open
	info  os.FileInfo
	begun time.Time
}

// append writes lines at the end of the file, and returns how many bytes of whole lines it has written. After an error
// the file is opened again, which ends the torn line.
func (f *file) append(lines []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	size, err := f.ready()
	if err != nil {
		return 0, err
	}
	old := f.maxAge > 0 && time.Since(f.begun) >= f.maxAge
	if size > 0 && (old || f.maxBytes > 0 && size+int64(len(lines)) > f.maxBytes) {
		if err := f.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := f.out.Write(lines)
	if err != nil {
		// The error has the path.
		return bytes.LastIndexByte(lines[:n], '\n') + 1, errors.Join(err, f.shut())
	}
	return n, nil
}

// reopen closes the file and opens what has its name now.
func (f *file) reopen() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.shut(), f.open())
}

func (f *file) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shut()
}

// shut closes the file. The caller holds mu.
func (f *file) shut() error {
	if f.out == nil {
		return nil
	}
	err := f.out.Close()
	f.out = nil
	return err
}

// ready opens the file if it is not open, or if its name is gone or another file's: lines in a removed file would be
// lost without an error. It returns the size. The caller holds mu.
func (f *file) ready() (size int64, err error) {
	info, err := os.Stat(f.path)
	if f.out != nil && err == nil && os.SameFile(info, f.info) {
		return info.Size(), nil
	}
	if err := errors.Join(f.shut(), f.open()); err != nil {
		return 0, err
	}
	return f.info.Size(), nil
}

// open opens the file, and ends the line at its end if it is torn. The caller holds mu.
func (f *file) open() (err error) {
	out, err := os.OpenFile(f.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, out.Close())
		}
	}()
	info, err := out.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("open %s: it is not a regular file", f.path)
	}
	begun := time.Now()
	if size := info.Size(); size > 0 {
		var last [1]byte
		if _, err := out.ReadAt(last[:], size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			if _, err := out.Write(newline); err != nil {
				return err
			}
		}
		begun = f.since(info)
	}
	f.out, f.info, f.begun = out, info, begun
	return nil
}

// since returns when a file that is not empty was begun: at the last rotation, as far as is known. File systems do not
// all keep it.
func (f *file) since(info os.FileInfo) time.Time {
	if old, err := f.renamed(); err == nil && len(old) > 0 {
		if at, err := time.Parse(stamp, strings.TrimPrefix(old[len(old)-1], f.path+".")); err == nil {
			return at
		}
	}
	return info.ModTime()
}

// rotate renames the file, begins another one, and removes the renamed files beyond keep. It fails only if no file is
// open afterwards. The caller holds mu.
func (f *file) rotate() error {
	at := time.Now().UTC()
	name := f.path + "." + at.Format(stamp)
	for exists(name) { // two rotations in a millisecond
		at = at.Add(time.Millisecond)
		name = f.path + "." + at.Format(stamp)
	}
	if err := errors.Join(f.shut(), os.Rename(f.path, name)); err != nil {
		f.warn(err)
	}
	if err := f.open(); err != nil {
		return err
	}
	old, err := f.renamed()
	for len(old) > f.keep {
		err = errors.Join(err, os.Remove(old[0]))
		old = old[1:]
	}
	if err != nil {
		f.warn(err)
	}
	return nil
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// renamed returns the renamed files, oldest first.
func (f *file) renamed() (names []string, err error) {
	dir, base := filepath.Split(f.path)
	entries, err := os.ReadDir(filepath.Clean(dir))
	for _, e := range entries {
		suffix, found := strings.CutPrefix(e.Name(), base+".")
		if _, err := time.Parse(stamp, suffix); found && err == nil && len(suffix) == len(stamp) {
			names = append(names, dir+e.Name())
		}
	}
	slices.Sort(names)
	return names, err
}
