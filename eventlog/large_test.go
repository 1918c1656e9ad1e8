package eventlog_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
)

const patience = time.Minute

// settled waits until all records are reported, and fails the test if one was not stored.
func settled(t *testing.T, a *tally) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	done := make(chan struct{})
	go func() { a.all.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatal("records were never stored: the log is wedged")
	}
	for token, err := range a.errs {
		if err != nil {
			t.Errorf("record %d: %v", token, err)
		}
	}
}

// A record that the broker cannot store is refused alone: the log goes on.
func TestTooLargeRecord(t *testing.T) {
	l, _ := start(t, t.TempDir(), eventlog.Options{Partitions: 1})
	big := event("web-1", "big", 1)
	big.Body = make([]byte, 9<<20)
	a := new(tally)
	a.all.Add(1)
	if err := l.Append(big, a, 1); err == nil {
		settled(t, a) // it is refused
		t.Fatal("a record of 9 MiB was taken")
	} else if got := err.Error(); got != "event has 9437327 bytes, more than the 8384345 bytes that can be stored" {
		t.Errorf("got %q", got)
	}
	if err := l.Append(event("web-1", "small", 2), a, 2); err != nil {
		t.Fatal(err)
	}
	settled(t, a)
	if recs := read(t, l, 0, 1); len(recs) != 1 || recs[0].Check != "small" {
		t.Errorf("the log has %d records", len(recs))
	}
}

// However records are batched, a batch is never larger than the broker's message: a big record goes alone.
func TestBatchNeverTooLarge(t *testing.T) {
	l, _ := start(t, t.TempDir(), eventlog.Options{Partitions: 1, FlushInterval: 50 * time.Millisecond})
	a := new(tally)
	var sent uint64
	for range 3 {
		for range 5 {
			sent++
			r := event("web-1", "medium", int(sent))
			r.Body = make([]byte, 550<<10)
			a.all.Add(1)
			if err := l.Append(r, a, sent); err != nil {
				t.Fatal(err)
			}
		}
		sent++
		r := event("web-1", "big", int(sent))
		r.Body = make([]byte, 8<<20-8<<10)
		a.all.Add(1)
		if err := l.Append(r, a, sent); err != nil {
			t.Fatal(err)
		}
	}
	settled(t, a)
	recs := read(t, l, 0, 1)
	if len(recs) != int(sent) {
		t.Fatalf("the log has %d records, want %d", len(recs), sent)
	}
	for i := range recs {
		if recs[i].Executed != int64(i+1) {
			t.Errorf("record %d stands at %d", recs[i].Executed, i+1)
		}
	}
}

// TryAppend refuses a big record where Append would wait.
func TestBigRecordHasNoRoom(t *testing.T) {
	l, _ := start(t, t.TempDir(), eventlog.Options{Partitions: 1, FlushInterval: time.Hour})
	a := new(tally)
	a.all.Add(1)
	if err := l.Append(sized(event("web-1", "small", 1), 200), a, 1); err != nil {
		t.Fatal(err)
	}
	big := event("web-1", "big", 2)
	big.Body = make([]byte, 8_384_200)
	if err := l.TryAppend(big, nil, 0); !errors.Is(err, eventlog.ErrNoRoom) {
		t.Errorf("got %v", err)
	}
}
