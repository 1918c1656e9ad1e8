package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/longtest"
)

// stream returns a partition's stream.
func (b *bench) stream(partition int) jetstream.Stream {
	b.t.Helper()
	stream, err := b.nats.JetStream().Stream(b.t.Context(), eventlog.Stored(partition).Name)
	if err != nil {
		b.t.Fatal(err)
	}
	return stream
}

// store puts a message into a partition's stream, past the log's writer. The fold gets it with the writer's next one.
func (b *bench) store(partition int, msg []byte) {
	b.t.Helper()
	if _, err := b.nats.JetStream().Publish(b.t.Context(), eventlog.Stored(partition).Subject, msg); err != nil {
		b.t.Fatal(err)
	}
}

// repeat stores a message once more, as a writer does whose broker answered after it had forgotten the first one.
func (b *bench) repeat(partition int, seq uint64) {
	b.t.Helper()
	msg, err := b.stream(partition).GetMsg(b.t.Context(), seq)
	if err != nil {
		b.t.Fatal(err)
	}
	b.store(partition, msg.Data)
}

// batchV1 returns a message as earlier releases wrote it: without a number.
func (b *bench) batchV1(origin string, r eventlog.Record) []byte {
	b.complete(&r)
	record := eventlog.AppendRecord(nil, &r)
	_, n := binary.Uvarint(record[1:])
	v1 := append([]byte(nil), record[:1+n]...)
	v1 = append(v1, byte(len(origin)))
	v1 = append(append(v1, origin...), record[1+n:]...)
	msg := append(binary.AppendUvarint([]byte{1}, uint64(len(v1))), v1...)
	return binary.BigEndian.AppendUint32(msg, crc32.Checksum(msg, crc32.MakeTable(crc32.Castagnoli)))
}

// another opens the log as another backend, which only writes.
func (b *bench) another(origin string) *eventlog.Log {
	b.t.Helper()
	l, err := eventlog.New(eventlog.Options{
		Broker: b.nats, Dir: b.t.TempDir(), Origin: origin, Partitions: b.log.Partitions(), FlushInterval: time.Millisecond,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := l.Start(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = l.Stop() })
	return l
}

// results returns what the history of e/c says was executed.
func (b *bench) results() (executed []int64) {
	b.t.Helper()
	for _, h := range b.get("e", "c").History {
		executed = append(executed, h.Executed)
	}
	return executed
}

func (b *bench) wantResults(when string, want ...int64) {
	b.t.Helper()
	if got := b.results(); !slices.Equal(got, want) {
		b.t.Errorf("%s e/c has the results %v, want %v", when, got, want)
	}
}

func result(executed int64) eventlog.Record {
	return eventlog.Record{Entity: "e", Check: "c", Executed: executed}
}

// TestRepeatedBatchesCountOnce: a batch that the log has twice counts once, whether a replay begins before both, between
// them, or behind them. The broker's window of two minutes has no part in it: the repeats do not have the message's id.
func TestRepeatedBatchesCountOnce(t *testing.T) {
	b := newBench(t, 1)
	_ = b.state.Stop()
	registry := prometheus.NewRegistry()
	hour := func(o *Options) { o.WriteDelay = time.Hour }
	b.open(func(o *Options) { hour(o); o.Registerer = registry })
	b.put(result(1))
	b.put(result(2))
	b.repeat(0, 1)
	b.repeat(0, 2)
	b.put(result(3))
	b.wantResults("in the same process", 1, 2, 3)
	if n := gather(t, registry)["lapwing_eventlog_repeated_batches_total"]; n != 2 {
		t.Errorf("%v repeats are counted, want 2", n)
	}
	b.crash()
	b.open(hour)
	b.wantResults("after a replay from before the repeats", 1, 2, 3)
	p := b.state.parts[0]
	if _, err := p.writeSome(nowMilli() + 1); err != nil {
		t.Fatal(err)
	}
	b.repeat(0, 2)
	b.put(result(4))
	b.wantResults("after a write-back", 1, 2, 3, 4)
	b.crash()
	b.open(hour)
	b.wantResults("after a replay from between them", 1, 2, 3, 4)
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	b.open(hour)
	b.repeat(0, 3)
	b.put(result(5))
	b.wantResults("after a stop", 1, 2, 3, 4, 5)
	if n, want := b.state.Folder(0).Number("here"), p.origins.newest["here"]; n <= want {
		t.Errorf("the newest batch has number %d, before the stop it was %d", n, want)
	}
}

// TestRepeatsAfterAFailedCommit: the commit that failed was to begin the replay later than the one that succeeds.
func TestRepeatsAfterAFailedCommit(t *testing.T) {
	b := newBench(t, 1)
	_ = b.state.Stop()
	hour := func(o *Options) { o.WriteDelay = time.Hour }
	b.open(hour)
	b.put(result(1))
	b.put(result(2))
	b.failWriteBack(0)
	if _, err := b.state.parts[0].syncPosition(); err != nil {
		t.Fatal(err)
	}
	b.crash()
	b.open(hour)
	b.wantResults("after the crash", 1, 2)
	b.repeat(0, 2)
	b.put(result(3))
	b.wantResults("after a repeat", 1, 2, 3)
}

// failWriteBack gathers all that waits to be written, and does not commit it.
func (b *bench) failWriteBack(partition int) {
	b.t.Helper()
	p := b.state.parts[partition]
	p.storing.Lock()
	defer p.storing.Unlock()
	batch := b.db.NewBatch()
	defer func() { _ = batch.Close() }()
	items, err := p.gather(batch, nowMilli()+1)
	if err != nil {
		b.t.Fatal(err)
	}
	p.written(items, errors.New("the disk is full"))
}

// TestOriginsAreNumberedApart: two backends number their batches apart, and batches without a number always count.
func TestOriginsAreNumberedApart(t *testing.T) {
	b := newBench(t, 1)
	one, two := b.another("one"), b.another("two")
	two.NumberFrom(0, 1<<62) // far above the numbers of the others
	for n, l := range []*eventlog.Log{two, one, b.log, one, two} {
		b.putTo(l, result(int64(n+1)))
	}
	old := b.batchV1("one", result(6))
	b.store(0, old)
	b.store(0, old)
	b.repeat(0, 1)
	b.repeat(0, 2)
	b.put(result(7))
	b.wantResults("at first", 1, 2, 3, 4, 5, 6, 6, 7)
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	b.open(nil)
	b.repeat(0, 4)
	b.repeat(0, 5)
	b.putTo(one, result(8))
	b.put(result(9))
	b.wantResults("after a stop", 1, 2, 3, 4, 5, 6, 6, 7, 8, 9)
}

// putTo appends a record to the log, as one of several backends.
func (b *bench) putTo(l *eventlog.Log, r eventlog.Record) {
	b.t.Helper()
	if l == b.log {
		b.put(r)
		return
	}
	b.complete(&r)
	a := make(ack, 1)
	if err := l.Append(&r, a, 0); err != nil {
		b.t.Fatal(err)
	}
	<-a
}

// TestRandomRepeats plays results of two backends, repeats, write-backs that may fail, stops and crashes, and compares
// with a model.
func TestRandomRepeats(t *testing.T) {
	for seed := range uint64(longtest.Size(20, 6)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 13))
			b := newBench(t, 1)
			logs := []*eventlog.Log{b.log, b.another("there")}
			var want []int64
			for n := int64(1); n <= 150; n++ {
				switch k := random.IntN(100); {
				case k < 50 || n < 3:
					b.putTo(logs[random.IntN(2)], result(n))
					want = append(want, n)
				case k < 55:
					b.store(0, b.batchV1("here", result(n)))
					want = append(want, n)
				case k < 75:
					if seq, repeated := b.numbered(random); repeated {
						b.repeat(0, seq)
					}
				case k < 82:
					if _, err := b.state.parts[0].writeSome(nowMilli() - int64(random.IntN(3))); err != nil {
						t.Fatal(err)
					}
				case k < 86:
					b.failWriteBack(0)
				case k < 90:
					if _, err := b.state.parts[0].syncPosition(); err != nil {
						t.Fatal(err)
					}
				case k < 97:
					b.crash()
					b.open(nil)
				default:
					if err := b.state.Stop(); err != nil {
						t.Fatal(err)
					}
					b.open(nil)
				}
			}
			b.put(result(1000)) // with it the fold gets what else is in the stream
			want = append(want, 1000)
			want = want[max(0, len(want)-historyLen):]
			b.wantResults("at the end", want...)
			b.crash()
			b.open(nil)
			b.wantResults("after a crash", want...)
		})
	}
}

