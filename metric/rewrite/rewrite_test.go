package rewrite

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/internal/filewatch"
)

func TestMain(m *testing.M) {
	// The clock of the backtracking engine ends a second after the last match.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2/v2.runClock"))
}

// TestAsCarbon compares with testdata/expected.json, which testdata/generate.py writes with carbon.
func TestAsCarbon(t *testing.T) {
	text, err := os.ReadFile("testdata/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var names []struct{ Name, Pre, Post string }
	if err := json.Unmarshal(text, &names); err != nil {
		t.Fatal(err)
	}
	rules, warnings, err := Load("testdata/rules.conf")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range names {
		if got := rules.Pre.Rewrite(want.Name); got != want.Pre {
			t.Errorf("%s: got %q, want %q before aggregation", want.Name, got, want.Pre)
		}
		if got := rules.Post.Rewrite(want.Name); got != want.Post {
			t.Errorf("%s: got %q, want %q after aggregation", want.Name, got, want.Post)
		}
	}
	var lines []int
	for _, w := range warnings {
		lines = append(lines, w.Line)
	}
	if want := []int{2, 8, 9, 10, 12, 14, 15, 20}; !slices.Equal(lines, want) {
		t.Errorf("warnings %v, want lines %v", warnings, want)
	}
	if rules.Pre.Len() != 4 || rules.Post.Len() != 5 || rules.Pre.Refused() != 0 {
		t.Errorf("%d and %d rules", rules.Pre.Len(), rules.Post.Len())
	}
}

func TestWarnings(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		_, warnings, err := Parse("r.conf", strings.NewReader(text))
		if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].String(), want) {
			t.Errorf("%q: got %v %v, want %q", text, warnings, err, want)
		}
	}
	f("[pre]\na(=b\n", `r.conf:2: the rule is skipped: compile "a(": `)
	f("[pre]\na=\\2\n", `r.conf:2: the rule is skipped: replacement "\\2": the pattern has no group 2`)
	f("[pre]\na=\\q\n", `\q is no escape`)
	f("[pre]\nnothing\n", "r.conf:2: the line is neither")
	f("a=b", "r.conf:1: the rule stands in neither [pre] nor [post]")
	f("[mid]\n", `r.conf:1: there is no section "mid"`)
}

func TestBounds(t *testing.T) {
	if _, _, err := Parse("r", strings.NewReader(strings.Repeat("#", MaxFile+1))); err == nil {
		t.Error("a large file is no error")
	}
	if _, _, err := Parse("r", strings.NewReader("[pre]\n"+strings.Repeat("a=b\n", MaxRules+1))); err == nil {
		t.Error("many rules are no error")
	}
	rules, _, err := Parse("r", strings.NewReader("[pre]\na=aa\nb=c\n"))
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("a", MaxName/2+1) + "b"
	if got := rules.Pre.Rewrite(name); got != name[:len(name)-1]+"c" || rules.Pre.Refused() != 1 {
		t.Errorf("got %d bytes, %d refused", len(got), rules.Pre.Refused())
	}
}

func TestLoad(t *testing.T) {
	rules, warnings, err := Load("")
	if err != nil || len(warnings) != 0 || rules.Pre.Rewrite("a") != "a" || rules.Post.Rewrite("a") != "a" {
		t.Error(warnings, err)
	}
	rules, warnings, err = Load("testdata/none")
	if err != nil || len(warnings) != 1 ||
		warnings[0].String() != "testdata/none: the file is missing: no name is rewritten" || rules.Pre.Rewrite("a") != "a" {
		t.Error(warnings, err)
	}
	if _, _, err = Load("testdata"); err == nil {
		t.Error("a directory is no error")
	}
}

type options = filewatch.ContentOptions[*Rules]

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "rules.conf")
		write := func(to string) {
			t.Helper()
			if err := os.WriteFile(file, fmt.Appendf(nil, "[pre]\na = %s\n(\n", to), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("b")
		var changed []string
		var w *filewatch.Content[*Rules]
		var err error
		w, err = Watch(file, options{Logger: slog.New(slog.DiscardHandler), Changed: func(r *Rules) {
			if r != w.Current() {
				t.Error("the new rules are not yet the current ones")
			}
			changed = append(changed, r.Pre.Rewrite("a"))
		}})
		if err != nil {
			t.Fatal(err)
		}
		w.Start()
		wait := func(want string) {
			t.Helper()
			time.Sleep(DefaultEvery)
			synctest.Wait()
			if got := w.Current().Pre.Rewrite("a"); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		wait("b")
		write("long")
		wait("long")
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		wait("long")
		wait("a")
		write("c")
		wait("c")
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(file, 0o700); err != nil {
			t.Fatal(err)
		}
		wait("c") // it cannot be read
		for range 2 {
			if err := w.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}
		if !slices.Equal(changed, []string{"long", "a", "c"}) {
			t.Errorf("changes %q", changed)
		}
	})
}

func TestWatchOptions(t *testing.T) {
	if _, err := Watch("testdata/rules.conf", options{}); err == nil {
		t.Error("no logger is no error")
	}
	if _, err := Watch("testdata", options{Logger: slog.New(slog.DiscardHandler)}); err == nil {
		t.Error("a directory is no error")
	}
}

func FuzzParse(f *testing.F) {
	text, err := os.ReadFile("testdata/rules.conf")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text), "servers.web1.cpu.cpu1.idle")
	f.Add("[pre]\na*=\\g<0>\\g<0>\n", "aaa")
	f.Fuzz(func(t *testing.T, text, name string) {
		if len(text) > 10_000 || len(name) > 100 {
			return
		}
		rules, _, err := Parse("r", strings.NewReader(text))
		if err != nil {
			return
		}
		for _, s := range []*Section{rules.Pre, rules.Post} {
			if got := s.Rewrite(name); len(got) > MaxName {
				t.Fatalf("%d bytes", len(got))
			}
		}
	})
}

func BenchmarkRewrite(b *testing.B) {
	rules, _, err := Load("testdata/rules.conf")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		rules.Pre.Rewrite("servers.web1.cpu.cpu12.idle")
	}
}
