// Package pyre compiles regular expressions that were written for Python's re module, as Graphite's rule files have
// them.
//
// Go's regexp runs nearly all of them, in linear time. The few that it refuses (look-around, references back to a
// group) run in a backtracking engine with a time limit; a match that takes longer counts as no match, and is counted
// in Timeouts. The classes \d, \w, \s and the boundary \b are ASCII, patterns that only Go's regexp knows (\pL, \z) are
// accepted as well, and what a group in a repetition of a repetition, as (a*)*, has in the end may differ. A Regexp may
// be used by several goroutines.
package pyre

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// MaxPattern bounds a pattern, in bytes.
const MaxPattern = 64 << 10

// matchTime bounds one match in the backtracking engine. Its clock is exact to about 100 ms.
const matchTime = 100 * time.Millisecond

// Regexp is a compiled pattern.
type Regexp struct {
	pattern string
	fast    *regexp.Regexp  // nil if Go's regexp refused the pattern
	slow    *regexp2.Regexp // set if fast is nil, or if a match may be empty; see matches
	groups  []string        // names by number; groups[0] is the whole match
	needs   Needs
	// again finds the matches that are not empty, or that begin behind the start of the search; see matches. It is nil if
	// slow is.
	again    *regexp2.Regexp
	timeouts atomic.Uint64
}

// Compile compiles a pattern of Python.
func Compile(pattern string) (*Regexp, error) {
	if len(pattern) > MaxPattern {
		return nil, fmt.Errorf("the pattern has %d bytes, at most %d are allowed", len(pattern), MaxPattern)
	}
	if !utf8.ValidString(pattern) {
		return nil, errors.New("the pattern is not UTF-8")
	}
	translated := translate(pattern)
	if name := twice(translated); name != "" {
		return nil, fmt.Errorf("compile %q: two groups have the name %q", pattern, name)
	}
	r := &Regexp{pattern: pattern}
	fast, err := regexp.Compile(translated)
	if err == nil {
		r.fast, r.groups = fast, fast.SubexpNames()
		tree, treeErr := syntax.Parse(translated, syntax.Perl)
		if treeErr != nil {
			return nil, fmt.Errorf("compile %q: %w", pattern, treeErr)
		}
		r.needs = needs(tree)
		if shortest(tree) > 0 || tree.Op == syntax.OpConcat && tree.Sub[0].Op == syntax.OpBeginText {
			return r, nil
		}
	}
	slow, slowErr := compileSlow(translated)
	if slowErr != nil {
		if err != nil {
			return nil, fmt.Errorf("compile %q: %w", pattern, err)
		}
		return r, nil // only Substitute differs, for a pattern that Python has not
	}
	r.slow = slow
	if err != nil {
		r.groups = make([]string, 0, 8)
		for _, n := range slow.GetGroupNumbers() {
			name := slow.GroupNameFromNumber(n)
			if name == fmt.Sprint(n) {
				name = ""
			}
			r.groups = append(r.groups, name)
		}
	}
	// (?!\G) fails where the search began, so an empty match there does not count.
	if r.again, slowErr = compileSlow("(?:" + translated + `)(?!\G)`); slowErr != nil {
		// A comment of (?x) lasts to the end of the line.
		r.again, slowErr = compileSlow("(?:" + translated + "\n" + `)(?!\G)`)
	}
	if slowErr != nil {
		return nil, fmt.Errorf("compile %q: %w", pattern, slowErr)
	}
	return r, nil
}

func compileSlow(pattern string) (*regexp2.Regexp, error) {
	re, err := regexp2.Compile(pattern, regexp2.RE2, regexp2.OptionMaintainCaptureOrder())
	if err != nil {
		return nil, err
	}
	re.MatchTimeout = matchTime
	return re, nil
}

// String returns the pattern as it was given to Compile.
func (r *Regexp) String() string { return r.pattern }

// Fast tells whether the pattern runs in linear time.
func (r *Regexp) Fast() bool { return r.fast != nil }

