package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/ownevent"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// failingBed has handlers, how their deliveries go, and the events about them.
type failingBed struct {
	*handlerReports
	t *testing.T

	mu       sync.Mutex // guards the fields below
	snapshot *config.Snapshot
	list     []delivery.Waiting
	missing  []string
	kept     int
	acts     bool
	refuse   error
	status   map[string]uint32
	events   []string
}

func newFailingBed(t *testing.T, handlers ...string) *failingBed {
	b := &failingBed{t: t, acts: true, status: map[string]uint32{}}
	b.snapshot = config.With(config.Empty(), config.Namespaces, &resource.Namespace{Name: "default"})
	for _, name := range handlers {
		b.snapshot = config.With(b.snapshot, config.Handlers, &resource.Handler{
			Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, Type: "webhook",
		})
	}
	b.restart()
	t.Cleanup(func() { _ = b.Stop() })
	return b
}

// restart replaces the reports with those of another process.
func (b *failingBed) restart() {
	if b.handlerReports != nil {
		_ = b.Stop()
	}
	rare := rarelog.New(slog.New(slog.DiscardHandler))
	definitions := func() *config.Snapshot { b.mu.Lock(); defer b.mu.Unlock(); return b.snapshot }
	b.handlerReports = &handlerReports{
		after: 5 * time.Minute, snapshot: definitions, rare: rare, cancel: func() {},
		health: func(context.Context) ([]delivery.Waiting, []string, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return append([]delivery.Waiting(nil), b.list...), b.missing, nil
		},
		letters: func(resource.Name) int { b.mu.Lock(); defer b.mu.Unlock(); return b.kept },
		acts:    func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.acts },
		reporter: ownevent.New(ownevent.Options{
			One: "handler-failing-", Many: "handlers-failing", FewLeft: "few", Snapshot: definitions, State: b, Report: b.report, Rare: rare,
		}),
	}
	_ = b.Start(b.t.Context())
	synctest.Wait()
}

func (b *failingBed) report(_ context.Context, namespace, check string, status uint32, output string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse == nil {
		b.status[check] = status
		b.events = append(b.events, fmt.Sprintf("%s/%s %d %s", namespace, check, status, output))
	}
	return b.refuse
}

// PairsOf is part of the state.
func (b *failingBed) PairsOf(namespace, entity string) (pairs []state.Pair) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for check, status := range b.status {
		pairs = append(pairs, state.Pair{Namespace: namespace, Entity: entity, Check: check, Status: status})
	}
	return pairs
}

func (b *failingBed) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// is sets how the deliveries to the handler hook go.
func (b *failingBed) is(w delivery.Waiting) {
	w.Namespace, w.Handler = "default", "hook"
	b.set(func() { b.list = []delivery.Waiting{w} })
}

// passes waits and compares the events that were made since the last call, each with the begin of its text.
func (b *failingBed) passes(d time.Duration, when string, want ...string) {
	b.t.Helper()
	time.Sleep(d) // the bubble's time
	synctest.Wait()
	b.set(func() {
		same := len(b.events) == len(want)
		for i := 0; same && i < len(want); i++ {
			same = strings.HasPrefix(b.events[i], want[i])
		}
		if !same {
			b.t.Errorf("%s:\n%s\nwant:\n%s", when, strings.Join(b.events, "\n"), strings.Join(want, "\n"))
		}
		b.events = nil
	})
}

func ago(d time.Duration) int64 { return time.Now().Add(-d).UnixMilli() }

func TestHandlerReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFailingBed(t, "hook")
		const opens = "default/handler-failing-hook 2 Alerts do not get through: no delivery to the handler hook has succeeded since "
		fails := delivery.Waiting{FailingSince: ago(0), Failures: 7, Retrying: 2, Died: 1, LastFailed: ago(0), LastError: "status 503"}
		b.is(fails)
		b.passes(4*time.Minute, "it fails for less than the time")
		b.passes(time.Minute+10*time.Second, "it fails for longer", opens+ownevent.Clock(time.UnixMilli(fails.FailingSince))+
			". 7 attempts failed, 2 deliveries are tried again, 1 delivery gave up as dead letters. The last error: status 503. See ")
		fails.Failures, fails.LastError = 900, "status 500"
		b.is(fails)
		b.passes(24*time.Hour, "it fails on: no further event")

		// Another member, and the next process, go on.
		b.set(func() { b.acts = false })
		b.passes(time.Minute, "another member acts")
		b.set(func() { b.acts = true })
		b.passes(time.Minute, "this member acts again")
		b.is(delivery.Waiting{Retrying: 2})
		b.restart()
		b.passes(time.Hour, "after a restart no attempt was made yet")
		b.set(func() { b.list, b.kept = nil, 1 })
		b.passes(time.Hour, "nothing waits, and a dead letter is kept")
		b.is(delivery.Waiting{LastDelivered: ago(0)})
		b.set(func() { b.missing = []string{"b2"} })
		b.passes(time.Hour, "a member does not answer")
		b.set(func() { b.missing, b.refuse = nil, errors.New("the disk is full") })
		b.passes(time.Minute, "the event is refused")
		b.set(func() { b.refuse = nil })
		b.passes(time.Minute, "it works again", "default/handler-failing-hook 0 The handler hook works again: a delivery succeeded at "+
			ownevent.Clock(time.UnixMilli(b.list[0].LastDelivered))+". 1 dead letter is kept: "+
			"send them again with lapwing deadletter redrive --handler hook --newest --failing-only")
		b.passes(time.Hour, "it works on")

		// Nothing is left of it: the dead letters were deleted.
		b.is(delivery.Waiting{FailingSince: ago(time.Hour), LastFailed: ago(time.Hour), Died: 1})
		b.passes(time.Minute, "it fails again", opens)
		b.set(func() { b.kept = 0 })
		b.is(delivery.Waiting{LastFailed: ago(time.Hour)})
		b.passes(time.Minute, "the dead letter was deleted",
			"default/handler-failing-hook 0 No delivery that failed waits for the handler hook any more.")

		// The handler is deleted.
		b.is(delivery.Waiting{FailingSince: ago(time.Hour), Retrying: 1, LastFailed: ago(0)})
		b.passes(time.Minute, "it fails a third time", opens)
		b.set(func() {
			b.list = nil
			b.snapshot = config.With(config.Empty(), config.Namespaces, &resource.Namespace{Name: "default"})
		})
		b.passes(time.Minute, "it was deleted", "default/handler-failing-hook 0 The handler is not defined any more.")
	})
}

func TestManyHandlerReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var names []string
		for i := range ownevent.MostEvents + 1 {
			names = append(names, fmt.Sprintf("hook%02d", i))
		}
		b := newFailingBed(t, names...)
		fail := func(n int) {
			b.set(func() {
				b.list = nil
				for _, name := range names[:n] {
					b.list = append(b.list, delivery.Waiting{
						Namespace: "default", Handler: name, FailingSince: ago(time.Hour), Retrying: 1,
					})
				}
			})
		}
		fail(len(names))
		b.passes(time.Minute, "many fail",
			"default/handlers-failing 2 Alerts do not get through: deliveries to 21 handlers fail, and none succeeds: "+
				"hook00, hook01, hook02, hook03, hook04, hook05, hook06, hook07, hook08, hook09, and 11 more. See ")
		b.passes(time.Hour, "they fail on")
		fail(0)
		b.passes(time.Minute, "none fails", "default/handlers-failing 0 few")
	})
}

func TestNoHandlerReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFailingBed(t, "hook")
		b.is(delivery.Waiting{FailingSince: ago(time.Hour), Retrying: 1})
		b.passes(time.Minute, "it fails", "default/handler-failing-hook 2 ")
		_ = b.Stop()
		b.handlerReports.after = 0
		_ = b.Start(t.Context())
		b.passes(time.Minute, "events are switched off",
			"default/handler-failing-hook 0 The backend makes no events about failing handlers any more.")
		b.passes(time.Hour, "no more events")
	})
}
