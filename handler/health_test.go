package handler

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// says describes how the attempts of a handler go.
func says(w *delivery.Waiting, began time.Time) string {
	if w.FailingSince == 0 {
		return "well"
	}
	return fmt.Sprintf("since %s: %d failures, %d died", time.UnixMilli(w.FailingSince).Sub(began), w.Failures, w.Died)
}

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// take returns what was written since the last call.
func (l *lockedBuffer) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.b.Reset()
	return l.b.String()
}

// TestHealth has receivers that are down for hours, and one that refuses a delivery for good.
func TestHealth(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		down, poison, rack := hook("down"), hook("poison"), grouped("rack")
		down.Retry = &resource.HandlerRetry{Backoff: 60, MaxBackoff: 60}
		rack.Retry, rack.Group.Fold = down.Retry, 1
		var out lockedBuffer
		b := setup(t, Options{DB: db, Workers: 1, Logger: slog.New(slog.NewTextHandler(&out, nil))}, down, poison, rack)
		var works atomic.Bool // the receiver of down
		b.attempts(func(dl *delivery.Delivery, _ int) send.Result {
			if dl.Handler != "down" || !works.Load() {
				return send.Result{Temporary: dl.Handler != "poison", Kind: send.KindFailed, Err: errors.New("status 75")}
			}
			return send.Result{Kind: send.KindOK}
		})
		b.start(t)
		began := time.Now()
		seq := 0
		dispatch := func(handler, entity, check string) {
			seq++
			dl := incident(handler, seq, entity)
			dl.Check, dl.Received = check, time.Now().UnixMilli()
			b.Dispatch(dl)
			synctest.Wait()
			b.flush(t, 0)
		}
		want := func(handler, want string) {
			t.Helper()
			for _, w := range b.Health() {
				if w.Handler == handler {
					if got := says(&w, began); got != want {
						t.Errorf("%s: %s, want %s", handler, got, want)
					}
					return
				}
			}
			t.Errorf("%s is not listed", handler)
		}
		logged := func(when string, want ...string) {
			t.Helper()
			var got []string
			for line := range strings.Lines(out.take()) {
				_, line, _ = strings.Cut(line, "level=")
				line = strings.ReplaceAll(line, "component=handler namespace=default ", "")
				got = append(got, strings.TrimSpace(line))
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("log %s:\n%s\nwant:\n%s", when, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}

		// Many deliveries fail: one line, and another one every hour.
		for i := range 10 {
			dispatch("down", fmt.Sprint("web", i), "cpu")
		}
		want("down", "since 0s: 10 failures, 0 died")
		if w := b.waitingFor(t, "down", 0); says(&w, began) != "since 0s: 10 failures, 0 died" {
			t.Errorf("it waits: %+v", w)
		}
		logged("at first", `WARN msg="handler has begun to fail" handler=down failed_since=`+logTime(began.UnixMilli())+` err="status 75"`)
		time.Sleep(59 * time.Minute) // the bubble's time
		synctest.Wait()
		logged("in the first hour")
		time.Sleep(2 * time.Minute) // the bubble's time
		synctest.Wait()
		logged("after an hour", `WARN msg="handler still fails" handler=down failed_since=`+logTime(began.UnixMilli())+
			` failures=601 dead_letters=0 retrying=10 err="status 75"`)

		// One success ends it.
		works.Store(true)
		time.Sleep(time.Minute) // the bubble's time
		synctest.Wait()
		want("down", "well")
		logged("at the end", `INFO msg="handler works again" handler=down failed_since=`+logTime(began.UnixMilli())+
			` failures=620 dead_letters=0`)

		// A dead letter counts while it is kept.
		at := time.Since(began)
		dispatch("poison", "web1", "cpu")
		want("poison", fmt.Sprintf("since %s: 1 failures, 1 died", at))
		if w := b.waitingFor(t, "poison", 0); w.Died != 1 {
			t.Errorf("a handler for which nothing waits is left out: %+v", w)
		}
		letters, _, err := b.DeadLetters("default", "poison", "", 10)
		if err != nil || len(letters) != 1 {
			t.Fatal(letters, err)
		}
		if _, err := b.DeleteDeadLetters(t.Context(), "default", []string{letters[0].ID}, ""); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want("poison", "well")

		// An event about a failing handler is no failure, alone or in a group.
		works.Store(false)
		dispatch("down", resource.BackendEntity, FailingEvent+"down")
		want("down", "well")
		dispatch("rack", resource.BackendEntity, FailingEvents)
		time.Sleep(time.Minute) // the bubble's time
		synctest.Wait()
		want("rack", "well")
		dispatch("rack", "web1", "cpu")
		time.Sleep(10 * time.Minute) // the bubble's time
		synctest.Wait()
		if w := b.waitingFor(t, "rack", 0); w.FailingSince == 0 {
			t.Errorf("the group does not fail: %+v", w)
		}

		// A handler that was deleted, and defined again, begins anew.
		dispatch("down", "web1", "cpu")
		b.handlers.delete("default", "down")
		time.Sleep(2 * time.Minute) // the bubble's time
		synctest.Wait()
		for _, w := range b.Health() {
			if w.Handler == "down" {
				t.Errorf("a deleted handler is listed: %+v", w)
			}
		}
		b.handlers.put(down)
		want("down", "well")
	})
}

// TestHealthAfterRestart has a handler that failed before a restart, and fails on.
func TestHealthAfterRestart(t *testing.T) {
	q := &queue{d: &Dispatcher{}, name: resource.Name{Namespace: "default", Name: "hook"}}
	q.d.rare = setup(t, Options{}).rare
	q.retrying = 1
	is := func(when string, want int64) {
		t.Helper()
		var w delivery.Waiting
		if q.describeHealth(&w); w.FailingSince != want {
			t.Errorf("%s: it fails since %d, want %d", when, w.FailingSince, want)
		}
	}
	is("before the first attempt", 0)
	q.noteTurn(&outcome{errorText: "status 75"}, 1000, false)
	is("after the first", 1000)
	q.noteTurn(&outcome{delivered: true}, 0, false)
	is("after a success", 0)
	now := time.Now().UnixMilli()
	q.noteTurn(&outcome{errorText: "status 75"}, 1000, false)
	if q.health.failing < now {
		t.Errorf("a delivery that failed before the last success counts from its first attempt on: %d", q.health.failing)
	}
}

func TestJoinHealth(t *testing.T) {
	f := func(what string, want int64, of ...delivery.Waiting) {
		t.Helper()
		var lists [][]delivery.Waiting
		for _, w := range of {
			lists = append(lists, []delivery.Waiting{w})
		}
		if got := JoinWaiting(0, lists...); got[0].FailingSince != want {
			t.Errorf("%s: %+v, want since %d", what, got[0], want)
		}
	}
	well := delivery.Waiting{LastDelivered: 50}
	f("both fail", 10, delivery.Waiting{FailingSince: 20, Retrying: 1, LastFailed: 30},
		delivery.Waiting{FailingSince: 10, Retrying: 1, LastFailed: 40})
	f("one fails", 20, delivery.Waiting{FailingSince: 20, Retrying: 1, LastFailed: 30}, well)
	f("a dead letter after the last success", 60, delivery.Waiting{FailingSince: 60, Died: 1, LastFailed: 60}, well)
	f("a dead letter before the last success", 0, delivery.Waiting{FailingSince: 20, Died: 1, LastFailed: 30}, well)
}