// numbered chooses a message of the log that has a number.
func (b *bench) numbered(random *rand.Rand) (seq uint64, ok bool) {
	b.t.Helper()
	info, err := b.stream(0).Info(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	seq = 1 + random.Uint64N(info.State.LastSeq)
	msg, err := b.stream(0).GetMsg(b.t.Context(), seq)
	if err != nil {
		b.t.Fatal(err)
	}
	batch, err := eventlog.OpenBatch(msg.Data, func(s []byte) string { return string(s) })
	if err != nil {
		b.t.Fatal(err)
	}
	return seq, batch.Number > 0
}

// TestStreamOfAnotherLog: the state refuses a log that is not the one that it has read, until an operator accepts it.
func TestStreamOfAnotherLog(t *testing.T) {
	b := newBench(t, 2)
	b.put(result(1))
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	partition := b.log.Partition("default", "e")
	known, err := StoredStream(b.db, partition)
	if err != nil || known != b.log.StreamID(partition) {
		t.Fatalf("the stored stream is %q, %v, want %q", known, err, b.log.StreamID(partition))
	}
	load := func() error {
		s, err := New(Options{Log: b.log, DB: b.db, Entity: b.state.opts.Entity})
		if err != nil {
			t.Fatal(err)
		}
		return s.Load(t.Context())
	}
	if err := load(); err != nil {
		t.Errorf("the same log: %v", err)
	}
	if err := b.db.Set(streamKey(partition), []byte("ANOTHER"), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	var other *OtherStreamError
	if err := load(); !errors.As(err, &other) || *other != (OtherStreamError{partition, "ANOTHER", known}) {
		t.Errorf("another log: %v", err)
	}
	if err := AcceptStream(b.db, partition); err != nil {
		t.Fatal(err)
	}
	b.open(nil) // also a database of an earlier release has no id
	b.put(result(2))
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	if id, err := StoredStream(b.db, partition); err != nil || id != known {
		t.Errorf("afterwards the stored stream is %q, %v, want %q", id, err, known)
	}
	b.open(nil)
}
