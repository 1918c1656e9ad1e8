package eventlog_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/fields"
)

// version1 is a message that an earlier release wrote: an event of web1/disk and the removal of web2, both of b1.
const version1 = "01b8808000018401026231f6a1abfef9620764656661756c740477656231046469736b0209143cc801c0c9b2fef962" +
	"80000000000000006304626f64799a8080000400026231f8a1abfef9620764656661756c74047765623200006a80087f"

// sum ends a message with its checksum.
func sum(msg []byte) []byte {
	return binary.BigEndian.AppendUint32(bytes.Clone(msg), crc32.Checksum(msg, crc32.MakeTable(crc32.Castagnoli)))
}

// earlier returns the bytes of version1.
func earlier() []byte {
	msg, err := hex.DecodeString(version1)
	if err != nil {
		panic(err)
	}
	return msg
}

func batchV2(origin string, number uint64, records ...eventlog.Record) []byte {
	msg := append([]byte{2, byte(len(origin))}, origin...)
	msg = binary.AppendUvarint(msg, number)
	msg = append(msg, 3) // the roster
	for _, r := range records {
		record := eventlog.AppendRecord(nil, &r)
		msg = append(binary.AppendUvarint(msg, uint64(len(record))), record...)
	}
	return sum(msg)
}

// batches returns sound messages of both versions, and some that are damaged behind a sound frame.
func batches() [][]byte {
	return [][]byte{
		earlier(), batchV2("b1", 1<<60, records()...), batchV2("", 0), batchV2("b1", math.MaxUint64),
		sum([]byte{1}), sum([]byte{2}), sum([]byte{3}), sum([]byte{2, 200, 'x'}), sum([]byte{2, 1, 'x', 0xff}),
		sum([]byte{2, 1, 'x', 5, 0, 100, 1}), sum([]byte{1, 2, 1, 0}),
	}
}

// contents returns a message's header and records, and what of it cannot be read.
func contents(msg []byte) (h eventlog.Header, recs []eventlog.Record, err error) {
	batch, err := eventlog.OpenBatch(msg, str)
	if err != nil {
		return batch.Header, nil, err
	}
	for {
		var r eventlog.Record
		more, bad := batch.Next(&r, str)
		if !more {
			return batch.Header, recs, err
		}
		if bad != nil {
			err = errors.Join(err, bad)
			continue
		}
		recs = append(recs, r)
	}
}

func TestBatchOfAnEarlierRelease(t *testing.T) {
	h, recs, err := contents(earlier())
	if err != nil {
		t.Fatal(err)
	}
	if h != (eventlog.Header{Origin: "b1"}) {
		t.Errorf("header %+v, want an origin and no number", h)
	}
	want := records()[1]
	want.Status = 2
	gone := eventlog.Record{
		Kind: eventlog.KindDeleteEntity, Received: 1700000000124, Namespace: "default", Entity: "web2", Body: []byte{},
	}
	if got := fmt.Sprint(recs); got != fmt.Sprint([]eventlog.Record{want, gone}) {
		t.Errorf("got  %s\nwant %s", got, fmt.Sprint([]eventlog.Record{want, gone}))
	}
}

func TestBatch(t *testing.T) {
	h, recs, err := contents(batchV2("b1", 1<<60, records()...))
	if err != nil || h != (eventlog.Header{Origin: "b1", Number: 1 << 60, Roster: 3}) || len(recs) != len(records()) {
		t.Errorf("header %+v and %d records, %v", h, len(recs), err)
	}
	if h, recs, err = contents(batchV2("b1", 7)); err != nil || h.Number != 7 || len(recs) > 0 {
		t.Errorf("a batch without records: %+v, %d records, %v", h, len(recs), err)
	}
	for _, bad := range []string{"\x03", "\x02", "\x02\xc8x", "\x02\x01x\xff"} {
		if _, _, err := contents(sum([]byte(bad))); err == nil {
			t.Errorf("a message that begins with %q was opened", bad)
		}
	}
	msg := batchV2("b1", 7, records()...)
	for n := range msg {
		if _, _, err := contents(msg[:n]); err == nil {
			t.Fatalf("a message cut to %d of %d bytes was opened", n, len(msg))
		}
	}
	// A record that cannot be read does not hide the next one.
	record := eventlog.AppendRecord(nil, &records()[0])
	msg = append([]byte{2, 0, 1, 0, 1, 99, byte(len(record))}, record...)
	if _, recs, err = contents(sum(msg)); err == nil || len(recs) != 1 {
		t.Errorf("%d records, %v, want the second record and an error about the first", len(recs), err)
	}
}

