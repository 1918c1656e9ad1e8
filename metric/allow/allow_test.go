package allow

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
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
	var names map[string]string
	if err := json.Unmarshal(text, &names); err != nil {
		t.Fatal(err)
	}
	lists, warnings, err := Load("testdata/whitelist.conf", "testdata/blacklist.conf")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range names {
		if got := lists.Check(name).String(); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	if len(warnings) != 1 ||
		!strings.HasPrefix(warnings[0].String(), "testdata/whitelist.conf:5: the line is skipped: compile") {
		t.Errorf("warnings %v", warnings)
	}
	if lists.White.Len() != 5 || lists.Black.Len() != 2 || lists.White.Timeouts()+lists.Black.Timeouts() != 0 {
		t.Errorf("%d and %d patterns", lists.White.Len(), lists.Black.Len())
	}
}

func TestLoad(t *testing.T) {
	lists, warnings, err := Load("", "")
	if err != nil || len(warnings) != 0 || lists.Check("a") != Allowed || lists.White.Timeouts() != 0 {
		t.Error(warnings, err)
	}
	lists, warnings, err = Load("testdata/none", "testdata/blacklist.conf")
	if err != nil || len(warnings) != 1 || lists.Check("a") != Allowed || lists.Check("a.debug.b") != Blacklisted {
		t.Error(warnings, err)
	}
	if warnings[0].String() != "testdata/none: the file is missing: the list is empty" {
		t.Error(warnings)
	}
	if _, _, err = Load("testdata", ""); err == nil {
		t.Error("a directory is no error")
	}
}

func TestBounds(t *testing.T) {
	if _, _, err := Parse("w", strings.NewReader(strings.Repeat("#", MaxFile+1))); err == nil {
		t.Error("a large file is no error")
	}
	if _, _, err := Parse("w", strings.NewReader(strings.Repeat("a\n", MaxPatterns+1))); err == nil {
		t.Error("many patterns are no error")
	}
}

type options = filewatch.ContentOptions[*Lists]

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "whitelist.conf")
		w, err := Watch(file, "testdata/blacklist.conf", options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		w.Start()
		wait := func(want Verdict) {
			t.Helper()
			time.Sleep(DefaultEvery)
			synctest.Wait()
			if got := w.Current().Check("a"); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		}
		wait(Allowed)
		if err := os.WriteFile(file, []byte("b\n("), 0o600); err != nil {
			t.Fatal(err)
		}
		wait(NotWhitelisted)
		if err := os.WriteFile(file, []byte("b\n(a)"), 0o600); err != nil {
			t.Fatal(err)
		}
		wait(Allowed)
		for range 2 {
			if err := w.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}
		w.Count(Blacklisted, 3)
		w.Count(NotWhitelisted, 2)
		w.Count(Allowed, 1)
		if b, n := w.Counts(); b != 3 || n != 2 {
			t.Errorf("counts %d %d", b, n)
		}
	})
}

func TestWatchOptions(t *testing.T) {
	if _, err := Watch("", "", options{}); err == nil {
		t.Error("no logger is no error")
	}
	if _, err := Watch("testdata", "", options{Logger: slog.New(slog.DiscardHandler)}); err == nil {
		t.Error("a directory is no error")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("^a\n#b\n(c", "abc")
	f.Add("(?!x)y", "xy")
	f.Fuzz(func(t *testing.T, text, name string) {
		if len(text) > 10_000 || len(name) > 100 {
			return
		}
		list, _, err := Parse("w", strings.NewReader(text))
		if err != nil {
			return
		}
		lists := Lists{White: list, Black: list}
		if v := lists.Check(name); list.Timeouts() == 0 && v == Allowed && list.Len() > 0 {
			t.Fatal("it is neither in the list nor outside")
		}
	})
}
