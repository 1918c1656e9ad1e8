// Package allow decides by carbon's whitelist.conf and blacklist.conf which series are accepted.
//
// Each file has one regular expression of Python a line. A name in which one of the blacklist is found is refused; then
// a name is accepted if one of the whitelist is found in it, or if the whitelist is empty or missing. The ingest path
// asks once per new series. Watch reads the files again when they change.
package allow

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/lapwing-monitoring/lapwing/internal/filewatch"
	"github.com/lapwing-monitoring/lapwing/internal/plainfile"
	"github.com/lapwing-monitoring/lapwing/internal/pyre"
)

// Bounds of a file, in bytes and in patterns.
const (
	MaxFile     = 4 << 20
	MaxPatterns = 10_000
)

// Verdict is what the lists say about a name.
type Verdict uint8

// The verdicts.
const (
	Allowed        Verdict = iota
	Blacklisted            // a pattern of the blacklist is found in the name
	NotWhitelisted         // there is a whitelist, and none of its patterns is found in the name
)

// String returns a verdict as it stands in the label of a metric.
func (v Verdict) String() string {
	switch v {
	case Blacklisted:
		return "blacklist"
	case NotWhitelisted:
		return "whitelist"
	}
	return "allowed"
}

// List is the patterns of a file. The nil List is empty.
type List struct {
	patterns []*pyre.Regexp
}

// Has tells whether a pattern is found in name.
func (l *List) Has(name string) bool {
	if l == nil {
		return false
	}
	for _, p := range l.patterns {
		if p.Search(name) {
			return true
		}
	}
	return false
}

// Len returns how many patterns there are.
func (l *List) Len() int {
	if l == nil {
		return 0
	}
	return len(l.patterns)
}

// Timeouts returns how often a name was taken as not found because a pattern took too long.
func (l *List) Timeouts() (n uint64) {
	if l == nil {
		return 0
	}
	for _, p := range l.patterns {
		n += p.Timeouts()
	}
	return n
}

// Lists are both lists. They do not change.
type Lists struct {
	White, Black *List
}

// Check returns what the lists say about a name.
func (l *Lists) Check(name string) Verdict {
	switch {
	case l.Black.Has(name):
		return Blacklisted
	case l.White.Len() > 0 && !l.White.Has(name):
		return NotWhitelisted
	}
	return Allowed
}

// Load reads both files. An empty path or a missing file is an empty list; the latter is a warning.
func Load(whitelist, blacklist string) (*Lists, []filewatch.Warning, error) {
	lists := &Lists{}
	var warnings []filewatch.Warning
	for _, f := range []struct {
		file string
		list **List
	}{{whitelist, &lists.White}, {blacklist, &lists.Black}} {
		if f.file == "" {
			continue
		}
		text, err := plainfile.Read(f.file, MaxFile)
		if errors.Is(err, fs.ErrNotExist) {
			warnings = append(warnings, filewatch.Warning{File: f.file, Text: "the file is missing: the list is empty"})
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read a list of names: %w", err)
		}
		list, found, err := Parse(f.file, strings.NewReader(string(text)))
		if err != nil {
			return nil, nil, err
		}
		*f.list = list
		warnings = append(warnings, found...)
	}
	return lists, warnings, nil
}

// Parse reads the patterns of a file, whose name is in errors and warnings. A bad pattern is skipped with a
// warning.
func Parse(file string, reader io.Reader) (*List, []filewatch.Warning, error) {
	text, err := io.ReadAll(io.LimitReader(reader, MaxFile+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", file, err)
	}
	if len(text) > MaxFile {
		return nil, nil, fmt.Errorf("read %s: the file has more than %d bytes", file, MaxFile)
	}
	list := &List{}
	var warnings []filewatch.Warning
	for i, line := range strings.Split(string(text), "\n") {
		// As with carbon, a "#" behind blanks begins a pattern.
		pattern := strings.TrimSpace(line)
		if pattern == "" || line[0] == '#' {
			continue
		}
		re, err := pyre.Compile(pattern)
		if err != nil {
			warnings = append(warnings, filewatch.Warning{File: file, Line: i + 1,
				Text: fmt.Sprintf("the line is skipped: %v", err)})
			continue
		}
		if len(list.patterns) == MaxPatterns {
			return nil, nil, fmt.Errorf("%s:%d: there are more than %d patterns", file, i+1, MaxPatterns)
		}
		list.patterns = append(list.patterns, re)
	}
	return list, warnings, nil
}
