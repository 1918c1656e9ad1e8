package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestParseRules(t *testing.T) {
	rules, err := ParseRules(strings.NewReader(`
# comment
[default]
default = true
destinations = h:1

; comment
[collectd]
Pattern: ^collectd\.
DESTINATIONS = h:1,
   [::1]:2:b
continue = yes

[off]
default = false
destinations = h:9

[py]
pattern = ^(?!test)(?P<host>\w+)\.(?P=host)$
destinations = h:3
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rules {
		got = append(got, fmt.Sprintf("%s %q %v %t %t", r.Name, r.Pattern, r.Destinations, r.Continue, r.Default))
	}
	want := []string{
		`default "" [h:1] false true`,
		`collectd "^collectd\\." [h:1 [::1]:2:b] true false`,
		`py "^(?!test)(?P<host>\\w+)\\.(?P=host)$" [h:3] false false`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for name, match := range map[string]bool{"web.web": true, "WEB.web": true, "web.db": false, "test.test": false} {
		if rules[2].match(name) != match {
			t.Errorf("%s: want %t", name, match)
		}
	}
}

func TestParseRulesRefuses(t *testing.T) {
	const end = "\n[d]\ndefault = true\ndestinations = h:1\n"
	for _, tc := range []struct{ text, want string }{
		{"", "exactly one"},
		{"[a]\npattern = x\ndestinations = h:1", "exactly one"},
		{"[e]\ndefault = true\ndestinations = h:1" + end, "2 sections"},
		{"[a]\npattern = x\ndefault = true\ndestinations = h:1" + end, "both pattern and default"},
		{"[a]\npattern = x" + end, "no destinations"},
		{"[a]\npattern = (\ndestinations = h:1" + end, "section [a], line 1: pattern"},
		{"[a]\npattern = x\ncontinue = maybe\ndestinations = h:1" + end, "continue"},
		{"[a]\npattern = x\ndestinations = h" + end, "host:port"},
		{"[a]\npattern = x\npattern = y\ndestinations = h:1" + end, "twice"},
		{"[d]\npattern = x\ndestinations = h:1" + end, "twice"},
		{"pattern = x" + end, "line 1"},
		{"[a]\nx\ndestinations = h:1" + end, "line 2"},
		{"[]" + end, "no section"},
		{"[a\n" + end, "no section"},
		{"[a]\npattern = " + strings.Repeat("x", maxRulesLine), "line 2"},
		{strings.Repeat("x", 3), "line 1"},
	} {
		if _, err := ParseRules(strings.NewReader(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%.60q: got %v, want %q", tc.text, err, tc.want)
		}
	}
}

// TestPatternIsBounded: a pattern that backtracks for ever does not match, after a moment.
func TestPatternIsBounded(t *testing.T) {
	rule := Rule{Pattern: `^(?=(a+)+$)b`}
	rule.Pattern = `^(?!x)(a+)+$`
	if err := rule.compile(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if rule.match(strings.Repeat("a", 60) + "b") {
		t.Error("it matches")
	}
	if d := time.Since(begin); d > time.Minute {
		t.Errorf("a match took %v", d)
	}
}

func FuzzParseRules(f *testing.F) {
	f.Add("[a]\npattern = x\ndestinations = h:1\ncontinue = 1\n[d]\ndefault: true\ndestinations = [::1]:2:a,\n  h:3\n")
	f.Add("[a]\n pattern")
	f.Add(" x\n[a]\n=\n")
	f.Add("[d]\ndefault = on\ndestinations =\n\t,\n")
	f.Add("[a]\npattern = (?=(?P<x>a)(?P=x)\ndestinations=h:1")
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := ParseRules(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, r := range rules {
			if !r.Default {
				r.match("servers.h1.cpu")
			}
		}
	})
}
