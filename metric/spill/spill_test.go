package spill

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func open(t testing.TB, dir string, maxBytes int64) *Spill {
	t.Helper()
	s, err := Open(Options{Dir: dir, MaxBytes: maxBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func record(i int) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("record %d;", i)), 1+i%50)
}

func number(t testing.TB, record []byte) int {
	t.Helper()
	var i int
	if _, err := fmt.Sscanf(string(record), "record %d;", &i); err != nil {
		t.Fatalf("%q: %v", record, err)
	}
	return i
}

// rest takes all records.
func rest(t testing.TB, s *Spill) (all [][]byte) {
	t.Helper()
	for {
		r, err := s.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, bytes.Clone(r))
		s.Done()
	}
}

func appendAll(t testing.TB, s *Spill, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if err := s.Append(record(i)); err != nil {
			t.Fatal(err)
		}
	}
}

func wantRange(t testing.TB, got [][]byte, from, to int) {
	t.Helper()
	if len(got) != to-from {
		t.Fatalf("got %d records, want %d", len(got), to-from)
	}
	for i, r := range got {
		if !bytes.Equal(r, record(from+i)) {
			t.Fatalf("record %d is %.40q", from+i, r)
		}
	}
}

func TestOrder(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 1<<20)
	appendAll(t, s, 0, 1000)
	if n := segments(t, dir); len(n) < 2 {
		t.Errorf("%d files: the test wants several", len(n))
	}
	wantRange(t, rest(t, s), 0, 1000)
	if s.Bytes() != 0 {
		t.Errorf("%d bytes are left", s.Bytes())
	}
	if n := segments(t, dir); len(n) != 0 {
		t.Errorf("files are left: %v", n)
	}
	// In turns: the reader follows the writer in one file.
	for i := range 300 {
		appendAll(t, s, 2*i, 2*i+2)
		r, err := s.Next()
		if again, _ := s.Next(); err != nil || !bytes.Equal(r, record(i)) || !bytes.Equal(again, r) {
			t.Fatalf("record %d: %.40q, %v", i, r, err)
		}
		s.Done()
		s.Done() // without a record
	}
	wantRange(t, rest(t, s), 300, 600)
	if st := s.Stats(); st != (Stats{Appended: 1600, Done: 1600}) {
		t.Errorf("stats %+v", st)
	}
}

func segments(t testing.TB, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"+extension))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestRestart(t *testing.T) {
	dir := t.TempDir()
	done := 0
	for round := range 5 {
		s := open(t, dir, 1<<20)
		appendAll(t, s, 200*round, 200*round+200)
		for range 150 {
			if r, err := s.Next(); err != nil || !bytes.Equal(r, record(done)) {
				t.Fatalf("record %d: %.40q, %v", done, r, err)
			}
			s.Done()
			done++
		}
		if round%2 == 0 {
			if err := errors.Join(s.Close(), s.Close()); err != nil {
				t.Fatal(err)
			}
		}
		// In the other rounds the process is killed: no Close.
	}
	wantRange(t, rest(t, open(t, dir, 1<<20)), done, 1000)
}

func TestFull(t *testing.T) {
	s := open(t, t.TempDir(), minBytes)
	fill := func(from int) (n int) {
		for n = from; ; n++ {
			if err := s.Append(record(n)); errors.Is(err, ErrFull) {
				return n
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	n := fill(0)
	if b := s.Bytes(); b > minBytes || b < minBytes/2 {
		t.Errorf("full at %d bytes", b)
	}
	wantRange(t, rest(t, s), 0, n)
	if m := fill(n); m <= n {
		t.Error("there is no room after all was done")
	}
}

func TestRefuses(t *testing.T) {
	if _, err := Open(Options{}); err == nil {
		t.Error("a spill without a directory opens")
	}
	if _, err := Open(Options{Dir: t.TempDir(), MaxBytes: 1}); err == nil {
		t.Error("a spill of a byte opens")
	}
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Dir: file}); err == nil {
		t.Error("a file opens as a spill")
	}
	s := open(t, t.TempDir(), 0)
	if err := s.Append(make([]byte, MaxRecord+1)); err == nil || !strings.Contains(err.Error(), "the limit") {
		t.Errorf("a long record: %v", err)
	}
	s.Close()
	if err := s.Append(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
	if _, err := s.Next(); !errors.Is(err, ErrClosed) {
		t.Errorf("next after close: %v", err)
	}
	s.Done()
}

// TestDiskError: a record that cannot be written is an error, and the others stay.
func TestDiskError(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 1<<20)
	appendAll(t, s, 0, 10)
	s.writer.Close() // writes fail from here
	if err := s.Append(record(10)); err == nil {
		t.Fatal("a write to a closed file succeeds")
	}
	s.mu.Lock()
	s.endWriter()
	s.mu.Unlock()
	appendAll(t, s, 10, 20)
	wantRange(t, rest(t, s), 0, 20)
}

// TestKill cuts the last file at every byte: what is left is a prefix of the records, and appending goes on.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 1<<20)
	appendAll(t, s, 0, 7)
	file := segments(t, dir)[0]
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, dir, 1<<20)
		appendAll(t, s, 100, 101)
		got := rest(t, s)
		wantRange(t, got[len(got)-1:], 100, 101)
		wantRange(t, got[:len(got)-1], 0, len(got)-1)
		if st := s.Stats(); st.Damaged > 1 || int(st.DamagedBytes) >= len(record(6))+headerSize {
			t.Fatalf("cut at %d: %+v", cut, st)
		}
		s.Close()
	}
}

