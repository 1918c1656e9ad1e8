package agent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// spooled is an outbox with a spool in dir, and the trouble it reported.
type spooled struct {
	outbox
	damaged error
	trouble []error
}

func openSpooled(t testing.TB, dir string) *spooled {
	t.Helper()
	s, entries, damaged, err := openSpool(dir)
	if err != nil {
		t.Fatal(err)
	}
	o := &spooled{outbox: outbox{maxEvents: 1000, maxBytes: 64 << 20}, damaged: damaged}
	o.outbox.trouble = func(err error) { o.trouble = append(o.trouble, err) }
	o.restore(s, entries)
	t.Cleanup(func() { o.kill() })
	return o
}

// kill ends it as a killed process would.
func (o *spooled) kill() {
	if o.spool != nil {
		o.spool.file.Close()
		o.spool.lock.Close()
		o.spool = nil
	}
}

func (o *spooled) put(checks ...string) {
	for _, c := range checks {
		o.add(c, wire.Item{Event: []byte("event of " + c), Keepalive: c == keepaliveCheck})
	}
}

// events takes all events and lists them as number:event.
func (o *spooled) events(t testing.TB) string {
	t.Helper()
	var b batch
	o.rewind()
	if more, lost := o.take(&b, 1000, 64<<20); more || lost != 0 {
		t.Errorf("more %v, lost %d", more, lost)
	}
	var all []string
	for i := range b.items {
		all = append(all, fmt.Sprintf("%d:%s", b.seqs[i], strings.TrimPrefix(string(b.items[i].Event), "event of ")))
	}
	return strings.Join(all, " ")
}

func (o *spooled) want(t testing.TB, want string) {
	t.Helper()
	if got := o.events(t); got != want {
		t.Errorf("holds %q, want %q", got, want)
	}
	total := 0
	for i := range o.entries {
		total += o.entries[i].size
	}
	if o.bytes != total {
		t.Errorf("counts %d bytes, holds %d", o.bytes, total)
	}
	for _, err := range o.trouble {
		t.Errorf("trouble: %v", err)
	}
}

func TestSpoolOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "deep", "spool")
	o := openSpooled(t, dir)
	epoch := o.spool.epoch
	o.put("a", "b", "c", "b")
	o.want(t, "1:a 2:b 3:c 4:b")
	o.ack(2)
	o.kill()

	o = openSpooled(t, dir)
	if o.spool.epoch != epoch || o.damaged != nil {
		t.Errorf("epoch %x became %x; damaged: %v", epoch, o.spool.epoch, o.damaged)
	}
	o.want(t, "3:c 4:b")
	o.put("d")
	first := o.last
	if first <= 4 || first != o.entries[2].seq {
		t.Errorf("new number %d", first)
	}
	o.maxEvents = 3
	o.put("b") // replaces the other one
	o.put(keepaliveCheck)
	o.kill()

	o = openSpooled(t, dir)
	o.want(t, fmt.Sprintf("%d:d %d:b", first, first+1)) // the keepalive replaced c and is obsolete now
	o.put("e")
	if o.last <= first+2 {
		t.Errorf("number %d may have been a keepalive's", o.last)
	}
	o.ack(o.last)
	o.events(t)
	o.ack(o.last)
	o.kill()
	openSpooled(t, dir).want(t, "")
}

// TestSpoolNumbers: numbers are never used twice, regardless of keepalives between events.
func TestSpoolNumbers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := openSpooled(t, dir)
	for range 3 * numberBlock {
		o.put(keepaliveCheck)
	}
	last := o.last
	o.kill()
	if o = openSpooled(t, dir); o.last < last {
		t.Errorf("goes on with %d after %d", o.last, last)
	}
	if info, err := os.Stat(o.spool.path()); err != nil || info.Size() > 1000 {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
}

func TestSpoolIsWrittenAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := openSpooled(t, dir)
	o.put("kept")
	big := make([]byte, 100<<10)
	for range 100 { // each replaces the one before
		o.maxBytes = 150 << 10
		o.add("big", wire.Item{Event: big})
	}
	info, err := os.Stat(o.spool.path())
	if err != nil || info.Size() > 3<<20 {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
	o.put("last")
	got := o.events(t)
	o.kill()
	o = openSpooled(t, dir)
	o.want(t, got)
	if !strings.HasPrefix(got, "1:kept") || !strings.HasSuffix(got, ":last") {
		t.Errorf("holds %.100q", got)
	}
}

// TestSpoolSparesMemory holds more than memory may.
func TestSpoolSparesMemory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := openSpooled(t, dir)
	for i := range 100 {
		o.add("c", wire.Item{Event: bytes.Repeat([]byte{byte(i)}, 64<<10)})
	}
	if o.memory > spooledMemory || o.bytes != 100*64<<10 {
		t.Errorf("%d bytes in memory of %d", o.memory, o.bytes)
	}
	var b batch
	if more, lost := o.take(&b, 1000, 64<<20); more || lost > 0 || len(b.items) != 100 {
		t.Fatalf("took %d, lost %d", len(b.items), lost)
	}
	for i, it := range b.items {
		if !bytes.Equal(it.Event, bytes.Repeat([]byte{byte(i)}, 64<<10)) {
			t.Errorf("event %d is not what it was", i)
		}
	}
	o.ack(o.last)
	if o.memory != 0 || o.bytes != 0 {
		t.Errorf("%d bytes in memory of %d", o.memory, o.bytes)
	}
}

func TestSpoolAge(t *testing.T) {
	t.Parallel()
	o := openSpooled(t, t.TempDir())
	o.maxAge = time.Hour
	o.put("a", "b")
	o.entries[0].added -= 2 * time.Hour.Milliseconds()
	if _, dropped, more := o.add("c", wire.Item{Event: []byte("event of c")}); dropped != 1 || more != 0 {
		t.Errorf("dropped %d, %d more", dropped, more)
	}
	o.want(t, "2:b 3:c")
}