// Groups returns the names of the groups by number, "" for those without. The first is the whole match.
func (r *Regexp) Groups() []string { return r.groups }

// Timeouts returns how many matches were given up.
func (r *Regexp) Timeouts() uint64 { return r.timeouts.Load() }

// Needs are what a text must have so that a pattern can be found in it. Empty ones say nothing.
type Needs struct {
	Prefix, Suffix string // of the whole text, for patterns that are anchored
	Inner          string // anywhere
}

// Possible tells in a few nanoseconds whether a pattern could be found in text; nearly all texts that it refuses would
// be refused by the pattern at a hundred times the cost.
func (n *Needs) Possible(text string) bool {
	return len(text) >= len(n.Prefix)+len(n.Suffix) &&
		strings.HasPrefix(text, n.Prefix) && strings.HasSuffix(text, n.Suffix) &&
		(n.Inner == "" || strings.Contains(text, n.Inner))
}

// Needs returns what a text must have.
func (r *Regexp) Needs() Needs { return r.needs }

// needs reads the texts that a match has from a pattern's tree.
func needs(tree *syntax.Regexp) Needs {
	parts := flatten(tree, nil)
	var n Needs
	literal := func(re *syntax.Regexp) (string, bool) {
		// The engine finds U+FFFD also where the text is not UTF-8.
		return string(re.Rune), re.Op == syntax.OpLiteral && re.Flags&syntax.FoldCase == 0 &&
			!slices.Contains(re.Rune, utf8.RuneError)
	}
	if len(parts) > 0 && parts[0].Op == syntax.OpBeginText {
		parts = parts[1:]
		for len(parts) > 0 {
			text, ok := literal(parts[0])
			if !ok {
				break
			}
			n.Prefix += text
			parts = parts[1:]
		}
	}
	if last := len(parts) - 1; last >= 0 && parts[last].Op == syntax.OpEndText {
		parts = parts[:last]
		for len(parts) > 0 {
			text, ok := literal(parts[len(parts)-1])
			if !ok {
				break
			}
			n.Suffix = text + n.Suffix
			parts = parts[:len(parts)-1]
		}
	}
	run := ""
	for _, p := range parts {
		if text, ok := literal(p); ok {
			run += text
		} else {
			run = ""
		}
		if len(run) > len(n.Inner) {
			n.Inner = run
		}
	}
	return n
}

// flatten appends the parts of a concatenation, also of those in groups.
func flatten(re *syntax.Regexp, to []*syntax.Regexp) []*syntax.Regexp {
	if re.Op != syntax.OpConcat && re.Op != syntax.OpCapture {
		return append(to, re)
	}
	for _, s := range re.Sub {
		to = flatten(s, to)
	}
	return to
}

// Search tells whether the pattern matches anywhere in text.
func (r *Regexp) Search(text string) bool {
	if r.fast != nil {
		return r.fast.MatchString(text)
	}
	found, err := r.slow.MatchString(text)
	if err != nil {
		r.timeouts.Add(1)
	}
	return found && err == nil
}

// Find returns the first match: the begin and end of each group in text, in bytes, two numbers a group and -1 for a
// group that took no part. It returns nil if there is none.
func (r *Regexp) Find(text string) []int {
	if r.fast != nil {
		return r.fast.FindStringSubmatchIndex(text)
	}
	m, err := r.slow.FindStringMatch(text)
	if err != nil {
		r.timeouts.Add(1)
		return nil
	}
	if m == nil {
		return nil
	}
	return places(m, offsets(text))
}

