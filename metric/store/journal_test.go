package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

var threeArchives = []series.Archive{{Step: 10, Points: 8640}, {Step: 60, Points: 4 * 1440},
	{Step: 3600, Points: 24 * 100}}

// backfill is a store whose corrector does not get to work, with a model of what should be in it.
type backfill struct {
	*bundle
	ms     map[string]*model
	paused bool // the test holds correctMu
}

// pause keeps the corrector from working until the end of the test, but for flushed.
func (b *backfill) pause() {
	b.s.correctMu.Lock()
	b.paused = true
	b.t.Cleanup(b.s.correctMu.Unlock)
}

func newBackfill(t *testing.T, o Options) *backfill {
	t.Helper()
	if o.Policy == nil {
		o.Policy = fixed(policy(series.Sum, 0, threeArchives...))
	}
	o.Shards = 2
	b := &backfill{bundle: open(t, o), ms: map[string]*model{}}
	b.pause()
	b.clock.t.Store(start0 + 20*3600)
	return b
}

func (b *backfill) put(name string, sec int64, v float64) {
	b.t.Helper()
	if b.ms[name] == nil {
		b.ms[name] = &model{p: b.o.Policy(name), finest: map[int64]modelPoint{}}
	}
	b.bundle.put(name, sec, v)
	b.ms[name].put(sec, v)
}

// killed opens a copy of what the process has written so far, after a compaction.
func (b *backfill) killed() *backfill {
	b.t.Helper()
	if !b.paused {
		b.s.correctMu.Lock()
		defer b.s.correctMu.Unlock()
	}
	b.drain()
	for _, tr := range *b.s.tiers.Load() {
		if err := tr.db.Compact(ctx); err != nil {
			b.t.Fatal(err)
		}
	}
	return b.reopen(b.copy())
}

func (b *backfill) reopen(dir string) *backfill {
	b.t.Helper()
	c := &backfill{bundle: &bundle{t: b.t, clock: newClock(b.clock.t.Load()), o: b.o}, ms: b.ms}
	c.o.Dir, c.o.Now = dir, c.clock.now
	c.start()
	return c
}

func (b *backfill) check() {
	b.t.Helper()
	now := b.clock.t.Load()
	for n, m := range b.ms {
		for _, back := range []int64{3600, 20 * 3600, 3 * 86400, 30 * 86400} {
			b.compare(n, m, now-back, now)
		}
	}
}

func (b *backfill) files() []string {
	b.t.Helper()
	files, err := filepath.Glob(filepath.Join(b.o.Dir, "corrections-*"))
	if err != nil {
		b.t.Fatal(err)
	}
	return files
}

// A kill while late points of many coarse slots wait for the corrector.
func TestKillBeforeCorrections(t *testing.T) {
	b := newBackfill(t, Options{})
	now := b.clock.t.Load()
	for i := range int64(10 * 360) { // all slots are in the coarse tiers
		b.clock.t.Store(now + i*10)
		b.put("a", now+i*10, 1)
		b.put("b;k=v", now+i*10, 2)
		if i%50 == 0 {
			b.drain() // no shard is hours behind the other
		}
	}
	b.flushed()
	for i := range int64(300) {
		b.put("a", now+i*97, float64(i))
		b.put("b;k=v", now+i*111, float64(i))
	}
	c := b.killed()
	if n := c.s.Stats().Corrections; n == 0 {
		t.Error("nothing waits")
	}
	c.check()
	if again := c.killed(); len(again.files()) == 0 {
		t.Error("a second kill has no journal")
	} else {
		again.flush()
		again.check()
	}
	c.flush()
	c.check()
	if n := c.s.Stats().Corrections; n != 0 {
		t.Errorf("%d wait", n)
	}
	c.stop()
	if files := c.files(); len(files) != 0 {
		t.Errorf("%q after Stop", files)
	}
	c.start()
	c.check()
}

