package aggregator

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

// expected is testdata/expected.json, which testdata/generate.py writes with carbon.
type expected struct {
	Names []struct {
		Name    string
		Outputs []string
	}
	Values []struct {
		Values  []float64
		Results map[string]float64
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

func TestNamesAsCarbon(t *testing.T) {
	rules, warnings, err := Load("testdata/rules.conf")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range readExpected(t).Names {
		if got := rules.names(want.Name); !slices.Equal(got, want.Outputs) {
			t.Errorf("%s: got %q, want %q", want.Name, got, want.Outputs)
		}
	}
	var got []string
	for _, w := range warnings {
		got = append(got, w.String())
	}
	if want := []string{
		`testdata/rules.conf:13: the rule has no outputs: output "nested.<a>.<b>": the input has no field <b>`,
		`testdata/rules.conf:14: the rule has no outputs: output "two.<<x>>": the input has no field <<x>`,
	}; !slices.Equal(got, want) {
		t.Errorf("warnings %q", got)
	}
	if rules.Len() != 15 || rules.Timeouts() != 0 {
		t.Errorf("%d rules, %d timeouts", rules.Len(), rules.Timeouts())
	}
}

func TestMethodsAsCarbon(t *testing.T) {
	for _, c := range readExpected(t).Values {
		if len(c.Results) != len(methods) {
			t.Errorf("%d methods, want %d", len(methods), len(c.Results))
		}
		for name, want := range c.Results {
			m, err := parseMethod(name)
			if err != nil {
				t.Fatal(err)
			}
			// Python 3.12 and later add more exactly than this.
			if got := m.of(slices.Clone(c.Values)); math.Abs(got-want) > 1e-12*math.Abs(want) {
				t.Errorf("%s of %d values: got %v, want %v", name, len(c.Values), got, want)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	f := func(line, want string) {
		t.Helper()
		if _, _, err := Parse("a.conf", strings.NewReader("# c\n"+line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", line, err, want)
		}
	}
	f("a (60) sum b", "a.conf:2: \"a (60) sum b\" is not output (seconds) = method input")
	f("a (60) = sum b c", "is not output")
	f("a 60 x = sum b", "is not output")
	f("a (x) = sum b", `frequency "(x)" is not (seconds) from 1 to 2678400`)
	f("a (0) = sum b", "frequency")
	f("a (-5) = sum b", "frequency")
	f("a (2678401) = sum b", "frequency")
	f("a (60) = last b", `"last" is no method: use sum`)
	f("a (60) = sum b(", `input "b(": compile`)
	f(strings.Repeat("a (60) = sum b\n", MaxRules+1), "more than 10000 rules")
	f(strings.Repeat("#", MaxFile), "more than 4194304 bytes")
}

func TestTemplateWarnings(t *testing.T) {
	f := func(line, want string) {
		t.Helper()
		rules, warnings, err := Parse("a.conf", strings.NewReader(line))
		if err != nil || len(warnings) != 1 || rules.Len() != 0 || !strings.Contains(warnings[0].String(), want) {
			t.Errorf("%s: got %v %v, want %q", line, warnings, err, want)
		}
	}
	f("<a (60) = sum <a>", "no field <a>")
	f("<> (60) = sum <a>", "no field <>")
	f("<b> (60) = sum <a>", "no field <b>")
	f("a>b (60) = sum <a>", "a > without a <")
	f("a%s (60) = sum <a>", "must be written as %%")
}

// A frequency may stand there without parentheses, as carbon strips them.
func TestFrequency(t *testing.T) {
	rules, _, err := Parse("a", strings.NewReader("a 60 = sum b\nc ((5)) = sum d"))
	if err != nil || rules.rules[0].frequency != 60 || rules.rules[1].frequency != 5 {
		t.Error(rules, err)
	}
}

func TestLoad(t *testing.T) {
	rules, warnings, err := Load("")
	if err != nil || len(warnings) != 0 || rules.Len() != 0 {
		t.Error(warnings, err)
	}
	_, warnings, err = Load("testdata/none")
	if err != nil || len(warnings) != 1 ||
		warnings[0].String() != "testdata/none: the file is missing: nothing is aggregated" {
		t.Error(warnings, err)
	}
	if _, _, err := Load("testdata"); err == nil {
		t.Error("a directory is no error")
	}
}

func TestDots(t *testing.T) {
	f := func(input string, want int, wantOpen bool) {
		t.Helper()
		if got, open := dots(input); got != want || open != wantOpen {
			t.Errorf("%s: got %d %v", input, got, open)
		}
	}
	f("a.<b>.*.c-*", 3, false)
	f("a.<<b>>.c", 2, true)
	f(`a.\d+`, -1, false)
	f("a.b?.c", -1, false)
	f("a|b.c", -1, false)
	f("a.*<b>", -1, false)
}

func TestLongName(t *testing.T) {
	rules, _, err := Parse("a", strings.NewReader("<a>.<a> (1) = sum x.<a>"))
	if err != nil {
		t.Fatal(err)
	}
	if got := rules.names("x." + strings.Repeat("y", MaxName/2)); got != nil {
		t.Errorf("got a name of %d bytes", len(got[0]))
	}
}

func FuzzParse(f *testing.F) {
	text, err := os.ReadFile("testdata/rules.conf")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text), "servers.web1.cpu.cpu0.idle")
	f.Add("a.<<b>>|c>.d (5) = p99 <<b>>*.<d>?", "a.b.c")
	f.Fuzz(func(t *testing.T, text, name string) {
		if len(text) > 5000 || len(name) > 200 {
			return
		}
		rules, _, err := Parse("a", strings.NewReader(text))
		if err != nil {
			return
		}
		for _, n := range rules.names(name) {
			if len(n) > MaxName {
				t.Fatalf("%d bytes", len(n))
			}
		}
		for _, r := range rules.rules {
			if _, ok := r.name(name, strings.Count(name, ".")); r.pattern.Find(name) != nil && !ok && len(name) < 50 {
				t.Fatalf("%s matches %q without %+v", r.input, name, r.needs)
			}
		}
	})
}
