package fold_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/broker/blocks"
	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/fold"
	"github.com/lapwing-monitoring/lapwing/handler"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/oncall"
	"github.com/lapwing-monitoring/lapwing/pipeline"
	"github.com/lapwing-monitoring/lapwing/pipeline/workflow"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/silence"
	"github.com/lapwing-monitoring/lapwing/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a log and a database, on which a test opens folds.
type bench struct {
	t      testing.TB
	config *config.Store
	nats   *broker.Broker
	log    *eventlog.Log
	db     *pebble.DB
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{t: t}
	store, nats := testconfig.WithBroker(t)
	b.config, b.nats = store, nats
	var err error
	b.log, err = eventlog.New(eventlog.Options{
		Broker: nats, Dir: t.TempDir(), Origin: "here", Partitions: 1, FlushInterval: time.Millisecond, MinFree: 1,
	})
	b.check(err)
	b.check(b.log.Start(t.Context()))
	b.db, err = pebble.Open("", &pebble.Options{FS: vfs.NewMem()})
	b.check(err)
	t.Cleanup(func() {
		b.check(b.log.Stop())
		b.check(b.db.Close())
	})
	return b
}

func (b *bench) check(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// open starts a fold with a state.
func (b *bench) open(opts fold.Options) (*fold.Fold, *state.State, func()) {
	b.t.Helper()
	s, err := state.New(state.Options{
		Log: b.log, DB: b.db,
		Entity: func(string, string) (*resource.EntityConfig, bool) { return nil, false },
	})
	b.check(err)
	opts.Log, opts.State = b.log, s
	f, err := fold.New(opts)
	b.check(err)
	b.check(f.Start(b.t.Context()))
	return f, s, sync.OnceFunc(func() {
		b.check(f.Stop())
		b.check(s.Stop())
	})
}

type done chan uint64

func (d done) Logged(_ uint64, _ int, seq uint64, err error) {
	if err != nil {
		panic(err)
	}
	d <- seq
}

// event completes a record.
func (b *bench) event(r eventlog.Record) *eventlog.Record {
	r.Namespace = "default"
	if r.Kind == 0 {
		r.Kind = eventlog.KindEvent
		ev := resource.Event{Check: &resource.Check{
			Metadata: resource.ObjectMeta{Namespace: "default", Name: r.Check}, Status: r.Status, Executed: r.Executed,
			Handlers: []string{"h"},
		}}
		r.Flags |= eventlog.FlagHandlers
		r.Body = ev.AppendProto(nil)
	}
	return &r
}

// put appends a record in a message of its own, and waits until it is folded.
func (b *bench) put(s *state.State, r eventlog.Record) {
	b.t.Helper()
	d := make(done, 1)
	b.check(b.log.Append(b.event(r), d, 0))
	b.check(s.WaitFolded(b.t.Context(), 0, <-d))
}

// follower records what it gets.
type follower struct {
	name string
	mu   sync.Mutex
	got  []string
}

func (f *follower) Name() string { return f.name }

func (f *follower) Follow(a *state.Applied) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var is []string
	for word, holds := range map[string]bool{"deleted": a.Deleted, "stateless": a.Stateless, "incident": a.Incident} {
		if holds {
			is = append(is, word)
		}
	}
	slices.Sort(is)
	f.got = append(f.got, strings.TrimSpace(fmt.Sprintf("%d.%d %s/%s %s", a.Seq, a.Sub, a.Entity, a.Check, strings.Join(is, " "))))
}