// The files do not grow with time: those of finished rounds are removed.
func TestJournalIsRemoved(t *testing.T) {
	b := open(t, Options{Policy: fixed(policy(series.Sum, 0, threeArchives...)), SyncInterval: time.Hour})
	b.clock.t.Store(start0 + 20*3600)
	b.put("a", start0+20*3600, 1)
	for i := range int64(20) {
		b.put("a", start0+i*60, 1)
		b.flush()
	}
	if err := b.s.journal.remove(b.s.journal.removable()); err != nil {
		t.Fatal(err)
	}
	if len(b.s.journal.sizes) > 1 {
		t.Errorf("%v", b.s.journal.sizes)
	}
}

// What can be read of a damaged journal is computed again.
func TestDamagedJournal(t *testing.T) {
	b := newBackfill(t, Options{})
	now := b.clock.t.Load()
	for i := range int64(1000) {
		b.put("a", now-10000+i*10, 1)
	}
	b.put("a", now-9000, 7)
	dir := b.copy()
	path := last(t, filepath.Join(dir, "corrections-*"))
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = f.WriteString("torn"); errors.Join(err, f.Close()) != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "corrections-00000077.log"), "\x05\x00\x00\x00\x00\x00\x00\x00hello")
	var logged bytes.Buffer
	b.o.Log = slog.New(slog.NewTextHandler(&logged, nil))
	c := b.reopen(dir)
	c.flush()
	c.check()
	if n := strings.Count(logged.String(), "journal of corrections cannot be read"); n != 2 {
		t.Errorf("%d warnings: %s", n, logged.String())
	}
	if strings.Contains(logged.String(), "lockfile") {
		t.Error(logged.String())
	}
}

