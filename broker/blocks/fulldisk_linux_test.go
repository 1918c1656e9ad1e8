package blocks_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/lapwing-monitoring/lapwing/broker/blocks"
)

// TestRepairOnAFullDisk: a repair that cannot write a block again leaves its sound records where they are.
func TestRepairOnAFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}
	whole, mark := filled(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	broker := filepath.Join(dir, "broker")
	if err := os.CopyFS(broker, os.DirFS(whole)); err != nil {
		t.Fatal(err)
	}
	path := blockFiles(t, broker)[0]
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := flip(path, st.Size()-1); err != nil {
		t.Fatal(err)
	}
	check := func() *blocks.Report {
		t.Helper()
		r, err := blocks.Check(broker, shape, true, mark, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	before := check()
	fill(t, filepath.Join(dir, "fill"))
	if _, err := blocks.Repair(before, shape, mark, 0, filepath.Join(dir, "aside")); err == nil {
		t.Fatal("the block was written again on a full disk")
	}
	after := check()
	if len(before.Findings) != 1 || len(after.Findings) != 1 || after.Findings[0].Missing != before.Findings[0].Missing {
		t.Errorf("before the repair: %+v, after it: %+v", before.Findings, after.Findings)
	}
}

// fill writes a file until the disk has no room for another byte.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
}