// TestFollowers: followers get all changes in the order of the log, from every backend, and each once while the
// process lives.
func TestFollowers(t *testing.T) {
	b := newBench(t)
	registry := prometheus.NewRegistry()
	one, two := &follower{name: "one"}, &follower{name: "two"}
	f, s, stop := b.open(fold.Options{Followers: []fold.Follower{one, two}, Registerer: registry})
	tail := s.Tail(10)
	b.put(s, eventlog.Record{Entity: "a", Check: "x", Status: 2})
	b.put(s, eventlog.Record{Entity: "a", Check: "y"})
	b.put(s, eventlog.Record{Entity: "a", Check: "z", Flags: eventlog.FlagStateless, Status: 1})
	b.put(s, eventlog.Record{Kind: eventlog.KindDeleteEvent, Entity: "a", Check: "none"})
	b.put(s, eventlog.Record{Kind: eventlog.KindDeleteEntity, Entity: "a"})
	want := []string{
		"1.1 a/x incident", "2.1 a/y", "3.1 a/z incident stateless", "5.1 a/y deleted", "5.1 a/x deleted",
	}
	for _, follower := range []*follower{one, two} {
		if !slices.Equal(follower.got, want) {
			t.Errorf("%s got %q, want %q", follower.name, follower.got, want)
		}
	}
	if n := len(tail.C); n != 4 { // all but the one without state
		t.Errorf("the live feed has %d updates", n)
	}
	for name, at := range map[string]uint64{fold.RouterName: 5, "tails": 5, "one": 5, "two": 5, "nobody": 0} {
		if got := f.Position(name, 0); got != at {
			t.Errorf("%s is at %d, want %d", name, got, at)
		}
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP lapwing_fold_position Sequence number of the newest message that a follower of the fold has had since the start, by follower and partition.
# TYPE lapwing_fold_position gauge
lapwing_fold_position{follower="one",partition="0"} 5
lapwing_fold_position{follower="router",partition="0"} 5
lapwing_fold_position{follower="tails",partition="0"} 5
lapwing_fold_position{follower="two",partition="0"} 5
`), "lapwing_fold_position"); err != nil {
		t.Error(err)
	}
	if err := f.Start(t.Context()); err == nil {
		t.Error("started twice")
	}
	stop()

	// Another backend folds the rest, on the same database.
	again := &follower{name: "again"}
	_, s, stop = b.open(fold.Options{Followers: []fold.Follower{again}})
	defer stop()
	b.put(s, eventlog.Record{Entity: "b", Check: "x", Status: 2})
	if want := []string{"6.1 b/x incident"}; !slices.Equal(again.got, want) {
		t.Errorf("after the restart it got %q, want %q", again.got, want)
	}
}

// handlers returns a started dispatcher with the handler h and the router to it. Each delivery's id goes to handled.
func (b *bench) handlers() (handled chan string, handlers *handler.Dispatcher, router *pipeline.Router) {
	b.t.Helper()
	def := &resource.Handler{Metadata: resource.ObjectMeta{Namespace: "default", Name: "h"}, Type: "pipe", Command: "true"}
	b.check(config.Put(b.t.Context(), b.config, config.Handlers, def))
	handled = make(chan string, 10)
	sender, err := send.New(send.Options{Kinds: map[string]send.Kind{
		"pipe": func(_ context.Context, _ *resource.Handler, job send.Job) send.Result {
			handled <- job.ID
			return send.Result{}
		},
	}})
	b.check(err)
	workflows, err := workflow.New(workflow.Options{Config: b.config.Snapshot})
	b.check(err)
	handlers, err = handler.New(handler.Options{
		DB: b.db, Log: b.log, Origin: "here", Config: b.config.Snapshot, Workflows: workflows, Sender: sender,
		Present: func(_, _, _ string) (*resource.Event, error) { return nil, nil }, OnCall: oncall.New(b.config.Snapshot, calendar.New(nil)),
	})
	b.check(err)
	router, err = pipeline.New(pipeline.Options{Config: b.config.Snapshot, Workflows: workflows, Handlers: handlers})
	b.check(err)
	b.check(handlers.Start(b.t.Context()))
	return handled, handlers, router
}

// newDB replaces the database by an empty one.
func (b *bench) newDB() {
	b.t.Helper()
	b.check(b.db.Close())
	var err error
	b.db, err = pebble.Open("", &pebble.Options{FS: vfs.NewMem()})
	b.check(err)
}

// TestReplayRoutesWhatIsNotRecorded: a replay of the whole log routes only the events whose deliveries the log does not
// have, and only at its end.
func TestReplayRoutesWhatIsNotRecorded(t *testing.T) {
	b := newBench(t)
	handled, handlers, router := b.handlers()
	_, s, stop := b.open(fold.Options{Router: router, Handlers: handlers})
	b.put(s, eventlog.Record{Entity: "a", Check: "x", Status: 2, Executed: 1})
	if id := <-handled; id != "0-1-1/h" {
		t.Fatalf("handled is %s", id)
	}
	for deadline := time.Now().Add(time.Minute); b.log.Newest(0) < 2; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the delivery is not recorded in the log")
		}
	}
	b.check(handlers.Stop())
	stop()
	// Without a reader the log answers at once, and nothing is folded.
	missed := make(done, 1)
	b.check(b.log.Append(b.event(eventlog.Record{Entity: "b", Check: "x", Status: 2, Executed: 2}), missed, 0))
	seq := <-missed

	b.newDB()
	handled, handlers, router = b.handlers()
	_, s, stop = b.open(fold.Options{Router: router, Handlers: handlers})
	if id, want := <-handled, fmt.Sprintf("0-%d-1/h", seq); id != want {
		t.Errorf("the first that is handled after the replay is %s, want %s", id, want)
	}
	b.put(s, eventlog.Record{Entity: "c", Check: "x", Status: 2, Executed: 3})
	<-handled
	b.check(handlers.Stop())
	stop()
	if len(handled) > 0 {
		t.Errorf("%s is handled again", <-handled)
	}
}

// TestUnrecordedEventsAreRoutedAgain: the state does not pass an event whose deliveries the log does not have. The
// handlers are stopped when it comes, so it is as if the process were killed before they could record it.
func TestUnrecordedEventsAreRoutedAgain(t *testing.T) {
	b := newBench(t)
	handled, handlers, router := b.handlers()
	_, s, stop := b.open(fold.Options{Router: router, Handlers: handlers})
	b.put(s, eventlog.Record{Entity: "a", Check: "x", Status: 2, Executed: 1})
	<-handled
	b.check(handlers.Stop())
	unrecorded := b.log.Newest(0) + 1
	b.put(s, eventlog.Record{Entity: "a", Check: "x", Status: 2, Executed: 2})
	b.put(s, eventlog.Record{Entity: "b", Check: "x", Status: 2, Executed: 3})
	stop() // writes all that may be written
	next, err := state.StoredPosition(b.db, 0)
	if b.check(err); next > unrecorded {
		t.Errorf("a restart replays from message %d, and the log lacks the deliveries of %d", next, unrecorded)
	}
	for len(handled) > 0 {
		<-handled
	}
	handled, handlers, router = b.handlers()
	_, s, stop = b.open(fold.Options{Router: router, Handlers: handlers})
	ids := []string{<-handled, <-handled}
	slices.Sort(ids)
	if want := []string{fmt.Sprintf("0-%d-1/h", unrecorded), fmt.Sprintf("0-%d-1/h", unrecorded+1)}; !slices.Equal(ids, want) {
		t.Errorf("after the restart %q are handled, want %q", ids, want)
	}
	b.check(handlers.Stop()) // records them
	last := b.log.Newest(0)
	b.check(s.WaitFolded(t.Context(), 0, last))
	stop()
	if next, err = state.StoredPosition(b.db, 0); err != nil || next != last+1 {
		t.Errorf("with all deliveries recorded a restart replays from message %d, %v, want %d", next, err, last+1)
	}
}

// TestNumbersGoOn: the batches of this process have numbers above those in the log, even if the clock was put back.
func TestNumbersGoOn(t *testing.T) {
	b := newBench(t)
	earlier, err := eventlog.New(eventlog.Options{
		Broker: b.nats, Dir: t.TempDir(), Origin: "here", Partitions: 1, FlushInterval: time.Millisecond, MinFree: 1,
	})
	b.check(err)
	b.check(earlier.Start(t.Context()))
	earlier.NumberFrom(0, 1<<62)
	stored := make(done, 1)
	b.check(earlier.Append(b.event(eventlog.Record{Entity: "a", Check: "x"}), stored, 0))
	<-stored
	b.check(earlier.Stop())
	handled, handlers, router := b.handlers()
	_, s, stop := b.open(fold.Options{Router: router, Handlers: handlers})
	b.put(s, eventlog.Record{Entity: "a", Check: "x", Status: 2, Executed: 7})
	if ev, err := s.Event("default", "a", "x"); err != nil || ev.Check.Executed != 7 {
		t.Fatalf("the newest event is %v, %v", ev, err)
	}
	<-handled // of the first event, whose deliveries are not recorded
	<-handled
	b.check(handlers.Stop())
	stop()
}

// TestStartFails: a start whose log lacks messages ends with an error that names them.
func TestStartFails(t *testing.T) {
	b := newBench(t)
	_, s, stop := b.open(fold.Options{})
	for n := range int64(4) {
		b.put(s, eventlog.Record{Entity: "a", Check: "x", Executed: n})
	}
	stop()
	stream, err := b.nats.JetStream().Stream(t.Context(), "EVENTLOG_0")
	b.check(err)
	b.check(stream.DeleteMsg(t.Context(), 2))
	b.newDB()
	s, err = state.New(state.Options{
		Log: b.log, DB: b.db, Entity: func(string, string) (*resource.EntityConfig, bool) { return nil, false },
	})
	b.check(err)
	f, err := fold.New(fold.Options{Log: b.log, State: s, Failed: func(err error) { t.Errorf("it failed after the start: %v", err) }})
	b.check(err)
	var gap *eventlog.GapError
	if err := f.Start(t.Context()); !errors.As(err, &gap) || gap.Missing != (blocks.Range{From: 2, To: 2}) {
		t.Errorf("the start ended with %v", err)
	}
	b.check(f.Stop())
}

// TestQuietEventsSetOffNothing: the first message of the log was handled before its state was lost.
func TestQuietEventsSetOffNothing(t *testing.T) {
	b := newBench(t)
	handled, handlers, router := b.handlers()
	matcher := silence.NewMatcher(nil, nil)
	silences, err := silence.New(silence.Options{Config: b.config, Matcher: matcher})
	b.check(err)
	all := &follower{name: "all"}
	_, s, stop := b.open(fold.Options{
		Router: router, Handlers: handlers, Silences: silences, Quiet: []uint64{1}, Followers: []fold.Follower{all},
	})
	b.put(s, eventlog.Record{Entity: "a", Check: "x", Status: 2, Executed: 1})
	b.put(s, eventlog.Record{Entity: "a", Check: "x", Status: 2, Executed: 2})
	if id := <-handled; id != "0-2-1/h" {
		t.Errorf("the first that is handled is %s", id)
	}
	b.check(handlers.Stop())
	stop()
	if len(handled) != 0 || len(all.got) != 2 {
		t.Errorf("%d more are handled, and the follower got %q", len(handled), all.got)
	}
}

// TestNewerRelease: the fold stops at what only newer releases can read, and does not pass over it.
func TestNewerRelease(t *testing.T) {
	for name, r := range map[string]eventlog.Record{
		"kind":       {Kind: eventlog.KindRoster + 1, Entity: "a"},
		"flag":       {Kind: eventlog.KindEvent, Flags: eventlog.FlagOnResolve << 1, Entity: "a", Check: "y"},
		"deliveries": {Kind: eventlog.KindDeliveries, Body: []byte{9}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			_, handlers, router := b.handlers()
			failed := make(chan error, 1)
			opts := fold.Options{Handlers: handlers, Router: router, Failed: func(err error) { failed <- err }}
			_, s, stop := b.open(opts)
			b.put(s, eventlog.Record{Entity: "a", Check: "x"})
			r.Namespace = "default"
			b.check(b.log.AppendTo(t.Context(), 0, &r, nil, 0))
			newer := (*fields.NewerError)(nil)
			if err := <-failed; !errors.As(err, &newer) || !strings.Contains(err.Error(), "message 2 of partition 0") {
				t.Errorf("the fold ends with %v", err)
			}
			if at, _ := s.Folded(0); at != 1 {
				t.Errorf("message %d is folded", at)
			}
			stop()
			again, err := state.New(state.Options{
				Log: b.log, DB: b.db,
				Entity: func(string, string) (*resource.EntityConfig, bool) { return nil, false },
			})
			b.check(err)
			opts.Log, opts.State = b.log, again
			f, err := fold.New(opts)
			b.check(err)
			if err := f.Start(t.Context()); !errors.As(err, &newer) {
				t.Errorf("the next start: %v", err)
			}
			b.check(again.Stop())
		})
	}
}

// TestDatabaseFails: the fold stops at a record of deliveries that the database does not take, and passes over one that
// is damaged.
func TestDatabaseFails(t *testing.T) {
	b := newBench(t)
	fs := vfs.NewMem()
	made, err := pebble.Open("", &pebble.Options{FS: fs})
	b.check(err)
	b.check(made.Close())
	readOnly, err := pebble.Open("", &pebble.Options{FS: fs, ReadOnly: true})
	b.check(err)
	t.Cleanup(func() { b.check(readOnly.Close()) })
	own := b.db
	b.db = readOnly
	_, handlers, router := b.handlers()
	b.db = own
	failed := make(chan error, 1)
	_, s, stop := b.open(fold.Options{Handlers: handlers, Router: router, Failed: func(err error) { failed <- err }})
	damaged := eventlog.Record{Namespace: "default", Kind: eventlog.KindDeliveries, Body: []byte{1}}
	b.check(b.log.AppendTo(t.Context(), 0, &damaged, nil, 0))
	b.put(s, eventlog.Record{Entity: "a", Check: "x"}) // the handlers report that it is routed
	err = <-failed
	if !errors.Is(err, pebble.ErrReadOnly) {
		t.Errorf("the fold ends with %v", err)
	}
	stop()
}

func TestOptions(t *testing.T) {
	b := newBench(t)
	if _, err := fold.New(fold.Options{Log: b.log}); err == nil {
		t.Error("made without a state")
	}
	s, err := state.New(state.Options{
		Log: b.log, DB: b.db, Entity: func(string, string) (*resource.EntityConfig, bool) { return nil, false },
	})
	b.check(err)
	if _, err := fold.New(fold.Options{Log: b.log, State: s, Handlers: new(handler.Dispatcher)}); err == nil {
		t.Error("made with handlers and without a router")
	}
	for _, name := range []string{"", "tails", fold.RouterName} {
		if _, err := fold.New(fold.Options{Log: b.log, State: s, Followers: []fold.Follower{&follower{name: name}}}); err == nil {
			t.Errorf("made with a follower called %q", name)
		}
	}
	f, err := fold.New(fold.Options{Log: b.log, State: s})
	b.check(err)
	b.check(f.Stop()) // never started
}
