package backend

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestBeforeUndo: what must come before all steps does, also when a start ends half way.
func TestBeforeUndo(t *testing.T) {
	var did []string
	b := &Backend{log: slog.New(slog.DiscardHandler)}
	step := func(name string) func() error {
		return func() error { did = append(did, name); return nil }
	}
	b.push("event log", step("event log"))
	b.beforeUndo(func() { did = append(did, "no more waiting") })
	b.push("appender", step("appender"))
	for range 2 {
		if err := b.unwind(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"no more waiting", "appender", "event log"}; !slices.Equal(did, want) {
		t.Errorf("undone %v, want %v", did, want)
	}
}

// quietPart is a part that does nothing.
type quietPart struct{}

func (quietPart) Start(context.Context) error { return nil }
func (quietPart) Stop() error                 { return nil }

// TestPatientStepSaysWhatItDoes: the part that is started does not hide what the start waits for.
func TestPatientStepSaysWhatItDoes(t *testing.T) {
	b := &Backend{log: slog.New(slog.DiscardHandler)}
	err := b.patiently(t.Context(), "reading much", func() uint64 { return 0 }, func(ctx context.Context) error {
		return startQuietly(ctx, b, "state", quietPart{})
	})
	if got := b.Starting().Error(); err != nil || got != "the backend is starting: reading much" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestPatientStepGivesUp: a step of the start that makes no progress is logged again and again, and ended. One that goes on is not.
func TestPatientStepGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(lines)
		b := &Backend{log: slog.New(slog.NewTextHandler(log, nil))}
		begin := time.Now()
		err := b.patiently(t.Context(), "reading much", func() uint64 { return 7 }, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if took := time.Since(begin); err == nil || !strings.Contains(err.Error(), "reading much made no progress for 10m") || took > mostWait+2*sayWait {
			t.Errorf("after %v: %v", took, err)
		}
		if n := strings.Count(log.String(), `msg="the start goes on" doing="reading much"`); n < int(mostWait/sayWait)-1 {
			t.Errorf("it was said %d times", n)
		}
		err = b.patiently(t.Context(), "reading more", func() uint64 { return uint64(time.Now().Unix()) }, func(context.Context) error {
			time.Sleep(3 * mostWait)
			return nil
		})
		if err != nil {
			t.Errorf("a step that goes on: %v", err)
		}
	})
}
