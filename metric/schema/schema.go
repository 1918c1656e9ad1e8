// Package schema decides how a series is stored: its archives from storage-schemas.conf, and the aggregation method and
// xFilesFactor from storage-aggregation.conf. Both files are read as carbon reads them, so those of an existing
// Graphite work unchanged.
//
// In each file the first section whose pattern is found in the name counts. A name without a section gets what carbon
// gives it: a value a minute for 7 days, average and 0.5. The store asks once per new series. Watch reads the files
// again when they change.
package schema

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lapwing-monitoring/lapwing/internal/filewatch"
	"github.com/lapwing-monitoring/lapwing/internal/inifile"
	"github.com/lapwing-monitoring/lapwing/internal/plainfile"
	"github.com/lapwing-monitoring/lapwing/internal/pyre"
	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// MaxFile bounds a file, in bytes.
const MaxFile = 4 << 20

// DefaultRule is the name that Match returns for a name that no section of storage-schemas.conf matches.
const DefaultRule = "default"

// DefaultXFilesFactor is the xFilesFactor where storage-aggregation.conf has none.
const DefaultXFilesFactor = 0.5

// maxSeconds bounds a step and a retention: whisper has 32 bits for each.
const maxSeconds = math.MaxUint32

// Schemas are the sections of both files. They do not change.
type Schemas struct {
	storage     []storageRule
	aggregation []aggregationRule
	noMatch     []series.Archive // of names without a section: carbon's own
}

type storageRule struct {
	name     string
	pattern  *pyre.Regexp
	archives []series.Archive
}

type aggregationRule struct {
	name    string
	pattern *pyre.Regexp
	method  series.Method
	xff     float64
}

// builtinStorage are the schemas of a server without storage-schemas.conf. A value each 10 s is what most collectors
// send at the finest; a day of it is 8,640 values, and a year of 10 minutes 52,560.
const builtinStorage = `
[carbon]
pattern = ^carbon\.
retentions = 60:90d
[default]
pattern = .*
retentions = 10s:1d,1m:30d,10m:1y
`

// builtinAggregation are the rules of a server without storage-aggregation.conf: those that Graphite's documents
// recommend, so that rates and counts survive the roll-up.
const builtinAggregation = `
[min]
pattern = \.min$
xFilesFactor = 0.1
aggregationMethod = min
[max]
pattern = \.max$
xFilesFactor = 0.1
aggregationMethod = max
[sum]
pattern = \.count$
xFilesFactor = 0
aggregationMethod = sum
[default_average]
pattern = .*
xFilesFactor = 0.5
aggregationMethod = average
`

// Source is a file to parse. Name is in errors and warnings. A nil Reader is a file without sections.
type Source struct {
	Name   string
	Reader io.Reader
}

// Load reads both files. An empty path stands for the built-in file. storage-schemas.conf must be there if
// it is named; a missing storage-aggregation.conf is a warning, as with carbon.
func Load(schemasFile, aggregationFile string) (*Schemas, []filewatch.Warning, error) {
	storage := Source{"built-in storage-schemas.conf", strings.NewReader(builtinStorage)}
	aggregation := Source{"built-in storage-aggregation.conf", strings.NewReader(builtinAggregation)}
	var missing []filewatch.Warning
	if schemasFile != "" {
		text, err := plainfile.Read(schemasFile, MaxFile)
		if err != nil {
			return nil, nil, fmt.Errorf("read storage schemas: %w", err)
		}
		storage = Source{schemasFile, strings.NewReader(string(text))}
	}
	if aggregationFile != "" {
		text, err := plainfile.Read(aggregationFile, MaxFile)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, filewatch.Warning{File: aggregationFile,
				Text: "the file is missing: all names are aggregated with average"})
			aggregation = Source{Name: aggregationFile}
		case err != nil:
			return nil, nil, fmt.Errorf("read storage aggregation: %w", err)
		default:
			aggregation = Source{aggregationFile, strings.NewReader(string(text))}
		}
	}
	s, warnings, err := Parse(storage, aggregation)
	return s, append(missing, warnings...), err
}

// Parse reads both files. What carbon skips is a warning, and what ends carbon is an error.
func Parse(storage, aggregation Source) (*Schemas, []filewatch.Warning, error) {
	s := &Schemas{noMatch: []series.Archive{{Step: 60, Points: 10080}}}
	p := parser{}
	if err := p.sections(storage, []string{"pattern", "retentions"}, func(c *section) error {
		return p.storage(s, c)
	}); err != nil {
		return nil, nil, err
	}
	if err := p.sections(aggregation, []string{"pattern", "xfilesfactor", "aggregationmethod"}, func(c *section) error {
		return p.aggregation(s, c)
	}); err != nil {
		return nil, nil, err
	}
	return s, p.warnings, nil
}

