package backend

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
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

// TestStopWithoutSpace: a step that the state database ends by a panic, because the disk is full, is an error that says what to do. What
// uses the database is not touched after that.
func TestStopWithoutSpace(t *testing.T) {
	b := &Backend{log: slog.New(slog.DiscardHandler)}
	b.push("state database", func() error { t.Error("the database is closed"); return nil })
	b.push("state", func() error {
		panic(fmt.Errorf("commit: %w", &fs.PathError{Op: "write", Path: "state/7.log", Err: syscall.ENOSPC}))
	})
	b.push("api server", func() error { return nil })
	err := b.unwind(t.Context())
	if want := "stop state: commit: write state/7.log: no space left on device; nothing is lost: make room, "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %s…", err, want)
	}
	if len(b.undo) > 0 {
		t.Errorf("%d steps are left", len(b.undo))
	}
	if text := fatalMessage([]any{fmt.Errorf("commit: %w", syscall.ENOSPC)}); !strings.HasPrefix(text, "the disk is full: ") {
		t.Errorf("the database's last words are %q", text)
	}
	if text := fatalMessage([]any{"commit", fs.ErrClosed}); text != "database failed, the process must end" {
		t.Errorf("the database's last words are %q", text)
	}
}

// TestStopNote: a stop that cannot write its last note says what that means.
func TestStopNote(t *testing.T) {
	dir, err := openStateDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	err = (&cleanStop{dir: dir}).close() // there is no database to describe
	if err == nil || !strings.HasPrefix(err.Error(), "note the clean stop: ") || !strings.HasSuffix(err.Error(), "nothing is lost: the next start looks at all files, as after a kill") {
		t.Errorf("error %v", err)
	}
}

// TestRecoveryPage: the page for operators has the messages of a stop on a full disk.
func TestRecoveryPage(t *testing.T) {
	page, err := os.ReadFile("../docs/recovery.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, message := range []string{
		"`stop state directory: note the clean stop` … `no space left on device`", "`stop state` … `no space left on device`",
		"`the disk is full: the state database cannot write`", "`panic: write` … `no space left on device`", "for the first start",
	} {
		if !strings.Contains(string(page), message) {
			t.Errorf("docs/recovery.md does not have %s", message)
		}
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
		return b.startQuietly(ctx, "state", quietPart{})
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