// Points that only a coarse archive covers, and a sender that is hours behind all others, at the time of a kill.
// TestStrangeJournal starts with what is no journal under the names of its files.
func TestStrangeJournal(t *testing.T) {
	t.Parallel()
	b := newBackfill(t, Options{})
	b.put("a", start0+20*3600, 1)
	b.put("a", start0, 1)
	dir := b.copy()
	j := journal{dir: dir}
	for _, number := range []uint64{0, 50} {
		if err := os.Mkdir(j.path(number), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, number := range []uint64{40, 1<<64 - 1} {
		f, err := os.Create(j.path(number))
		if err != nil {
			t.Fatal(err)
		}
		if number == 40 {
			err = f.Truncate(maxJournal + 1)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	c := b.reopen(dir)
	if c.s.journal.number <= 50 {
		t.Errorf("the newest file has number %d", c.s.journal.number)
	}
	c.flush()
	c.check()
}

func TestKillWithOldPoints(t *testing.T) {
	o := Options{Policy: func(name string) Policy {
		if name == "short" {
			return policy(series.Sum, 0, series.Archive{Step: 10, Points: 360}, threeArchives[1], threeArchives[2])
		}
		return policy(series.Sum, 0, threeArchives...)
	}}
	b := newBackfill(t, o)
	now := b.clock.t.Load()
	b.put("a", now, 1)
	b.drain() // from here on the TSDB takes older points as out of order
	b.bundle.put("short", now-17*3600, 3)
	b.flushed()
	b.bundle.put("short", now-15*3600, 3)
	b.bundle.put("short", now-15*3600+60, 4)
	for i := range int64(100) {
		b.put("behind", now-14*3600+i*10, 1)
	}
	c := b.killed()
	c.flush()
	c.bundle.put("short", now-10*3600, 1)
	c.bundle.put("short", now, 1)
	c.flush()
	c.bundle.put("short", now-9*3600, 1)
	c.flush()
	// What is behind the last value of the range would be computed by the read.
	r := c.fetch("short", now-30*86400, now)
	if got := r.Values[len(r.Values)-18:]; !same(got, []float64{3, nan, 7, nan, nan, nan, nan, 1, 1, nan, nan, nan, nan, nan,
		nan, nan, nan, 1}) {
		t.Errorf("%v", got)
	}
	for i := range int64(1000) {
		c.put("behind", now-14*3600+2000+i*10, 1)
	}
	c.flush()
	c.check()
}

// Rewrites go behind what an earlier process has written, although it wrote at the same distance from the second.
func TestRewriteAfterKill(t *testing.T) {
	b := newBackfill(t, Options{})
	now := b.clock.t.Load()
	late := []int64{now - 1, now - 3, now - 600, now - 40000, now - 70000}
	for round := range 5 {
		for i := range 20 {
			b.put("a", now, float64(100*round+i))
			for _, sec := range late {
				b.put("a", sec, float64(100*round+i))
			}
		}
		b.flushed()
		b.check()
		b = b.killed()
		b.pause()
		if round%2 == 0 { // now is the newest second of the tier, but not of this process
			b.put("a", now, -1)
		} else {
			b.put("a", now+1, -2)
		}
		b.put("a", late[3], float64(round))
		b.flushed()
		b.check()
	}
}

func (b *backfill) flushed() {
	b.t.Helper()
	b.s.correctMu.Unlock()
	b.flush()
	b.s.correctMu.Lock()
}

// A coarse slot can be corrected more often than a second has milliseconds.
func TestManyCorrections(t *testing.T) {
	b := open(t, Options{Policy: fixed(policy(series.Sum, 0, threeArchives[:2]...)), Shards: 1})
	b.put("a", start0, 1)
	b.clock.t.Store(start0 + 300)
	b.put("a", start0+300, 1)
	sum := 1.0 // of the last value of each slot of 10 s
	for i := range int64(1200) {
		b.put("a", start0+10+i%50, float64(i))
		b.flush()
		if i >= 1150 && i%10 == 9 {
			sum += float64(i)
		}
	}
	check := func(b *bundle, want float64) {
		t.Helper()
		r := b.fetch("a", start0-86400-60, start0)
		if got := r.Values[len(r.Values)-1]; got != want || r.Step != 60 {
			t.Errorf("%v, want %v", got, want)
		}
	}
	check(b, sum)
	c := (&backfill{bundle: b}).killed().bundle
	c.flush()
	check(c, sum)
	c.put("a", start0+59, 0.5)
	c.flush()
	check(c, sum-1199+0.5)
}

// Corrections wait while the disk is full.
func TestDiskFullKeepsCorrections(t *testing.T) {
	var free atomic.Int64
	free.Store(2000)
	b := newBackfill(t, Options{MinFreeBytes: 1000, freeBytes: func(string) (int64, error) { return free.Load(), nil }})
	now := b.clock.t.Load()
	for i := range int64(100) {
		b.put("a", now-1000+i*10, 1)
	}
	b.put("a", now-800, 5)
	b.drain()
	free.Store(500)
	b.s.checkDisk()
	b.s.correctMu.Unlock()
	if err := b.s.Flush(ctx); !errors.Is(err, errDiskFull) {
		t.Error(err)
	}
	b.s.correctMu.Lock()
	if b.s.Stats().Corrections == 0 {
		t.Error("nothing waits")
	}
	free.Store(5000)
	b.s.checkDisk()
	b.flushed()
	b.check()
}

// A journal that cannot be written keeps no point from being stored.
func TestJournalFails(t *testing.T) {
	b := newBackfill(t, Options{})
	now := b.clock.t.Load()
	b.s.journal.mu.Lock()
	b.s.journal.sizes[0] = maxJournal
	b.s.journal.mu.Unlock()
	b.put("a", now, 1)
	b.put("a", now-7200, 1)
	b.drain()
	if n := b.s.counts.journalFailed.Load(); n == 0 {
		t.Error("no failure was counted")
	}
	b.flushed()
	b.check()
}

func TestWarnings(t *testing.T) {
	var out bytes.Buffer
	f := func(level slog.Level, log func(*slog.Logger), want string) {
		t.Helper()
		out.Reset()
		h := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})
		log(slog.New(warnings{h}).With("tier", "t"))
		if got := out.String(); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%q, want %q", got, want)
		}
	}
	overlap := func(l *slog.Logger) { l.Warn("Overlapping blocks found during reloadBlocks", "detail", "x") }
	f(slog.LevelInfo, overlap, "")
	f(slog.LevelDebug, overlap, "level=DEBUG msg=\"Overlapping blocks")
	f(slog.LevelInfo, func(l *slog.Logger) { l.Info("compact blocks") }, "")
	f(slog.LevelInfo, func(l *slog.Logger) { l.Error("compaction failed") },
		"level=ERROR msg=\"compaction failed\" tier=t")
	f(slog.LevelInfo, func(l *slog.Logger) { l.Warn("Encountered WBL read error, attempting repair") },
		"level=WARN msg=\"log of late points of a tier is damaged")
}

func TestMarks(t *testing.T) {
	type mark struct {
		name       string
		step, slot int64
	}
	want := []mark{{"a", 60, 1_700_000_040}, {"a", 3600, 1_699_999_200}, {strings.Repeat("x", maxName), 1 << 32, 1 << 33},
		{"b", 1, 0}}
	j, err := openJournal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var payload []byte
	for i, m := range want {
		name := m.name
		if i == 1 {
			name = ""
		}
		payload = appendMark(payload, name, m.step, m.slot)
		if i != 0 { // the first two are in one frame
			if err := j.append(payload); err != nil {
				t.Fatal(err)
			}
			payload = payload[:0]
		}
		if i == 2 {
			if n, err := j.rotate(); err != nil || n != 1 {
				t.Fatal(n, err)
			}
		}
	}
	if err := errors.Join(j.sync(), j.close(true)); err != nil {
		t.Fatal(err)
	}
	again, err := openJournal(j.dir)
	if err != nil || again.number != 3 {
		t.Fatal(again, err)
	}
	var got []mark
	damaged := again.replay(func(name string, step, slot int64) { got = append(got, mark{name, step, slot}) })
	want = append(want[3:], want[:3]...) // the newest file comes first
	if len(damaged) > 0 || !slices.Equal(got, want) {
		t.Errorf("%v %v", got, damaged)
	}
	if err := again.close(false); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(j.dir); len(left) > 0 {
		t.Errorf("%v", left)
	}
}

// Whatever is in a file, reading ends, and gives names and slots that can be used.
func FuzzMarks(f *testing.F) {
	j, err := openJournal(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	if err := j.append(appendMark(appendMark(nil, "a.b", 60, 1_700_000_040), "", 600, 1_699_999_800)); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(j.path(1))
	if err = errors.Join(err, j.close(false)); err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x00\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		check := func(name string, step, slot int64) {
			if name == "" || len(name) > maxName || step < 1 || step > 1<<32 || slot < 0 || slot%step != 0 {
				t.Errorf("%s", fmt.Sprint(len(name), step, slot))
			}
		}
		_ = readMarks(b, check)
		_ = readPayload(b, check)
	})
}

// TestSettle waits for points that a shard cannot commit yet.
func TestSettle(t *testing.T) {
	b := newBackfill(t, Options{})
	now := b.clock.t.Load()
	se, err := b.s.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	sh := b.s.shards[se.Shard()]
	sh.mu.Lock()
	if err := b.s.Put(ctx, se.Shard(), []Sample{{Series: se, Time: now * 1000, Value: 7}}); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if err := b.s.Settle(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("with a point in the queue: %v", err)
	}
	sh.mu.Unlock()
	if err := b.s.Settle(ctx); err != nil {
		t.Fatal(err)
	}
	if r := b.fetch("a", now-10, now); len(r.Values) == 0 || r.Values[len(r.Values)-1] != 7 {
		t.Errorf("after Settle there is %v", r.Values)
	}
}
