package inifile

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestAsPython compares with testdata/expected.json, which testdata/generate.py writes with Python's configparser.
func TestAsPython(t *testing.T) {
	text, err := os.ReadFile("testdata/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Text, Error string
		Sections    []struct {
			Name string
			Keys map[string]string
		}
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		got, err := Parse(c.Text)
		if c.Error != "" {
			if err == nil {
				t.Errorf("%q: got %v, want an error as %s", c.Text, got, c.Error)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.Text, err)
			continue
		}
		if len(got) != len(c.Sections) {
			t.Errorf("%q: got %d sections, want %d", c.Text, len(got), len(c.Sections))
			continue
		}
		for i, want := range c.Sections {
			s := &got[i]
			keys := map[string]string{}
			for _, k := range s.Keys() {
				v, _ := s.Get(k)
				keys[k] = v.Text
			}
			if s.Name != want.Name || fmt.Sprint(keys) != fmt.Sprint(want.Keys) {
				t.Errorf("%q: got [%s] %q, want [%s] %q", c.Text, s.Name, keys, want.Name, want.Keys)
			}
		}
	}
}

func TestLines(t *testing.T) {
	got, err := Parse("\ufeff# c\n\n[a]\nx = 1\n\n[b]\ny = 2\n  3\nz = 4\n")
	if err != nil {
		t.Fatal(err)
	}
	y, _ := got[1].Get("y")
	z, _ := got[1].Get("z")
	if got[0].Line != 3 || got[1].Line != 6 || y.Line != 7 || z.Line != 9 {
		t.Errorf("got %+v", got)
	}
	if _, ok := got[0].Get("y"); ok {
		t.Error("section a has y")
	}
}

func TestBounds(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	f("[a]\nx = "+strings.Repeat("a", MaxLine), "line 2 has")
	var many strings.Builder
	for i := range MaxSections + 1 {
		fmt.Fprintf(&many, "[%d]\n", i)
	}
	f(many.String(), "more than 20000 sections")
	f("[a]\nx = "+strings.Repeat("%(y)s", 2000)+"\ny =\n", "more than 1000 times")
	f("[a]\nx = "+strings.Repeat("%(y)s", 900)+"\ny = "+strings.Repeat("z", 1000)+"\n", "the value has more than")
	f("[a]\n"+strings.Repeat("b", 200), "bbb…\" is neither")
}

func FuzzParse(f *testing.F) {
	text, err := os.ReadFile("testdata/cases.txt")
	if err != nil {
		f.Fatal(err)
	}
	for c := range strings.SplitSeq(string(text), "----\n") {
		f.Add(c)
	}
	f.Fuzz(func(t *testing.T, text string) {
		sections, err := Parse(text)
		if err != nil {
			return
		}
		lines := strings.Count(text, "\n") + strings.Count(text, "\r") + 1
		for _, s := range sections {
			if s.Name == "" || s.Line < 1 || s.Line > lines {
				t.Fatalf("section %q in line %d of %d", s.Name, s.Line, lines)
			}
			for _, k := range s.Keys() {
				if v, _ := s.Get(k); v.Line < 1 || v.Line > lines {
					t.Fatalf("key %q in line %d of %d", k, v.Line, lines)
				}
			}
		}
	})
}