// TestBatchesAreNumbered: the numbers of a partition go up, above NumberFrom and above the numbers of an earlier
// process.
func TestBatchesAreNumbered(t *testing.T) {
	dir := t.TempDir()
	l, stop := start(t, dir, eventlog.Options{Partitions: 1, FlushInterval: time.Millisecond})
	put(t, l, "one")
	put(t, l, "two")
	stop()
	l, stop = start(t, dir, eventlog.Options{Partitions: 1, FlushInterval: time.Millisecond})
	put(t, l, "three")
	stop()
	const far = 1 << 62 // as if the clock had been years ahead
	l, _ = start(t, dir, eventlog.Options{Partitions: 1, FlushInterval: time.Millisecond, Number: far - 1})
	l.NumberFrom(0, far)
	l.NumberFrom(0, 5)
	put(t, l, "four")
	put(t, l, "five")
	var numbers []uint64
	end := make(chan struct{})
	stopReader := follow(t, l, 0, 1, func(seq uint64, msg []byte) {
		h, _, err := contents(msg)
		if err != nil || h.Origin != "test" {
			t.Errorf("message %d is of %q, %v", seq, h.Origin, err)
		}
		if numbers = append(numbers, h.Number); seq == 5 {
			close(end)
		}
	})
	<-end
	stopReader()
	if !slices.IsSorted(numbers) || len(slices.Compact(slices.Clone(numbers))) != 5 {
		t.Errorf("the batches have the numbers %d", numbers)
	}
	// The next ones after far may be those of batches that the process before has under way.
	if numbers[3] < far+1000 || numbers[4] != numbers[3]+1 {
		t.Errorf("the last two have the numbers %d, want two behind a gap after %d", numbers[3:], far)
	}
}

// TestNewerBatch: a batch of the next version says so, a damaged one does not.
func TestNewerBatch(t *testing.T) {
	for version, newer := range map[byte]bool{0: false, 3: true} {
		msg := []byte{version, 1, 2, 3}
		msg = binary.BigEndian.AppendUint32(msg, crc32.Checksum(msg, crc32.MakeTable(crc32.Castagnoli)))
		_, err := eventlog.OpenBatch(msg, func(b []byte) string { return string(b) })
		if is := (*fields.NewerError)(nil); err == nil || errors.As(err, &is) != newer {
			t.Errorf("version %d: %v", version, err)
		}
	}
}

// TestStreamID: a stream keeps its id, and one that was lost and created anew has another. A stream without an id gets
// one.
func TestStreamID(t *testing.T) {
	b := startBroker(t, t.TempDir())
	t.Cleanup(func() { _ = b.Stop() })
	ids := func() [2]string {
		t.Helper()
		l, err := eventlog.New(eventlog.Options{Broker: b, Dir: t.TempDir(), Origin: "test", Partitions: 2})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Stop() }()
		put(t, l, "body")
		return [2]string{l.StreamID(0), l.StreamID(1)}
	}
	first := ids()
	if first[0] == "" || first[1] == "" || first[0] == first[1] {
		t.Errorf("the streams have the ids %q", first)
	}
	if again := ids(); again != first {
		t.Errorf("after a restart they have the ids %q, want %q", again, first)
	}
	if err := b.JetStream().DeleteStream(t.Context(), eventlog.Stored(0).Name); err != nil {
		t.Fatal(err)
	}
	anew := ids()
	if anew[0] == first[0] || anew[0] == "" || anew[1] != first[1] {
		t.Errorf("after one was lost they have the ids %q, before %q", anew, first)
	}
	stream, err := b.JetStream().Stream(t.Context(), eventlog.Stored(1).Name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	messages := stream.CachedInfo().State.Msgs
	cfg.Metadata = nil // as an earlier release leaves it
	if _, err := b.JetStream().UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	updated := ids()
	if updated[0] != anew[0] || updated[1] == "" || ids() != updated {
		t.Errorf("after the update they have the ids %q, before %q", updated, anew)
	}
	stream, err = b.JetStream().Stream(t.Context(), eventlog.Stored(1).Name)
	if err != nil || stream.CachedInfo().State.Msgs < messages {
		t.Errorf("the update left %d of %d messages, %v", stream.CachedInfo().State.Msgs, messages, err)
	}
}

// TestAnswersComeWhenTheReaderIsDone: a record is answered when its message is durable and the partition's reader has
// asked for the next one, or has stopped. Other readers answer nothing.
func TestAnswersComeWhenTheReaderIsDone(t *testing.T) {
	l, _ := start(t, t.TempDir(), eventlog.Options{Partitions: 1, FlushInterval: time.Millisecond})
	open := func() *eventlog.Reader {
		t.Helper()
		r, err := l.Reader(t.Context(), 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	next := func(r *eventlog.Reader, want uint64) {
		t.Helper()
		if seq, _, err := r.Next(t.Context()); err != nil || seq != want {
			t.Fatalf("message %d, %v, want %d", seq, err, want)
		}
	}
	first, second := open(), open()
	var acks tally
	acks.all.Add(3)
	for n := range uint64(3) {
		if err := l.Append(event("e", "c", int(n)), &acks, n); err != nil {
			t.Fatal(err)
		}
		committed(t, l, n+1)
	}
	for n := range uint64(3) {
		next(second, n+1)
	}
	second.Stop()
	if n := acks.count(); n != 0 {
		t.Errorf("%d records are answered before the reader has begun", n)
	}
	next(first, 1)
	if n := acks.count(); n != 0 {
		t.Errorf("%d records are answered while the reader has the first message", n)
	}
	next(first, 2)
	if n := acks.count(); n != 1 {
		t.Errorf("%d records are answered while the reader has the second message", n)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	next(first, 3)
	if _, _, err := first.Next(ended); err == nil || acks.count() != 3 {
		t.Errorf("%d records are answered when the reader waits, %v", acks.count(), err)
	}
	acks.all.Add(1)
	if err := l.Append(event("e", "c", 3), &acks, 3); err != nil {
		t.Fatal(err)
	}
	committed(t, l, 4)
	if n := acks.count(); n != 3 {
		t.Errorf("%d records are answered before the fourth was read", n)
	}
	first.Stop()
	put(t, l, "without a reader")
	settled(t, &acks)
}
