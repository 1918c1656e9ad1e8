package selector

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// FuzzParse searches for texts that crash the parser or the matcher, and for selectors whose meaning changes when they
// are written with all parentheses and quotes.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		``, `a == b`, `linux in check.subscriptions`, `region == 'us-west-1' && tier != "dev"`, `check.status notin ["0", 1]`,
		`!(a =~ "^x" || b !~ y) && c matches 'z'`, `check.last_ok > 2h30m`, `check.last_ok < now-1d`, `built >= 2026-11-21T10:00:00Z`,
		`cpus <= 1e3`, `"a \" b\\" == '\''`, `a in []`, `((a == b))`, `a == b &&`, `a in [b`, `é == "ü"`, `!!a == b`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		sel, err := parse(s, false)
		if err != nil || sel == nil {
			return
		}
		text := written(sel, sel.root)
		again, err := parse(text, false)
		if err != nil {
			if strings.Contains(err.Error(), "within each other") || strings.Contains(err.Error(), "longer") {
				return // the written form has more parentheses
			}
			t.Fatalf("%q was written as %q: %v", s, text, err)
		}
		if second := written(again, again.root); second != text {
			t.Fatalf("%q was written as %q and then as %q", s, text, second)
		}
		if a, b := sel.MatchAt(sample, testNow), again.MatchAt(sample, testNow); a != b {
			t.Fatalf("%q: %v; %q: %v", s, a, text, b)
		}
	})
}

// written returns a selector as text.
func written(s *Selector, n *node) string {
	var kids []string
	for _, kid := range n.kids {
		kids = append(kids, written(s, kid))
	}
	switch n.op {
	case opAnd:
		return "(" + strings.Join(kids, " && ") + ")"
	case opOr:
		return "(" + strings.Join(kids, " || ") + ")"
	case opNot:
		return "!" + kids[0]
	}
	t := s.terms[n.term]
	literals := make([]string, len(t.literals))
	for i, l := range t.literals {
		literals[i] = quoted(l.text)
	}
	op := map[operator]string{opMatches: "matches", opLess: "<", opLessEqual: "<=", opGreater: ">", opGreaterEqual: ">="}[t.op]
	switch {
	case t.op == opContains:
		return fmt.Sprintf("%s %s %s", literals[0], map[bool]string{false: "in", true: "notin"}[t.negated], quoted(t.Name))
	case t.op == opEquals:
		return fmt.Sprintf("%s %s [%s]", quoted(t.Name), map[bool]string{false: "in", true: "notin"}[t.negated], strings.Join(literals, ","))
	case t.op == opRegex:
		op = map[bool]string{false: "=~", true: "!~"}[t.negated]
	}
	return fmt.Sprintf("%s %s %s", quoted(t.Name), op, literals[0])
}

var special = regexp.MustCompile(`[\\"]`)

func quoted(s string) string { return `"` + special.ReplaceAllString(s, `\$0`) + `"` }
