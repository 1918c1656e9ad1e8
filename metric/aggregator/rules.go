package aggregator

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/lapwing-monitoring/lapwing/internal/filewatch"
	"github.com/lapwing-monitoring/lapwing/internal/plainfile"
	"github.com/lapwing-monitoring/lapwing/internal/pyre"
)

// Bounds of a file of rules, in bytes and in rules, of a frequency in seconds, and of the name of an output in bytes.
const (
	MaxFile      = 4 << 20
	MaxRules     = 10_000
	MaxFrequency = 31 * 86400
	MaxName      = 64 << 10
)

// Rules are the rules of a file in their order. They do not change.
type Rules struct {
	rules []*rule
}

// Len returns how many rules there are.
func (r *Rules) Len() int { return len(r.rules) }

// Timeouts returns how many names were taken as not matched because a pattern took too long.
func (r *Rules) Timeouts() (n uint64) {
	for _, rule := range r.rules {
		n += rule.pattern.Timeouts()
	}
	return n
}

// ruleText is what tells a rule from others.
type ruleText struct {
	output, input string
	frequency     int64
	method        method
}

// rule is a line of a file.
type rule struct {
	ruleText
	pattern  *pyre.Regexp
	needs    pyre.Needs
	template []piece
	// dots is how many dots a name must have, at least if open is set. It is -1 if that is unknown.
	dots int
	open bool
	// retired says that the rule is in use no more. Guarded by Aggregator.mu.
	retired bool
}

// piece is a text of a template, or a group of the pattern if its number is not negative.
type piece struct {
	text  string
	group int
}

// Load reads a file. A missing one is a warning, and an empty path is no rules.
func Load(file string) (*Rules, []filewatch.Warning, error) {
	if file == "" {
		return &Rules{}, nil, nil
	}
	text, err := plainfile.Read(file, MaxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return &Rules{}, []filewatch.Warning{{File: file, Text: "the file is missing: nothing is aggregated"}}, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read aggregation rules: %w", err)
	}
	return Parse(file, strings.NewReader(string(text)))
}

// Parse reads the rules of a file, whose name is in errors and warnings. As with carbon, one bad line is an error
// of the whole file.
func Parse(file string, reader io.Reader) (*Rules, []filewatch.Warning, error) {
	text, err := io.ReadAll(io.LimitReader(reader, MaxFile+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", file, err)
	}
	if len(text) > MaxFile {
		return nil, nil, fmt.Errorf("read %s: the file has more than %d bytes", file, MaxFile)
	}
	rules := &Rules{}
	var warnings []filewatch.Warning
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if len(rules.rules) == MaxRules {
			return nil, nil, fmt.Errorf("%s:%d: there are more than %d rules", file, i+1, MaxRules)
		}
		r, err := parseRule(line)
		if err != nil {
			return nil, nil, fmt.Errorf("%s:%d: %w", file, i+1, err)
		}
		if r.template, err = parseTemplate(r.output, r.pattern.Groups()); err != nil {
			warnings = append(warnings, filewatch.Warning{File: file, Line: i + 1,
				Text: fmt.Sprintf("the rule has no outputs: %v", err)})
			continue
		}
		rules.rules = append(rules.rules, r)
	}
	return rules, warnings, nil
}

func parseRule(line string) (*rule, error) {
	left, right, found := strings.Cut(line, "=")
	l, r := strings.Fields(left), strings.Fields(right)
	if !found || len(l) != 2 || len(r) != 2 {
		return nil, fmt.Errorf("%q is not output (seconds) = method input", short(line))
	}
	n, err := strconv.ParseInt(strings.TrimRight(strings.TrimLeft(l[1], "("), ")"), 10, 64)
	if err != nil || n < 1 || n > MaxFrequency {
		return nil, fmt.Errorf("frequency %q is not (seconds) from 1 to %d", short(l[1]), MaxFrequency)
	}
	m, err := parseMethod(r[0])
	if err != nil {
		return nil, err
	}
	pattern, err := pyre.Compile(inputPattern(r[1]))
	if err != nil {
		return nil, fmt.Errorf("input %q: %w", short(r[1]), err)
	}
	parsed := &rule{ruleText: ruleText{l[0], r[1], n, m}, pattern: pattern, needs: pattern.Needs()}
	parsed.dots, parsed.open = dots(r[1])
	return parsed, nil
}

