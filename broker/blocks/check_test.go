package blocks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/broker/blocks"
)

// The broker makes its smallest blocks, of 32,000 bytes, for a stream with this bound. So there are two messages in a block, the
// tests read little, and nothing is removed.
const (
	streamMessages = 8
	messageBytes   = 12 << 10
	streamBytes    = 125_000
)

var shape = blocks.Stream{Name: "log", Subject: "log", Dense: true}

// run starts a broker on a directory while f runs.
func run(t *testing.T, dir string, f func(jetstream.Stream, *broker.Broker)) {
	t.Helper()
	b, err := broker.New(broker.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := b.JetStream().CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{
		Name: "log", Subjects: []string{"log"}, Storage: jetstream.FileStorage, MaxBytes: streamBytes,
	})
	if err != nil {
		t.Fatal(err)
	}
	f(s, b)
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
}

// filled is the directory of a broker with a stream of several blocks, and its mark.
func filled(t *testing.T) (dir string, mark blocks.Mark) {
	t.Helper()
	dir = t.TempDir()
	run(t, dir, func(_ jetstream.Stream, b *broker.Broker) {
		for range streamMessages {
			ack, err := b.JetStream().Publish(t.Context(), "log", make([]byte, messageBytes))
			if err != nil {
				t.Fatal(err)
			}
			mark.Last = ack.Sequence
		}
	})
	mark.First = 1
	return dir, mark
}

func blockFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(blocks.StreamDir(dir, "log"), "msgs", "*.blk"))
	if err != nil || len(files) < 3 {
		t.Fatalf("blocks %q: %v", files, err)
	}
	slices.Sort(files)
	return files
}

// TestDamagedBlocks damages each block of a stream, repairs it, and lets the broker read what is left.
func TestDamagedBlocks(t *testing.T) {
	whole, mark := filled(t)
	for _, harm := range []struct {
		name string
		do   func(path string, size int64) error
	}{
		{"deleted", func(path string, _ int64) error { return os.Remove(path) }},
		{"emptied", func(path string, _ int64) error { return os.Truncate(path, 0) }},
		{"cut", func(path string, size int64) error { return os.Truncate(path, size/2) }},
		{"number", func(path string, _ int64) error { return flip(path, 10) }},
		{"length", func(path string, _ int64) error { return flip(path, 1) }},
		{"subject's length", func(path string, _ int64) error { return flip(path, 20) }},
		{"last byte", func(path string, size int64) error { return flip(path, size-1) }},
	} {
		for n := range 3 {
			t.Run(fmt.Sprintf("%s/%d", harm.name, n), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "broker")
				if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
					t.Fatal(err)
				}
				files := blockFiles(t, dir)
				path := files[n*(len(files)-1)/2]
				st, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := harm.do(path, st.Size()); err != nil {
					t.Fatal(err)
				}
				r, err := blocks.Check(dir, shape, true, mark, nil)
				if err != nil {
					t.Fatal(err)
				}
				lost := map[uint64]bool{}
				for _, f := range r.Findings {
					if f.Severity == blocks.Lost {
						for seq := f.Missing.From; seq <= f.Missing.To; seq++ {
							lost[seq] = true
						}
					}
				}
				if len(lost) == 0 {
					t.Fatalf("nothing is said to be lost: %+v", r.Findings)
				}
				accepted, err := blocks.Repair(r, shape, mark, 0, filepath.Join(t.TempDir(), "aside"))
				if err != nil {
					t.Fatal(err)
				}
				again, err := blocks.Check(dir, shape, true, mark, accepted)
				if err != nil || len(again.Findings) > 0 {
					t.Fatalf("after the repair: %+v, %v", again.Findings, err)
				}
				run(t, dir, func(s jetstream.Stream, b *broker.Broker) {
					for seq := uint64(1); seq <= streamMessages; seq++ {
						if _, err := s.GetMsg(t.Context(), seq); (err != nil) != lost[seq] {
							t.Errorf("message %d: %v; said to be lost: %v", seq, err, lost[seq])
						}
					}
					ack, err := b.JetStream().Publish(t.Context(), "log", []byte("next"))
					if err != nil || ack.Sequence != streamMessages+1 {
						t.Errorf("the next message: %+v, %v", ack, err)
					}
				})
			})
		}
	}
}

func flip(path string, at int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		return err
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b[:], at); err != nil {
		return err
	}
	return f.Close()
}

// TestUnfinishedWrite cuts the newest message as a kill may: it was not acknowledged, so it is no loss.
func TestUnfinishedWrite(t *testing.T) {
	dir, mark := filled(t)
	mark.Last-- // the last one was not acknowledged
	files := blockFiles(t, dir)
	last := files[len(files)-1]
	st, err := os.Stat(last)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(last, st.Size()-100); err != nil {
		t.Fatal(err)
	}
	r, err := blocks.Check(dir, shape, true, mark, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Lost() || len(r.Findings) != 1 || r.Findings[0].Severity != blocks.Unfinished {
		t.Fatalf("got %+v", r.Findings)
	}
	if err := blocks.Tidy(r, true, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if r, err = blocks.Check(dir, shape, true, mark, nil); err != nil || len(r.Findings) > 0 {
		t.Fatalf("after it was cut off: %+v, %v", r.Findings, err)
	}
}

// BenchmarkCheck reads a stream whose files are in memory.
func BenchmarkCheck(b *testing.B) {
	dir := b.TempDir()
	br, err := broker.New(broker.Options{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	if err := br.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	if _, err := br.JetStream().CreateStream(b.Context(), jetstream.StreamConfig{Name: "log", Subjects: []string{"log"}}); err != nil {
		b.Fatal(err)
	}
	const size, messages = 256 << 10, 1024
	for range messages {
		if _, err := br.JetStream().Publish(b.Context(), "log", make([]byte, size)); err != nil {
			b.Fatal(err)
		}
	}
	if err := br.Stop(); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size * messages)
	for b.Loop() {
		if _, err := blocks.Check(dir, shape, true, blocks.Mark{}, nil); err != nil {
			b.Fatal(err)
		}
	}
}
