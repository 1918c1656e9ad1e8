package filewatch

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("one")
		registry := prometheus.NewRegistry()
		changes := make(chan string, 10)
		var log strings.Builder
		var c *Content[string]
		var err error
		c, err = NewContent(ContentOptions[string]{What: "the text", Paths: []string{path}, Every: time.Second,
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Load: func() (string, []Warning, error) {
				text, err := os.ReadFile(path)
				if string(text) == "bad" {
					return "", []Warning{{File: "file", Line: 7, Text: "look here"}}, errors.New("it is bad")
				}
				return string(text), nil, err
			},
			Changed: func(text string) { changes <- text + " and " + c.Current() },
			Reloads: prometheus.CounterOpts{Name: "reloads"}, Registerer: registry})
		if err != nil {
			t.Fatal(err)
		}
		c.Start()
		defer func() {
			if err := c.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		write("three")
		if got := <-changes; got != "three and three" {
			t.Errorf("got %q", got)
		}
		write("bad")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if c.Current() != "three" || len(changes) > 0 || !strings.Contains(log.String(), "look here") {
			t.Errorf("after an error: %q, %d changes, log %s", c.Current(), len(changes), log.String())
		}
		if err := testutil.GatherAndCompare(registry, strings.NewReader(`
			# HELP reloads
			# TYPE reloads counter
			reloads{result="error"} 1
			reloads{result="ok"} 1
		`)); err != nil {
			t.Error(err)
		}
	})
}

// TestContentAgain checks that a failed load is tried again, although the files do not change, and is reported once.
func TestContentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		var fail atomic.Bool
		var loads atomic.Int32
		registry := prometheus.NewRegistry()
		c, err := NewContent(ContentOptions[int32]{Paths: []string{path}, Every: time.Second,
			Logger: slog.New(slog.DiscardHandler),
			Load: func() (int32, []Warning, error) {
				n := loads.Add(1)
				if fail.Load() {
					return 0, nil, errors.New("no rights")
				}
				return n, nil, nil
			},
			Reloads: prometheus.CounterOpts{Name: "reloads_total"}, Registerer: registry})
		if err != nil {
			t.Fatal(err)
		}
		check := func(d time.Duration, want ...int32) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			failures, successes := int32(testutil.ToFloat64(c.failed)), int32(testutil.ToFloat64(c.loaded))
			if got := []int32{loads.Load(), failures, successes, c.Current()}; !slices.Equal(got, want) {
				t.Errorf("loads, failures, successes and content are %d; want %d", got, want)
			}
		}
		fail.Store(true)
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		c.Start()
		check(3500*time.Millisecond, 4, 1, 0, 1)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		check(time.Second, 4, 1, 0, 1) // it may be back at the next look
		check(time.Second, 5, 2, 0, 1)
		fail.Store(false)
		check(3*time.Second, 6, 2, 1, 6)
		if err := c.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestContentOtherError has a file whose error changes while neither its time nor its size does. Each error is reported
// once.
func TestContentOtherError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		var text atomic.Value
		text.Store("")
		var log strings.Builder
		c, err := NewContent(ContentOptions[int]{Paths: []string{path}, Every: time.Second,
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Load: func() (int, []Warning, error) {
				if s := text.Load().(string); s != "" {
					return 0, []Warning{{File: path, Text: "look at " + s}}, errors.New(s)
				}
				return 1, nil, nil
			},
			Reloads: prometheus.CounterOpts{Name: "reloads_total"}})
		if err != nil {
			t.Fatal(err)
		}
		check := func(err string, failures float64) {
			t.Helper()
			text.Store(err)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			errs, warnings := strings.Count(log.String(), "level=ERROR"), strings.Count(log.String(), "level=WARN")
			said := strings.Count(log.String(), "err=\""+err+"\"")
			if got := testutil.ToFloat64(c.failed); got != failures || errs != int(failures) || warnings != errs || said != 1 {
				t.Errorf("%s: %v failures, the log is\n%s", err, got, log.String())
			}
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		text.Store("no rights") // before the first look
		c.Start()
		check("no rights", 1)
		check("line 3 is wrong", 2)
		check("line 4 is wrong", 3)
		text.Store("")
		time.Sleep(time.Second)
		synctest.Wait()
		if c.Current() != 1 || c.watcher.again != nil {
			t.Error("it is still broken")
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestContentErrors(t *testing.T) {
	f := func(o ContentOptions[int]) {
		t.Helper()
		if _, err := NewContent(o); err == nil {
			t.Errorf("%+v is no error", o)
		}
	}
	load := func() (int, []Warning, error) { return 0, nil, nil }
	log := slog.New(slog.DiscardHandler)
	counter := prometheus.CounterOpts{Name: "reloads"}
	taken := prometheus.NewRegistry()
	taken.MustRegister(prometheus.NewCounter(counter))
	f(ContentOptions[int]{Every: time.Second, Load: load, Reloads: counter})
	f(ContentOptions[int]{Logger: log, Load: load, Reloads: counter})
	f(ContentOptions[int]{Every: time.Second, Logger: log, Load: load, Reloads: counter, Registerer: taken})
	f(ContentOptions[int]{Every: time.Second, Logger: log, Reloads: counter,
		Load: func() (int, []Warning, error) { return 0, nil, errors.New("no") }})
}

func TestWarning(t *testing.T) {
	for _, tc := range []struct {
		warning Warning
		want    string
	}{
		{Warning{File: "f", Text: "it is missing"}, "f: it is missing"},
		{Warning{File: "f", Line: 3, Text: "skipped"}, "f:3: skipped"},
		{Warning{File: "f", Line: 3, Section: "s", Text: "skipped"}, "f:3: section [s]: skipped"},
	} {
		if got := tc.warning.String(); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}