func TestSpoolIsOneAgents(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	openSpooled(t, dir)
	if _, _, _, err := openSpool(dir); !errors.Is(err, errSpoolLocked) {
		t.Errorf("a second one: %v", err)
	}
}

func TestSpoolDamaged(t *testing.T) {
	t.Parallel()
	make3 := func(dir string) (file string, epoch uint64) {
		o := openSpooled(t, dir)
		o.put("a", "b", "c")
		file, epoch = o.spool.path(), o.spool.epoch
		o.kill()
		return file, epoch
	}
	file, _ := make3(t.TempDir())
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func([]byte) []byte
		want   string
		same   bool // epoch
	}{
		"cut in the last event":    {func(b []byte) []byte { return b[:len(b)-3] }, "1:a 2:b", false},
		"cut in the head":          {func(b []byte) []byte { return b[:20] }, "", false},
		"cut in a record's head":   {func(b []byte) []byte { return append(b, 1, 2, 3) }, "1:a 2:b 3:c", false},
		"a bit of the last event":  {func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, "1:a 2:b", false},
		"a bit of the first event": {func(b []byte) []byte { b[spoolHeader+17+10] ^= 1; return b }, "", false},
		"zeros behind it":          {func(b []byte) []byte { return append(b, make([]byte, 4096)...) }, "1:a 2:b 3:c", false},
		"something else":           {func([]byte) []byte { return []byte("hello") }, "", false},
		"nothing":                  {func([]byte) []byte { return nil }, "", false},
		"all of it":                {func(b []byte) []byte { return b }, "1:a 2:b 3:c", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file, epoch := make3(dir)
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if len(b) != len(whole) {
				t.Fatalf("%d bytes, want %d", len(b), len(whole))
			}
			if err := os.WriteFile(file, tt.change(b), 0o600); err != nil {
				t.Fatal(err)
			}
			o := openSpooled(t, dir)
			if (o.spool.epoch == epoch) != tt.same || (o.damaged == nil) != (tt.same || name == "nothing") {
				t.Errorf("the epoch is the same: %v; damaged: %v", o.spool.epoch == epoch, o.damaged)
			}
			o.want(t, tt.want)
			o.put("d")
			got := o.events(t)
			o.kill()
			if o = openSpooled(t, dir); o.damaged != nil {
				t.Errorf("it was not mended: %v", o.damaged)
			}
			o.want(t, got)
		})
	}
}

// TestSpoolCannotBeWritten continues in memory, and on disk when there is room again.
func TestSpoolCannotBeWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := openSpooled(t, dir)
	o.put("a")
	readOnly, err := os.Open(o.spool.path())
	if err != nil {
		t.Fatal(err)
	}
	writable := o.spool.file
	o.spool.file = readOnly
	o.put("b", "c")
	if len(o.trouble) != 1 || o.trouble[0] == nil {
		t.Errorf("trouble: %v", o.trouble)
	}
	if got := o.events(t); got != "1:a 2:b 3:c" {
		t.Errorf("holds %q", got)
	}
	o.put("d")
	o.spool.broken = time.Now().Add(-2 * mendLast)
	o.put("e") // makes a new file
	writable.Close()
	if len(o.trouble) != 2 || o.trouble[1] != nil {
		t.Errorf("trouble: %v", o.trouble)
	}
	o.trouble = nil
	o.want(t, "1:a 2:b 3:c 4:d 5:e")
	o.kill()
	openSpooled(t, dir).want(t, "1:a 2:b 3:c 4:d 5:e")
}

// TestSpoolOnFullDisk opens a spool on a disk without room: events wait in memory, and on disk when there is room.
func TestSpoolOnFullDisk(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	disk := t.TempDir()
	mountSmall(t, disk)
	ballast := filepath.Join(disk, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	dir := filepath.Join(disk, "spool")
	o := openSpooled(t, dir)
	o.put("a", "b")
	if got := o.events(t); got != "1:a 2:b" || o.spool.broken.IsZero() || len(o.trouble) != 0 {
		t.Fatalf("holds %q, broken since %v, trouble %v", got, o.spool.broken, o.trouble)
	}
	// Each failed attempt makes the next pause longer and logs nothing.
	for range 20 {
		o.spool.broken = time.Now().Add(-2 * mendLast)
		o.put("c")
	}
	o.spool.broken = time.Now().Add(-mendLast + time.Minute)
	if o.spool.mendable() || len(o.trouble) != 0 {
		t.Errorf("mendable %v after %d tries, trouble %v", o.spool.mendable(), o.spool.tries, o.trouble)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	o.spool.broken = time.Now().Add(-2 * mendLast)
	o.put("d")
	if len(o.trouble) != 1 || o.trouble[0] != nil {
		t.Errorf("with room: trouble %v", o.trouble)
	}
	o.trouble = nil
	want := o.events(t)
	o.kill()
	openSpooled(t, dir).want(t, want)
}

func FuzzSpool(f *testing.F) {
	o := openSpooled(f, f.TempDir())
	o.put("a", "b", keepaliveCheck, "c")
	o.events(f)
	o.ack(1)
	b, err := os.ReadFile(o.spool.path())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)-1])
	f.Add([]byte(spoolMagic + "12345678"))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "events"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		o := openSpooled(t, dir)
		o.put("new")
		got := o.events(t)
		o.kill()
		if o = openSpooled(t, dir); o.damaged != nil {
			t.Errorf("still damaged: %v", o.damaged)
		}
		o.want(t, got)
	})
}
