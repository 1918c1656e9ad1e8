package collect

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
)

const (
	// maxLine bounds the part of a line that is searched.
	maxLine = 64 << 10
	// maxRead bounds what is read of a file in one run; the rest follows in the next.
	maxRead = 32 << 20
	// headSize is the size of a file's beginning that identifies it.
	headSize = 256
	// maxShown bounds how much of the last matching line is shown.
	maxShown = 200
)

// logCollector searches new lines of files for a pattern.
type logCollector struct {
	files            list
	pattern, exclude string
	begin            bool
	count            thresholds
}

func (c *logCollector) flags(fs *flag.FlagSet) {
	fs.Var(&c.files, "file", "files, or patterns such as /var/log/app/*.log")
	fs.StringVar(&c.pattern, "pattern", "", "regular expression that is looked for")
	fs.StringVar(&c.exclude, "exclude", "", "regular expression of lines that do not count")
	fs.BoolVar(&c.begin, "from-start", false, "begin with what is there, not with what comes after the first run")
	c.count.register(fs, "", "0", "", "above so many new lines that match")
}

// place is how far a file was read.
type place struct {
	Offset int64  `json:"offset"`
	Head   string `json:"head"` // a checksum of the file's first bytes
	Length int    `json:"length"`
}

func (c *logCollector) collect(ctx context.Context, r *run) error {
	if len(c.files) == 0 || c.pattern == "" {
		return errors.New("--file and --pattern are required")
	}
	pattern, err := regexp.Compile(c.pattern)
	if err != nil {
		return fmt.Errorf("--pattern: %w", err)
	}
	var exclude *regexp.Regexp
	if c.exclude != "" {
		if exclude, err = regexp.Compile(c.exclude); err != nil {
			return fmt.Errorf("--exclude: %w", err)
		}
	}
	known, err := r.places()
	if err != nil {
		return err
	}
	places := map[string]place{}
	matched, lines := 0, 0
	last := ""
	for _, glob := range c.files {
		paths, err := filepath.Glob(glob)
		if err != nil {
			return fmt.Errorf("--file %s: %w", glob, err)
		}
		if len(paths) == 0 {
			r.fail(Unknown, "%s is not there", glob)
		}
		for _, path := range paths {
			was, seen := known[path]
			place, err := readNew(ctx, path, was, seen || c.begin || known != nil, func(line []byte) {
				lines++
				if pattern.Match(line) && (exclude == nil || !exclude.Match(line)) {
					matched++
					last = string(line[:min(len(line), maxShown)])
				}
			})
			if err != nil {
				r.fail(Unknown, "%v", err)
				if seen {
					places[path] = was
				}
				continue
			}
			places[path] = place
		}
	}
	if err := r.keepPlaces(places); err != nil {
		return err
	}
	r.metric("log."+metricName(c.files[0])+".matches", float64(matched))
	text := fmt.Sprintf("%d of %d new lines match", matched, lines)
	if matched > 0 {
		text += fmt.Sprintf(", the last is %q", last)
	}
	r.judge("matches", float64(matched), "", &c.count, text)
	return nil
}

// readNew reads the complete lines after a place. A new file is read from its start; on the first run only if
// from-start is set. A file that was replaced or truncated is new.
func readNew(ctx context.Context, path string, was place, fromStart bool, each func([]byte)) (place, error) {
	f, err := os.Open(path)
	if err != nil {
		return was, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return was, err
	}
	if !info.Mode().IsRegular() {
		return was, fmt.Errorf("%s is not a regular file", path)
	}
	head := make([]byte, headSize)
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return was, err
	}
	head = head[:n]
	now := place{Offset: was.Offset, Head: checksum(head), Length: n}
	same := was.Length > 0 && was.Length <= n && checksum(head[:was.Length]) == was.Head && was.Offset <= info.Size()
	switch {
	case same:
	case fromStart:
		now.Offset = 0
	default:
		now.Offset = info.Size()
		return now, nil
	}
	if _, err := f.Seek(now.Offset, io.SeekStart); err != nil {
		return was, err
	}
	r := bufio.NewReaderSize(io.LimitReader(f, maxRead), maxLine)
	for cut := false; ctx.Err() == nil; {
		line, err := r.ReadSlice('\n')
		if err == io.EOF {
			break // an unfinished line is read in the next run
		}
		if err != nil && err != bufio.ErrBufferFull {
			return was, err
		}
		now.Offset += int64(len(line))
		if !cut {
			each(bytes.TrimRight(line, "\r\n"))
		}
		cut = err != nil // skip the rest of a line that is too long
	}
	return now, nil
}

func checksum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// stateFile is the file with a check's places; "" for none.
func (r *run) stateFile() string {
	if r.set.opts.StateDir == "" {
		return ""
	}
	return filepath.Join(r.set.opts.StateDir, "log-"+checksum([]byte(r.key))+".json")
}

// places returns how far the files were read in the check's last run; nil if it never ran.
func (r *run) places() (map[string]place, error) {
	r.set.mu.Lock()
	m, ok := r.set.places[r.key]
	r.set.mu.Unlock()
	if ok || r.stateFile() == "" {
		return m, nil
	}
	b, err := os.ReadFile(r.stateFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read how far the files were read: %w", err)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, nil // as if it had never run
	}
	return m, nil
}

func (r *run) keepPlaces(m map[string]place) error {
	r.set.mu.Lock()
	r.set.places[r.key] = m
	r.set.mu.Unlock()
	name := r.stateFile()
	if name == "" {
		return nil
	}
	b, err := json.Marshal(m)
	if err == nil {
		err = os.MkdirAll(r.set.opts.StateDir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(name+".new", b, 0o600)
	}
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		return fmt.Errorf("keep how far the files were read: %w", err)
	}
	return nil
}
