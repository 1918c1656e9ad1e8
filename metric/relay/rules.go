package relay

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dlclark/regexp2/v2"

	"github.com/lapwing-monitoring/lapwing/metric/ring"
)

const (
	maxRules     = 10_000
	maxRulesLine = 64 << 10
	// matchTimeout bounds a match of a pattern that needs backtracking.
	matchTimeout = 100 * time.Millisecond
)

// Rule is a section of relay-rules.conf.
type Rule struct {
	// Name is the section's.
	Name string
	// Pattern is searched anywhere in a name, in any case. It is empty for the default rule.
	Pattern      string
	Destinations []ring.Destination
	// Continue goes on to later rules after a match.
	Continue bool
	// Default marks the rule that matches all names. It comes last, wherever it stands.
	Default bool

	match func(name string) bool
}

// ParseRules reads relay-rules.conf. As in carbon, exactly one section is the default, and a pattern may use all of
// Python's syntax; classes as \w and \d mean ASCII only, and a per cent sign needs no doubling.
func ParseRules(r io.Reader) ([]Rule, error) {
	sections, err := readINI(r)
	if err != nil {
		return nil, fmt.Errorf("relay rules: %w", err)
	}
	var rules []Rule
	for _, s := range sections {
		rule, skip, err := s.rule()
		if err != nil {
			return nil, fmt.Errorf("relay rules: section [%s], line %d: %w", s.name, s.line, err)
		}
		if !skip {
			rules = append(rules, rule)
		}
	}
	return rules, checkRules(rules)
}

func checkRules(rules []Rule) error {
	defaults := 0
	for i := range rules {
		if rules[i].Default {
			defaults++
		}
	}
	if defaults != 1 {
		return fmt.Errorf("relay rules: %d sections have default = true: exactly one must", defaults)
	}
	return nil
}

type iniSection struct {
	name string
	line int
	keys map[string]string
}

// readINI reads sections as Python's ConfigParser does: "key = value" or "key: value", keys in any case, comments at
// the start of a line, and lines that are indented continue a value.
func readINI(r io.Reader) ([]iniSection, error) {
	var sections []iniSection
	var key string
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, maxRulesLine)
	line := 0
	for scanner.Scan() {
		line++
		raw := scanner.Text()
		text := strings.TrimSpace(raw)
		if text == "" || text[0] == '#' || text[0] == ';' {
			continue
		}
		if (raw[0] == ' ' || raw[0] == '\t') && key != "" {
			sections[len(sections)-1].keys[key] += "\n" + text
			continue
		}
		if text[0] == '[' {
			end := strings.IndexByte(text, ']')
			if end < 2 {
				return nil, fmt.Errorf("line %d: %.80q is no section", line, text)
			}
			name := text[1:end]
			if slices.ContainsFunc(sections, func(s iniSection) bool { return s.name == name }) {
				return nil, fmt.Errorf("line %d: section [%s] is there twice", line, name)
			}
			if len(sections) == maxRules {
				return nil, fmt.Errorf("more than %d sections", maxRules)
			}
			sections, key = append(sections, iniSection{name: name, line: line, keys: map[string]string{}}), ""
			continue
		}
		i := strings.IndexAny(text, "=:")
		if i <= 0 || len(sections) == 0 {
			return nil, fmt.Errorf("line %d: %.80q is no section and no key of one", line, text)
		}
		keys := sections[len(sections)-1].keys
		key = strings.ToLower(strings.TrimSpace(text[:i]))
		if _, ok := keys[key]; ok {
			return nil, fmt.Errorf("line %d: %s is there twice in [%s]", line, key, sections[len(sections)-1].name)
		}
		keys[key] = strings.TrimSpace(text[i+1:])
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", line+1, err)
	}
	return sections, nil
}

func (s iniSection) rule() (rule Rule, skip bool, err error) {
	rule.Name = s.name
	text, ok := s.keys["destinations"]
	if !ok {
		return rule, false, fmt.Errorf("it has no destinations")
	}
	if rule.Destinations, err = ring.ParseDestinations(strings.ReplaceAll(text, "\n", " ")); err != nil {
		return rule, false, err
	}
	pattern, hasPattern := s.keys["pattern"]
	value, hasDefault := s.keys["default"]
	if hasPattern && hasDefault {
		return rule, false, fmt.Errorf("it has both pattern and default: use one of them")
	}
	if rule.Continue, err = boolean("continue", s.keys["continue"]); err != nil {
		return rule, false, err
	}
	if !hasPattern {
		rule.Default, err = boolean("default", value)
		return rule, !rule.Default, err
	}
	rule.Pattern = pattern
	return rule, false, rule.compile()
}

func boolean(key, text string) (bool, error) {
	switch strings.ToLower(text) {
	case "1", "yes", "true", "on":
		return true, nil
	case "0", "no", "false", "off", "":
		return false, nil
	}
	return false, fmt.Errorf("%s is %.80q: use true or false", key, text)
}

// compile sets match. Patterns that Go's engine cannot express, as look-ahead, use one that backtracks.
func (r *Rule) compile() error {
	if re, err := regexp.Compile("(?i)" + r.Pattern); err == nil {
		r.match = re.MatchString
		return nil
	}
	// The names of groups are written in another way there.
	pattern := strings.NewReplacer("(?P<", "(?<", `\\`, `\\`).Replace(r.Pattern)
	pattern = regexp.MustCompile(`\(\?P=(\w+)\)`).ReplaceAllString(pattern, `\k<$1>`)
	re, err := regexp2.Compile(pattern, regexp2.IgnoreCase)
	if err != nil {
		return fmt.Errorf("pattern %.200q: %w", r.Pattern, err)
	}
	re.MatchTimeout = matchTimeout
	r.match = func(name string) bool {
		ok, err := re.MatchString(name)
		return ok && err == nil // a match that takes too long is none
	}
	return nil
}
