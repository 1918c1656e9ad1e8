package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/eventlog"
)

// held is a log of one partition that commits nothing until it is released. Appends only go into the buffer.
type held struct {
	*eventlog.Log
	t        *testing.T
	registry *prometheus.Registry
	release  func()
	step     func() // has one more batch written, and returns when the next one is held
	waiting  sync.WaitGroup
	blocked  int
}

func holdLog(t *testing.T, opts eventlog.Options) *held {
	h := &held{t: t, registry: prometheus.NewRegistry()}
	opts.Partitions, opts.MaxAhead, opts.Registerer, opts.FlushInterval = 1, 1, h.registry, 5*time.Millisecond
	l, _ := start(t, t.TempDir(), opts)
	h.Log = l
	at, release := make(chan struct{}, 100), make(chan struct{})
	stop := follow(t, l, 0, 1, func(uint64, []byte) {
		at <- struct{}{}
		<-release
	})
	h.step = func() {
		release <- struct{}{}
		<-at
	}
	h.release = sync.OnceFunc(func() { close(release) })
	t.Cleanup(func() {
		l.StopWaiting()
		h.release()
		stop()
	})
	if err := l.Append(event("e", "held", 0), nil, 0); err != nil {
		t.Fatal(err)
	}
	<-at
	return h
}

// appendLater starts an append and returns when it waits.
func (h *held) appendLater(r *eventlog.Record, acks *tally) <-chan error {
	h.t.Helper()
	acks.all.Add(1)
	return h.appendUntil(context.Background(), r, acks)
}

func (h *held) appendUntil(ctx context.Context, r *eventlog.Record, acks *tally) <-chan error {
	h.t.Helper()
	done := make(chan error, 1)
	h.waiting.Go(func() { done <- h.AppendContext(ctx, r, acks, uint64(r.Executed)) })
	h.blocked++
	for value(h.t, h.registry, "lapwing_eventlog_blocked_appends") != float64(h.blocked) {
		select {
		case err := <-done:
			h.t.Fatalf("record %d did not wait: %v", r.Executed, err)
		default:
			runtime.Gosched()
		}
	}
	return done
}

func (h *held) checks() (out []string) {
	h.t.Helper()
	for _, r := range read(h.t, h.Log, 0, 2) {
		if r.Check != "filler" {
			out = append(out, r.Check)
		}
	}
	return out
}

func keepalive(n int) *eventlog.Record {
	r := event("e", fmt.Sprint("keepalive", n), 1000+n)
	r.Flags |= eventlog.FlagKeepalive
	return r
}

func sized(r *eventlog.Record, size int) *eventlog.Record {
	r.Body = make([]byte, size)
	return r
}

// TestCancelledWaits: appends whose contexts end leave their queues, from any place in them. The others keep their
// order.
func TestCancelledWaits(t *testing.T) {
	h := holdLog(t, eventlog.Options{MaxPending: 4000})
	for h.TryAppend(event("e", "filler", 0), nil, 0) == nil {
	}
	var acks, none tally
	var want []string
	var cancelled []<-chan error
	ctx, cancel := context.WithCancel(t.Context())
	for n := range 9 {
		r := event("e", fmt.Sprint(n), n+1)
		if n%4 == 0 { // the first, one in the middle, and the last
			cancelled = append(cancelled, h.appendUntil(ctx, r, &none))
			continue
		}
		want = append(want, fmt.Sprint(n))
		h.appendLater(r, &acks)
	}
	cancel()
	for _, done := range cancelled {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled append: %v", err)
		}
	}
	if n := value(t, h.registry, "lapwing_eventlog_blocked_appends"); n != float64(len(want)) {
		t.Errorf("%v appends wait, want %d", n, len(want))
	}
	h.release()
	h.waiting.Wait()
	settled(t, &acks)
	if got := h.checks(); !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
	if !h.Room(0) {
		t.Error("no append waits, and there is no room")
	}
	if err := h.AppendContext(ctx, event("e", "late", 1), nil, 0); err != nil {
		t.Errorf("an append that need not wait: %v", err)
	}
}

// TestWaitersAreServedInOrder: waiting results, short or long, go on in order of arrival, and keepalives before them.
func TestWaitersAreServedInOrder(t *testing.T) {
	h := holdLog(t, eventlog.Options{MaxPending: 4000})
	var acks tally
	for h.TryAppend(event("e", "filler", 0), nil, 0) == nil {
	}
	var want []string
	for n := range 12 {
		size := 100
		if n%5 == 4 {
			size = 8000 // larger than the buffer
		}
		want = append(want, fmt.Sprint(n))
		h.appendLater(sized(event("e", fmt.Sprint(n), n+1), size), &acks)
	}
	for h.TryAppend(func() *eventlog.Record { r := keepalive(0); r.Check = "filler"; return r }(), nil, 0) == nil {
	}
	for n := range 3 {
		want = slices.Insert(want, n, fmt.Sprint("keepalive", n))
		h.appendLater(keepalive(n), &acks)
	}
	h.release()
	h.waiting.Wait()
	settled(t, &acks)
	if got := h.checks(); !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
	if !h.Room(0) {
		t.Error("no append waits, and there is no room")
	}
}

