package eventlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/eventlog"
)

func startBroker(t testing.TB, dir string) *broker.Broker {
	t.Helper()
	b, err := broker.New(broker.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

func start(t testing.TB, dir string, opts eventlog.Options) (*eventlog.Log, func()) {
	t.Helper()
	b := startBroker(t, dir)
	opts.Broker, opts.Dir, opts.Origin = b, dir, "test"
	l, err := eventlog.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	stop := func() { once.Do(func() { _ = l.Stop(); _ = b.Stop() }) }
	t.Cleanup(stop)
	return l, stop
}

// tally is an Acker that records its calls.
type tally struct {
	mu   sync.Mutex
	errs map[uint64]error
	all  sync.WaitGroup
}

func (a *tally) Logged(token uint64, _ int, _ uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.errs == nil {
		a.errs = map[uint64]error{}
	}
	if _, twice := a.errs[token]; twice {
		panic("answered twice")
	}
	a.errs[token] = err
	a.all.Done()
}

// count returns how many records are answered.
func (a *tally) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.errs)
}

func event(entity, check string, n int) *eventlog.Record {
	return &eventlog.Record{Kind: eventlog.KindEvent, Namespace: "default", Entity: entity, Check: check,
		Executed: int64(n), Status: uint32(n % 3), Body: []byte(fmt.Sprintf("body %d", n))}
}

// follow calls f with each message of a partition from one on, until stop, which waits for f.
func follow(t *testing.T, l *eventlog.Log, partition int, from uint64, f func(seq uint64, msg []byte)) (stop func()) {
	t.Helper()
	r, err := l.Reader(t.Context(), partition, from)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for {
			seq, msg, err := r.Next(ctx)
			if err != nil {
				return
			}
			f(seq, msg)
		}
	})
	return func() {
		cancel()
		done.Wait()
		r.Stop()
	}
}

