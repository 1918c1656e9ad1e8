package backend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/broker/blocks"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestOtherStream puts the event log of another backend into a state directory, shorter and longer than its own. The
// backend waits for a repair, which accepts the other log: the events that come then are folded, over restarts.
func TestOtherStream(t *testing.T) {
	for _, other := range []int{0, 1, 3, 10} {
		t.Run(fmt.Sprint(other), func(t *testing.T) {
			t.Parallel()
			opts, donor := quickOptions(t), quickOptions(t)
			opts.Log.Partitions, donor.Log.Partitions = 1, 1
			writeEvents(t, opts, 3)
			writeEvents(t, donor, other)
			takeStream(t, opts, donor)

			if text := waits(t, opts); !strings.Contains(text, "event log partition 0: this is another stream") {
				t.Errorf("it waits for %q", text)
			}
			s, err := Verify(opts)
			if err != nil || len(s.Lost()) == 0 {
				t.Fatalf("verify found %v, %v", s.Findings, err)
			}
			done, err := Repair(opts, RepairOptions{})
			if err != nil || len(done.Lost) == 0 {
				t.Fatalf("the repair did %+v, %v", done, err)
			}
			for range 2 {
				writeEvents(t, opts, 2)
				if s, err := Verify(opts); err != nil || len(s.Findings) > 0 {
					t.Errorf("afterwards it found %v, %v", s.Findings, err)
				}
			}
		})
	}
}

// TestStreamWithoutDescription: the id of a stream is in its description, which can be made anew.
func TestStreamWithoutDescription(t *testing.T) {
	opts := quickOptions(t)
	opts.Log.Partitions = 1
	writeEvents(t, opts, 3)
	dir := &stateDir{path: opts.StateDir}
	if err := os.Remove(blocks.MetaFile(dir.broker(), eventlog.Stored(0).Name)); err != nil {
		t.Fatal(err)
	}
	writeEvents(t, opts, 3)
	if s, err := Verify(opts); err != nil || len(s.Findings) > 0 {
		t.Errorf("afterwards it found %v, %v", s.Findings, err)
	}
	writeEvents(t, opts, 3)
}

// TestStreamOfAnEarlierRelease: earlier releases gave streams no id, and take it away.
func TestStreamOfAnEarlierRelease(t *testing.T) {
	opts := quickOptions(t)
	opts.Log.Partitions = 1
	writeEvents(t, opts, 3)
	dir := &stateDir{path: opts.StateDir}
	b, err := broker.New(broker.Options{Dir: dir.broker()})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stream, err := b.JetStream().Stream(t.Context(), eventlog.Stored(0).Name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.Metadata = nil
	_, err = b.JetStream().UpdateStream(t.Context(), cfg)
	if err := errors.Join(err, b.Stop()); err != nil {
		t.Fatal(err)
	}
	writeEvents(t, opts, 3)
	writeEvents(t, opts, 3)
}

// TestNewerStateDirectory: a state directory that a newer release has written is refused. One of a release that wrote no
// format gets it.
func TestNewerStateDirectory(t *testing.T) {
	opts := quickOptions(t)
	writeEvents(t, opts, 1)
	dir := &stateDir{path: opts.StateDir}
	var id identity
	set := func(format int) {
		t.Helper()
		id.Format = format
		if err := writeSealed(dir.identity(), &id); err != nil {
			t.Fatal(err)
		}
	}
	if err := readSealed(dir.identity(), &id); err != nil || id.Format != stateFormat {
		t.Fatalf("the directory has format %d, %v", id.Format, err)
	}
	set(stateFormat + 1)
	b, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(b.Start(t.Context()), b.Stop(t.Context()))
	if newer := (*fields.NewerError)(nil); !errors.As(err, &newer) || newer.Got != stateFormat+1 {
		t.Errorf("the start of an older release: %v", err)
	}
	set(0)
	writeEvents(t, opts, 1)
	if err := readSealed(dir.identity(), &id); err != nil || id.Format != stateFormat {
		t.Errorf("the directory has format %d, %v", id.Format, err)
	}
}

// TestBatchesOfAStart: a start gives its batches numbers above those of all earlier starts, also if the clock was set
// back since and the newest batches of the earlier ones are not in the log yet.
func TestBatchesOfAStart(t *testing.T) {
	opts := quickOptions(t)
	opts.Log.Partitions = 1
	writeEvents(t, opts, 1)
	dir := &stateDir{path: opts.StateDir}
	var id identity
	if err := readSealed(dir.identity(), &id); err != nil || id.Batches == 0 {
		t.Fatalf("the numbers are %d, %v", id.Batches, err)
	}
	const ahead = 1 << 62
	id.Batches = ahead
	if err := writeSealed(dir.identity(), &id); err != nil {
		t.Fatal(err)
	}
	for starts := uint64(1); starts <= 2; starts++ {
		b := started(t, opts)
		putEvents(t, b, 1)
		got := b.running.state.Folder(0).Number(b.running.log.Origin())
		if want := ahead + starts*batchesPerStart; got <= want || got > want+100 {
			t.Errorf("at start %d the newest batch has number %d, want one soon after %d", starts, got, want)
		}
		if err := b.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// takeStream replaces the stream of a state directory by that of another.
func takeStream(t *testing.T, opts, donor Options) {
	t.Helper()
	name := eventlog.Stored(0).Name
	mine, other := (&stateDir{path: opts.StateDir}).broker(), (&stateDir{path: donor.StateDir}).broker()
	mark, _, err := blocks.ReadMark(other, name)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.RemoveAll(blocks.StreamDir(mine, name)),
		os.CopyFS(blocks.StreamDir(mine, name), os.DirFS(blocks.StreamDir(other, name))),
		blocks.WriteMark(mine, name, mark),
		os.Remove(filepath.Join(opts.StateDir, "files")), // it would show that the mark is not the noted one
		writeSealed((&stateDir{path: opts.StateDir}).files(), &stopRecord{}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

type logged chan error

func (l logged) Logged(_ uint64, _ int, _ uint64, err error) { l <- err }

// writeEvents starts a backend, has it fold events, one a message, and stops it.
func writeEvents(t *testing.T, opts Options, events int) {
	t.Helper()
	b := started(t, opts)
	putEvents(t, b, events)
	if err := b.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// putEvents has a backend fold events, one a message.
func putEvents(t *testing.T, b *Backend, events int) {
	t.Helper()
	for n := range events {
		ev := resource.Event{Check: &resource.Check{
			Metadata: resource.ObjectMeta{Name: "c", Namespace: "default"}, Executed: int64(n),
		}}
		done := make(logged, 1)
		rec := eventlog.Record{
			Kind: eventlog.KindEvent, Namespace: "default", Entity: "e", Check: "c", Executed: int64(n), Body: ev.AppendProto(nil),
		}
		if err := errors.Join(b.running.log.Append(&rec, done, 0), <-done); err != nil {
			t.Fatal(err)
		}
	}
	if events > 0 {
		ev, err := b.running.state.Event("default", "e", "c")
		if err != nil || ev.Check.History[len(ev.Check.History)-1].Executed != int64(events-1) {
			t.Errorf("the newest event is not folded: %v, %v", ev, err)
		}
	}
}
