package eventlog_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/eventlog"
)

// fillLog appends so many messages of at least a size to partition 0.
func fillLog(t *testing.T, l *eventlog.Log, messages, size int) {
	t.Helper()
	for n := range messages {
		acks := &tally{}
		acks.all.Add(1)
		r := event("e", "c", n)
		r.Body = append(r.Body, make([]byte, size)...)
		if err := l.Append(r, acks, 1); err != nil {
			t.Fatal(err)
		}
		acks.all.Wait()
	}
}

// TestHold keeps a copy's messages in the log until they are released, and lets them go when the log has grown too
// much.
func TestHold(t *testing.T) {
	l, _ := start(t, t.TempDir(), eventlog.Options{Partitions: 1})
	fillLog(t, l, 20, 0)
	release, err := l.Hold(t.Context(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	first := func() uint64 {
		t.Helper()
		if err := l.Trim(t.Context(), 0, 15, 1); err != nil {
			t.Fatal(err)
		}
		n, _, err := l.Bounds(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := first(); n != 1 {
		t.Errorf("a held log begins at %d", n)
	}
	var got []uint64
	copied := func(from, to uint64) error {
		got = nil
		return l.Copy(t.Context(), 0, from, to, func(m *broker.Message) error { got = append(got, m.Seq); return nil })
	}
	if err := copied(3, 6); err != nil || fmt.Sprint(got) != "[3 4 5 6]" {
		t.Errorf("copied %v, %v", got, err)
	}
	if err := copied(20, 20); err != nil || fmt.Sprint(got) != "[20]" {
		t.Errorf("copied %v, %v", got, err)
	}
	if err := copied(21, 20); err != nil || got != nil {
		t.Errorf("copied %v, %v", got, err)
	}
	if err := copied(19, 22); !errors.Is(err, eventlog.ErrNotHeld) {
		t.Errorf("behind the end: %v", err)
	}
	release()
	if n := first(); n != 15 {
		t.Errorf("a released log begins at %d, want 15", n)
	}
	if err := copied(3, 16); !errors.Is(err, eventlog.ErrNotHeld) {
		t.Errorf("what was trimmed: %v", err)
	}
}

// TestHoldEnds lets a held log grow beyond its bound.
func TestHoldEnds(t *testing.T) {
	l, _ := start(t, t.TempDir(), eventlog.Options{Partitions: 1})
	fillLog(t, l, 2, 0)
	release, err := l.Hold(t.Context(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	fillLog(t, l, 5, 256<<10)
	if err := l.Trim(t.Context(), 0, 5, 1); err != nil {
		t.Fatal(err)
	}
	if n, _, err := l.Bounds(t.Context(), 0); err != nil || n != 5 {
		t.Errorf("the log begins at %d, want 5 (%v)", n, err)
	}
}
