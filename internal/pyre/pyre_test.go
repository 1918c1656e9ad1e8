package pyre

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// expected is testdata/expected.json, which testdata/generate.py writes with Python 3.11.
type expected struct {
	Texts    []string
	Patterns []struct {
		Pattern        string
		Valid          bool
		Found          [][]int // in characters
		Dashes, Braces []string
	}
	Substitutions []struct {
		Pattern, Template, Text string
		Valid                   bool
		Result, Error           string
	}
}

func readExpected(t *testing.T) expected {
	t.Helper()
	text, err := os.ReadFile("testdata/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var e expected
	if err := json.Unmarshal(text, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// lenient are patterns that Python refuses and Compile takes.
var lenient = []string{`(?P<1>a)`, `[\Z]`}

func TestPatternsAsPython(t *testing.T) {
	e := readExpected(t)
	for _, want := range e.Patterns {
		re, err := Compile(want.Pattern)
		if !want.Valid {
			if err == nil && !slices.Contains(lenient, want.Pattern) {
				t.Errorf("%s is no error", want.Pattern)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", want.Pattern, err)
			continue
		}
		dash, err := re.Template("-")
		if err != nil {
			t.Fatal(err)
		}
		braces, err := re.Template(`<\g<0>>`)
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range e.Texts {
			if strings.Contains(text, "é") && slices.Contains([]string{`\w+`, `\W`, `\b`, `\Ba`}, want.Pattern) {
				continue // Python 3 has letters of all languages there
			}
			found := re.Find(text)
			for j, at := range found {
				if at > 0 {
					found[j] = utf8.RuneCountInString(text[:at])
				}
			}
			if !slices.Equal(found, want.Found[i]) {
				t.Errorf("%s in %q: got %v, want %v", want.Pattern, text, found, want.Found[i])
			}
			if got := re.Search(text); got != (want.Found[i] != nil) {
				t.Errorf("%s in %q: got %v", want.Pattern, text, got)
			}
			if got, ok := re.Substitute(text, dash, 1000); !ok || got != want.Dashes[i] {
				t.Errorf("%s in %q to -: got %q, want %q", want.Pattern, text, got, want.Dashes[i])
			}
			if got, ok := re.Substitute(text, braces, 1000); !ok || got != want.Braces[i] {
				t.Errorf("%s in %q to <>: got %q, want %q", want.Pattern, text, got, want.Braces[i])
			}
			if n := re.Needs(); found != nil && !n.Possible(text) {
				t.Errorf("%s in %q: needs %+v", want.Pattern, text, n)
			}
		}
		if re.Timeouts() != 0 {
			t.Errorf("%s took too long", want.Pattern)
		}
	}
}

func TestTemplatesAsPython(t *testing.T) {
	for _, want := range readExpected(t).Substitutions {
		re, err := Compile(want.Pattern)
		if err != nil {
			t.Fatal(err)
		}
		template, err := re.Template(want.Template)
		if !want.Valid {
			if err == nil {
				t.Errorf("%s: template %s is no error, want %s", want.Pattern, want.Template, want.Error)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", want.Pattern, err)
			continue
		}
		if got, ok := re.Substitute(want.Text, template, 1000); !ok || got != want.Result {
			t.Errorf("%s in %q to %s: got %q, want %q", want.Pattern, want.Text, want.Template, got, want.Result)
		}
	}
}

func TestBounds(t *testing.T) {
	if _, err := Compile(strings.Repeat("a", MaxPattern+1)); err == nil {
		t.Error("a long pattern is no error")
	}
	if _, err := Compile("a\xff"); err == nil {
		t.Error("a pattern that is not UTF-8 is no error")
	}
	re, err := Compile("a")
	if err != nil {
		t.Fatal(err)
	}
	template, err := re.Template("bbbb")
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := re.Substitute("aaa", template, 11); ok || got != "aaa" {
		t.Errorf("got %q %v", got, ok)
	}
	if got, ok := re.Substitute("aaa", template, 12); !ok || got != "bbbbbbbbbbbb" {
		t.Errorf("got %q %v", got, ok)
	}
	if got, ok := re.Substitute("axxx", template, 6); ok || got != "axxx" {
		t.Errorf("got %q %v", got, ok)
	}
}

// Bytes that are not UTF-8 stay as they are.
func TestBytes(t *testing.T) {
	for _, pattern := range []string{`b`, `b(?!x)`, `b|$^`, `(b)|(?!.)x`, `b*?`} {
		re, err := Compile(pattern)
		if err != nil {
			t.Fatal(err)
		}
		template, err := re.Template(`\g<0>`)
		if err != nil {
			t.Fatal(err)
		}
		text := "a\xff\xfeb\xf0.b\xe9"
		if got, ok := re.Substitute(text, template, 100); !ok || got != text {
			t.Errorf("%s: got %q", pattern, got)
		}
	}
}

// A pattern that would backtrack for years ends.
func TestTimeout(t *testing.T) {
	re, err := Compile(`^(?!b)(a|a|aa)*(?!c)$`)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("a", 200) + "b"
	if re.Search(text) || re.Find(text) != nil {
		t.Error("found")
	}
	template, err := re.Template("x")
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := re.Substitute(text, template, 1000); got != text {
		t.Errorf("got %q", got)
	}
	if re.Timeouts() != 3 {
		t.Errorf("%d timeouts", re.Timeouts())
	}
}

func TestFast(t *testing.T) {
	f := func(pattern string, fast bool, groups ...string) {
		t.Helper()
		re, err := Compile(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if re.Fast() != fast || !slices.Equal(re.Groups(), groups) || re.String() != pattern {
			t.Errorf("%s: fast %v, groups %q", re, re.Fast(), re.Groups())
		}
	}
	f(`a`, true, "")
	f(`(?P<x>a)(b)(?P<y>c)`, true, "", "x", "", "y")
	f(`(?P<x>a)(b)(?P<y>c)(?!d)`, false, "", "x", "", "y")
}

func TestNeeds(t *testing.T) {
	f := func(pattern string, want Needs) {
		t.Helper()
		re, err := Compile(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := re.Needs(); got != want {
			t.Errorf("%s: got %+v, want %+v", pattern, got, want)
		}
	}
	f(`abc`, Needs{Inner: "abc"})
	f(`^abc`, Needs{Prefix: "abc"})
	f(`abc$`, Needs{Suffix: "abc"})
	f(`^abc$`, Needs{Prefix: "abc"})
	f(`^a\.(?P<x>[^.]+?)\.b\.[^.]+\.(c)$`, Needs{Prefix: "a.", Suffix: ".c", Inner: ".b."})
	f(`(?m)^abc$`, Needs{Inner: "abc"})
	f(`(?i)^abc`, Needs{})
	f(`\A(?:a|b\.c$)`, Needs{})
	f(`^a\.?b$`, Needs{Prefix: "a", Suffix: "b"})
	f(`^a(?!b)`, Needs{})
}

func FuzzSubstitute(f *testing.F) {
	f.Add(`(?P<x>a)|b*`, `\g<x>-\1\\`, "aabb")
	f.Add(`(a)(?=b)`, `\1`, "ab\xff")
	f.Add(`[[a-z]{,3}\Z`, `\g<0>`, "[ab")
	f.Fuzz(func(t *testing.T, pattern, replacement, text string) {
		if len(text) > 200 {
			return
		}
		re, err := Compile(pattern)
		if err != nil {
			return
		}
		found := re.Find(text)
		if re.Timeouts() == 0 && re.Search(text) != (found != nil) && re.Timeouts() == 0 {
			t.Fatalf("%q in %q: found %v", pattern, text, found)
		}
		if n := re.Needs(); found != nil && !n.Possible(text) {
			t.Fatalf("%q in %q: needs %+v", pattern, text, n)
		}
		template, err := re.Template(replacement)
		if err != nil {
			return
		}
		if got, _ := re.Substitute(text, template, 1000); len(got) > 1000 {
			t.Fatalf("%q in %q to %q: %d bytes", pattern, text, replacement, len(got))
		}
	})
}
