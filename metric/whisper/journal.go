package whisper

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// journal lists the files that an import has finished, one line each. A file that has changed since counts as another
// one. The last line may be cut off by a kill: it is removed at the next start.
type journal struct {
	f    *os.File // nil for none
	done map[fingerprint]struct{}
	buf  []byte
}

// entry is a line of the journal.
type entry struct {
	Path    string // from the directory that is imported
	Size    int64
	ModTime int64 // nanoseconds
}

// appendTo appends the entry's line. The path is quoted, because file names can have any bytes.
func (e entry) appendTo(b []byte) []byte {
	return fmt.Appendf(b, "%d %d %q\n", e.Size, e.ModTime, e.Path)
}

func parseEntry(line string) (e entry, ok bool) {
	size, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	modTime, quoted, _ := strings.Cut(rest, " ")
	var errs [3]error
	e.Size, errs[0] = strconv.ParseInt(size, 10, 64)
	e.ModTime, errs[1] = strconv.ParseInt(modTime, 10, 64)
	e.Path, errs[2] = strconv.Unquote(quoted)
	return e, errors.Join(errs[:]...) == nil
}

// fingerprint stands for an entry, because there may be millions.
type fingerprint [16]byte

func (e entry) fingerprint() fingerprint {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %s", e.Size, e.ModTime, e.Path))
	return fingerprint(sum[:16])
}

// maxLine bounds a line of the journal. Paths have at most 4 KiB, and a quoted byte has up to ten.
const maxLine = 64 << 10

func openJournal(path string) (_ *journal, err error) {
	j := &journal{done: map[fingerprint]struct{}{}}
	if path == "" {
		return j, nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("open journal of import %s: %w", path, err)
			if j.f != nil {
				err = errors.Join(err, j.f.Close())
			}
		}
	}()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if j.f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(j.f, maxLine)
	var good int64
	for {
		line, err := r.ReadSlice('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		e, ok := parseEntry(string(line))
		if !ok {
			return nil, fmt.Errorf("line %q is not one of a journal", bytes.TrimSpace(line[:min(len(line), 100)]))
		}
		j.done[e.fingerprint()] = struct{}{}
		good += int64(len(line))
	}
	if err := j.f.Truncate(good); err != nil {
		return nil, err
	}
	if _, err := j.f.Seek(good, io.SeekStart); err != nil {
		return nil, err
	}
	return j, nil
}

func (j *journal) has(e entry) bool {
	_, ok := j.done[e.fingerprint()]
	return ok
}

// add notes a finished file; save writes what was noted.
func (j *journal) add(e entry) {
	if j.f != nil {
		j.buf = e.appendTo(j.buf)
	}
}

func (j *journal) save() error {
	if j.f == nil || len(j.buf) == 0 {
		return nil
	}
	_, err := j.f.Write(j.buf)
	if err == nil {
		err = j.f.Sync()
	}
	if err != nil {
		return fmt.Errorf("write the journal of the import: %w", err)
	}
	j.buf = j.buf[:0]
	return nil
}

func (j *journal) close() error {
	if j.f == nil {
		return nil
	}
	return j.f.Close()
}
