package rulefile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/prometheus/model/rulefmt"
)

// Bounds of rule files.
const (
	maxFileBytes = 8 << 20
	maxFiles     = 1000
	maxRules     = 50_000
)

// File is a rule file as Prometheus has it.
type File struct {
	// Name is in errors, and a part of the identity of an alert.
	Name string
	Data []byte
}

// ReadFiles reads the files that match the patterns, sorted by name. A pattern without "*", "?" and "[" must match.
func ReadFiles(patterns ...string) ([]File, error) {
	var names []string
	for _, p := range patterns {
		matches, err := filepath.Glob(p)
		if err != nil {
			return nil, fmt.Errorf("rule files %q: %w", p, err)
		}
		if len(matches) == 0 && !hasMeta(p) {
			return nil, fmt.Errorf("rule file %q: %w", p, os.ErrNotExist)
		}
		names = append(names, matches...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > maxFiles {
		return nil, fmt.Errorf("there are %d rule files: the limit is %d", len(names), maxFiles)
	}
	var files []File
	for _, name := range names {
		data, err := readFile(name)
		if err != nil {
			return nil, fmt.Errorf("rule file %q: %w", name, err)
		}
		files = append(files, File{name, data})
	}
	return files, nil
}

func hasMeta(pattern string) bool {
	for _, c := range pattern {
		if c == '*' || c == '?' || c == '[' {
			return true
		}
	}
	return false
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFileBytes+1))
}

// Check reads the rules of files. It returns all errors, each with its file, and with the line if it has one.
func Check(files []File) error {
	_, err := parse(files)
	return err
}

// parse returns the groups of each file by its name.
func parse(files []File) (map[string]*rulefmt.RuleGroups, error) {
	if len(files) > maxFiles {
		return nil, fmt.Errorf("there are %d rule files: the limit is %d", len(files), maxFiles)
	}
	all := make(map[string]*rulefmt.RuleGroups, len(files))
	var errs []error
	rules := 0
	for _, f := range files {
		if _, twice := all[f.Name]; twice {
			errs = append(errs, fmt.Errorf("%s: there are two rule files of this name", f.Name))
			continue
		}
		if len(f.Data) > maxFileBytes {
			errs = append(errs, fmt.Errorf("%s: the rule file has more than %d bytes", f.Name, maxFileBytes))
			continue
		}
		groups, fileErrs := rulefmt.Parse(f.Data, false)
		for _, err := range fileErrs {
			errs = append(errs, fmt.Errorf("%s: %w", f.Name, err))
		}
		all[f.Name] = groups
		if groups != nil {
			for _, g := range groups.Groups {
				rules += len(g.Rules)
			}
		}
	}
	if rules > maxRules {
		errs = append(errs, fmt.Errorf("the rule files have %d rules: the limit is %d", rules, maxRules))
	}
	return all, errors.Join(errs...)
}
