package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bed is a journal whose fold is the test. It is not started: the test flushes.
type bed struct {
	*Journal
	t      *testing.T
	passed []uint64 // by partition
	loaded uint64
}

func open(t *testing.T, dir string, change func(*Options)) *bed {
	t.Helper()
	o := Options{Dir: dir, Streams: []string{"a", "b"}, FreeSpace: func() (uint64, error) { return 1 << 40, nil }}
	if change != nil {
		change(&o)
	}
	j, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{Journal: j, t: t, passed: make([]uint64, 2)}
	j.Connect(func(i int) uint64 { return b.passed[i] }, func(int) uint64 { return b.loaded })
	if err := j.SwitchOn(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.files.close() })
	return b
}

// fold passes a message with changes on.
func (b *bed) fold(partition int, seq uint64, outputs ...string) {
	for i, output := range outputs {
		b.Follow(&state.Applied{Kind: eventlog.KindEvent, Partition: partition, Seq: seq, Sub: i + 1, Namespace: "default", Entity: "web",
			Check: output, Received: int64(seq), Status: 1, Changed: true})
	}
	b.passed[partition] = seq
}

func (b *bed) written() {
	b.t.Helper()
	if err := b.flush(); err != nil {
		b.t.Fatal(err)
	}
}

// read returns all frames behind some positions as text: partition, from and last message, and the entries.
func (b *bed) read(has ...uint64) (frames []string) {
	b.t.Helper()
	r := b.Reader()
	defer r.Close()
	if err := r.Seek(has); err != nil {
		b.t.Fatal(err)
	}
	for {
		f, ok, err := r.Next()
		if err != nil {
			b.t.Fatal(err)
		}
		if !ok {
			return frames
		}
		s := fmt.Sprintf("%d %d-%d", f.Partition, f.From, f.Last)
		n := 0
		for e, err := range f.Entries() {
			if err != nil {
				b.t.Fatal(err)
			}
			n++
			s += fmt.Sprintf(" %d.%d:%s", e.Seq, e.Sub, e.Check)
		}
		if n != f.Count {
			b.t.Errorf("frame %s has %d entries, and says %d", s, n, f.Count)
		}
		frames = append(frames, s)
	}
}

func wantFrames(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestWholeMessages(t *testing.T) {
	b := open(t, t.TempDir(), nil)
	b.fold(0, 1, "x", "y")
	b.fold(0, 2)
	b.fold(1, 7, "z")
	b.Follow(&state.Applied{Partition: 0, Seq: 3, Sub: 1, Namespace: "default", Entity: "web", Check: "half"})
	if got := b.Kept(0); got != 1 {
		t.Errorf("the first message that is not kept is %d before a write, want 1", got)
	}
	b.written()
	wantFrames(t, "frames", b.read(0, 0), "0 0-2 1.1:x 1.2:y", "1 0-7 7.1:z")
	if got := b.Kept(0); got != 0 {
		t.Errorf("the first message that is not kept is %d behind a write, want none", got)
	}
	b.fold(0, 3, "half", "rest")
	b.written()
	b.written()
	wantFrames(t, "frames behind message 2", b.read(2, 7)[2:], "0 2-3 3.1:half 3.1:half 3.2:rest")
}

func TestEntry(t *testing.T) {
	b := open(t, t.TempDir(), nil)
	b.Follow(&state.Applied{Seq: 5, Sub: 3, Namespace: "n", Entity: "e", Check: "c", Received: 17, Status: 300, Incident: true,
		Resolution: true, Silenced: true, Deadline: true, HasMetrics: true, Ran: true, Stateless: true})
	b.Follow(&state.Applied{Seq: 5, Sub: 4, Namespace: "n", Entity: "e", Check: "c", Received: 18, Deleted: true})
	b.passed[0] = 5
	b.written()
	r := b.Reader()
	defer r.Close()
	f, ok, err := r.Next()
	if err != nil || !ok || f.Oldest != 17 || f.Newest != 18 {
		t.Fatalf("frame %+v, %v, %v", f, ok, err)
	}
	var got []Entry
	for e, err := range f.Entries() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, *e)
	}
	if e := got[0]; e.Seq != 5 || e.Sub != 3 || string(e.Namespace)+string(e.Entity)+string(e.Check) != "nec" || e.Received != 17 ||
		e.Status != 300 || e.Flags != Stateless|Incident|Resolution|Silenced|Missing|Metrics|Ran {
		t.Errorf("event: %+v", e)
	}
	if e := got[1]; e.Flags != Deleted|Changed || e.Received != 18 || e.Sub != 4 {
		t.Errorf("deletion: %+v", e)
	}
}