// parser collects warnings.
type parser struct {
	warnings []filewatch.Warning
}

// section is a section of a file.
type section struct {
	*inifile.Section
	file string
}

// fail returns an error about a key of c.
func (c *section) fail(key string, err error) error {
	line := c.Line
	if v, ok := c.Get(key); ok {
		line = v.Line
	}
	return fmt.Errorf("%s:%d: section [%s]: %s: %w", c.file, line, c.Name, key, err)
}

func (p *parser) warn(c *section, line int, format string, args ...any) {
	p.warnings = append(p.warnings, filewatch.Warning{File: c.file, Line: line, Section: c.Name,
		Text: fmt.Sprintf(format, args...)})
}

// sections calls f for each section of a file, and warns about keys other than known.
func (p *parser) sections(source Source, known []string, f func(*section) error) error {
	if source.Reader == nil {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(source.Reader, MaxFile+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", source.Name, err)
	}
	if len(text) > MaxFile {
		return fmt.Errorf("read %s: the file has more than %d bytes", source.Name, MaxFile)
	}
	found, err := inifile.Parse(string(text))
	if err != nil {
		return fmt.Errorf("parse %s: %w", source.Name, err)
	}
	for i := range found {
		c := &section{&found[i], source.Name}
		if err := f(c); err != nil {
			return err
		}
		for _, key := range c.Keys() {
			if !slices.Contains(known, key) {
				v, _ := c.Get(key)
				p.warn(c, v.Line, "the key %q is ignored", key)
			}
		}
	}
	return nil
}

// pattern returns a section's pattern, and nil with a warning if it has none.
func (p *parser) pattern(c *section) (*pyre.Regexp, error) {
	v, _ := c.Get("pattern")
	if v.Text == "" {
		p.warn(c, c.Line, "the section has no pattern and is skipped")
		return nil, nil
	}
	re, err := pyre.Compile(v.Text)
	if err != nil {
		return nil, c.fail("pattern", err)
	}
	return re, nil
}

func (p *parser) storage(s *Schemas, c *section) error {
	retentions, ok := c.Get("retentions")
	if !ok {
		p.warn(c, c.Line, "the section has no retentions and is skipped")
		return nil
	}
	archives, err := ParseRetentions(retentions.Text)
	if err != nil {
		return c.fail("retentions", err)
	}
	re, err := p.pattern(c)
	if re == nil {
		return err
	}
	if err := CheckArchives(archives); err != nil {
		p.warn(c, retentions.Line, "the section is skipped: %v", err)
		return nil
	}
	s.storage = append(s.storage, storageRule{c.Name, re, archives})
	return nil
}

func (p *parser) aggregation(s *Schemas, c *section) error {
	rule := aggregationRule{name: c.Name, method: series.Average, xff: DefaultXFilesFactor}
	if v, ok := c.Get("xfilesfactor"); ok {
		xff, err := strconv.ParseFloat(v.Text, 64)
		if err != nil {
			p.warn(c, v.Line, "xFilesFactor %q is no number, and the section is skipped", v.Text)
			return nil
		}
		if !(xff >= 0 && xff <= 1) {
			return c.fail("xfilesfactor", fmt.Errorf("%s is not from 0 to 1", v.Text))
		}
		rule.xff = xff
	}
	if v, ok := c.Get("aggregationmethod"); ok {
		method, err := series.ParseMethod(v.Text)
		if err != nil {
			return c.fail("aggregationmethod", err)
		}
		rule.method = method
	}
	var err error
	if rule.pattern, err = p.pattern(c); rule.pattern == nil {
		return err
	}
	s.aggregation = append(s.aggregation, rule)
	return nil
}

// Match returns what applies to a series: its archives by rising step, which the caller must not change, its method and
// xFilesFactor, and the name of the section of storage-schemas.conf or DefaultRule.
func (s *Schemas) Match(name string) (archives []series.Archive, method series.Method, xff float64, rule string) {
	archives, method, xff, rule = s.noMatch, series.Average, DefaultXFilesFactor, DefaultRule
	for i := range s.storage {
		if r := &s.storage[i]; r.pattern.Search(name) {
			archives, rule = r.archives, r.name
			break
		}
	}
	for i := range s.aggregation {
		if r := &s.aggregation[i]; r.pattern.Search(name) {
			method, xff = r.method, r.xff
			break
		}
	}
	return archives, method, xff, rule
}

// Timeouts returns how many names were taken as not matched because a pattern took too long.
func (s *Schemas) Timeouts() (n uint64) {
	for _, r := range s.storage {
		n += r.pattern.Timeouts()
	}
	for _, r := range s.aggregation {
		n += r.pattern.Timeouts()
	}
	return n
}
