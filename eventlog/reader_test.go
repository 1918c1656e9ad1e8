package eventlog_test

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/broker"
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
		batch, err := eventlog.OpenBatch(msg)
		for err == nil {
			var b []byte
			if b, err = batch.Next(); b == nil {
				break
			}
			var r eventlog.Record
			if err = eventlog.DecodeRecord(b, &r, str); err == nil {
				f.got = append(f.got, bytes.Clone(r.Body))
			}
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
	for i := range n {
		put(t, l, fmt.Sprint("message ", i+1))
		if i == 0 {
			f.wait(1)
		}
	}
	close(f.hold)
	f.wait(n)
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
	b, err := broker.New(broker.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
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

// TestLostMessagesAreSkipped loses the last messages of the log and some in between, as a repair may. The reader goes on
// with the others, and with new ones.
func TestLostMessagesAreSkipped(t *testing.T) {
	b, err := broker.New(broker.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := eventlog.New(eventlog.Options{Broker: b, Dir: t.TempDir(), Origin: "one", Partitions: 1, FlushInterval: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = l.Stop(), b.Stop() })
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
	f := follower{t: t}
	stop := f.follow(l, 1)
	f.wait(4)
	put(t, l, "message 7")
	put(t, l, "message 8")
	f.wait(8)
	stop()
	var got []string
	for _, body := range f.got {
		got = append(got, string(body))
	}
	if want := []string{"message 1", "message 3", "message 4", "message 7", "message 8"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
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
