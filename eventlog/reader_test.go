package eventlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapwing-monitoring/lapwing/broker/blocks"
	"github.com/lapwing-monitoring/lapwing/eventlog"
)

// follower records the bodies that it gets, by message.
type follower struct {
	t    *testing.T
	seqs []uint64
	got  [][]byte
	hold chan struct{} // if it is not nil, each message waits to receive from it
	came chan uint64
}

func (f *follower) follow(l *eventlog.Log, from uint64) (stop func()) {
	f.t.Helper()
	f.came = make(chan uint64, 1000)
	return follow(f.t, l, 0, from, func(seq uint64, msg []byte) {
		f.seqs = append(f.seqs, seq)
		f.came <- seq
		if f.hold != nil {
			<-f.hold
		}
		batch, err := eventlog.OpenBatch(msg, str)
		for err == nil {
			var more bool
			var r eventlog.Record
			if more, err = batch.Next(&r, str); !more {
				break
			}
			f.got = append(f.got, bytes.Clone(r.Body))
		}
		if err != nil {
			f.t.Errorf("message %d: %v", seq, err)
		}
	})
}

func (f *follower) wait(seq uint64) {
	for <-f.came != seq {
	}
}

func put(t *testing.T, l *eventlog.Log, body string) {
	t.Helper()
	var acks tally
	acks.all.Add(1)
	r := event("e", "c", 1)
	r.Body = []byte(body)
	if err := l.Append(r, &acks, 0); err != nil {
		t.Fatal(err)
	}
	acks.all.Wait()
}

// committed waits until a message is durable.
func committed(t *testing.T, l *eventlog.Log, seq uint64) {
	t.Helper()
	for deadline := time.Now().Add(patience); l.Newest(0) < seq; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("message %d is not committed", seq)
		}
	}
}

// TestFollowersChange: a follower that begins in the middle of the log gets each message once and in order, while more
// is written, whatever other followers there are or were.
func TestFollowersChange(t *testing.T) {
	l, _ := start(t, t.TempDir(), eventlog.Options{Partitions: 1, FlushInterval: time.Millisecond})
	var bodies [][]byte
	write := func(n int) {
		for range n {
			body := fmt.Sprintf("body %d %s", len(bodies), bytes.Repeat([]byte("x"), len(bodies)%7*100))
			bodies = append(bodies, []byte(body))
			put(t, l, body)
		}
	}
	write(5)
	for round := range 4 {
		from := uint64(1 + 3*round)
		first, second := follower{t: t}, follower{t: t}
		stop := first.follow(l, from)
		write(3)
		stopSecond := second.follow(l, from+1)
		write(4)
		first.wait(uint64(len(bodies)))
		second.wait(uint64(len(bodies)))
		stopSecond()
		write(2)
		first.wait(uint64(len(bodies)))
		stop()
		write(1)
		for name, f := range map[string]struct {
			*follower
			from uint64
			want [][]byte
		}{"first": {&first, from, bodies[from-1 : len(bodies)-1]}, "second": {&second, from + 1, bodies[from : len(bodies)-3]}} {
			if !slices.EqualFunc(f.got, f.want, bytes.Equal) {
				t.Errorf("round %d: the %s follower got %d bodies from %d on, want %d", round, name, len(f.got), f.from, len(f.want))
			}
			for i, seq := range f.seqs {
				if seq != f.from+uint64(i) {
					t.Fatalf("round %d: the %s follower got the messages %d", round, name, f.seqs)
				}
			}
		}
	}
}

// TestMessageIsTheFollowersUntilItReturns: the writer does not reuse the buffer of a message while the follower has
// it.
func TestMessageIsTheFollowersUntilItReturns(t *testing.T) {
	l, _ := start(t, t.TempDir(), eventlog.Options{Partitions: 1, FlushInterval: time.Millisecond})
	f := follower{t: t, hold: make(chan struct{})}
	stop := f.follow(l, 1)
	const n = 20
	var acks tally
	acks.all.Add(n)
	for i := range uint64(n) {
		r := event("e", "c", 1)
		r.Body = fmt.Append(nil, "message ", i+1)
		if err := l.Append(r, &acks, i); err != nil {
			t.Fatal(err)
		}
		committed(t, l, i+1)
		if i == 0 {
			f.wait(1)
		}
	}
	if answered := acks.count(); answered > 0 {
		t.Errorf("%d records are answered while the follower has the first message", answered)
	}
	close(f.hold)
	f.wait(n)
	acks.all.Wait() // for the last, because Next was called again
	stop()
	for i, body := range f.got {
		if want := fmt.Sprint("message ", i+1); string(body) != want {
			t.Errorf("message %d has %q, want %q", i+1, body, want)
		}
	}
	if len(f.got) != n {
		t.Errorf("%d messages, want %d", len(f.got), n)
	}
}

