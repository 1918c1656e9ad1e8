package handler

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestAttemptsEndWithTheLease: when a backend may not act any more, its attempts end. They count for nothing, and are
// made again when it may.
func TestAttemptsEndWithTheLease(t *testing.T) {
	once, group := hook("a"), grouped("a")
	once.Retry, group.Retry = &resource.HandlerRetry{MaxAttempts: 1}, &resource.HandlerRetry{MaxAttempts: 1}
	for name, c := range map[string]struct {
		handler  *resource.Handler
		entities []string
	}{
		"alone":        {once, []string{"e"}},
		"merged":       {group, []string{"r-1", "r-2"}},
		"one by one":   {group, []string{"e"}},
		"of one check": {once, []string{"e1", "e2", "e3"}},
	} {
		t.Run(name, func(t *testing.T) {
			fakeTime(t, func(t *testing.T, db *pebble.DB) {
				var may atomic.Bool
				may.Store(true)
				b := setup(t, Options{DB: db, MayRun: may.Load}, c.handler)
				var begun, ended, sent atomic.Int32
				b.send = func(ctx context.Context, _ *resource.Handler, _ *delivery.Delivery, job send.Job) send.Result {
					if job.Attempt != 1 {
						t.Errorf("this is attempt %d", job.Attempt)
					}
					begun.Add(1)
					select {
					case <-ctx.Done():
						ended.Add(1)
						return send.Result{Err: ctx.Err(), Temporary: true}
					case <-time.After(20 * time.Second):
						sent.Add(1)
						return send.Result{Kind: send.KindOK}
					}
				}
				b.start(t)
				for i, entity := range c.entities {
					b.Dispatch(incident("a", i+1, entity))
				}
				time.Sleep(15 * time.Second) // the bubble's time: a group waits for 10 s
				under := begun.Load()
				if under == 0 || ended.Load() > 0 {
					t.Fatalf("%d attempts are under way, %d have ended", under, ended.Load())
				}
				may.Store(false)
				time.Sleep(time.Minute) // the bubble's time
				if begun.Load() != under || ended.Load() != under || sent.Load() != 0 {
					t.Errorf("without a lease %d of %d attempts ended, %d were sent, %d begun", ended.Load(), under, sent.Load(), begun.Load())
				}
				may.Store(true)
				b.finished.wait(len(c.entities))
				if ended.Load() != under || sent.Load() != under {
					t.Errorf("in the end %d attempts were ended, %d sent", ended.Load(), sent.Load())
				}
			})
		})
	}
}

// TestNoAttemptBehindALease: a backend that loses its lease between its decision and the attempt makes none.
func TestNoAttemptBehindALease(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		var asked atomic.Int32
		// The worker asks, and once more before the attempt: it stood still in between.
		b := setup(t, Options{DB: db, MayRun: func() bool { return asked.Add(1) != 2 }}, hook("a"))
		a := b.attempts(nil)
		b.start(t)
		b.Dispatch(incident("a", 1, "e"))
		synctest.Wait()
		if got := a.times("0-1-1/a"); len(got) != 0 {
			t.Errorf("it was tried at %v", got)
		}
		b.finished.wait(1)
		if got := a.times("0-1-1/a"); len(got) != 1 || got[0] == 0 {
			t.Errorf("it was tried at %v", got)
		}
	})
}