// TestDamage changes, removes and inserts random bytes. All records that are whole come out, in order.
func TestDamage(t *testing.T) {
	const seed = 7
	rnd := rand.New(rand.NewPCG(seed, 1))
	for round := range 90 {
		dir := t.TempDir()
		s := open(t, dir, 1<<20)
		appendAll(t, s, 0, 60)
		s.Close()
		file := segments(t, dir)[0]
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		hit := rnd.IntN(len(data))
		broken := 0 // the record that is hit
		for at := 0; ; broken++ {
			at += headerSize + int(binary.LittleEndian.Uint32(data[at+4:]))
			if hit < at {
				break
			}
		}
		switch round % 3 {
		case 0:
			data[hit] ^= byte(1 + rnd.IntN(255))
		case 1:
			data = slices.Delete(data, hit, hit+1)
		case 2:
			data = slices.Insert(data, hit, mark...)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir, 1<<20)
		seen := map[int]bool{}
		last := -1
		for _, r := range rest(t, s) {
			i := number(t, r)
			if i <= last || !bytes.Equal(r, record(i)) {
				t.Fatalf("seed %d, round %d: record %d after %d: %.40q", seed, round, i, last, r)
			}
			last, seen[i] = i, true
		}
		for i := range 60 {
			if !seen[i] && i != broken {
				t.Errorf("seed %d, round %d, byte %d of record %d: record %d is lost", seed, round, hit, broken, i)
			}
		}
		if st := s.Stats(); !seen[broken] && st.Damaged == 0 {
			t.Errorf("round %d: damage is not counted", round)
		}
		s.Close()
	}
}

func TestDamagedPosition(t *testing.T) {
	for _, data := range []string{"", "x", strings.Repeat("\xff", positionLength), strings.Repeat("\x00", 100)} {
		dir := t.TempDir()
		s := open(t, dir, 1<<20)
		appendAll(t, s, 0, 10)
		if _, err := s.Next(); err != nil {
			t.Fatal(err)
		}
		s.Done()
		s.Close()
		if err := os.WriteFile(filepath.Join(dir, positionFile), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		wantRange(t, rest(t, open(t, dir, 1<<20)), 0, 10)
	}
}

// TestMissingFile: a file that was removed costs its records only.
func TestMissingFile(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 1<<20)
	appendAll(t, s, 0, 1000)
	s.Close()
	s = open(t, dir, 1<<20)
	if err := os.Remove(segments(t, dir)[0]); err != nil {
		t.Fatal(err)
	}
	got := rest(t, s)
	if first := number(t, got[0]); first == 0 || len(got) != 1000-first {
		t.Errorf("got %d records from %d on", len(got), first)
	}
	if s.Stats().Damaged != 1 {
		t.Errorf("stats %+v", s.Stats())
	}
}

func TestConcurrent(t *testing.T) {
	s := open(t, t.TempDir(), 4<<20)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() { appendAll(t, s, w*500, w*500+500) })
	}
	got := 0
	for got < 2000 {
		if _, err := s.Next(); errors.Is(err, io.EOF) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		s.Done()
		got++
	}
	wg.Wait()
	if s.Bytes() != 0 {
		t.Errorf("%d bytes are left", s.Bytes())
	}
}

// FuzzFile reads a file of any bytes, behind whole records and before others.
func FuzzFile(f *testing.F) {
	f.Add([]byte{})
	f.Add(mark)
	f.Add(append(slices.Clone(mark), 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4))
	f.Add(append(slices.Clone(mark), 1, 0, 0, 0, 1, 2, 3, 4, 'x'))
	f.Add(bytes.Repeat(mark, 100))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, segmentName(3)), data, 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, dir, 1<<20)
		if err := s.Append(record(0)); err != nil {
			t.Fatal(err)
		}
		all := rest(t, s)
		if len(all) == 0 || !bytes.Equal(all[len(all)-1], record(0)) {
			t.Errorf("the whole record behind is lost: %q", all)
		}
	})
}

func BenchmarkAppendNext(b *testing.B) {
	s := open(b, b.TempDir(), 0)
	r := make([]byte, 32<<10)
	b.SetBytes(int64(len(r)))
	for b.Loop() {
		if err := s.Append(r); err != nil {
			b.Fatal(err)
		}
		if _, err := s.Next(); err != nil {
			b.Fatal(err)
		}
		s.Done()
	}
}