// TestMessagesOfAnotherWriter: messages that others wrote to the stream come in their place.
func TestMessagesOfAnotherWriter(t *testing.T) {
	b := startBroker(t, t.TempDir())
	var logs []*eventlog.Log
	for _, origin := range []string{"one", "another"} {
		l, err := eventlog.New(eventlog.Options{Broker: b, Dir: t.TempDir(), Origin: origin, Partitions: 1, FlushInterval: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		logs = append(logs, l)
	}
	t.Cleanup(func() {
		_, _, _ = logs[0].Stop(), logs[1].Stop(), b.Stop()
	})
	f := follower{t: t}
	stop := f.follow(logs[0], 1)
	var want []string
	for i, by := range []int{0, 0, 1, 1, 1, 0, 1, 0, 0} {
		want = append(want, fmt.Sprint("message ", i+1, " by ", by))
		put(t, logs[by], want[i])
	}
	f.wait(uint64(len(want)))
	stop()
	var got []string
	for _, body := range f.got {
		got = append(got, string(body))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestMissingMessages loses the last messages of the log and some in between. The reader refuses to pass over them,
// unless an operator accepted the loss. Then it goes on with the others, and with new ones.
func TestMissingMessages(t *testing.T) {
	b := startBroker(t, t.TempDir())
	t.Cleanup(func() { _ = b.Stop() })
	open := func(lost ...blocks.Range) *eventlog.Log {
		t.Helper()
		l, err := eventlog.New(eventlog.Options{
			Broker: b, Dir: t.TempDir(), Origin: "one", Partitions: 1, FlushInterval: time.Millisecond, Lost: [][]blocks.Range{lost},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Stop() })
		return l
	}
	l := open()
	for n := range 6 {
		put(t, l, fmt.Sprint("message ", n+1))
	}
	stream, err := b.JetStream().Stream(t.Context(), "EVENTLOG_0")
	if err != nil {
		t.Fatal(err)
	}
	for _, lost := range []uint64{2, 5, 6} {
		if err := stream.DeleteMsg(t.Context(), lost); err != nil {
			t.Fatal(err)
		}
	}
	_ = l.Stop()

	l = open(blocks.Range{From: 5, To: 6})
	r, err := l.Reader(t.Context(), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if seq, _, err := r.Next(t.Context()); err != nil || seq != 1 {
		t.Fatalf("message %d, %v, want the first", seq, err)
	}
	wantGap(t, blocks.Range{From: 2, To: 2})(r.Next(t.Context()))
	r.Stop()
	_ = l.Stop()

	l = open(blocks.Range{From: 2, To: 2}, blocks.Range{From: 5, To: 5})
	if r, err = l.Reader(t.Context(), 0, 3); err != nil {
		t.Fatal(err)
	}
	put7 := func(l *eventlog.Log) {
		t.Helper()
		if err := l.Append(event("e", "c", 7), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []uint64{3, 4} {
		if seq, _, err := r.Next(t.Context()); err != nil || seq != want {
			t.Fatalf("message %d, %v, want %d", seq, err, want)
		}
	}
	put7(l) // without it the log looks like one that ends with 4
	wantGap(t, blocks.Range{From: 5, To: 6})(r.Next(t.Context()))
	r.Stop()
	_ = l.Stop()

	l = open(blocks.Range{From: 2, To: 2}, blocks.Range{From: 5, To: 5}, blocks.Range{From: 6, To: 6})
	f := follower{t: t}
	stop := f.follow(l, 1)
	f.wait(7)
	put(t, l, "message 8")
	f.wait(8)
	stop()
	var got []string
	for _, body := range f.got {
		got = append(got, string(body))
	}
	if want := []string{"message 1", "message 3", "message 4", "body 7", "message 8"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}

	// The beginning is gone, or the log is empty, or it ends before the reader.
	for _, below := range []uint64{4, 9} {
		if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(below)); err != nil {
			t.Fatal(err)
		}
		_, err := l.Reader(t.Context(), 0, 1)
		wantGap(t, blocks.Range{From: 1, To: below - 1})(0, nil, err)
	}
	if _, err := l.Reader(t.Context(), 0, 10); err == nil || !strings.Contains(err.Error(), "ends at message 8") {
		t.Errorf("a reader behind the end: %v", err)
	}
	if r, err = l.Reader(t.Context(), 0, 9); err != nil {
		t.Fatal(err)
	}
	r.Stop()
}

// wantGap checks what Next returns for missing messages.
func wantGap(t *testing.T, missing blocks.Range) func(uint64, []byte, error) {
	t.Helper()
	return func(seq uint64, _ []byte, err error) {
		t.Helper()
		var gap *eventlog.GapError
		if !errors.As(err, &gap) || gap.Missing != missing {
			t.Fatalf("message %d, %v, want that %v are missing", seq, err, missing)
		}
	}
}

// TestFollowedLogIsNotKeptInMemory: JetStream reuses one block's buffer while new messages are not read from the
// stream.
func TestFollowedLogIsNotKeptInMemory(t *testing.T) {
	l, _ := start(t, t.TempDir(), eventlog.Options{Partitions: 1, FlushInterval: time.Millisecond})
	came := make(chan uint64, 1000)
	defer follow(t, l, 0, 1, func(seq uint64, _ []byte) { came <- seq })()
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	body := string(bytes.Repeat([]byte("0123456789abcdef"), 64<<10))
	const written, most = 96 << 20, 40 << 20
	for n := range written / len(body) {
		put(t, l, body)
		if seq := <-came; seq != uint64(n+1) {
			t.Fatalf("message %d came, want %d", seq, n+1)
		}
	}
	if now := heap(); now > before+most {
		t.Errorf("%d MiB of heap after %d MiB were written, %d MiB before", now>>20, written>>20, before>>20)
	}
}