// TestReader: a cancelled Next loses no message, and a reader's memory does not grow with what it has read.
func TestReader(t *testing.T) {
	l, _ := start(t, t.TempDir(), eventlog.Options{Partitions: 1, FlushInterval: time.Millisecond})
	r, err := l.Reader(t.Context(), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if seq, _, err := r.Next(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("message %d, %v, want the end of the context", seq, err)
	}
	goroutines := 0
	for n := range 50 {
		// The answer to an append comes only with the next call of Next.
		if err := l.Append(event("e", "c", n), nil, 0); err != nil {
			t.Fatal(err)
		}
		seq, msg, err := r.Next(t.Context())
		if err != nil || seq != uint64(n+1) || len(msg) == 0 {
			t.Fatalf("message %d of %d bytes, %v, want message %d", seq, len(msg), err, n+1)
		}
		if sum := l.ReadSum(); sum != uint64(n) {
			t.Fatalf("read up to %d while message %d is dealt with", sum, seq)
		}
		if n == 0 {
			goroutines = runtime.NumGoroutine()
		}
	}
	if now := runtime.NumGoroutine(); now > goroutines+20 {
		t.Errorf("%d goroutines after 50 messages, %d after the first", now, goroutines)
	}
	r.Stop()
	if seq, _, err := r.Next(t.Context()); !errors.Is(err, eventlog.ErrClosed) {
		t.Errorf("message %d, %v after Stop, want ErrClosed", seq, err)
	}
}

func read(t *testing.T, l *eventlog.Log, partition int, from uint64) []eventlog.Record {
	t.Helper()
	_, last, err := l.Bounds(t.Context(), partition)
	if err != nil {
		t.Fatal(err)
	}
	if last < from {
		return nil
	}
	var recs []eventlog.Record
	end := make(chan struct{})
	stop := follow(t, l, partition, from, func(seq uint64, msg []byte) {
		batch, err := eventlog.OpenBatch(bytes.Clone(msg), str)
		if err != nil {
			t.Error(err)
		}
		if batch.Origin != "test" {
			t.Errorf("message %d is of %q", seq, batch.Origin)
		}
		for {
			var r eventlog.Record
			more, err := batch.Next(&r, str)
			if err != nil {
				t.Error(err)
			}
			if !more {
				break
			}
			recs = append(recs, r)
		}
		if seq == last {
			close(end)
		}
	})
	<-end
	stop()
	return recs
}

// TestTheLogWaitsForItsFollower: no more is committed while the follower is too far behind, and everything afterwards.
func TestTheLogWaitsForItsFollower(t *testing.T) {
	const flush = 5 * time.Millisecond
	l, _ := start(t, t.TempDir(), eventlog.Options{Partitions: 1, FlushInterval: flush, MaxAhead: 1})
	at, release := make(chan uint64), make(chan struct{})
	stop := follow(t, l, 0, 1, func(seq uint64, _ []byte) {
		at <- seq
		<-release
	})
	var acks tally
	for n := range 3 {
		acks.all.Add(1)
		if err := l.Append(event("e", "c", n), &acks, uint64(n)); err != nil {
			t.Fatal(err)
		}
		if n > 0 { // long enough for a commit, if one were to come
			time.Sleep(10 * flush)
			if newest := l.Newest(0); newest != 1 {
				t.Fatalf("message %d was committed while the follower was at the first", newest)
			}
			continue
		}
		if seq := <-at; seq != 1 {
			t.Fatalf("first message is %d", seq)
		}
	}
	if answered := acks.count(); answered > 0 {
		t.Fatalf("%d records are answered while the follower is at the first message", answered)
	}
	close(release)
	if seq := <-at; seq != 2 {
		t.Fatalf("second message is %d", seq)
	}
	acks.all.Wait()
	stop()
}

// TestALongReplayKeepsItsConnection: a follower with much to read gets no more at a time than the broker may buffer.
func TestALongReplayKeepsItsConnection(t *testing.T) {
	b := startBroker(t, t.TempDir())
	t.Cleanup(func() { _ = b.Stop() })
	l, err := eventlog.New(eventlog.Options{Broker: b, Dir: t.TempDir(), Origin: "test", Partitions: 1, MaxBatch: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Stop() })
	const records = 100 // of a MiB each
	var acks tally
	acks.all.Add(records)
	for n := range records {
		r := event("e", "c", n)
		r.Body = make([]byte, 1<<20)
		if err := l.Append(r, &acks, uint64(n)); err != nil {
			t.Fatal(err)
		}
	}
	acks.all.Wait()
	if got := len(read(t, l, 0, 1)); got != records {
		t.Errorf("%d records came back", got)
	}
	if n := b.JetStream().Conn().Stats().Reconnects; n != 0 {
		t.Errorf("the connection to the broker was made anew %d times", n)
	}
}

func TestRecordsComeBackInOrderAfterARestart(t *testing.T) {
	dir := t.TempDir()
	l, stop := start(t, dir, eventlog.Options{Partitions: 3})
	var acks tally
	const each, entities = 200, 5
	acks.all.Add(each * entities)
	var senders sync.WaitGroup
	for e := range entities {
		senders.Go(func() {
			for i := range each {
				if err := l.Append(event(fmt.Sprint("e", e), "c", i), &acks, uint64(e*each+i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	senders.Wait()
	acks.all.Wait()
	for token, err := range acks.errs {
		if err != nil {
			t.Errorf("record %d: %v", token, err)
		}
	}
	stop()

	l, _ = start(t, dir, eventlog.Options{Partitions: 3})
	next := map[string]int64{}
	for p := range 3 {
		for _, r := range read(t, l, p, 1) {
			if r.Executed != next[r.Entity] || string(r.Body) != fmt.Sprintf("body %d", r.Executed) {
				t.Fatalf("%s: got %+v, want number %d", r.Entity, r, next[r.Entity])
			}
			if l.Partition(r.Namespace, r.Entity) != p {
				t.Fatalf("%s stands in partition %d", r.Entity, p)
			}
			next[r.Entity]++
		}
	}
	for e, n := range next {
		if n != each {
			t.Errorf("%s: %d records, want %d", e, n, each)
		}
	}
}

func TestTrimKeepsWhatIsAsked(t *testing.T) {
	l, _ := start(t, t.TempDir(), eventlog.Options{Partitions: 1})
	for i := range 50 {
		var acks tally
		acks.all.Add(1)
		_ = l.Append(event("e", "c", i), &acks, 0)
		acks.all.Wait()
	}
	_, last, _ := l.Bounds(t.Context(), 0)
	if err := l.Trim(t.Context(), 0, 20, 1); err != nil {
		t.Fatal(err)
	}
	if first, _, _ := l.Bounds(t.Context(), 0); first != 20 {
		t.Fatalf("first is %d after trimming below 20 of %d", first, last)
	}
	if err := l.Trim(t.Context(), 0, last, 1<<30); err != nil {
		t.Fatal(err)
	}
	if first, _, _ := l.Bounds(t.Context(), 0); first != 20 {
		t.Fatalf("first is %d: trimmed although all was to be kept", first)
	}
}

func TestFullDiskIsRefusedAndSaid(t *testing.T) {
	l, stop := start(t, t.TempDir(), eventlog.Options{Partitions: 1, MinFree: 1 << 62})
	if err := l.Err(); !errors.Is(err, eventlog.ErrDiskFull) {
		t.Fatalf("Err = %v, want ErrDiskFull", err)
	}
	var acks tally
	acks.all.Add(1)
	if err := l.Append(event("e", "c", 1), &acks, 7); err != nil {
		t.Fatal(err)
	}
	stop()
	acks.all.Wait()
	if err := acks.errs[7]; !errors.Is(err, eventlog.ErrClosed) {
		t.Fatalf("the record that never became durable was reported as %v", err)
	}
	if err := l.Append(event("e", "c", 1), nil, 0); !errors.Is(err, eventlog.ErrClosed) {
		t.Fatalf("append after stop: %v", err)
	}
}

func records() []eventlog.Record {
	return []eventlog.Record{
		{Kind: eventlog.KindEvent, Namespace: "n", Entity: "e", Check: "c"},
		{Kind: eventlog.KindEvent, Flags: eventlog.FlagFromAgent | eventlog.FlagHandlers, Received: 1700000000123,
			Namespace: "default", Entity: "web1", Check: "disk", Status: 4294967295, Executed: -5, LowFlap: 20, HighFlap: 60,
			MaxOutput: 100, Due: 1700000060000, Epoch: 1 << 63, Sequence: 99, Body: []byte("body")},
		{Kind: eventlog.KindEvent, Flags: eventlog.FlagDeadline, Namespace: "n", Entity: "e", Check: "keepalive", Basis: 1 << 40},
		{Kind: eventlog.KindEvent, Flags: eventlog.FlagSilenced | eventlog.FlagOnResolve | eventlog.FlagFromAgent, Namespace: "n", Entity: "e",
			Check: "c", Epoch: 1, OnResolve: []string{"*:c", "entity:e:*"}, Body: []byte("body")},
		{Kind: eventlog.KindEntity, Namespace: "n", Entity: "e", Body: bytes.Repeat([]byte("x"), 300)},
		{Kind: eventlog.KindDeleteEvent, Namespace: "n", Entity: "e", Check: "c"},
		{Kind: eventlog.KindDeleteEntity, Namespace: "n", Entity: "e"},
		{Kind: eventlog.KindDeliveries, Received: 1, Body: []byte("changes")},
	}
}

func str(b []byte) string { return string(b) }

func TestRecordRoundTripAndEveryCut(t *testing.T) {
	for _, want := range records() {
		b := eventlog.AppendRecord(nil, &want)
		var got eventlog.Record
		if err := eventlog.DecodeRecord(b, &got, str); err != nil {
			t.Fatalf("%+v: %v", want, err)
		}
		if !bytes.Equal(got.Body, want.Body) {
			t.Fatalf("body %q, want %q", got.Body, want.Body)
		}
		got.Body, want.Body = nil, nil
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		for n := range b {
			if err := eventlog.DecodeRecord(b[:n], &got, str); err == nil {
				t.Fatalf("%+v cut to %d of %d bytes was accepted", want, n, len(b))
			}
		}
		if err := eventlog.DecodeRecord(append(slices.Clone(b), 0), &got, str); err == nil {
			t.Fatal("a trailing byte was accepted")
		}
	}
}

func FuzzRecord(f *testing.F) {
	for _, r := range records() {
		f.Add(eventlog.AppendRecord(nil, &r))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r, again eventlog.Record
		if eventlog.DecodeRecord(b, &r, str) != nil {
			return
		}
		if err := eventlog.DecodeRecord(eventlog.AppendRecord(nil, &r), &again, str); err != nil {
			t.Fatalf("what was decoded does not decode again: %v", err)
		}
		if fmt.Sprint(r) != fmt.Sprint(again) {
			t.Fatalf("%+v became %+v", r, again)
		}
	})
}

func FuzzBatch(f *testing.F) {
	for _, msg := range batches() {
		f.Add(msg)
	}
	f.Add([]byte{1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, msg []byte) {
		batch, err := eventlog.OpenBatch(msg, str)
		if err != nil {
			return
		}
		for more := true; more; {
			var r eventlog.Record
			more, _ = batch.Next(&r, str) // an error is about one record
		}
	})
}