// TestCrash cuts the newest file at each byte. What is whole is there, and the journal goes on behind it.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, nil)
	for seq := uint64(1); seq <= 3; seq++ {
		b.fold(0, seq, fmt.Sprint("m", seq))
		b.written()
	}
	whole, err := os.ReadFile(b.files.path(1))
	if err != nil {
		t.Fatal(err)
	}
	all := b.read(0, 0)
	for size := range len(whole) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(b.files.path(1))), whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		again := open(t, dir, nil)
		n := size * 3 / len(whole)
		want := slices.Clone(all[:n])
		wantFrames(t, fmt.Sprint("frames of ", size, " bytes"), again.read(0, 0), want...)
		for seq := uint64(1); seq <= 4; seq++ { // the replay
			again.fold(0, seq, fmt.Sprint("m", seq))
		}
		again.written()
		rest := fmt.Sprintf("0 %d-4", n)
		for seq := n + 1; seq <= 4; seq++ {
			rest += fmt.Sprintf(" %d.1:m%d", seq, seq)
		}
		wantFrames(t, fmt.Sprint("frames behind a replay, of ", size, " bytes"), again.read(0, 0), append(want, rest)...)
	}
}

// TestDamage changes each byte of an older file. The other frames are there, and those behind the damage say where they
// begin. The journal goes on behind the newest.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, nil)
	for seq := uint64(1); seq <= 3; seq++ {
		b.fold(0, seq, fmt.Sprint("m", seq))
		b.written()
	}
	all := b.read(0, 0)
	path := b.files.path(1)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	newer := open(t, dir, nil) // file 1 is an older one from now on
	newer.loaded = 3
	newer.fold(0, 4, "m4")
	newer.written()
	for at := range whole {
		damaged := slices.Clone(whole)
		damaged[at] ^= 0xff
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		again := open(t, dir, nil)
		if end := again.files.end(0, Stream("a")); end != 4 {
			t.Errorf("with damage at %d the journal ends with message %d, want 4", at, end)
		}
		got := again.read(0, 0)
		want := slices.Concat(all[:at*3/len(whole)], all[at*3/len(whole)+1:], []string{"0 3-4 4.1:m4"})
		wantFrames(t, fmt.Sprint("frames with damage at ", at), got, want...)
	}
}

// TestCurrent: the journal says how current it is, and why it is not.
func TestCurrent(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "journal"), func(o *Options) { o.MaxPending = 100 })
	f := func(what string, works bool) {
		t.Helper()
		begin, before := time.Now(), b.Current()
		err := b.flush()
		u := b.Usage()
		if moved := b.Current() != before; moved != works || works && b.Current().Before(begin) {
			t.Errorf("%s: from %s to %s", what, before, b.Current())
		}
		if works != (err == nil) || works != (u.Error == "") || works != u.Since.IsZero() {
			t.Errorf("%s: %v, usage %+v", what, err, u)
		}
	}
	f("nothing was folded", true)
	b.fold(0, 1, "a")
	if err := os.WriteFile(b.opts.Dir, nil, 0o600); err != nil { // in the place of the directory
		t.Fatal(err)
	}
	f("the disk fails", false)
	since := b.Usage().Since
	f("the disk fails again", false)
	if u := b.Usage(); u.Since != since || u.Dropping {
		t.Errorf("usage %+v, want one that fails since %s and drops nothing", u, since)
	}
	for seq := uint64(2); seq <= 20; seq++ { // more than may wait
		b.fold(0, seq, "b")
	}
	f("changes are dropped", false)
	if !b.Usage().Dropping {
		t.Error("it is not said that changes are dropped")
	}
	if err := os.Remove(b.opts.Dir); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	b.written() // what was gathered before the disk failed
	if u := b.Usage(); !b.Current().Before(begin) || u.Error != "" || u.Dropping {
		t.Errorf("current at %s, behind %s, usage %+v", b.Current(), begin, u)
	}
	f("the disk works", true)
	b.SwitchOff()
	b.fold(0, 21, "c")
	f("switched off", true)
}

