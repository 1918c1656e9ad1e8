// Package rewrite renames series by carbon's rewrite-rules.conf: the rules of the section [pre] before aggregation,
// those of [post] after it.
//
// All rules of a section apply one after another, each to all its matches, with Python's regular expressions and
// replacements. The ingest path asks once per new series. Watch reads the file again when it changes.
package rewrite

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync/atomic"

	"github.com/lapwing-monitoring/lapwing/internal/filewatch"
	"github.com/lapwing-monitoring/lapwing/internal/plainfile"
	"github.com/lapwing-monitoring/lapwing/internal/pyre"
)

// Bounds of a file, in bytes and in rules of both sections, and of a name in bytes.
const (
	MaxFile  = 4 << 20
	MaxRules = 10_000
	MaxName  = 64 << 10
)

// Rules are the rules of a file.
type Rules struct {
	Pre, Post *Section
}

// Section is the rules of a section in their order. It does not change.
type Section struct {
	rules   []rule
	refused atomic.Uint64
}

type rule struct {
	pattern     *pyre.Regexp
	replacement *pyre.Template
}

// Rewrite returns the name after all rules. It is empty if the rules have removed all of it. A rule that would make a
// name longer than MaxName is left out for it.
func (s *Section) Rewrite(name string) string {
	for _, r := range s.rules {
		next, ok := r.pattern.Substitute(name, r.replacement, MaxName)
		if !ok {
			s.refused.Add(1)
		}
		name = next
	}
	return name
}

// Len returns how many rules there are.
func (s *Section) Len() int { return len(s.rules) }

// Refused returns how often a rule was left out because the name would have been too long, or its pattern took too
// long.
func (s *Section) Refused() uint64 {
	n := s.refused.Load()
	for _, r := range s.rules {
		n += r.pattern.Timeouts()
	}
	return n
}

// Load reads a file. A missing one is a warning, as with carbon, and an empty path is no rules.
func Load(file string) (*Rules, []filewatch.Warning, error) {
	if file == "" {
		return &Rules{&Section{}, &Section{}}, nil, nil
	}
	text, err := plainfile.Read(file, MaxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return &Rules{&Section{}, &Section{}},
			[]filewatch.Warning{{File: file, Text: "the file is missing: no name is rewritten"}}, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read rewrite rules: %w", err)
	}
	return Parse(file, strings.NewReader(string(text)))
}

// Parse reads the rules of a file, whose name is in errors and warnings. A line that carbon skips is a warning; so
// is a replacement with which carbon fails later.
func Parse(file string, reader io.Reader) (*Rules, []filewatch.Warning, error) {
	text, err := io.ReadAll(io.LimitReader(reader, MaxFile+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", file, err)
	}
	if len(text) > MaxFile {
		return nil, nil, fmt.Errorf("read %s: the file has more than %d bytes", file, MaxFile)
	}
	rules := &Rules{&Section{}, &Section{}}
	var warnings []filewatch.Warning
	var section *Section
	for i, line := range strings.Split(string(text), "\n") {
		warn := func(format string, args ...any) {
			warnings = append(warnings, filewatch.Warning{File: file, Line: i + 1, Text: fmt.Sprintf(format, args...)})
		}
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if line[0] == '[' && line[len(line)-1] == ']' {
			switch name := strings.ToLower(line[1 : len(line)-1]); name {
			case "pre":
				section = rules.Pre
			case "post":
				section = rules.Post
			default:
				section = nil
				warn("there is no section %q: its rules are skipped", name)
				continue
			}
			if len(section.rules) > 0 {
				warn("the section begins again: its %d rules above are forgotten", len(section.rules))
				section.rules = nil
			}
			continue
		}
		pattern, replacement, found := strings.Cut(line, "=")
		switch {
		case !found:
			warn("the line is neither a section nor regex = replacement")
			continue
		case section == nil:
			warn("the rule stands in neither [pre] nor [post] and is skipped")
			continue
		}
		r := rule{}
		if r.pattern, err = pyre.Compile(strings.TrimSpace(pattern)); err == nil {
			r.replacement, err = r.pattern.Template(strings.TrimSpace(replacement))
		}
		if err != nil {
			warn("the rule is skipped: %v", err)
			continue
		}
		if len(rules.Pre.rules)+len(rules.Post.rules) == MaxRules {
			return nil, nil, fmt.Errorf("%s:%d: there are more than %d rules", file, i+1, MaxRules)
		}
		section.rules = append(section.rules, r)
	}
	return rules, warnings, nil
}
