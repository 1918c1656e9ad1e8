package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapwing-monitoring/lapwing/broker/blocks"
)

// numbers returns the messages of stream s from a number on, as Each brings them.
func numbers(t *testing.T, b *Broker, from uint64) (got []string) {
	t.Helper()
	err := b.Each(t.Context(), "s", from, func(m *Message) error {
		got = append(got, fmt.Sprintf("%d %s %s", m.Seq, m.Subject, m.Data))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestEach(t *testing.T) {
	b := startBroker(t)
	if got := numbers(t, b, 1); got != nil {
		t.Errorf("an empty stream has %v", got)
	}
	for n := range 5 {
		if _, err := b.JetStream().Publish(t.Context(), fmt.Sprint("s.", n), []byte{byte('a' + n)}); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"1 s.0 a", "2 s.1 b", "3 s.2 c", "4 s.3 d", "5 s.4 e"}
	if got := numbers(t, b, 0); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := numbers(t, b, 4), []string{"4 s.3 d", "5 s.4 e"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := numbers(t, b, 6); got != nil {
		t.Errorf("behind the end there are %v", got)
	}
	enough := errors.New("enough")
	if err := b.Each(t.Context(), "s", 1, func(*Message) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("an error of the caller: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := b.Each(ctx, "s", 1, func(*Message) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that is gone: %v", err)
	}
	if err := b.Each(t.Context(), "none", 1, func(*Message) error { return nil }); err == nil {
		t.Error("a stream that does not exist was read")
	}
}

// TestEachWhileWriting reads while a writer replaces values: the newest value of each subject that was there at the
// beginning must come.
func TestEachWhileWriting(t *testing.T) {
	b := startBroker(t)
	js := b.JetStream()
	cfg := jetstream.StreamConfig{Name: "keys", Subjects: []string{"keys.>"}, MaxMsgsPerSubject: 1}
	if _, err := js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	const keys = 500
	write := func(ctx context.Context, key, value int) error {
		_, err := js.Publish(ctx, fmt.Sprint("keys.", key), fmt.Append(nil, value))
		return err
	}
	for key := range keys {
		if err := write(t.Context(), key, 0); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for value := 1; ctx.Err() == nil; value++ {
			for key := 0; key < keys && ctx.Err() == nil; key += 7 {
				_ = write(ctx, key, value)
			}
		}
	}()
	for range 20 {
		seen := map[string]bool{}
		if err := b.Each(t.Context(), "keys", 1, func(m *Message) error { seen[m.Subject] = true; return nil }); err != nil {
			t.Fatal(err)
		}
		if len(seen) != keys {
			t.Errorf("%d keys came, want %d", len(seen), keys)
		}
	}
	cancel()
	<-ended
}

// fill fills a stream from a number on.
func fill(t *testing.T, b *Broker, stream string, first uint64, all ...string) {
	t.Helper()
	f, err := b.Fill(t.Context(), stream, first)
	for _, text := range all {
		if err == nil {
			err = f.Add(t.Context(), stream, []byte(text))
		}
	}
	if err == nil {
		err = f.Flush(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestFill fills a stream from a number on, and starts the broker again without the index that it writes at its stop:
// the numbers must go on, for an empty stream too.
func TestFill(t *testing.T) {
	dir := t.TempDir()
	run := func(f func(b *Broker)) {
		t.Helper()
		b, err := New(Options{Dir: dir, Unsynced: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		f(b)
		if err := b.Stop(); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"full", "empty"} {
			if err := os.Remove(blocks.IndexFile(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
	run(func(b *Broker) {
		for _, name := range []string{"full", "empty"} {
			cfg := jetstream.StreamConfig{Name: name, Subjects: []string{name}}
			if _, err := b.JetStream().CreateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			all := []string{"a", "b", "c", "d"}
			if name == "empty" {
				all = nil
			}
			fill(t, b, name, 1000, all[:len(all)/2]...)
			fill(t, b, name, 1000, all...)
		}
		if _, err := b.Fill(t.Context(), "full", 2000); err == nil {
			t.Error("a stream with a gap was filled")
		}
		f, err := b.Fill(t.Context(), "full", 1004)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.JetStream().Publish(t.Context(), "full", []byte("e")); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Add(t.Context(), "full", nil), f.Flush(t.Context())); err == nil {
			t.Error("a message got another number than it was to have, and nothing was said")
		}
	})
	run(func(b *Broker) {
		for name, want := range map[string]uint64{"full": 1006, "empty": 1000} {
			ack, err := b.JetStream().Publish(t.Context(), name, nil)
			if err != nil {
				t.Fatal(err)
			}
			if ack.Sequence != want {
				t.Errorf("the next message of the %s stream has number %d, want %d", name, ack.Sequence, want)
			}
		}
	})
	report, err := blocks.Check(dir, blocks.Stream{Name: "full", Subject: "full", Dense: true}, true, blocks.Mark{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Findings) > 0 || report.First != 1000 || report.Last != 1006 {
		t.Errorf("%s has %d to %d, %v", filepath.Base(report.Stream), report.First, report.Last, report.Findings)
	}
}