// TestInTheWay has a directory with the name of the next file.
func TestInTheWay(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, nil)
	for id := range uint64(3) {
		if err := os.Mkdir(b.files.path(id+1), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	b.fold(0, 1, "x")
	b.written()
	wantFrames(t, "frames", b.read(0, 0), "0 0-1 1.1:x")
	if again := open(t, dir, nil); again.files.end(0, Stream("a")) != 1 {
		t.Error("the file is not found again")
	}
}

// TestFileIsGone removes files of a journal that is written and read.
func TestFileIsGone(t *testing.T) {
	remove := func(b *bed, id uint64) {
		b.t.Helper()
		if err := os.Remove(b.files.path(id)); err != nil {
			b.t.Fatal(err)
		}
	}
	wantDamaged := func(b *bed, want float64) {
		b.t.Helper()
		if got := testutil.ToFloat64(b.metrics.damaged); got != want {
			b.t.Errorf("damage is counted %g times, want %g", got, want)
		}
	}
	t.Run("the one that is written", func(t *testing.T) {
		b := open(t, t.TempDir(), nil)
		b.fold(0, 1, "x")
		b.written()
		remove(b, 1)
		b.fold(0, 2, "y")
		b.written()
		wantFrames(t, "frames", b.read(0, 0), "0 1-2 2.1:y")
		wantDamaged(b, 1)
		if info, err := os.Stat(b.files.path(2)); err != nil || b.Usage().Bytes != info.Size() {
			t.Errorf("the journal says that it has %d bytes, its file is %v, %v", b.Usage().Bytes, info, err)
		}
	})
	t.Run("the one that is written, with its directory", func(t *testing.T) {
		b := open(t, filepath.Join(t.TempDir(), "journal"), nil)
		b.fold(0, 1, "x")
		b.written()
		if err := os.RemoveAll(b.opts.Dir); err != nil {
			t.Fatal(err)
		}
		b.fold(0, 2, "y")
		b.written()
		wantFrames(t, "frames", b.read(0, 0), "0 1-2 2.1:y")
	})
	t.Run("an older one", func(t *testing.T) {
		dir := t.TempDir()
		old := open(t, dir, nil)
		old.fold(0, 1, "x")
		old.written()
		b := open(t, dir, nil)
		b.loaded = 1
		b.fold(0, 2, "y")
		b.written()
		remove(b, 1)
		for range 2 {
			wantFrames(t, "frames", b.read(0, 0), "0 1-2 2.1:y")
			wantDamaged(b, 1)
		}
		remove(b, 2)
		wantFrames(t, "frames of the newest file", b.read(1, 0))
		wantDamaged(b, 2)
		b.fold(0, 3, "z")
		b.written()
		wantFrames(t, "frames behind both", b.read(0, 0), "0 2-3 3.1:z")
		wantDamaged(b, 2)
	})
	t.Run("one that the journal removed", func(t *testing.T) {
		b := open(t, t.TempDir(), nil)
		b.fold(0, 1, "x")
		b.written()
		if err := b.files.close(); err != nil {
			t.Fatal(err)
		}
		r := b.Reader()
		defer r.Close()
		b.opts.Keep = time.Nanosecond
		for range 2 {
			if err := b.Trim([]uint64{1, 0}); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.open(1); err != nil {
			t.Fatal(err)
		}
		wantDamaged(b, 0)
	})
}

func TestFull(t *testing.T) {
	b := open(t, t.TempDir(), func(o *Options) { o.MaxBytes = 3 << 20 })
	for seq := uint64(1); b.files.nextID < 6; seq++ {
		for i := range 1000 {
			b.Follow(&state.Applied{Seq: seq, Sub: i, Namespace: "default", Entity: fmt.Sprintf("%x", (seq*1000+uint64(i))*0x9e3779b97f4a7c15)})
		}
		b.passed[0] = seq
		b.written()
		b.bound()
	}
	if size := b.Usage().Bytes; size > 3<<20 {
		t.Errorf("the journal has %d bytes", size)
	}
	if testutil.ToFloat64(b.metrics.dropped) < 1000 {
		t.Error("removed changes are not counted")
	}
	if got := b.read(0, 0); len(got) == 0 || got[0][:4] == "0 0-" {
		t.Error("the oldest frame is still there, or none")
	}
}

// TestDiskIsSmall has no free space: the journal keeps its newest file only.
func TestDiskIsSmall(t *testing.T) {
	dir := t.TempDir()
	old := open(t, dir, nil)
	old.fold(0, 1, "x")
	old.written()
	b := open(t, dir, func(o *Options) { o.FreeSpace = func() (uint64, error) { return 1, nil } })
	b.loaded = 1
	b.fold(0, 2, "y")
	b.written()
	b.bound()
	wantFrames(t, "frames", b.read(0, 0), "0 1-2 2.1:y")
}

func TestTrim(t *testing.T) {
	dir := t.TempDir()
	for seq := uint64(1); seq <= 3; seq++ { // a file each
		b := open(t, dir, nil)
		b.loaded = seq - 1
		b.fold(0, seq, "x")
		b.fold(1, seq, "y")
		b.written()
	}
	b := open(t, dir, func(o *Options) { o.Keep = time.Hour })
	trim := func(has ...uint64) int {
		if err := b.Trim(has); err != nil {
			t.Fatal(err)
		}
		return len(b.files.segments)
	}
	if n := trim(2, 2); n != 3 {
		t.Errorf("%d files within the time to keep, want 3", n)
	}
	b.opts.Keep = time.Nanosecond // from the next call on
	for _, c := range []struct {
		has  []uint64
		want int
	}{{[]uint64{0, 9}, 3}, {[]uint64{9, 1}, 2}, {[]uint64{2, 2}, 1}, {[]uint64{3, 3}, 0}} {
		trim(c.has...)
		if n := trim(c.has...); n != c.want {
			t.Errorf("%d files when the database has %d, want %d", n, c.has, c.want)
		}
	}
	if u := b.Usage(); u.Owed != 0 {
		t.Errorf("usage %+v", u)
	}
}

// TestNoDirectory: a file in the directory's place keeps a journal from being switched on, and a backend without
// PostgreSQL needs none.
func TestNoDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := Open(Options{Dir: dir, Streams: []string{"a"}, Delay: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	j.Connect(func(int) uint64 { return 1 }, func(int) uint64 { return 0 })
	if err := j.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	j.Follow(&state.Applied{Kind: eventlog.KindEvent, Seq: 1, Sub: 1, Namespace: "default", Entity: "web", Check: "a", Received: 1})
	if err := j.SwitchOn(); err == nil {
		t.Error("it was switched on without a directory")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := j.SwitchOn(); err != nil {
		t.Errorf("with a directory: %v", err)
	}
	if err := j.Stop(); err != nil {
		t.Error(err)
	}
}

// TestDiskFails has the directory's place taken by a file for a while.
func TestDiskFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	place := filepath.Join(t.TempDir(), "elsewhere")
	b := open(t, place, func(o *Options) { o.MaxPending = 100 })
	b.files.dir = dir
	b.fold(0, 1, "a")
	if err := b.flush(); err == nil {
		t.Fatal("it was written to a file in the place of the directory")
	}
	if b.Kept(0) != 1 {
		t.Error("a change is kept that is not on disk")
	}
	for seq := uint64(2); seq <= 20; seq++ { // more than may wait
		b.fold(0, seq, "b")
	}
	if err := b.flush(); err == nil {
		t.Fatal("it was written to a file in the place of the directory")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	b.written()
	b.fold(0, 21, "c")
	b.written()
	got := b.read(0, 0)
	wantFrames(t, "the first frame", got[:1], "0 0-1 1.1:a")
	var from, last uint64
	if _, err := fmt.Sscanf(got[1], "0 %d-%d", &from, &last); err != nil || from < 2 || last != 21 {
		t.Errorf("the frame behind the dropped changes is %q, want one that begins behind them", got[1])
	}
	if testutil.ToFloat64(b.metrics.dropped) == 0 || b.Kept(0) != 0 {
		t.Error("dropped changes are not counted, or are waited for")
	}
}

// TestOtherStream has a journal of a log that was lost and made anew.
func TestOtherStream(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, nil)
	b.fold(0, 9, "old")
	b.written()
	b = open(t, dir, func(o *Options) { o.Streams = []string{"new", "b"} })
	b.fold(0, 1, "new")
	b.written()
	if got := b.read(0, 0); !slices.Contains(got, "0 0-1 1.1:new") {
		t.Errorf("frames %q", got)
	}
}

func TestSwitchedOnLater(t *testing.T) {
	j, err := Open(Options{Dir: t.TempDir(), Streams: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{Journal: j, t: t, passed: make([]uint64, 1)}
	j.Connect(func(i int) uint64 { return b.passed[i] }, func(int) uint64 { return 0 })
	if err := j.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.fold(0, 1, "before")
	if b.Kept(0) != 0 {
		t.Error("a journal that is switched off keeps the state waiting")
	}
	if err := j.SwitchOn(); err != nil {
		t.Fatal(err)
	}
	b.fold(0, 2, "at the time")
	b.fold(0, 3, "behind")
	if err := j.Stop(); err != nil {
		t.Fatal(err)
	}
	got := b.read(0)
	if len(got) == 0 || !slices.Contains([]string{"0 1-3 2.1:at the time 3.1:behind", "0 2-3 3.1:behind"}, got[len(got)-1]) {
		t.Errorf("frames %q", got)
	}
}

func TestSwitchedOff(t *testing.T) {
	b := open(t, t.TempDir(), nil)
	b.fold(0, 1, "a")
	b.written()
	b.fold(0, 2, "b")
	b.SwitchOff()
	b.fold(0, 3, "c")
	b.written()
	if b.Kept(0) != 0 || b.pending.Load() != 0 {
		t.Errorf("it keeps the state waiting, or has %d bytes", b.pending.Load())
	}
	b.Journal.started = true
	if err := b.SwitchOn(); err != nil {
		t.Fatal(err)
	}
	b.fold(0, 4, "d")
	b.fold(0, 5, "e")
	b.written()
	got := b.read(0, 0)
	wantFrames(t, "frames", got[:1], "0 0-1 1.1:a")
	if len(got) != 2 || got[1] != "0 4-5 5.1:e" {
		t.Errorf("frames %q", got)
	}
	b.SwitchOff()
	for _, s := range b.files.segments {
		s.written = time.Now().Add(-2 * keepUnused)
	}
	b.bound()
	if len(b.files.segments) != 0 {
		t.Error("an old file stays")
	}
}

func FuzzReader(f *testing.F) {
	dir := f.TempDir()
	frame := Frame{Partition: 1, Stream: 2, From: 3, Last: 4, Count: 1}
	entry := appendEntry(nil, &state.Applied{Seq: 4, Sub: 1, Namespace: "n", Entity: "e", Check: "c"})
	whole := frame.append(nil, entry)
	f.Add(whole)
	f.Add(append(slices.Clone(whole[:headerSize+2]), whole...))
	huge := slices.Clone(whole)
	huge[31] ^= 0x80 // of the last message
	f.Add(append(huge, whole...))
	path := filepath.Join(dir, "file")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		r := reading{file: file, end: int64(len(b))}
		for {
			f, err := r.header()
			if err == nil {
				if got, want := binary.LittleEndian.Uint32(b[r.at+64:]), crc32.Checksum(b[r.at:r.at+64], castagnoli); got != want {
					t.Errorf("a damaged header at %d is read as %+v", r.at, f)
				}
				err = r.body(&f)
			}
			switch {
			case err == nil:
				for _, err := range f.Entries() {
					if err != nil {
						break
					}
				}
				r.pass(&f)
			case errors.Is(err, io.EOF):
				return
			case errors.Is(err, errDamaged):
				r.resync()
			default:
				t.Fatal(err)
			}
		}
	})
}