// matches returns all matches in text as Python's re.sub finds them: an empty match counts also directly behind another
// match, and behind an empty match the search goes on at the same place for one that is not empty.
func (r *Regexp) matches(text string) [][]int {
	if r.again == nil || r.fast != nil && !r.fast.MatchString(text) {
		return r.fast.FindAllStringSubmatchIndex(text, -1)
	}
	var found [][]int
	runes := []rune(text)
	begins := offsets(text)
	re := r.slow
	deadline := time.Now().Add(matchTime)
	for at := 0; at <= len(runes); {
		m, err := re.FindRunesMatchStartingAt(runes, at)
		if err != nil || time.Now().After(deadline) {
			r.timeouts.Add(1)
			return nil
		}
		if m == nil {
			return found
		}
		found = append(found, places(m, begins))
		at = m.RuneIndex + m.RuneLength
		re = r.slow
		if m.RuneLength == 0 {
			re = r.again
		}
	}
	return found
}

// twice returns the name of a group that there is twice, which both engines would take.
func twice(pattern string) string {
	seen := map[string]bool{}
	for _, after := range strings.Split(pattern, "(?P<")[1:] {
		name, _, closed := strings.Cut(after, ">")
		if closed && seen[name] {
			return name
		}
		seen[name] = true
	}
	return ""
}

// offsets returns the byte where each character of text begins, and its length.
func offsets(text string) []int {
	begins := make([]int, 0, len(text)+1)
	for i := range text {
		begins = append(begins, i)
	}
	return append(begins, len(text))
}

// places returns the groups of m in bytes.
func places(m *regexp2.Match, begins []int) []int {
	groups := m.Groups()
	at := make([]int, 0, 2*len(groups))
	for i := range groups {
		g := &groups[i]
		if len(g.Captures) == 0 {
			at = append(at, -1, -1)
			continue
		}
		at = append(at, begins[g.RuneIndex], begins[g.RuneIndex+g.RuneLength])
	}
	return at
}

// shortest returns the least number of characters that a match has.
func shortest(re *syntax.Regexp) int {
	const most = 1 << 16 // enough to know that it is not 0
	sum := func() (n int) {
		for _, s := range re.Sub {
			n = min(n+shortest(s), most)
		}
		return n
	}
	switch re.Op {
	case syntax.OpNoMatch:
		return most
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 1
	case syntax.OpCapture, syntax.OpPlus, syntax.OpConcat:
		return sum()
	case syntax.OpRepeat:
		return min(re.Min*sum(), most)
	case syntax.OpAlternate:
		least := most
		for _, s := range re.Sub {
			least = min(least, shortest(s))
		}
		return least
	}
	return 0
}

// translate rewrites what Python and Go's regexp read differently: \Z is the end, {,n} is a repetition, [ has no
// meaning inside of a class, and (?P=name) refers to a group.
func translate(pattern string) string {
	var b strings.Builder
	class := false // inside of [ ]
	for i := 0; i < len(pattern); i++ {
		rest := pattern[i:]
		switch c := pattern[i]; {
		case c == '\\' && len(rest) > 1:
			i++
			if rest[1] == 'Z' && !class {
				b.WriteString(`\z`)
			} else {
				b.WriteString(rest[:2])
			}
		case class && c == '[':
			b.WriteString(`\[`)
		case class && c == ']':
			class = false
			b.WriteByte(c)
		case class:
			b.WriteByte(c)
		case c == '[':
			class = true
			b.WriteByte(c)
			// A ] at the begin is a character.
			if strings.HasPrefix(pattern[i+1:], "^") {
				b.WriteByte('^')
				i++
			}
			if strings.HasPrefix(pattern[i+1:], "]") {
				b.WriteString(`\]`)
				i++
			}
		case strings.HasPrefix(rest, "{,"):
			end := 2
			for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
				end++
			}
			if end < len(rest) && rest[end] == '}' {
				b.WriteString("{0," + rest[2:end] + "}")
				i += end
			} else {
				b.WriteByte(c)
			}
		case strings.HasPrefix(rest, "(?P="):
			name, _, closed := strings.Cut(rest[4:], ")")
			if closed {
				b.WriteString(`\k<` + name + ">")
				i += 4 + len(name)
			} else {
				b.WriteByte(c)
			}
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
