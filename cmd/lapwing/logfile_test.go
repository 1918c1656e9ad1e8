package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestLogFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log", "agent.log")
	l := &logFile{path: path, maxSize: 10, keep: 2}
	if err := l.open(); err != nil {
		t.Fatal(err)
	}
	for _, entry := range []string{"one\n", "two\n", "three\n", "a line that is longer than a file\n", "five\n"} {
		if n, err := l.Write([]byte(entry)); n != len(entry) || err != nil {
			t.Fatalf("%q: wrote %d, %v", entry, n, err)
		}
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Write([]byte("six\n")); err == nil {
		t.Error("a closed file was written to")
	}
	if err := l.open(); err != nil { // and goes on where it was
		t.Fatal(err)
	}
	if _, err := l.Write([]byte("six\n")); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{path: "five\nsix\n", path + ".1": "a line that is longer than a file\n",
		path + ".2": "three\n"} {
		if got, err := os.ReadFile(name); string(got) != want {
			t.Errorf("%s holds %q, want %q (%v)", filepath.Base(name), got, want, err)
		}
	}
	if _, err := os.Stat(path + ".3"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a third old file: %v", err)
	}
}
