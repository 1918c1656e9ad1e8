package schema

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/internal/filewatch"
	"github.com/lapwing-monitoring/lapwing/metric/series"
)

func TestMain(m *testing.M) {
	// The clock of the backtracking engine ends a second after the last match.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2/v2.runClock"))
}

// expected is testdata/expected.json, which testdata/generate.py writes with carbon and whisper.
type expected struct {
	Names []struct {
		Name, Rule, Method string
		Archives           [][2]int64
		Factor             float64
	}
	Retentions []struct {
		Text, Error  string
		Step, Points int64
	}
	Lists []struct {
		Text  string
		Valid bool
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

func TestAsCarbon(t *testing.T) {
	s, warnings, err := Load("testdata/schemas.conf", "testdata/aggregation.conf")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range readExpected(t).Names {
		archives, method, xff, rule := s.Match(want.Name)
		var got [][2]int64
		for _, a := range archives {
			got = append(got, [2]int64{a.Step, a.Points})
		}
		if !slices.Equal(got, want.Archives) || method.String() != want.Method || xff != want.Factor || rule != want.Rule {
			t.Errorf("%s: got %v %v %v %s, want %v %v %v %s", want.Name, got, method, xff, rule, want.Archives, want.Method,
				want.Factor, want.Rule)
		}
	}
	if s.Timeouts() != 0 {
		t.Errorf("%d patterns took too long", s.Timeouts())
	}
	var got []string
	for _, w := range warnings {
		got = append(got, w.String())
	}
	want := []string{
		"testdata/schemas.conf:29: section [interpolated]: the key \"base\" is ignored",
		"testdata/schemas.conf:37: section [no_pattern]: the section has no pattern and is skipped",
		"testdata/schemas.conf:40: section [no_retentions]: the section has no retentions and is skipped",
		"testdata/schemas.conf:45: section [invalid_list]: the section is skipped: step 15 is no multiple of 10",
		"testdata/aggregation.conf:26: section [bad factor]: xFilesFactor \"half\" is no number, and the section is skipped",
		"testdata/aggregation.conf:28: section [no pattern]: the section has no pattern and is skipped",
	}
	if !slices.Equal(got, want) {
		t.Errorf("warnings:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestRetentionsAsCarbon(t *testing.T) {
	for _, want := range readExpected(t).Retentions {
		got, err := ParseRetentions(want.Text)
		if want.Error != "" || want.Step == 0 { // carbon takes the step 0, and fails later
			if err == nil {
				t.Errorf("%q: got %v, want an error: %s", want.Text, got, want.Error)
			}
			continue
		}
		if err != nil || len(got) != 1 || got[0] != (series.Archive{Step: want.Step, Points: want.Points}) {
			t.Errorf("%q: got %v %v, want %d:%d", want.Text, got, err, want.Step, want.Points)
		}
	}
}

func TestListsAsWhisper(t *testing.T) {
	for _, want := range readExpected(t).Lists {
		archives, err := ParseRetentions(want.Text)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckArchives(archives); (err == nil) != want.Valid {
			t.Errorf("%s: %v, want valid %v", want.Text, err, want.Valid)
		}
	}
}

func TestCheckArchives(t *testing.T) {
	f := func(want string, archives ...series.Archive) {
		t.Helper()
		if err := CheckArchives(archives); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", archives, err, want)
		}
	}
	f("no archive")
	f("no values", series.Archive{Step: 10})
	f("no values", series.Archive{Step: -1, Points: 1})
	f("not sorted", series.Archive{Step: 60, Points: 60}, series.Archive{Step: 10, Points: 600})
	f("more than 4294967295 seconds", series.Archive{Step: 1 << 31, Points: 3})
}

func TestErrors(t *testing.T) {
	f := func(storage, aggregation, want string) {
		t.Helper()
		_, _, err := Parse(Source{"s.conf", strings.NewReader(storage)}, Source{"a.conf", strings.NewReader(aggregation)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	f("[a]\npattern = x\nretentions = 10sec:1d\n", "",
		`s.conf:3: section [a]: retentions: precision of "10sec:1d": "sec" is no unit`)
	f("[a]\npattern = x\nretentions = 1s:1d,\n", "", `"" is not precision:retention`)
	f("[a]\npattern = (x\nretentions = 1s:1d\n", "", `s.conf:2: section [a]: pattern: compile "(x"`)
	f("[a]\npattern = x\nretentions = 999999999999999999999:1d\n", "", `is more than 4294967295`)
	f("[a]\npattern = x\nretentions = 200y:1\n", "", `is more than 4294967295`)
	f("pattern = x\n", "", "line 1")
	f("", "[a]\npattern = x\nxFilesFactor = 1.5\n", "a.conf:3: section [a]: xfilesfactor: 1.5 is not from 0 to 1")
	f("", "[a]\npattern = x\nxFilesFactor = nan\n", "nan is not from 0 to 1")
	f("", "[a]\npattern = x\naggregationMethod = median\n", `a.conf:3: section [a]: aggregationmethod: "median" is no`)
	f(strings.Repeat("#", MaxFile+1), "", "more than")
}

// The extra keys of go-carbon are ignored, with a warning.
func TestGoCarbonKeys(t *testing.T) {
	s, warnings, err := Parse(Source{"s.conf", strings.NewReader(
		"[a]\npattern = x\nretentions = 10s:1d\npriority = 5\ncompressed = true\nmigration = true\n")}, Source{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, rule := s.Match("x"); rule != "a" {
		t.Errorf("rule %q", rule)
	}
	if len(warnings) != 3 || warnings[2].Line != 4 || warnings[0].Text != `the key "compressed" is ignored` {
		t.Errorf("warnings %v", warnings)
	}
}

func TestBuiltin(t *testing.T) {
	s, warnings, err := Load("", "")
	if err != nil || len(warnings) != 0 {
		t.Fatal(err, warnings)
	}
	f := func(name, retentions, method string, xff float64, rule string) {
		t.Helper()
		want, err := ParseRetentions(retentions)
		if err != nil {
			t.Fatal(err)
		}
		a, m, x, r := s.Match(name)
		if !slices.Equal(a, want) || m.String() != method || x != xff || r != rule {
			t.Errorf("%s: got %v %v %v %s", name, a, m, x, r)
		}
		if err := CheckArchives(a); err != nil {
			t.Error(err)
		}
	}
	f("carbon.agents.a.cpuUsage", "60:90d", "average", 0.5, "carbon")
	f("servers.a.cpu", "10s:1d,1m:30d,10m:1y", "average", 0.5, "default")
	f("a.count", "10s:1d,1m:30d,10m:1y", "sum", 0, "default")
	f("a.max", "10s:1d,1m:30d,10m:1y", "max", 0.1, "default")
	f("a.min", "10s:1d,1m:30d,10m:1y", "min", 0.1, "default")
}

func TestNoSections(t *testing.T) {
	s, warnings, err := Parse(Source{}, Source{})
	if err != nil || len(warnings) != 0 {
		t.Fatal(err, warnings)
	}
	a, m, x, r := s.Match("a")
	want := []series.Archive{{Step: 60, Points: 10080}}
	if !slices.Equal(a, want) || m != series.Average || x != 0.5 || r != DefaultRule {
		t.Errorf("got %v %v %v %s", a, m, x, r)
	}
}

func TestLoadMissing(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := Load(filepath.Join(dir, "none"), ""); err == nil {
		t.Error("a missing file with schemas is no error")
	}
	if _, _, err := Load("", dir); err == nil {
		t.Error("a directory is no error")
	}
	s, warnings, err := Load("", filepath.Join(dir, "none"))
	if err != nil || len(warnings) != 1 {
		t.Fatal(err, warnings)
	}
	if _, m, _, _ := s.Match("a.count"); m != series.Average {
		t.Errorf("method %v", m)
	}
}

type options = filewatch.ContentOptions[*Schemas]

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "schemas.conf")
		written := time.Unix(1_000_000_000, 0)
		write := func(retentions string) {
			t.Helper()
			if err := os.WriteFile(file, []byte("[a]\npattern = .\nretentions = "+retentions+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			written = written.Add(time.Second)
			if err := os.Chtimes(file, written, written); err != nil {
				t.Fatal(err)
			}
		}
		write("10s:1d")
		calls := 0
		var log strings.Builder
		w, err := Watch(file, "", options{Changed: func(*Schemas) { calls++ },
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		step := func() string {
			a, _, _, _ := w.Current().Match("x")
			return strconv.FormatInt(a[0].Step, 10)
		}
		w.Start()
		w.Start()
		check := func(want string, wantCalls int) {
			t.Helper()
			time.Sleep(DefaultEvery)
			synctest.Wait()
			if step() != want || calls != wantCalls {
				t.Errorf("step %s after %d calls, want %s after %d", step(), calls, want, wantCalls)
			}
		}
		check("10", 0)
		write("20s:1d")
		check("20", 1)
		write("20parsecs:1d")
		check("20", 1)
		if !strings.Contains(log.String(), "their old content stays") {
			t.Errorf("log: %s", log.String())
		}
		write("30s:1d")
		check("30", 2)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		check("30", 2)
		check("30", 2)
		write("40s:1d")
		check("40", 3)
		for range 2 {
			if err := w.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}
		w.Start()
	})
}

func TestWatchOptions(t *testing.T) {
	if _, err := Watch("", "", options{}); err == nil {
		t.Error("no logger is no error")
	}
	log := slog.New(slog.DiscardHandler)
	if _, err := Watch("", "", options{Logger: log, Every: -1}); err == nil {
		t.Error("a negative time is no error")
	}
	if _, err := Watch("testdata/none", "", options{Logger: log}); err == nil {
		t.Error("a missing file is no error")
	}
	w, err := Watch("", "", options{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	w.Start() // there is no file to watch
	if err := w.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"testdata/schemas.conf", "testdata/aggregation.conf"} {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), "a.b")
	}
	f.Add("[a]\npattern=.\nretentions=1:1,2:2", "x")
	f.Fuzz(func(t *testing.T, text, name string) {
		s, _, err := Parse(Source{"s", strings.NewReader(text)}, Source{"a", strings.NewReader(text)})
		if err != nil {
			return
		}
		archives, method, xff, rule := s.Match(name)
		if err := CheckArchives(archives); err != nil {
			t.Fatal(err)
		}
		if method < series.Average || method > series.AbsMin || !(xff >= 0 && xff <= 1) || rule == "" {
			t.Fatal(method, xff, rule)
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	s, _, err := Load("testdata/schemas.conf", "testdata/aggregation.conf")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Match("servers.web1.cpu.total.idle")
	}
}
