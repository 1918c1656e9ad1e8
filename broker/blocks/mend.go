package blocks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Tidy moves Derived and Unfinished findings to the directory aside. With stale it moves the index too, which is then
// older than the blocks. It must not be called on a report with losses.
func Tidy(r *Report, stale bool, aside string) error {
	for _, f := range r.Findings {
		if f.Severity != Unfinished {
			continue
		}
		if err := truncate(f.File, int64(f.cut)); err != nil {
			return fmt.Errorf("cut off unfinished write of stream %s: %w", r.Stream, err)
		}
	}
	for _, f := range r.Findings {
		if f.Severity != Derived {
			continue
		}
		for _, path := range derivedWith(f.File) {
			if err := setAside(r, path, aside); err != nil {
				return err
			}
		}
	}
	if stale && r.hadFiles {
		if err := os.Remove(filepath.Join(r.messages(), indexFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove outdated index of stream %s: %w", r.Stream, err)
		}
	}
	return nil
}

// derivedWith returns a file and the files that are useless without it.
func derivedWith(path string) []string {
	if dir, name := filepath.Split(path); name == metaFile {
		return []string{path, filepath.Join(dir, sumFile)}
	}
	return []string{path}
}

// setAside moves a file of a stream to the directory aside, under the stream's name.
func setAside(r *Report, path, aside string) error {
	target := filepath.Join(aside, r.Stream, filepath.Base(path))
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return fmt.Errorf("set %s aside: %w", path, err)
	}
	if err := os.Rename(path, target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("set %s aside: %w", path, err)
	}
	return errors.Join(SyncDir(filepath.Dir(path)), SyncDir(filepath.Dir(target)))
}

func truncate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Sync(), f.Close())
}

// Repair sets each damaged block aside and replaces it by one with its sound records. No sequence number is used again:
// the stream continues after last or after the newest number that it still knows. Repair returns the lost ranges, which
// Check is to accept from now on.
func Repair(r *Report, s Stream, mark Mark, last uint64, aside string) ([]Range, error) {
	var lost []Range
	for _, f := range r.Findings {
		if f.Severity == Lost && f.Missing.To > 0 {
			lost = append(lost, f.Missing)
		}
	}
	rd := newReader(s)
	for i := range r.blocks {
		if len(r.blocks[i].holes) == 0 && r.blocks[i].bad == "" {
			continue
		}
		if err := r.rewrite(rd, &r.blocks[i], aside); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(r.messages(), 0o700); err != nil {
		return nil, fmt.Errorf("make stream %s again: %w", r.Stream, err)
	}
	if err := r.closeEnd(rd, max(last, mark.Last)); err != nil {
		return nil, err
	}
	rest := *r
	rest.Findings = slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Severity != Derived })
	return lost, Tidy(&rest, true, aside)
}

// rewrite replaces a block by its sound records.
func (r *Report) rewrite(rd *reader, b *block, aside string) error {
	if b.bad != "" {
		return setAside(r, b.path, aside)
	}
	whole, _, err := load(b.path, nil)
	if err != nil {
		return err
	}
	sound := make([]byte, 0, len(whole))
	if _, err := rd.scan(b.index, whole, 0, func(rec *record) {
		sound = append(sound, whole[rec.offset:rec.offset+rec.length]...)
	}); err != nil {
		return err
	}
	if len(sound) == 0 {
		return setAside(r, b.path, aside)
	}
	// The damaged block stays in its place until the new one is complete: a repair that is interrupted must not lose
	// sound records.
	if err := copyAside(r, b.path, aside); err != nil {
		return err
	}
	if err := WriteFile(b.path, sound); err != nil {
		return fmt.Errorf("write %s again: %w", b.path, err)
	}
	return nil
}

// copyAside copies a file to the directory aside.
func copyAside(r *Report, path, aside string) error {
	target := filepath.Join(aside, r.Stream, filepath.Base(path))
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return fmt.Errorf("set %s aside: %w", path, err)
	}
	if os.Link(path, target) == nil {
		return SyncDir(filepath.Dir(target))
	}
	text, err := os.ReadFile(path) // another file system, or one without links
	if err == nil {
		err = WriteFile(target, text)
	}
	if err != nil {
		return fmt.Errorf("set %s aside: %w", path, err)
	}
	return nil
}

// closeEnd adds a block that says that the messages up to last were removed, if the stream would otherwise use their
// numbers again. The broker reads that only from a block without messages.
func (r *Report) closeEnd(rd *reader, last uint64) error {
	if r.Last >= last {
		return nil
	}
	index := 1
	if n := len(r.blocks); n > 0 {
		index = r.blocks[n-1].index + 1
	}
	text, err := rd.appendMark(index, nil, last, tombBit, time.Now().UnixNano())
	if err != nil {
		return err
	}
	if err := WriteFile(filepath.Join(r.messages(), strconv.Itoa(index)+blockEnd), text); err != nil {
		return fmt.Errorf("close the end of stream %s: %w", r.Stream, err)
	}
	return nil
}

// Streams lists the streams that have files in the broker's directory.
func Streams(dir string) ([]string, error) {
	entries, err := os.ReadDir(StreamDir(dir, ""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list streams: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