// TestResultsPassLargeRecords: while large records wait, there is room for results and keepalives, in the same batch
// if they fit. Large ones take half of the buffer at most.
func TestResultsPassLargeRecords(t *testing.T) {
	h := holdLog(t, eventlog.Options{MaxPending: 500_000})
	var acks tally
	add := func(r *eventlog.Record) {
		t.Helper()
		acks.all.Add(1)
		if err := h.TryAppend(r, &acks, uint64(r.Executed)); err != nil {
			t.Error(err)
		}
	}
	for n := range 3 {
		add(sized(event("e", fmt.Sprint("large", n), n), 100_000))
	}
	h.appendLater(sized(event("e", "large3", 3), 100_000), &acks)
	if err := h.TryAppend(sized(event("e", "large", 4), 100_000), nil, 0); !errors.Is(err, eventlog.ErrNoRoom) {
		t.Errorf("a large record past half of the buffer: %v", err)
	}
	if !h.Room(0) {
		t.Error("a large record waits, and results have no room")
	}
	if others, large := h.Waited(time.Now().Add(time.Hour)); others != 0 || large < time.Hour {
		t.Errorf("in an hour large records have waited %s, and others %s", large, others)
	}
	add(event("e", "small", 5))
	add(keepalive(1))
	h.release()
	h.waiting.Wait()
	settled(t, &acks)
	if got, want := h.checks(), []string{"large0", "large1", "large2", "small", "keepalive1", "large3"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

// TestHalfIsForThoseWhoDoNotWait: while more results wait than a batch takes, every batch has room for a result that
// does not wait.
func TestHalfIsForThoseWhoDoNotWait(t *testing.T) {
	h := holdLog(t, eventlog.Options{MaxPending: 4000})
	var acks tally
	for h.TryAppend(event("e", "filler", 0), nil, 0) == nil {
	}
	for n := range 60 {
		h.appendLater(sized(event("e", "waited", n+1), 100), &acks)
	}
	for n := range 3 {
		h.step()
		if value(t, h.registry, "lapwing_eventlog_blocked_appends") == 0 {
			t.Fatal("no result waits any more")
		}
		acks.all.Add(1)
		if err := h.TryAppend(event("e", "prompt", 1000+n), &acks, uint64(1000+n)); err != nil || !h.Room(0) {
			t.Errorf("after %d batches: %v, room %v", n+1, err, h.Room(0))
		}
	}
	h.release()
	h.waiting.Wait()
	settled(t, &acks)
}

// TestNoneIsStarved: every other batch may begin with a large record, and with a result if there is none. So records
// that fill a batch each do not block records of a later class.
func TestNoneIsStarved(t *testing.T) {
	h := holdLog(t, eventlog.Options{MaxPending: 4000})
	var acks tally
	for h.TryAppend(keepalive(0), nil, 0) == nil {
	}
	for n := range 2 {
		h.appendLater(sized(event("e", fmt.Sprint("large", n), n), 8_384_000), &acks)
	}
	for n := range 3 {
		h.appendLater(sized(event("e", fmt.Sprint("result", n), 10+n), 8000), &acks)
	}
	for n := 1; n < 5; n++ {
		h.appendLater(sized(keepalive(n), 60_000), &acks)
	}
	h.release()
	h.waiting.Wait()
	settled(t, &acks)
	got := slices.DeleteFunc(h.checks(), func(c string) bool { return c == "keepalive0" })
	want := []string{"keepalive1", "large0", "result0", "large1", "result1", "keepalive2", "result2", "keepalive3", "keepalive4"}
	if !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

// TestAllWaitersEnd: StopWaiting and Stop end every append that waits.
func TestAllWaitersEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(*held)
		want error
	}{
		"StopWaiting": {func(h *held) { h.StopWaiting() }, eventlog.ErrNoRoom},
		"Stop":        {func(h *held) { h.waiting.Go(func() { _ = h.Stop() }) }, eventlog.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			h := holdLog(t, eventlog.Options{MaxPending: 4000})
			var acks tally
			for h.TryAppend(keepalive(0), nil, 0) == nil {
			}
			var ended []<-chan error
			for n := range 3 {
				ended = append(ended, h.appendLater(event("e", "c", n), &acks), h.appendLater(keepalive(n), &acks))
			}
			tc.end(h)
			for i, done := range ended {
				select {
				case err := <-done:
					if !errors.Is(err, tc.want) {
						t.Errorf("append %d ended with %v", i, err)
					}
				case <-time.After(patience):
					t.Fatalf("append %d waits", i)
				}
			}
			h.release()
			h.waiting.Wait()
		})
	}
}
