package eventfile

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lapwing-monitoring/lapwing/state"
)

func newWriter(t *testing.T, change func(*Options)) *Writer {
	t.Helper()
	o := DefaultOptions()
	o.Path, o.Registerer = filepath.Join(t.TempDir(), "events.log"), prometheus.NewRegistry()
	change(&o)
	w, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Stop() })
	return w
}

func TestNewRefuses(t *testing.T) {
	for what, change := range map[string]func(*Options){
		"no path":       func(o *Options) { o.Path = "" },
		"no queue":      func(o *Options) { o.Queue = -1 },
		"nothing kept":  func(o *Options) { o.Keep = -1 },
		"negative size": func(o *Options) { o.MaxBytes = -1 },
		"negative age":  func(o *Options) { o.MaxAge = -1 },
	} {
		o := DefaultOptions()
		o.Path = "x"
		change(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

// TestFullQueue: events beyond the number that may wait, or beyond its bytes, are left out, and Follow returns. The
// Writer is not started, so no event leaves the queue.
func TestFullQueue(t *testing.T) {
	encoders := max(2, runtime.GOMAXPROCS(0)/2)
	for name, tc := range map[string]struct {
		parallel bool
		waiting  int64 // bytes, before the first event
		event    state.Applied
		want     int
	}{
		"state changes":     {event: state.Applied{Check: "c", Changed: true}, want: 8},
		"failing as before": {event: state.Applied{Check: "c", Status: 2}, want: 7},
		"passing as before": {event: state.Applied{Check: "c"}, want: 6},
		"metrics":           {want: 4},
		// All are of one partition.
		"several encoders": {event: state.Applied{Check: "c", Changed: true}, parallel: true, want: (8 + encoders - 1) / encoders},
		"bytes":            {event: state.Applied{Check: "c", Changed: true}, waiting: maxWaiting - 3*overhead, want: 3},
		"bytes of metrics": {waiting: maxWaiting/2 - 3*overhead, want: 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWriter(t, func(o *Options) { o.Queue, o.Parallel = 8, tc.parallel })
			w.waiting.Store(tc.waiting)
			for range 10 {
				w.Follow(&tc.event)
			}
			left, byClass := testutil.ToFloat64(w.metrics.leftOut), 0.0
			for _, c := range w.metrics.shed {
				byClass += testutil.ToFloat64(c)
			}
			if byClass != left {
				t.Errorf("%v are left out, by class %v", left, byClass)
			}
			if n := len(w.queues[0]); n != tc.want || left != float64(10-tc.want) {
				t.Errorf("%d wait and %v are left out, want %d to wait", n, left, tc.want)
			}
			if got, want := w.waiting.Load(), tc.waiting+int64(tc.want*overhead); got != want {
				t.Errorf("%d bytes wait, want %d", got, want)
			}
		})
	}
}

// TestOthersEvents: deletions are no events, and events of other members are theirs to write.
func TestOthersEvents(t *testing.T) {
	w := newWriter(t, func(o *Options) { o.Origin = "here" })
	for _, a := range []*state.Applied{{Origin: "here", Deleted: true}, {Origin: "there"}, {Origin: "here"}, {}} {
		w.Follow(a)
	}
	if n, left := len(w.queues[0]), testutil.ToFloat64(w.metrics.leftOut); n != 1 || left != 0 {
		t.Errorf("%d events wait and %v are left out, want 1 and 0", n, left)
	}
}

// TestRemovedDirectory: while the directory is gone lines wait, which is counted and said once. When it is back they
// are written.
func TestRemovedDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w := newWriter(t, func(o *Options) {
			o.Path = filepath.Join(filepath.Dir(o.Path), "gone", "events.log")
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		if err := w.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		go w.write([]byte("a\nb\n"))
		time.Sleep(2*retryEvery + retryEvery/2)
		synctest.Wait()
		if n := testutil.ToFloat64(w.metrics.errors); n != 4 { // at the start, and three attempts
			t.Errorf("%v errors are counted", n)
		}
		if err := os.Mkdir(filepath.Dir(w.opts.Path), 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(retryEvery)
		synctest.Wait()
		text, err := os.ReadFile(w.opts.Path)
		if n := testutil.ToFloat64(w.metrics.written); err != nil || string(text) != "a\nb\n" || n != 2 {
			t.Errorf("the file has %q (%v), and %v lines are counted", text, err, n)
		}
		if n := strings.Count(log.String(), "cannot be written"); n != 1 || !strings.Contains(log.String(), "is written again") {
			t.Errorf("the log has\n%s", &log)
		}

		// At a stop nothing waits for the file.
		if err := os.RemoveAll(filepath.Dir(w.opts.Path)); err != nil {
			t.Fatal(err)
		}
		go w.write([]byte("c\n"))
		synctest.Wait()
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := testutil.ToFloat64(w.metrics.failed); n != 1 {
			t.Errorf("%v events are counted as failed", n)
		}
	})
}

func TestStopTwice(t *testing.T) {
	w := newWriter(t, func(*Options) {})
	for range 2 {
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	}
}
