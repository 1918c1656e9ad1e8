//go:build unix

package plainfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestReadRefusesWhatIsNoPlainFile(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(path("plain"), []byte("12345678"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := Read(path("plain"), 8); err != nil || string(b) != "12345678" {
		t.Errorf("a plain file: %q, %v", b, err)
	}
	if err := syscall.Mkfifo(path("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", path("device")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path("directory"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"pipe": "a named pipe", "device": "a device", "directory": "a directory", "plain": "more than 7 bytes",
	} {
		if b, err := Read(path(name), 7); !errors.Is(err, ErrIrregular) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want %q", name, b, err, want)
		}
	}
	if _, err := Read(path("none"), 7); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
