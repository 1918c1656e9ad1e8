package filewatch

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
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
		type reload struct {
			text   string
			failed bool
		}
		reloads := make(chan reload, 10)
		var c *Content[string]
		var err error
		c, err = NewContent(ContentOptions[string]{Paths: []string{path}, Every: time.Second,
			Logger: slog.New(slog.DiscardHandler),
			Load: func() (string, error) {
				text, err := os.ReadFile(path)
				if string(text) == "bad" {
					return "", errors.New("it is bad")
				}
				return string(text), err
			},
			Changed:  func(text string) { reloads <- reload{text: text + " and " + c.Current()} },
			Reloaded: func(err error) { reloads <- reload{failed: err != nil} }})
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
		if got := []reload{<-reloads, <-reloads}; got[0] != (reload{}) || got[1] != (reload{text: "three and three"}) {
			t.Errorf("got %v", got)
		}
		write("bad")
		if got := <-reloads; got != (reload{failed: true}) || c.Current() != "three" {
			t.Errorf("got %v, %q", got, c.Current())
		}
	})
}

// TestContentAgain checks that a failed load is tried again, although the files do not change, and is reported once.
func TestContentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		var fail atomic.Bool
		var loads, failures, successes atomic.Int32
		c, err := NewContent(ContentOptions[int32]{Paths: []string{path}, Every: time.Second,
			Logger: slog.New(slog.DiscardHandler),
			Load: func() (int32, error) {
				n := loads.Add(1)
				if fail.Load() {
					return 0, errors.New("no rights")
				}
				return n, nil
			},
			Reloaded: func(err error) {
				if err == nil {
					successes.Add(1)
				} else {
					failures.Add(1)
				}
			}})
		if err != nil {
			t.Fatal(err)
		}
		check := func(d time.Duration, want ...int32) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := []int32{loads.Load(), failures.Load(), successes.Load(), c.Current()}; !slices.Equal(got, want) {
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

func TestContentErrors(t *testing.T) {
	f := func(o ContentOptions[int]) {
		t.Helper()
		if _, err := NewContent(o); err == nil {
			t.Errorf("%+v is no error", o)
		}
	}
	load := func() (int, error) { return 0, nil }
	log := slog.New(slog.DiscardHandler)
	f(ContentOptions[int]{Every: time.Second, Load: load})
	f(ContentOptions[int]{Logger: log, Load: load})
	f(ContentOptions[int]{Every: time.Second, Logger: log, Load: func() (int, error) { return 0, errors.New("no") }})
}
