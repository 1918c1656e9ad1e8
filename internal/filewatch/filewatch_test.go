package filewatch

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
		write := func(path, text string, seconds int64) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, time.Time{}, time.Unix(seconds, 0)); err != nil {
				t.Fatal(err)
			}
		}
		remove := func(path string) {
			t.Helper()
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		rename := func(from, to string) {
			t.Helper()
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
		}
		write(one, "a", 1)
		var calls atomic.Int32
		w, err := New(Options{Paths: []string{one, "", two}, Every: time.Second, Changed: func() { calls.Add(1) }})
		if err != nil {
			t.Fatal(err)
		}
		w.Start()
		defer func() { _ = w.Stop(context.Background()) }()
		check := func(want int32, what string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if got := calls.Swap(0); got != want {
				t.Errorf("%s: %d calls, want %d", what, got, want)
			}
		}
		check(0, "nothing changed")
		write(one, "b", 2)
		check(1, "a new time")
		check(0, "nothing changed")
		write(one, "bb", 2)
		check(1, "a new size")
		write(one, "aa", 1)
		check(1, "an older time")
		write(one+".new", "bb", 1)
		rename(one+".new", one)
		check(1, "another file of the same time and size")
		write(two, "x", 1)
		check(1, "it appeared")
		write(one, "c", 3)
		write(two, "c", 3)
		check(1, "two changed")
		rename(one, one+".away")
		check(0, "gone once")
		rename(one+".away", one)
		check(0, "back as it was")
		remove(one)
		check(0, "gone once")
		write(one, "d", 4)
		check(1, "back and changed")
		remove(one)
		check(0, "gone once")
		check(1, "gone twice")
		check(0, "still gone")
		write(one, "d", 4)
		check(1, "it appeared")
	})
}

func TestLifecycle(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("no time is no error")
	}
	w, err := New(Options{Paths: []string{"x"}, Every: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if err := w.Stop(ctx); err != nil {
		t.Error(err)
	}
	w.Start() // does nothing
	if w.done != nil {
		t.Error("it started after Stop")
	}
	w, err = New(Options{Paths: []string{"x"}, Every: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	w.Start()
	w.Start()
	for range 2 {
		if err := w.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
}

// Stop waits for a call of Changed, but no longer than its context.
func TestStopWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		begun, end := make(chan struct{}), make(chan struct{})
		w, err := New(Options{Paths: []string{path}, Every: time.Second, Changed: func() { close(begun); <-end }})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		w.Start()
		<-begun
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := w.Stop(ctx); err == nil {
			t.Error("Stop did not wait")
		}
		close(end)
		if err := w.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