// dots returns how many dots a name needs for an input, and whether it may have more. Inputs with regular expressions
// are not known, -1, since these may match dots, or make dots optional; so does the * of a part with a field. Most
// names fail here, without the regular expression.
func dots(input string) (n int, open bool) {
	for part := range strings.SplitSeq(input, ".") {
		for _, c := range []byte(part) {
			known := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_-*<>", c) >= 0
			if !known {
				return -1, false
			}
		}
		if strings.Contains(part, "*") && strings.Contains(part, "<") {
			return -1, false
		}
	}
	return strings.Count(input, "."), strings.Contains(input, "<<")
}

// inputPattern returns the regular expression of a rule's input, as carbon makes it.
func inputPattern(input string) string {
	var parts []string
	for part := range strings.SplitSeq(input, ".") {
		open, end := strings.Index(part, "<<"), strings.Index(part, ">>")
		if open >= 0 && end >= open+2 {
			parts = append(parts, part[:open]+"(?P<"+part[open+2:end]+">.+?)"+part[end+2:])
			continue
		}
		open, end = strings.IndexByte(part, '<'), strings.IndexByte(part, '>')
		switch {
		case open >= 0 && end > open:
			part = part[:open] + "(?P<" + part[open+1:end] + ">[^.]+?)" + part[end+1:]
		case part == "*":
			part = "[^.]+"
		default:
			part = strings.ReplaceAll(part, "*", "[^.]*")
		}
		parts = append(parts, part)
	}
	// Carbon anchors only the last alternative of a|b at the end.
	return `\A(?:` + strings.Join(parts, `\.`) + `$)`
}

// parseTemplate reads a rule's output with the groups of its input.
func parseTemplate(output string, groups []string) ([]piece, error) {
	var pieces []piece
	add := func(text string) {
		if text != "" {
			pieces = append(pieces, piece{text, -1})
		}
	}
	for rest := output; rest != ""; {
		at := strings.IndexAny(rest, "<>%")
		if at < 0 {
			add(rest)
			break
		}
		add(rest[:at])
		switch rest[at] {
		case '<':
			name, after, closed := strings.Cut(rest[at+1:], ">")
			group := slices.Index(groups, name)
			if !closed || name == "" || group < 1 {
				return nil, fmt.Errorf("output %q: the input has no field <%s>", short(output), short(name))
			}
			pieces = append(pieces, piece{"", group})
			rest = after
		case '%':
			// Carbon's templates are format strings of Python.
			if !strings.HasPrefix(rest[at:], "%%") {
				return nil, fmt.Errorf("output %q: a %% must be written as %%%%", short(output))
			}
			add("%")
			rest = rest[at+2:]
		default:
			return nil, fmt.Errorf("output %q has a > without a <", short(output))
		}
	}
	return pieces, nil
}

// name returns the name of the output that a series belongs to. dots is the number of dots in the series' name.
func (r *rule) name(series string, dots int) (string, bool) {
	if dots != r.dots && (dots < r.dots || r.dots >= 0 && !r.open) || !r.needs.Possible(series) {
		return "", false
	}
	at := r.pattern.Find(series)
	if at == nil {
		return "", false
	}
	var b strings.Builder
	for _, p := range r.template {
		switch {
		case p.group < 0:
			b.WriteString(p.text)
		case at[2*p.group] < 0:
			b.WriteString("None") // the field is in an alternative that did not match
		default:
			b.WriteString(series[at[2*p.group]:at[2*p.group+1]])
		}
	}
	if b.Len() > MaxName {
		return "", false
	}
	return b.String(), true
}

// names returns the outputs that a series belongs to, each once, in the order of the rules.
func (r *Rules) names(series string) []string {
	var all []string
	dots := strings.Count(series, ".")
	for _, rule := range r.rules {
		if name, ok := rule.name(series, dots); ok && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

func short(text string) string {
	if len(text) > 80 {
		return strings.ToValidUTF8(text[:80], "") + "…"
	}
	return text
}
