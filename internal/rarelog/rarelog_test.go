package rarelog

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// output is the log. The timers' goroutines write it too.
type output struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func lines(b *output) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := strings.TrimSpace(b.text.String())
	b.text.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func logger(b *output) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func TestOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out output
		l := New(logger(&out))
		for range 3 {
			l.Warn("no answer", "db", "try", "again")
		}
		l.Over("no answer", "db")
		l.Over("no answer", "another")
		time.Sleep(DefaultPeriod + time.Second)
		synctest.Wait()
		l.Warn("no answer", "db", "try", "anew")
		same(t, lines(&out), `level=WARN msg="no answer" try=again`, `level=WARN msg="no answer" try=anew`)
	})
}

func TestOneLineAPeriodAndACount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out output
		l := New(logger(&out))
		for i := range 1000 {
			l.Warn("event is not taken", "web1", "agent", "web1", "n", i)
		}
		l.Warn("event is not taken", "web2", "agent", "web2")
		same(t, lines(&out), `level=WARN msg="event is not taken" agent=web1 n=0`, `level=WARN msg="event is not taken" agent=web2`)

		time.Sleep(DefaultPeriod + time.Second)
		synctest.Wait()
		same(t, lines(&out), `level=WARN msg="event is not taken" agent=web1 n=999 left_out=999`)

		// A period without lines ends the counting: the next line is written at once.
		time.Sleep(2 * DefaultPeriod)
		synctest.Wait()
		l.Warn("event is not taken", "web1", "agent", "web1")
		same(t, lines(&out), `level=WARN msg="event is not taken" agent=web1`)
		time.Sleep(2 * DefaultPeriod)
		synctest.Wait()
		if n := l.remembered(); n != 0 {
			t.Errorf("%d keys are kept", n)
		}
	})
}

func TestInventedSubjectsAreCountedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out output
		l := New(logger(&out))
		for i := range 10 * maxKeys {
			l.Warn("sign-in failed", fmt.Sprint("user", i))
		}
		if n := len(lines(&out)); n != maxKeys+1 {
			t.Errorf("%d lines, want %d", n, maxKeys+1)
		}
		if n := l.remembered(); n != maxKeys+1 {
			t.Errorf("%d keys are kept, want %d", n, maxKeys+1)
		}
		time.Sleep(3 * DefaultPeriod)
		synctest.Wait()
		same(t, lines(&out), fmt.Sprintf(`level=WARN msg="sign-in failed" left_out=%d`, 9*maxKeys-1))
	})
}

func (l *Log) remembered() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.keys)
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("logged\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestLongTexts logs names and errors of 700 kB.
func TestLongTexts(t *testing.T) {
	var out output
	l := New(slog.New(slog.NewTextHandler(&out, nil)))
	long := strings.Repeat("ä", 350_000)
	for i := range 400 {
		l.Warn("refused", fmt.Sprint(long, i), "name", long, "err", errors.New(long))
	}
	if out.text.Len() > 5_000 || !strings.Contains(out.text.String(), "(700000 bytes)") {
		t.Errorf("%d bytes were logged, beginning with %.300s", out.text.Len(), out.text.String())
	}
	for k, c := range l.keys {
		if len(k.subject) > 300 || len(fmt.Sprint(c.attrs...)) > 2_000 {
			t.Errorf("%d and %d bytes are kept", len(k.subject), len(fmt.Sprint(c.attrs...)))
		}
	}
}
