package eventfile

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// newFile returns a file in a directory of its own that allows no errors.
func newFile(t *testing.T) *file {
	f := &file{path: filepath.Join(t.TempDir(), "events.log"), keep: 2, warn: func(err error) { t.Error(err) }}
	t.Cleanup(func() {
		if err := f.close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *file) put(t *testing.T, lines string) {
	t.Helper()
	if n, err := f.append([]byte(lines)); err != nil || n != len(lines) {
		t.Fatalf("%d bytes of %q were written: %v", n, lines, err)
	}
}

// has compares the contents of the directory, by name. {} stands for the file's name.
func (f *file) has(t *testing.T, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	entries, err := os.ReadDir(filepath.Dir(f.path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(f.path), e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got[strings.Replace(e.Name(), filepath.Base(f.path), "{}", 1)] = string(text)
	}
	if !maps.Equal(got, want) {
		t.Errorf("the directory has %q, want %q", got, want)
	}
}

func TestRotationBySize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock begins at midnight of 2000-01-01, and stands
		f := newFile(t)
		f.maxBytes = 10
		if err := os.WriteFile(f.path+".1", []byte("of logrotate"), 0o600); err != nil {
			t.Fatal(err)
		}
		f.put(t, "0123\n")
		f.put(t, "4567\n")
		f.has(t, map[string]string{"{}": "0123\n4567\n", "{}.1": "of logrotate"})
		f.put(t, "a\n")
		f.has(t, map[string]string{"{}": "a\n", "{}.20000101T000000.000Z": "0123\n4567\n", "{}.1": "of logrotate"})
		f.put(t, "longer than a file may be\n")
		f.put(t, "b\n")
		f.has(t, map[string]string{
			"{}": "b\n", "{}.20000101T000000.001Z": "a\n", "{}.20000101T000000.002Z": "longer than a file may be\n",
			"{}.1": "of logrotate",
		})
		info, err := os.Stat(f.path)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("the new file has the mode %v (%v)", info.Mode(), err)
		}
	})
}

func TestRotationByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFile(t)
		f.maxAge = time.Hour
		f.put(t, "a\n")
		time.Sleep(time.Hour - time.Millisecond)
		f.put(t, "b\n")
		f.has(t, map[string]string{"{}": "a\nb\n"})
		time.Sleep(time.Millisecond)
		f.put(t, "c\n")
		f.has(t, map[string]string{"{}": "c\n", "{}.20000101T010000.000Z": "a\nb\n"})

		// A restart goes on counting from the last rotation.
		time.Sleep(30 * time.Minute)
		if err := f.reopen(); err != nil {
			t.Fatal(err)
		}
		f.put(t, "d\n")
		time.Sleep(30 * time.Minute)
		f.put(t, "e\n")
		f.has(t, map[string]string{
			"{}": "e\n", "{}.20000101T010000.000Z": "a\nb\n", "{}.20000101T020000.000Z": "c\nd\n",
		})
	})
}

// TestAgeOfAnOlderFile: without a rotation a file of an earlier process counts from its last write.
func TestAgeOfAnOlderFile(t *testing.T) {
	f := newFile(t)
	f.maxAge = time.Hour
	if err := os.WriteFile(f.path, []byte("old\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	f.put(t, "a\n")
	f.has(t, map[string]string{"{}": "old\na\n"})
	dayAgo := time.Now().Add(-24 * time.Hour)
	if err := os.Chtimes(f.path, dayAgo, dayAgo); err != nil {
		t.Fatal(err)
	}
	if err := f.reopen(); err != nil {
		t.Fatal(err)
	}
	f.put(t, "b\n")
	if text, err := os.ReadFile(f.path); err != nil || string(text) != "b\n" {
		t.Errorf("the file has %q (%v)", text, err)
	}
}

func TestTornLine(t *testing.T) {
	f := newFile(t)
	if err := os.WriteFile(f.path, []byte("whole\n{\"torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.put(t, "a\n")
	f.put(t, "b\n")
	f.has(t, map[string]string{"{}": "whole\n{\"torn\na\nb\n"})
}

// TestMovedFile: another program moves the file away, removes it or cuts it, with and without a call of reopen.
func TestMovedFile(t *testing.T) {
	f := newFile(t)
	move := func(to string) {
		t.Helper()
		if err := os.Rename(f.path, f.path+to); err != nil {
			t.Fatal(err)
		}
	}
	f.put(t, "a\n")
	move(".1")
	f.put(t, "b\n")
	f.has(t, map[string]string{"{}": "b\n", "{}.1": "a\n"})
	move(".2")
	if err := f.reopen(); err != nil {
		t.Fatal(err)
	}
	f.has(t, map[string]string{"{}": "", "{}.1": "a\n", "{}.2": "b\n"})
	f.put(t, "c\n")
	if err := os.Remove(f.path); err != nil {
		t.Fatal(err)
	}
	f.put(t, "d\n")
	if err := os.Truncate(f.path, 0); err != nil { // logrotate's copytruncate
		t.Fatal(err)
	}
	f.put(t, "e\n")
	f.has(t, map[string]string{"{}": "e\n", "{}.1": "a\n", "{}.2": "b\n"})
}

// TestFailedRotation goes on in the file that cannot be renamed, and says why. A file that cannot be removed later is
// said too.
func TestFailedRotation(t *testing.T) {
	f := newFile(t)
	var warned []error
	f.warn = func(err error) { warned = append(warned, err) }
	f.maxBytes, f.keep = 3, 1
	stuck := f.path + ".19990101T000000.000Z"
	if err := os.MkdirAll(filepath.Join(stuck, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	f.put(t, "a\n")
	f.put(t, "b\n")
	if len(warned) != 1 || !strings.Contains(warned[0].Error(), stuck) {
		t.Errorf("warned of %v, want of %s", warned, stuck)
	}
	old, err := f.renamed()
	if err != nil || len(old) != 2 {
		t.Errorf("renamed are %q (%v)", old, err)
	}

	if err := os.RemoveAll(stuck); err != nil {
		t.Fatal(err)
	}
	f.path = strings.Repeat("x", 245) // a renamed file's name is too long
	t.Chdir(t.TempDir())
	f.put(t, "a\n")
	f.put(t, "b\n")
	f.put(t, "c\n")
	if text, err := os.ReadFile(f.path); err != nil || string(text) != "a\nb\nc\n" || len(warned) != 3 {
		t.Errorf("the file has %q (%v), and %d warnings", text, err, len(warned))
	}
}
