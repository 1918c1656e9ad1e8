package eventfile

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestNoRegularFile(t *testing.T) {
	f := newFile(t)
	if err := syscall.Mkfifo(f.path, 0o600); err != nil {
		t.Skip(err)
	}
	if _, err := f.append([]byte("a\n")); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a named pipe: %v", err)
	}
}

// TestFullDisk: each line that was reported as written is there whole, and after the disk has room again the rest
// follows.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	f := newFile(t)
	f.path = filepath.Join(dir, "events.log")
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, make([]byte, 32<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("x", 2999) + "\n"
	lines := strings.Repeat(line, 20)
	n, err := f.append([]byte(lines))
	if err == nil || n == 0 || n >= len(lines) || n%len(line) != 0 {
		t.Fatalf("%d bytes fit: %v", n, err)
	}
	if m, err := f.append([]byte(lines[n:])); err == nil || m != 0 {
		t.Fatalf("%d more bytes fit: %v", m, err)
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	f.put(t, lines[n:])
	text, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Collect(strings.Lines(string(text)))
	whole := slices.DeleteFunc(slices.Clone(all), func(l string) bool { return l != line })
	if len(whole) != 20 || len(all) != 21 {
		t.Errorf("%d lines, of which %d are whole; want 20, and the torn one", len(all), len(whole))
	}
}
